"""Crashes and rescalings of programs in which keys wait for times: the output is that of one thread."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.engine.worker import timed_calls, window_columns
from anabranch.program.event_time import Timetable
from anabranch.testing import run_parallel
from tests.event_time.test_end_of_input import PROGRAMS
from tests.event_time.test_watermarks import EXAMPLES, source
from tests.event_time.timed_programs import COLUMNS, cuts, rows
from tests.restless import restless_output

MEETING = {
    "united": lambda one, other: one.union(other),
    "aligned": lambda one, other: one.align(other, on="at", by="k"),
    "joined": lambda one, other: one.join(
        other,
        by="k",
        window=ab.event_time("at", 6),
        how="left",
        function=lambda a, b: (a.k, a.at, a.x if b is None else a.x * b.x),
        schema=COLUMNS,
    ),
}
steps = st.lists(st.sampled_from(sorted(PROGRAMS)), min_size=1, max_size=3)


@settings(max_examples=EXAMPLES // 2, deadline=None, print_blob=True)
@given(data=st.data(), chosen=steps, seed=st.integers(0, 999))
def test_a_driver_that_dies_anywhere_is_gone_on_from(tmp_path_factory, data, chosen, seed):
    stream = source(data.draw(cuts(data.draw(rows(30)))), lateness=2, idle=data.draw(st.sampled_from([None, 2])))
    meeting = data.draw(st.sampled_from([None, *sorted(MEETING)]))
    if meeting is not None:
        other = source(data.draw(cuts(data.draw(rows(15)))), idle=data.draw(st.sampled_from([None, 2])))
        stream = MEETING[meeting](stream, other)
    for step in chosen:
        stream = PROGRAMS[step](stream)
    clocks = sorted(data.draw(st.lists(st.integers(0, 9000), min_size=1, max_size=5)))
    found = restless_output(data, stream, str(tmp_path_factory.mktemp("checkpoint")), seed, clocks, ends=True, last=4)
    assert found == stream.run_sequential(clocks_ms=clocks, ends=True)


@pytest.mark.parametrize("bug", ["since when a key waits", "the last time of an epoch", "over columns"])
def test_the_comparison_can_fail(monkeypatch, bug):
    """Planted bugs are found, so the tests of this folder test something."""

    class Forgetful(Timetable):
        def add(self, due, since, key):
            super().add(due, since if bug != "since when a key waits" else tuple(-each for each in since), key)

    if bug == "since when a key waits":
        monkeypatch.setattr(timed_calls, "Timetable", Forgetful)
        monkeypatch.setattr(timed_calls.TimedCalls, "_padded", lambda self, since: tuple(-each for each in since))
    elif bug == "over columns":
        right = window_columns.since_when
        monkeypatch.setattr(window_columns, "since_when", lambda *arguments: -right(*arguments))
    else:
        monkeypatch.setattr(timed_calls.TimedCalls, "_time_at_the_end", lambda self, arrival: self.value)
    tuples = [(k % 4, k // 2, 1) for k in range(80)]
    stream = source([tuples[:40], tuples[40:]]).aggregate(
        by="k",
        window=ab.event_time("at", 10),
        at=ab.agg.window_start(),
        # The last value is asked of tuples one by one.
        x=ab.agg.sum("x") if bug == "over columns" else ab.agg.last("x"),
    )
    assert run_parallel(stream, channels=3) != stream.run_sequential()
