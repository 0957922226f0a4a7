"""Pools under a controller for a while, and what was seen of them: one rate and one level for each period."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.level_controller import LevelController
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.program.elastic import Concurrency
from anabranch.sim.operators.simulated_crew import SimulatedCrew
from anabranch.sim.operators.simulated_time import SimulatedTime

ENDLESS = range(1 << 62)


@dataclass
class Course:
    """What became of a pool: after each stretch of time, how many rows were done in it and the level at its end."""

    done: int = 0
    """Rows until now."""
    stretches: list[tuple[int, int]] = field(default_factory=list)

    def mean(self, first: int, last: int | None = None) -> float:
        """Rows for each stretch, over some of them."""
        some = [rows for rows, _ in self.stretches[first:last]]
        return sum(some) / len(some)

    @property
    def levels(self) -> list[int]:
        return [level for _, level in self.stretches]


class PinnedLevel:
    """A level that stays."""

    is_looking = False
    collapsed_below = 0.0
    is_settled = True
    log: tuple[Any, ...] = ()

    def __init__(self, level: int) -> None:
        self.level = level

    def handle(self, rate: float) -> None:
        """Whatever the rate."""

    def to_dict(self) -> dict[str, Any]:
        return {"level": self.level}

    def restore(self, memory: dict[str, Any]) -> None:
        """There is nothing to remember."""


class OperatorWorld:
    """Pools on machines of one time.

    Parameters
    ----------
    period_s : float
        How often levels are looked at, and how long a stretch of a `Course` is.
    """

    def __init__(self, period_s: float) -> None:
        self.time = SimulatedTime()
        self._period_s = period_s
        self._pools: list[tuple[Pool, Course, Sequence[Any], bool]] = []
        self._changes: list[tuple[float, Callable[[], None]]] = []

    def add(
        self,
        crew: SimulatedCrew,
        controller: LevelController,
        *,
        neighbours: Neighbours | None = None,
        rows: Sequence[Any] = ENDLESS,
        ordered: bool = True,
    ) -> tuple[Pool, Course]:
        """An operator that gets as many rows as it takes."""
        settings = Concurrency(period_s=self._period_s)
        pool = Pool(crew, crew.many, settings, controller, neighbours=neighbours, time=self.time)
        course = Course()
        self._pools.append((pool, course, rows, ordered))
        return pool, course

    def at(self, period: float, change: Callable[[], None]) -> None:
        """Something happens after so many periods."""
        self._changes.append((period * self._period_s, change))

    def run(self, periods: int) -> None:
        """Let so many periods pass."""
        for seconds, change in self._changes:
            self.time.after(seconds, change)
        for pool, course, _, _ in self._pools:
            self._watch(pool, course, 0)
        self.time.run([self._runs(*each) for each in self._pools], (periods + 1e-6) * self._period_s)

    def _watch(self, pool: Pool, course: Course, before: int) -> None:
        def look() -> None:
            course.stretches.append((course.done - before, pool.level))
            self._watch(pool, course, course.done)

        self.time.after(self._period_s, look)

    def _runs(self, pool: Pool, course: Course, rows: Sequence[Any], ordered: bool) -> Callable[[], None]:
        def body() -> None:
            with contextlib.closing(pool.run(rows, ordered=ordered)) as run:
                for _, results in run:
                    course.done += len(results)

        return body
