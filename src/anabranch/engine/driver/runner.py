"""Runs epochs: one Spark job each, then the merge, the sink, the manifest.

    source ─ splitter ─┐ shuffle ┌─ channels ─┐ … ─ results ─► driver: merge ─► sink ─► manifest
                       └─────────┘            │
                                              └─ state segments ─► checkpoint

The order of the last three is what makes an epoch happen once. Segments and output files of an epoch
that has no manifest are leftovers: the epoch runs again from the state before it and writes the same
files in their place. An epoch that has a manifest is not run again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from anabranch.compiler.explaining.running import Running
from anabranch.compiler.layout.stages import Layout
from anabranch.control import Decision
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.clock import MACHINE_CLOCK, Clock
from anabranch.engine.driver.adaptation import Adaptation, EpochFacts
from anabranch.engine.driver.balancing import Balancing, BalancingSettings
from anabranch.engine.driver.epoch_progress import (
    DurationProgress,
    EpochDurations,
    EpochProgress,
    TaskProgress,
    anomalies_in,
)
from anabranch.engine.driver.epoch_sizing import EpochSizing
from anabranch.engine.driver.feedback import FeedbackStore, in_flight
from anabranch.engine.driver.results import Results
from anabranch.engine.driver.scaling import RegionStatus, Scaling
from anabranch.engine.driver.sink import Sink
from anabranch.engine.driver.slot_need import need_of
from anabranch.engine.driver.waiting import Surroundings
from anabranch.engine.job import Executor, Job
from anabranch.engine.reports import ChannelReport, SplitReport
from anabranch.engine.worker.output_files import Target, unordered
from anabranch.engine.worker.output_mergers import MergerTask, mergeable
from anabranch.engine.worker.splitters import FeedbackTask, SplitTask
from anabranch.engine.worker.tasks import LevelTask, MergeTask, Program
from anabranch.errors import AnabranchError, CheckpointError, InputError, MissingSegments
from anabranch.faults import reach
from anabranch.program.graph import Keyed
from anabranch.program.travelling import packed
from anabranch.state.backing import BackingStore
from anabranch.state.checkpoint import Checkpoint, Manifest
from anabranch.state.compaction import INLINE_ROWS, SnapshotInterval
from anabranch.state.files import MemoryFiles, cannot_write, storage_problem
from anabranch.state.layouts import Layouts
from anabranch.state.lineage import (
    KeyRoute,
    LargeMerge,
    after_merge,
    files_of,
    large_merges,
    without_adopted,
    without_damaged,
    without_old_parts,
)
from anabranch.state.records import SegmentRecord
from anabranch.state.rescale_requests import RescaleRequests
from anabranch.state.store import StateVersion


class EpochRunner:
    """Runs epochs, one call each: the function given to foreachBatch."""

    def __init__(
        self,
        program: Program,
        execute: Executor,
        elastic: ElasticOptions,
        checkpoint: Checkpoint,
        state_root: str,
        shared: bool,
        sinks: Sequence[Sink],
        report: Callable[[EpochProgress], None],
        run_merges: Callable[[MergeTask, list[LargeMerge]], Future[list[SegmentRecord]]],
        snapshots: SnapshotInterval | None = None,
        clock: Callable[[], int] | None = None,
        mergers: int = 0,
        backing: BackingStore | None = None,
        surroundings: Surroundings | None = None,
        on_decision: Callable[[str, Decision], None] | None = None,
        balancing: BalancingSettings | None = None,
        sizing: EpochSizing | None = None,
        batch_digest: Callable[[int], str | None] = lambda number: None,
        machine_clock: Clock = MACHINE_CLOCK,
    ) -> None:
        self._batch_digest = batch_digest
        self._surroundings = surroundings if surroundings is not None else Surroundings()
        self._program = program
        self._execute = execute
        self._checkpoint = checkpoint
        self._feedback = FeedbackStore(program, checkpoint)
        self._state_root = state_root
        self._shared = shared
        self._backing = None if shared else backing  # where files are shared nothing has to travel
        self._run_merges = run_merges
        self._snapshots = snapshots
        self._machine_clock = machine_clock
        self._clock = clock if clock is not None else lambda: int(machine_clock.now_s() * 1000)
        self._merging: Future[list[SegmentRecord]] | None = None
        self._busy: list[str] = []
        self._sinks = list(sinks)
        self._mergers = mergers
        self._source_tasks: int | None = None  # in the last epoch
        self._targets = self._file_targets(mergeable) if mergers else {}
        self._direct = self._file_targets(unordered)
        self._report = report
        self._lock = threading.Lock()
        self._pickled = packed(program, [step.node for step in program.layout.steps])
        self._digest = hashlib.sha256(self._pickled).hexdigest()
        keyed = {node.name: node.logic for _, node in program.layout.stateful() if isinstance(node.logic, Keyed)}
        self._fields = {name: {f.name: f.initial() for f in logic.fields} for name, logic in keyed.items()}
        self._transient = frozenset(name for name, logic in keyed.items() if logic.transient)
        latest = checkpoint.latest()
        durable = {
            operator: [record for record in records if not record.transient]
            for operator, records in latest.segments.items()
        }
        self._manifest = Manifest(latest.epoch, durable, latest.facts)
        checkpoint.clean()
        self._keys = key_routes(program)
        # A stage that is entered through a shuffle is a region; it bears the name of the operator at its entry.
        self._regions = {stage.number: stage.name for stage in program.layout.stages if stage.kind != "source"}
        stages = {name: program.layout.stages[number] for number, name in self._regions.items()}
        before = Layouts.from_facts(latest.facts)
        slots = self._surroundings.slots_now()
        known = {name: before.function(name).channels for name in before.regions}
        self._requests = RescaleRequests(checkpoint.files, checkpoint.query or "")
        known.update(self._requests.taken)  # asked for by hand, and no epoch has followed
        channels = {
            name: elastic.beginning(slots, known.get(name)) for name, stage in stages.items() if stage.kind != "single"
        }
        self._layouts = before.started(
            {name: stage.routes for name, stage in stages.items()}, {name: channels.get(name, 1) for name in stages}
        )
        self._levels = {name: stage.depth for name, stage in stages.items()}
        around = self._surroundings
        scaling = Scaling(channels, elastic, around.slots, on_decision, self._requests, around.slots_now)
        self.adaptation = Adaptation(scaling, Balancing(program.layout, balancing), sizing)
        self.adaptation.restore(latest.facts.get("adaptation", {}), self._layouts)
        self.failure: AnabranchError | None = None

    @property
    def epochs_done(self) -> int:
        """How many epochs are committed."""
        return self._manifest.epoch + 1

    @property
    def in_flight(self) -> int:
        """How many tuples were fed back and wait for the next epoch."""
        return in_flight(self._manifest.facts)

    def __call__(self, batch: Any, number: int) -> None:
        """Run Spark's micro-batch with this number."""
        with self._lock:
            try:
                self._run_batch(batch, number)
            except AnabranchError as error:
                self.failure = error
                raise

    def drain(self) -> bool:
        """Run an epoch without input, if tuples that were fed back wait; whether one was run.

        An epoch that began with input and was cut off must have that input again, which only Spark has.
        """
        with self._lock:
            began = self._checkpoint.begun(self._manifest.epoch + 1)
            if not self.in_flight or (began is not None and not began.get("drain")):
                return False
            try:
                self._run_epoch(None, self._manifest.facts.get("batch", self._manifest.epoch))
            except AnabranchError as error:
                self.failure = error
                raise
            return True

    def _file_targets(self, suits: Callable[[Layout, int], bool]) -> dict[int, Target]:
        """The outputs that tasks write: those whose sink takes files, and that suit these tasks."""
        found = {number: sink.target() for number, sink in enumerate(self._sinks)}
        layout = self._program.layout
        return {at: target for at, target in found.items() if target is not None and suits(layout, at)}

    @property
    def regions(self) -> list[RegionStatus]:
        """All stages that are entered through a shuffle; those of one channel for ever are pinned to it."""
        elastic = {each.name: each for each in self.adaptation.scaling.status()}
        return [elastic.get(name) or RegionStatus(name, 1, 1, 1, True) for name in self._regions.values()]

    def running(self) -> Running:
        """What is decided about the layout now."""
        channels = {each.name: each.channels for each in self.regions}
        merged = frozenset(self._targets)
        mergers, direct = self._mergers if merged else 0, frozenset(self._direct)
        return Running(self._program.layout, channels, self._source_tasks, mergers, merged, direct)

    def _channels_now(self) -> dict[str, int]:
        return {region: self._layouts.function(region).channels for region in self._regions.values()}

    def _run_batch(self, batch: Any, number: int) -> None:
        committed = self._manifest.facts.get("batch", self._manifest.epoch)
        if number <= committed:
            self._check_replayed(number, committed)
            self._report(EpochProgress(number, 0, 0, self._channels_now(), DurationProgress(), skipped=True))
            return
        if number != committed + 1:
            found = "".join(f"\n{each}" for each in self._checkpoint.damage)
            raise CheckpointError(
                f"the checkpoint {self._checkpoint.files.root} ends with batch {committed}, but Spark continues with "
                f"batch {number}: part of the checkpoint was deleted or replaced. Restore it, or start anew with "
                f"another checkpointLocation and output path.{found}"
            )
        began = self._checkpoint.begun(self._manifest.epoch + 1)
        if began is not None and began.get("drain"):
            # Cut off between its output and its manifest, perhaps: it must be the same epoch again.
            self._run_epoch(None, committed)
        self._run_epoch(batch, number)

    def _check_replayed(self, number: int, committed: int) -> None:
        """Pass over a batch only if it is the one that was committed under its number.

        Spark's log may have been lost, or be an older copy: it then gives the numbers again, and to other input.
        """
        now, before = self._batch_digest(number), self._manifest.facts.get("batch_digest")
        if number != committed and now is not None:
            before = self._checkpoint.batch_digest(number)
        if now != before:
            raise CheckpointError(
                f"Spark runs batch {number}, which the checkpoint {self._checkpoint.files.root} has as committed (its "
                f"last is {committed}), but with other input than it had: offsets, commits or sources beside it were "
                "deleted or replaced by older copies. Restore them, or start anew with another checkpointLocation "
                "and output path."
            )

    def _run_epoch(self, batch: Any, number: int) -> None:
        passing_s = self._machine_clock.passing_s
        started, started_ms = passing_s(), self._machine_clock.now_s() * 1000
        ready = self._surroundings.at_start(batch is not None)
        epoch = self._manifest.epoch + 1
        time_ms = max(self._clock(), self._manifest.facts.get("clock_ms", 0))
        clock_ms = self._checkpoint.begin(epoch, time_ms, drain=batch is None)
        begun = passing_s()
        reach("epoch begun", epoch=epoch)
        results = self._job(batch, epoch, clock_ms)
        ran = passing_s()
        reach("job done", epoch=epoch)
        tables = results.tables()
        merged = passing_s()
        self._checkpoint.owner.check()
        reach("sink checked", epoch=epoch)
        outputs = [table for at, table in enumerate(tables) if not self._program.layout.exits[at].loop]
        files = [file for report in results.reports for file in report.files]
        for at, (sink, table) in enumerate(zip(self._sinks, outputs, strict=True)):
            if at in self._targets or at in self._direct:
                mine = sorted((file.stage, file.number, file.name) for file in files if file.exit == at)
                sink.publish([name for *_, name in mine], epoch)
            else:
                sink.write(table, epoch)
        written = passing_s()
        reach("sink written", epoch=epoch)
        channel_reports = [report for report in results.reports if isinstance(report, ChannelReport)]
        records = [record for report in channel_reports for record in report.segments]
        damaged = [name for report in channel_reports for name in report.damaged]
        facts = {
            "batch": number,
            "batch_digest": self._manifest.facts.get("batch_digest") if batch is None else self._batch_digest(number),
            "clock_ms": clock_ms,
            "feedback": self._feedback.keep(epoch, tables),
            "adaptation": self.adaptation.to_facts(),
        }
        self._commit(epoch, facts, records, damaged)
        finished = passing_s()
        reach("manifest written", epoch=epoch)
        durations = EpochDurations.between(started, begun, ran, merged, written, finished)
        splitters = [report for report in results.reports if isinstance(report, SplitReport)]
        rows_in, self._source_tasks = sum(report.rows_in for report in splitters), len(splitters)
        channels = self._channels_now()
        seen = EpochFacts(
            epoch,
            started,
            durations,
            rows_in,
            results.reports,
            self._levels,
            ready_rows=ready.rows_of(rows_in),
            waited_s=ready.waited_s(started_ms, results.reports),
            bookkeeping_s=ready.bookkeeping_s,
            interval_s=self._surroundings.interval_s,
            taken_files=ready.taken_files,
        )
        self._layouts, changes = self.adaptation.after(seen, self._layouts)
        sizing = self.adaptation.sizing
        if changes:
            reach("function replaced", epoch=epoch)
        need = need_of(seen, channels, self._channels_now(), keeps_hosts=bool(self._transient))
        self._report(
            EpochProgress(
                epoch=epoch,
                rows_in=rows_in,
                rows_out=sum(table.num_rows for table in outputs) + sum(file.rows for file in files),
                channels=channels,
                changes=changes,
                duration_ms=DurationProgress.of(durations),
                stages=[TaskProgress.of(report) for report in results.reports],
                state_rows=sum(record.rows for record in records if not record.parts),
                state_bytes=sum(record.bytes for record in records),
                in_flight=self.in_flight,
                anomalies=anomalies_in(results.reports),
                hot_keys=self.adaptation.balancing.split_because,
                epoch_files={} if sizing is None else sizing.shown(ready.taken_files),
                epoch_size="" if sizing is None else sizing.reason,
                executors=self._surroundings.settled(need),
            )
        )
        self._merge_beside(epoch + 1, clock_ms)

    def _job(self, batch: Any, epoch: int, clock_ms: int) -> Results:
        layout = self._program.layout
        functions = {number: self._layouts.function(region) for number, region in self._regions.items()}
        splits = self.adaptation.balancing.splits()
        common = (self._pickled, self._digest, epoch, clock_ms, functions, splits, self._direct)
        state = self._version(epoch, clock_ms)
        fed_back = self._feedback.pieces(self._manifest.facts)
        while True:
            merged = (self._mergers, frozenset(self._targets))
            levels = [LevelTask(*common, level, state, *merged) for level in range(1, layout.depth + 1)]
            merger = MergerTask(*common, self._targets, self._mergers) if self._targets else None
            job = Job(SplitTask(*common), FeedbackTask(*common), fed_back, levels, merger)
            try:
                return Results(self._execute(batch, job), layout)
            except MissingSegments as missing:
                # Each time round more is supplied, so this ends.
                supply = {name: self._supply(name) for name in missing.names if name not in state.supplied}
                if not supply:
                    raise CheckpointError(f"tasks cannot read state segments: {', '.join(missing.names)}") from None
                state = dataclasses.replace(state, supplied={**state.supplied, **supply})
            except AnabranchError:
                raise
            except Exception as problem:
                raise self._explained(problem, epoch) from problem

    def _version(self, epoch: int, clock_ms: int) -> StateVersion:
        segments = self._manifest.segments
        busy = frozenset(self._busy if self._merging is not None else ())
        return StateVersion(
            self._state_root,
            self._shared,
            epoch,
            clock_ms,
            self._layouts.by_operator(),
            self._keys,
            self._fields,
            segments,
            merging=busy,
            transient=self._transient,
            backing=self._backing,
            durable=self._checkpoint.files.durable,
            memory=self._checkpoint.files if isinstance(self._checkpoint.files, MemoryFiles) else None,
        )

    def _supply(self, name: str) -> bytes:
        data = self._checkpoint.files.read(f"state/{name}")
        if data is None:
            raise CheckpointError(f"the state segment {self._state_root}/{name} is missing from the checkpoint")
        return data

    def _explained(self, problem: Exception, epoch: int) -> Exception:
        """Errors about storage and unreadable input, with what to do; others as they are."""
        why = storage_problem(problem)
        if why:
            return cannot_write(f"what epoch {epoch} wrote", why)
        text = str(problem)
        marks = ("FAILED_READ_FILE", "MALFORMED_RECORD", "MALFORMED_CSV", "CANNOT_READ", "Malformed records")
        if any(mark in text for mark in marks):
            first = next((line for line in text.splitlines() if any(mark in line for mark in marks)), text)
            titles = ", ".join(source.title for source in self._program.inputs)
            return InputError(
                f"source {titles}, epoch {epoch}: Spark cannot read a row of the input. The epoch "
                f"failed and nothing of it was written.\n{first.strip()[:1000]}"
            )
        return problem

    def _commit(self, epoch: int, facts: Mapping[str, Any], records: list[SegmentRecord], damaged: list[str]) -> None:
        segments = {operator: list(known) for operator, known in self._manifest.segments.items()}
        for record in [*records, *self._merged_beside()]:
            if record.data is not None:
                self._checkpoint.files.write(f"state/{record.name}", record.data)
                record = dataclasses.replace(record, data=None)
            known = segments.setdefault(record.operator, [])
            segments[record.operator] = after_merge(known, record) if record.parts else [record, *known]
        layouts = self._layouts.by_operator()
        for operator, known in segments.items():
            whole = without_old_parts(without_damaged(known, damaged), epoch - self._checkpoint.kept)
            key = self._keys.get(operator)
            # State of an operator that the program does not have any more is kept as it is.
            segments[operator] = whole if key is None else without_adopted(whole, layouts[operator], key.route)
        self._layouts = self._layouts.pruned(segments)
        manifest = Manifest(epoch, segments, {**self._layouts.to_facts(), **facts})
        self._checkpoint.commit(manifest)
        self._manifest = manifest
        self._requests.committed()
        if self._backing is not None:
            self._backing.release(files_of(segments))

    # -- merging segments beside the epochs -------------------------------------------------------------

    def _merge_beside(self, epoch: int, clock_ms: int) -> None:
        """Start the merges that are too large to be made by the channels, unless some are under way."""
        if self._merging is not None:
            return
        due = self._snapshots is not None and self._snapshots.due(self._manifest.epoch, clock_ms)
        layouts = self._layouts.by_operator()
        wanted = large_merges(self._manifest.segments, layouts, self._keys, INLINE_ROWS, everything=due)
        if wanted:
            version = self._version(epoch, clock_ms)
            self._busy = [record.name for _, _, records in wanted for record in records]
            self._merging = self._run_merges(MergeTask(version), wanted)

    def _merged_beside(self) -> list[SegmentRecord]:
        """The records of merges that are done."""
        if self._merging is None or not self._merging.done():
            return []
        merging, self._merging = self._merging, None
        try:
            return list(merging.result())
        except Exception:  # a merge is never needed; the next one reads the same segments and says what is wrong
            return []


def key_routes(program: Program) -> dict[str, KeyRoute]:
    """The keys of the program's operators with state."""
    return {
        node.name: KeyRoute(
            node.key, tuple(node.inputs[0].schema.type_of(name) for name in node.key), stage.routes[node.name]
        )
        for stage, node in program.layout.stateful()
    }


def describe_program(program: Program) -> dict[str, Any]:
    """What of a program its checkpoint depends on: not its code, but its operators, keys, state and types."""
    operators = {}
    for step in program.layout.steps:
        node = step.node
        operators[node.name] = {
            "name": node.name,
            "kind": node.kind,
            "key": list(node.key),
            "key_types": [str(node.inputs[0].schema.type_of(name)) for name in node.key],
            "state": [field.name for field in node.logic.fields] if isinstance(node.logic, Keyed) else [],
            "input": [str(each.schema) for each in node.inputs],
            "output": str(node.schema),
        }
    return {"operators": list(operators.values())}
