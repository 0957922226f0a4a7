"""The tasks of an epoch as one Spark job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from anabranch.engine.job import Job
from anabranch.engine.worker.exchange import ROW_COLUMNS
from anabranch.engine.worker.tasks import CompactTask
from anabranch.spark.source import OrderedSources
from anabranch.state.lineage import Compaction
from anabranch.state.records import SegmentRecord

# If an executor is lost, Spark repeats the tasks whose output is lost with it, and compares checksums of what
# they write. Ours differ, because packets carry reports: times, names of segments. Spark then repeats all that
# came after; a job that has delivered some of its results already cannot be repeated so, and fails. Nothing of
# the epoch is committed at that point, so the job simply runs again. Switching the comparison off would do as
# well for programs that are functions of their input, and mix two runs of those that are not.
_NO_ROLLBACK = "cannot rollback the ResultStage"
_JOBS_MAX = 4  # as spark.task.maxFailures


def _numbered(
    run: Callable[[Iterator[pa.RecordBatch], int], Iterator[pa.RecordBatch]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A task as Spark runs it: told which partition it has."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "outside a Spark task"
        return run(batches, context.partitionId())

    return task


class SparkExecutor:
    """The tasks as one Spark job. A shuffle places each row exactly; what is sorted are packets, not tuples."""

    def __init__(self, spark: SparkSession, sources: OrderedSources) -> None:
        self._spark = spark
        self._sources = sources

    def __call__(self, batch: DataFrame | None, job: Job) -> pa.Table:
        # A batch's session belongs to the query: the user's own is not touched.
        session = batch.sparkSession if batch is not None else self._spark.newSession()
        session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "65536")
        # Adaptive execution plans the job anew at every shuffle, which for us never changes anything: 0.2 s an epoch.
        session.conf.set("spark.sql.adaptive.enabled", "false")
        for _ in range(_JOBS_MAX - 1):
            try:
                return self._results(session, batch, job).toArrow()
            except Exception as problem:
                if _NO_ROLLBACK not in str(problem):
                    raise
        return self._results(session, batch, job).toArrow()

    def _results(self, session: SparkSession, batch: DataFrame | None, job: Job) -> DataFrame:
        parts = [each.mapInArrow(_numbered(job.split.run), ROW_COLUMNS) for each in self._sources.sorted(batch)]
        if job.fed_back or not parts:
            table = pa.Table.from_pylist(
                [{"loop": loop, "first": first, "payload": data} for loop, first, data in job.fed_back],
                pa.schema([("loop", pa.int32()), ("first", pa.int64()), ("payload", pa.binary())]),
            )
            parts.append(session.createDataFrame(table).mapInArrow(_numbered(job.feedback.run), ROW_COLUMNS))
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionAll(part)
        for task in job.depths:
            rows = (
                rows.repartitionById(task.count, "task")
                .select("order", "payload")
                .sortWithinPartitions("order")
                .mapInArrow(_numbered(task.run), ROW_COLUMNS)
            )
        if job.merger is not None:
            rows = (
                rows.repartitionById(job.merger.count, "task")
                .select("order", "payload")
                .sortWithinPartitions("order")
                .mapInArrow(_numbered(job.merger.run), ROW_COLUMNS)
            )
        return rows


class SparkCompactions:
    """Compactions of segments as a Spark job of its own, beside the epochs."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-compact")

    def __call__(self, task: CompactTask, wanted: list[Compaction]) -> Future[list[SegmentRecord]]:
        def run() -> list[SegmentRecord]:
            # Half of the slots at most: the others are for the epochs, which must not wait for what is never needed.
            tasks = min(len(wanted), max(1, self._context.defaultParallelism // 2))
            return self._context.parallelize(wanted, tasks).map(task).collect()

        return self._thread.submit(run)
