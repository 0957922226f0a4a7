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
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame, SparkSession

from anabranch.control.channel_places import Channel, Held, PlacePlan, place_plan
from anabranch.control.executor_planner import ExecutorState
from anabranch.engine.driver.epoch_progress import MoveProgress, PlacementProgress
from anabranch.engine.query_options import StandbySettings
from anabranch.engine.reports import ChannelReport, Report
from anabranch.engine.worker.exchange import task_indexes
from anabranch.engine.worker.tasks import ChannelTask
from anabranch.program.graph import Keyed
from anabranch.spark.cluster import ClusterManager, SparkClusterManager

_log = logging.getLogger("anabranch")
# Executors seldom change; who they are is asked so often at most.
_LOOK_S = 1.0
# How often Spark attempts a stage, and more tasks than it may have.
_ATTEMPTS, _TASKS_MAX = 4, 1 << 20
# A shuffle names hosts that wrote at least a fifth of a partition, so five at most, or one five times.
_LOUD = 6
# A union hands on only what it takes for the host of a location. Of one with this prefix that is all the rest, which is
# then read as a location again: so an executor gets through, too.
_TWICE = "hdfs_cache_"


def here(context: TaskContext) -> str:
    """Where a task runs: what tells its executor from others, and how Spark knows the task."""
    # Every executor has directories of its own for blocks, whoever manages the cluster.
    executor = hashlib.sha256(os.environ.get("SPARK_LOCAL_DIRS", "").encode()).hexdigest()[:12]
    return f"{executor} {context.stageId()} {context.taskAttemptId()}"


class ChannelPlacement:
    """Remembers where channels ran and who has copies of their state, and asks Spark to run them there.

    Parameters
    ----------
    spark : SparkSession
    standbys : StandbySettings, optional
        How many executors have copies; None: none.
    manager : ClusterManager, optional
        Whom to ask for the executors; None: Spark.
    """

    def __init__(
        self, spark: SparkSession, standbys: StandbySettings | None = None, manager: ClusterManager | None = None
    ) -> None:
        self._spark = spark
        self._standbys = StandbySettings() if standbys is None else standbys
        self._manager = SparkClusterManager(spark.sparkContext) if manager is None else manager
        self._executors: list[ExecutorState] = []
        self._looked_s = float("-inf")
        self._identities: dict[str, str] = {}  # what tasks say of their executor → its identity
        self._held: dict[Channel, Held] = {}  # channel → the executor it ran on last
        self._copies: dict[Channel, dict[str, int]] = {}  # channel → who follows it → bytes that are missing there
        self._written: dict[Channel, int] = {}  # channel → bytes of state that it wrote in the last epoch
        self._plans: dict[int, PlacePlan] = {}  # depth → the plan of the last job
        self._unprotected: dict[Channel, int] = {}  # channel → epochs since it had a complete copy
        self.operators: dict[str, list[str]] = {}
        """Region → its operators with state, as of the last job."""
        self._broken = self._few = False

    # -- before a job ---------------------------------------------------------------------------------------

    def placed(self, session: SparkSession, rows: DataFrame, task: ChannelTask) -> DataFrame:
        """Rows that were shuffled to the tasks of a depth, with a preference for executors if there is one."""
        if self._broken:
            return rows
        try:
            locations = tuple(self._locations(task))
            return _anchored(session, rows, locations) if locations else rows
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
        settings, executors = self._standbys, self._executors_now()
        if executors and settings.count >= len(executors) and not self._few:
            self._few = True
            _log.warning("standbys=%d: there are %d executors, so there are fewer", settings.count, len(executors))
        # What the last epoch wrote nobody else can have yet: it is what a switch between two epochs waits for.
        copies = {
            channel: {who: max(0, missing - self._written.get(channel, 0)) for who, missing in dict(each).items()}
            for channel, each in dict(self._copies).items()
        }
        plan = place_plan(channels, executors, self._held, copies, settings.count, settings.lag_bytes)
        self._plans[task.depth] = plan
        return [location_of(plan.now[channel]) for channel in channels if plan.now]

    def _executors_now(self) -> list[ExecutorState]:
        now = time.monotonic()
        if now - self._looked_s > _LOOK_S:
            self._executors = sorted(self._manager.executors(), key=lambda each: each.identity)
            self._looked_s = now
        return self._executors

    # -- after it -------------------------------------------------------------------------------------------

    def settled(self, reports: Iterable[Report]) -> PlacementProgress | None:
        """Note where the channels of an epoch ran; what is told of it."""
        hosts = {each.identity: each.host for each in self._executors}
        asked = {channel: each for plan in self._plans.values() for channel, each in plan.now.items()}
        kept = moved = elsewhere = 0
        for report in reports:
            identity = self._identity(report.place) if isinstance(report, ChannelReport) else ""
            if not identity or not isinstance(report, ChannelReport):
                continue
            channel = (report.name, report.channel)
            before = self._held.get(channel)
            if before is not None:
                kept, moved = (kept + 1, moved) if identity == before[0] else (kept, moved + 1)
                if before[0] != identity and self._standbys.count:
                    self._copies.setdefault(channel, {})[before[0]] = 0  # what it leaves behind is a copy
            self._copies.get(channel, {}).pop(identity, None)
            elsewhere += channel in asked and identity != asked[channel].identity
            self._held[channel] = (identity, hosts.get(identity, ""))
            self._written[channel] = sum(record.bytes for record in report.segments)
        moves = [
            MoveProgress(*move.channel, move.source, move.target, move.how, move.missing_bytes)
            for plan in self._plans.values()
            for move in plan.moves
        ]
        for move in moves:
            _log.info("channel %d of %s: executor %s to %s, %s", *vars(move).values())
        self._plans = {depth: PlacePlan(plan.now, plan.follow) for depth, plan in self._plans.items()}
        missing, unprotected = self._protection(hosts)
        return PlacementProgress(kept, moved, elsewhere, moves, missing, unprotected)

    def _protection(self, present: Mapping[str, str]) -> tuple[int, dict[str, int]]:
        """What copies lack, and which channels have no complete copy, for how many epochs."""
        if not self._standbys.count:
            return 0, {}
        total = 0
        for channel in self._held:
            copies = {who: each for who, each in dict(self._copies.get(channel, {})).items() if who in present}
            total += sum(copies.values())
            behind = self._written.get(channel, 0) + self._standbys.lag_bytes
            is_safe = any(each <= behind for each in copies.values())
            self._unprotected[channel] = 0 if is_safe else self._unprotected.get(channel, 0) + 1
        return total, {f"{region} {number}": each for (region, number), each in self._unprotected.items() if each}

    # -- copies ---------------------------------------------------------------------------------------------

    def followed(self) -> dict[str, list[Channel]]:
        """Location of an executor → the channels whose state it should have copies of."""
        present = {each.identity: each for each in self._executors}
        found: dict[str, list[Channel]] = {}
        for plan in self._plans.values():
            for identity, channels in plan.follow.items():
                if identity in present:
                    found.setdefault(location_of(present[identity]), []).extend(channels)
        return found

    def followed_by(self, place: str, missing: Mapping[Channel, int]) -> None:
        """An executor said what it lacks."""
        identity = self._identity(place)
        for channel, size in missing.items():
            if identity and self._held.get(channel, ("", ""))[0] != identity:
                self._copies.setdefault(channel, {})[identity] = size

    def location(self, operator: str, channel: int) -> str | None:
        """Where a channel's state is, for what is done beside the epochs."""
        region = next((name for name, operators in self.operators.items() if operator in operators), "")
        identity = self._held.get((region, channel), ("", ""))[0]
        found = next((each for each in self._executors if each.identity == identity), None)
        return None if found is None else location_of(found)

    # -- who ran what ---------------------------------------------------------------------------------------

    def _identity(self, place: str) -> str:
        """The executor that a task ran on; empty if nobody knows."""
        if not place:
            return ""  # a channel that runs where its source is read
        executor, *task = place.split()
        if executor not in self._identities:
            found = self._looked_up(*map(int, task))
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


def location_of(executor: ExecutorState) -> str:
    """An executor as Spark writes locations."""
    return f"executor_{executor.host}_{executor.identity}"


def located(context: Any, items: Sequence[tuple[str, bytes]], serializer: Any) -> RDD[Any]:
    """An RDD with a partition for each of some serialised values, which prefers a location."""
    jvm: Any = context._jvm
    wishes = [jvm.scala.Tuple2(bytearray(data), jvm.PythonUtils.toSeq([location])) for location, data in items]
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    return RDD(context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(wishes), tag).toJavaRDD(), context, serializer)


def _anchored(session: SparkSession, rows: DataFrame, locations: Sequence[str]) -> DataFrame:
    """The rows, each partition with the wish to be at its location."""
    context = session.sparkContext
    jvm: Any = context._jvm
    kind = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    tag = jvm.scala.reflect.ClassTag.apply(kind)
    empty = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(len(rows.columns))
    wishes = [jvm.scala.Tuple2(empty, jvm.PythonUtils.toSeq([f"{_TWICE}{each}"] * _LOUD)) for each in locations]
    anchor = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(wishes), tag)
    shuffled = rows._jdf.queryExecution().toRdd()
    parts = jvm.PythonUtils.toSeq([anchor, shuffled])
    union = jvm.org.apache.spark.rdd.SQLPartitioningAwareUnionRDD(context._jsc.sc(), parts, len(locations), tag)
    java_session: Any = session._jsparkSession
    united = DataFrame(java_session.internalCreateDataFrame(union, rows._jdf.schema(), False), session)
    return united.where(united[rows.columns[0]].isNotNull())
