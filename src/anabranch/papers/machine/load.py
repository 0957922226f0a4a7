"""Load curves: how many tuples per second a source has at a moment of virtual time.

A curve is anything that can be called with seconds and answers with tuples per second. It says nothing about
single tuples: the source (source.py) makes arrivals of it. These are frozen data, so that a world can be
compared, printed and shrunk.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise

Curve = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """The same rate all the time; `math.inf` for a source that always has more."""

    rate: float

    def __call__(self, at: float) -> float:
        return self.rate


@dataclass(frozen=True)
class Sine:
    """Swings about the mean, rising first; a rate never falls below 0."""

    mean: float
    amplitude: float
    length_s: float

    def __call__(self, at: float) -> float:
        return max(0.0, self.mean + self.amplitude * math.sin(2 * math.pi * at / self.length_s))


@dataclass(frozen=True)
class Steps:
    """Each rate for its own length, over and over; one length is that of all.

    Examples
    --------
    >>> load = Steps((100.0, 300.0), (10.0,))
    >>> load(9.9), load(10), load(20)
    (100.0, 300.0, 100.0)
    """

    rates: tuple[float, ...]
    lengths_s: tuple[float, ...]

    def __post_init__(self) -> None:
        lengths = self.lengths_s if len(self.lengths_s) != 1 else self.lengths_s * len(self.rates)
        if len(lengths) != len(self.rates) or not lengths or min(lengths) <= 0:
            raise ValueError(f"every rate needs a length above 0: found {self.rates} and {self.lengths_s}")
        object.__setattr__(self, "lengths_s", tuple(lengths))
        object.__setattr__(self, "_ends", tuple(accumulate(lengths)))

    def __call__(self, at: float) -> float:
        ends: tuple[float, ...] = self._ends  # type: ignore[attr-defined]
        return self.rates[bisect_right(ends, at % ends[-1])]


@dataclass(frozen=True)
class Bursts:
    """The base rate, and for `length_s` at the start of every `every_s` the burst's."""

    base: float
    burst: float
    every_s: float
    length_s: float

    def __call__(self, at: float) -> float:
        return self.burst if at % self.every_s < self.length_s else self.base


@dataclass(frozen=True)
class Replay:
    """A recorded curve: straight lines between its points, and its ends before and after them."""

    seconds: tuple[float, ...]
    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        rising = all(before < after for before, after in pairwise(self.seconds))
        if len(self.seconds) != len(self.rates) or not self.seconds or not rising:
            raise ValueError("a recorded curve has as many rates as rising seconds, and at least one")

    def __call__(self, at: float) -> float:
        right = bisect_right(self.seconds, at)
        if right == 0:
            return self.rates[0]
        if right == len(self.seconds):
            return self.rates[-1]
        start, end = self.seconds[right - 1], self.seconds[right]
        share = (at - start) / (end - start)
        return self.rates[right - 1] * (1 - share) + self.rates[right] * share
