"""How many executors there should be, and which may go: examples, and properties over random clusters."""

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.control.executor_planner import (
    ExecutorBounds,
    ExecutorPlanner,
    ExecutorState,
    SlotNeed,
    side_by_side,
    slots_used,
)

BOUNDS = ExecutorBounds(executors_max=8, executors_min=1, patience_s=10.0)


def executor(identity: object, slots: int = 2, host: str = "", since_ms: int = 0, busy: bool = False) -> ExecutorState:
    return ExecutorState(str(identity), host or f"host-{identity}", slots, since_ms, busy)


def some(count: int, **facts) -> list[ExecutorState]:
    return [executor(number, since_ms=number, **facts) for number in range(count)]


def need(slots: int, kept: int | None = None, keeps_hosts: bool = False) -> SlotNeed:
    return SlotNeed(slots, slots if kept is None else kept, keeps_hosts)


def test_channels_that_outgrow_the_slots_bring_executors_at_once():
    plan = ExecutorPlanner().plan(0.0, some(2), need(7), BOUNDS, between_epochs=False)
    assert (plan.target, plan.present, plan.give_back) == (4, 2, ())
    assert plan.reason == "channels side by side: 7, slots: 4"


def test_fewer_than_the_least_are_made_up_for():
    plan = ExecutorPlanner().plan(0.0, some(1), need(1), ExecutorBounds(4, 3), between_epochs=False)
    assert (plan.target, plan.reason) == (3, "fewer than minExecutors")


def test_what_was_asked_for_is_not_asked_for_again():
    planner = ExecutorPlanner()
    assert planner.plan(0.0, some(2), need(7), BOUNDS, True).target == 4
    assert planner.plan(1.0, some(2), need(7), BOUNDS, True) is None
    assert planner.plan(2.0, some(3), need(8), BOUNDS, True) is None
    assert planner.plan(3.0, some(4), need(9), BOUNDS, True).target == 5


def test_no_more_are_asked_for_than_allowed():
    assert ExecutorPlanner().plan(0.0, some(2), need(1000), BOUNDS, True).target == 8


def test_what_the_application_was_started_with_is_on_its_way_and_not_asked_for():
    planner = ExecutorPlanner(initial=4)
    assert planner.plan(0.0, some(1), need(8), BOUNDS, True) is None
    assert planner.plan(0.0, some(1), need(9), BOUNDS, True).target == 5


def test_an_executor_that_comes_has_the_size_it_was_given():
    assert ExecutorPlanner(slots_each=4).plan(0.0, some(1), need(10), BOUNDS, True).target == 3


def test_executors_go_when_they_were_superfluous_for_the_whole_patience():
    planner = ExecutorPlanner()
    assert planner.plan(0.0, some(4), need(4), BOUNDS, True) is None
    assert planner.plan(9.9, some(4), need(4), BOUNDS, True) is None
    plan = planner.plan(10.0, some(4), need(4), BOUNDS, True)
    assert (plan.target, plan.present, plan.give_back) == (2, 2, ("3", "2"))
    # Spark shows them until they have ended; they do not count any more.
    assert planner.plan(11.0, some(4), need(4), BOUNDS, True) is None


def test_executors_that_were_needed_in_between_stay():
    planner = ExecutorPlanner()
    planner.plan(0.0, some(4), need(4), BOUNDS, True)
    planner.plan(5.0, some(4), need(8), BOUNDS, True)
    assert planner.plan(10.0, some(4), need(4), BOUNDS, True) is None
    planner.plan(15.0, some(4), need(6), BOUNDS, True)
    assert planner.plan(20.0, some(4), need(2), BOUNDS, True).target == 3


def test_nothing_goes_before_an_epoch_was_committed_without_it():
    planner = ExecutorPlanner()
    planner.plan(0.0, some(4), need(2, kept=8), BOUNDS, True)
    assert planner.plan(60.0, some(4), need(2, kept=8), BOUNDS, True) is None
    planner.plan(61.0, some(4), need(2, kept=2), BOUNDS, True)
    assert planner.plan(71.0, some(4), need(2, kept=2), BOUNDS, True).target == 1


def test_nothing_goes_while_an_epoch_is_under_way():
    planner = ExecutorPlanner()
    planner.plan(0.0, some(2), need(1), BOUNDS, False)
    assert planner.plan(60.0, some(2), need(1), BOUNDS, False) is None
    assert planner.plan(60.1, some(2), need(1), BOUNDS, True).give_back == ("1",)


def test_busy_executors_stay():
    planner = ExecutorPlanner()
    executors = [executor(1, busy=True), executor(2, busy=True), executor(3, busy=True)]
    planner.plan(0.0, executors, need(1), BOUNDS, True)
    assert planner.plan(10.0, executors, need(1), BOUNDS, True) is None
    executors[0] = executor(1)
    assert planner.plan(11.0, executors, need(1), BOUNDS, True).give_back == ("1",)


def test_first_goes_the_youngest_whose_host_keeps_another():
    planner = ExecutorPlanner()
    executors = [
        executor("old", host="a", since_ms=1),
        executor("young", host="a", since_ms=2),
        executor("youngest", host="b", since_ms=3),
    ]
    planner.plan(0.0, executors, need(2), BOUNDS, True)
    assert planner.plan(10.0, executors, need(2), BOUNDS, True).give_back == ("young", "youngest")


def test_the_last_executor_of_a_host_stays_if_state_lies_on_its_disk():
    planner = ExecutorPlanner()
    executors = [executor(1, host="a"), executor(2, host="a"), executor(3, host="b")]
    planner.plan(0.0, executors, need(1, keeps_hosts=True), BOUNDS, True)
    plan = planner.plan(10.0, executors, need(1, keeps_hosts=True), BOUNDS, True)
    assert plan.give_back == ("1",) and plan.target == 2


def test_a_request_that_nobody_grants_goes_down_with_the_channels():
    planner = ExecutorPlanner()
    assert planner.plan(0.0, some(1), need(8), BOUNDS, True).target == 4
    planner.plan(1.0, some(1), need(2), BOUNDS, True)
    plan = planner.plan(11.0, some(1), need(2), BOUNDS, True)
    assert (plan.target, plan.give_back) == (1, ())


def test_a_request_that_is_refused_is_made_again_later():
    planner = ExecutorPlanner()
    plan = planner.plan(0.0, some(1), need(8), BOUNDS, True)
    planner.refused(0.0, plan, None, BOUNDS)
    assert planner.target is None
    assert planner.plan(9.9, some(1), need(8), BOUNDS, True) is None
    assert planner.plan(10.0, some(1), need(8), BOUNDS, True).target == 4


def test_before_the_first_executor_has_come_nothing_is_said():
    assert ExecutorPlanner().plan(0.0, [], need(8), BOUNDS, True) is None


def test_regions_of_one_level_run_side_by_side_and_levels_one_after_the_other():
    assert side_by_side({"a": 3, "b": 4, "c": 5}, {"a": 1, "b": 1, "c": 2}) == 7
    assert side_by_side({}, {}) == 0


@pytest.mark.parametrize(
    ("seconds", "epoch_s", "slots"),
    [([], 1.0, 0), ([0.01, 0.01], 0.5, 1), ([1.0] * 8, 3.0, 8), ([3.0, 1.0, 1.0, 1.0], 4.0, 2), ([0.0], 0.0, 1)],
    ids=["no tasks", "next to nothing", "heavy", "one dominates", "immeasurable"],
)
def test_tasks_of_other_stages_need_slots_if_fewer_would_have_made_the_epoch_longer(seconds, epoch_s, slots):
    assert slots_used(seconds, epoch_s) == slots


# -- properties -------------------------------------------------------------------------------------------

clusters = st.lists(
    st.builds(
        ExecutorState,
        identity=st.uuids().map(str),
        host=st.sampled_from("abc"),
        slots=st.integers(1, 4),
        since_ms=st.integers(0, 5),
        is_busy=st.booleans(),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each.identity,
)
needs = st.builds(SlotNeed, st.integers(0, 30), st.integers(0, 30), st.booleans())
some_bounds = st.builds(
    lambda least, more, patience_s: ExecutorBounds(least + more, least, patience_s),
    st.integers(1, 4),
    st.integers(0, 6),
    st.floats(0, 20),
)


class RandomCluster:
    """Grants what it is asked for late, in part, or not at all; what is given back ends late."""

    def __init__(self, executors: list[ExecutorState], seed: int, grants_max: int, sizes=(1, 2, 3, 4)) -> None:
        self.sizes = sizes
        self.executors = list(executors)
        self.chance = random.Random(seed)
        self.grants_max = grants_max
        self.total = len(executors)
        self.ending: list[str] = []
        self._made = 0

    def told(self, plan) -> None:
        self.total = plan.target
        self.ending += plan.give_back

    def passes(self) -> None:
        self.executors = [e for e in self.executors if e.identity not in self.ending or self.chance.random() < 0.5]
        staying = [e for e in self.executors if e.identity not in self.ending]
        if len(staying) < min(self.total, self.grants_max) and self.chance.random() < 0.5:
            self._made += 1
            slots = self.chance.choice(self.sizes)
            self.executors.append(executor(f"new-{self._made}", slots, self.chance.choice("abc"), self._made))
        self.executors = [dataclasses.replace(e, is_busy=self.chance.random() < 0.3) for e in self.executors]

    @property
    def staying(self) -> list[ExecutorState]:
        return [e for e in self.executors if e.identity not in self.ending]


@settings(max_examples=300, deadline=None)
@given(clusters, st.lists(st.tuples(needs, st.booleans()), max_size=40), some_bounds, st.integers(0, 2**32))
def test_whatever_happens_nothing_goes_that_is_needed(executors, story, bounds, seed):
    planner, cluster = ExecutorPlanner(), RandomCluster(executors, seed, grants_max=10)
    for now_s, (wanted, between) in enumerate(story):
        before = {each.identity: each for each in cluster.staying}
        plan = planner.plan(float(now_s), cluster.executors, wanted, bounds, between)
        if plan is not None:
            assert plan.target >= bounds.executors_min
            assert plan.target <= max(bounds.executors_max, len(before))
            stays = [each for name, each in before.items() if name not in plan.give_back]
            assert plan.present == len(stays)
            if plan.give_back:
                assert between
                assert set(plan.give_back) <= before.keys() and len(set(plan.give_back)) == len(plan.give_back)
                assert not any(before[name].is_busy for name in plan.give_back)
                assert len(stays) >= bounds.executors_min
                assert sum(each.slots for each in stays) >= max(wanted.slots, wanted.slots_kept)
                assert now_s >= bounds.patience_s
                if wanted.keeps_hosts:
                    assert {each.host for each in stays} == {each.host for each in before.values()}
            cluster.told(plan)
        cluster.passes()


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 8), needs, some_bounds, st.integers(0, 2**32), st.integers(0, 10))
def test_at_constant_need_there_is_one_change_and_then_peace(count, wanted, bounds, seed, grants_max):
    """No oscillation, whatever the cluster grants; and what remains is what is needed, no more."""
    wanted = dataclasses.replace(wanted, keeps_hosts=False)
    planner, cluster = ExecutorPlanner(), RandomCluster(some(count), seed, grants_max, sizes=[2])
    said = []
    for now_s in range(400):
        plan = planner.plan(float(now_s), cluster.executors, wanted, bounds, True)
        if plan is not None:
            said.append((now_s, plan))
            cluster.told(plan)
        cluster.passes()
    # Those that are busy when the others go, go later: one after the other at worst, with a patience for each.
    assert all(now_s < 300 for now_s, _ in said), said
    assert sum(not plan.give_back for _, plan in said) <= 1, said
    limit = max(bounds.executors_max, count)
    asked = max(bounds.executors_min, min(-(-wanted.slots // 2), limit))
    enough = max(asked, min(-(-wanted.slots_kept // 2), limit))
    expected = min(asked, max(count, grants_max)) if asked > count else min(count, enough)
    assert len(cluster.staying) == expected, said
