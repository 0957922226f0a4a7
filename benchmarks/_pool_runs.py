"""Pools under measurement: work that costs something, pinned levels, runs for a while."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from anabranch.control.concurrency_controller import ConcurrencyController
from anabranch.control.operator_levels import PaperLevels
from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.engine.pool.thread_crew import ThreadCrew
from anabranch.program.elastic import Concurrency
from anabranch.sim.operators.operator_world import PinnedLevel


class Permits:
    """Work that stands for a number of cores: a sleep under one of so many permits. Their number may change.

    Whoever waits longest is next, as a scheduler has it; `threading.Semaphore` would let some wait for ever.
    """

    def __init__(self, permits: int, seconds: float) -> None:
        self._lock = threading.Lock()
        self._free = permits
        self._waiting: deque[threading.Lock] = deque()
        self.seconds = seconds

    def __call__(self, row: Any) -> Any:
        self._acquire()
        try:
            time.sleep(self.seconds)
        finally:
            self._release()
        return row

    def _acquire(self) -> None:
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        turn.acquire()

    def _release(self) -> None:
        with self._lock:
            self._free += 1
            while self._free > 0 and self._waiting:
                self._free -= 1
                self._waiting.popleft().release()

    def take(self, count: int) -> None:
        """Another program occupies so many cores."""
        with self._lock:
            self._free -= count

    def give_back(self, count: int) -> None:
        for _ in range(count):
            self._release()


def floating_point(operations: int) -> Callable[[Any], Any]:
    """A function of so many floating point operations: in numpy, which leaves the interpreter for them."""
    if operations < 10:
        return lambda row: row * 1.5
    numbers = np.ones(operations)
    return lambda row: float(np.multiply(numbers, 1.5).sum())


def pool_for(
    function: Callable[[Any], Any], controller: Any, period_s: float, neighbours: Neighbours | None = None
) -> Pool:
    """A pool of threads that call a function."""

    def many(rows: Any, results: list[Any]) -> None:
        append = results.append
        for row in rows:
            append(function(row))

    return Pool(ThreadCrew(many), many, Concurrency(period_s=period_s), controller, neighbours=neighbours)


def default_levels(most: int = 128, least: int = 0) -> ConcurrencyController:
    return ConcurrencyController(least, most)


def paper_levels(most: int = 128) -> PaperLevels:
    return PaperLevels(most)


class Running:
    """A pool that gets as many rows as it takes, until it is stopped; what it did can be asked meanwhile."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.done = 0
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with contextlib.closing(self.pool.run(range(1 << 62))) as run:
            for _, results in run:
                self.done += len(results)
                if self._stop:
                    return

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop = True
        self._thread.join(60)
        self.pool.close()

    def rate(self, seconds: float) -> float:
        """Results per second, over the next so many seconds."""
        before, begun = self.done, time.perf_counter()
        time.sleep(seconds)
        return (self.done - before) / (time.perf_counter() - begun)


class Slices:
    """A pool that gets as many rows as it takes for a while, again and again; what it learnt stays, as on Spark."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.done: list[float] = []
        """Results per second of each slice."""

    def run(self, seconds: float) -> None:
        """Run for so many seconds."""
        count, begun = 0, time.perf_counter()
        passed = 0.0
        with contextlib.closing(self.pool.run(range(1 << 62))) as run:
            for _, results in run:
                count += len(results)
                passed = time.perf_counter() - begun
                if passed >= seconds:
                    break
        self.done.append(count / passed)


@contextlib.contextmanager
def fixed(function: Callable[[Any], Any], level: int) -> Iterator[Running]:
    """A pool with a level that stays."""
    with Running(pool_for(function, PinnedLevel(level), 1.0)) as running:
        yield running
