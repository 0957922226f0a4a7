"""The tasks of an epoch as Spark runs them.

Where tasks read files themselves and all of them run on this machine, files are between them, too (`local_jobs`).
Elsewhere it is one job of DataFrames: if an executor is lost, their shuffles notice tasks that give other rows when
they are repeated.
"""

from __future__ import annotations

import dataclasses
import pickle
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from anabranch.engine.job import Job
from anabranch.engine.worker.compact_task import CompactTask
from anabranch.engine.worker.compacting_process import COMPACTING, Standing
from anabranch.engine.worker.exchange import ROW_COLUMNS, batches_of, table_of
from anabranch.engine.worker.file_pieces import FilePiece
from anabranch.engine.worker.splitters import SplitTask, fed_back_batches
from anabranch.engine.worker.tasks import ChannelTask
from anabranch.spark.direct_files import DirectFiles
from anabranch.spark.local_jobs import LocalJobs, has_local_files
from anabranch.spark.placement import ChannelPlacement, here, located
from anabranch.spark.source import OrderedSources
from anabranch.spark.worker_garbage import task_begins
from anabranch.state.compaction import INLINE_ROWS
from anabranch.state.lineage import Compaction
from anabranch.state.records import SegmentRecord

# If an executor is lost, Spark repeats the tasks whose output is lost with it, and compares checksums of what
# they write. Ours differ, because packets carry reports: times, names of segments. Spark then repeats all that
# came after; a job that has delivered some of its results already cannot be repeated so, and fails. Nothing of
# the epoch is committed at that point, so the job simply runs again. Switching the comparison off would do as
# well for programs that are functions of their input, and mix two runs of those that are not.
_NO_ROLLBACK = "cannot rollback the ResultStage"
_JOBS_MAX = 4  # as spark.task.maxFailures
# How often tasks ask how compactions stand; and how often in a row nobody may know of one until it is given up.
_ASKED_EVERY_S, _STRANGE_MAX = 1.0, 60
# Has Spark plan nothing for a stream without rows (`OrderedSources.unread`). It is off by default because a state below
# the filter would be passed over; there is none below ours. Where Spark does not know it, it plans as ever.
EMPTY_PLANS = "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"


def _numbered(
    run: Callable[..., Iterator[pa.RecordBatch]], told_where: bool = False
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task as Spark runs it: told which partition it has, and perhaps where it runs."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "outside a Spark task"
        task_begins()
        return run(batches, context.partitionId(), *([here(context)] if told_where else []))

    return task


class SparkExecutor:
    """The tasks as one Spark job. A shuffle places each row exactly; what is sorted are packets, not tuples."""

    def __init__(
        self,
        spark: SparkSession,
        sources: OrderedSources,
        files: DirectFiles,
        placement: ChannelPlacement | None = None,
    ) -> None:
        self._spark = spark
        self._sources = sources
        self._files = files
        self._placement = placement
        self._local = LocalJobs(spark.sparkContext) if has_local_files(spark.sparkContext) else None
        self._emptied = False

    def __call__(self, batch: DataFrame | None, job: Job) -> pa.Table:
        if batch is not None and self._files.begun and not self._emptied:
            batch.sparkSession.conf.set(EMPTY_PLANS, "true")  # the session is the query's, for all of its epochs
            self._emptied = True
        whole_files, in_order = job.split.state is not None, bool(job.split.pieces)
        read = None if batch is None else self._files.partitions(whole_files, in_order)
        if read is not None:
            size = sum(piece.size for share in read for piece in share)
            job = dataclasses.replace(job, split=job.split.over(size))
        if self._local is not None and (batch is None or read is not None):
            return table_of(self._local.rows(read, job))
        # A batch's session belongs to the query: the user's own is not touched.
        session = batch.sparkSession if batch is not None else self._spark.newSession()
        if batch is not None and read is None and self._files.begun:
            batch = self._sources.of_files(session, self._files.relations())
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        # Adaptive execution plans the job anew at every shuffle, which for us never changes anything: 0.2 s an epoch.
        session.conf.set("spark.sql.adaptive.enabled", "false")
        for _ in range(_JOBS_MAX - 1):
            try:
                return self._results(session, batch, read, job).toArrow()
            except Exception as problem:
                if _NO_ROLLBACK not in str(problem):
                    raise
        return self._results(session, batch, read, job).toArrow()

    def _results(
        self, session: SparkSession, batch: DataFrame | None, read: list[list[FilePiece]] | None, job: Job
    ) -> DataFrame:
        if read is not None:
            numbers = session.range(0, len(read), 1, len(read))
            parts = [numbers.mapInArrow(_numbered(partial(_split_files, job.split, read)), ROW_COLUMNS)]
        else:
            split = self._narrowed(job.split)
            rows_of = self._sources.rows(batch, split.handed)
            parts = [each.mapInArrow(_numbered(split.run), ROW_COLUMNS) for each in rows_of]
        if job.fed_back or not parts:
            table = pa.Table.from_batches(fed_back_batches(job.fed_back))
            parts.append(session.createDataFrame(table).mapInArrow(_numbered(job.feedback.run), ROW_COLUMNS))
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionAll(part)
        for task in job.behind_shuffles:
            rows = rows.repartitionById(task.count, "task").select("order", "payload")
            if isinstance(task, ChannelTask) and self._placement is not None:
                run = _numbered(task.run, told_where=True)
                rows = self._placement.placed(session, rows, task)
            else:
                run = _numbered(task.run)
            rows = rows.sortWithinPartitions("order").mapInArrow(run, ROW_COLUMNS)
        return rows

    def _narrowed(self, split: SplitTask) -> SplitTask:
        """The task for rows that have only what is needed of each source."""
        if "needed" not in split.columns:
            return split
        return dataclasses.replace(split, handed=self._sources.handed(split.needed()))


def _split_files(
    task: SplitTask, read: Sequence[Sequence[FilePiece]], batches: Iterator[pa.RecordBatch], number: int
) -> Iterator[pa.RecordBatch]:
    """The task of a partition of a DataFrame that only counts."""
    for _ in batches:
        pass  # read to its end: otherwise Spark would not keep the worker, and the executor's next task begin a new one
    return batches_of(task.rows_of_files(read[number], number))


def _begun(task: CompactTask, asked: tuple[str, Compaction]) -> None:
    """The task that has a compaction begun."""
    COMPACTING.begin(asked[0], task, asked[1])


def _standing(name: str) -> tuple[str, Standing]:
    """The task that asks how one stands."""
    return name, COMPACTING.standing(name)


class SparkCompactions:
    """Compactions of segments beside the epochs, where the channels' state is, as a Spark job of their own.

    On executors of one slot, which that would take from the epochs, as processes, which jobs of a moment begin and ask.
    """

    def __init__(self, spark: SparkSession, placement: ChannelPlacement | None = None) -> None:
        self._context = spark.sparkContext
        self._placement = placement
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-compact")

    def __call__(self, task: CompactTask, wanted: list[Compaction]) -> Future[list[SegmentRecord]]:
        def run() -> list[SegmentRecord]:
            # Half of the slots at most: the others are for the epochs, which must not wait for what is never needed.
            at_once = max(1, self._context.defaultParallelism // 2)
            places = [self._location(each) for each in wanted]
            if None in places:
                return self._context.parallelize(wanted, min(len(wanted), at_once)).map(task).collect()
            placed = [(place, each) for place, each in zip(places, wanted, strict=True) if place]
            # Where there are other slots, epochs have those; and a process takes longer to begin than a small one does.
            aside = self._placement is not None and self._placement.has_single_slots
            large = [each for each in placed if aside and sum(record.weight for record in each[1][2]) > INLINE_ROWS]
            small = [each for each in placed if each not in large]
            found: list[SegmentRecord] = []
            for first in range(0, len(small), at_once):
                found += self._asked(task, small[first : first + at_once])
            for first in range(0, len(large), at_once):
                found += self._made_aside(task, large[first : first + at_once])
            return found

        return self._thread.submit(run)

    def _made_aside(self, task: CompactTask, placed: Sequence[tuple[str, Compaction]]) -> list[SegmentRecord]:
        """Have compactions made by processes at their places; what was made."""
        waiting = {uuid.uuid4().hex: each for each in placed}
        self._asked(partial(_begun, task), [(place, (name, wanted)) for name, (place, wanted) in waiting.items()])
        strange = dict.fromkeys(waiting, 0)
        found = []
        while waiting:
            time.sleep(_ASKED_EVERY_S)
            for name, standing in self._asked(_standing, [(place, name) for name, (place, _) in waiting.items()]):
                # Who does not know of it is another one, because the place was busy, or another worker of the place.
                strange[name] = 0 if standing.is_known else strange[name] + 1
                if standing.record is not None:
                    found.append(standing.record)
                if standing.is_done or strange[name] > _STRANGE_MAX:
                    del waiting[name]
        return found

    def _asked(self, ask: Callable[[Any], Any], items: Sequence[tuple[str, Any]]) -> list[Any]:
        """What tasks at these places say."""
        packed = [(place, pickle.dumps(item)) for place, item in items]
        return list(located(self._context, packed, CPickleSerializer()).map(ask).collect())

    def _location(self, wanted: Compaction) -> str | None:
        operator, channel, _ = wanted
        return None if self._placement is None else self._placement.location(operator, channel)
