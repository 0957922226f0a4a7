"""How many calls of an elastic operator should be under way: our own search, beside the one of *Operators*.

The paper's controller (`operator_controller.py`) climbs one worker per period. This one measures few levels, far apart
first, and remembers what each gave:

    search   double while that pays ─► look between the best level and its neighbours, where more could be ─► hold
    hold     the rate is not what it was ─► search anew, downwards if it fell, upwards if it rose
             now and then one look at a level a quarter higher ─► better: search on from there

It cannot overshoot badly: a level is at most twice one that was measured to be the best so far, for one period.

Where more could be. Rates are taken to be concave in the level: the rate for each worker never grows. So below the best
level nothing is looked for that even with the best rate per worker could not come up to it, and between two levels that
differ by less than the resolution nothing is looked for at all. Of levels that give the same, within the tolerance, the
lowest is taken: workers that bring nothing are a burden to others.

Level 0 means that the calls are made where the tuples are, by nobody else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

_BAD_SHARE = 0.7
"""A look that brings less than this share of the rate is expensive, and taken less often each time."""
_WAIT_MAX = 64
_UNSURE_MAX = 2
"""Periods in a row that must differ from the held rate, unless they differ greatly."""


@dataclass(frozen=True, slots=True)
class LevelDecision:
    """The answer to one period, with what it was based on."""

    period: int
    rate: float
    """Tuples per second measured at `before`."""
    before: int
    """The level until now."""
    level: int
    """The level from now on."""
    branch: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class ConcurrencyController:
    """Decides on the level of one elastic operator.

    Parameters
    ----------
    level_min, level_max
        Bounds of the level; 0 is allowed as the least.
    tolerance
        Relative difference of two rates that counts as none.
    resolution
        Relative difference of two levels between which nothing is looked for.
    drift
        Relative difference from the held rate that means that the world has changed.
    probe_every
        Periods between two looks at a higher level.
    """

    def __init__(
        self,
        level_min: int,
        level_max: int,
        *,
        tolerance: float = 0.04,
        resolution: float = 0.15,
        drift: float = 0.12,
        probe_every: int = 4,
        log_length: int = 1000,
    ) -> None:
        if not 0 <= level_min <= level_max or level_max < 1:
            raise ValueError(f"expected 0 <= level_min <= level_max and 1 <= level_max, got {level_min}, {level_max}")
        self._min, self._max = level_min, level_max
        self._tolerance, self._resolution, self._drift = tolerance, resolution, drift
        self._probe_every = probe_every
        self._period = 0
        self._level = level_min
        self._mode = "search"
        self._downwards = False
        self._rates: dict[int, float] = {}
        self._held = 0.0  # the rate of the level that is held
        self._home = level_min  # the level that is held while another is looked at
        self._unsure = 0
        self._since_probe = 0
        self._wait = probe_every
        self._looked_down = True
        self._seen_more = False
        self.is_shared = False
        """Whether others compete for the same: then lower levels are looked at, too, and may leave more for all."""
        self._log: deque[LevelDecision] = deque(maxlen=log_length)

    @property
    def level(self) -> int:
        """How many calls should be under way now."""
        return self._level

    @property
    def is_looking(self) -> bool:
        """Whether this period is a look at a level that is probably worse: it may be short."""
        return self._mode == "probe"

    @property
    def is_settled(self) -> bool:
        """Whether the level is held, or only left for a look."""
        return self._mode in ("hold", "probe")

    @property
    def log(self) -> tuple[LevelDecision, ...]:
        return tuple(self._log)

    def handle(self, rate: float) -> LevelDecision:
        """Take the rate of one period and answer with the level of the next."""
        if not rate >= 0:  # also refuses NaN
            raise ValueError(f"a rate is not negative, got {rate}")
        self._period += 1
        before = self._level
        branch, reason = {"search": self._searched, "hold": self._holding, "probe": self._probed}[self._mode](rate)
        decision = LevelDecision(self._period, rate, before, self._level, branch, reason)
        self._log.append(decision)
        return decision

    # -- searching ------------------------------------------------------------------------------------------

    def _searched(self, rate: float) -> tuple[str, str]:
        self._rates[self._level] = rate
        following = self._next_level()
        if following is not None:
            level, reason = following
            self._level = level
            return "search", reason
        best = self._best()
        rate = self._rates[best]
        self._hold(best, rate)
        return "settled", f"{best} gives {rate:g}/s, and no level near it clearly more"

    def _best(self) -> int:
        """The lowest level that comes up to the best rate."""
        most = max(self._rates.values())
        return min(level for level, rate in self._rates.items() if rate >= most * (1 - self._tolerance))

    def _next_level(self) -> tuple[int, str] | None:
        best = self._best()
        below = max((level for level in self._rates if level < best), default=None)
        above = min((level for level in self._rates if level > best), default=None)
        sides = ("below", "above") if self._downwards else ("above", "below")
        for side in sides:
            if side == "above" and above is None and best < self._max:
                return min(self._max, max(2, best * 2)), f"{best} is the best so far: twice as many may be better"
            if side == "below" and below is None and best > self._min:
                return max(self._min, best // 2), f"{best} is the best so far: half as many may do"
        # The knee, if rates rise evenly up to it and are flat behind.
        per_worker = self._rates[below] / below if below else 0.0
        if per_worker and below is not None and above is not None:
            knee = round(max(self._rates.values()) / per_worker)
            if below < knee < above and all(self._differ(knee, level) for level in self._rates):
                return knee, f"if all workers were as good as the first {below}, {knee} would do"
        if above is not None and self._differ(best, above):
            return _between(best, above), f"between {best} and {above} there may be more"
        if below is not None and self._differ(below, best) and self._worth_below(best, below):
            return _between(below, best), f"between {below} and {best} as much may be had with fewer"
        return None

    def _differ(self, one: int, other: int) -> bool:
        return abs(one - other) > max(1.0, self._resolution * min(one, other))

    def _worth_below(self, best: int, below: int) -> bool:
        """Whether a level between the two could come up to the best, with the rate per worker of the lower one."""
        if not below:
            return True
        return self._rates[below] / below * (best - 1) >= self._rates[best] * (1 - self._tolerance)

    # -- holding --------------------------------------------------------------------------------------------

    def _hold(self, level: int, rate: float) -> None:
        self._mode = "hold"
        self._level = self._home = level
        # Where others count, what was compared was more than the own rate: the next period tells that.
        self._held = 0.0 if self.is_shared else rate
        self._unsure = 0
        self._since_probe = 0
        self._wait = self._probe_every
        self._rates = {}

    def _holding(self, rate: float) -> tuple[str, str]:
        change = rate / self._held - 1 if self._held else 0.0
        if abs(change) > self._drift:
            self._unsure += 1
            if self._unsure >= _UNSURE_MAX or abs(change) > 3 * self._drift:
                return self._search_anew(rate, change)
            return "unsure", f"{rate:g}/s instead of {self._held:g}/s; one period may be an accident"
        self._unsure = 0
        self._held = self._held + 0.3 * (rate - self._held) if self._held else rate
        self._since_probe += 1
        if self._since_probe >= self._wait and self.is_shared and not self._looked_down and self._home > 1:
            self._mode = "probe"
            self._looked_down = True
            self._level = max(self._min, min(self._home - 1, round(self._home / 1.25)))
            return "look", f"others compete: fewer than {self._home} may leave more for all"
        if self._since_probe >= self._wait and self._level < self._max:
            self._mode = "probe"
            self._looked_down = False
            self._level = min(self._max, max(self._home + 1, 2, round(self._home * 1.25)))
            return "look", f"capacity may have appeared that {self._home} cannot show"
        return "stable", f"{rate:g}/s as before"

    def _search_anew(self, rate: float, change: float) -> tuple[str, str]:
        self._mode = "search"
        self._downwards = change < 0
        self._rates = {self._level: rate}
        following = self._next_level()
        if following is None:  # the bounds leave one level
            self._hold(self._level, rate)
            return "changed", f"{change:+.0%}, and only one level is allowed"
        self._level = following[0]
        return "changed", f"the rate at {self._home} changed by {change:+.0%}; {following[1]}"

    def _probed(self, rate: float) -> tuple[str, str]:
        looked = self._level
        if rate > self._held * (1 + max(self._tolerance, 0.25 * (looked / max(self._home, 1) - 1))):
            if self.is_shared and looked > self._home and not self._seen_more:
                home, held = self._home, self._held
                self._hold(home, held)
                self._held, self._wait, self._looked_down, self._seen_more = held, 1, True, True
                return "more?", f"{looked} gives {rate:g}/s instead of {held:g}/s; others may have changed: once more"
            self._seen_more = False
            self._mode = "search"
            self._downwards = looked < self._home
            self._rates = {self._home: self._held, looked: rate}
            following = self._next_level()
            if following is not None:
                self._level = following[0]
                return "more", f"{looked} gives {rate:g}/s instead of {self._held:g}/s; {following[1]}"
            self._hold(looked, rate)
            return "more", f"{looked} gives {rate:g}/s instead of {self._held:g}/s"
        self._seen_more = False
        held = self._held
        if looked < self._home and rate >= held * (1 - self._tolerance):
            self._hold(looked, rate)
            self._looked_down = False  # there may be more to give back
            return "fewer", f"{looked} is as good for all: {rate:g}/s with what others gain, {held:g}/s before"
        wait = self._probe_every
        if rate < self._held * _BAD_SHARE:
            wait = min(_WAIT_MAX, self._wait * 2)
        home = self._home
        self._hold(home, held)
        self._held = held
        self._wait = wait
        return "no more", f"{looked} gives {rate:g}/s instead of {held:g}/s"

    # -- restarting -----------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-able memory: the level that is worth holding and what it gave."""
        level, rate = self._home, self._held
        if self._mode == "search" and self._rates:
            level = self._best()
            rate = self._rates[level]
        return {"level": level, "rate": rate, "settled": self.is_settled, "period": self._period}

    def restore(self, memory: dict[str, Any]) -> None:
        """Begin where another left off: if it had found a level, hold it, and believe its rate until it is measured."""
        level = max(self._min, min(self._max, int(memory["level"])))
        self._period = int(memory["period"])
        if memory["settled"] and memory["rate"] > 0 and level == memory["level"]:
            self._hold(level, float(memory["rate"]))
        else:
            self._level = level


def _between(low: int, high: int) -> int:
    """A level between two, in the middle of their ratio; never one of them if there is another."""
    middle = round((max(low, 1) * high) ** 0.5)
    return min(max(middle, low + 1), high - 1) if high - low > 1 else high
