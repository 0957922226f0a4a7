"""Elastic operators in virtual time: the production's pools and controllers over machines that are not there."""

from __future__ import annotations

import contextlib
import random
import statistics
from pathlib import Path

import pytest

from anabranch.control.concurrency_controller import ConcurrencyController
from anabranch.control.operator_levels import PaperLevels
from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.engine.pool.pool_run import CallFailed
from anabranch.program.elastic import Concurrency
from anabranch.sim.operators.machines import CrowdedService, SharedCores, SharedPermits
from anabranch.sim.operators.operator_world import OperatorWorld, PinnedLevel
from anabranch.sim.operators.simulated_crew import SimulatedCrew
from anabranch.sim.operators.simulated_time import SimulatedTime


def same(row):
    return row


def settled_after(pool: Pool, begun: int, is_near) -> int:
    """How many periods after one of them the level is held, and near the best."""
    log = pool.controller.log
    for number, decision in enumerate(log[begun:], 1):
        if decision.branch in ("stable", "settled", "look", "fewer", "no more", "more") and is_near(decision.before):
            rest = log[begun + number : begun + number + 3]
            if all(is_near(each.before) or each.branch in ("look", "no more") for each in rest):
                return number
    return 999


def test_a_call_that_the_end_of_the_time_cuts_off_is_no_failure() -> None:
    """At level 0 the thread that waits for the end of a call is the pool's own."""
    world = OperatorWorld(1.0)
    crew = SimulatedCrew(world.time, SharedPermits(world.time, 4), lambda row: 0.7, same)
    _, course = world.add(crew, PinnedLevel(0))
    world.run(5)
    assert sum(rows for rows, _ in course.stretches) in (6, 7)


@pytest.mark.parametrize("seed", range(4))
def test_a_service_whose_best_concurrency_changes_is_followed_within_fifteen_periods(seed: int) -> None:
    """8, then 64, then 16 calls at a time give the most; answers take 200 ms and more."""
    chance = random.Random(seed)
    world = OperatorWorld(1.0)
    service = CrowdedService(world.time, 8)
    crew = SimulatedCrew(world.time, service, lambda row: 0.2 * chance.uniform(0.9, 1.1), same)
    pool, course = world.add(crew, ConcurrencyController(1, 256))
    began: dict[int, int] = {8: 0}

    def changed(best: int) -> None:
        service.best = best
        began[best] = len(pool.controller.log)

    starts = {8: 0.0, 64: 35 + chance.uniform(0, 5), 16: 75 + chance.uniform(0, 5)}
    for best in (64, 16):
        world.at(starts[best], lambda best=best: changed(best))
    world.run(115)
    for best, start in starts.items():

        def share(level: int, best: int = best) -> float:
            return min(1.0, level / best) * max(1.0, level / best) ** -0.5

        assert settled_after(pool, began[best], lambda level, share=share: share(level) >= 0.9) <= 15
        # And by the clock: from the fifteenth second on, what comes out is near the best, looks included.
        assert course.mean(int(start) + 18, int(start) + 34) >= 0.9 * best / 0.2


def test_other_programs_that_come_and_go_are_followed_within_ten_periods() -> None:
    for phase in (0.0, 1.7, 3.1):
        world = OperatorWorld(1.0)
        permits = SharedPermits(world.time, 16)
        _, course = world.add(SimulatedCrew(world.time, permits, lambda row: 0.05, same), ConcurrencyController(0, 128))
        world.at(30 + phase, lambda permits=permits: permits.change(-12))
        world.at(60 + phase, lambda permits=permits: permits.change(12))
        world.run(90)
        held = course.levels
        assert 14 <= statistics.median(held[20:30]) <= 20, held
        assert 4 <= statistics.median(held[41 + int(phase) : 60]) <= 6, held
        assert 14 <= statistics.median(held[71 + int(phase) : 90]) <= 20, held
        assert course.mean(71 + int(phase), 90) >= 0.95 * 16 / 0.05


@pytest.mark.parametrize("pauses", [False, True])
def test_epochs_with_pauses_between_them_find_the_level_that_is_found_without(pauses: bool) -> None:
    """Epochs of 1 to 2 s: the queue runs empty at the end of each, and nothing comes for a while."""
    chance = random.Random(7)
    time = SimulatedTime()
    crew = SimulatedCrew(time, SharedPermits(time, 12), lambda row: 0.05, same)
    pool = Pool(crew, crew.many, Concurrency(), ConcurrencyController(0, 128), time=time)
    levels: list[int] = []

    def epochs() -> None:
        for _ in range(70):
            rows = range(chance.randint(240, 480) if pauses else 360)
            assert [row for _, some in pool.run(rows) for row in some] == list(rows)
            levels.append(pool.controller.to_dict()["level"])
            if pauses:
                time.sleep(chance.choice((0.0, 0.5, 5.0)))

    time.run([epochs], 1e6)
    assert 11 <= levels[-1] <= 14
    assert len(set(levels[-30:])) == 1, "and it stays"


@pytest.mark.parametrize("machine", [SharedPermits, SharedCores])
def test_operators_that_compete_settle_and_share(machine, tmp_path: Path) -> None:
    """Four of them on sixteen cores, as in Figure 7: all cores are used, in equal parts, and nobody races."""
    shares, totals = [], []
    for seed in range(2):
        chance = random.Random(seed)
        world = OperatorWorld(1.0)
        cores = machine(world.time, 16)
        courses = []
        for number in range(4):
            crew = SimulatedCrew(world.time, cores, lambda row, chance=chance: 0.1 * chance.uniform(0.8, 1.2), same)
            seat = Neighbours(tmp_path / str(seed), str(number))
            courses.append(world.add(crew, ConcurrencyController(0, 128), neighbours=seat)[1])
        world.run(80)
        rates = [course.mean(60) for course in courses]
        shares.append(sum(rates) ** 2 / (4 * sum(rate * rate for rate in rates)))
        totals.append(sum(rates) / 160)
        assert sum(course.levels[-1] for course in courses) <= 48, "no race"
    assert min(totals) > 0.95
    assert min(shares) > 0.95


def test_the_paper_controller_finds_the_cores_of_the_papers_machines() -> None:
    for cores in (4, 16):
        world = OperatorWorld(1.0)
        machine = SharedCores(world.time, cores, 0.002)
        _, course = world.add(SimulatedCrew(world.time, machine, lambda row: 0.05, same), PaperLevels(64))
        world.run(40)
        assert cores - 1 <= course.levels[-1] <= cores + 2
        assert course.mean(25) >= 0.93 * cores / 0.05


@pytest.mark.parametrize("seed", range(12))
def test_random_delays_failures_hangs_and_levels_give_what_one_thread_gives(seed: int) -> None:
    """Some calls fail a few times, some for good, some never come back the first time; levels change at any time."""
    chance = random.Random(seed)
    time = SimulatedTime()
    count, retries = chance.choice((1, 40, 800)), chance.choice((0, 1, 3))
    delays = {(row, attempt): chance.expovariate(50) for row in range(count) for attempt in range(5)}
    failures = [chance.choice((0, 0, 0, 1, 2)) if retries else 0 for _ in range(count)]
    doomed = chance.sample(range(count), chance.choice((0, 0, min(count, 2))))
    timeout = chance.choice((None, 1.0)) if retries else None
    hanging = {row for row in range(count) if timeout and chance.random() < 0.02}
    attempts = [0] * count
    begun = [0] * count

    def cost(row: int) -> float:
        begun[row] += 1
        return 1e6 if row in hanging and begun[row] == 1 else delays[row, min(4, begun[row])]

    def one(row: int) -> int:
        attempts[row] += 1
        if row in doomed or attempts[row] + (row in hanging) <= min(failures[row], retries):
            raise ValueError(f"row {row}")
        return row * 3

    crew = SimulatedCrew(time, SharedPermits(time, 100), cost, one)
    settings = Concurrency(1 if timeout else 0, retries=retries, backoff_s=0.01, timeout_s=timeout, period_s=0.1)
    controller = PinnedLevel(chance.randint(settings.min_workers, 9))

    def handle(rate: float) -> None:
        controller.level = chance.randint(settings.min_workers, 16)

    controller.handle = handle  # type: ignore[method-assign]
    pool = Pool(crew, crew.many, settings, controller, window=chance.choice((8, 4096)), time=time)
    found: dict[int, int] = {}
    ordered = chance.random() < 0.7
    failure: list[CallFailed] = []

    def run() -> None:
        with contextlib.closing(pool.run(range(count), ordered=ordered)) as results:
            try:
                for first, some in results:
                    assert not ordered or first == len(found)
                    for at, each in enumerate(some, first):
                        assert at not in found, "twice"
                        found[at] = each
            except CallFailed as problem:
                failure.append(problem)

    time.run([run], 1e5)
    expected = min(doomed) if doomed else count
    assert [found[at] for at in range(expected)] == [at * 3 for at in range(expected)]
    assert [each.index for each in failure] == ([min(doomed)] if doomed else [])
