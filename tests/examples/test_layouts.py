"""What runs of each kernel, and that `explain` says it. The plans of the papers are in the test of each kernel."""

import pytest

from examples import finance, network_breakins, network_servers, opmon, pagerank, twitter_cep, twitter_nlp
from tests.examples.checks import built

SHOWN = [
    (opmon, opmon.USAGE, ["stage 0, depth 0: usage", "stage 1, depth 1, region minutes: minutes, above"]),
    (
        finance,
        finance.LINES,
        [
            "stage 0, depth 0: trades, parse_trades, real_trades",
            "stage 1, depth 0: quotes, parse_quotes, real_quotes",
            "stage 2, depth 1, region combine: combine",
            "stage 3, depth 2, region bargains: bargains",
        ],
    ),
    (twitter_nlp, twitter_nlp.TWEETS, ["stage 0, depth 0: tweets, analyse"]),
    (twitter_cep, twitter_cep.LINES, ["stage 0, depth 0: lines, parse", "stage 1, depth 1, region match: match"]),
    (
        pagerank,
        pagerank.BLOCKS,
        [
            "stage 0, depth 0: blocks",
            "stage 1, depth 0: ranks",
            "stage 2, depth 1, region multiply: multiply",
            "stage 3, depth 2, region assemble: assemble, not_yet, send_back, converged, pages",
        ],
    ),
    (
        network_servers,
        network_servers.ENTRIES,
        [
            "stage 0, depth 0: entries",
            "stage 1, depth 1, region compare: compare, unusual",
            "stage 2, depth 2, region behaviour: behaviour, suspicious",
        ],
    ),
    (
        network_breakins,
        network_breakins.LINES,
        [
            "stage 0, depth 0: lines, parse_lines, ways, ways_0, ways_1, parse_failures, parse_logins",
            "stage 1, depth 1, region attacks: attacks, many",
            "stage 2, depth 2, region suspects: suspects, breakins",
        ],
    ),
]


@pytest.mark.parametrize(("kernel", "schemas", "shown"), SHOWN, ids=[each.__name__ for each, _, _ in SHOWN])
def test_explain_shows_the_layout(capsys, kernel, schemas, shown):
    stream = built(kernel.program, schemas, kernel.generate(100, 1))
    stream.explain()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("stage")] == shown
    layout = stream.plan().layout
    names = [", ".join(node.name for node in layout.nodes(stage)) for stage in layout.stages]
    assert [line.split(": ")[1] for line in shown] == names
