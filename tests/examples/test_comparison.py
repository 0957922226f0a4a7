"""The comparison of parallel with sequential, of which the tests of the kernels consist, is tested itself."""

import pyarrow as pa
import pytest

from anabranch.engine.worker import output_mergers as mergers
from examples import finance, network_breakins, network_servers, opmon, twitter_cep, twitter_nlp
from tests.examples.checks import assert_parallel_is_sequential, built

# PageRank's output comes from one channel: there is no order to lose where its ranks leave.
KERNELS = [
    (opmon, opmon.USAGE, 20_000),
    (finance, finance.LINES, 1500),
    (twitter_nlp, twitter_nlp.TWEETS, 300),
    (twitter_cep, twitter_cep.LINES, 800),
    (network_servers, network_servers.ENTRIES, 5000),
    (network_breakins, network_breakins.LINES, 3000),
]


@pytest.mark.parametrize(("kernel", "schemas", "count"), KERNELS, ids=lambda each: getattr(each, "__name__", None))
def test_a_merger_that_ignores_order_is_caught(monkeypatch, kernel, schemas, count):
    # Backwards: slices of a stateless region come in their order, and would need no merger.
    def unordered(parts, schema):
        return pa.concat_tables([schema.empty_table(), *(rows for _, rows in reversed(parts))])

    monkeypatch.setattr(mergers, "merge", unordered)
    rows = kernel.generate(count, 4)
    if kernel is opmon:
        rows = {"usage": rows["usage"][::5]}

        def program(usage):
            return opmon.program(usage, 500.0)
    else:
        program = kernel.program
    with pytest.raises(AssertionError, match="rows differ with 4 channels"):
        assert_parallel_is_sequential(built(program, schemas, rows), 4)
