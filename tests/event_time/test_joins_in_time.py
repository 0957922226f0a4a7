"""Joins that follow the watermark of both streams, and joins without a window."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError
from anabranch.testing import ParallelRun, run_parallel
from tests.event_time.test_watermarks import EXAMPLES, source
from tests.event_time.timed_programs import COLUMNS, STEPS, build, cuts, rows

steps = st.lists(st.sampled_from(sorted(STEPS)), min_size=0, max_size=2)
hows = st.sampled_from(["inner", "left", "right", "outer"])


def renamed(stream):
    return stream.map(lambda t: (t.k, t.at, t.x), schema="id long, at2 long, y long")


def pairs(one, other, how, here=3, there=5):
    window = (ab.event_time("at", here), ab.event_time("at2", there))
    found = one.join(renamed(other), by=("k", "id"), window=window, how=how)
    return found.map(lambda t: (t.k, t.at if t.at is not None else t.at2, (t.x or 0) * 10 + (t.y or 0)), schema=COLUMNS)


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), before=steps, after=steps, how=hows, channels=st.integers(1, 8), seed=st.integers(0, 999))
def test_joins_give_in_parallel_what_one_thread_gives(data, before, after, how, channels, seed):
    late = data.draw(st.sampled_from([0, 3]))
    one = build(source(data.draw(cuts(data.draw(rows(25)))), lateness=late), before)
    if data.draw(st.booleans()):
        other = source(data.draw(cuts(data.draw(rows(25)))), lateness=late, idle=data.draw(st.sampled_from([None, 2])))
    else:
        other = one.filter(lambda t: t.x > 0)
    stream = build(pairs(one, other, how), after)
    clocks = sorted(data.draw(st.lists(st.integers(0, 9000), min_size=1, max_size=5)))
    ends = data.draw(st.booleans())
    found = run_parallel(stream, channels=channels, seed=seed, clocks_ms=clocks, ends=ends)
    assert found == stream.run_sequential(clocks_ms=clocks, ends=ends)


@settings(max_examples=EXAMPLES // 2, deadline=None, print_blob=True)
@given(data=st.data(), how=hows, channels=st.integers(1, 6))
def test_of_data_in_order_the_join_is_the_join_of_the_tables(data, how, channels):
    """By hand: every pair that is near enough, once; and every tuple without one, once, when the input has ended."""
    events = sorted(data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2), st.booleans()), max_size=40)))
    tuples = [(k, at, (n + 1) * (1 if is_left else -1)) for n, (at, k, is_left) in enumerate(events)]
    stream = source(data.draw(cuts(tuples)))
    left, right = stream.filter(lambda t: t.x > 0), stream.filter(lambda t: t.x < 0)
    window = (ab.event_time("at", 3), ab.event_time("at2", 5))
    joined = left.join(renamed(right), by=("k", "id"), window=window, how=how)
    mine, theirs = ([t for t in tuples if (t[2] > 0) == is_left] for is_left in (True, False))
    near = [(a, b) for a in mine for b in theirs if a[0] == b[0] and -3 <= a[1] - b[1] <= 5]
    wanted = [(*a, *b[1:]) for a, b in near]
    if how in ("left", "outer"):
        wanted += [(*a, None, None) for a in mine if a not in [pair[0] for pair in near]]
    if how in ("right", "outer"):
        wanted += [(b[0], None, None, *b[1:]) for b in theirs if b not in [pair[1] for pair in near]]
    found = [tuple(row) for row in run_parallel(joined, channels=channels, ends=True)]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


def test_what_a_join_holds_is_bounded_by_the_watermark(tmp_path):
    epochs = [[(key, 10 * number, 1) for key in range(5)] for number in range(20)]
    stream = source(epochs)
    joined = pairs(stream, stream.filter(lambda t: t.x > 5), "left")
    run = ParallelRun(joined, str(tmp_path), channels=2)
    run.run_epochs()
    assert len(run.output) == 95 and run.output == joined.run_sequential()  # all but the last five


def test_an_order_that_is_never_paid_is_told():
    orders = source([[(order, order, 1) for order in range(50)]])
    payments = orders.filter(lambda t: t.k % 2 == 0)
    unpaid = pairs(orders, payments, "left").filter(lambda t: t.x == 10)
    assert [row.k for row in run_parallel(unpaid, ends=True)] == list(range(1, 50, 2))


@settings(max_examples=EXAMPLES // 2, deadline=None, print_blob=True)
@given(data=st.data(), how=hows, ttl=st.sampled_from([None, 2, 5]), channels=st.integers(1, 6))
def test_joins_without_a_window_hold_for_ever_or_for_their_time_to_live(data, how, ttl, channels):
    one = from_epochs(data.draw(cuts(data.draw(rows(20)))), COLUMNS)
    other = from_epochs(data.draw(cuts(data.draw(rows(20)))), COLUMNS)
    joined = one.join(renamed(other), by=("k", "id"), how=how, ttl=ttl)
    clocks = sorted(data.draw(st.lists(st.integers(0, 9000), min_size=1, max_size=5)))
    ends = data.draw(st.booleans())
    found = run_parallel(joined, channels=channels, clocks_ms=clocks, ends=ends)
    assert found == joined.run_sequential(clocks_ms=clocks, ends=ends)
    if ttl is None and how == "inner":
        left, right = ([row for epoch in s._node.logic.origin.epochs for row in epoch] for s in (one, other))
        assert len(found) == sum(a[0] == b[0] for a in left for b in right)


def test_what_cannot_be_joined_is_refused():
    one, other = source([[]]), renamed(from_epochs([[]], COLUMNS))
    window = (ab.event_time("at", 3), ab.event_time("at2", 5))
    with pytest.raises(ProgramError, match="expected one kind"):
        one.join(other, by=("k", "id"), window=window)
    with pytest.raises(ProgramError, match="said with the stream"):
        one.join(renamed(one), by=("k", "id"), window=(ab.event_time("at", 3, lateness=2), window[1]))
    with pytest.raises(ProgramError, match="a join has no early results"):
        one.join(renamed(one), by=("k", "id"), window=(ab.event_time("at", 3, early=1), window[1]), how="left")
    with pytest.raises(ProgramError, match="expected one of them"):
        one.join(other, by=("k", "id"), window=ab.count(3), ttl=5)
