"""The handle of a running query, with Spark's names."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from anabranch.api.events import Decided, EpochEnded, ExecutorsChanged, Listener, Listeners, Rescaled
from anabranch.compiler.plan import Plan
from anabranch.control import Decision
from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.control.executor_planner import ExecutorPlan
    from anabranch.engine.driver.epoch_progress import EpochProgress
    from anabranch.engine.driver.scaling import RegionStatus
    from anabranch.spark.assemble import QueryDescription

_PROGRESS_KEPT = 100


class StreamingQuery:
    """A query that runs. Made by ``stream.writeStream.….start()``."""

    def __init__(self, spark: SparkSession, wanted: QueryDescription, listeners: Iterable[Listener] = ()) -> None:
        from anabranch.engine.driver.setup import Observer
        from anabranch.spark.assemble import start

        self._progress: deque[EpochProgress] = deque(maxlen=_PROGRESS_KEPT)
        self._listeners = Listeners(listeners)
        self.sinks = list(wanted.sinks)
        self._columns = wanted.options.columns
        observer = Observer(self._ended, lambda region, decision: self._listeners.tell(Decided(region, decision)))
        started = start(spark, wanted, observer, self._follow)
        self._query, self._runner, self._drain = started.query, started.runner, started.drain
        self._executors = started.executors
        self._plans = started.plans
        self.changes = started.changes
        self._explain = started.explain

    @property
    def plan(self) -> Plan:
        """What is run: the program as written or, where that pays, in another form that gives the same."""
        return self._plans[self._runner.form]

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
            elif not self._query.awaitTermination(max(0.001, until - time.monotonic())):
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

    def explain(self, form: str = "text", extended: bool = False) -> None:
        """Print what runs and why, with what is decided now: channels, who merges; as text, json, mermaid or svg.

        With `extended`, as text or json, also the code that is generated for each operator, and the columns that are
        read and sent.
        """
        from anabranch.api.explaining import explained

        print(explained(self.plan, form, extended, self._runner.current.running(), self._columns))

    # -- elasticity ---------------------------------------------------------------------------------------

    @property
    def regions(self) -> list[RegionStatus]:
        """The stages with channels, as `explain` and progress name them: how many channels each has,
        within which bounds, pinned or not, and what was asked by hand."""
        return self._runner.regions

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
        self._runner.rescale(region, channels)

    def decisions(self, region: str) -> tuple[Decision, ...]:
        """The latest decisions of a region's controller, oldest first: inputs, what it remembered, branch, reason.

        ``print(decision.describe())`` says it in a line.
        """
        return self._runner.decisions(region)

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
        """Our own error, if one was the cause or can tell it, instead of Spark's."""
        failure: AnabranchError | None = self._runner.failure
        if failure is not None or isinstance(problem, AnabranchError):
            return failure or problem
        return self._explain(problem)

    def __repr__(self) -> str:
        return f"StreamingQuery({json.dumps({'id': self.id, 'name': self.name, 'active': self.isActive})})"
