"""The swarm: random worlds are right, planted bugs are found, and what fails becomes small."""

from __future__ import annotations

import pytest

from anabranch.control import Bounds, DefaultPolicy, PaperPolicy
from anabranch.papers import machine as sim
from anabranch.papers.machine.swarm import failures, random_world, shrink, source_of
from anabranch.partitioning.placing.construct import Construction, ConstructionSettings
from anabranch.partitioning.placing.planner import PlannerSettings
from anabranch.partitioning.resources import Growth, Resources
from anabranch.program.model import Selectivity
from anabranch.sim.printing import test_of as text_of_test
from tests.papers.machine_bugs import BUGS, Bug, planted

WORLDS = 150
WORLDS_PER_BUG = 400
FIRST_SEED = 42_000_000

# What the text of a world may name.
NAMES = {
    **{name: getattr(sim, name) for name in sim.__all__},
    "Bounds": Bounds,
    "Construction": Construction,
    "ConstructionSettings": ConstructionSettings,
    "DefaultPolicy": DefaultPolicy,
    "Growth": Growth,
    "PaperPolicy": PaperPolicy,
    "PlannerSettings": PlannerSettings,
    "Resources": Resources,
    "Selectivity": Selectivity,
    "failures": failures,
}


def test_random_worlds_are_right():
    for seed in range(FIRST_SEED, FIRST_SEED + WORLDS):
        assert failures(random_world(seed)) == [], f"python -m anabranch.papers.machine.swarm --world {seed}"


def first_failure(worlds: int) -> tuple[int, list[str]]:
    for seed in range(FIRST_SEED, FIRST_SEED + worlds):
        complaints = failures(random_world(seed))
        if complaints:
            return seed, complaints
    raise AssertionError(f"{worlds} worlds were right in spite of the bug")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.component}: {bug.what}")
def test_a_planted_bug_is_found(bug: Bug):
    with planted(bug):
        _, complaints = first_failure(WORLDS_PER_BUG)
    assert complaints


def test_what_fails_becomes_small_and_is_printed_as_a_test_that_fails():
    bug = next(bug for bug in BUGS if bug.component == "migration")
    with planted(bug):
        seed, _ = first_failure(WORLDS_PER_BUG)
        small, of_small = shrink(random_world(seed), trials_max=150)
        assert of_small
        assert (small.source.tuples or 0) < (random_world(seed).source.tuples or 0)
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


# -- worlds that once failed ---------------------------------------------------------------------------------------


def test_a_function_that_changes_again_while_state_moves():
    """The migration that was under way took over the newer function, to which its packages did not belong."""
    world = sim.WorldDescription(
        sim.MachineSource(tuples=55, keys=5),
        (
            sim.MachineRegion(
                spread=sim.CostSpread.UNIFORM, key=0, selectivity=0.1, group_bits=2, pulse_every=3, queue=5
            ),
        ),
        sim.Cluster(delay_s=0.003, migration_bytes_per_s=10000.0, barrier_s=0.0, checkpoint_every=50),
        rescalings=(sim.Rescaling(0.0658, 0, 2), sim.Rescaling(0.0762, 0, 1)),
        period_s=0.0275,
        seed=1000033,
    )
    assert failures(world) == []


def test_a_second_failure_while_the_first_is_replayed():
    """A checkpoint during the replay forgot that what lay behind it had been delivered already."""
    hosts = (
        sim.Host(failures=(sim.Fault(0.0346, 0.0097),)),
        sim.Host(failures=(sim.Fault(0.0194, 0.0091),)),
    )
    world = sim.WorldDescription(
        sim.MachineSource(load=sim.Sine(491.8, 491.8, 0.0203), tuples=9, random_arrivals=True, keys=1),
        (sim.MachineRegion(channels=2, group_bits=2, queue=20),),
        sim.Cluster(hosts=hosts, barrier_s=0.0, restore_s=0.002, checkpoint_every=15),
        period_s=0.0122,
        seed=1000342,
    )
    assert failures(world) == []
