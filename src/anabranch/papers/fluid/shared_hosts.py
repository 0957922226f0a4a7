"""Several regions on one host: each with its own controller, and all with the same cores.

    regions: loads, channels ──► cores / channels that have work = what each of them has ──► each region's policy

A region's capacity falls when another one grows, and rises when it gives channels back: no measurement says why. The
truth is judged over all regions: tuples handled over those that the best division of the cores would have handled.

As in the product a region has at most as many channels as there are cores, unless told otherwise (`most`). Without that
bound two regions that never have enough take the cores from each other by ever more channels: each gains by what
costs both, and no measurement of its own tells a region so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Controller, Policy
from anabranch.control.observation import Observation
from anabranch.papers.fluid.traces import (
    PERIODS,
    RATE,
    SETTLING,
    Outcome,
    Rate,
    always,
    bursts,
    noisy,
    reversals_of,
    share_of,
    step,
)


@dataclass(frozen=True, slots=True)
class SharedHost:
    """Regions that share the cores of a host."""

    name: str
    cores: int
    loads: tuple[Rate, ...]
    """Of every region."""
    noise: float = 0.01
    steady_from: int | None = 1
    """Period from which on no load changes; None: they always do."""
    crosstalk: float = 0.0
    """What every channel beyond the cores takes of the whole, as a share: switching between tasks is not free."""
    most: int | None = None
    """Channels that a region may have, if a user allows more than there are cores (``maxChannels``)."""
    periods: int = PERIODS

    @property
    def bounds(self) -> Bounds:
        return Bounds(1, self.most or self.cores)

    def left(self, channels: Sequence[int], loads: Sequence[float]) -> float:
        """The share of a core that a channel with enough to do has: one that idles leaves its share to the others."""
        wanted = sorted((min(1.0, load / (RATE * n)), n) for n, load in zip(channels, loads, strict=True))
        cores, busy = float(self.cores), sum(channels)
        share = 1.0
        for want, n in wanted:
            share = min(1.0, cores / busy)
            if want >= share:
                break
            cores, busy = cores - want * n, busy - n
        beyond = max(0, sum(channels) - self.cores)
        return (share if busy else 1.0) * (1 - self.crosstalk) ** beyond


def follow_shared(make: Callable[[Bounds], Policy], host: SharedHost, seed: int) -> Outcome:
    """Let a policy of its own control each region, from one channel on."""
    draw = np.random.default_rng(seed)
    controllers = [Controller(make(host.bounds), log_length=1) for _ in host.loads]
    channels: list[tuple[int, ...]] = []
    handled, best = [], []
    for period in range(1, host.periods + 1):
        now = tuple(controller.channels for controller in controllers)
        loads = [load_of(period) * noisy(draw, host.noise) for load_of in host.loads]
        rate = RATE * host.left(now, loads)
        done_all = load_all = 0.0
        for controller, n, load in zip(controllers, now, loads, strict=True):
            capacity = rate * n * noisy(draw, host.noise)
            done = min(load, capacity)
            controller.handle(
                Observation(
                    period=period,
                    channels=n,
                    throughput=done,
                    congestion=1.0 - done / load if load > 0 else 0.0,
                    busy_share=min(1.0, done / capacity),
                    relative_error=host.noise,
                    valid=done > 0,
                )
            )
            done_all, load_all = done_all + done, load_all + load
        channels.append(now)
        handled.append(done_all)
        best.append(min(load_all, RATE * host.cores))
    steady = None if host.steady_from is None else host.steady_from - 1 + SETTLING
    return Outcome(
        share_of(handled, best),
        None if steady is None else share_of(handled[steady:], best[steady:]),
        None if steady is None else max(reversals_of(each[steady:]) for each in zip(*channels, strict=True)),
        tuple(sum(now) for now in channels),
    )


def shared_hosts() -> list[SharedHost]:
    """All families."""
    return [
        SharedHost("two regions, room for both", 16, (always(5000), always(6000))),
        SharedHost("two regions, no room", 8, (always(6000), always(6000)), crosstalk=0.01),
        SharedHost("two regions, one always full", 12, (always(1e6), always(4000)), crosstalk=0.01),
        SharedHost("two regions, no room, four channels a core", 8, (always(6000),) * 2, crosstalk=0.01, most=32),
        SharedHost("one always full, nearly three a core", 12, (always(1e6), always(4000)), crosstalk=0.01, most=32),
        SharedHost(
            "three regions, one comes later", 16, (always(4000), always(4000), step(300, 5000)), steady_from=100
        ),
        SharedHost(
            "two regions in turn", 12, (bursts(1000, 8000, 60, 60), bursts(8000, 1000, 60, 60)), steady_from=None
        ),
        SharedHost("two regions, noise 5 %", 16, (always(5000), always(6000)), noise=0.05),
    ]
