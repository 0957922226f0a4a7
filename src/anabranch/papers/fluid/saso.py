"""SASO as numbers: stability, accuracy, settling time and overshoot of any policy, on the fluid model.

reversals   direction changes of the number of channels, whole run
settled     period from which the number of channels never changes again (1: from the start)
accuracy    capacity at the end / the best of any fixed number of channels (or the load, if less)
overshoot   levels (the paper's series) above the fewest channels that would do for the highest load of
            the latest RECENT periods, because giving back is allowed patience; the worst of the run
handled     handled load / available load (or the best of any fixed number of channels, if less), without
            GRACE periods after the start and after each step
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Controller, Policy
from anabranch.control.levels import level_of
from anabranch.papers.fluid.pipeline import FluidPeriod, FluidPipeline, FluidRegion, Load

RECENT = 20
GRACE = 2
STEP_SHARE = 0.2  # a load change of this size from one period to the next is a step


@dataclass(frozen=True, slots=True)
class Run:
    """One region under one policy: the periods and the channels it had in each."""

    region: FluidRegion
    bounds: Bounds
    load: Load
    periods: tuple[FluidPeriod, ...]

    @property
    def channels(self) -> tuple[int, ...]:
        return tuple(period.observations[0].channels for period in self.periods)

    @property
    def reversals(self) -> int:
        return reversals(self.channels)

    @property
    def settled(self) -> int:
        final = self.channels[-1]
        return 1 + max((i for i, n in enumerate(self.channels, start=1) if n != final), default=0)

    @property
    def accuracy(self) -> float:
        wanted = min(self.region.best(self.bounds.channels_max), self.load(len(self.periods)))
        return min(1.0, self.region.capacity(self.channels[-1]) / wanted)

    @property
    def final_overshoot(self) -> int:
        """Overshoot of the last period alone: without the probes by which a limit is found."""
        needed = self.region.channels_needed(self.load(len(self.periods)), self.bounds.channels_max)
        return max(0, level_of(self.channels[-1]) - level_of(needed))

    @property
    def overshoot(self) -> int:
        loads = [self.load(period.period) for period in self.periods]
        worst = 0
        levels_needed: dict[float, int] = {}
        for i, n in enumerate(self.channels):
            highest = max(loads[max(0, i - RECENT) : i + 1])
            if highest not in levels_needed:
                needed = self.region.channels_needed(highest, self.bounds.channels_max)
                levels_needed[highest] = level_of(needed)
            worst = max(worst, level_of(n) - levels_needed[highest])
        return worst

    @property
    def handled(self) -> float:
        best = self.region.best(self.bounds.channels_max)
        counted = self._without_grace()
        return sum(period.handled for period in counted) / sum(min(best, period.load) for period in counted)

    def _without_grace(self) -> list[FluidPeriod]:
        kept = []
        step_at = 1
        for period in self.periods:
            now, before = self.load(period.period), self.load(max(1, period.period - 1))
            if abs(now - before) > STEP_SHARE * before:
                step_at = period.period
            if period.period >= step_at + GRACE:
                kept.append(period)
        return kept


def reversals(channels: tuple[int, ...]) -> int:
    """How often the number of channels changes direction."""
    rises = [after > before for before, after in pairwise(channels) if after != before]
    return sum(before != after for before, after in pairwise(rises))


def run(
    policy: Policy,
    region: FluidRegion,
    load: Load,
    periods: int,
    *,
    noise: float = 0.0,
    seed: int = 0,
    sink_rate: float = math.inf,
    backlog: bool = False,
) -> Run:
    """Let a policy control one region of the fluid model, from one channel (or minChannels) on."""
    generator = np.random.default_rng(seed)
    pipeline = FluidPipeline([region], load, noise=noise, generator=generator, sink_rate=sink_rate, backlog=backlog)
    controller = Controller(policy, log_length=1)
    history = []
    for _ in range(periods):
        period = pipeline.advance([controller.channels])
        history.append(period)
        controller.handle(period.observations[0])
    return Run(region, policy.bounds, load, tuple(history))
