"""The tasks of an epoch, made and run: one job, again with more segments if a host lacks some."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

from anabranch.compiler.explaining.running import RunningQuery
from anabranch.compiler.layout.partitioned_source import has_spared_shuffle
from anabranch.compiler.layout.stages import Layout
from anabranch.engine.driver.job_failures import explained
from anabranch.engine.driver.output_ways import NONE, OutputWays, Ways
from anabranch.engine.driver.results import Results
from anabranch.engine.driver.setup import Backend, EpochSettings, Storage
from anabranch.engine.job import Job
from anabranch.engine.table_versions import TableVersion
from anabranch.engine.thread_settings import ThreadSettings
from anabranch.engine.worker.advances import EventTimes
from anabranch.engine.worker.output_mergers import MergerTask
from anabranch.engine.worker.retracing import with_all_order
from anabranch.engine.worker.sampling import Sampling
from anabranch.engine.worker.splitters import FeedbackTask, SplitTask
from anabranch.engine.worker.tasks import ChannelTask, Program
from anabranch.errors import (
    AnabranchError,
    CheckpointError,
    MissingSegments,
    OperatorError,
    OutputTooLarge,
    ProgramError,
    StateError,
)
from anabranch.operators.hot_key_parts import HotKeyParts
from anabranch.partitioning.function import PartitioningFunction
from anabranch.program.travelling import packed
from anabranch.state.store import StateVersion


@dataclasses.dataclass(frozen=True)
class _Packed:
    """A program as tasks carry it."""

    layout: Layout
    program: bytes
    digest: str

    @classmethod
    def of(cls, program: Program, settings: ThreadSettings) -> _Packed:
        data = packed(program, [step.node for step in program.layout.steps], settings)
        return cls(program.layout, data, hashlib.sha256(data).hexdigest())


class EpochJobs:
    """Makes and runs the jobs of a program's epochs."""

    def __init__(self, program: Program, backend: Backend, storage: Storage, settings: EpochSettings) -> None:
        self._program = program
        self._backend = backend
        self._storage = storage
        self._watch = settings.watch
        self._columns = settings.columns
        self._ways = OutputWays(program.layout, backend.sinks, settings.mergers)
        self._thread = settings.thread
        self._packed = _Packed.of(program, self._thread)
        self._retracing: _Packed | None = None  # made when it is needed

    @property
    def shuffled_because(self) -> str:
        """Why the last epoch had a shuffle that it need not have: it had none."""
        return ""

    def running(self, channels: Mapping[str, int], source_tasks: int | None) -> RunningQuery:
        """What is decided about the layout, with the channels of now."""
        ways = self._ways
        return RunningQuery(
            self._program.layout,
            channels,
            source_tasks,
            ways.mergers(self._backend.surroundings.slots_now()),
            ways.merged,
            ways.direct,
            by_readers=ways.by_readers,
            through_driver=ways.through_driver(),
        )

    def run(
        self,
        batch: Any,
        state: StateVersion,
        fed_back: list[tuple[int, int, bytes]],
        functions: Mapping[int, PartitioningFunction],
        parts: Mapping[str, HotKeyParts],
        times: EventTimes | None = None,
        sampling: Sampling | None = None,
        tables: tuple[TableVersion, ...] = (),
    ) -> Results:
        """Run an epoch's tasks over its input (None: only what was fed back).

        If user code fails, the error is that of one thread: the tasks run again to find it (`retracing`).
        """
        try:
            chosen = EventTimes() if times is None else times
            return self._run(batch, state, fed_back, functions, parts, chosen, tables, sampling=sampling)
        except (OperatorError, StateError, ProgramError) as error:  # user code may raise the library's own
            if has_spared_shuffle(self._packed.layout):
                raise  # with the shuffle there may be none, or another: `sparing` looks
            epoch = (state, fed_back, functions, parts, EventTimes() if times is None else times, tables)
            raise self._first_error(batch, epoch) or error from None

    def _first_error(self, batch: Any, epoch: tuple[Any, Any, Any, Any, EventTimes, Any]) -> AnabranchError | None:
        """The error that one thread would have met; None if it does not come again."""
        if self._retracing is None:
            program = dataclasses.replace(self._program, layout=with_all_order(self._program.layout))
            self._retracing = _Packed.of(program, self._thread)
        try:
            return self._run(batch, *epoch, retracing=self._retracing).first_error()
        except Exception:  # the one that is known says enough
            return None

    def _run(
        self,
        batch: Any,
        state: StateVersion,
        fed_back: list[tuple[int, int, bytes]],
        functions: Mapping[int, PartitioningFunction],
        parts: Mapping[str, HotKeyParts],
        times: EventTimes,
        tables: tuple[TableVersion, ...],
        retracing: _Packed | None = None,
        sampling: Sampling | None = None,
    ) -> Results:
        form = self._packed if retracing is None else retracing
        layout = form.layout
        told: dict[str, Any] = {"times": times, "retraces": retracing is not None, "tables": tables}
        if retracing is None:
            told |= {"sampling": sampling, "watch": self._watch, "columns": self._columns}
        while True:
            ways = self._ways_now(layout, functions) if retracing is None else NONE
            common = (form.program, form.digest, state.epoch, state.clock_ms, functions, parts, ways.direct)
            told["bounds"] = ways.bounds
            reading = {**told, "bounds": ways.reader_bounds}
            merged = (ways.mergers, frozenset(ways.merged))
            depths = [ChannelTask(*common, depth, state, *merged, **told) for depth in range(1, layout.depth + 1)]
            merger = MergerTask(*common, ways.merged, ways.mergers) if ways.merged else None
            kept = state if has_spared_shuffle(layout) else None
            split = SplitTask(*common, kept, pieces=ways.pieces, pieces_from=ways.pieces_from, **reading)
            job = Job(split, FeedbackTask(*common, **told), fed_back, depths, merger)
            try:
                rows = self._backend.execute(batch, job)
                results = Results(rows, layout, frozenset({*ways.merged, *ways.direct}))
                if retracing is None:
                    self._ways.after(results)
                return results
            except OutputTooLarge:
                self._ways.overflowed()  # then nothing is bounded any more
            except MissingSegments as missing:
                # Each time round more is supplied, so this ends.
                supply = {name: self._supply(name) for name in missing.names if name not in state.supplied}
                if not supply:
                    raise CheckpointError(f"tasks cannot read state segments: {', '.join(missing.names)}") from None
                state = dataclasses.replace(state, supplied={**state.supplied, **supply})
            except AnabranchError:
                raise
            except Exception as problem:
                titles = ", ".join(source.title for source in self._program.inputs)
                raise explained(problem, state.epoch, titles) from problem

    def _ways_now(self, layout: Layout, functions: Mapping[int, PartitioningFunction]) -> Ways:
        around = self._backend.surroundings
        tasks = dict.fromkeys(range(layout.depth + 1), 0)
        for stage in layout.stages:
            tasks[stage.depth] += functions[stage.number].channels if stage.is_region else 0
        return self._ways.of_epoch(around.slots_now(), max(tasks.values()), around.input_bytes)

    def _supply(self, name: str) -> bytes:
        data = self._storage.checkpoint.files.read(f"state/{name}")
        if data is None:
            raise CheckpointError(f"the state segment {self._storage.state_root}/{name} is missing from the checkpoint")
        return data
