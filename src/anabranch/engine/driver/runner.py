"""Runs epochs: the tasks, then the merge, the sink, the manifest.

    source ─ splitter ─┐ shuffle ┌─ channels ─┐ … ─ results ─► driver: merge ─► sink ─► manifest
                       └─────────┘            │
                                              └─ state segments ─► checkpoint

The order of the last three is what makes an epoch happen once. Segments and output files of an epoch
that has no manifest are leftovers: the epoch runs again from the state before it and writes the same
files in their place. An epoch that has a manifest is not run again.

The tasks are made in `epoch_jobs`, the manifest and the compaction of segments in `committer`, what changes between
two epochs in `adaptation`; here is the course of an epoch.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.compiler.explaining.running import RunningQuery
from anabranch.compiler.layout.partitioned_source import has_spared_shuffle, with_shuffle
from anabranch.control import Decision
from anabranch.engine.driver.adaptation import Adaptation, EpochFacts
from anabranch.engine.driver.balancing import Balancing
from anabranch.engine.driver.committer import Committer
from anabranch.engine.driver.epoch_jobs import EpochJobs
from anabranch.engine.driver.epoch_progress import (
    DurationProgress,
    EpochDurations,
    EpochProgress,
    TaskProgress,
    VerifyProgress,
    anomalies_in,
    elastic_in,
)
from anabranch.engine.driver.event_times import broadcasts_after, times_after, times_at_start
from anabranch.engine.driver.feedback import FeedbackStore
from anabranch.engine.driver.results import Results
from anabranch.engine.driver.scaling import RegionStatus, Scaling
from anabranch.engine.driver.setup import Backend, EpochSettings, Observer, Storage
from anabranch.engine.driver.slot_need import need_of
from anabranch.engine.driver.sparing import SparingJobs
from anabranch.engine.reports import ChannelReport, SplitReport
from anabranch.engine.table_versions import TableVersions
from anabranch.engine.verifying.verifier import Verifier
from anabranch.engine.worker.tasks import Program
from anabranch.errors import AnabranchError, CheckpointError, ProgramError
from anabranch.faults import reach
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.source_partitions import source_function
from anabranch.state.key_owners import KeyOwners
from anabranch.state.manifest_facts import ManifestFacts, TableFact
from anabranch.state.rescale_requests import RescaleRequests


class EpochRunner:
    """Runs epochs, one call each: the function given to foreachBatch."""

    def __init__(
        self, program: Program, settings: EpochSettings, storage: Storage, backend: Backend, observer: Observer
    ) -> None:
        self.program = program
        self._checkpoint = storage.checkpoint
        self._backend = backend
        self._observer = observer
        self._committer = Committer(program, storage, backend.compact, settings.snapshots)
        self._jobs = _jobs(program, backend, storage, settings)
        nodes = [step.node for step in program.layout.steps]
        self._tables = TableVersions(nodes, storage.checkpoint, storage.shared)
        self._feedback = FeedbackStore(program, storage.checkpoint)
        self._verifier = Verifier(program, settings.verify, storage.checkpoint.files, settings.thread)
        self._requests = RescaleRequests(storage.checkpoint.files, storage.checkpoint.query or "")
        self._lock = threading.Lock()
        self._source_tasks: int | None = None  # in the last epoch
        # A stage with channels is a region; it bears the name of the operator at its entry.
        self._regions = {stage.number: stage.name for stage in program.layout.stages if stage.is_region}
        # What its source is partitioned for has as many channels as that has partitions.
        self._partitioned = {stage.name: stage for stage in program.layout.stages if stage.partitions}
        self._owners, scaling = self._started(settings, storage.shared)
        balancing = Balancing(program.layout, settings.balancing, fetches=not storage.shared)
        self.adaptation = Adaptation(scaling, balancing, backend.sizing)
        self.adaptation.restore(self._committed.adaptation, self._owners)
        self.failure: AnabranchError | None = None
        self.last: EpochFacts | None = None
        """The last epoch that was run."""

    def _started(self, settings: EpochSettings, shared: bool) -> tuple[KeyOwners, Scaling]:
        """Who owns keys when the query starts, and what scales from there."""
        stages = {name: self.program.layout.stages[number] for number, name in self._regions.items()}
        before, around = self._committed.owners, self._backend.surroundings
        known = {name: before.function(name).channels for name in before.regions}
        known.update(self._requests.taken)  # asked for by hand, and no epoch has followed
        slots = around.slots_now()
        channels = {
            name: settings.elastic.beginning(slots, known.get(name))
            for name, stage in stages.items()
            if stage.kind != "single" and not stage.partitions
        }
        bundles = {name: before.function(name).bundles if name in before.regions else None for name in channels}
        most = {name: max(each, settings.elastic.bounds(slots).channels_max) for name, each in channels.items()}
        owners = before.started(
            {name: stage.routes for name, stage in stages.items()},
            {name: channels.get(name, stage.partitions or 1) for name, stage in stages.items()},
            {name: settings.balancing.bundles_of(bundles[name], shared, most[name]) for name in channels},
        )
        for name, stage in self._partitioned.items():
            owners = owners.replaced(name, source_function(stage.partitions))
        decided = self._observer.decided
        return owners, Scaling(channels, settings.elastic, around.slots, decided, self._requests, around.slots_now)

    # -- what there is --------------------------------------------------------------------------------------

    @property
    def _committed(self) -> ManifestFacts:
        """What the last manifest keeps."""
        return self._committer.manifest.facts

    @property
    def epochs_done(self) -> int:
        """How many epochs are committed."""
        return self._committer.manifest.epoch + 1

    @property
    def slots_now(self) -> int:
        """How many tasks run at once."""
        return self._backend.surroundings.slots_now()

    @property
    def in_flight(self) -> int:
        """How many tuples were fed back and wait for the next epoch."""
        return self._committed.in_flight

    @property
    def functions(self) -> dict[str, PartitioningFunction]:
        """Region → the function that says which channel owns which of its keys, from the next epoch on."""
        return {region: self._owners.function(region) for region in self._regions.values()}

    @property
    def is_compacting(self) -> bool:
        """Whether segments are being compacted beside the epochs."""
        return self._committer.is_compacting

    @property
    def regions(self) -> list[RegionStatus]:
        """All stages with channels; those whose number cannot change are pinned to it."""
        elastic = {each.name: each for each in self.status()}
        fixed = {name: stage.partitions for name, stage in self._partitioned.items()}
        counts = {name: fixed.get(name, 1) for name in self._regions.values()}
        return [elastic.get(name) or RegionStatus(name, each, each, each, True) for name, each in counts.items()]

    def status(self) -> list[RegionStatus]:
        """The regions whose number of channels can change, as they are now."""
        return self.adaptation.scaling.status()

    def rescale(self, region: str, channels: int) -> None:
        """Ask for a number of channels by hand, from the next epoch on. May be called from any thread."""
        if region in self._partitioned:
            stage = self._partitioned[region]
            raise ProgramError(
                f"rescale({region!r}): its source is partitioned by {', '.join(stage.partitioned_by)}, so it has as "
                f"many channels as that has partitions: {stage.partitions}. Partition the data anew, or leave "
                "partitioned_by away"
            )
        if region not in self.adaptation.scaling.regions and region in self._regions.values():
            raise ProgramError(
                f"rescale({region!r}): it runs on one channel, in the order of one thread; explain() says why"
            )
        self.adaptation.scaling.rescale(region, channels)

    def decisions(self, region: str) -> tuple[Decision, ...]:
        """The latest decisions about a region, oldest first."""
        return self.adaptation.scaling.decisions(region) + self.adaptation.plan_decisions(region)

    def running(self) -> RunningQuery:
        """What is decided about the layout now."""
        channels = {each.name: each.channels for each in self.regions}
        return self._jobs.running(channels, self._source_tasks)

    # -- epochs ---------------------------------------------------------------------------------------------

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
            began = self._checkpoint.begun(self.epochs_done)
            if not self.in_flight or (began is not None and not began.drain):
                return False
            try:
                self._run_epoch(None, self._committed.batch)
            except AnabranchError as error:
                self.failure = error
                raise
            return True

    def end(self) -> bool:
        """Run the epoch in which all time has come, because the input has ended; whether it was run now."""
        with self._lock:
            if self._committed.watermarks.ended:
                return False
            try:
                self._run_epoch(None, self._committed.batch, ending=True)
            except AnabranchError as error:
                self.failure = error
                raise
            return True

    def _run_batch(self, batch: Any, number: int) -> None:
        committed = self._committed.batch
        if number <= committed:
            self._check_replayed(number, committed)
            self._observer.ended(EpochProgress(number, 0, 0, self._channels_now(), DurationProgress(), skipped=True))
            return
        if number != committed + 1:
            found = "".join(f"\n{each}" for each in self._checkpoint.damage)
            raise CheckpointError(
                f"the checkpoint {self._checkpoint.files.root} ends with batch {committed}, but Spark continues with "
                f"batch {number}: part of the checkpoint was deleted or replaced. Restore it, or start anew with "
                f"another checkpointLocation and output path.{found}"
            )
        began = self._checkpoint.begun(self.epochs_done)
        if began is not None and began.drain:
            # Cut off between its output and its manifest, perhaps: it must be the same epoch again.
            self._run_epoch(None, committed, ending=began.ending)
        if self._committed.watermarks.ended:
            raise CheckpointError(
                f"there is more input, but that of the query with the checkpoint {self._checkpoint.files.root} has "
                "ended (option endOfInput='close'): its windows are closed, and all that comes is late. Start anew "
                "with another checkpointLocation and output path, over all input; or leave windows open: "
                "endOfInput='open'."
            )
        self._run_epoch(batch, number)

    def _check_replayed(self, number: int, committed: int) -> None:
        """Pass over a batch only if it is the one that was committed under its number.

        Spark's log may have been lost, or be an older copy: it then gives the numbers again, and to other input.
        """
        now, before = self._backend.batch_digest(number), self._committed.batch_digest
        if number != committed and now is not None:
            before = self._checkpoint.batch_digest(number)
        if now != before:
            raise CheckpointError(
                f"Spark runs batch {number}, which the checkpoint {self._checkpoint.files.root} has as committed (its "
                f"last is {committed}), but with other input than it had: offsets, commits or sources beside it were "
                "deleted or replaced by older copies. Restore them, or start anew with another checkpointLocation "
                "and output path."
            )

    def _run_epoch(self, batch: Any, number: int, ending: bool = False) -> None:
        """The course of an epoch: begin, job, merge, sink, manifest; then what changes before the next."""
        passing_s = self._backend.clock.passing_s
        started, started_ms = passing_s(), self._backend.clock.now_s() * 1000
        ready = self._backend.surroundings.at_start(batch is not None)
        epoch, fed_back = self.epochs_done, self.in_flight
        lost = self._backend.surroundings.restored()
        if lost is not None:
            self._owners = self.adaptation.restored(lost, epoch, self._owners)
        time_ms = max(self._backend.next_epoch_ms(), self._committed.clock_ms)
        recorded = self._checkpoint.begun(epoch)
        known = {} if recorded is None else recorded.tables
        looked_at = self._tables.looked_at(time_ms, self._committed.tables, known)
        began = self._checkpoint.begin(epoch, time_ms, batch is None, ending, looked_at)
        versions = {**looked_at, **began.tables}
        clock_ms = began.clock_ms
        begun = passing_s()
        reach("epoch begun", epoch=epoch)
        results = self._run_job(batch, epoch, clock_ms, ending, versions)
        ran = passing_s()
        reach("job done", epoch=epoch)
        verified = self._verified(results, epoch, clock_ms)
        tables = results.tables()
        merged = passing_s()
        self._checkpoint.owner.check()
        reach("sink checked", epoch=epoch)
        rows_out = self._write(results, tables, epoch)
        written = passing_s()
        reach("sink written", epoch=epoch)
        digest = self._committed.batch_digest if batch is None else self._backend.batch_digest(number)
        feedback = self._feedback.keep(epoch, tables)
        self._commit(
            results,
            epoch,
            ManifestFacts(
                number,
                clock_ms,
                self._owners,
                feedback,
                self.adaptation.to_facts(),
                digest,
                times_after(self.program.layout, self._committed.watermarks, clock_ms, results.reports, ending),
                broadcasts_after(self._committed.broadcasts, results.reports),
                versions,
            ),
        )
        committed = passing_s()
        reach("manifest written", epoch=epoch)
        durations = EpochDurations.between(started, begun, ran, merged, written, committed)
        splitters = [report for report in results.reports if isinstance(report, SplitReport)]
        rows_in, self._source_tasks = sum(report.rows_in for report in splitters), len(splitters)
        facts = EpochFacts(
            epoch,
            started,
            durations,
            rows_in,
            results.reports,
            {name: self.program.layout.stages[number].depth for number, name in self._regions.items()},
            ready_rows=ready.rows_of(rows_in),
            waited_s=ready.waited_s(started_ms, results.reports),
            bookkeeping_s=ready.bookkeeping_s,
            interval_s=self._backend.surroundings.interval_s,
            taken_files=ready.taken_files,
            fed_back=fed_back,
        )
        self._adapt(facts, rows_out, verified)
        self._committer.compact_beside(clock_ms, self._owners)
        self._backend.follow(self._committer.version(epoch + 1, clock_ms, self._owners))

    def _run_job(self, batch: Any, epoch: int, clock_ms: int, ending: bool, tables: Mapping[str, TableFact]) -> Results:
        functions = {number: self._owners.function(region) for number, region in self._regions.items()}
        state = self._committer.version(epoch, clock_ms, self._owners)
        fed_back = self._feedback.pieces(self._committed.feedback)
        times = times_at_start(self.program.layout, self._committed, clock_ms, ending)
        parts, sampling = self.adaptation.balancing.hot_key_parts(), self._verifier.sampling(epoch)
        return self._jobs.run(batch, state, fed_back, functions, parts, times, sampling, self._tables.versions(tables))

    def _verified(self, results: Results, epoch: int, clock_ms: int) -> VerifyProgress | None:
        """What was run again of the keys that the tasks took down; None: they took none."""
        if self._verifier.sampling(epoch) is None:
            return None
        found = self._verifier.check(results.samples, epoch, clock_ms, self.adaptation.balancing.hot_key_parts())
        return VerifyProgress(
            found.keys, found.tuples, found.differences, found.files, found.seconds, self._verifier.not_covered
        )

    def _write(self, results: Results, tables: Sequence[pa.Table], epoch: int) -> int:
        """Give the sinks their output; how many tuples it has."""
        outputs = [table for at, table in enumerate(tables) if not self.program.layout.exits[at].loop]
        files = [file for report in results.reports for file in report.files]
        for at, (sink, table) in enumerate(zip(self._backend.sinks, outputs, strict=True)):
            if at in results.written:
                mine = sorted((file for file in files if file.exit == at), key=lambda file: file.order)
                sink.publish([file.name for file in mine], epoch)
            else:
                sink.write(table, epoch)
        return sum(table.num_rows for table in outputs) + sum(file.rows for file in files)

    def _commit(self, results: Results, epoch: int, facts: ManifestFacts) -> None:
        channels = [report for report in results.reports if isinstance(report, ChannelReport)]
        records = [record for report in channels for record in report.segments]
        damaged = [name for report in channels for name in report.damaged]
        self._owners = self._committer.commit(epoch, facts, records, damaged)
        self._requests.committed()

    def _adapt(self, facts: EpochFacts, rows_out: int, verified: VerifyProgress | None) -> None:
        """What changes before the next epoch; and what is told of this one."""
        channels = self._channels_now()
        self.last = facts
        placement, plan = self._backend.surroundings.placed(facts.reports)
        if plan is not None:
            self.adaptation.take_plan(plan, facts.epoch, self._owners)
        self._owners, changes = self.adaptation.after(facts, self._owners)
        if changes:
            reach("function replaced", epoch=facts.epoch)
        keeps_hosts = bool(self._committer.transient)
        need = need_of(facts, channels, self._channels_now(), keeps_hosts)
        if plan is not None and plan.executors:
            need = dataclasses.replace(need, slots=self._backend.surroundings.slots_now() + plan.executors)
        executors = self._backend.surroundings.settled(need)
        sizing = self.adaptation.sizing
        reports = [report for report in facts.reports if isinstance(report, ChannelReport)]
        records = [record for report in reports for record in report.segments]
        self._observer.ended(
            EpochProgress(
                epoch=facts.epoch,
                rows_in=facts.rows_in,
                rows_out=rows_out,
                channels=channels,
                changes=changes,
                duration_ms=DurationProgress.of(facts.durations_s, facts.bookkeeping_s),
                stages=[TaskProgress.of(report) for report in facts.reports],
                state_rows=sum(record.rows for record in records if not record.parts),
                state_bytes=sum(record.bytes for record in records),
                fetched_bytes=sum(report.fetched_bytes for report in reports),
                in_flight=self.in_flight,
                anomalies=anomalies_in(facts.reports),
                elastic=elastic_in(facts.reports),
                hot_keys=self.adaptation.balancing.split_because,
                spread=self.adaptation.spread_because,
                shuffled=self._jobs.shuffled_because,
                read_by_spark=self._backend.surroundings.read_by_spark(),
                epoch_files={} if sizing is None else sizing.shown(facts.taken_files),
                epoch_size="" if sizing is None else sizing.reason,
                executors=executors,
                placement=placement,
                verify=verified,
            )
        )

    def _channels_now(self) -> dict[str, int]:
        return {region: function.channels for region, function in self.functions.items()}


def _jobs(program: Program, backend: Backend, storage: Storage, settings: EpochSettings) -> EpochJobs | SparingJobs:
    jobs = EpochJobs(program, backend, storage, settings)
    if not has_spared_shuffle(program.layout):
        return jobs
    shuffled = dataclasses.replace(program, layout=with_shuffle(program.layout))
    return SparingJobs(jobs, EpochJobs(shuffled, backend, storage, settings))
