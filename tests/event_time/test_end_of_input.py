"""The end of the input: all time has come, windows close and timers are called, once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import CheckpointError
from anabranch.testing import ParallelRun, run_parallel
from tests.event_time.test_timers import TIMED, Seen, built
from tests.event_time.test_watermarks import EXAMPLES, source
from tests.event_time.timed_programs import COLUMNS, cuts, rows

PROGRAMS = {
    **TIMED,
    "sessions": lambda s: s.aggregate(by="k", window=ab.sessions("at", 4), at=ab.agg.window_start(), x=ab.agg.sum("x")),
    "by the clock": lambda s: s.process(Seen(), by="k", schema=COLUMNS, time="clock"),
    "clock window": lambda s: s.aggregate(by="k", window=ab.time(5), at=ab.agg.max("at"), x=ab.agg.sum("x")),
}
steps = st.lists(st.sampled_from(sorted(PROGRAMS)), min_size=1, max_size=4)


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), chosen=steps, channels=st.integers(1, 8), seed=st.integers(0, 999))
def test_at_the_end_all_time_has_come_in_parallel_as_in_one_thread(data, chosen, channels, seed):
    stream = source(data.draw(cuts(data.draw(rows()))), lateness=2)
    if data.draw(st.booleans()):
        stream = stream.union(source(data.draw(cuts(data.draw(rows(15)))), idle=data.draw(st.sampled_from([None, 2]))))
    for step in chosen:
        stream = PROGRAMS[step](stream)
    clocks = sorted(data.draw(st.lists(st.integers(0, 9000), min_size=1, max_size=5)))
    found = run_parallel(stream, channels=channels, seed=seed, clocks_ms=clocks, ends=True)
    assert found == stream.run_sequential(clocks_ms=clocks, ends=True)


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), one=steps, other=steps, channels=st.integers(1, 4), joined=st.booleans())
def test_at_the_end_streams_that_part_and_meet_again_are_as_in_one_thread(data, one, other, channels, joined):
    stream = source(data.draw(cuts(data.draw(rows()))), lateness=2)
    first, second = stream.filter(lambda t: t.x % 2), stream.filter(lambda t: t.x % 3)
    for step in one[:2]:
        first = PROGRAMS[step](first)
    for step in other[:2]:
        second = PROGRAMS[step](second)
    if joined and first.schema == second.schema:
        both = first.select("k", "at", "x").join(second.select("k", then="at"), by="k")
    else:
        both = first.select("k", "at").union(second.select("k", "at"))
    found = run_parallel(both, channels=channels, clocks_ms=[1000], ends=True)
    assert found == both.run_sequential(clocks_ms=[1000], ends=True)


def test_every_tuple_is_in_some_window_at_the_end():
    rows = [(k % 5, k, 1) for k in range(100)]
    stream = source([rows]).aggregate(by="k", window=ab.event_time("at", 10), n=ab.agg.count())
    assert sum(row.n for row in stream.run_sequential()) == 90
    assert sum(row.n for row in run_parallel(stream, ends=True)) == 100


class Last(ab.Operator):
    last: int = ab.state(default=None)
    key: int = ab.state(default=None)

    def process(self, t):
        self.last, self.key = t.x, t.k

    def on_end(self):
        yield (self.key, 0, self.last)


def test_operators_are_called_at_the_end_in_the_order_of_their_keys_first_tuples():
    stream = from_epochs([[(3, 0, 1), (1, 0, 2)], [(2, 0, 3), (3, 0, 4)]], COLUMNS)
    stream = stream.process(Last(), by="k", schema=COLUMNS)
    assert stream.run_sequential() == run_parallel(stream) == []
    assert stream.run_sequential(ends=True) == run_parallel(stream, ends=True) == [(3, 0, 4), (1, 0, 2), (2, 0, 3)]


def test_it_ends_once_and_takes_no_more(tmp_path):
    stream = built(source([[(1, 5, 1)], [(2, 6, 1)]]), ["tumbling"])
    written = {}
    first = ParallelRun(stream, str(tmp_path), written=written)
    first.run_epochs(last=0)
    first.end()
    assert len(first.output) == 1
    second = ParallelRun(stream, str(tmp_path), written=written)
    second.end()
    assert second.output == first.output
    with pytest.raises(CheckpointError, match="has ended"):
        second.run_epochs(first=1)
