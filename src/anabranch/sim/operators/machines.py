"""What calls run on in virtual time.

    SharedCores       so many cores for all that is runnable, in equal parts: a machine, with other programs on it
    SharedPermits     so many calls at a time, the others wait in line: work that sleeps under permits
    CrowdedService    every call begins at once and takes the longer the more are under way: a service behind a network

A second on `SharedCores` is one of a core that has nothing else to do; cores may be worth less when more threads than
cores share them (hyper-threading adds nothing to floating point work).
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable
from typing import Protocol

from anabranch.sim.operators.simulated_time import SimulatedTime


class Machine(Protocol):
    def begin(self, seconds: float, ended: Callable[[], None]) -> None:
        """Begin a call that takes so long if it is alone; tell when it has ended."""


class SharedCores:
    """Cores that are shared by all that is runnable.

    Parameters
    ----------
    cores : int
    switching : float
        Share of the cores' time that is lost for each runnable thread beyond their number.
    """

    def __init__(self, time: SimulatedTime, cores: int, switching: float = 0.0) -> None:
        self._time = time
        self._all = self._cores = float(cores)
        self._switching = switching
        # All that is runnable gets the same: so each ends when what everyone got reaches what it began with and needs.
        self._got = 0.0
        self._at = 0.0
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._changes = 0

    def occupy(self, cores: float) -> None:
        """Other programs keep so many of the cores to themselves from now on."""
        self._pass()
        self._cores = self._all - cores
        self._plan()

    def begin(self, seconds: float, ended: Callable[[], None]) -> None:
        self._pass()
        heapq.heappush(self._jobs, (self._got + seconds, next(self._numbers), ended))
        self._plan()

    def _speed(self) -> float:
        runnable = len(self._jobs)
        if runnable <= self._cores:
            return 1.0
        return self._cores / runnable * max(0.5, 1 - self._switching * (runnable - self._cores))

    def _pass(self) -> None:
        now = self._time.passing_s()
        self._got += (now - self._at) * self._speed()
        self._at = now

    def _plan(self) -> None:
        self._changes += 1
        if self._jobs:
            change = self._changes
            left = max(0.0, self._jobs[0][0] - self._got) / self._speed()
            self._time.after(left, lambda: self._end(change))

    def _end(self, change: int) -> None:
        if change != self._changes:
            return  # somebody came or went meanwhile
        self._pass()
        due, _, ended = heapq.heappop(self._jobs)
        self._got = max(self._got, due)
        self._plan()
        ended()


class SharedPermits:
    """So many calls at a time; who came first is next."""

    def __init__(self, time: SimulatedTime, permits: int) -> None:
        self._time = time
        self._free = permits
        self._waiting: deque[tuple[float, Callable[[], None]]] = deque()

    def change(self, permits: int) -> None:
        """So many more, or fewer: those in use are taken when they come back."""
        self._free += permits
        self._fill()

    def begin(self, seconds: float, ended: Callable[[], None]) -> None:
        self._waiting.append((seconds, ended))
        self._fill()

    def _fill(self) -> None:
        while self._free > 0 and self._waiting:
            self._free -= 1
            seconds, ended = self._waiting.popleft()
            self._time.after(seconds, lambda ended=ended: self._end(ended))  # type: ignore[misc]

    def _end(self, ended: Callable[[], None]) -> None:
        self._free += 1
        self._fill()
        ended()


class CrowdedService:
    """Calls that take the same up to a number of them, and beyond it longer than in proportion."""

    def __init__(self, time: SimulatedTime, best: int, loss: float = 0.5) -> None:
        self._time = time
        self.best = best
        """How many calls at a time give the most."""
        self._loss = loss
        self._under_way = 0

    def begin(self, seconds: float, ended: Callable[[], None]) -> None:
        self._under_way += 1
        crowd = max(1.0, self._under_way / self.best)

        def end() -> None:
            self._under_way -= 1
            ended()

        self._time.after(seconds * crowd ** (1 + self._loss), end)
