"""The size of epochs: what an epoch takes makes it last about as long as was asked for."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.control.epoch_size import FILES_MAX, EpochSize, TakenEpoch, shared


class World:
    """A source of files with a backlog, and a machine that takes a fixed time and a time per file."""

    def __init__(self, size: EpochSize, fixed_s: float, file_s: float, *, rows: int = 10, seen: float = 0.7) -> None:
        self.size = size
        self.fixed_s = fixed_s
        self.file_s = file_s
        self.rows = rows
        self.seen = seen  # of the fixed cost, so much is seen as overhead
        self.limits: list[int] = [size.limits["in"]]
        self.durations: list[float] = []

    def epoch(self, *, ready: float = math.inf, factor: float = 1.0, pause_s: float = 0.0):
        limit = self.size.limits["in"]
        files = int(min(limit, ready))
        duration = (self.fixed_s + self.file_s * files) * factor + pause_s
        taken = TakenEpoch(duration, self.seen * self.fixed_s, {"in": files}, {"in": files * self.rows}, {"in": limit})
        decision = self.size.handle(taken)
        self.durations.append(duration)
        self.limits.append(decision.limits["in"])
        return decision

    def run(self, epochs: int, **more) -> None:
        for _ in range(epochs):
            self.epoch(**more)

    def goal_s(self) -> float:
        return max(self.size.target_s, 3 * self.fixed_s)


costs = st.tuples(
    st.floats(0.3, 30),  # target
    st.floats(0.0, 3.0),  # fixed cost, also above the target
    st.floats(1e-4, 0.2),  # per file
    st.integers(1, 4096),  # beginning
    st.floats(0.0, 1.0),  # how much of the fixed cost is seen as such
)


@given(costs)
def test_with_a_backlog_an_epoch_comes_to_last_about_the_target_and_stays_there(chosen):
    target, fixed, per_file, beginning, seen = chosen
    world = World(EpochSize(["in"], target, beginning), fixed, per_file, seen=seen)
    world.run(25)
    settled = world.durations[-1]
    assert abs(settled - world.goal_s()) <= max(0.3 * world.goal_s(), per_file) or world.limits[-1] == FILES_MAX
    world.run(20)
    assert len(set(world.limits[-20:])) == 1


@given(costs, st.lists(st.tuples(st.floats(0.2, 20), st.integers(0, 10_000)), min_size=1, max_size=40))
def test_whatever_happens_a_limit_is_at_least_one_and_moves_by_a_factor_of_two_at_most(chosen, epochs):
    target, fixed, per_file, beginning, seen = chosen
    world = World(EpochSize(["in"], target, beginning), fixed, per_file, seen=seen)
    for factor, ready in epochs:
        world.epoch(factor=factor, ready=ready)
    for before, after in zip(world.limits, world.limits[1:], strict=False):
        assert 1 <= after <= FILES_MAX
        assert math.ceil(before / 2) <= after <= before * 2


@given(costs)
def test_the_approach_is_from_one_side(chosen):
    target, fixed, per_file, beginning, seen = chosen
    world = World(EpochSize(["in"], target, beginning), fixed, per_file, seen=seen)
    world.run(40)
    turns = sum(
        1 for a, b, c in zip(world.limits, world.limits[1:], world.limits[2:], strict=False) if (b - a) * (c - b) < 0
    )
    # What starting tasks costs is found out by the first step, which may have been one in the wrong direction.
    assert turns <= 1


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_carry_it_away(seed):
    chance = random.Random(seed)
    world = World(EpochSize(["in"], 2.0, 16), 0.3, 0.01)
    for _ in range(200):
        world.epoch(factor=max(0.3, chance.gauss(1.0, 0.15)))
    late = world.limits[20:]
    assert min(late) >= 85 and max(late) <= 340  # 170 is exact


@pytest.mark.parametrize("seed", range(10))
def test_noise_and_a_high_fixed_cost_do_not_shrink_epochs_to_nothing_but_fixed_cost(seed):
    # As on a machine that ten others use: half of what an epoch lasts is chance, and most of it is fixed.
    chance = random.Random(seed)
    world = World(EpochSize(["in"], 2.0, 15), 1.8, 0.04)
    for _ in range(60):
        world.epoch(factor=min(2.5, max(0.5, chance.lognormvariate(0.0, 0.35))))
    late = world.limits[5:]
    assert sum(limit >= 25 for limit in late) >= 0.8 * len(late), world.limits  # 90 is exact


def test_a_single_pause_changes_nothing():
    world = World(EpochSize(["in"], 1.0, 16), 0.2, 0.01)
    world.run(12)
    before = world.limits[-1]
    world.epoch(pause_s=8.0)
    world.run(12)
    assert set(world.limits[-14:]) == {before}


def test_a_real_change_of_cost_is_followed_within_a_few_epochs():
    world = World(EpochSize(["in"], 1.0, 16), 0.2, 0.01)
    world.run(12)
    world.file_s = 0.04
    world.run(6)
    assert abs(world.durations[-1] - 1.0) <= 0.3


def test_files_of_very_different_sizes_last_about_the_target_on_average():
    chance = random.Random(7)
    size = EpochSize(["in"], 2.0, 16)
    durations = []
    for _ in range(150):
        limit = size.limits["in"]
        rows = sum(int(10 * chance.paretovariate(1.3)) for _ in range(limit))
        durations.append(0.3 + 0.0005 * rows)
        size.handle(TakenEpoch(durations[-1], 0.2, {"in": limit}, {"in": rows}, {"in": limit}))
    late = sorted(durations[20:])
    assert 1.4 <= late[len(late) // 2] <= 2.6


def test_a_fixed_cost_that_nobody_saw_does_not_end_with_a_file_an_epoch():
    world = World(EpochSize(["in"], 0.5, 64), 1.0, 0.01, seen=0.0)
    world.run(20)
    assert world.durations[-1] == pytest.approx(3.0, rel=0.3)


def test_what_looks_fixed_and_grows_with_the_files_does_not_grow_for_ever():
    size = EpochSize(["in"], 1.0, 16)
    for _ in range(40):
        limit = size.limits["in"]
        duration = 0.1 + 0.02 * limit
        size.handle(TakenEpoch(duration, 0.9 * duration, {"in": limit}, {"in": limit}, {"in": limit}))
    assert 0.1 + 0.02 * size.limits["in"] == pytest.approx(1.0, rel=0.3)


def test_a_limit_that_is_not_reached_is_not_raised_and_a_trickle_is_not_cut():
    world = World(EpochSize(["in"], 2.0, 16), 0.3, 0.001)
    world.run(30, ready=1)
    assert world.limits[-1] == 16


def test_large_files_that_come_slowly_lower_the_limit_before_many_come_at_once():
    world = World(EpochSize(["in"], 2.0, 4096), 0.3, 0.8)
    world.run(15, ready=1)
    assert world.limits[-1] == 2


def test_empty_epochs_and_files_without_rows_are_no_trouble():
    size = EpochSize(["in"], 1.0, 4)
    empty = TakenEpoch(0.2, 0.2, {"in": 0}, {"in": 0}, {"in": 4})
    assert size.handle(empty).limits == {"in": 4}
    without = TakenEpoch(0.3, 0.2, {"in": 4}, {"in": 0}, {"in": 4})
    assert size.handle(without).limits == {"in": 8}


def test_an_epoch_is_cut_short_only_while_its_limit_is_on_the_way_up():
    world = World(EpochSize(["in"], 1.0, 10), 0.2, 0.01)
    assert world.epoch().cut_short
    world.run(12)
    assert not world.epoch().cut_short
    assert not world.epoch(ready=3).cut_short


def test_sources_share_the_time_by_their_rows():
    size = EpochSize(["thick", "thin"], 1.0, 8)
    for _ in range(25):
        limits = size.limits
        rows = {"thick": 99 * limits["thick"], "thin": 9 * limits["thin"]}
        duration = 0.1 + 0.0005 * sum(rows.values())
        size.handle(TakenEpoch(duration, 0.1, limits, rows, limits))
    assert duration == pytest.approx(1.0, rel=0.3)
    assert rows["thick"] == pytest.approx(rows["thin"], rel=0.5)


def test_a_source_that_has_little_leaves_its_time_to_the_others_but_keeps_its_right():
    size = EpochSize(["quiet", "full"], 1.0, 8)
    for _ in range(25):
        limits = size.limits
        files = {"quiet": 1, "full": limits["full"]}
        rows = {name: 9 * count for name, count in files.items()}
        duration = 0.1 + 0.001 * sum(rows.values())
        size.handle(TakenEpoch(duration, 0.1, files, rows, limits))
    assert duration == pytest.approx(1.0, rel=0.3)
    assert size.limits["quiet"] == 8


def test_rows_that_others_bring_take_their_part_of_the_time():
    size = EpochSize(["in"], 1.0, 8)
    for _ in range(25):
        limits = size.limits
        duration = 0.1 + 0.001 * (10 * limits["in"] + 400)
        size.handle(TakenEpoch(duration, 0.1, limits, {"in": 9 * limits["in"]}, limits, other_rows=400))
    assert duration == pytest.approx(1.0, rel=0.3)


def test_a_restarted_driver_goes_on_with_the_size_and_the_fixed_cost():
    world = World(EpochSize(["in"], 1.0, 4), 0.4, 0.01)
    world.run(15)
    again = EpochSize(["in", "new"], 1.0, 4)
    again.restore(dataclasses.replace(world.size.memory(), limits={**world.size.limits, "gone": 7}))
    assert again.limits == {"in": world.limits[-1], "new": 4}
    after = World(again, 0.4, 0.01)
    after.run(10)
    assert set(after.limits) == {world.limits[-1]}


def test_a_share_that_is_not_needed_goes_to_the_others():
    assert shared(9.0, {"a": 1.0, "b": math.inf, "c": 3.0}) == {"a": 1.0, "c": 3.0, "b": 5.0}
    assert shared(0.0, {"a": 1.0}) == {"a": 0.0}
