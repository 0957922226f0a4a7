"""Watermarks: one for all keys, the same in parallel as in one thread, wherever the epochs are cut."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.api.session import from_epochs
from anabranch.errors import ProgramError
from anabranch.program.event_time import BEGINNING, END, LeastWatermark
from anabranch.testing import ParallelRun, run_parallel
from tests.event_time.timed_programs import COLUMNS, STEPS, build, cuts, rows, windows

EXAMPLES = int(os.environ.get("ANABRANCH_TIME_PROGRAMS", "25"))
steps = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=5)


def source(epochs, **times):
    return from_epochs(epochs, COLUMNS).event_time("at", **times)


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(data=st.data(), steps=steps, channels=st.integers(1, 8), seed=st.integers(0, 999))
def test_any_program_gives_in_parallel_what_one_thread_gives(data, steps, channels, seed):
    epochs = data.draw(cuts(data.draw(rows())))
    lateness, every = data.draw(st.sampled_from([0, 2, 10])), data.draw(st.sampled_from([1, 3, 10]))
    stream = build(source(epochs, lateness=lateness, every=every), steps)
    assert run_parallel(stream, channels=channels, seed=seed) == stream.run_sequential()


@settings(max_examples=EXAMPLES // 2, deadline=None, print_blob=True)
@given(data=st.data(), steps=steps)
def test_where_epochs_are_cut_does_not_matter(data, steps):
    tuples = data.draw(rows())
    one, other = ([tuples], data.draw(cuts(tuples)))
    stream, cut = (build(source(epochs, lateness=2, every=3), steps) for epochs in (one, other))
    assert run_parallel(cut, channels=3) == run_parallel(stream, channels=2) == cut.run_sequential()


@settings(max_examples=EXAMPLES // 2, deadline=None, print_blob=True)
@given(data=st.data(), before=steps, after=steps, channels=st.integers(1, 8), seed=st.integers(0, 999))
def test_streams_that_meet_have_the_least_watermark_of_those_that_are_not_idle(data, before, after, channels, seed):
    times = {"lateness": 1, "every": data.draw(st.sampled_from([1, 4]))}
    idle = data.draw(st.sampled_from([None, 2]))
    one = build(source(data.draw(cuts(data.draw(rows(25)))), **times, idle=idle), before)
    other = source(data.draw(cuts(data.draw(rows(25)))), **times, idle=data.draw(st.sampled_from([None, 1, 3])))
    stream = build(one.union(other), after)
    clocks = [1000 * sum(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))) for n in range(5)]
    clocks = sorted(clocks)
    found = run_parallel(stream, channels=channels, seed=seed, clocks_ms=clocks)
    assert found == stream.run_sequential(clocks_ms=clocks)


@pytest.mark.parametrize("channels", [1, 3])
def test_what_wakes_a_watermark_that_is_made_of_idle_ones_is_told_though_it_does_not_rise(channels):
    """Behind a window: the stream that wakes holds the union up again, so the union does not go on without it."""
    epochs = [
        [(1, -4, 6), (1, -6, 5), (1, -3, 0), (3, -2, -3), (1, -1, 2), (2, 1, -3)],
        [(2, -7, -2), (0, 2, 0), (2, 7, -2), (0, 7, 4), (1, 12, -2), (2, 12, 1), (3, 12, 0), (2, 3, 0), (1, -18, 6)],
        [(0, 4, -1), (0, 4, 3), (3, 14, 3), (2, 14, -2)],
    ]
    one = build(source(epochs, lateness=1, every=4, idle=2), ["both"])
    other = source([[(0, 0, 3), (0, -29, -1)]], lateness=1, every=4, idle=1)
    stream = build(one.union(other), ["sliding", "tumbling"])
    clocks = [0, 3000, 4000, 6000]
    assert run_parallel(stream, channels=channels, clocks_ms=clocks) == stream.run_sequential(clocks_ms=clocks)


_levels = st.integers(-3, 9) | st.sampled_from([BEGINNING, END])


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(
    known=st.dictionaries(st.sampled_from("abc"), st.none() | _levels),
    idle=st.sets(st.sampled_from("abc")),
    begun=_levels,
    events=st.lists(st.tuples(st.integers(0, 4), _levels), max_size=12),
)
def test_many_values_at_once_are_taken_as_one_after_the_other(known, idle, begun, events):
    values = {name: value for name, value in known.items() if value is not None}
    one, other = (LeastWatermark(known, values, idle, begun) for _ in range(2))
    names = [([*known] * 5)[number] if number and known else "" for number, _ in events]
    expected = []
    for name, (_, value) in zip(names, events, strict=True):
        told = one.take(name, value) if name else one.advance()
        expected.append((told, one.value))
    told, highest = other.take_all(names, [value for _, value in events])
    assert list(zip(told.tolist(), highest.tolist(), strict=True)) == expected
    assert vars(other) == vars(one)


@settings(max_examples=EXAMPLES // 3, deadline=None, print_blob=True)
@given(data=st.data(), steps=steps, seed=st.integers(0, 999))
def test_rescaled_and_continued_from_its_checkpoint_it_goes_on_where_it_was(tmp_path_factory, data, steps, seed):
    epochs = data.draw(cuts(data.draw(rows())))
    stream = build(source(epochs, lateness=2, every=2), steps)
    checkpoint, written = str(tmp_path_factory.mktemp("checkpoint")), {}
    for number in range(len(epochs)):
        run = ParallelRun(stream, checkpoint, channels=data.draw(st.integers(1, 5)), seed=seed, written=written)
        for region in [each.name for each in run.runner.status()]:
            run.runner.rescale(region, data.draw(st.integers(1, 6)))
        run.run_epochs(last=number)  # those that were committed are skipped
    assert run.output == stream.run_sequential()


def expected(tuples, size, every, lateness, step):
    """Windows of all keys, closed by the watermark: by hand, with nothing of the library."""
    largest, mark, found = None, float("-inf"), []
    since, held = {}, {}
    for order, (k, at, x) in enumerate(tuples):
        for start in [n for n in range(at - size + 1, at + 1) if n % every == 0]:
            if start + size > mark:
                held.setdefault((start + size, k), []).append(x)
                since.setdefault(k, order)
        largest = at if largest is None else max(largest, at)
        mark = max(mark, (largest - lateness) // step * step)
        for end, key in sorted((each for each in held if each[0] <= mark), key=lambda e: (e[0], since[e[1]])):
            values = held.pop((end, key))
            found.append((key, end - size, sum(values) * 100 + len(values) * 10 + values[0] + 5))
            if not any(k == key for _, k in held):
                del since[key]
    return found


@settings(max_examples=EXAMPLES, deadline=None, print_blob=True)
@given(tuples=rows(), shape=st.sampled_from([(10, 10), (9, 3), (4, 2)]), late=st.integers(0, 6), step=st.integers(1, 7))
def test_windows_are_what_a_plain_computation_gives(tuples, shape, late, step):
    size, every = shape
    stream = windows(source([tuples], lateness=late, every=step), size, every)
    assert [tuple(row) for row in stream.run_sequential()] == expected(tuples, size, every, late, step)


def test_a_silent_key_gives_its_last_window_and_keeps_no_state(tmp_path):
    epochs = [[(key, 1, key) for key in range(20)], [(99, 25, 1)], [(99, 26, 1)]]
    stream = windows(source(epochs), 10)
    run = ParallelRun(stream, str(tmp_path), channels=3)
    run.run_epochs()
    assert [row.k for row in run.output] == list(range(20)) and run.output == stream.run_sequential()
    manifest = run.checkpoint.latest()
    assert manifest.facts.watermarks.values == {"event_time": 26, "aggregate": 26}


@pytest.mark.parametrize("size", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("columns", ["at timestamp", "at date", "at long"])
@pytest.mark.parametrize("option", ["lateness", "every"])
def test_a_duration_that_is_no_number_is_refused_by_name(size, columns, option):
    with pytest.raises(ProgramError, match=f"event_time at .*: {option}=.*expected a duration that ends"):
        from_epochs([[]], columns).event_time("at", **{option: size})
