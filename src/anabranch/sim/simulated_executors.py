"""Executors that come and go: the production's planner decides, the world grants, after a while.

    an epoch ends ─► ExecutorPlanner ─► more: hosts like the first, absent until they have come
                                     └► fewer: hosts that are absent from now on

On Spark this is `spark/cluster.py`, which asks between epochs, too, while nothing runs; here only epochs ask.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from anabranch.control.executor_planner import ExecutorBounds, ExecutorPlan, ExecutorPlanner, ExecutorState, SlotNeed
from anabranch.engine.driver.epoch_progress import ExecutorProgress
from anabranch.sim.hosts import SimulatedHost, slots_at
from anabranch.sim.virtual_time import VirtualClock


class SimulatedExecutors:
    """The executors of an application, one on each host.

    Parameters
    ----------
    hosts : sequence of SimulatedHost
        Those there are when it starts.
    bounds : ExecutorBounds, optional
        What the user allows; None: their number is left alone.
    coming_s : float
        How long one that was asked for takes to come.
    """

    def __init__(
        self, hosts: Sequence[SimulatedHost], bounds: ExecutorBounds | None, coming_s: float, clock: VirtualClock
    ) -> None:
        self._hosts = list(hosts)
        self._since_s = [clock.at_s] * len(self._hosts)
        self._gone: set[int] = set()
        self._bounds = bounds
        self._coming_s = coming_s
        self._clock = clock
        self._planner = ExecutorPlanner(len(self._hosts), self._hosts[0].slots)

    @property
    def hosts(self) -> Sequence[SimulatedHost]:
        """All that there ever were: numbers of hosts stay theirs."""
        return self._hosts

    def slots_now(self) -> int:
        """How many tasks run at once."""
        return slots_at(self._hosts, self._clock.at_s)

    def slots(self) -> int:
        """How many tasks run at once, or could soon."""
        reachable = 0 if self._bounds is None else self._bounds.executors_max * self._hosts[0].slots
        return max(self.slots_now(), reachable)

    def settled(self, need: SlotNeed) -> ExecutorProgress | None:
        """An epoch was committed, and the next one needs this; what its progress tells about executors."""
        if self._bounds is None:
            return None
        present = [
            ExecutorState(str(at), f"host-{at}", self._hosts[at].slots, int(1000 * self._since_s[at]), is_busy=False)
            for at in self._staying()
            if self._hosts[at].present_from(self._clock.at_s) == self._clock.at_s
        ]
        plan = self._planner.plan(self._clock.at_s, present, need, self._bounds, between_epochs=True)
        if plan is not None:
            self._follow(plan)
        here = len(present) - (0 if plan is None else len(plan.give_back))
        return ExecutorProgress(here, max(here, self._planner.target or 0), () if plan is None else plan.give_back)

    def _staying(self) -> list[int]:
        """Those that are here, lost for a while, or on their way."""
        return [at for at in range(len(self._hosts)) if at not in self._gone]

    def _follow(self, plan: ExecutorPlan) -> None:
        now_s = self._clock.at_s
        for identity in plan.give_back:
            self._leave(int(identity))
        # Of those that have not come yet, as many are called off as are not wanted any more: the last first.
        for at in reversed(self._staying()):
            if len(self._staying()) > plan.target and self._since_s[at] > now_s:
                self._leave(at)
        first = self._hosts[0]
        while len(self._staying()) < plan.target:
            came_s = now_s + self._coming_s
            self._hosts.append(dataclasses.replace(first, absent_s=((-math.inf, came_s),)))
            self._since_s.append(came_s)

    def _leave(self, at: int) -> None:
        self._gone.add(at)
        host = self._hosts[at]
        self._hosts[at] = dataclasses.replace(host, absent_s=(*host.absent_s, (self._clock.at_s, math.inf)))
