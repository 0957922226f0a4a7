"""How a region's capacity grows with its channels: a law, fitted to the capacities measured so far.

Two laws, both in terms of the *cost of a tuple* n / capacity(n), channel-seconds, which is a constant where
channels add up:

    smooth   n / c(n) = a + b · (n − 1) + k · n · (n − 1)      Gunther's universal scalability law
    knee     n / c(n) = max(a, n / f)                          linear until something else is used up

The smooth law has a peak if k > 0. Linear regions (b = k = 0) and Amdahl's (k = 0) are of it, and so is a job
that pays per epoch: a time of fixed + per channel · n + work / n is, times n, the same polynomial. The knee is
what a fixed number of cores does.

Few points with noise fit anything, so parameters must earn their place: each law with fewer parameters is tried
as well, and the one with the least χ² + 2 · parameters (Akaike) wins, χ² in units of the measurement error. What is
not bent beyond noise counts as linear, and more channels are tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from anabranch.control.capacity_memory import Capacity

ERROR_MIN = 0.01  # no region follows a law more closely than this
PENALTY = 2.0  # Akaike's, per parameter
DOUBT = 9.0  # a law that scores worse by less may be the true one: three standard errors of one point
SHAPES = ((0,), (0, 1), (0, 2), (0, 1, 2))  # of the smooth law: which of a, b, k are there


@dataclass(frozen=True, slots=True)
class ScalingLaw:
    """A fitted law: capacity as a function of channels."""

    start: float
    """Cost of a tuple with one channel: a."""
    contention: float = 0.0
    """b: what channels wait for one another's turn."""
    coherence: float = 0.0
    """k: what every pair of channels costs."""
    flat: float = math.inf
    """f: capacity that no number of channels exceeds."""

    def capacity(self, channels: float) -> float:
        smooth = self.start + self.contention * (channels - 1) + self.coherence * channels * (channels - 1)
        return min(channels / smooth, self.flat)

    def worthwhile(self, channels_max: int, gain_min: float) -> int:
        """The most channels that still pay: up to there capacity grows at a rate of `gain_min` per doubling."""
        return _worthwhile(self.capacity, channels_max, gain_min)


@dataclass(frozen=True, slots=True)
class ScalingLaws:
    """The laws that may be: those not much worse than the best, with Akaike's weights."""

    weighted: tuple[tuple[float, ScalingLaw], ...]
    misfit: float = 0.0
    """By how much the best of them misses what was measured, at worst, as a share."""

    def capacity(self, channels: float) -> float:
        """The mean of what the laws say."""
        return sum(weight * law.capacity(channels) for weight, law in self.weighted)

    def worthwhile(self, channels_max: int, gain_min: float) -> int:
        """The most channels that still pay, by the mean of the laws."""
        return _worthwhile(self.capacity, channels_max, gain_min)

    @property
    def laws(self) -> list[ScalingLaw]:
        return [law for _, law in self.weighted]


def _worthwhile(capacity: Callable[[float], float], channels_max: int, gain_min: float) -> int:
    exponent = math.log2(1.0 + gain_min)
    channels = 1
    while channels < channels_max and capacity(channels + 1) >= capacity(channels) * (1 + 1 / channels) ** exponent:
        channels += 1
    return channels


def fit(capacities: Sequence[Capacity], relative_error: float) -> ScalingLaws | None:
    """The laws that explain what was measured; None if nothing was.

    Parameters
    ----------
    capacities
        Measured while saturated, one per number of channels.
    relative_error
        Standard error of one sample.
    """
    known = sorted((c for c in capacities if c.throughput > 0), key=lambda c: c.channels)
    if not known:
        return None
    channels = np.array([c.channels for c in known], dtype=float)
    costs = channels / np.array([c.throughput for c in known])
    samples = np.array([c.samples for c in known], dtype=float)
    errors = np.sqrt(ERROR_MIN**2 + relative_error**2 / samples)
    found = [law for shape in SHAPES if (law := _smooth(shape, channels, costs, errors)) is not None]
    found += [_knee(split, channels, costs, errors) for split in range(1, len(known))]
    best, closest = min(found, key=lambda scored: scored[0])
    lawful = np.array([closest.capacity(n) for n in channels.tolist()])
    misfit = float(np.abs(lawful * costs / channels - 1.0).max())
    weighted = [(math.exp((best - score) / 2), law) for score, law in found if score <= best + DOUBT]
    total = sum(weight for weight, _ in weighted)
    return ScalingLaws(tuple((weight / total, law) for weight, law in weighted), misfit)


def _smooth(
    shape: tuple[int, ...], channels: np.ndarray, costs: np.ndarray, errors: np.ndarray
) -> tuple[float, ScalingLaw] | None:
    if len(shape) > len(channels):
        return None
    columns = np.stack([np.ones_like(channels), channels - 1, channels * (channels - 1)], axis=1)[:, shape]
    weights = 1.0 / (costs * errors)
    solution = np.linalg.lstsq(columns * weights[:, None], costs * weights, rcond=None)[0]
    if solution[0] <= 0 or (solution < 0).any():
        return None  # faster than linear: a constant is what comes closest
    parameters = dict(zip(shape, map(float, solution), strict=True))
    law = ScalingLaw(parameters[0], parameters.get(1, 0.0), parameters.get(2, 0.0))
    return _score(law, len(shape), channels, costs, errors), law


def _knee(split: int, channels: np.ndarray, costs: np.ndarray, errors: np.ndarray) -> tuple[float, ScalingLaw]:
    """The first `split` points are linear, the others flat."""
    weights = errors**-2.0
    start = float(np.average(costs[:split], weights=weights[:split]))
    flat = float(np.average(channels[split:] / costs[split:], weights=weights[split:]))
    law = ScalingLaw(start, flat=flat)
    return _score(law, 2, channels, costs, errors), law


def _score(law: ScalingLaw, parameters: int, channels: np.ndarray, costs: np.ndarray, errors: np.ndarray) -> float:
    lawful = np.array([n / law.capacity(n) for n in channels.tolist()])
    return float((((lawful / costs - 1.0) / errors) ** 2).sum()) + PENALTY * parameters
