"""The tasks of an epoch, really run: production tasks, user code, real tuples; only their time is virtual.

    files ─► pieces, dealt to partitions ─► SplitTask ─┐ packets, in any order ┌─ ChannelTask … ─► rows for the driver
                                                       └───────────────────────┘
             reports of the tasks ─► what they took by the cost model ─► when and where they ran ─► reports

A report tells what a task did (tuples by operator, keys, bytes). How long that took is the cost model's to say, and
when, that of the hosts: so the report is written anew before the driver sees it. As on Spark, a task that dies is run
again, one whose host is lost runs again elsewhere, and one may run twice for nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from anabranch.compiler.layout.stages import Layout
from anabranch.engine.job import Job
from anabranch.engine.reports import ChannelReport, Report, SplitReport, from_bytes
from anabranch.engine.sequential import input_row
from anabranch.engine.worker.exchange import REPORT, ROWS, Row, report_row
from anabranch.engine.worker.splitters import FeedbackTask, SplitTask
from anabranch.engine.worker.tasks import ChannelTask, Task
from anabranch.partitioning.counting.key_costs import KeyTimesReport
from anabranch.program.graph import Node, Source
from anabranch.sim.hosts import PlacedTask
from anabranch.sim.inputs import InputFile
from anabranch.sim.job_time import JobTime
from anabranch.sim.virtual_time import START_S, TickingClock
from anabranch.sim.work_costs import WorkCosts
from anabranch.testing import TaskDied

_ATTEMPTS_MAX = 4
"""As spark.task.maxFailures."""
_SPECULATIVE = 0.03
"""Of the tasks, so many run twice for nothing."""

_TICK_S = 1e-6

Batch = Mapping[str, Sequence[InputFile]]


@dataclasses.dataclass
class _Ran:
    """One task: how to run it, and what came of it."""

    call: Callable[[], Iterator[Row]]
    extra_s: float
    """What it takes beside what its report says: reading."""
    rows: list[Row] = dataclasses.field(default_factory=list)
    report: Report | None = None

    def run(self) -> None:
        for _ in range(_ATTEMPTS_MAX):
            rows: list[Row] = []
            reports: list[Report] = []
            try:
                for row in self.call():
                    if row[1][0] == REPORT:
                        reports.append(from_bytes(row[2]))
                    else:
                        rows.append(row)
            except TaskDied:
                continue
            self.rows, self.report = rows, reports[-1] if reports else None
            return
        raise TaskDied(f"a task died {_ATTEMPTS_MAX} times")


class RealTasks:
    """Runs jobs in this process."""

    def __init__(self, sources: Sequence[Node], time: JobTime, chance: np.random.Generator) -> None:
        self._sources = sources
        self._time = time
        self._costs = time.costs
        self._chance = chance

    def __call__(self, batch: Batch | None, job: Job) -> pa.Table:
        self._time.plan()
        tasks = []
        for number, (part, files) in enumerate(self._partitions(batch or {})):
            tasks.append(_Ran(partial(self._split, job.split, part, number), files * self._costs.file_s))
        if job.fed_back:
            columns = [list(column) for column in zip(*job.fed_back, strict=True)]
            arrays = [pa.array(c, k) for c, k in zip(columns, (pa.int32(), pa.int64(), pa.binary()), strict=True)]
            fed_back = pa.RecordBatch.from_arrays(arrays, ["loop", "first", "payload"])
            tasks.append(_Ran(partial(self._fed_back, job.feedback, fed_back), 0.0))
        reports, rows = self._stage(tasks)
        reports = [with_busy_sources(report, job.split.load().layout, self._costs) for report in reports]
        for task in job.depths:
            by_index: dict[int, list[Row]] = {index: [] for index in range(task.count)}
            for row in rows:
                by_index[row[0]].append(row)
            tasks = []
            for index, mine in by_index.items():
                size = sum(len(payload) for _, _, payload in mine)
                tasks.append(_Ran(partial(self._channel, task, index, mine), size * self._costs.byte_s))
            more, rows = self._stage(tasks)
            reports += more
        rows += [report_row(report) for report in reports]
        arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ROWS, strict=True)]
        return pa.Table.from_arrays(arrays, schema=ROWS)

    def _split(self, task: SplitTask, part: list[pa.RecordBatch], number: int) -> Iterator[Row]:
        return _ticking(task).rows(iter(part), number)

    def _fed_back(self, task: FeedbackTask, rows: pa.RecordBatch) -> Iterator[Row]:
        return _ticking(task).rows(iter([rows]))

    def _channel(self, task: ChannelTask, index: int, rows: list[Row]) -> Iterator[Row]:
        return _ticking(task).rows(self._arriving(rows), index)

    def _arriving(self, rows: list[Row]) -> Iterator[tuple[bytes, pa.Scalar]]:
        """Blocks of a shuffle come in any order; a task sorts its few rows."""
        shuffled = [rows[at] for at in self._chance.permutation(len(rows))]
        for _, order, payload in sorted(shuffled, key=lambda row: row[1]):
            yield order, pa.scalar(payload, pa.binary())

    def _stage(self, tasks: list[_Ran]) -> tuple[list[Report], list[Row]]:
        """Run the tasks of one depth: their reports, and what they sent."""
        for task in tasks:
            if self._chance.random() < _SPECULATIVE:
                task.run()
            task.run()
        works = [work_s(task.report, self._costs) + task.extra_s for task in tasks]
        reports = []
        for task, work, where in zip(tasks, works, self._time.stage(works), strict=True):
            for _ in range(where.attempts - 1):  # its host was lost
                task.run()
            if task.report is not None:
                reports.append(timed(task.report, work, where, self._costs))
        return reports, [row for task in tasks for row in task.rows]

    # -- what splitters read ----------------------------------------------------------------------------------

    def _partitions(self, batch: Batch) -> Iterator[tuple[list[pa.RecordBatch], int]]:
        """The epoch's files cut at random, the splits dealt to partitions at random; and how many each has."""
        pieces = [
            self._columns(number, piece)
            for number, source in enumerate(self._sources)
            for file in batch.get(source.name, ())
            for piece in self._splits(source, file)
        ]
        partitions: list[tuple[list[pa.RecordBatch], int]] = [([], 0)] * int(self._chance.integers(1, 4))
        for piece in [pieces[at] for at in self._chance.permutation(len(pieces))]:
            at = int(self._chance.integers(len(partitions)))
            batches, files = partitions[at]
            size = int(self._chance.integers(1, len(piece) + 2))
            cut = [piece.slice(first, size) for first in range(0, len(piece), size)]
            partitions[at] = [*batches, *cut], files + 1
        yield from partitions

    def _splits(self, source: Node, file: InputFile) -> Iterator[pa.RecordBatch]:
        schema = source.schema
        tuples = [input_row(source, row, at) for at, row in enumerate(file.content)]
        cuts = sorted(self._chance.integers(0, len(tuples) + 1, size=int(self._chance.integers(0, 2))).tolist())
        for start, stop in zip([0, *cuts], [*cuts, len(tuples)], strict=True):
            part = tuples[start:stop]
            columns = list(zip(*part, strict=True)) if part else [() for _ in schema.names]
            places = ((file.written_ms * 1000, pa.int64()), (f"{file.number:06d}", pa.string()), (start, pa.int64()))
            arrays = [*schema.arrays(columns), *(pa.array([value] * len(part), kind) for value, kind in places)]
            yield pa.RecordBatch.from_arrays(arrays, [f"c{at}" for at in range(len(arrays))])

    def _columns(self, number: int, piece: pa.RecordBatch) -> pa.RecordBatch:
        """A piece as splitters read it: with several sources, as a struct beside nulls."""
        if len(self._sources) == 1:
            return piece
        structs: list[pa.Array] = [pa.nulls(len(piece)) for _ in self._sources]
        structs[number] = pa.StructArray.from_arrays(piece.columns, piece.schema.names)
        arrays = [pa.array([number] * len(piece), pa.int32()), *structs]
        return pa.RecordBatch.from_arrays(arrays, ["source", *(f"s{at}" for at in range(len(structs)))])


AnyTask = TypeVar("AnyTask", bound=Task)


def _ticking(task: AnyTask) -> AnyTask:
    """The task, with a clock that says the same in every run: which calls it times must not depend on this machine."""
    return dataclasses.replace(task, clock=TickingClock(_TICK_S))


# -- what tasks took ----------------------------------------------------------------------------------------------


def busy_s(report: Report, costs: WorkCosts) -> float:
    """What a task took in operators."""
    if not isinstance(report, (SplitReport, ChannelReport)):
        return 0.0
    return sum(costs.of_operator(name) * rows for name, rows in report.operators.items())


def with_busy_sources(report: Report, layout: Layout, costs: WorkCosts) -> Report:
    """The report of a task that read sources, with what it took in the operators that run where each is read."""
    if not isinstance(report, SplitReport) or not report.sources:
        return report
    factor = report.seconds / work_s(report, costs)  # of the host, noise, being a straggler
    stages = {stage.name: stage for stage in layout.at_depth(0) if stage.name in report.sources}
    run_in: dict[str, list[str]] = {}  # operator → sources: what is behind a union runs where either is read
    for source, stage in stages.items():
        for node in layout.nodes(stage):
            if not isinstance(node.logic, Source):
                run_in.setdefault(node.name, []).append(source)
    busy = dict.fromkeys(report.sources, 0.0)
    for name, sources in run_in.items():
        seconds = costs.of_operator(name) * report.operators.get(name, 0) * factor
        read = sum(report.sources[source] for source in sources)
        for source in sources:
            busy[source] += seconds * report.sources[source] / max(1, read)
    return dataclasses.replace(report, busy_seconds=busy)


def saving_s(report: Report, costs: WorkCosts) -> float:
    """What a task took for its state."""
    if not isinstance(report, ChannelReport):
        return 0.0
    return costs.key_s * sum(record.rows for record in report.segments)


def work_s(report: Report | None, costs: WorkCosts) -> float:
    """What a task takes on a host of speed 1, by what it did."""
    return costs.task_s + (0.0 if report is None else busy_s(report, costs) + saving_s(report, costs))


def timed(report: Report, work: float, where: PlacedTask, costs: WorkCosts) -> Report:
    """The report of a task that ran then and there."""
    seconds = where.ended_s - where.began_s
    if isinstance(report, ChannelReport):
        factor = seconds / work if work > 0 else 1.0
        busy = busy_s(report, costs) * factor
        return dataclasses.replace(
            report,
            began_s=START_S + where.began_s,
            seconds=seconds,
            busy_seconds=busy,
            state_seconds=saving_s(report, costs) * factor,
            measured=None if report.measured is None else _measured(report.measured, busy / max(report.rows_in, 1)),
        )
    if isinstance(report, SplitReport):
        return dataclasses.replace(report, began_s=START_S + where.began_s, seconds=seconds)
    return dataclasses.replace(report, seconds=seconds)


def _measured(report: KeyTimesReport, tuple_s: float) -> KeyTimesReport:
    """What single keys took, if all tuples take the same."""
    calls = np.frombuffer(report.calls, dtype="<f8")
    spent = (calls * tuple_s).astype("<f8").tobytes()
    return dataclasses.replace(report, seconds=report.rows * tuple_s, spent=spent)
