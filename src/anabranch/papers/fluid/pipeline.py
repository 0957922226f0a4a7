"""A fluid model of regions under load: what controllers are developed, measured and compared on.

A region with N channels has the capacity ``channel_rate · speed_up(N)``. Per adaptation period

    source (load) ──► region 1 ──► region 2 ──► … ──► sink (sink_rate)

every part lets through at most its capacity, so the throughput is the smallest of them all and the load.
The source is paced: what is not handled is held back at the source, not stored (``backlog=True`` stores it,
as Kafka does). In the real world a splitter that is held back blocks; here that is

    congestion of a region = 1 − throughput / what its upstream could deliver

whoever is to blame: like the paper's splitter, it cannot tell its own channels from a slow sink. Its busy
share, throughput / its own capacity, can. Noise is multiplicative on load and capacities, per period,
independent, plus a fifth of it on the congestion index. All randomness comes from the given generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.control.observation import Observation

SpeedUp = Callable[[int], float]
Load = Callable[[int], float]

NOISE_SIGMA_MAX = 3.0  # a measurement can be off, not absurd; also keeps rates positive


def linear() -> SpeedUp:
    return lambda channels: float(channels)


def amdahl(serial_share: float) -> SpeedUp:
    return lambda channels: 1.0 / (serial_share + (1.0 - serial_share) / channels)


def flat_after(knee: int) -> SpeedUp:
    """Linear until the cores are used up, then nothing more."""
    return lambda channels: float(min(channels, knee))


def falling_after(peak: float, contention: float = 0.0) -> SpeedUp:
    """Retrograde: Gunther's universal scalability law with its maximum at `peak` channels."""
    coherence = (1.0 - contention) / peak**2
    return lambda n: n / (1.0 + contention * (n - 1) + coherence * n * (n - 1))


def fixed_cost(fixed_share: float, per_channel_share: float) -> SpeedUp:
    """Epochs that last fixed + per channel · n + work / n, the first two as shares of the work: jobs of Spark."""
    alone = fixed_share + per_channel_share + 1.0
    return lambda channels: alone / (fixed_share + per_channel_share * channels + 1.0 / channels)


def constant(rate: float) -> Load:
    return lambda period: rate


def sine(mean: float, amplitude: float, length: int) -> Load:
    return lambda period: mean + amplitude * math.sin(2 * math.pi * period / length)


def steps(rates: Sequence[float], lengths: Sequence[int]) -> Load:
    """Each rate for so many periods, over and over."""

    def load(period: int) -> float:
        rest = (period - 1) % sum(lengths)
        for rate, length in zip(rates, lengths, strict=True):
            if rest < length:
                return rate
            rest -= length
        raise AssertionError("the remainder is below the sum of the lengths")

    return load


@dataclass(frozen=True, slots=True)
class FluidRegion:
    """What a region can do: tuples per second of one channel, and how channels add up."""

    channel_rate: float
    speed_up: SpeedUp

    def capacity(self, channels: int) -> float:
        return self.channel_rate * self.speed_up(channels)

    def best(self, channels_max: int) -> float:
        """The highest capacity any fixed number of channels has."""
        return max(self.capacity(n) for n in range(1, channels_max + 1))

    def channels_needed(self, load: float, channels_max: int) -> int:
        """The fewest channels that handle the load; if none does, the fewest with 99 % of the best."""
        enough = min(load, 0.99 * self.best(channels_max))
        return next(n for n in range(1, channels_max + 1) if self.capacity(n) >= enough)


@dataclass(frozen=True, slots=True)
class FluidPeriod:
    """One period: the truth, and what each region's controller is told."""

    period: int
    load: float
    handled: float
    observations: tuple[Observation, ...]


class FluidPipeline:
    """Regions in series between a source and a sink; `advance` runs one adaptation period."""

    def __init__(
        self,
        regions: Sequence[FluidRegion],
        load: Load,
        *,
        sink_rate: float = math.inf,
        noise: float = 0.0,
        generator: np.random.Generator | None = None,
        backlog: bool = False,
    ) -> None:
        if noise > 0 and generator is None:
            raise ValueError("a noisy model needs a seeded generator")
        self._regions = tuple(regions)
        self._load = load
        self._sink_rate = sink_rate
        self._noise = noise
        self._generator = generator
        self._backlog: float | None = 0.0 if backlog else None
        self._period = 0

    def advance(self, channels: Sequence[int]) -> FluidPeriod:
        """Run one period with so many channels per region."""
        self._period += 1
        load = self._load(self._period) * self._factor()
        capacities = [region.capacity(n) * self._factor() for region, n in zip(self._regions, channels, strict=True)]
        available = load + (self._backlog or 0.0)
        handled = min(available, self._sink_rate, *capacities)
        if self._backlog is not None:
            self._backlog = available - handled
        observations = []
        deliverable = available
        for capacity, n in zip(capacities, channels, strict=True):
            blocked = 1.0 - handled / deliverable if deliverable > 0 else 0.0
            observations.append(
                Observation(
                    period=self._period,
                    channels=n,
                    throughput=handled,
                    congestion=min(1.0, max(0.0, blocked + self._noise / 5 * self._standard())),
                    busy_share=min(1.0, handled / capacity),
                    offered=None if self._backlog is None else load,
                    relative_error=self._noise,
                    valid=handled > 0,
                )
            )
            deliverable = min(deliverable, capacity)
        return FluidPeriod(self._period, load, handled, tuple(observations))

    def _standard(self) -> float:
        if self._generator is None or self._noise == 0:
            return 0.0
        return max(-NOISE_SIGMA_MAX, min(NOISE_SIGMA_MAX, float(self._generator.standard_normal())))

    def _factor(self) -> float:
        return 1.0 + self._noise * self._standard()
