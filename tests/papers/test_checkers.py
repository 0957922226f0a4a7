"""A test of the tests: every checker complains about what it is for, and only then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.control import Bounds, DefaultPolicy
from anabranch.papers.machine import (
    Cluster,
    CostSpread,
    Fault,
    Host,
    MachineRegion,
    MachineSource,
    Rescaling,
    World,
    WorldDescription,
)
from anabranch.papers.machine.checkers import Recorder, check_run, check_saso, compare_output
from anabranch.papers.machine.oracle import sequential
from anabranch.papers.machine.result import RegionSample, Sample
from anabranch.papers.machine.swarm import failures

WORLD = WorldDescription(
    MachineSource(tuples=200, keys=20, skew=1.0, window_every=17),
    (
        MachineRegion("first", key=0, selectivity=1.5, channels=3, spread=CostSpread.EXPONENTIAL, group_bits=4),
        MachineRegion("second", key=1, selectivity=0.5, channels=2, shuffled=True, group_bits=4),
        MachineRegion("third", channels=3, numbered=True),
    ),
    Cluster(hosts=(Host(), Host(failures=(Fault(0.05, 0.02),))), delay_s=1e-4, jitter=1.0, checkpoint_every=40),
    rescalings=(Rescaling(0.03, 0, 5), Rescaling(0.08, 1, 1)),
    period_s=0.1,
)


def run(world: WorldDescription = WORLD) -> tuple[World, Recorder]:
    recorder = Recorder()
    running = World(world, recorder)
    running.run()
    return running, recorder


def test_a_right_run_gives_no_complaints():
    world, recorder = run()
    assert check_run(world, recorder) == []
    assert world.migrations, "the world is meant to migrate"
    assert world.recoveries, "the world is meant to fail and recover"
    assert len(recorder.output) > 100


def test_the_oracle_is_one_thread():
    plain = replace(
        WORLD, rescalings=(), cluster=Cluster(), regions=tuple(replace(r, channels=1) for r in WORLD.regions)
    )
    _, recorder = run(plain)
    assert recorder.output == sequential(WORLD, recorder.stream).delivered


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ([1, 2, 3], None),
        ([1, 3, 2], "order: at place 1 is 3"),
        ([1, 2], "exactly once: 1 tuples are missing, the first is 3"),
        ([1, 2, 2, 3], "exactly once: 1 tuples are too many, the first is 2"),
    ],
)
def test_output_is_compared_as_a_collection_and_then_in_order(found, complaint):
    complaints = compare_output([1, 2, 3], found)
    assert complaints == [] if complaint is None else complaints[0].startswith(complaint)


def test_a_run_that_was_cut_off_must_be_a_beginning():
    assert compare_output([1, 2, 3], [1, 2], ended=False) == []
    assert compare_output([1, 2, 3], [1, 3], ended=False)


def test_state_that_was_lost_is_noticed():
    world, recorder = run()
    store = next(store for store in world.flows[0].regions[0].stores if store.items())
    store.groups.clear()
    store.hot.clear()
    (complaint,) = check_run(world, recorder)
    assert complaint.startswith("state:")


def test_state_in_two_places_is_noticed():
    world, recorder = run()
    first, second, *_ = world.flows[0].regions[0].stores
    first.hot[0] = second.hot[0] = 1
    recorder.generation_started(world.flows[0])
    assert any("two places" in complaint for complaint in recorder.complaints)


def test_a_key_on_two_channels_and_a_queue_too_full_are_noticed():
    world, recorder = run()
    recorder.processed(0, 0, 5)
    recorder.processed(0, 1, 5)
    assert "one owner" in recorder.complaints[0]
    link = world.flows[-1].input
    for _ in range(link.capacity + 1):
        recorder.put(link)
    assert "bounded queues" in recorder.complaints[-1]
    for _ in range(2 * link.capacity):
        recorder.taken(link)
    assert "conservation" in recorder.complaints[-1]


def test_a_component_that_raises_is_a_failure_and_not_an_error():
    assert failures(replace(WORLD, regions=(replace(WORLD.regions[0], group_bits=4, pulse_every=0),)))[0].startswith(
        "raised"
    )


CONTROLLED = WorldDescription(
    MachineSource(), (MachineRegion(cost_s=0.01, bounds=Bounds(1, 16), policy=DefaultPolicy),)
)


def samples(*channels: int) -> list[Sample]:
    return [Sample(i + 1.0, 0, 0, 0, 0, 0, 0, (RegionSample(n, 0, 0, 0),)) for i, n in enumerate(channels)]


@pytest.mark.parametrize(
    ("channels", "complaint"),
    [
        ([1, 2, 4, 6, 6, 6, 6, 6, 6, 6], None),
        ([1, 2, 4, 4, 4, 4, 4, 4, 4, 4], "accuracy"),
        ([1, 2, 4, 8, 12, 12, 12, 12, 12, 12], "overshoot"),
        ([1, 4, 16, 12, 8, 6, 6, 6, 6, 6], "overshoot"),
        ([1, 2, 4, 6, 6, 6, 6, 6, 6, 7], "settling"),
        ([5, 6, 5, 6, 5, 6, 6, 6, 6, 6], "stability"),
    ],
)
def test_saso_is_judged_by_the_channels_that_a_load_of_five_channels_got(channels, complaint):
    complaints = check_saso(CONTROLLED, samples(*channels), 0, 0.0, 500.0)
    assert complaints == [] if complaint is None else any(complaint in one for one in complaints)
