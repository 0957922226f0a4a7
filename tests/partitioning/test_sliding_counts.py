"""The sliding window of tumbling counters: how many rows an answer covers, and that it forgets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.partitioning.counting.sliding_counter import SlidingCounter


@given(
    counters=st.integers(2, 5),
    steps=st.integers(1, 4),
    batches=st.lists(st.integers(0, 90), min_size=1, max_size=12),
)
@settings(deadline=None, max_examples=25)
def test_an_answer_covers_between_w_and_the_upper_end(counters: int, steps: int, batches: list[int]) -> None:
    window = (counters - 1) * steps * 10  # whole windows of the lossy counters: no rounding
    sliding = SlidingCounter(0.1, window, counters)
    seen = 0
    for rows in batches:
        sliding.add(np.arange(seen, seen + rows, dtype=np.uint64))
        seen += rows
        current = sliding.current()
        assert current.rows == sliding.rows
        assert min(seen, window) <= current.rows < window * (1 + 1 / (counters - 1)) + 10
        # The rows covered are the last ones, and all differ: those since the end of the last window of the lossy
        # counters are there, and no others, since a window's end forgets what occurred once.
        assert current.items()[0].tolist() == list(range(seen - seen % 10, seen))


@given(seed=st.integers(0, 100), cuts=st.lists(st.integers(1, 400), max_size=6))
@settings(deadline=None, max_examples=30)
def test_the_answer_is_that_of_one_counter_over_the_rows_covered(seed: int, cuts: list[int]) -> None:
    rows = np.random.default_rng(seed).zipf(1.3, 1000).astype(np.uint64)
    sliding = SlidingCounter(0.05, 200, 3)
    for piece in np.split(rows, sorted(cuts)):
        sliding.add(piece)
    single = LossyCounter(0.05)
    single.add(rows[len(rows) - sliding.rows :])
    assert [part.tolist() for part in sliding.current().items()] == [part.tolist() for part in single.items()]


def test_a_key_that_went_cold_is_forgotten() -> None:
    sliding = SlidingCounter(0.01, 1000)
    sliding.add(np.full(3000, 7, dtype=np.uint64))
    assert sliding.current().frequent(0.5)[0].tolist() == [7]
    sliding.add(np.full(1600, 8, dtype=np.uint64))
    assert sliding.current().frequent(0.05)[0].tolist() == [8]


def test_epochs_counted_by_several_splitters_are_absorbed() -> None:
    sliding = SlidingCounter(0.05, 400, 3)
    for epoch in range(10):
        splitters = [LossyCounter(0.05), LossyCounter(0.05)]
        for splitter in splitters:
            splitter.add(np.full(50, epoch // 5, dtype=np.uint64))
        sliding.absorb(splitters)
    assert 400 <= sliding.rows <= 700
    assert sliding.current().frequent(0.5)[0].tolist() == [1]


def test_adding_and_absorbing_do_not_mix() -> None:
    sliding = SlidingCounter(0.05, 400)
    sliding.add(np.ones(3, dtype=np.uint64))
    with pytest.raises(ValueError, match="add"):
        sliding.absorb([LossyCounter(0.05)])


@pytest.mark.parametrize(("rows", "counters"), [(0, 3), (10, 1)])
def test_windows_of_nothing_are_refused(rows: int, counters: int) -> None:
    with pytest.raises(ValueError, match="sliding window"):
        SlidingCounter(0.1, rows, counters)
