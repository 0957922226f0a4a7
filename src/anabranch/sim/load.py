"""Load curves: how many tuples per second a source has at a moment of virtual time, and when its files are full.

A curve is anything that can be called with seconds and answers with tuples per second. It says nothing about
single tuples: `full_at` makes files of it, the machine of the papers single arrivals. These are frozen data, so that a
world can be compared, printed and shrunk.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
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


_STEPS_PER_FILE = 8
_STEP_MAX_S = 0.05


def full_at(curve: Curve, rows: float, until_s: float = math.inf) -> Iterator[float]:
    """The moments at which the source has written another file of so many rows.

    Examples
    --------
    >>> [round(at, 3) for at in full_at(Constant(100.0), 50, until_s=2.0)]
    [0.5, 1.0, 1.5, 2.0]
    >>> from itertools import islice
    >>> list(islice(full_at(Constant(math.inf), 50), 3))
    [0.0, 0.0, 0.0]
    """
    at_s, filled = 0.0, 0.0
    while at_s <= until_s:
        rate = curve(at_s)
        if math.isinf(rate):
            yield at_s
            continue
        step_s = min(_STEP_MAX_S, rows / rate / _STEPS_PER_FILE) if rate > 0 else _STEP_MAX_S
        arrived = rate * step_s
        if filled + arrived < rows * (1 - 1e-9):
            filled += arrived
            at_s += step_s
            continue
        at_s += (rows - filled) / rate
        filled = 0.0
        if at_s <= until_s * (1 + 1e-12):
            yield at_s
