"""How long the tasks of an epoch take, and where they run: time passes here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from anabranch.sim.hosts import PlacedTask, SimulatedHost, next_present, placed, slots_at
from anabranch.sim.virtual_time import VirtualClock
from anabranch.sim.work_costs import WorkCosts


class JobTime:
    """Runs the stages of jobs on hosts, in virtual time.

    Parameters
    ----------
    hosts : callable
        The hosts there are: executors may come and go.
    chance : Generator
        For stragglers and noise.
    """

    def __init__(
        self,
        clock: VirtualClock,
        costs: WorkCosts,
        hosts: Callable[[], Sequence[SimulatedHost]],
        chance: np.random.Generator,
        straggler_share: float = 0.0,
        straggler_factor: float = 1.0,
        noise: float = 0.0,
    ) -> None:
        self.clock = clock
        self.costs = costs
        self._hosts = hosts
        self._chance = chance
        self._straggler_share = straggler_share
        self._straggler_factor = straggler_factor
        self._noise = noise

    def slots(self) -> int:
        """How many tasks run at once."""
        return max(1, slots_at(self._hosts(), self.clock.at_s))

    def plan(self) -> None:
        """A job is planned."""
        self.clock.pass_by(self.costs.plan_s)

    def stage(self, works_s: Sequence[float]) -> list[PlacedTask]:
        """The tasks of one depth run, from now on; when and where each of them did."""
        self.clock.pass_by(self.costs.stage_s)
        hosts = self._hosts()
        self.clock.wait_until(next_present(hosts, self.clock.at_s))
        works = np.array(works_s, dtype=float)
        if self._noise:
            works *= np.clip(self._chance.normal(1.0, self._noise, len(works)), 0.2, 5.0)
        if self._straggler_share:
            slow = self._chance.random(len(works)) < self._straggler_share
            works[slow] *= self._straggler_factor
        tasks = placed(works.tolist(), hosts, self.clock.at_s, self.costs.launch_s, self.costs.noticed_s)
        self.clock.wait_until(max((task.ended_s for task in tasks), default=self.clock.at_s))
        return tasks
