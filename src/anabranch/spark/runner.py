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
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from anabranch.compiler.graph import Keyed
from anabranch.errors import AnabranchError, CheckpointError, InputError, MissingSegments, error_from_json
from anabranch.faults import reach
from anabranch.flow.packets import Positions, merge, piece_of, unpack
from anabranch.spark.sinks import Sink
from anabranch.spark.tasks import (
    DATA,
    FAILURE,
    PACKET_COLUMNS,
    PIECES,
    REPORT,
    RESULT_COLUMNS,
    ChannelTask,
    MergeTask,
    Program,
    SplitTask,
    result_schema,
)
from anabranch.state.checkpoint import Checkpoint, Manifest
from anabranch.state.compaction import INLINE_ROWS, SnapshotInterval
from anabranch.state.layouts import Layouts
from anabranch.state.lineage import (
    KeyRoute,
    after_merge,
    large_merges,
    without_adopted,
    without_damaged,
    without_old_parts,
)
from anabranch.state.store import StateVersion


@dataclasses.dataclass(frozen=True)
class EpochProgress:
    """What happened in an epoch.

    Attributes
    ----------
    epoch : int
        Its number.
    rows_in, rows_out : int
        Tuples read from the source and given to the sink.
    channels : int
        How many channels each keyed stage had.
    duration_ms : dict
        Where the time went, as the driver saw it: begin, job, merge, sink, commit, total.
    stages : list of dict
        Per stage and channel: rows in and out, seconds in all, seconds in operators, seconds in state.
    state_rows, state_bytes : int
        What was written to the checkpoint for this epoch.
    skipped : bool
        The epoch had been committed before and was not run again.
    """

    epoch: int
    rows_in: int
    rows_out: int
    channels: int
    duration_ms: dict[str, int]
    stages: list[dict[str, Any]]
    state_rows: int
    state_bytes: int
    skipped: bool = False


# Runs the tasks of an epoch over its input, and gives back the results of the last.
Executor = Callable[[Any, SplitTask, Sequence[ChannelTask]], pa.Table]


# If an executor is lost, Spark repeats the tasks whose output is lost with it, and compares checksums of what
# they write. Ours differ, because packets carry reports: times, names of segments. Spark then repeats all that
# came after; a job that has delivered some of its results already cannot be repeated so, and fails. Nothing of
# the epoch is committed at that point, so the job simply runs again. Switching the comparison off would do as
# well for programs that are functions of their input, and mix two runs of those that are not.
_NO_ROLLBACK = "cannot rollback the ResultStage"
_JOBS_MAX = 4  # as spark.task.maxFailures


class SparkExecutor:
    """The tasks as one Spark job. A shuffle places each packet exactly; what is sorted are packets, not rows."""

    def __init__(self, sort: Sequence[str]) -> None:
        self._sort = sort

    def __call__(self, batch: DataFrame, split: SplitTask, channels: Sequence[ChannelTask]) -> pa.Table:
        # This session is a clone that belongs to the query: the user's own is not touched.
        settings = batch.sparkSession.conf
        settings.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        # Adaptive execution plans the job anew at every shuffle, which for us never changes anything: 0.2 s an epoch.
        settings.set("spark.sql.adaptive.enabled", "false")
        for _ in range(_JOBS_MAX - 1):
            try:
                return self._results(batch, split, channels).toArrow()
            except Exception as problem:
                if _NO_ROLLBACK not in str(problem):
                    raise
        return self._results(batch, split, channels).toArrow()

    def _results(self, batch: DataFrame, split: SplitTask, channels: Sequence[ChannelTask]) -> DataFrame:
        if self._sort:
            batch = batch.orderBy(*self._sort)
        packets = batch.mapInArrow(split, PACKET_COLUMNS if channels else RESULT_COLUMNS)
        for task in channels:
            is_last = task is channels[-1]
            packets = (
                packets.repartitionById(task.count, "channel")
                .select("place", "payload")
                .sortWithinPartitions("place")
                .mapInArrow(task, RESULT_COLUMNS if is_last else PACKET_COLUMNS)
            )
        return packets


class SparkMerges:
    """Merges of segments as a Spark job of its own, beside the epochs."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-merge")

    def __call__(self, task: MergeTask, wanted: list[Any]) -> Future[list[Any]]:
        def run() -> list[Any]:
            return self._context.parallelize(wanted, len(wanted)).map(task).collect()

        return self._thread.submit(run)


class EpochRunner:
    """Runs epochs, one call each: the function given to foreachBatch."""

    def __init__(
        self,
        program: Program,
        execute: Executor,
        channels: int,
        checkpoint: Checkpoint,
        state_root: str,
        shared: bool,
        sink: Sink,
        report: Callable[[EpochProgress], None],
        run_merges: Callable[[MergeTask, list[Any]], Future[list[Any]]],
        snapshots: SnapshotInterval | None = None,
    ) -> None:
        self._program = program
        self._execute = execute
        self._channels = channels
        self._checkpoint = checkpoint
        self._state_root = state_root
        self._shared = shared
        self._run_merges = run_merges
        self._snapshots = snapshots
        self._merging: Future[list[Any]] | None = None
        self._busy: list[str] = []
        self._sink = sink
        self._report = report
        self._pickled = cloudpickle.dumps(program)
        self._digest = hashlib.sha256(self._pickled).hexdigest()
        nodes = [node for stage in program.stages for node in stage.nodes]
        keyed = {node.name: node.logic for node in nodes if isinstance(node.logic, Keyed)}
        self._fields = {name: {f.name: f.initial() for f in logic.fields} for name, logic in keyed.items()}
        self._transient = frozenset(name for name, logic in keyed.items() if logic.transient)
        latest = checkpoint.latest()
        durable = {
            operator: [record for record in records if not record.get("transient")]
            for operator, records in latest.segments.items()
        }
        self._manifest = Manifest(latest.epoch, durable, latest.facts)
        checkpoint.clean()
        self._keys = key_routes(program)
        # A stage that routes is a region; it bears the name of its first operator with state.
        self._regions = {number: next(iter(stage.routes)) for number, stage in enumerate(program.stages) if number}
        self._layouts = Layouts.from_facts(latest.facts).started(
            {region: program.stages[number].routes for number, region in self._regions.items()},
            {region: channels if program.stages[number].key else 1 for number, region in self._regions.items()},
        )
        self._merged = result_schema(program)
        self.failure: AnabranchError | None = None

    def __call__(self, batch: Any, epoch: int) -> None:
        try:
            self._run(batch, epoch)
        except AnabranchError as error:
            self.failure = error
            raise

    def _run(self, batch: Any, epoch: int) -> None:
        started = time.perf_counter()
        committed = self._manifest.epoch
        if epoch <= committed:
            self._report(EpochProgress(epoch, 0, 0, self._channels, {"total": 0}, [], 0, 0, skipped=True))
            return
        if epoch != committed + 1:
            raise CheckpointError(
                f"the checkpoint {self._checkpoint.files.root} ends with epoch {committed}, but Spark continues with "
                f"epoch {epoch}: part of the checkpoint was deleted or replaced. Restore it, or start anew with "
                "another checkpointLocation and output path."
            )
        clock_ms = self._checkpoint.begin(epoch, max(now_ms(), self._manifest.facts.get("clock_ms", 0)))
        begun = time.perf_counter()
        reach("epoch begun", epoch=epoch)
        results = self._job(batch, epoch, clock_ms)
        ran = time.perf_counter()
        reach("job done", epoch=epoch)
        table = merge(results.data, self._merged).drop_columns(["#position"])
        merged = time.perf_counter()
        self._sink.write(table, epoch)
        written = time.perf_counter()
        reach("sink written", epoch=epoch)
        records = [record for report in results.reports for record in report.get("segments", ())]
        damaged = [name for report in results.reports for name in report.get("damaged", ())]
        self._commit(epoch, clock_ms, records, damaged)
        finished = time.perf_counter()
        reach("manifest written", epoch=epoch)
        durations = {
            "begin": begun - started,
            "job": ran - begun,
            "merge": merged - ran,
            "sink": written - merged,
            "commit": finished - written,
            "total": finished - started,
        }
        self._report(
            EpochProgress(
                epoch=epoch,
                rows_in=sum(report["rows_in"] for report in results.reports if report["stage"] == 0),
                rows_out=table.num_rows,
                channels=self._channels,
                duration_ms={name: round(seconds * 1000) for name, seconds in durations.items()},
                stages=[
                    {k: v for k, v in report.items() if k not in ("segments", "damaged")} for report in results.reports
                ],
                state_rows=sum(record["rows"] for record in records if not record.get("parts")),
                state_bytes=sum(record["bytes"] for record in records),
            )
        )
        self._merge_beside(epoch + 1, clock_ms)

    def _job(self, batch: Any, epoch: int, clock_ms: int) -> Results:
        stages = self._program.stages
        routes = [None, *(self._layouts.function(region) for region in self._regions.values())]
        common = (self._pickled, self._digest, epoch, routes)
        state = self._version(epoch, clock_ms)
        while True:
            channels = [ChannelTask(*common, number, state) for number in range(1, len(stages))]
            try:
                return Results(self._execute(batch, SplitTask(*common), channels), self._merged)
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
        )

    def _supply(self, name: str) -> bytes:
        data = self._checkpoint.files.read(f"state/{name}")
        if data is None:
            raise CheckpointError(f"the state segment {self._state_root}/{name} is missing from the checkpoint")
        return data

    def _explained(self, problem: Exception, epoch: int) -> Exception:
        """Spark's errors about unreadable input, with the source named; others as they are."""
        text = str(problem)
        marks = ("FAILED_READ_FILE", "MALFORMED_RECORD", "MALFORMED_CSV", "CANNOT_READ", "Malformed records")
        if any(mark in text for mark in marks):
            first = next((line for line in text.splitlines() if any(mark in line for mark in marks)), text)
            return InputError(
                f"source {self._program.source.title}, epoch {epoch}: Spark cannot read a row of the input. The epoch "
                f"failed and nothing of it was written.\n{first.strip()[:1000]}"
            )
        return problem

    def _commit(self, epoch: int, clock_ms: int, records: list[dict[str, Any]], damaged: list[str]) -> None:
        segments = {operator: list(known) for operator, known in self._manifest.segments.items()}
        for record in [*records, *self._merged_beside()]:
            data = record.pop("data", None)
            if data is not None:
                self._checkpoint.files.write(f"state/{record['name']}", data)
            known = segments.setdefault(record["operator"], [])
            segments[record["operator"]] = after_merge(known, record) if record.get("parts") else [record, *known]
        layouts = self._layouts.by_operator()
        for operator, known in segments.items():
            whole = without_old_parts(without_damaged(known, damaged), epoch - self._checkpoint.kept)
            key = self._keys.get(operator)
            # State of an operator that the program does not have any more is kept as it is.
            segments[operator] = whole if key is None else without_adopted(whole, layouts[operator], key.route)
        self._layouts = self._layouts.pruned(segments)
        manifest = Manifest(epoch, segments, {**self._layouts.to_facts(), "clock_ms": clock_ms})
        self._checkpoint.commit(manifest)
        self._manifest = manifest

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
            self._busy = [record["name"] for _, _, records in wanted for record in records]
            self._merging = self._run_merges(MergeTask(version), wanted)

    def _merged_beside(self) -> list[dict[str, Any]]:
        """The records of merges that are done."""
        if self._merging is None or not self._merging.done():
            return []
        merging, self._merging = self._merging, None
        try:
            return list(merging.result())
        except Exception:  # a merge is never needed; the next one reads the same segments and says what is wrong
            return []


class Results:
    """What the tasks of an epoch gave back."""

    def __init__(self, rows: pa.Table, schema: pa.Schema) -> None:
        self.reports: list[dict[str, Any]] = []
        data: list[tuple[int, bytes, pa.RecordBatch]] = []
        failures: list[tuple[int, str]] = []
        positions = Positions()
        for batch in rows.to_batches():
            kinds, channels, places = (batch.column(at).to_pylist() for at in range(3))
            for kind, channel, place, payload in zip(kinds, channels, places, batch.column(3), strict=True):
                if kind == DATA:
                    data.append((channel, place, unpack(payload.as_buffer(), schema)))
                elif kind == REPORT:
                    self.reports.append(msgpack.unpackb(payload.as_buffer()))
                elif kind == PIECES:
                    positions.add(msgpack.unpackb(payload.as_buffer()))
                else:
                    assert kind == FAILURE
                    failures.append((channel, payload.as_py().decode()))
        if failures:
            errors = [error_from_json(text) for _, text in sorted(failures)]
            names = [name for error in errors if isinstance(error, MissingSegments) for name in error.names]
            raise MissingSegments(names) if names else errors[0]
        # A stable sort: the packets of a channel came in its order.
        data.sort(key=lambda item: item[:2])
        self.data = [
            pa.Table.from_batches([_placed(batch, positions.base(piece_of(place))) if place else batch])
            for _, place, batch in data
        ]


def _placed(batch: pa.RecordBatch, base: int) -> pa.RecordBatch:
    """Rows numbered within their piece, with their place in the epoch."""
    return batch.set_column(0, batch.schema.field(0), pc.add(batch.column(0), base))


def key_routes(program: Program) -> dict[str, KeyRoute]:
    """The keys of the program's keyed operators."""
    return {
        node.name: KeyRoute(
            node.key, tuple(node.inputs[0].schema.type_of(name) for name in node.key), stage.routes[node.name]
        )
        for stage in program.stages
        for node in stage.nodes
        if isinstance(node.logic, Keyed)
    }


def describe_program(program: Program) -> dict[str, Any]:
    """What of a program its checkpoint depends on: not its code, but its operators, keys, state and types."""
    operators = []
    for node in [program.source, *(node for stage in program.stages for node in stage.nodes)]:
        operators.append(
            {
                "name": node.name,
                "kind": node.kind,
                "key": list(node.key),
                "key_types": [str(node.inputs[0].schema.type_of(name)) for name in node.key],
                "state": [field.name for field in node.logic.fields] if isinstance(node.logic, Keyed) else [],
                "input": [str(each.schema) for each in node.inputs],
                "output": str(node.schema),
            }
        )
    return {"operators": operators}


def now_ms() -> int:
    """The time, as epochs record it."""
    return int(time.time() * 1000)
