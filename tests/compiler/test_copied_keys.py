"""Columns that a map copies: whoever asks for the key by one of the copies finds it."""

import pytest

import anabranch as ab
from anabranch.testing import run_parallel

ROWS = [(n % 5, n) for n in range(40)]


class Count(ab.Operator):
    count: int = ab.state(default=0)

    def process(self, t):
        self.count += 1
        yield t.n, t.m, self.count


@pytest.mark.parametrize("by", ["n", "m", ["n", "m"], ["m", "n"]])
@pytest.mark.parametrize("around", [False, True])
def test_an_operator_may_ask_for_its_key_by_any_copy(by, around):
    stream = ab.from_rows(ROWS, "n long, b long").map(lambda t: (t.n, t.n), schema="n long, m long")
    stream = stream.process(Count(), by=by, schema="n long, m long, count long")
    if around:
        stream = stream.map(lambda t: (t.count, t.m, t.n, t.m), schema="count long, m long, n long, again long")
        stream = stream.aggregate(by="again", window=ab.count(2), total=ab.agg.sum("count"))
    assert run_parallel(stream, channels=3) == stream.run_sequential()
