"""How many calls of an elastic operator should be under way: our own search, beside the one of *Operators*.

The paper's controller (`operator_controller.py`) climbs one worker per period. This one measures few levels, far apart
first, and remembers what each gave:

    search   double while that pays ─► look between the best level and its neighbours, where more could be ─► hold
    hold     the rate is not what it was ─► search anew, downwards if it fell, upwards if it rose
             now and then one look at a level a quarter higher ─► better: search on from there
             more rarely one at a lower level ─► as good: hold that

It cannot overshoot badly: a level is at most twice one that was measured to be the best so far, for one period. Where
a level seems little better than the one below it, that one is measured once more: on a busy machine chance would
climb a plateau otherwise. How much rates are off by at the level that is held is learnt, and what differs by no more is
no change of the world.

Where more could be. On scales of ratios (log level, log rate) the rate is taken to be concave, and to rise no faster
than the level. So between two measured levels it lies below the line through the two on the left, and below the line
through the two on the right; where these meet, most could be had:

    log rate │         ╳  the kink: measure here, if that could be clearly more than the best so far
             │       ╱ · ╲
             │     ●       ●
             │   ╱           ╲
             │ ●               ●
             └──────────────────── log level

Of levels that give the same, within the tolerance, the lowest is taken: workers that bring nothing are a burden to
others. Level 0 means that the calls are made where the tuples are, by nobody else.

Where others compete for the same (`is_shared`), two that try levels at once would each see what the other does. So
whoever wants to leave the level it holds waits for its turn (`wants_turn`, `has_turn`), takes a period to see how
things stand, and lower levels are looked at, too: they may leave more for all.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

_BAD_SHARE = 0.7
"""A look that brings less than this share of the rate is expensive, and taken less often each time."""
_COLLAPSED_SHARE = 0.5
"""Less than this share of the rate, and the world has changed."""
_WAIT_MAX = 64
_SEARCH_MAX = 16
"""Levels of one search; noise may suggest ever more."""
_STEEP = 0.8
"""Of the slope of a rate that rises with the level: from here on twice as many may well be better."""
_DOUBTFUL = 0.25
"""A gain that chance may bring where others use the machine, too."""
_FLAT = 0.35
"""Of the slope of a rate that hardly rises with the level."""
_MANY = 4
"""Levels from here on are climbed with doubt; of fewer workers one more or less is no burden."""
_UNSURE_MAX = 2
"""Periods in a row that must differ from the held rate, unless they differ greatly."""
_GREATLY = 3.0
"""So many times what counts as a difference is a great one."""
_NOISE_FACTOR = 3.0
"""So many times what rates are off by at the same level, on average, is no accident."""
_NOISE_LOOKED = 1.5
"""The same for a look, which is taken twice."""
_DOWN_FACTOR = 2
"""So many times rarer than looks at higher levels are those at lower ones, and rarer each time they find nothing."""
_NOISE_STEP = 0.1
_NOISE_MOST = 0.5


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
        resolution: float = 0.08,
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
        self._doubted: set[int] = set()  # levels that were measured once more in this search
        self._mixed: int | None = None  # a level whose rate is from a period in which things changed
        self._held = 0.0  # the rate of the level that is held
        self._home = level_min  # the level that is held while another is looked at
        self._unsure = 0
        self._noise = 0.0  # how far rates are off at the level that is held, on average, relative
        self._odd: list[float] = []  # how far the latest were that may be accidents
        self._left: tuple[int, float] | None = None  # the level and the rate before things seemed to change
        self._confirms = False  # a look that promised something is taken once more, for a whole period
        self._looked_far = True
        self._since_down = 0
        self._gives_back = False  # a lower level was as good
        self._wait_down = _DOWN_FACTOR * probe_every
        self._since_probe = 0
        self._wait = probe_every
        self._looked_down = True
        self.is_shared = False
        """Whether others compete for the same."""
        self.others_level = 0.0
        """Their level, on average."""
        self.has_turn = False
        """Whether no other tries levels until this one is done: told by whoever asks, if it is shared."""
        self._turn_used = False  # a period has shown how things stand since the turn came
        self._log: deque[LevelDecision] = deque(maxlen=log_length)

    @property
    def level(self) -> int:
        """How many calls should be under way now."""
        return self._level

    @property
    def is_looking(self) -> bool:
        """Whether this period is a look at a level that is probably worse: it may be short."""
        return self._mode == "probe" and not self._confirms

    @property
    def collapsed_below(self) -> float:
        """A rate that says even before the period is over that the world has changed; 0 if none does."""
        return self._held * _COLLAPSED_SHARE if self.is_settled else 0.0

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

    @property
    def is_at_rest(self) -> bool:
        """Whether this period shows how things stand, and not what comes of a level that is tried."""
        return self._mode == "hold" or (self._mode == "search" and not (self.has_turn and self._turn_used))

    @property
    def wants_turn(self) -> bool:
        """Whether it tries levels, or would like to."""
        return self._mode != "hold" or self._since_probe >= self._wait or self._unsure > 0

    # -- searching ------------------------------------------------------------------------------------------

    def _searched(self, rate: float) -> tuple[str, str]:
        if self.is_shared and not self.has_turn:
            return "waits", "others compete, and one of them tries levels"
        if self.is_shared and not self._turn_used:
            self._turn_used = True
            self._rates = {self._level: rate}  # as things stand now
        # What disturbs a period makes its rate less, not more.
        again = self._level in self._doubted and self._level != self._mixed
        self._rates[self._level] = max(rate, self._rates.get(self._level, 0.0)) if again else rate
        if self._level == self._mixed:
            self._mixed = None
        following = self._next_level()
        if following is not None and len(self._rates) < _SEARCH_MAX:
            level, reason = following
            self._level = level
            return "search", reason
        best = self._best()
        rate = self._rates[best]
        if self._left is not None and self._left[0] == best and abs(rate / self._left[1] - 1) <= self._drift:
            self._were_accidents()
        below = max((level for level in self._rates if level < best), default=None)
        is_needed = below is not None and self._rates[below] < rate * (1 - self._tolerance)
        self._hold(best, rate)
        if is_needed:
            self._wait_down = 2 * _DOWN_FACTOR * self._probe_every
        return "settled", f"{best} gives {rate:g}/s, and no level near it clearly more"

    def _best(self) -> int:
        """The lowest level that comes up to the best rate."""
        most = max(self._rates.values())
        return min(level for level, rate in self._rates.items() if rate >= most * (1 - self._tolerance))

    def _next_level(self) -> tuple[int, str] | None:
        best = self._best()
        if best == self._mixed and len(self._rates) > 1:
            return best, f"{best} was measured while things changed: once more"
        below = max((level for level in self._rates if level < best), default=None)
        above = min((level for level in self._rates if level > best), default=None)
        if below is not None and below not in self._doubted and not self.is_shared and self._is_doubtful(below, best):
            self._doubted.add(below)
            return below, f"{best} is little better than {below}, which may be an accident: {below} once more"
        if above is None and best < self._max and not self._downwards:
            return self._further_up(best, below)
        if below is None and best > self._min:
            return max(self._min, best // 2), f"{best} is the best so far: half as many may do"
        if above is None and best < self._max:
            return self._further_up(best, below)
        most = self._rates[best]
        for low, high in ((below, best), (best, above)):
            if low is not None and high is not None:
                level, rate = self._kink(low, high)
                if self._is_new(level) and rate > most * (1 + self._tolerance):
                    return level, f"between {low} and {high} there may be more"
        if below is not None:
            level, rate = self._kink(below, best)
            if self._is_new(level) and rate >= most * (1 - self._tolerance):
                return level, f"between {below} and {best} as much may be had with fewer"
        return None

    def _is_doubtful(self, below: int, best: int) -> bool:
        """Whether a level is better than the one below it, by so little that chance may have done it."""
        gain = self._seen(best) / self._seen(below) - 1
        return below >= _MANY and gain < _DOUBTFUL and self._slope(below, best) < _FLAT

    def _further_up(self, best: int, below: int | None) -> tuple[int, str]:
        if below is not None and best > 1.4 * below and self._slope(below, best) < _STEEP:
            level, _ = self._kink(below, best, falling=0.0)
            if self._is_new(level):
                return (
                    level,
                    f"{best} is hardly better than {below}: if rates are flat from somewhere on, it is {level}",
                )
        return min(self._max, max(2, best * 2)), f"{best} is the best so far: twice as many may be better"

    def _kink(self, low: int, high: int, falling: float | None = None) -> tuple[int, float]:
        """Where most could be had between two neighbours, and how much; outside of them nothing else is known."""
        before = max((level for level in self._rates if level < low), default=None)
        after = min((level for level in self._rates if level > high), default=None)
        between = self._slope(low, high)
        rising = max(between, min(1.0, self._slope(before, low)) if before is not None else 1.0)
        if after is not None:
            falling = min(between, self._slope(high, after))
        if falling is None:
            at = (_scale(low) * _scale(high)) ** 0.5
        elif rising - falling < 1e-9:
            at = _scale(low)
        else:
            left = math.log(self._seen(low)) - rising * math.log(_scale(low))
            right = math.log(self._seen(high)) - falling * math.log(_scale(high))
            at = math.exp((right - left) / (rising - falling))
        at = min(max(at, _scale(low)), _scale(high))
        return round(at), self._seen(low) * (at / _scale(low)) ** rising

    def _slope(self, low: int, high: int) -> float:
        """How much faster than the level the rate grows, as a power of it."""
        return math.log(self._seen(high) / self._seen(low)) / math.log(_scale(high) / _scale(low))

    def _seen(self, level: int) -> float:
        return max(self._rates[level], 1e-9)

    def _is_new(self, level: int) -> bool:
        """Whether a level is far enough from all that were measured."""
        return all(abs(level - other) >= max(1.0, self._resolution * min(level, other)) for other in self._rates)

    # -- holding --------------------------------------------------------------------------------------------

    def _hold(self, level: int, rate: float) -> None:
        self._mode = "hold"
        if level != self._home:
            self._since_down, self._wait_down, self._gives_back = 0, _DOWN_FACTOR * self._probe_every, False
        self._level = self._home = level
        # Where others count, what was compared was more than the own rate: the next period tells that.
        self._held = 0.0 if self.is_shared else rate
        self._unsure = 0
        self._since_probe = 0
        self._wait = self._probe_every
        self._rates = {}
        self._doubted = set()
        self._mixed = None
        self._left = None
        self._odd = []
        self._confirms = False
        self._turn_used = False

    def _were_accidents(self) -> None:
        """The rates that differed are what rates are off by here."""
        for each in self._odd:
            self._noise += _NOISE_STEP * (min(each, _NOISE_MOST) - self._noise)
        self._odd = []

    def _holding(self, rate: float) -> tuple[str, str]:
        if self.is_shared and not self.has_turn:
            # What another does while it tries levels is no change of the world.
            self._held = rate
            self._turn_used = False
            self._since_probe += 1
            return "stable", f"{rate:g}/s, others compete"
        if self.is_shared and not self._turn_used:
            self._turn_used = True
            self._held, self._unsure = rate, 0
            self._since_probe = max(self._since_probe, self._wait)
        change = rate / self._held - 1 if self._held else 0.0
        drift = max(self._drift, _NOISE_FACTOR * self._noise)
        self._odd.append(abs(change))
        if abs(change) > drift:
            self._unsure += 1
            if self._unsure >= _UNSURE_MAX or abs(change) > _GREATLY * drift:
                return self._search_anew(rate, change)
            return "unsure", f"{rate:g}/s instead of {self._held:g}/s; one period may be an accident"
        self._unsure = 0
        self._were_accidents()
        self._held = self._held + 0.3 * (rate - self._held) if self._held else rate
        self._since_probe += 1
        if self._since_probe >= self._wait and self.is_shared:
            return self._look_beside_others()
        if self._since_probe >= self._wait and self._level < self._max:
            # Of few workers one more may bring nothing, and some more may: where others want the same cores, say.
            self._looked_far = self._home < _MANY and not self._looked_far
            level = _MANY if self._looked_far else max(2, round(self._home * 1.25))
            return self._look(level, f"capacity may have appeared that {self._home} cannot show")
        self._since_down += 1
        if self._since_down >= self._wait_down and not self.is_shared and self._home > self._min:
            self._since_down = 0
            # A little at first, for it is mostly needed; where it was not, much.
            level = self._home // 2 if self._gives_back else min(self._home - 1, round(self._home * 0.75))
            return self._look(level, f"{self._home} may be more than is needed")
        return "stable", f"{rate:g}/s as before"

    def _look(self, level: int, reason: str) -> tuple[str, str]:
        self._mode = "probe"
        self._level = max(self._min, min(self._max, level))
        return "look", reason

    def _look_beside_others(self) -> tuple[str, str]:
        """Towards the level of the others; where it is much the same, up and down in turn."""
        home, others = self._home, self.others_level
        down = home > 1.15 * others or (home > others / 1.15 and not self._looked_down)
        self._looked_down = down
        factor = min(2.0, max(1.25, (max(home, others) / max(1, min(home, others))) ** 0.5))
        if down and home > 1:
            return self._look(min(home - 1, round(home / factor)), f"fewer than {home} may leave more for all")
        return self._look(max(home + 1, round(home * factor)), f"others have {others:g} each: {home} may be too few")

    def _search_anew(self, rate: float, change: float) -> tuple[str, str]:
        self._mode = "search"
        self._left = (self._home, self._held) if self._held else None
        self._downwards = change < 0
        self._rates = {self._level: rate}
        self._doubted = set()
        self._mixed = self._level
        following = self._next_level()
        if following is None:  # the bounds leave one level
            self._hold(self._level, rate)
            return "changed", f"{change:+.0%}, and only one level is allowed"
        self._level = following[0]
        return "changed", f"the rate changed by {change:+.0%}; {following[1]}"

    def _probed(self, rate: float) -> tuple[str, str]:
        looked, home, held = self._level, self._home, self._held
        needed = max(self._tolerance, 0.25 * (looked / max(home, 1) - 1))
        if self.is_shared and looked > home:  # what is judged says already what the others lose
            needed = self._tolerance / 2
        elif not self.is_shared:
            needed = max(self._tolerance if home < looked <= _MANY else needed, _NOISE_LOOKED * self._noise)
            if not self._confirms and self._promises(rate, needed):
                self._confirms = True
                return "look", f"{looked} gives {rate:g}/s instead of {held:g}/s: once more, for a whole period"
        self._confirms = False
        if rate > held * (1 + needed):
            self._mode = "search"
            self._downwards = looked < home
            self._rates = {home: held, looked: rate}
            self._doubted = set()
            following = self._next_level()
            if following is not None:
                self._level = following[0]
                return "more", f"{looked} gives {rate:g}/s instead of {held:g}/s; {following[1]}"
            self._hold(looked, rate)
            return "more", f"{looked} gives {rate:g}/s instead of {held:g}/s"
        if looked < home and rate >= held * (1 - self._tolerance):
            self._hold(looked, rate)
            self._looked_down = False  # there may be more to give back
            self._since_down, self._gives_back = self._wait_down, True
            return "fewer", f"{looked} is as good{' for all' if self.is_shared else ''}: {rate:g}/s, {held:g}/s before"
        if looked > home > 1 and rate < held * _COLLAPSED_SHARE and not self.is_shared:
            return self._search_anew(rate, rate / held - 1)
        wait = min(_WAIT_MAX, self._wait * 2) if rate < held * _BAD_SHARE else self._probe_every
        if looked < home:
            wait, self._wait_down = self._wait, min(_WAIT_MAX, 2 * self._wait_down)
            self._gives_back = False
        self._hold(home, held)
        self._held, self._wait = held, wait
        return "no more", f"{looked} gives {rate:g}/s instead of {held:g}/s"

    def _promises(self, rate: float, needed: float) -> bool:
        """Whether a short look is worth a longer one: a gain that is not beyond doubt, or as much with fewer."""
        gain = rate / self._held - 1 if self._held else 0.0
        if self._level < self._home:
            return gain >= -self._tolerance
        return gain > needed and (gain < _DOUBTFUL or self._noise > self._tolerance)

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


def _scale(level: int) -> float:
    """A level as a number of workers: inline there is one thread, which also receives the tuples."""
    return max(level, 0.9)
