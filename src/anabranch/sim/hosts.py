"""Hosts, and which task runs where and when: list scheduling, as Spark does it.

    slots of host 0   ├─ task 0 ──┤├─ task 4 ─┤                    a task goes to the slot that is free first
    slots of host 0   ├─ task 1 ─────┤
    slots of host 1   ├─ task 2 ──✗                                the host is lost: the task begins anew elsewhere
    slots of host 1   ├─ task 3 ─┤├── task 2 ──┤                   …

The stages of a job run one after the other, so a stage is scheduled by itself: its tasks, from the moment it begins.
Launching a task takes the driver some time, and tasks are launched one by one.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SimulatedHost:
    """A host with one executor."""

    slots: int = 4
    speed: float = 1.0
    """How much faster than the one that costs were measured on."""
    absent_s: tuple[tuple[float, float], ...] = ()
    """When it is lost and when it is there again, in seconds since the world began."""

    def __post_init__(self) -> None:
        if self.slots < 1 or self.speed <= 0:
            raise ValueError(f"a host has a slot or more and a speed above 0, found {self}")

    def lost_between(self, start_s: float, end_s: float) -> float | None:
        """When it is lost within a time, if it is."""
        return min((lost for lost, _ in self.absent_s if start_s < lost < end_s), default=None)

    def present_from(self, at_s: float) -> float:
        """When it is there, from a moment on: that moment, or the end of its absence."""
        for lost, back in sorted(self.absent_s):
            if lost <= at_s < back:
                at_s = back
        return at_s


@dataclass(frozen=True, slots=True)
class PlacedTask:
    """Where a task ran, in the attempt that counts."""

    host: int
    began_s: float
    ended_s: float
    attempts: int


def placed(
    works_s: Sequence[float],
    hosts: Sequence[SimulatedHost],
    begin_s: float,
    launch_s: float = 0.0,
    noticed_s: float = 0.0,
) -> list[PlacedTask]:
    """Run the tasks of a stage.

    Parameters
    ----------
    works_s
        What each task takes on a host of speed 1.
    begin_s
        When the stage begins.
    launch_s
        What launching a task takes the driver.
    noticed_s
        How long it takes until the loss of a host is noticed.

    Examples
    --------
    >>> [task.ended_s for task in placed([3, 1, 1], [SimulatedHost(slots=2)], 10.0)]
    [13.0, 11.0, 12.0]
    """
    free: list[tuple[float, int, int]] = []
    for number, host in enumerate(hosts):
        at_s = host.present_from(begin_s)
        free += [(at_s, slot, number) for slot in range(host.slots)]
    # Slots of one moment are taken host by host in turn: Spark spreads a stage over its executors.
    heapq.heapify(free)
    waiting = deque((number, begin_s, 1) for number in range(len(works_s)))
    launched_s = begin_s
    done: list[PlacedTask | None] = [None] * len(works_s)
    while waiting:
        task, ready_s, attempt = waiting.popleft()
        free_s, slot, number = heapq.heappop(free)
        host = hosts[number]
        launched_s = max(launched_s + launch_s, ready_s, free_s)
        began_s = host.present_from(launched_s)
        if began_s > launched_s:  # lost while its slot was idle
            heapq.heappush(free, (began_s, slot, number))
            waiting.appendleft((task, ready_s, attempt))
            launched_s -= launch_s
            continue
        ended_s = began_s + works_s[task] / host.speed
        lost_s = host.lost_between(began_s, ended_s)
        if lost_s is None:
            done[task] = PlacedTask(number, began_s, ended_s, attempt)
            heapq.heappush(free, (ended_s, slot, number))
        else:
            heapq.heappush(free, (host.present_from(lost_s), slot, number))
            waiting.append((task, lost_s + noticed_s, attempt + 1))
    return [task for task in done if task is not None]


def slots_at(hosts: Sequence[SimulatedHost], at_s: float) -> int:
    """How many tasks run at once at a moment."""
    return sum(host.slots for host in hosts if host.present_from(at_s) == at_s)


def next_present(hosts: Sequence[SimulatedHost], at_s: float) -> float:
    """From when on there is a host."""
    return min((host.present_from(at_s) for host in hosts), default=math.inf)
