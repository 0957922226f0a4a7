"""Sessions: by gap, joined by late tuples, closed by the watermark."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError
from anabranch.testing import run_parallel
from tests.event_time.test_watermarks import EXAMPLES, source
from tests.event_time.timed_programs import COLUMNS, STEPS, build, cuts, rows

steps = st.lists(st.sampled_from(sorted(STEPS)), min_size=0, max_size=2)
EXACT = {"n": ab.agg.count(), "x": ab.agg.sum("x"), "low": ab.agg.min("x"), "first": ab.agg.first("x")}
KEPT = {"last": ab.agg.last("x"), "all": ab.agg.collect("x")}
BOUNDS = {"at": ab.agg.window_start(), "end": ab.agg.window_end()}


def expected(tuples, gap, lateness, step):
    """Sessions by hand: lists of tuples, joined where they touch."""
    largest, mark, found, held, since = None, float("-inf"), [], [], {}
    for order, (k, at, x) in enumerate(tuples):
        near = [s for s in held if s["k"] == k and at - s["last"] < gap and s["first"] - at < gap]
        if near or at + gap > mark:
            since.setdefault(k, order)
            held = [s for s in held if s not in near]
            one = {
                "k": k,
                "first": min([at, *(s["first"] for s in near)]),
                "last": max([at, *(s["last"] for s in near)]),
            }
            held.append({**one, "rows": sorted([(order, x), *(row for s in near for row in s["rows"])])})
        largest = at if largest is None else max(largest, at)
        mark = max(mark, (largest - lateness) // step * step)
        for s in sorted((s for s in held if s["last"] + gap <= mark), key=lambda s: (s["last"] + gap, since[s["k"]])):
            held.remove(s)
            values = [x for _, x in s["rows"]]
            exact = (len(values), sum(values), min(values), values[0])
            found.append((s["k"], s["first"], s["last"] + gap, *exact, values[-1], values))
            if not any(other["k"] == s["k"] for other in held):
                del since[s["k"]]
    return found


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), gap=st.integers(1, 9), late=st.sampled_from([0, 5, 30]), channels=st.integers(1, 6))
def test_sessions_are_what_a_plain_computation_gives(data, gap, late, channels):
    tuples = data.draw(rows())
    stream = source(data.draw(cuts(tuples)), lateness=late, every=3)
    everything = stream.aggregate(by="k", window=ab.sessions("at", gap), **BOUNDS, **EXACT, **KEPT)
    combined = stream.aggregate(by="k", window=ab.sessions("at", gap), **BOUNDS, **EXACT)
    found = expected(tuples, gap, late, 3)
    assert [tuple(row) for row in everything.run_sequential()] == found
    assert [tuple(row) for row in run_parallel(everything, channels=channels)] == found
    assert [tuple(row) for row in run_parallel(combined, channels=channels)] == [row[:-2] for row in found]


@settings(max_examples=EXAMPLES // 3, deadline=None, print_blob=True)
@given(data=st.data(), before=steps, after=steps, channels=st.integers(1, 8), seed=st.integers(0, 999))
def test_sessions_anywhere_in_a_program(data, before, after, channels, seed):
    stream = build(source(data.draw(cuts(data.draw(rows()))), lateness=4), before)
    found = stream.aggregate(by="k", window=ab.sessions("at", 4), at=ab.agg.window_end(), x=ab.agg.sum("x"))
    stream = build(found, after)
    assert run_parallel(stream, channels=channels, seed=seed) == stream.run_sequential()


def test_sessions_need_a_watermark():
    stream = from_epochs([[]], COLUMNS)
    with pytest.raises(ProgramError, match="follow the watermark"):
        stream.aggregate(by="k", window=ab.sessions("at", 5), n=ab.agg.count())


windows_of = st.sampled_from(
    [ab.event_time("at", 6), ab.sliding(ab.event_time("at", 6), every=2), ab.sessions("at", 3)]
)


@settings(max_examples=EXAMPLES // 3, deadline=None, print_blob=True)
@given(data=st.data(), window=windows_of, channels=st.integers(1, 6))
def test_late_tuples_can_be_a_stream(data, window, channels):
    """Every tuple is in a window, or late; and what both streams hold is what one thread gives."""
    tuples = data.draw(rows())
    stream = source(data.draw(cuts(tuples)), lateness=1)
    results, late = stream.aggregate(by="k", window=window, late="stream", x=ab.agg.collect("x"))
    found = run_parallel(late, channels=channels)
    assert found == late.run_sequential()
    assert run_parallel(results, channels=channels) == results.run_sequential()
    plain = stream.aggregate(by="k", window=window, x=ab.agg.collect("x"))
    assert results.run_sequential(ends=True) == plain.run_sequential(ends=True)
    if "sliding" not in str(window):
        kept = [(row.k, x) for row in plain.run_sequential(ends=True) for x in row.x]
        assert sorted(kept + [(t.k, t.x) for t in found]) == sorted((k, x) for k, _, x in tuples)


@settings(max_examples=EXAMPLES // 3, deadline=None, print_blob=True)
@given(data=st.data(), window=windows_of, channels=st.integers(1, 6))
def test_the_largest_and_the_different_values_of_a_window(data, window, channels):
    stream = source(data.draw(cuts(data.draw(rows()))), lateness=8)
    found = stream.aggregate(
        by="k",
        window=window,
        all=ab.agg.collect("x"),
        times=ab.agg.collect("at"),
        distinct=ab.agg.distinct("x"),
        top=ab.agg.top("x", 2),
        latest=ab.agg.top("x", 3, by="at"),
    )
    for row in (done := run_parallel(found, channels=channels)):
        assert row.distinct == len(set(row.all))
        assert row.top == sorted(row.all, reverse=True)[:2]
        order = sorted(range(len(row.all)), key=lambda n: -row.times[n])
        assert row.latest == [row.all[n] for n in order][:3]
    assert done == found.run_sequential()
