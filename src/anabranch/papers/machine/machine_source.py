"""The source of a world: tuples, and when each of them is there."""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from anabranch.papers.machine.costs import gaps, zipf
from anabranch.papers.machine.description import MachineSource
from anabranch.papers.machine.machine_operators import MODULUS, Value
from anabranch.papers.merging.punctuation import Punctuation

_BLOCK = 4096
_STEPS_MAX = 100_000  # after so many steps without a tuple none is expected any more


class SourceState:
    """Makes the tuples of a source, one by one, always the same for the same seed.

    Parameters
    ----------
    resolution_s
        For so long the load curve is taken to be constant.
    """

    __slots__ = (
        "_arrivals",
        "_asked_anew",
        "_block",
        "_generator",
        "_next_at",
        "_ready",
        "_resolution_s",
        "_since_window",
        "_source",
        "_stored",
        "made",
    )

    def __init__(self, source: MachineSource, seed: int, resolution_s: float) -> None:
        self._source = source
        self._resolution_s = resolution_s
        # A source that always has more never has a backlog to speak of: it is held back, whatever was asked for.
        self._stored = source.stored and math.isfinite(source.load(0.0))
        self._generator = np.random.default_rng([seed, 1])
        self._arrivals = gaps(np.random.default_rng([seed, 2]), source.random_arrivals)
        self._block: deque[tuple[int, int, int]] = deque()
        self._ready: deque[float] = deque()  # when the tuples came that were not taken yet
        self._since_window = 0
        self.made = 0
        self._next_at = self._after(0.0)
        # Held back, the source begins with a tuple when the splitter, rid of the last one, asks for it.
        self._asked_anew = False

    @property
    def backlog(self) -> int:
        """Tuples that came and were not taken yet, as of the last `advance`."""
        return len(self._ready)

    @property
    def arrived(self) -> int:
        """Tuples that came so far, as of the last `advance`."""
        return self.made + len(self._ready)

    @property
    def exhausted(self) -> bool:
        """Whether no tuple will ever come again."""
        return self._source.tuples is not None and self.made >= self._source.tuples

    def advance(self, now: float) -> None:
        """Let everything arrive that has arrived by now."""
        if not self._stored:
            return
        limit = self._source.tuples
        while self._next_at <= now and math.isfinite(self._next_at):
            if limit is not None and self.made + len(self._ready) >= limit:
                return
            self._ready.append(self._next_at)
            self._next_at = self._after(self._next_at)

    def take(self, now: float) -> tuple[float, Value | Punctuation] | None:
        """The next tuple and when it came, if it is there already."""
        if self.exhausted:
            return None
        every = self._source.window_every
        if every is not None and self._since_window == every:
            self._since_window = 0
            return now, Punctuation.WINDOW
        if self._stored:
            if not self._ready:
                self.advance(now)
                if not self._ready:
                    return None
            came = self._ready.popleft()
        else:
            if self._asked_anew:
                self._asked_anew = False
                self._next_at = self._after(now)
            if self._next_at > now:
                return None
            came = now
            self._asked_anew = True
        value = (self.made, *self._draw())
        self.made += 1
        self._since_window += 1
        return came, value

    def next_at(self, now: float) -> float:
        """When to ask again, after `take` had nothing."""
        return math.inf if self.exhausted else max(now, self._next_at)

    def rate(self, at: float) -> float:
        """The load curve."""
        return self._source.load(at)

    def _after(self, at: float) -> float:
        """When the tuple after one that came at this time comes."""
        load = self._source.load
        if load(at) == math.inf:
            return at
        missing = next(self._arrivals)
        length = self._resolution_s
        for _ in range(_STEPS_MAX):
            rate = load(at)
            if missing <= rate * length:
                return at + missing / rate
            missing -= rate * length
            at += length
        return math.inf

    def _draw(self) -> tuple[int, int, int]:
        if not self._block:
            source, generator = self._source, self._generator
            rows = _BLOCK if source.tuples is None else min(_BLOCK, source.tuples)
            ends = np.cumsum(zipf(source.keys, source.skew))
            keys = [np.searchsorted(ends, generator.random(rows)).clip(max=source.keys - 1).tolist() for _ in range(2)]
            self._block.extend(zip(*keys, generator.integers(MODULUS, size=rows).tolist(), strict=True))
        return self._block.popleft()
