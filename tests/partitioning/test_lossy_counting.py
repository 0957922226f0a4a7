"""Lossy counting: against the paper's one-row-at-a-time algorithm, and its guarantees after any merging."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.partitioning.counting.lossy_counter import LossyCounter

epsilons = st.sampled_from([1.0, 0.5, 0.3, 0.21, 0.1, 0.07])
# Few keys repeat and many do not, so that keys are dropped and come back.
streams = st.lists(st.one_of(st.integers(0, 4), st.integers(0, 60)), max_size=150)


class RowByRow:
    """The algorithm as the paper words it."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.rows = 0
        self.counts: dict[int, list[int]] = {}

    def add(self, key: int) -> None:
        index = self.rows // self.window + 1
        if key in self.counts:
            self.counts[key][0] += 1
        else:
            self.counts[key] = [1, index - 1]
        self.rows += 1
        if self.rows % self.window == 0:
            self.counts = {k: c for k, c in self.counts.items() if c[0] + c[1] > index}


def array(keys: list[int]) -> np.ndarray:
    return np.array(keys, dtype=np.uint64)


def filled(epsilon: float, batches: list[list[int]]) -> LossyCounter:
    counter = LossyCounter(epsilon)
    for batch in batches:
        counter.add(array(batch))
    return counter


def assert_guarantees(counter: LossyCounter, keys: list[int]) -> None:
    truth = Counter(keys)
    assert counter.rows == len(keys)
    hashes, appearances, errors = counter.items()
    assert (hashes[1:] > hashes[:-1]).all()
    known = {int(h): (int(a), int(e)) for h, a, e in zip(hashes, appearances, errors, strict=True)}
    bound = counter.epsilon * len(keys)
    for key, count in truth.items():
        counted, error = known.get(key, (0, bound))
        assert counted <= count <= counted + error
        assert error <= bound
    for delta in (d for d in (0.1, 0.3, 0.6, 1.0) if d > counter.epsilon):
        reported = set(counter.frequent(delta)[0].tolist())
        assert reported >= {key for key, count in truth.items() if count >= delta * len(keys)}
        assert all(truth[key] >= (delta - counter.epsilon) * len(keys) for key in reported)


@given(epsilon=epsilons, batches=st.lists(streams, max_size=4))
@settings(deadline=None, max_examples=60)
def test_batches_are_counted_exactly_like_single_rows(epsilon: float, batches: list[list[int]]) -> None:
    counter = filled(epsilon, batches)
    reference = RowByRow(counter.window_rows)
    for key in (key for batch in batches for key in batch):
        reference.add(key)
    found = {int(h): [int(a), int(e)] for h, a, e in zip(*counter.items(), strict=True)}
    assert found == reference.counts


@given(epsilon=epsilons, batches=st.lists(streams, max_size=4))
@settings(deadline=None, max_examples=60)
def test_counts_keep_their_guarantees(epsilon: float, batches: list[list[int]]) -> None:
    assert_guarantees(filled(epsilon, batches), [key for batch in batches for key in batch])


@given(epsilon=epsilons, splitters=st.lists(streams, min_size=1, max_size=4), more=streams)
@settings(deadline=None, max_examples=60)
def test_merged_counters_keep_their_guarantees_and_can_count_on(
    epsilon: float, splitters: list[list[int]], more: list[int]
) -> None:
    merged = LossyCounter.added_up([filled(epsilon, [stream]) for stream in splitters])
    rows = [key for stream in splitters for key in stream]
    assert_guarantees(merged, rows)
    merged.add(array(more))
    assert_guarantees(merged, rows + more)
    assert_guarantees(LossyCounter.added_up([merged, filled(epsilon, [more])]), rows + more + more)


@given(epsilon=epsilons, stream=streams)
@settings(deadline=None, max_examples=60)
def test_merging_one_counter_copies_it(epsilon: float, stream: list[int]) -> None:
    counter = filled(epsilon, [stream])
    copy = LossyCounter.added_up([counter])
    assert [part.tolist() for part in copy.items()] == [part.tolist() for part in counter.items()]
    copy.add(array([1, 2, 3]))
    assert counter.rows == len(stream)


def test_asking_in_the_middle_of_a_window_changes_nothing() -> None:
    asked, silent = LossyCounter(0.1), LossyCounter(0.1)
    random = np.random.default_rng(5)
    for _ in range(40):
        batch = random.integers(0, 30, 3).astype(np.uint64)
        asked.add(batch)
        silent.add(batch)
        assert asked.size >= 0
    assert [part.tolist() for part in asked.items()] == [part.tolist() for part in silent.items()]


def test_counters_stay_few_however_many_keys_there_are() -> None:
    counter = LossyCounter(0.001)
    random = np.random.default_rng(0)
    sizes = []
    for _ in range(40):
        counter.add(random.integers(0, 2**64, 5_000, dtype=np.uint64))
        sizes.append(counter.size)
    assert max(sizes) <= 1000 * np.log(0.001 * counter.rows) + 1000


def test_the_callers_buffer_may_be_reused() -> None:
    counter = LossyCounter(0.01)
    buffer = array([1, 1, 1])
    counter.add(buffer)
    buffer[:] = 9
    assert counter.frequent(0.5)[0].tolist() == [1]


@pytest.mark.parametrize("epsilon", [0.0, -0.1, 1.5])
def test_an_impossible_error_is_refused(epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon"):
        LossyCounter(epsilon)


def test_counters_of_different_errors_do_not_merge() -> None:
    with pytest.raises(ValueError, match="same epsilon"):
        LossyCounter.added_up([LossyCounter(0.1), LossyCounter(0.2)])
    with pytest.raises(ValueError, match="at least one"):
        LossyCounter.added_up([])


def test_counted_rows_must_fit_in_the_open_window() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        LossyCounter(0.5).add_counts(array([1]), np.array([3]))


def test_an_empty_counter_has_nothing_frequent() -> None:
    hashes, appearances = LossyCounter(0.1).frequent(0.5)
    assert len(hashes) == len(appearances) == 0
