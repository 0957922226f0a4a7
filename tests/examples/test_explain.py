"""What `explain` says of each kernel: the regions as queries run them.

By the papers' rules alone a region has one entry and one exit (the test of each kernel has those regions). Queries
lift that: unions, forks and joins are in regions too, and what is prolific may be shuffled.
"""

import pytest

from examples import finance, network_breakins, network_servers, opmon, pagerank, twitter_cep, twitter_nlp
from tests.examples.checks import built

SHOWN = [
    (opmon, opmon.USAGE, ["region 1: split → minutes, above → merge"]),
    (
        finance,
        finance.LINES,
        [
            "region 1: split → parse_trades, real_trades → merge",
            "region 2: split → parse_quotes, real_quotes → merge",
            "sequential: combine",
            "region 3: split → bargains → merge",
        ],
    ),
    (twitter_nlp, twitter_nlp.TWEETS, ["region 1: split → analyse → merge"]),
    (
        twitter_cep,
        twitter_cep.LINES,
        ["region 1: split → parse → shuffle", "region 2: shuffle → match → merge"],
    ),
    (
        pagerank,
        pagerank.BLOCKS,
        [
            "region 1: split → work, multiply → merge",
            "sequential: assemble",
            "region 2: split → not_yet, send_back → merge",
            "region 3: split → converged, pages → merge",
        ],
    ),
    (
        network_servers,
        network_servers.ENTRIES,
        ["region 1: split → compare, unusual → shuffle", "region 2: shuffle → behaviour, suspicious → merge"],
    ),
    (
        network_breakins,
        network_breakins.LINES,
        [
            "region 1: split → parse_lines, ways → shuffle",
            "region 2: shuffle → ways_0, parse_failures → shuffle",
            "region 3: shuffle → ways_1, parse_logins → shuffle",
            "region 4: shuffle → attacks, many → shuffle",
            "region 5: shuffle → suspects, breakins → merge",
        ],
    ),
]


@pytest.mark.parametrize(("kernel", "schemas", "shown"), SHOWN, ids=[each.__name__ for each, _, _ in SHOWN])
def test_explain_shows_the_regions(capsys, kernel, schemas, shown):
    built(kernel.program, schemas, kernel.generate(100, 1)).explain()
    lines = capsys.readouterr().out.splitlines()
    sources = {f"sequential: {name}" for name in [*schemas, "ranks"]}
    assert [line for line in lines if line.startswith(("region", "sequential")) and line not in sources] == shown
