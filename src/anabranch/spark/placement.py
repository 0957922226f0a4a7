"""Channels run where their state is: Spark is told which executor each task of a depth prefers.

    rows ─── shuffle by task ────────────────────┐ united, partition by partition ─► sorted ─► the channel's task
    anchor: an empty row for each partition, ────┘
    with the name of an executor

Spark asks the data of a task where it would like to run. What comes out of a shuffle would like to run where most of it
was written, so it is united with an anchor: an RDD made by the driver with a row for each partition and its executor as
the place it is at. A union takes the place that is named most often, and the anchor names its own often enough. Spark
waits `spark.locality.wait` for an executor that was asked for, then takes any: a task is late at worst, never lost.

What is used of Spark here is not public (tried with 4.3). Where it is not there, a line in the log says so and tasks
run where Spark likes, which is always right: state is in the checkpoint. In local mode there is one place, and none of
this.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame, SparkSession

from anabranch.control.channel_places import Bundle, StandbySettings
from anabranch.control.executor_planner import ExecutorBounds, ExecutorState
from anabranch.control.period_plan import PeriodPlan
from anabranch.engine.driver.epoch_progress import PlacementProgress
from anabranch.engine.driver.placing import Placing
from anabranch.engine.reports import ChannelReport, Report
from anabranch.engine.worker.exchange import ROW_COLUMNS, task_indexes
from anabranch.engine.worker.follow_task import Followed
from anabranch.engine.worker.tasks import ChannelTask
from anabranch.program.graph import Keyed
from anabranch.spark.cluster import ClusterManager, SparkClusterManager
from anabranch.spark.warming import Warming
from anabranch.state.store import StateVersion

_log = logging.getLogger("anabranch")
# Executors seldom change; who they are is asked so often at most.
_LOOK_S = 1.0
# How often Spark attempts a stage, and more tasks than it may have.
_ATTEMPTS, _TASKS_MAX = 4, 1 << 20
# Of what a task says of its place: the executor, the stage, the attempt.
_PLACE_WORDS = 3
# Locations seldom change: so many anchors are kept.
_ANCHORS_KEPT = 8
# A shuffle names hosts that wrote at least a fifth of a partition, so five at most, or one five times.
_LOUD = 6
# A union hands on only what it takes for the host of a location. Of one with this prefix that is all the rest, which is
# then read as a location again: so an executor gets through, too.
_TWICE = "hdfs_cache_"


def here(context: TaskContext) -> str:
    """Where a task runs: what tells its executor from others, how Spark knows the task, and how busy the host is."""
    # Every executor has directories of its own for blocks, whoever manages the cluster.
    executor = hashlib.sha256(os.environ.get("SPARK_LOCAL_DIRS", "").encode()).hexdigest()[:12]
    busy = _host.busy_cores()
    told = "" if busy is None else f" {busy:.3f} {os.cpu_count() or 1}"
    return f"{executor} {context.stageId()} {context.taskAttemptId()}{told}"


class _Host:
    """The cores of this host that were busy, with whatever, between two looks; Linux only."""

    def __init__(self) -> None:
        self._last: tuple[int, int] | None = None

    def busy_cores(self) -> float | None:
        """Since the last call; None at the first."""
        try:
            with open("/proc/stat", encoding="ascii") as file:
                ticks = [int(each) for each in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return None
        now, before = (sum(ticks), ticks[3] + ticks[4]), self._last
        self._last = now
        if before is None or now[0] <= before[0]:
            return None
        return (1 - (now[1] - before[1]) / (now[0] - before[0])) * (os.cpu_count() or 1)


_host = _Host()


class ChannelPlacement:
    """Asks Spark to run channels where `Placing` wants them, and tells it where they ran.

    Parameters
    ----------
    spark : SparkSession
    standbys : StandbySettings, optional
        How many executors have copies; None: none.
    manager : ClusterManager, optional
        Whom to ask for the executors; None: Spark.
    bounds : ExecutorBounds, optional
        How many executors there may be; None: as many as there are.
    warms : bool
        Whether executors that come later run a small job before channels are asked to run there.
    """

    def __init__(
        self,
        spark: SparkSession,
        standbys: StandbySettings | None = None,
        manager: ClusterManager | None = None,
        bounds: ExecutorBounds | None = None,
        warms: bool = False,
    ) -> None:
        self._spark = spark
        self._manager = SparkClusterManager(spark.sparkContext) if manager is None else manager
        self._placing = Placing(StandbySettings() if standbys is None else standbys, bounds)
        self._warming = Warming(self._warm) if warms else None
        self._looked_s = float("-inf")
        self._identities: dict[str, str] = {}  # what tasks say of their executor → its identity
        self._anchors: dict[tuple[str, ...], Any] = {}  # locations → the anchor that names them
        self.operators: dict[str, list[str]] = {}
        """Region → its operators with state, as of the last job."""
        self._broken = False

    # -- before a job ---------------------------------------------------------------------------------------

    def placed(self, session: SparkSession, rows: DataFrame, task: ChannelTask) -> DataFrame:
        """Rows that were shuffled to the tasks of a depth, with a preference for executors if there is one."""
        if self._broken:
            return rows
        try:
            locations = tuple(self._locations(task))
            return _anchored(session, rows, locations, self._anchors) if locations else rows
        except Exception as problem:  # nothing here is public
            self._broken = True
            _log.warning("channels cannot be placed, they run where Spark likes: %s", str(problem).partition("\n")[0])
            return rows

    def _locations(self, task: ChannelTask) -> list[str]:
        """For every task of a depth, its executor as Spark writes locations; empty: nothing is preferred."""
        layout = task.load().layout
        indexes = task_indexes(layout, task.depth, task.functions)
        stages = [(layout.stages[stage], number) for stage, number in map(indexes.stage_of, range(indexes.count))]
        for stage, _ in stages:
            nodes = layout.nodes(stage)
            self.operators[stage.name] = [node.name for node in nodes if isinstance(node.logic, Keyed)]
        channels = [(stage.name, number) for stage, number in stages]
        functions = {stage.name: task.functions[stage.number] for stage, _ in stages}
        self._look()
        plan = self._placing.job_plan(task.depth, channels, functions)
        return [location_of(plan.now[channel]) for channel in channels if plan.now]

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked_s > _LOOK_S:
            found = sorted(self._manager.executors(), key=lambda each: each.identity)
            self._placing.executors = found if self._warming is None else self._warming.ready(found)
            self._looked_s = now

    def _warm(self, executor: ExecutorState) -> None:
        """Run what has the form of a depth's tasks on an executor."""
        session = self._spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "false")
        rows = session.range(1).mapInArrow(_packets, ROW_COLUMNS).repartitionById(1, "task").select("order", "payload")
        placed = _anchored(session, rows, (location_of(executor),), {})
        placed.sortWithinPartitions("order").mapInArrow(_packets, ROW_COLUMNS).toArrow()

    def restored(self) -> PeriodPlan | None:
        """What to do for executors that are gone, asked before an epoch begins; None: nothing."""
        try:
            self._look()
        except Exception as problem:  # executors are looked for again
            _log.debug("executors are not known: %s", problem)
        return self._placing.restored()

    # -- after it -------------------------------------------------------------------------------------------

    def settled(self, reports: Sequence[Report]) -> tuple[PlacementProgress, PeriodPlan | None]:
        """Note where the channels of an epoch ran; what is told of it, and what is to change now."""
        busy: dict[str, tuple[float, int]] = {}
        for report in reports:
            if isinstance(report, ChannelReport) and report.place:
                words = report.place.split()
                if len(words) > _PLACE_WORDS:
                    busy[self._identity(report.place)] = (float(words[3]), int(words[4]))
        return self._placing.settled(reports, self._identity, busy)

    @property
    def rather_back(self) -> tuple[str, ...]:
        """Executors that should rather go than others, if some do."""
        return self._placing.rather_back

    # -- copies ---------------------------------------------------------------------------------------------

    def followed(self) -> dict[str, list[Followed]]:
        """Location of an executor → the bundles whose state it should have copies of."""
        present = {each.identity: each for each in self._placing.executors}
        wanted = self._placing.followed()
        return {location_of(present[identity]): each for identity, each in wanted.items() if identity in present}

    def followed_by(self, place: str, missing: Mapping[Bundle, int]) -> None:
        """An executor said what it lacks."""
        identity = self._identity(place)
        if identity:
            self._placing.followed_by(identity, missing)

    def sized(self, version: StateVersion) -> None:
        """Note how large the state of bundles is."""
        self._placing.sized(version, self.operators)

    def location(self, operator: str, channel: int) -> str | None:
        """Where a channel's state is, for what is done beside the epochs."""
        region = next((name for name, operators in self.operators.items() if operator in operators), "")
        identity = self._placing.executor_of((region, channel))
        found = next((each for each in self._placing.executors if each.identity == identity), None)
        return None if found is None else location_of(found)

    @property
    def has_single_slots(self) -> bool:
        """Whether some executor can run one task at a time only."""
        return any(each.slots <= 1 for each in self._placing.executors)

    # -- who ran what ---------------------------------------------------------------------------------------

    def _identity(self, place: str) -> str:
        """The executor that a task ran on; empty if nobody knows."""
        if not place:
            return ""  # a channel that runs where its source is read
        executor, stage, task = place.split()[:_PLACE_WORDS]
        if executor not in self._identities:
            found = self._looked_up(int(stage), int(task))
            if not found:
                return ""
            self._identities[executor] = found
        return self._identities[executor]

    def _looked_up(self, stage: int, task: int) -> str:
        """The executor of a task, as the status of the application has it: asked once for each executor."""
        for attempt in range(_ATTEMPTS):
            try:
                tasks = self._spark.sparkContext._jsc.sc().statusStore().taskList(stage, attempt, _TASKS_MAX)
                for at in range(tasks.length()):
                    each = tasks.apply(at)
                    if each.taskId() == task:
                        return str(each.executorId())
            except Exception as problem:  # nothing here is public; and what is told of a task may come late
                _log.debug("the executor of task %d is not known: %s", task, problem)
        return ""


def _packets(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A packet for each batch, from a worker that has loaded what channels need."""
    importlib.import_module(ChannelTask.__module__)
    for _ in batches:
        columns = [pa.array([0], pa.int32()), pa.array([b"0"]), pa.array([b""])]
        yield pa.RecordBatch.from_arrays(columns, ["task", "order", "payload"])


def location_of(executor: ExecutorState) -> str:
    """An executor as Spark writes locations."""
    return f"executor_{executor.host}_{executor.identity}"


def located(context: Any, items: Sequence[tuple[str, bytes]], serializer: Any) -> RDD[Any]:
    """An RDD with a partition for each of some serialised values, which prefers a location."""
    jvm: Any = context._jvm
    wishes = [jvm.scala.Tuple2(bytearray(data), jvm.PythonUtils.toSeq([location])) for location, data in items]
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    return RDD(context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(wishes), tag).toJavaRDD(), context, serializer)


def _anchored(
    session: SparkSession, rows: DataFrame, locations: tuple[str, ...], anchors: dict[tuple[str, ...], Any]
) -> DataFrame:
    """The rows, each partition with the wish to be at its location. `anchors` keeps what was made for earlier jobs."""
    context = session.sparkContext
    jvm: Any = context._jvm
    spark_context: Any = context._jsc.sc()
    if locations not in anchors:
        kind = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
        tag = jvm.scala.reflect.ClassTag.apply(kind)
        empty = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(len(rows.columns))
        wishes = [jvm.scala.Tuple2(empty, jvm.PythonUtils.toSeq([f"{_TWICE}{each}"] * _LOUD)) for each in locations]
        if len(anchors) >= _ANCHORS_KEPT:
            anchors.clear()
        anchors[locations] = (spark_context.makeRDD(jvm.PythonUtils.toSeq(wishes), tag), tag)
    anchor, tag = anchors[locations]
    shuffled = rows._jdf.queryExecution().toRdd()
    parts = jvm.PythonUtils.toSeq([anchor, shuffled])
    union = jvm.org.apache.spark.rdd.SQLPartitioningAwareUnionRDD(spark_context, parts, len(locations), tag)
    java_session: Any = session._jsparkSession
    united = DataFrame(java_session.internalCreateDataFrame(union, rows._jdf.schema(), False), session)
    return united.where(united[rows.columns[0]].isNotNull())
