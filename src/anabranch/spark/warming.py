"""An executor that came later loads what channels need before a channel is asked to run there.

The first task of an executor starts a Python worker, loads this library, and has the JVM load and compile what Spark
needs for it: seconds on a quiet machine, tens of them on a busy one, for all of which an epoch waits. So a small job of
the same form is run there first. It has a slot meanwhile, so other tasks of epochs run elsewhere, too; the executor
counts when the job has ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from anabranch.control.executor_planner import ExecutorState

_log = logging.getLogger("anabranch")
# What takes longer has gone wrong: then the executor is asked as it is.
_WARMING_S_MAX = 60.0
_AT_ONCE = 4


class Warming:
    """Knows which executors are ready.

    Parameters
    ----------
    warm : callable
        Runs the small job on an executor; returns when it has ended.
    clock : callable
        Seconds, only forward.
    """

    def __init__(self, warm: Callable[[ExecutorState], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._warm = warm
        self._clock = clock
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="anabranch-warming")
        self._begun: dict[str, tuple[float, Future[None] | None]] | None = None  # executor → since when; None: ready

    def ready(self, executors: Sequence[ExecutorState]) -> list[ExecutorState]:
        """Those of them that channels may be asked to run on: all of the first call, later ones when they are warm.

        If none is, all are.
        """
        begun = self._begun
        if begun is None:  # what is there when a query starts warms up with its first epoch
            begun = {each.identity: (0.0, None) for each in executors}
        found = {}
        for each in executors:
            found[each.identity] = begun.get(each.identity) or (
                self._clock(),
                self._threads.submit(self._warmed, each),
            )
        self._begun = found
        ready = [each for each in executors if self._is_ready(*found[each.identity])]
        return ready or list(executors)

    def _is_ready(self, since_s: float, job: Future[None] | None) -> bool:
        return job is None or job.done() or self._clock() - since_s > _WARMING_S_MAX

    def _warmed(self, executor: ExecutorState) -> None:
        try:
            self._warm(executor)
        except Exception as problem:  # it may be gone again; and no epoch needs this
            _log.debug("executor %s was not warmed up: %s", executor.identity, problem)
