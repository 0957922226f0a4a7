"""Random worlds: right as the code is, wrong with a bug in it, small when printed."""

import pytest

from anabranch import sim
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.sim.printing import source_of
from anabranch.sim.printing import test_of as text_of_test
from anabranch.sim.simulation import Simulation
from anabranch.sim.smallest import kind_of, smallest
from anabranch.sim.swarm import SwarmWorld, failures, random_world
from anabranch.sim.swarm.judging import judged
from anabranch.sim.swarm.random_programs import Recipe
from anabranch.sim.swarm.simplifying import simpler
from benchmarks._planted_bugs import BUGS, Bug, planted

FIRST_SEED = 7_000_000
WORLDS = 24
# The benchmark looks for all of them, a minute each; here are those that show within a few worlds.
WORLDS_PER_BUG = 14
LATE = {
    "an epoch that runs again has another time",
    "a compaction leaves out the newest it inherited",
    "the last tuple sent back is lost",
    "congestion is never seen",
    "no channel is given back",
    "epochs only grow",
    "what is asked by hand dies with the driver",
    "a restart makes functions anew",
}
NAMES = {name: getattr(sim, name) for name in sim.__all__} | {
    "BalancingSettings": BalancingSettings,
    "ElasticOptions": ElasticOptions,
    "Recipe": Recipe,
    "SwarmWorld": SwarmWorld,
    "failures": failures,
}


def test_random_worlds_are_right():
    for seed in range(FIRST_SEED, FIRST_SEED + WORLDS):
        assert failures(random_world(seed)) == [], f"python -m anabranch.sim.swarm --world {seed}"


@pytest.mark.parametrize("seed", [139, 1_000_000_002])
def test_state_that_is_kept_as_what_it_grew_by_is_read_by_the_checks(seed):
    assert failures(random_world(seed)) == []


def first_failure(worlds: int) -> tuple[int, list[str]]:
    for seed in range(1_000_000, 1_000_000 + worlds):
        complaints = failures(random_world(seed))
        if complaints:
            return seed, complaints
    raise AssertionError(f"{worlds} worlds were right in spite of the bug")


def test_there_are_bugs_in_all_that_an_epoch_does():
    assert len(BUGS) >= 16
    assert {"commit", "owners", "state", "balancing", "scaling", "compaction"} <= {bug.component for bug in BUGS}
    assert {bug.what for bug in BUGS} >= LATE


@pytest.mark.parametrize(
    "bug", [bug for bug in BUGS if bug.what not in LATE], ids=lambda bug: f"{bug.component}: {bug.what}"
)
def test_a_planted_bug_is_found(bug: Bug):
    with planted(bug):
        _, complaints = first_failure(WORLDS_PER_BUG)
    assert complaints


def test_what_fails_becomes_small_and_is_printed_as_a_test_that_fails():
    bug = next(bug for bug in BUGS if bug.what == "a merge keeps the oldest value")
    with planted(bug):
        seed, complaints = first_failure(WORLDS_PER_BUG)
        small, of_small = smallest(random_world(seed), failures, simpler, trials_max=25)
        assert {kind_of(each) for each in of_small} & {kind_of(each) for each in complaints}
        assert len(source_of(small)) < len(source_of(random_world(seed)))
        namespace = dict(NAMES)
        exec(text_of_test("printed", small, of_small), namespace)
        with pytest.raises(AssertionError):
            namespace["test_printed"]()
    namespace["test_printed"]()


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_the_text_of_a_world_is_the_world(seed):
    world = random_world(seed)
    assert eval(source_of(world), dict(NAMES)) == world
    assert random_world(seed) == world


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_replays_a_world_exactly(seed):
    one, other = judged(random_world(seed)), judged(random_world(seed))
    assert one == other


def test_worlds_are_what_they_are_meant_to_be():
    worlds = [random_world(seed) for seed in range(300)]
    assert 0.5 < sum(world.recipe is not None for world in worlds) / 300 < 0.8
    points = {crash.point for world in worlds for crash in world.situation.crashes}
    assert points >= {"epoch begun", "segment written", "job done", "sink written", "manifest written"}
    assert sum(bool(world.situation.asked) for world in worlds) > 150
    assert any(host.absent_s for world in worlds for host in world.situation.hosts)


def test_tasks_run_again_when_their_host_is_lost():
    """A lost host is more than lost time: what ran there runs again elsewhere, and counts once."""
    world = next(
        world
        for world in map(random_world, range(1000))
        if world.recipe is not None and sum(bool(host.absent_s) for host in world.situation.hosts) > 1
    )
    run = Simulation(world.streams(), world.situation).run()
    assert run.epochs and failures(world) == []
