"""A program's run in virtual time: the production's driver loop, in a world that adds time, hosts, load and trouble.

    load ─► Inputs ─ micro-batch ─► SwitchingRunner, EpochRunner, Adaptation … ─► sinks, store in memory ─► SimulatedRun
                                        │ job              ▲ reports
                                        ▼                  │
                                    RealTasks | FastTasks ─► JobTime: hosts, slots, costs

The world stands where Spark stands: it decides which files form a micro-batch and keeps that, calls the runner, runs
its jobs, tells it about slots and bookkeeping, and starts a new driver when the old one has died. Everything between
is the code that runs on Spark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch import faults
from anabranch.api.stream import Stream
from anabranch.compiler.compile import compiled
from anabranch.compiler.layout.source_spread import spread_names
from anabranch.control.decision import Decision
from anabranch.control.executor_planner import SlotNeed
from anabranch.control.source_spreading import SpreadSettings
from anabranch.engine.driver.committer import key_routes
from anabranch.engine.driver.epoch_progress import EpochProgress, ExecutorProgress
from anabranch.engine.driver.epoch_sizing import EpochSizing
from anabranch.engine.driver.program_description import describe_program
from anabranch.engine.driver.runner import EpochRunner
from anabranch.engine.driver.setup import Backend, EpochSettings, Observer, Storage
from anabranch.engine.driver.sink import Holder, TableSink
from anabranch.engine.driver.switching import Form, Forms, SwitchingRunner
from anabranch.engine.driver.waiting import Ready, SparkSurroundings
from anabranch.engine.worker.compact_task import CompactTask
from anabranch.engine.worker.tasks import Program
from anabranch.errors import AnabranchError, ProgramError
from anabranch.program.graph import Node, Source, named
from anabranch.program.options import Interval
from anabranch.program.origins import RowsOrigin
from anabranch.sim.fast_tasks import FastTasks
from anabranch.sim.inputs import FileSource, InputFile, Inputs
from anabranch.sim.job_time import JobTime
from anabranch.sim.ledger import Asked, Delivery, Ledger, Scaled, WatchedFiles
from anabranch.sim.load import full_at
from anabranch.sim.real_tasks import RealTasks
from anabranch.sim.simulated_executors import SimulatedExecutors
from anabranch.sim.simulated_run import SimulatedEpoch, SimulatedRun
from anabranch.sim.situation import Situation
from anabranch.sim.virtual_time import VirtualClock
from anabranch.state.checkpoint import Checkpoint
from anabranch.testing import TaskDied

_IN_TASKS = ("segment written",)
"""Crash points that tasks reach: there one attempt dies, and not the driver."""
_BACKLOG_FILES = 1000
_CRASHES_MAX = 100


class DriverDied(Exception):  # noqa: N818 - an event
    """The driver is gone: what it had in memory is lost."""


class Simulation:
    """One run of a program in a situation.

    Parameters
    ----------
    streams : Stream or sequence of Stream
        The outputs of the program.
    situation : Situation
    fast : bool, optional
        Work out what tasks do instead of running them; None: where the sources hold no rows.
    """

    def __init__(
        self, streams: Stream | Sequence[Stream], situation: Situation | None = None, fast: bool | None = None
    ) -> None:
        self.situation = situation if situation is not None else Situation()
        ends = [streams] if isinstance(streams, Stream) else list(streams)
        self.ends = [stream._node for stream in ends]
        written = Form(self.situation.split_hot_keys is True)
        self._plans = {written: compiled(self.ends, written.split_hot_keys)}
        operators = self._plans[written].operators
        self._sources = [each.node for each in operators if isinstance(each.node.logic, Source)]
        for node in self._sources:
            if node.logic.partitioned_by:  # type: ignore[union-attr]
                raise ProgramError(
                    f"simulate: {node.title} is partitioned by key already, and the simulator does not know which "
                    "files have which keys. Leave partitioned_by away: the simulation then has the first shuffle too"
                )
        held = all(_rows_of(node) for node in self._sources)
        self.is_fast = not held if fast is None else fast
        if not self.is_fast and not held:
            raise ProgramError("simulate: tasks can only run where sources hold rows (from_rows); say fast=True")
        if self.is_fast and self.situation.split_hot_keys:
            raise ProgramError("simulate: splitting hot keys needs tuples; give the sources rows, with from_rows")
        self.clock = VirtualClock()
        self.ledger = Ledger()
        self.files = WatchedFiles(self.ledger, self._before_write)
        chance = np.random.default_rng(self.situation.seed)
        self._executors = self._new_executors()
        time = JobTime(
            self.clock,
            self.situation.costs,
            lambda: self._executors.hosts,
            chance,
            self.situation.straggler_share,
            self.situation.straggler_factor,
            self.situation.noise,
        )
        self._tasks: RealTasks | FastTasks = (
            FastTasks(self.situation, time, chance) if self.is_fast else RealTasks(self._sources, time, chance)
        )
        self.inputs = Inputs([self._files_of(node) for node in self._sources], self.situation.files_per_epoch)
        self._sinks = [_DeliveringSink(self, at, stream) for at, stream in enumerate(ends)]
        self._reached: dict[str, int] = {}
        self._epochs: dict[int, SimulatedEpoch] = {}
        self._decisions: list[tuple[float, str, Decision]] = []
        self._crashes: list[tuple[float, str]] = []
        self._spark_progress: dict[str, Any] | None = None
        self._asked: set[int] = set()
        self.asked: list[Asked] = []
        self._started_s = 0.0
        self.runner: SwitchingRunner

    # -- the world's side -------------------------------------------------------------------------------------

    def run(self) -> SimulatedRun:
        """Run until the input ends, the time is over, or there have been enough epochs."""
        faults.install(self._reach)
        try:
            self._survive(self._start)
            while self._survive(self._step):
                pass
        finally:
            faults.install(None)
        epochs = tuple(self._epochs[number] for number in sorted(self._epochs))
        return SimulatedRun(
            self.clock.at_s, epochs, tuple(self._decisions), tuple(self._crashes), tuple(s.rows() for s in self._sinks)
        )

    def restarted(self) -> None:
        """A driver that starts once more and runs nothing: what it cleans is clean."""
        self._start()

    def _survive(self, act: Any) -> Any:
        """Do something; if the driver dies of it, start another one and do it again."""
        starting = False
        while True:
            try:
                if starting:
                    self._start()
                    starting = False
                    if act == self._start:
                        return None
                return act()
            except (DriverDied, TaskDied) as death:
                self._crashes.append((self.clock.at_s, str(death)))
                if len(self._crashes) > _CRASHES_MAX:
                    raise
                self.clock.pass_by(self.situation.costs.restart_s)
                starting = True

    def _step(self) -> bool:
        """An epoch, or waiting for the input of one; whether there may be more."""
        situation = self.situation
        number = len(self.inputs.batches) - 1
        if number < 0 or self._batch_done >= number:
            if len(self._epochs) >= situation.epochs_max or self.clock.at_s > situation.seconds:
                return False
            if self.inputs.next_s() > self.clock.at_s and self._timed_call(self.runner.drain):
                return True
            wanted_s = self.inputs.next_s()
            if situation.interval_s is not None:
                wanted_s = max(wanted_s, self._started_s + situation.interval_s)
            if math.isinf(wanted_s) or wanted_s > situation.seconds:
                return False
            self.clock.wait_until(wanted_s)
            self.inputs.form_batch(self.clock.at_s)
            number += 1
            batch = self.inputs.batches[number]
            self.ledger.batches[number] = {
                name: [row for file in _ordered(files) for row in file.content] for name, files in batch.items()
            }
        self._ask(number)
        self._started_s = self.clock.at_s
        self._timed_call(lambda: self.runner(self.inputs.batches[number], number))
        took_s = self.clock.at_s - self._started_s
        self.clock.pass_by(situation.costs.between_s)
        self._spark_progress = {
            "batchId": number,
            "numInputRows": sum(file.rows for files in self.inputs.batches[number].values() for file in files),
            "durationMs": {"addBatch": 1000 * took_s, "triggerExecution": 1000 * (took_s + situation.costs.between_s)},
            "sources": [{}],
        }
        return True

    @property
    def _batch_done(self) -> int:
        return self.ledger.manifests[-1]["facts"]["batch"] if self.ledger.manifests else -1

    def _timed_call(self, call: Any) -> Any:
        return call()

    def _ask(self, number: int) -> None:
        """What the user asks for by hand before a micro-batch; once, whatever happens to the driver then."""
        regions = [each.name for each in self.runner.status()]
        for at, asked in enumerate(self.situation.asked):
            if asked.epoch == number and at not in self._asked and regions:
                self._asked.add(at)
                region = regions[asked.region % len(regions)]
                self.runner.rescale(region, asked.channels)
                self.asked.append(Asked(region, number, asked.channels))

    def _reach(self, point: str, facts: Mapping[str, Any]) -> None:
        self._reached[point] = self._reached.get(point, 0) + 1
        if any(crash.point == point and crash.time == self._reached[point] for crash in self.situation.crashes):
            if point in _IN_TASKS:
                self._crashes.append((self.clock.at_s, point))
                raise TaskDied(point)
            raise DriverDied(point)

    def _before_write(self, name: str) -> None:
        if name.startswith("epochs/") and name.endswith(".json"):
            self.clock.pass_by(self.situation.costs.commit_s)

    def _files_of(self, source: Node) -> FileSource:
        """The files of a source: its rows as they were given, or counts where no tuples are run."""
        situation = self.situation

        def arriving() -> Iterator[InputFile]:
            moments = full_at(situation.load, situation.rows_per_file or 1000, situation.seconds)
            if self.is_fast:
                for number, at_s in enumerate(moments):
                    yield InputFile(source.name, number, at_s, situation.rows_per_file or 1000)
                return
            contents = _cut(source.logic.origin.epochs, situation.rows_per_file)  # type: ignore[union-attr]
            for number, (rows, at_s) in enumerate(zip(contents, _spaced(situation, contents), strict=False)):
                yield InputFile(source.name, number, at_s, len(rows), rows)

        return FileSource(source.name, arriving())

    # -- the driver's side --------------------------------------------------------------------------------------

    def _start(self) -> None:
        """What `writeStream.….start()` does."""
        situation = self.situation
        checkpoint = Checkpoint(self.files, situation.versions_kept)
        self._executors = self._new_executors()
        orders = {source.name: "files" for source in self._sources}
        auto = situation.split_hot_keys == "auto"

        def form_of(form: Form) -> Program:
            if form not in self._plans:
                self._plans[form] = compiled(self.ends, form.split_hot_keys, form.spread)
            return Program.of(self._plans[form], orders)

        spread_by = situation.spread_gain_s
        forms = Forms(
            form_of,
            "auto" if auto else "on" if situation.split_hot_keys else "off",
            {} if spread_by is None else spread_names(named(self.ends)),
            None if spread_by is None else SpreadSettings(spread_by),
        )
        program = forms.program(forms.first(checkpoint))
        checkpoint.bind(describe_program(program))
        self.routes = key_routes(program)
        if auto:
            self.routes |= key_routes(forms.program(Form(split_hot_keys=True)))
        sizing = None
        if situation.options.epoch_size == "auto" and situation.files_per_epoch is None:
            facts = checkpoint.latest().facts.adaptation.sizing
            sizing = EpochSizing(
                dict.fromkeys(self.inputs.names), situation.options.epoch_s(situation.interval_s), self._slots(), facts
            )
            self.inputs.replace(sizing.limits)
            sizing.begin(self.inputs)
        surroundings = _SimulatedSurroundings(self, sizing)
        epochs = situation.snapshot_epochs
        settings = EpochSettings(
            situation.options,
            situation.balancing,
            None if epochs is None else Interval(epochs),
        )
        backend = Backend(self._tasks, self._compact, self._sinks, surroundings, sizing, self.clock)
        observer = Observer(
            self._ended, lambda region, decision: self._decisions.append((self.clock.at_s, region, decision))
        )

        def runner_of(program: Program) -> EpochRunner:
            return EpochRunner(program, settings, Storage(checkpoint), backend, observer)

        self.runner = SwitchingRunner(runner_of, forms, checkpoint)

    def _slots(self) -> int:
        return self._executors.slots_now()

    def _new_executors(self) -> SimulatedExecutors:
        """Those that an application starts with."""
        situation = self.situation
        bounds = situation.options.executor_bounds
        return SimulatedExecutors(situation.hosts, bounds, situation.executors_absent_s, self.clock)

    def _compact(self, task: CompactTask, wanted: list[Any]) -> Future[list[Any]]:
        if isinstance(self._tasks, FastTasks):
            return self._tasks.compact(task, wanted)
        done: Future[list[Any]] = Future()
        try:
            done.set_result([task(each) for each in wanted])
        except (AnabranchError, TaskDied) as problem:  # as on Spark, where a compaction is a job of its own
            done.set_exception(problem)
        return done

    def _ended(self, progress: EpochProgress) -> None:
        if progress.skipped:
            return
        number = self._batch_done
        files = [file for each in self.inputs.batches[number].values() for file in each] if progress.rows_in else []
        rows = sum(file.rows for file in files)
        tasks: dict[str, list[float]] = {}
        for task in progress.stages:
            tasks.setdefault(task.name if task.kind == "channel" else "", []).append(task.seconds)
        self._epochs[progress.epoch] = SimulatedEpoch(
            number=progress.epoch,
            started_s=self._started_s,
            ended_s=self.clock.at_s,
            rows_in=progress.rows_in,
            rows_out=self._tasks.rows_out if isinstance(self._tasks, FastTasks) else progress.rows_out,
            files=len(files),
            channels=dict(progress.channels),
            tasks_s={name: tuple(each) for name, each in tasks.items() if name},
            source_s=max(tasks.get("", [0.0])),
            backlog_rows=self.inputs.backlog_rows(self.clock.at_s, _BACKLOG_FILES),
            latency_s=sum((self.clock.at_s - file.at_s) * file.rows for file in files) / rows if rows else 0.0,
            changes=tuple(progress.changes),
            slots=self._slots(),
            state_bytes=progress.state_bytes,
        )
        for change in progress.changes:
            self.ledger.scaled.append(Scaled(change.region, change.epoch, change.channels))

    def delivered(self, table: pa.Table) -> None:
        """Writing output takes time."""
        rows = self._tasks.rows_out if isinstance(self._tasks, FastTasks) else table.num_rows
        self.clock.pass_by(self.situation.costs.sink_s + rows * self.situation.costs.sink_tuple_s)


class _SimulatedSurroundings(SparkSurroundings):
    """What Spark would tell, told by the world."""

    def __init__(self, world: Simulation, sizing: EpochSizing | None) -> None:
        situation = world.situation
        limited = situation.files_per_epoch is not None
        super().__init__(
            lambda: world._executors.slots(),
            limited,
            situation.interval_s,
            sizing,
            slots_now=world._slots,
            clock=world.clock,
            last_progress=lambda: world._spark_progress,
        )
        self._world = world

    def settled(self, need: SlotNeed) -> ExecutorProgress | None:
        return self._world._executors.settled(need)

    def at_start(self, reads: bool = True) -> Ready:
        self._world.clock.pass_by(self._world.situation.costs.begin_s)
        return super().at_start(reads)


class _DeliveringSink(TableSink):
    """Takes the output of epochs, and notes it."""

    def __init__(self, world: Simulation, number: int, stream: Stream) -> None:
        self._world = world
        self._number = number
        self._schema = stream.schema
        self._tables: dict[int, pa.Table] = {}

    def check(self, holder: Holder) -> None:
        """Nothing to check."""

    def prepare(self, holder: Holder) -> None:
        """Nothing to prepare."""

    def write(self, table: pa.Table, epoch: int) -> None:
        self._world.delivered(table)
        self._tables[epoch] = table
        if not self._world.is_fast:
            rows = tuple(repr(row) for row in self._schema.rows(table.columns))
            self._world.ledger.deliveries.append(Delivery(self._number, epoch, rows))

    def rows(self) -> tuple[Any, ...]:
        """What epochs delivered, in order."""
        return tuple(row for epoch in sorted(self._tables) for row in self._schema.rows(self._tables[epoch].columns))


def _rows_of(source: Node) -> int:
    """How many rows a source holds."""
    origin = source.logic.origin if isinstance(source.logic, Source) else None
    return sum(map(len, origin.epochs)) if isinstance(origin, RowsOrigin) else 0


def _ordered(files: Sequence[InputFile]) -> list[InputFile]:
    """The files of a micro-batch in the order of their source: by time, then by name."""
    return sorted(files, key=lambda file: (file.written_ms, file.number))


def _cut(epochs: Sequence[Sequence[Any]], rows_per_file: int | None) -> list[Sequence[Any]]:
    """The rows of a source as files."""
    if rows_per_file is None:
        return list(epochs)
    rows = list(itertools.chain.from_iterable(epochs))
    return [rows[at : at + rows_per_file] for at in range(0, len(rows), rows_per_file)]


def _spaced(situation: Situation, contents: Sequence[Sequence[Any]]) -> Iterator[float]:
    """When files of different sizes are full."""
    sizes = [max(1, len(rows)) for rows in contents]
    mean = sum(sizes) / len(sizes) if sizes else 1.0
    yield from full_at(situation.load, mean, situation.seconds)
