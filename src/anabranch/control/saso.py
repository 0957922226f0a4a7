"""SASO as numbers: stability, accuracy, settling time and overshoot of any policy, on the fluid model.

    reversals   direction changes of the number of channels, whole run
    settled     period from which the number of channels never changes again (1: from the start)
    accuracy    capacity at the end / the best any fixed number of channels has (or the load, if that is less)
    overshoot   levels (the paper's series) above the fewest channels that would do; the fewest for the highest load
                of the latest RECENT periods, because giving back is allowed patience
    handled     handled / available load (or the best any fixed number of channels can do), without GRACE periods after the start and after each step
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Controller, Policy
from anabranch.control.fluid import FluidPeriod, FluidPipeline, FluidRegion, Load
from anabranch.control.levels import level_of

RECENT = 20
GRACE = 2


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
        moves = [after - before for before, after in zip(self.channels, self.channels[1:], strict=False)]
        directions = [move > 0 for move in moves if move != 0]
        return sum(a != b for a, b in zip(directions, directions[1:], strict=False))

    @property
    def settled(self) -> int:
        final = self.channels[-1]
        return 1 + max((i for i, n in enumerate(self.channels, start=1) if n != final), default=0)

    @property
    def accuracy(self) -> float:
        wanted = min(self.region.best(self.bounds.channels_max), self.load(len(self.periods)))
        return min(1.0, self.region.capacity(self.channels[-1]) / wanted)

    @property
    def overshoot(self) -> int:
        loads = [self.load(period.period) for period in self.periods]
        worst = 0
        for i, n in enumerate(self.channels):
            highest = max(loads[max(0, i - RECENT) : i + 1])
            needed = self.region.channels_needed(highest, self.bounds.channels_max)
            worst = max(worst, level_of(n) - level_of(needed))
        return worst

    @property
    def handled(self) -> float:
        counted = self._counted()
        best = self.region.best(self.bounds.channels_max)
        return sum(period.handled for period in counted) / sum(min(best, period.load) for period in counted)

    def _counted(self) -> list[FluidPeriod]:
        kept = []
        last_change = 1
        for period in self.periods:
            now, before = self.load(period.period), self.load(max(1, period.period - 1))
            if abs(now - before) > 0.2 * before:
                last_change = period.period
            if period.period >= last_change + GRACE:
                kept.append(period)
        return kept


def run(
    policy: Policy,
    region: FluidRegion,
    load: Load,
    periods: int,
    *,
    noise: float = 0.0,
    seed: int = 0,
    sink_rate: float = float("inf"),
    backlog: bool = False,
) -> Run:
    """Let a policy control one region of the fluid model."""
    generator = np.random.default_rng(seed)
    pipeline = FluidPipeline(
        [region], load, noise=noise, generator=generator, sink_rate=sink_rate, backlog=backlog
    )
    controller = Controller(policy)
    history = []
    for _ in range(periods):
        period = pipeline.advance([controller.channels])
        history.append(period)
        controller.handle(period.observations[0])
    return Run(region, policy.bounds, load, tuple(history))


PolicyFactory = Callable[[Bounds], Policy]


def runs(
    make: PolicyFactory,
    bounds: Bounds,
    region: FluidRegion,
    load: Load,
    periods: int,
    noise: float,
    seeds: Sequence[int],
) -> list[Run]:
    return [run(make(bounds), region, load, periods, noise=noise, seed=seed) for seed in seeds]
