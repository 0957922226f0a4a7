"""From rows to a function: counters of several splitters, the workload they give, tail loads per group."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.partitioning.counting.workload import Measured, Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import construct
from anabranch.partitioning.placing.weigh_problem import WeighProblem
from anabranch.partitioning.resources import Resources
from anabranch.partitioning.threshold import EPSILON_PER_DELTA, threshold

LLL, LQL = Resources.of("LLL"), Resources.of("LQL")


def test_rows_counted_by_two_splitters_give_a_balanced_function_with_the_true_hot_keys() -> None:
    random = np.random.default_rng(4)
    keys = random.integers(0, 2**64, 20_000, dtype=np.uint64)
    weights = 1 / np.arange(1, 20_001)
    frequencies = weights / weights.sum()
    rows = random.choice(keys, 300_000, p=frequencies)
    delta = threshold(LLL, 6)
    splitters = [LossyCounter(EPSILON_PER_DELTA * delta) for _ in range(2)]
    for splitter, share in zip(splitters, np.array_split(rows, 2), strict=True):
        splitter.add(share)
    before = PartitioningFunction.even(1)
    group_rows = np.bincount(before.group_of(rows), minlength=before.groups)
    workload = Workload.of_counter(LossyCounter.added_up(splitters), delta, group_rows=group_rows)
    built = construct(before, workload, 6)
    assert set(keys[frequencies >= 1.1 * delta].tolist()) <= set(built.function.hot_hashes.tolist())
    loads = np.bincount(built.function.route(rows), minlength=6)
    assert loads.max() / loads.min() <= 1.2
    assert workload.domain is None and workload.keys_at_most == 300_000


def test_the_tail_of_a_group_is_what_its_known_keys_leave() -> None:
    keys = np.array([1, 1 << 63], dtype=np.uint64)  # groups 0 and 1 of 2
    workload = Workload(keys, np.array([0.5, 0.1]), group_frequencies=np.array([0.6, 0.4]), domain=12)
    assert workload.tail_loads(LLL, 1)[:, 2].tolist() == pytest.approx([0.1, 0.3])
    quadratic = workload.tail_loads(LQL, 1)[:, 1]
    assert quadratic.tolist() == pytest.approx([0.1**2 / 5, 0.3**2 / 5])
    beside = workload.tail_loads_beside(np.array([True, False]), LQL, 1)
    assert beside[:, 2].tolist() == pytest.approx([0.1, 0.4])
    assert beside[:, 1].tolist() == pytest.approx([0.1**2 / 5, 0.3**2 / 5 + 0.1**2])


def test_without_measurements_the_tail_is_spread_evenly() -> None:
    workload = Workload(np.array([1], dtype=np.uint64), np.array([0.2]))
    assert workload.tail_loads(LLL, 2)[:, 0].tolist() == pytest.approx([0.2] * 4)


def test_measured_loads_take_the_place_of_resource_functions_and_count_even_if_constant() -> None:
    keys = np.array([1], dtype=np.uint64)
    state = Measured.of(np.array([30.0]), np.array([40.0, 60.0]))
    workload = Workload(keys, np.array([0.5]), state=state)
    constant = Resources.of("CCL")
    assert workload.key_loads(constant)[0].tolist() == [0.3, 1.0, 0.5]
    assert workload.tail_loads(constant, 1)[:, 0].tolist() == pytest.approx([0.1, 0.6])
    assert workload.balanced(constant) == (0, 2)
    assert Workload(keys, np.array([0.5])).balanced(constant) == (2,)
    assert Measured.of(np.zeros(1), np.zeros(2)).groups.tolist() == [0.0, 0.0]


def test_a_resource_that_hangs_on_hot_keys_does_not_pull_the_ring() -> None:
    """The tail carries 0.9 of the first resource and 0.1 of the second: only the first one counts."""
    problem = WeighProblem(
        channels=2,
        weights=(10, 10),
        key_loads=np.array([[0.1, 0.9]]),
        key_state=np.array([0.1]),
        key_origins=np.array([0], dtype=np.int32),
        tail_loads=np.array([[0.45, 0.05], [0.45, 0.05]]),
        tolerances=np.array([1.2, 1.2]),
    )
    assert float(problem.along_tail(np.array([0.1, 0.9]))) == pytest.approx(0.1 / 0.9)
    assert float(problem.along_tail(np.array([0.0, 0.9]))) == 0.0
