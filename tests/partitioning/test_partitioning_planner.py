"""The planner: when it keeps and when it replaces, and what it says; splits of keys too hot for a channel."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch.partitioning.counting.workload import Measured, Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.hot_key_ways import Split, plan_splits
from anabranch.partitioning.placing.planner import Keep, Period, Planner, PlannerSettings, Replace

KEYS = (np.arange(8, dtype=np.uint64) << np.uint64(61)) + np.uint64(5)


def workload(hottest: float, others: float = 0.01) -> Workload:
    return Workload(KEYS, np.array([hottest] + [others] * 7), domain=10_000)


def crowded() -> Planner:
    """All known keys stand on channel 0 of 4."""
    function = PartitioningFunction.even(4).with_hot(dict.fromkeys(KEYS.tolist(), 0))
    return Planner(function)


def test_another_number_of_channels_replaces_the_function_at_once() -> None:
    before = PartitioningFunction.even(2)
    planner = Planner(before)
    instruction = planner.handle(Period(workload(0.05), channels_requested=3))
    assert isinstance(instruction, Replace)
    assert instruction.reason == "the number of channels changes from 2 to 3"
    assert planner.function is instruction.function
    assert planner.function.channels == 3
    assert (planner.function.group_owners() != before.group_owners()).any()
    shrunk = planner.handle(Period(workload(0.05), channels_requested=1))
    assert isinstance(shrunk, Replace) and planner.function.channels == 1


def test_balance_within_tolerance_keeps_the_function_even_if_asked_for_the_same_number() -> None:
    planner = Planner(PartitioningFunction.even(2))
    instruction = planner.handle(Period(Workload.empty(), channels_requested=2))
    assert isinstance(instruction, Keep)
    assert instruction.reason.startswith("balanced")


def test_imbalance_must_last_before_the_function_changes() -> None:
    planner = crowded()
    uneven = Period(workload(0.3, 0.05))
    first, second, third = (planner.handle(uneven) for _ in range(3))
    assert isinstance(first, Keep) and "1 of 3 periods" in first.reason
    assert isinstance(second, Keep) and "2 of 3 periods" in second.reason
    assert isinstance(third, Replace)
    assert third.constructed.expectation.imbalance.combined < 1.3
    assert [number for number, _ in planner.history] == [1, 2, 3]


def test_a_balanced_period_in_between_starts_the_patience_again() -> None:
    planner = crowded()
    uneven, even = Period(workload(0.3, 0.05)), Period(Workload.empty())
    for period in (uneven, uneven, even, uneven, uneven):
        assert isinstance(planner.handle(period), Keep)
    assert isinstance(planner.handle(uneven), Replace)


def test_migration_that_costs_more_than_it_gains_is_not_done_and_not_tried_every_period() -> None:
    function = crowded().function
    planner = Planner(function, PlannerSettings(patience_periods=2, migration_periods=10**6))
    reasons = [planner.handle(Period(workload(0.3, 0.05))).reason for _ in range(14)]
    assert planner.function is function
    # Patience doubles each time: 2, 4, 8 periods.
    assert [at for at, reason in enumerate(reasons) if "not worth it" in reason] == [1, 5, 13]


def test_what_a_period_says_of_moving_state_counts_for_more_than_what_is_assumed() -> None:
    uneven = workload(0.3, 0.05)
    for periods, replaced in ((None, True), (0.0, True), (10.0**6, False)):
        planner = crowded()
        instructions = [planner.handle(Period(uneven, migration_periods=periods)) for _ in range(3)]
        assert isinstance(instructions[-1], Replace) == replaced
    assert "costs 0.00 to move" not in instructions[-1].reason


def test_one_key_with_all_the_load_never_makes_the_planner_move() -> None:
    planner = Planner(PartitioningFunction.even(3))
    only = Period(Workload(KEYS[:1], np.array([1.0]), domain=1))
    assert all(isinstance(planner.handle(only), Keep) for _ in range(12))


def test_measured_channel_loads_decide_whether_there_is_trouble() -> None:
    planner = crowded()
    loads = np.ones((4, 3))
    for _ in range(5):
        assert isinstance(planner.handle(Period(workload(0.3, 0.05), channel_loads=loads)), Keep)
    loads[0] = 2.0
    instructions = [planner.handle(Period(workload(0.3, 0.05), channel_loads=loads)) for _ in range(3)]
    assert isinstance(instructions[-1], Replace)


def test_channel_loads_of_the_wrong_shape_are_refused_and_change_nothing() -> None:
    planner = crowded()
    with pytest.raises(ValueError, match=r"one row per channel.*\(4, 3\)"):
        planner.handle(Period(workload(0.3), channel_loads=np.ones((3, 3))))
    assert planner.history == ()


def test_zero_channels_are_refused() -> None:
    planner = crowded()
    with pytest.raises(ValueError, match="at least 1 channel, 0 were requested"):
        planner.handle(Period(workload(0.3), channels_requested=0))
    assert planner.function.channels == 4


@pytest.mark.parametrize("wrong", [{"patience_periods": 0}, {"horizon_periods": 0.0}, {"migration_periods": -1.0}])
def test_impossible_settings_are_refused(wrong: dict) -> None:
    with pytest.raises(ValueError, match="patience_periods"):
        PlannerSettings(**wrong)


def test_only_keys_above_a_fair_share_are_split_and_over_as_few_channels_as_will_do() -> None:
    load = Workload(KEYS[:4], np.array([0.45, 0.25, 0.2, 0.05]))
    assert plan_splits(load, 4) == (Split(int(KEYS[0]), 0.45, 2),)
    assert [split.ways for split in plan_splits(load, 10)] == [5, 3, 2]
    for split in plan_splits(load, 10):
        assert split.share / split.ways <= 1 / 10 + 1e-9
    assert plan_splits(load, 1) == ()
    assert plan_splits(Workload.empty(), 4) == ()
    assert plan_splits(Workload(KEYS[:1], np.array([1.0])), 3)[0].ways == 3
    with pytest.raises(ValueError, match="at least 1 channel"):
        plan_splits(load, 0)


def test_a_key_that_is_rare_but_slow_is_split_by_its_measured_time() -> None:
    seconds = np.array([8.0, 2.0])
    groups = np.bincount((KEYS[:2] >> np.uint64(52)).astype(np.int64), weights=seconds, minlength=4096)
    slow = Workload(KEYS[:2], np.array([0.01, 0.01]), computation=Measured.of(seconds, groups))
    assert plan_splits(slow, 5) == (Split(int(KEYS[0]), 0.8, 4),)


@pytest.mark.parametrize(
    ("hashes", "frequencies", "match"),
    [
        (KEYS[:2], np.array([0.5]), "do not pair"),
        (KEYS[[0, 0]], np.array([0.1, 0.1]), "same hash twice"),
        (KEYS[:2], np.array([0.9, 0.9]), "no more than 1"),
        (KEYS[:2], np.array([-0.1, 0.9]), "not negative"),
        (KEYS[:2], np.array([np.nan, 0.9]), "not negative"),
    ],
)
def test_impossible_frequencies_are_refused(hashes: np.ndarray, frequencies: np.ndarray, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        Workload(hashes, frequencies)


def test_measurements_of_another_number_of_groups_are_refused() -> None:
    load = Workload(KEYS[:1], np.array([0.1]), group_frequencies=np.full(16, 1 / 16))
    planner = Planner(PartitioningFunction.even(2))
    with pytest.raises(ValueError, match="4096 groups are expected"):
        planner.handle(Period(load))


def test_a_balance_that_has_channels_fetch_all_their_neighbours_have_is_weighed_with_that():
    uneven = workload(0.3, 0.05)
    for whole, replaced in ((False, True), (True, False)):
        planner = crowded()
        period = Period(uneven, migration_periods=20.0, fetches_whole=whole)
        instruction = [planner.handle(period) for _ in range(3)][-1]
        assert isinstance(instruction, Replace) == replaced, instruction.reason
    assert "for which" in instruction.reason and "is fetched" in instruction.reason
