"""Times at the ends of what a column can hold: windows by hand, and clear errors, in every way of running."""

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import AnabranchError
from anabranch.testing import run_parallel
from tests.event_time.test_watermarks import EXAMPLES
from tests.event_time.timed_programs import cuts

DAY, STAMP = datetime.date(1970, 1, 1), datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SECOND = datetime.timedelta(seconds=1)
KINDS = {  # a column's type; the first and the last time there is, in the unit of durations; how a number is written
    "byte": (-(2**7), 2**7 - 1, int),
    "int": (-(2**31), 2**31 - 1, int),
    "long": (-(2**61), 2**61, int),
    "date": (-719162, 2932896, lambda n: DAY + datetime.timedelta(days=n)),
    "timestamp": (-62135596800, 253402300799, lambda n: STAMP + n * SECOND),
    "timestamp_ntz": (-62135596800, 253402300799, lambda n: STAMP.replace(tzinfo=None) + n * SECOND),
}


@st.composite
def near_the_ends(draw, kind):
    low, high, _ = KINDS[kind]
    edge = st.integers(0, 9)
    time = st.one_of(edge.map(lambda n: low + n), edge.map(lambda n: high - n), st.integers(-3, 3))
    return draw(st.lists(st.tuples(st.integers(0, 2), time), max_size=10))


def of(kind, epochs):
    write = KINDS[kind][2]
    return from_epochs([[(k, write(n)) for k, n in rows] for rows in epochs], f"k long, at {kind}")


def expected(kind, tuples, size, every, bounds):
    """The windows of all tuples, when nothing is late; of a tuple that has an unwritable window none."""
    low, high, write = KINDS[kind]
    held, since = {}, {}
    for order, (k, at) in enumerate(tuples):
        last = at // every
        windows = [index * every for index in range(last - size // every, last + 1) if index * every + size > at]
        if kind != "long" and "start" in bounds and windows[0] < low:
            continue
        if kind != "long" and "end" in bounds and windows[-1] + size > high:
            continue
        since.setdefault(k, order)
        for start in windows:
            held[start, k] = held.get((start, k), 0) + 1
    found = []
    for (start, k), count in sorted(held.items(), key=lambda each: (each[0][0], since[each[0][1]])):
        places = {"start": start, "end": start + size}
        found.append((k, *(write(places[each]) for each in bounds), count))
    return found


@settings(max_examples=2 * EXAMPLES, deadline=None, print_blob=True)
@given(
    data=st.data(),
    kind=st.sampled_from(sorted(KINDS)),
    shape=st.sampled_from([(7, 7), (6, 3), (5, 2), (1, 1)]),
    bounds=st.sampled_from([(), ("start",), ("end",), ("start", "end")]),
    early=st.booleans(),
    channels=st.integers(1, 8),
)
def test_windows_at_the_ends_are_those_of_a_plain_computation(data, kind, shape, bounds, early, channels):
    (size, every), tuples = shape, data.draw(near_the_ends(kind))
    low, high, _ = KINDS[kind]
    lateness = high - low if kind != "long" else 2**60 - 1
    if kind == "long":  # nothing may be late, and lateness has an end
        tuples = [(k, at) for k, at in tuples if abs(at - tuples[0][1]) < 2**59]
    stream = of(kind, data.draw(cuts(tuples))).event_time("at", lateness)
    columns = {each: getattr(ab.agg, f"window_{each}")() for each in bounds}
    policy = ab.event_time("at", size, **({"lateness": 1} if early else {}))
    window = policy if size == every else ab.sliding(policy, every=every)
    counts = stream.aggregate(by="k", window=window, n=ab.agg.count(), **columns, on_error="skip")
    counts = counts.select("k", *bounds, "n")
    found = counts.run_sequential(ends=True)
    assert found == expected(kind, tuples, size, every, bounds)
    assert run_parallel(counts, channels=channels, ends=True) == found


def raised(call):
    with pytest.raises(AnabranchError) as found:
        call()
    return str(found.value)


WAYS = {
    "windows": lambda s: s.aggregate(by="k", window=ab.event_time("at", 5), n=ab.agg.count()),
    "sliding": lambda s: s.aggregate(by="k", window=ab.sliding(ab.event_time("at", 6), every=2), n=ab.agg.count()),
    "sessions": lambda s: s.aggregate(by="k", window=ab.sessions("at", 5), n=ab.agg.count()),
    "joined": lambda s: s.join(s.map(lambda t: (t.k, t.at), schema="k long, b long"), by="k", ttl=5),
    "aligned": lambda s: s.align(s.filter(lambda t: t.k > 0), on="at"),
    "nothing": lambda s: s.filter(lambda t: t.k > 0),
}


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("time", [2**61 + 1, -(2**61) - 1, 2**62, -(2**62), 2**63 - 1, -(2**63)])
def test_a_number_that_is_no_time_is_refused_with_its_tuple(way, time):
    rows = [[(1, 3), (2, 2**61)], [(1, time)]]
    stream = WAYS[way](from_epochs(rows, "k long, at long").event_time("at"))
    said = raised(stream.run_sequential)
    assert f"found {time}" in said and "between -2**61 and 2**61" in said and f"(k=1, at={time})" in said
    for seed in range(2):
        assert f"found {time}" in raised(lambda seed=seed: run_parallel(stream, channels=3, seed=seed))
    spared = WAYS[way](from_epochs(rows, "k long, at long").on_error("skip").event_time("at"))
    kept = WAYS[way](from_epochs(rows[:1], "k long, at long").event_time("at")).run_sequential(ends=True)
    assert spared.run_sequential(ends=True) == kept == run_parallel(spared, ends=True)


def test_the_window_of_another_column_is_refused_by_the_same_limit():
    stream = from_epochs([[(1, 3), (2, 2**62)]], "at long, b long").event_time("at")
    for window in (ab.event_time("b", 5), ab.sliding(ab.event_time("b", 6), every=2), ab.sessions("b", 5)):
        counts = stream.aggregate(by="at", window=window, n=ab.agg.count())
        assert "between -2**61 and 2**61" in raised(counts.run_sequential)
        assert "between -2**61 and 2**61" in raised(lambda counts=counts: run_parallel(counts, channels=2))


class Alarm(ab.Operator):
    def process(self, t):
        self.timers.at(t.at * 2)
        return []

    def on_timer(self, time):
        yield (time,)


def test_a_timer_for_what_is_no_time_is_refused():
    stream = from_epochs([[(1, 2**61)]], "k long, at long").event_time("at").process(Alarm(), by="k", schema="at long")
    assert "between -2**61 and 2**61" in raised(stream.run_sequential)


def test_a_window_that_no_column_can_hold_is_told_with_its_name():
    stream = of("date", [[(1, -719162)]]).event_time("at")
    weeks = stream.aggregate(by="k", window=ab.event_time("at", 7), start=ab.agg.window_start())
    said = raised(weeks.run_sequential)
    assert "event_time('at', 7)" in said and "starts before the first date" in said and "window_start" in said
    assert said.split("raised")[1] in raised(lambda: run_parallel(weeks))


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_sessions_that_end_behind_the_last_number_are_refused_too(policy):
    rows = [[(1, 5), (1, 7), (2, 2**31 - 3)]]
    stream = of("int", rows).event_time("at")
    sessions = stream.aggregate(by="k", window=ab.sessions("at", 5), end=ab.agg.window_end(), on_error=policy)
    if policy == "skip":
        assert sessions.run_sequential(ends=True) == [(1, 12)] == run_parallel(sessions, ends=True)
    else:
        assert "ends behind the last int32" in raised(sessions.run_sequential)
        assert "ends behind the last int32" in raised(lambda: run_parallel(sessions))


def test_a_duration_that_is_too_long_is_refused():
    stream = from_epochs([[(1, 3)]], "k long, at long")
    assert "below 2**60" in raised(lambda: stream.event_time("at", 2**60))
    timed = stream.event_time("at")
    policies = ab.event_time("at", 2**61), ab.sessions("at", 2**63), ab.event_time("at", 5, lateness=2**60)
    for policy in policies:
        assert "2**60" in raised(lambda policy=policy: timed.aggregate(by="k", window=policy, n=ab.agg.count()))
