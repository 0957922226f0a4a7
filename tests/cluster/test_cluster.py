"""Queries on a real cluster, whose processes are killed in the middle of an epoch."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.engine.sequential import SequentialRun
from anabranch.program.graph import Keyed, upstream
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import LocalFiles
from anabranch.state.segment import Segment
from tests.cluster.applications import Application, StartedJob
from tests.cluster.gated_programs import HELD_KEY, build_gated
from tests.cluster.standalone import DRIVER_SECONDS_MAX, wait_for
from tests.programs import COLUMNS, exact

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

EPOCHS, FILES_PER_EPOCH, ROWS_PER_FILE = 3, 2, 400
HELD_EPOCH = 1


@dataclasses.dataclass(frozen=True)
class Job:
    """A program with its input, and everything it leaves behind."""

    directory: Path
    steps: list[str]
    rows: list[tuple[Any, ...]]

    @classmethod
    def create(cls, directory: Path, *steps: str) -> Job:
        for name in ("input", "gate"):
            (directory / name).mkdir()
        return cls(directory, list(steps), write_input(directory / "input"))

    def start(self, application: Application, channels: int | None = None) -> StartedJob:
        paths = {name: str(self.directory / name) for name in ("input", "checkpoint", "output", "gate")}
        return application.start({**paths, "steps": self.steps, "channels": channels})

    def wait_until_held(self, driver: StartedJob) -> int:
        """The Python worker that holds the marked tuple, in the middle of an epoch."""

        def look() -> list[Path]:
            found = list((self.directory / "gate").glob("reached-*"))
            assert found or driver.runs, f"the driver ended too early\n{driver.log_tail()}"
            return found

        reached = wait_for(look, "the marked tuple reaches the gate", DRIVER_SECONDS_MAX, driver.log_tail)
        assert self.checkpoint.latest().epoch == HELD_EPOCH - 1
        return int(reached[0].name.removeprefix("reached-"))

    def segments(self, operator: str, epoch: int) -> list[Path]:
        """What the tasks of an epoch saved of an operator's state, committed or not."""
        directory = self.directory / "checkpoint" / "anabranch" / "state"
        return list(directory.glob(f"{operator}/{epoch:012d}-*.segment"))

    def wait_until_saved(self, operator: str, driver: StartedJob) -> None:
        """Until a channel has saved an operator's state in the epoch that is held."""
        what = f"a channel saves the state of {operator}"
        wait_for(lambda: self.segments(operator, HELD_EPOCH), what, DRIVER_SECONDS_MAX, driver.log_tail)

    def release(self) -> None:
        (self.directory / "gate" / "released").touch()

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(LocalFiles(str(self.directory / "checkpoint" / "anabranch")))

    @property
    def executors_used(self) -> int:
        return len(list((self.directory / "gate").glob("executor-*")))

    def assert_exact(self) -> None:
        """Output and state are those of the sequential run."""
        self.release()
        stream = build_gated(ab.from_rows([], COLUMNS), self.steps, str(self.directory / "gate"))
        sequential = SequentialRun(stream._node)
        sequential.feed(self.rows)
        assert sequential.output
        assert exact(read_parts(self.directory / "output", stream.schema)) == exact(sequential.output)
        keyed = [node.name for node in upstream(stream._node) if isinstance(node.logic, Keyed)]
        assert read_state(self.checkpoint, EPOCHS) == {name: sequential.state(name) for name in keyed}


def write_input(directory: Path) -> list[tuple[Any, ...]]:
    """Files whose order is known; all their rows. One row, amid the files of one epoch, is marked by its key."""
    chance = random.Random(7)
    schema = ab.from_rows([], COLUMNS).schema
    everything = []
    for number in range(EPOCHS * FILES_PER_EPOCH):
        rows: list[tuple[Any, ...]] = [
            (
                chance.choice([1, 1, 1, 2, 4, 5, 7, None, chance.randrange(60)]),
                chance.choice(["a", "a", "b", "é", None, f"name-{chance.randrange(30)}"]),
                chance.choice([None, chance.uniform(-5, 5), chance.uniform(-5, 5)]),
            )
            for _ in range(ROWS_PER_FILE)
        ]
        if number == HELD_EPOCH * FILES_PER_EPOCH:
            rows[ROWS_PER_FILE // 2] = (HELD_KEY, "a", 1.5)
        path = directory / f"{number:03d}.parquet"
        pq.write_table(pa.table(schema.arrays(list(zip(*rows, strict=True))), schema=schema.arrow), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        everything += rows
    return everything


def read_parts(directory: Path, schema: ab.Schema) -> list[ab.Row]:
    parts = sorted(directory.glob("part-*"))
    return [row for part in parts for row in schema.rows(pq.read_table(part, schema=schema.arrow).columns)]


def read_state(checkpoint: Checkpoint, epochs: int) -> dict[str, dict[Any, tuple[Any, ...]]]:
    """The state after the last committed epoch: for each operator and key what the newest segment says.

    Written apart from the reader of the package, so that the two cannot be wrong together.
    """
    manifest = checkpoint.latest()
    assert manifest.epoch == epochs - 1
    found: dict[str, dict[Any, tuple[Any, ...]]] = {}
    for operator, records in manifest.segments.items():
        newest: dict[Any, tuple[Any, ...] | None] = {}
        for record in sorted(records, key=lambda record: -record.last):
            segment = Segment(f"{checkpoint.files.root}/state/{record.name}", record.checksum)
            dead = segment.values("dead") if segment.has_dead else [False] * len(segment)
            fields = zip(*(segment.values(f"field.{name}") for name in segment.fields), strict=True)
            for key, values, is_dead in zip(segment.values("key"), fields, dead, strict=True):
                newest.setdefault(key, None if is_dead else values)
        found[operator] = {key: values for key, values in newest.items() if values is not None}
    return found


def test_a_keyed_program_on_two_workers_delivers_the_sequential_output(application, tmp_path):
    job = Job.create(tmp_path, "gate", "running", "repeat", "history")
    job.release()
    job.start(application).wait_for_success()
    assert job.executors_used == 2
    job.assert_exact()


def test_an_executor_killed_while_it_reads_the_source_changes_nothing(application, standing_cluster, tmp_path):
    job = Job.create(tmp_path, "gate", "running", "repeat", "history")
    driver = job.start(application)
    standing_cluster.kill_executor_of(job.wait_until_held(driver))
    job.release()
    driver.wait_for_success()
    assert "Lost executor" in driver.log()
    job.assert_exact()


def test_an_executor_killed_after_another_delivered_its_part_of_the_output_changes_nothing(
    application, standing_cluster, tmp_path
):
    job = Job.create(tmp_path, "running", "repeat", "history", "gate")
    driver = job.start(application)
    holder = job.wait_until_held(driver)
    job.wait_until_saved("History", driver)  # by the other channel of the last stage, on the other executor
    standing_cluster.kill_executor_of(holder)
    job.release()
    driver.wait_for_success()
    assert "Lost executor" in driver.log()
    job.assert_exact()


def test_a_channel_that_saved_its_state_and_is_lost_before_the_epoch_ends_runs_again(
    application, standing_cluster, tmp_path
):
    job = Job.create(tmp_path, "running", "gate", "repeat", "history")
    driver = job.start(application)
    holder = job.wait_until_held(driver)
    job.wait_until_saved("Running", driver)  # by the other channel of the stage, on the other executor
    standing_cluster.kill_executor_beside(holder)
    job.release()
    driver.wait_for_success()
    assert "Lost executor" in driver.log()
    assert len(job.segments("Running", HELD_EPOCH)) > 2, "no channel ran again"
    job.assert_exact()


def test_a_worker_killed_amid_an_epoch_changes_nothing_while_another_remains(application, standing_cluster, tmp_path):
    job = Job.create(tmp_path, "running", "gate", "repeat", "history")
    driver = job.start(application)
    standing_cluster.kill_worker_of(job.wait_until_held(driver))
    job.release()
    driver.wait_for_success()
    assert len(standing_cluster.workers) == 1
    assert "Lost executor" in driver.log()
    job.assert_exact()


def test_a_driver_killed_amid_an_epoch_and_started_again_with_other_cores_changes_nothing(cluster, tmp_path):
    job = Job.create(tmp_path, "running", "gate", "repeat", "history")
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    driver = job.start(Application(cluster, folders[0], cores=2, stays=False), channels=2)
    job.wait_until_held(driver)
    driver.kill()
    job.release()  # now, so that tasks of the dead driver run on beside those of the next
    job.start(Application(cluster, folders[1], cores=1, stays=False), channels=3).wait_for_success()
    job.assert_exact()
