"""The handle of a running query, with Spark's names."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.api.events import Decided, EpochEnded, ExecutorsChanged, Listener, Listeners, Rescaled
from anabranch.compiler.layout.plan import Plan
from anabranch.control import Decision
from anabranch.engine.query_options import QueryOptions
from anabranch.errors import AnabranchError, ProgramError
from anabranch.program.model import OutputOrder
from anabranch.program.options import seconds_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.control.executor_planner import ExecutorPlan
    from anabranch.engine.driver.epoch_progress import EpochProgress
    from anabranch.engine.driver.scaling import RegionStatus
    from anabranch.engine.driver.switching import SwitchingRunner

_PROGRESS_KEPT = 100


class StreamingQuery:
    """A query that runs. Made by ``stream.writeStream.….start()``."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        sinks: Sequence[Any],
        checkpoint: str,
        options: QueryOptions,
        trigger: dict[str, Any],
        name: str | None,
        listeners: Iterable[Listener] = (),
        split_plan: Plan | None = None,
        orders: Sequence[OutputOrder] = (),
    ) -> None:
        from anabranch.engine.driver.runner import EpochRunner, describe_program
        from anabranch.engine.driver.sink import Holder
        from anabranch.engine.driver.switching import SwitchingRunner, begins_split
        from anabranch.engine.driver.waiting import SparkSurroundings
        from anabranch.engine.worker.tasks import Program
        from anabranch.spark.batch_log import BatchLog
        from anabranch.spark.cluster import executors_of
        from anabranch.spark.hadoop_files import local_path, open_files, qualified
        from anabranch.spark.job import SparkExecutor, SparkMerges
        from anabranch.spark.read_limits import SparkReadLimits, sizing_of
        from anabranch.spark.row_files import RowFiles
        from anabranch.spark.slots import slots_now, task_slots
        from anabranch.spark.source import OrderedSources, local_directories
        from anabranch.state.backing import open_backing_store
        from anabranch.state.checkpoint import Checkpoint
        from anabranch.state.compaction import SnapshotInterval

        location = qualified(spark, checkpoint)
        local = local_path(location)
        self._progress: deque[EpochProgress] = deque(maxlen=_PROGRESS_KEPT)
        self._listeners = Listeners(listeners)
        self.sinks = list(sinks)
        durable = options.durability == "power"
        files = open_files(spark, f"{location}/anabranch", durable)
        held = Checkpoint(files, options.versions_kept)
        elastic = options.elastic
        log = BatchLog(open_files(spark, location, durable))
        draft = Program.of(plan, {}, orders)
        split = None if split_plan is None else Program.of(split_plan, {}, orders)
        if split is not None and split_plan is not None and begins_split(draft, split, held):
            plan, draft, split = split_plan, split, None
        self._plans = (plan, split_plan)
        description = describe_program(draft)
        # All that can be wrong is found before the first file is written.
        store = options.migration_store
        backing = None if store is None else open_backing_store(store, location)
        held.check(description, options.allow_state_loss)
        log.check(held.latest().facts)
        for sink in sinks:
            sink.check(Holder(location, held.query))
        read = {operator.node.name: operator.node for operator in plan.operators}
        inputs = [read[node.name] for node in draft.inputs]
        interval = trigger.get("processingTime")
        context = spark.sparkContext
        sizing = sizing_of(
            spark,
            "fixed" if "once" in trigger else elastic.epoch_size,
            local_directories(spark, inputs),
            elastic.epoch_s(None if interval is None else seconds_of(interval)),
            slots_now(context),
            held.latest().facts.get("adaptation", {}).get("sizing", {}),
        )
        limits = None if sizing is None else sizing.limits
        rows = RowFiles(inputs)
        self.changes = held.bind(description, options.allow_state_loss)
        assert held.query is not None
        sources = OrderedSources(spark, inputs, rows.written(spark, f"{files.root}/sources", held.query), limits)
        if sizing is not None:
            read_limits = SparkReadLimits(spark, {name: sources.leaves[name] for name in sizing.limits})
            if sizing.limits:
                sizing.begin(read_limits)
        self._executors = executors_of(context, elastic.executor_bounds, self._follow)
        surroundings = SparkSurroundings(
            lambda: task_slots(context, elastic.executors_max),
            sources.limited,
            None if interval is None else seconds_of(interval),
            sizing=sizing,
            slots_now=lambda: slots_now(context),
            executors=self._executors,
        )
        merges = SparkMerges(spark)

        def runner_of(program: Program) -> EpochRunner:
            return EpochRunner(
                dataclasses.replace(program, orders=sources.orders),
                SparkExecutor(spark, sources),
                elastic,
                held,
                f"{files.root}/state",
                local is not None,
                sinks,
                self._ended,
                merges,
                None if options.snapshots is None else SnapshotInterval(options.snapshots),
                surroundings=surroundings,
                backing=backing,
                on_decision=lambda region, decision: self._listeners.tell(Decided(region, decision)),
                mergers=options.mergers,
                balancing=options.balancing,
                sizing=sizing,
                batch_digest=log.digest,
            )

        self._runner = SwitchingRunner(runner_of, draft, split if options.balancing.enabled else None, held)
        for sink in sinks:
            sink.prepare(Holder(location, held.query, held.owner.token, held.owner.check))
        writer = sources.dataframe.writeStream.foreachBatch(self._runner).option("checkpointLocation", location)
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)
        self._query = writer.start()
        if sizing is not None:
            read_limits.attach(self._query)
        surroundings.last_progress = lambda: self._query.lastProgress
        self._drain = Drain(self._query, self._runner, bool(trigger.keys() & {"once", "availableNow"}))
        if draft.loops:
            self._drain.start()
        if self._executors is not None:
            self._executors.is_active = lambda: self.isActive

    @property
    def plan(self) -> Plan:
        """What is run: the program as written or, once a key was too hot for a channel, in steps that can split it."""
        written, split = self._plans
        return split if split is not None and self._runner.has_switched else written

    @property
    def sink(self) -> Any:
        """Where the (first) output goes."""
        return self.sinks[0]

    # -- Spark's names ----------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The same for every run from one checkpoint."""
        return self._query.id

    @property
    def runId(self) -> str:
        """Different for every run."""
        return self._query.runId

    @property
    def name(self) -> str | None:
        return self._query.name

    @property
    def isActive(self) -> bool:
        """Whether it is still running."""
        return self._query.isActive or self._drain.is_alive()

    @property
    def status(self) -> dict[str, Any]:
        """What it is doing now."""
        return self._query.status

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """What the last epochs did, oldest first: counts, times, channels."""
        return [each.to_dict() for each in list(self._progress)]

    @property
    def lastProgress(self) -> dict[str, Any] | None:
        """What the last epoch did, or None before the first has ended."""
        recent = list(self._progress)
        return recent[-1].to_dict() if recent else None

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait until the query ends; raise what made it fail. With a timeout: whether it ended in time."""
        until = None if timeout is None else time.monotonic() + timeout
        try:
            if until is None:
                self._query.awaitTermination()
            elif not self._query.awaitTermination(max(0.001, until - time.monotonic())):  # type: ignore[arg-type]
                return False
        except Exception as problem:
            raise self._explained(problem) from None
        done = self._drain.wait(None if until is None else until - time.monotonic())
        if self._drain.problem is not None:
            raise self._explained(self._drain.problem) from None
        return None if timeout is None else done

    def processAllAvailable(self) -> None:
        """Wait until everything that is there has been processed, and nothing is in flight. For tests."""
        try:
            self._query.processAllAvailable()
            while self._runner.drain():
                pass
        except Exception as problem:
            raise self._explained(problem) from None

    def stop(self) -> None:
        """Stop; an epoch that is cut off runs again at the next start."""
        self._drain.stop()
        self._query.stop()
        if self._executors is not None:
            self._executors.leave()

    def exception(self) -> Exception | None:
        """What made the query fail, or None."""
        found = self._query.exception() or self._drain.problem
        return None if found is None else self._explained(found)

    def explain(self, form: str = "text") -> None:
        """Print what runs and why, with what is decided now: channels, who merges; as text, json, mermaid or svg."""
        print(self.plan.explain(form, self._runner.current.running()))

    # -- elasticity ---------------------------------------------------------------------------------------

    @property
    def regions(self) -> list[RegionStatus]:
        """The stages that are entered through a shuffle, as `explain` and progress name them: how many channels each
        has, within which bounds, pinned or not, and what was asked by hand."""
        return self._runner.current.regions

    def rescale(self, region: str, channels: int) -> None:
        """Give a region another number of channels, from the next epoch on.

        Nothing stops and nothing is copied. The controller goes on from there, unless ``channels`` pinned the query:
        then it is the new pinned number. Until an epoch has run with it the checkpoint remembers what was asked, so
        that a restart honours it; `regions` shows what still waits.

        Parameters
        ----------
        region : str
            A name from `regions`.
        channels : int
            Within ``minChannels`` and ``maxChannels``, if they were given.
        """
        scaling = self._runner.adaptation.scaling
        if region not in scaling.regions and any(each.name == region for each in self.regions):
            raise ProgramError(
                f"rescale({region!r}): it runs on one channel, in the order of one thread; explain() says why"
            )
        scaling.rescale(region, channels)

    def decisions(self, region: str) -> tuple[Decision, ...]:
        """The latest decisions of a region's controller, oldest first: inputs, what it remembered, branch, reason.

        ``print(decision.describe())`` says it in a line.
        """
        return self._runner.adaptation.scaling.decisions(region)

    def addListener(self, listener: Listener) -> None:
        """Have a function called with every event: `EpochEnded`, `Decided`, `Rescaled`, `ExecutorsChanged`."""
        self._listeners.add(listener)

    def removeListener(self, listener: Listener) -> None:
        """Call a function no more."""
        self._listeners.remove(listener)

    def _follow(self, plan: ExecutorPlan) -> None:
        self._listeners.tell(ExecutorsChanged(plan.target, plan.present, plan.give_back, plan.reason))

    def _ended(self, progress: EpochProgress) -> None:
        self._progress.append(progress)
        for each in progress.changes:
            self._listeners.tell(Rescaled(each.region, each.epoch, each.channels_before, each.channels, each.reason))
        self._listeners.tell(EpochEnded(progress.to_dict()))

    # -- ours -------------------------------------------------------------------------------------------

    def _explained(self, problem: Exception) -> Exception:
        """Our own error, if one was the cause, instead of Spark's wrapping of it."""
        failure: AnabranchError | None = self._runner.failure
        return failure if failure is not None else problem

    def __repr__(self) -> str:
        return f"StreamingQuery({json.dumps({'id': self.id, 'name': self.name, 'active': self.isActive})})"


class Drain(threading.Thread):
    """Runs epochs for tuples that were fed back when Spark has nothing to read, and at the end until none is left.

    Spark calls only when there is input, but a tuple that was sent back must not wait for it.
    """

    def __init__(self, query: Any, runner: SwitchingRunner, ends: bool) -> None:
        super().__init__(name="anabranch-feedback", daemon=True)
        self._spark_query = query
        self._runner = runner
        self._ends = ends
        self._stopped = threading.Event()
        self.problem: Exception | None = None

    def run(self) -> None:
        try:
            while self._spark_query.isActive and not self._stopped.wait(0.05):
                status = self._spark_query.status
                if not status["isTriggerActive"] and not status["isDataAvailable"]:
                    self._runner.drain()
            if self._ends and self._spark_query.exception() is None:
                while not self._stopped.is_set() and self._runner.drain():
                    pass
        except Exception as problem:
            self.problem = problem
            self._spark_query.stop()

    def stop(self) -> None:
        self._stopped.set()
        self.wait(None)

    def wait(self, timeout: float | None) -> bool:
        """Whether it has ended, after waiting at most so long."""
        if self.ident is not None and threading.current_thread() is not self:
            self.join(None if timeout is None else max(0.0, timeout))
        return not self.is_alive()
