"""Random rescaling while programs run: by hand, by a controller, with crashes in between.

Whatever the schedule, the output is the sequential one, the state in the checkpoint is that of the sequential run,
and every key had one owner in every epoch (an independent checker looks). A failure prints its seed;
``rescaling(seed, …)`` replays it.
"""

import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.control import Observation, Proposal
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.driver.committer import key_routes
from anabranch.errors import ProgramError
from anabranch.sim.owners import check_checkpoint
from anabranch.state.codec import decode
from anabranch.testing import ParallelRun, TaskDied, run_sequential
from tests import graphs
from tests.faults.test_schedules import KEYED, DriverDied, check_state, random_row
from tests.programs import COLUMNS, STEPS, build, exact

pytestmark = pytest.mark.faults

# make test-nightly asks for hundreds. Which of the bugs in `benchmarks/_planted_bugs.py` these schedules find,
# they find with one of the first four seeds.
SCHEDULES = int(os.environ.get("ANABRANCH_RESCALINGS", "30"))
BATCH = 15


class Restless:
    """A policy that wants another number of channels in every period."""

    name = "restless"

    def __init__(self, bounds, seed):
        self.bounds = bounds
        self._chance = random.Random(seed)

    def propose(self, observation: Observation) -> Proposal:
        return Proposal(self._chance.randint(1, self.bounds.channels_max), "restless", "just so")

    def rebound(self, bounds):
        self.bounds = bounds

    def to_dict(self):
        return {}

    def restore(self, state):
        pass


class RestlessOptions(ElasticOptions):
    def make_policy(self, bounds):
        return Restless(bounds, self.channels_initial)


def by_controller(chance: random.Random) -> ElasticOptions:
    """Options with which the controllers decide all the time, and differently each time."""
    return RestlessOptions(
        channels_max=7, channels_initial=chance.randint(1, 7), period_s=1e-9, period_epochs=1, epoch_target_s=1e-6
    )


class EveryEpoch:
    """Makes every epoch an adaptation period that says something; signals are tested elsewhere."""

    def __init__(self):
        self.period = 0

    def restore(self, period):
        self.period = period

    def handle(self, epoch, channels):
        self.period += 1
        return {
            region: Observation(self.period, count, throughput=1.0, congestion=1.0, busy_share=1.0)
            for region, count in channels.items()
        }


def start(stream, checkpoint, chance: random.Random, written, automatic: bool, times=()) -> ParallelRun:
    run = ParallelRun(
        stream,
        str(checkpoint),
        channels=by_controller(chance) if automatic else ElasticOptions(channels_max=7),
        seed=chance.randrange(1000),
        written=written,
        clocks_ms=times,
        balancing=BalancingSettings(bundles=chance.choice([0, 5, 16, 48])),
        cut_bytes=0,
    )
    if automatic:
        scaling = run.runner.adaptation.scaling
        every = EveryEpoch()
        every.restore(scaling._periods.period)
        scaling._periods = every
    return run


def run_rescaling(run: ParallelRun, chance: random.Random, automatic: bool, asked: dict[str, int] | None = None) -> int:
    """Run all epochs, asking for channels by hand in between; how many functions were replaced.

    What is asked for is noted in `asked`.
    """
    scaling = run.runner.adaptation.scaling
    for epoch in range(run.epochs):
        if scaling.regions and chance.random() < (0.2 if automatic else 0.8):
            region, channels = chance.choice(scaling.regions), chance.randint(1, 7)
            scaling.rescale(region, channels)
            if asked is not None:
                asked[region] = channels
        bundled = {name: each for name, each in run.runner.functions.items() if each.bundles}
        if bundled and chance.random() < 0.4:
            region = chance.choice(sorted(bundled))
            each = bundled[region]
            moved = {chance.randrange(each.bundles): chance.randrange(each.channels) for _ in range(3)}
            run.runner.adaptation.move_bundles(region, moved, "just so")
        run.run_epochs(epoch, epoch)
    run.run_epochs(run.epochs)
    return sum(len(progress.changes) for progress in run.progress)


def channels_of(run: ParallelRun) -> dict[str, int]:
    return {each.name: each.channels for each in run.runner.status()}


def routed_by(run: ParallelRun):
    """For the checker: the hash a stored key is routed by, which may be that of a part of it."""

    def routed(operator: str, hashed: int, key) -> int:
        hashes = np.array([hashed], dtype=np.uint64)
        values = [decode(key) if isinstance(key, bytes) else key]
        return int(key_routes(run.runner.program)[operator].route_hashes(hashes, lambda: values)[0])

    return routed


def rescaling(seed: int, checkpoint: Path, automatic: bool) -> tuple[int, int]:
    """Run one schedule and check it; how many things died, and how many functions were replaced."""
    chance = random.Random(seed)
    steps = chance.choices(sorted(STEPS), k=chance.randrange(3))
    steps.insert(chance.randrange(len(steps) + 1), chance.choice(KEYED))
    epochs = [[random_row(chance) for _ in range(chance.randrange(30))] for _ in range(chance.randrange(4, 14))]
    stream = build(from_epochs(epochs, COLUMNS), steps)
    deaths = replaced = 0

    def die_at(point: str, facts: dict) -> None:
        nonlocal deaths
        if chance.random() < (0.25 if point == "function replaced" else 0.04):
            deaths += 1
            raise TaskDied if point == "segment written" else DriverDied

    written: dict = {}
    asked: dict[str, int] = {}
    faults.install(die_at)
    try:
        while True:
            run = start(stream, checkpoint, chance, written, automatic)
            if not automatic:  # no controller has moved on from there
                begins = {region: count for region, count in channels_of(run).items() if region in asked}
                assert begins == asked, f"asked for by hand in rescaling({seed}) and forgotten by a crash"
            try:
                replaced += run_rescaling(run, chance, automatic, asked)
                break
            except (DriverDied, TaskDied):
                replaced += sum(len(progress.changes) for progress in run.progress)
    finally:
        faults.install(None)
    assert exact(run.output) == exact(stream.run_sequential()), f"output of rescaling({seed}): {steps}"
    check_state(stream, checkpoint, f"state of rescaling({seed}): {steps}")
    check_checkpoint(checkpoint, routed_by(run))
    return deaths, replaced


@pytest.mark.parametrize("automatic", [False, True], ids=["by hand", "by controller"])
@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_random_rescaling_with_crashes_changes_nothing(tmp_path, first, automatic):
    found = [rescaling(seed, tmp_path / str(seed), automatic) for seed in range(first, first + BATCH)]
    # Otherwise these schedules test too little.
    assert sum(deaths for deaths, _ in found) >= BATCH // 3
    assert sum(replaced for _, replaced in found) >= BATCH


RELAXED = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture]


@pytest.mark.parametrize("automatic", [False, True], ids=["by hand", "by controller"])
@settings(max_examples=40, deadline=None, suppress_health_check=RELAXED)
@given(case=graphs.cases(), seed=st.integers(0, 10**6), times=graphs.clocks)
def test_any_graph_rescaled_in_any_way_gives_the_sequential_output(tmp_path_factory, automatic, case, seed, times):
    recipe, inputs = case
    streams = graphs.build(recipe, inputs)
    chance = random.Random(seed)
    try:
        expected = run_sequential(streams, clocks_ms=times, epochs_max=20)
        run = start(streams, tmp_path_factory.mktemp("checkpoint"), chance, {}, automatic, times)
    except ProgramError as problem:
        assume("no source" not in str(problem))
        assume("still fed back" not in str(problem))
        raise
    run_rescaling(run, chance, automatic)
    for got, wanted in zip(run.outputs, expected, strict=True):
        assert exact(got) == exact(wanted)


def test_a_new_function_that_takes_effect_too_early_is_caught(tmp_path, monkeypatch):
    """The check can fail: a generation that keeps its number makes old owners' state look like the new ones'."""
    from anabranch.state.key_owners import KeyOwners, Region

    def replaced_in_place(self, region, function):
        known = self.regions[region]
        functions = {**self.functions, known.generation: function}
        return KeyOwners({**self.regions, region: Region(known.generation, known.routes)}, functions, self.newest)

    monkeypatch.setattr(KeyOwners, "replaced", replaced_in_place)
    with pytest.raises(AssertionError):
        for seed in range(20):
            rescaling(seed, tmp_path / str(seed), automatic=False)


ASKED = [[(n * k % 13, "ab"[k % 2], float(n + k)) for k in range(30)] for n in range(4)]


def asking(tmp_path, written=None, **options) -> ParallelRun:
    stream = build(from_epochs(ASKED, COLUMNS), ["running"])
    return ParallelRun(stream, str(tmp_path), channels=ElasticOptions(**options), written=written)


def left_in(tmp_path) -> bool:
    return (tmp_path / "anabranch" / "rescale.json").exists()


def test_a_rescaling_by_hand_that_no_epoch_has_followed_outlives_the_driver(tmp_path):
    run = asking(tmp_path, channels_max=7, channels_initial=2)
    run.run_epochs(0, 0)
    run.runner.rescale("Running", 5)
    (status,) = run.runner.status()
    assert (status.channels, status.asked) == (2, 5)
    again = asking(tmp_path, run._written, channels_max=7)
    (status,) = again.runner.status()
    assert (status.channels, status.asked) == (5, None)
    assert left_in(tmp_path), "no epoch has followed yet"
    again.run_epochs(0)
    assert [progress.channels for progress in again.progress if not progress.skipped] == [{"Running": 5}] * 3
    assert not left_in(tmp_path)
    assert exact(again.output) == exact(build(from_epochs(ASKED, COLUMNS), ["running"]).run_sequential())


@pytest.mark.parametrize("point", ["function replaced", "epoch begun", "job done", "sink written", "manifest written"])
def test_a_rescaling_by_hand_outlives_a_crash_before_it_is_in_a_manifest(tmp_path, point):
    run = asking(tmp_path, channels_max=7, channels_initial=2)
    run.run_epochs(0, 0)
    run.runner.rescale("Running", 5)
    dies_in = 1 if point == "function replaced" else 2

    def die_at(reached: str, facts: dict) -> None:
        if reached == point and facts["epoch"] == dies_in:
            raise DriverDied

    faults.install(die_at)
    try:
        with pytest.raises(DriverDied):
            run.run_epochs(1)
    finally:
        faults.install(None)
    again = asking(tmp_path, run._written, channels_max=7)
    assert channels_of(again) == {"Running": 5}
    again.run_epochs(0)
    assert not left_in(tmp_path)
    assert exact(again.output) == exact(build(from_epochs(ASKED, COLUMNS), ["running"]).run_sequential())


def test_what_is_asked_while_an_earlier_request_takes_effect_is_not_forgotten_with_it(tmp_path):
    run = asking(tmp_path, channels_max=7, channels_initial=2)
    scaling = run.runner.adaptation.scaling
    scaling.rescale("Running", 5)
    run.run_epochs(0, 0)  # taken
    scaling.rescale("Running", 3)
    asked_later = asking(tmp_path, run._written, channels_max=7)
    assert channels_of(asked_later) == {"Running": 3}


def test_the_options_of_a_restart_win_over_what_was_asked_before(tmp_path):
    run = asking(tmp_path, channels_max=7, channels_initial=2)
    run.run_epochs(0, 0)
    run.runner.rescale("Running", 5)
    assert channels_of(asking(tmp_path, run._written, channels_max=3)) == {"Running": 3}
    pinned = asking(tmp_path, run._written, channels=4)
    assert channels_of(pinned) == {"Running": 4}
    pinned.run_epochs(1, 1)
    assert not left_in(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 9, "channels": {}}', '{"format": 1, "channels": [3]}'])
def test_a_damaged_request_is_no_reason_not_to_run(tmp_path, text, caplog):
    (tmp_path / "anabranch").mkdir()
    (tmp_path / "anabranch" / "rescale.json").write_text(text)
    run = asking(tmp_path, channels_max=7, channels_initial=2)
    assert channels_of(run) == {"Running": 2} and "is ignored" in caplog.text
