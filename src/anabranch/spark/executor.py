"""The tasks of an epoch as one Spark job."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from anabranch.spark.exchange import ROW_COLUMNS
from anabranch.spark.mergers import MergerTask
from anabranch.spark.source import OrderedSources
from anabranch.spark.splitters import FeedbackTask, SplitTask
from anabranch.spark.tasks import LevelTask, MergeTask


@dataclasses.dataclass(frozen=True)
class Job:
    """The tasks of an epoch.

    Attributes
    ----------
    split : SplitTask
    feedback : FeedbackTask
    fed_back : list
        What was fed back in the epoch before: (loop, number of the first tuple, an Arrow batch).
    levels : list of LevelTask
    merger : MergerTask, optional
        Puts outputs in order and writes them; None: the driver does.
    """

    split: SplitTask
    feedback: FeedbackTask
    fed_back: list[tuple[int, int, bytes]]
    levels: list[LevelTask]
    merger: MergerTask | None = None


# Runs the tasks of an epoch over its input (None: nothing but what was fed back), and gives back the last rows.
Executor = Callable[[Any, Job], pa.Table]


# If an executor is lost, Spark repeats the tasks whose output is lost with it, and compares checksums of what
# they write. Ours differ, because packets carry reports: times, names of segments. Spark then repeats all that
# came after; a job that has delivered some of its results already cannot be repeated so, and fails. Nothing of
# the epoch is committed at that point, so the job simply runs again. Switching the comparison off would do as
# well for programs that are functions of their input, and mix two runs of those that are not.
_NO_ROLLBACK = "cannot rollback the ResultStage"
_JOBS_MAX = 4  # as spark.task.maxFailures


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
        parts = [each.mapInArrow(job.split, ROW_COLUMNS) for each in self._sources.sorted(batch)]
        if job.fed_back or not parts:
            table = pa.Table.from_pylist(
                [{"loop": loop, "first": first, "payload": data} for loop, first, data in job.fed_back],
                pa.schema([("loop", pa.int32()), ("first", pa.int64()), ("payload", pa.binary())]),
            )
            parts.append(session.createDataFrame(table).mapInArrow(job.feedback, ROW_COLUMNS))
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.unionAll(part)
        for task in job.levels:
            rows = (
                rows.repartitionById(task.count, "slot")
                .select("order", "payload")
                .sortWithinPartitions("order")
                .mapInArrow(task, ROW_COLUMNS)
            )
        if job.merger is not None:
            rows = (
                rows.repartitionById(job.merger.count, "slot")
                .select("order", "payload")
                .sortWithinPartitions("order")
                .mapInArrow(job.merger, ROW_COLUMNS)
            )
        return rows


class SparkMerges:
    """Merges of segments as a Spark job of its own, beside the epochs."""

    def __init__(self, spark: SparkSession) -> None:
        self._context = spark.sparkContext
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="anabranch-merge")

    def __call__(self, task: MergeTask, wanted: list[Any]) -> Future[list[Any]]:
        def run() -> list[Any]:
            # Half of the slots at most: the others are for the epochs, which must not wait for what is never needed.
            tasks = min(len(wanted), max(1, self._context.defaultParallelism // 2))
            return self._context.parallelize(wanted, tasks).map(task).collect()

        return self._thread.submit(run)
