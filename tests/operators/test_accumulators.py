"""Accumulators: the same to the last bit whatever the level, the batches and the epochs."""

from __future__ import annotations

import os
import random
import tempfile
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import OperatorError, ProgramError
from anabranch.testing import ParallelRun, run_parallel

CASES = int(os.environ.get("ANABRANCH_ELASTIC_CASES", "4"))
OUT = "kind string, n long, total double"


def added(one, other):
    one += other
    return one


def counted(one: dict, other: dict) -> dict:
    for name, number in other.items():
        one[name] = one.get(name, 0) + number
    return one


class Sums(ab.Operator):
    """Sums whose last bits depend on the order, counts, and an output of every tenth tuple."""

    slow: float = 0.0
    grid = ab.accumulator(lambda: np.zeros(4), merge=added)
    seen = ab.accumulator(dict, merge=counted)

    def process(self, t):
        if self.slow:
            time.sleep(self.slow * (t.i % 3))
        self.grid[t.i % 4] += t.x
        self.seen[t.i % 3] = self.seen.get(t.i % 3, 0) + 1
        if t.i % 10 == 0:
            yield ("tuple", t.i, float(self.grid.sum()))

    def result(self):
        return ("all", sum(self.seen.values()), float(self.grid.sum()))


def numbers(count: int, seed: int, rows_per_epoch: int | None = None):
    chance = random.Random(seed)
    rows = [(i, chance.uniform(-1, 1) * 10 ** chance.randint(-8, 8)) for i in range(count)]
    return ab.from_rows(rows, "i long, x double", **({"rows_per_epoch": rows_per_epoch} if rows_per_epoch else {}))


FAST = {"elastic": True, "period": 0.01, "max_workers": 8}


def test_what_accumulating_means() -> None:
    """Copies of blocks from nothing, merged to stretches, these to the total: nothing else."""
    rows = [(i, 0.1 * i) for i in range(50)]
    stream = ab.from_rows(rows, "i long, x double").accumulate(Sums(), OUT, block=4, every=8)
    total, expected = np.zeros(4), []
    for start in range(0, 48, 8):
        stretch = None
        for first in (start, start + 4):
            grid = np.zeros(4)
            for i, x in rows[first : first + 4]:
                grid[i % 4] += x
                if i % 10 == 0:
                    expected.append(("tuple", i, float(grid.sum())))
            stretch = grid if stretch is None else stretch + grid
        total = stretch if start == 0 else total + stretch
        expected.append(("all", start + 8, float(total.sum())))
    assert [tuple(row) for row in stream.run_sequential()] == expected


@pytest.mark.parametrize("seed", range(CASES))
def test_levels_batches_and_epochs_do_not_change_a_bit(seed: int) -> None:
    chance = random.Random(seed)
    block = chance.choice((1, 3, 16))
    every = block * chance.choice((1, 2, 5))
    source = numbers(400, seed, chance.choice((7, 64, 400)))
    stream = source.accumulate(Sums(slow=0.0003), OUT, block=block, every=every, **FAST)
    plain = source.accumulate(Sums(), OUT, block=block, every=every)
    expected = plain.run_sequential()
    assert run_parallel(stream, channels=chance.choice((1, 3)), seed=seed) == expected
    assert run_parallel(plain, channels=2, seed=seed) == expected
    assert stream.run_sequential() == expected


@pytest.mark.parametrize("is_elastic", [False, True])
@pytest.mark.parametrize("count", [0, 5, 8, 16, 21])
def test_at_the_end_of_the_input_what_was_not_told_is(count: int, is_elastic: bool) -> None:
    """Once, and nothing where all was told: block by block, as it would be merged if the stretch were full."""
    stream = numbers(count, 1).accumulate(Sums(), OUT, block=4, every=8, **(FAST if is_elastic else {}))
    held = count % 8
    for run in (lambda **ends: stream.run_sequential(**ends), lambda **ends: run_parallel(stream, channels=2, **ends)):
        before, closed = run(), run(ends=True)
        assert closed[: len(before)] == before
        assert [(row.kind, row.n) for row in closed[len(before) :]] == ([("all", count)] if held else [])


@pytest.mark.parametrize("made", [{}, FAST])
def test_it_is_told_behind_what_the_end_brings_and_before_windows_of_that_time_close(made: dict) -> None:
    window = ab.event_time("i", 100)
    sums = numbers(9, 1).event_time("i").aggregate(by=None, window=window, i=ab.agg.count(), x=ab.agg.sum("x"))
    stream = sums.accumulate(Sums(), OUT, block=4, every=8, **made)
    assert [(row.kind, row.n) for row in stream.run_sequential(ends=True)] == [("all", 1)]
    stream = stream.aggregate(by=None, window=ab.event_time("n", 100), told=ab.agg.count())
    assert stream.run_sequential(ends=True) == run_parallel(stream, ends=True) == [(1,)]


def kept_sums(stream: ab.Stream) -> ab.Stream:
    """What is told is in time for a window that the end closes, and is counted there."""
    window = ab.event_time("n", 40)
    return stream.aggregate(by="kind", window=window, n=ab.agg.count(), most=ab.agg.max("n"), x=ab.agg.sum("total"))


@settings(max_examples=CASES * 10, deadline=None, print_blob=True)
@given(
    data=st.data(),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    block=st.integers(1, 5),
    several=st.integers(1, 4),
    channels=st.integers(1, 8),
    seed=st.integers(0, 999),
)
def test_with_times_unions_and_the_end_it_is_what_one_thread_gives(data, sizes, block, several, channels, seed) -> None:
    """Whatever stands before and behind, wherever epochs are cut, and with a start anew between any two of them."""
    chance = random.Random(seed)
    epochs, number = [], 0
    for size in sizes:
        epochs.append([(number + i, chance.uniform(-1, 1)) for i in range(size)])
        number += size
    made = {"block": block, "every": block * several, **(FAST if data.draw(st.booleans()) else {})}
    source = from_epochs(epochs, "i long, x double")
    behind = kept_sums if data.draw(st.booleans()) else lambda each: each
    shape = data.draw(st.sampled_from(["plain", "time", "union", "windows before", "told twice"]))
    if shape != "plain" or behind is kept_sums:
        source = source.event_time("i", lateness=data.draw(st.integers(0, 9)))
    if shape == "union":
        source = source.union(from_epochs(epochs[::-1], "i long, x double").event_time("i"))
    if shape == "windows before":
        window = ab.event_time("i", 6)
        source = source.aggregate(by="i", window=window, x=ab.agg.sum("x")).select("i", "x")
    stream = source.accumulate(Sums(), OUT, **made)
    if shape == "told twice":
        stream = stream.select(i="n", x="total").accumulate(Sums(), OUT, block=1, every=2)
    stream = behind(stream)
    expected = stream.run_sequential(ends=True)
    assert run_parallel(stream, channels=channels, seed=seed, ends=True) == expected
    if shape in ("plain", "time"):
        whole = from_epochs([[row for epoch in epochs for row in epoch]], "i long, x double")
        again = (whole if shape == "plain" else whole.event_time("i")).accumulate(Sums(), OUT, **made)
        if behind is not kept_sums:
            assert again.run_sequential(ends=True) == expected
    with tempfile.TemporaryDirectory() as scratch:
        written: dict = {}
        for epoch in range(len(sizes)):
            again = ParallelRun(stream, scratch, channels=chance.randint(1, 4), seed=seed, written=written)
            again.run_epochs(epoch, epoch)
        again = ParallelRun(stream, scratch, channels=2, seed=seed, written=written)
        again.end()
    assert again.output == expected


def test_what_is_in_a_block_survives_a_crash() -> None:
    stream = numbers(300, 5, 70).accumulate(Sums(slow=0.0002), OUT, block=16, every=32, **FAST)
    expected = stream.run_sequential()
    with tempfile.TemporaryDirectory() as scratch:
        written: dict = {}
        ParallelRun(stream, scratch, channels=2, written=written).run_epochs(0, 1)
        again = ParallelRun(stream, scratch, channels=3, written=written)  # it has what is in the checkpoint
        again.run_epochs(2)
    assert again.output == expected


def test_commutative_ones_are_merged_as_they_come_and_explain_says_so() -> None:
    class Counts(ab.Operator):
        seen = ab.accumulator(dict, merge=counted, commutative=True)

        def process(self, t):
            time.sleep(0.001 * (t.i % 5))
            self.seen[t.i % 7] = self.seen.get(t.i % 7, 0) + 1

        def result(self):
            for name in sorted(self.seen):
                yield ("n", name, float(self.seen[name]))

    stream = numbers(200, 1, 90).accumulate(Counts(), OUT, block=5, every=20, min_workers=6, **FAST)
    assert run_parallel(stream) == stream.run_sequential()
    text = stream.plan().explain()
    assert "declared commutative" in text and "one copy per 5 positions, merged every 20" in text
    assert "elastic      threads, at most 8, at least 6" in text
    assert "in the order of positions" in numbers(9, 1).accumulate(Sums(), OUT, **FAST).plan().explain()


def test_the_first_error_in_order_is_told_with_its_tuple() -> None:
    class Fails(Sums):
        def process(self, t):
            if t.i >= 33:
                time.sleep(0.02 if t.i == 33 else 0)
                raise ValueError(f"no {t.i}")
            yield from super().process(t)

    stream = numbers(90, 3).accumulate(Fails(), OUT, block=4, min_workers=6, **FAST)
    for run in (run_parallel, lambda each: each.run_sequential()):
        with pytest.raises(OperatorError, match="no 33"):
            run(stream)


class Remembers(Sums):
    def process(self, t):
        self.last = t.i
        yield ("tuple", t.i, 0.0)


class AlsoState(Sums):
    kept: int = ab.state(default=0)


class Nothing(ab.Operator):
    def process(self, t):
        yield ("a", 1, 1.0)


class NoResult(ab.Operator):
    seen = ab.accumulator(dict, merge=counted)

    def process(self, t):
        self.seen[t.i] = 1


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s: s.accumulate(Remembers(), OUT, elastic=True).plan(), r"beside its accumulators: .*last"),
        (lambda s: s.accumulate(AlsoState(), OUT), r"also declares state \(kept\)"),
        (lambda s: s.accumulate(Nothing(), OUT), "declares no accumulator"),
        (lambda s: s.accumulate(NoResult(), OUT), r"no result\(self\)"),
        (lambda s: s.accumulate(Sums, OUT), "an instance"),
        (lambda s: s.accumulate(Sums(), OUT, block=0), "block=0: expected a whole number from 1"),
        (lambda s: s.accumulate(Sums(), OUT, block=4, every=6), "every=6: expected a multiple of block=4"),
        (lambda s: s.accumulate(Sums(), OUT, elastic=True, retries=2), "does not go with accumulators"),
        (lambda s: s.accumulate(Sums(), OUT, elastic=True, max_workers=0), "max_workers=0"),
        (lambda s: s.accumulate(Sums(), OUT, max_workers=2), "add elastic=True"),
        (lambda s: s.process(Sums(), schema=OUT, elastic=True), r"accumulate\("),
        (lambda s: s.process(Sums(), by="i", schema=OUT), r"accumulate\("),
        (lambda s: ab.accumulator(dict, merge=3), "expected two functions"),
    ],
)
def test_bad_input_is_refused_with_the_reason(make, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        make(numbers(3, 0))
