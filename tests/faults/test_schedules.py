"""Random crashes at every point of an epoch, with other numbers of channels after each restart.

Each schedule is a seed: it chooses a program, data, and where the driver or a task dies. Whatever happens,
the output must be the sequential one, and the state in the checkpoint that of the sequential run. A failure
prints its seed; ``schedule(seed)`` replays it.
"""

import dataclasses
import os
import random
from pathlib import Path

import pytest

from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.engine.sequential import run_epochs
from anabranch.errors import EpochTaken
from anabranch.program.graph import Keyed, upstream
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun, TaskDied
from tests.programs import COLUMNS, STEPS, build, exact

pytestmark = pytest.mark.faults

KEYED = [name for name in STEPS if name not in ("filter", "halve", "rekey", "repeat", "nothing")]
# make test-nightly asks for thousands. Which of the bugs in `benchmarks/_planted_bugs.py` these schedules find,
# they find with one of the first dozen seeds.
SCHEDULES = int(os.environ.get("ANABRANCH_CRASHES", "80"))
BATCH = 40


class DriverDied(Exception):  # noqa: N818 - an event
    pass


def random_row(chance: random.Random) -> tuple:
    key = None if chance.random() < 0.05 else int(chance.paretovariate(0.7)) % 12
    name = chance.choice(["a", "b", "", None, "a longer name than eight bytes"])
    number = None if chance.random() < 0.1 else chance.choice([float(chance.randrange(-4, 9)), chance.uniform(-5, 5)])
    return key, name, number


def schedule(seed: int, checkpoint: Path) -> int:
    """Run one schedule and check it; how many times something died."""
    chance = random.Random(seed)
    steps = chance.choices(sorted(STEPS), k=chance.randrange(3))
    steps.insert(chance.randrange(len(steps) + 1), chance.choice(KEYED))
    epochs = [[random_row(chance) for _ in range(chance.randrange(30))] for _ in range(chance.randrange(3, 12))]
    stream = build(from_epochs(epochs, COLUMNS), steps)
    deaths = 0

    def die_at(point: str, facts: dict) -> None:
        nonlocal deaths
        if chance.random() < 0.08:
            deaths += 1
            raise TaskDied if point == "segment written" else DriverDied

    written: dict = {}
    faults.install(die_at)
    try:
        while True:
            run = ParallelRun(
                stream,
                str(checkpoint),
                channels=chance.choice([1, 2, 3, 5]),
                seed=chance.randrange(1000),
                written=written,
            )
            try:
                run.run_epochs()
                break
            except (DriverDied, TaskDied):
                continue
    finally:
        faults.install(None)
    assert exact(run.output) == exact(stream.run_sequential()), f"output of schedule({seed}): {steps}"
    check_state(stream, checkpoint, f"state of schedule({seed}): {steps}")
    return deaths


def check_state(stream, checkpoint: Path, message: str) -> None:
    sequential = run_epochs([stream._node])
    reader = CheckpointReader(LocalFiles(str(checkpoint / "anabranch")))
    for node in upstream(stream._node):
        if isinstance(node.logic, Keyed):
            initial = sequential.initial_state(node.name)
            expected = {repr(k): repr(v) for k, v in sequential.state(node.name).items() if repr(v) != repr(initial)}
            held = {repr(key): repr(tuple(state.values())) for key, state in reader.items(node.name)}
            held = {key: state for key, state in held.items() if state != repr(initial)}
            assert held == expected, f"{message}: {node.name}"


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_random_crashes_lose_nothing_and_repeat_nothing(tmp_path, first):
    deaths = sum(schedule(seed, tmp_path / str(seed)) for seed in range(first, first + BATCH))
    assert deaths >= BATCH // 4  # otherwise these schedules test too little


def test_a_runner_that_forgets_to_skip_committed_epochs_is_caught(tmp_path, monkeypatch):
    """The check can fail: state that is applied twice shows, unless the manifest that is there stops it before."""
    from anabranch.state.checkpoint import Manifest

    latest = ParallelRun.__init__.__globals__["Checkpoint"].latest

    def one_too_early(self):
        manifest = latest(self)
        if manifest.epoch <= 0:
            return manifest
        return Manifest(
            manifest.epoch - 1, manifest.segments, dataclasses.replace(manifest.facts, batch=manifest.epoch - 1)
        )

    monkeypatch.setattr(ParallelRun.__init__.__globals__["Checkpoint"], "latest", one_too_early)
    with pytest.raises((AssertionError, EpochTaken)):
        for seed in range(30):
            schedule(seed, tmp_path / str(seed))
