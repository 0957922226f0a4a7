"""Executors follow the channels: Spark is asked for more when channels outgrow the slots, and gets back what is idle.

    query ── begins, settled(need) ──┐
    query ── begins, settled(need) ──┼─► ApplicationExecutors ─► ExecutorPlanner (pure) ─► ClusterManager ─► Spark
    a thread, for when no epochs run ┘

Executors belong to the application, not to a query: all its queries say what they need, those with ``maxExecutors``
allow us to act, and one planner plans for all. It is asked at the end of an epoch and, when none run, by a thread, so
that a query to which nothing comes does not hold executors for ever. With dynamic allocation Spark does all this
itself, and in local mode there are no executors: then nothing here acts.

Spark's own interfaces have traps. ``requestExecutors(n)`` counts from what was *requested*, which is nothing without
dynamic allocation, so only totals are requested. ``killExecutors`` lowers the requested total, for the same reason
perhaps to zero, and then a lost executor would not be replaced: the total is requested again after it.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anabranch.control.executor_planner import (
    ExecutorBounds,
    ExecutorPlan,
    ExecutorPlanner,
    ExecutorState,
    SlotNeed,
)
from anabranch.engine.driver.epoch_progress import ExecutorProgress
from anabranch.spark.slots import executor_slots, has_dynamic_allocation, takes_requests

_log = logging.getLogger("anabranch")


class ClusterManager(Protocol):
    """What manages the executors."""

    def executors(self) -> list[ExecutorState]:
        """Those there are."""

    def request(self, total: int) -> bool:
        """Ask for so many in all; whether the request was taken, not whether it is granted."""

    def give_back(self, identities: Sequence[str]) -> bool:
        """Have these ended; whether the request was taken."""


class SparkClusterManager:
    """What manages the executors of a SparkContext, through its developer API."""

    def __init__(self, context: Any) -> None:
        self._gateway = context._jvm
        self._context = context._jsc.sc()
        self._task_cores = max(1, int(context.getConf().get("spark.task.cpus", "1")))

    def executors(self) -> list[ExecutorState]:
        # The status store is what Spark's REST API shows; no public interface has the identities of executors.
        shown = self._context.statusStore().executorList(True)
        found = []
        for at in range(shown.length()):
            each = shown.apply(at)
            identity = str(each.id())
            if identity != "driver":
                found.append(
                    ExecutorState(
                        identity=identity,
                        host=str(each.hostPort()).rpartition(":")[0],
                        slots=max(1, each.totalCores() // self._task_cores),
                        since_ms=each.addTime().getTime(),
                        is_busy=each.activeTasks() > 0 or each.rddBlocks() > 0,
                    )
                )
        return found

    def request(self, total: int) -> bool:
        nowhere_rather = self._gateway.PythonUtils.toScalaMap(self._gateway.java.util.HashMap())
        return bool(self._context.requestTotalExecutors(total, 0, nowhere_rather))

    def give_back(self, identities: Sequence[str]) -> bool:
        return bool(self._context.killExecutors(self._gateway.PythonUtils.toSeq(list(identities))))


class QueryExecutors:
    """The executors as one query sees them: says what it needs, is told what changes.

    Parameters
    ----------
    application : ApplicationExecutors
    bounds : ExecutorBounds, optional
        What the user of this query allows; None: it takes the executors as they are.
    tell : callable
        Told of every change, if bounds were given. Called from any thread.
    is_active : callable
        Whether the query runs; one that does not holds no executors.
    """

    def __init__(
        self,
        application: ApplicationExecutors,
        bounds: ExecutorBounds | None,
        tell: Callable[[ExecutorPlan], None] = lambda plan: None,
        is_active: Callable[[], bool] = lambda: True,
    ) -> None:
        self.bounds = bounds
        self.tell = tell
        self.need: SlotNeed | None = None
        self.in_epoch = False
        self.rests_since_s = 0.0
        self.is_active = is_active
        self._application = application

    def begins(self) -> None:
        """An epoch begins."""
        self._application.begins(self)

    def settled(self, need: SlotNeed) -> ExecutorProgress | None:
        """An epoch was committed; what its progress tells about executors."""
        return self._application.settled(self, need)

    def leave(self) -> None:
        """The query has ended. Executors stay as they are."""
        self._application.leave(self)


class ApplicationExecutors:
    """The executors of an application, for all its queries.

    Parameters
    ----------
    manager : ClusterManager
    planner : ExecutorPlanner
    clock : callable
        Seconds, only forward.
    """

    def __init__(
        self, manager: ClusterManager, planner: ExecutorPlanner, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._manager = manager
        self._planner = planner
        self._clock = clock
        # An epoch that begins waits for a step that is under way, so none begins while executors are given back.
        self._lock = threading.RLock()
        self._queries: list[QueryExecutors] = []
        self._looked_s = float("-inf")
        self._seen: SlotNeed | None = None
        self._shown: ExecutorProgress | None = None
        self._thread: threading.Thread | None = None

    # -- what queries say -----------------------------------------------------------------------------------

    def begins(self, query: QueryExecutors) -> None:
        with self._lock:
            query.in_epoch = True
            if query not in self._queries:  # a query that never gets so far holds no executors
                self._queries.append(query)
        self._look_if_due(float("inf"))

    def settled(self, query: QueryExecutors, need: SlotNeed) -> ExecutorProgress | None:
        with self._lock:
            query.in_epoch, query.need, query.rests_since_s = False, need, self._clock()
            bounds = self._bounds()
        self._look_if_due(_interval_s(bounds) if bounds is not None else float("inf"))
        with self._lock:
            shown = self._shown
            if shown is not None:
                self._shown = dataclasses.replace(shown, given_back=())
        return shown

    def leave(self, query: QueryExecutors) -> None:
        with self._lock:
            self._queries = [each for each in self._queries if each is not query]

    # -- what is done ---------------------------------------------------------------------------------------

    def step(self) -> ExecutorPlan | None:
        """Look at what there is and what is needed, and act; what was done."""
        with self._lock:
            self._queries = [each for each in self._queries if _is_active(each)]
            bounds = self._bounds()
            if bounds is None:
                return None
            try:
                plan = self._act(bounds)
            except Exception as problem:  # executors are a matter of speed: no query fails for them
                _log.warning("executors cannot follow the channels now: %s", problem)
                return None
            told = [query.tell for query in self._queries if query.bounds is not None]
        if plan is not None:
            for tell in told:
                tell(plan)
        return plan

    def _act(self, bounds: ExecutorBounds) -> ExecutorPlan | None:
        now_s, executors, before = self._clock(), self._manager.executors(), self._planner.target
        self._looked_s, self._seen = now_s, self._need(bounds)
        # A query whose first epoch has not ended has said nothing yet, and may need all there is.
        between = all(query.need is not None and not query.in_epoch for query in self._queries)
        plan = self._planner.plan(now_s, executors, self._seen, bounds, between)
        if plan is not None:
            try:
                taken = not plan.give_back or self._manager.give_back(plan.give_back)
                taken = self._manager.request(plan.target) and taken
            except Exception:
                self._planner.refused(now_s, plan, before, bounds)
                raise
            if not taken:
                self._planner.refused(now_s, plan, before, bounds)
                _log.warning("the cluster manager took no request for %d executors", plan.target)
                plan = None
        present = len(self._planner.staying(executors))
        before_back = () if self._shown is None else self._shown.given_back
        self._shown = ExecutorProgress(
            present,
            max(present, self._planner.target or 0),
            (*before_back, *(plan.give_back if plan is not None else ())),
        )
        return plan

    def _bounds(self) -> ExecutorBounds | None:
        """What the queries allow together: the one that allows most is not held back by another."""
        given = [query.bounds for query in self._queries if query.bounds is not None]
        if not given:
            return None
        return ExecutorBounds(
            max(each.executors_max for each in given),
            max(each.executors_min for each in given),
            max(each.patience_s for each in given),
        )

    def _need(self, bounds: ExecutorBounds) -> SlotNeed:
        need = SlotNeed(0, 0)
        for query in self._queries:
            # A query to which nothing came for so long needs no slots until it begins an epoch again.
            rests = not query.in_epoch and self._clock() - query.rests_since_s >= bounds.patience_s
            if query.need is not None:
                need += SlotNeed(0, 0, query.need.keeps_hosts) if rests else query.need
        return need

    def _look_if_due(self, interval_s: float) -> None:
        """Look if another number is needed than at the last look, or if that was so long ago.

        Looking takes a few calls for each executor: too many for every short epoch.
        """
        with self._lock:
            bounds = self._bounds()
            due = bounds is not None and (
                self._need(bounds) != self._seen or self._clock() - self._looked_s >= interval_s
            )
            if due and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._watch, name="anabranch-executors", daemon=True)
                self._thread.start()
        if due:
            self.step()

    def _watch(self) -> None:
        """Look now and then, also while no epochs run; until no query is left that allows anything."""
        while True:
            with self._lock:
                bounds = self._bounds()
            if bounds is None:
                return
            time.sleep(_interval_s(bounds))
            self.step()


def _is_active(query: QueryExecutors) -> bool:
    try:
        return query.is_active()
    except Exception:  # Spark has been stopped, and cannot even say that
        return False


def _interval_s(bounds: ExecutorBounds) -> float:
    return min(5.0, max(0.2, bounds.patience_s / 10))


_applications: dict[str, ApplicationExecutors] = {}
_applications_lock = threading.Lock()


def executors_of(
    context: Any,
    bounds: ExecutorBounds | None,
    tell: Callable[[ExecutorPlan], None],
    is_active: Callable[[], bool] = lambda: True,
) -> QueryExecutors | None:
    """A new query's view of the executors of its SparkContext; None where they are not ours to manage."""
    if not takes_requests(context):
        if bounds is not None and has_dynamic_allocation(context):
            _log.warning("maxExecutors has no effect: Spark's dynamic allocation manages the executors")
        return None
    with _applications_lock:
        known = _applications.get(context.applicationId)
        if known is None:
            _applications.clear()  # a process has one SparkContext at a time: the others are stopped
            initial = int(context.getConf().get("spark.executor.instances", "0"))
            planner = ExecutorPlanner(initial, executor_slots(context))
            known = ApplicationExecutors(SparkClusterManager(context), planner)
            _applications[context.applicationId] = known
    return QueryExecutors(known, bounds, tell, is_active)
