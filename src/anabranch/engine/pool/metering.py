"""How fast a pool works: periods that mean something, the rate of each, how long calls take.

A task lives for about an epoch, so most of what a clock shows is starting and draining. A period counts only time in
which the queue was never empty; it stops when the rows end, and goes on with the next rows, be it another batch,
another task or another epoch:

    task   ├──── full ────┤ drains       ├──── full ──────┤ drains
    period ├──────────────┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄├────┤├──────────┄┄┄┄┄

When the level changes, the period begins anew when all calls that were begun before have ended.

The rate is that of the tuples that entered, between the oldest and the newest entry of a sliding window of (time,
total entered). Where a call takes a part of a period that matters, whole calls are too coarse a unit: 64 calls of 200
ms that began together end together, and a second sees four or five times 64. So of long calls every end is noted, and
the rate is the slope of the straight line that fits the ends best, number over time; a wave that may not be complete
is left out. (Workers divided by the mean time of a call, by Little's law, would do for a fair service only: what
takes longest has not ended when a period has.)
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping

LONG_SHARE = 1 / 200
"""Of a period: calls that take longer are long."""
_SAMPLES = 20
"""Entries of the rate's window in a period."""
_ENDS_MAX = 1 << 16
_CALLS_MIN = 5
"""Long calls that must have ended before a period is judged."""
_WAVES_MIN = 3.6
"""As long as so many calls one after the other take, a period lasts at least."""
_COLLAPSE_PERIODS = 2.0
"""But a rate that has collapsed is told after so many periods."""
_BUCKETS_PER_DOUBLING = 4


class Meter:
    """Measures one pool. Times are seconds on a clock that only goes forward; whoever calls looks at it."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._level = 0
        self._running_since: float | None = None
        self._calls = 0
        self._busy = self._call_s_before = 0.0
        self._reset(0.0)

    def _reset(self, now: float) -> None:
        self._call_s_before = self.call_s or self._call_s_before
        self._elapsed = 0.0  # of the period, up to `_running_since`
        self._entered = 0
        self._window: deque[tuple[float, int]] = deque([(0.0, 0)])
        self._calls = 0
        self._busy = 0.0
        self._ends: list[float] = []  # of calls that were made alone, in active time
        if self._running_since is not None:
            self._running_since = now

    def resume(self, now: float) -> None:
        """The queue is full from now on."""
        if self._running_since is None:
            self._running_since = now

    def pause(self, now: float) -> None:
        """There are no more rows: the queue may run empty."""
        if self._running_since is not None:
            self._elapsed = self._active(now)
            self._running_since = None

    def new_level(self, level: int, now: float) -> None:
        """Another period begins, with this level."""
        self._level = level
        self._reset(now)

    def _active(self, now: float) -> float:
        return self._elapsed + (now - self._running_since if self._running_since is not None else 0.0)

    def ended(self, began: float, seconds: float, calls: int, now: float) -> None:
        """So many calls have ended, which were begun one after the other."""
        if self._running_since is None:
            return
        self._calls += calls
        self._busy += seconds
        self._entered += calls
        active = self._active(now)
        if calls == 1 and len(self._ends) < _ENDS_MAX:
            self._ends.append(self._active(began + seconds))
        if active - self._window[-1][0] >= self._period_s / _SAMPLES:
            self._window.append((active, self._entered))
            while active - self._window[0][0] > self._period_s and len(self._window) > 2:
                self._window.popleft()

    @property
    def call_s(self) -> float | None:
        """How long a call takes on average, in this period."""
        return self._busy / self._calls if self._calls else None

    def is_over(self, now: float, share: float = 1.0) -> bool:
        """Whether the period has lasted long enough to be judged; a share of it will do for a look at short calls."""
        call_s = self.call_s
        if call_s is None or self._active(now) < self._period_s * share:
            return False
        if not self._are_long(call_s):
            return len(self._window) > 2
        return len(self._ends) > max(_CALLS_MIN, self._level) and self._active(now) >= _WAVES_MIN * call_s

    def has_collapsed(self, now: float, floor: float) -> bool:
        """Whether so much less comes than was expected, at the least, that there is no need to wait for more calls."""
        active = self._active(now)
        if self._calls < _CALLS_MIN or active < max(_COLLAPSE_PERIODS * self._period_s, 1.5 * self._call_s_before):
            return False
        return self._entered < floor * active

    def mean_rate(self, now: float) -> float:
        """Tuples per second of the period so far, whatever the calls that are under way."""
        return self._entered / self._active(now)

    def rate(self) -> float:
        """Tuples per second of the period so far."""
        call_s = self.call_s or self._period_s
        if self._are_long(call_s):
            found = _slope(self._whole_waves(call_s))
            if found is not None:
                return found
        (first, before), (last, total) = self._window[0], self._window[-1]
        return (total - before) / (last - first) if last > first else 0.0

    def _are_long(self, call_s: float) -> bool:
        """Whether calls take so long that each one's end matters, and were made alone, so that it is known."""
        return call_s >= self._period_s * LONG_SHARE and 2 * len(self._ends) > self._calls

    def _whole_waves(self, call_s: float) -> list[float]:
        ends = sorted(self._ends)
        from_s, until_s = ends[0] + call_s / 2, ends[-1] - call_s / 2
        return [end for end in ends if from_s <= end <= until_s]


def _slope(times: list[float]) -> float | None:
    """How many there are per second: of the line that fits (time, number) best; None if all are at one time."""
    count = len(times)
    if count < 2:
        return None
    mean, middle = sum(times) / count, (count - 1) / 2
    spread = sum((at - mean) ** 2 for at in times)
    if spread <= 1e-12 * count:
        return None
    return sum((at - mean) * (number - middle) for number, at in enumerate(times)) / spread


class Latencies:
    """How long calls took, in buckets that can be added up over tasks: each a fixed share wider than the one before."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: Counter[int] = Counter(counts or {})

    def add(self, seconds: float, calls: int = 1) -> None:
        """So many calls took so long each."""
        self.counts[math.floor(math.log2(max(seconds, 1e-9)) * _BUCKETS_PER_DOUBLING)] += calls

    def percentiles(self, wanted: Iterable[float]) -> list[float]:
        """The time in seconds that a share of the calls did not exceed, for each share; 0 if there were none."""
        total, found = sum(self.counts.values()), []
        for share in wanted:
            seen = 0
            at = 0.0
            for bucket in sorted(self.counts):
                seen += self.counts[bucket]
                at = 2.0 ** ((bucket + 0.5) / _BUCKETS_PER_DOUBLING)
                if seen >= share * total:
                    break
            found.append(at)
        return found
