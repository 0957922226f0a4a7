"""The controller of *Elastic* (Gedik et al.), Algorithms 1-3 as printed, kept to reproduce it.

Per level the algorithm remembers: when it was last there (P), whether that was congested (C), the last
throughput (T⁻) and the first throughput of the last stay (T⁺). It then applies

    P3, P4  a load change seen in congestion or throughput forgets the levels above (more) or below (less)
    P5      one level up brought nothing and congestion went on: down
    P1      congested: up, unless the level above is remembered with less throughput than this
    P2      not congested: down, unless the level below is remembered as congested
    P6      levels, not channels, change by one (levels.py)

Read with the corrections of the project's notes: three exclusive branches in Algorithm 2, N[-1] = 0, and
Algorithm 3 ends in "unknown". Its faults are NOT corrected; tests/control/test_paper_policy.py shows each.
Use default_policy.py for work.

Sentinels: T⁺ None is the paper's nan (no stay yet), T⁻ math.inf its infinity (never seen, or forgotten).
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

from anabranch.control.bounds import Bounds
from anabranch.control.decision import Proposal
from anabranch.control.levels import LevelFunction, channels_of_levels, paper_levels
from anabranch.control.observation import Observation


class LoadChange(Enum):
    LESS = "less load"
    MORE = "more load"
    UNKNOWN = "unknown"


class PaperPolicy:
    """*Elastic* as printed.

    Parameters
    ----------
    bounds
        Fewest and most channels.
    congestion_threshold
        A congestion index above it counts as congested. The paper ran with 0.2.
    change_sensitivity
        α in [0, 1]: 1 takes a tenth of one ideal channel's throughput for a load change, 0 a whole one.
    level_function
        P6, see levels.py.
    """

    name = "paper"

    def __init__(
        self,
        bounds: Bounds | None = None,
        *,
        congestion_threshold: float = 0.2,
        change_sensitivity: float = 0.5,
        level_function: LevelFunction = paper_levels,
    ) -> None:
        if not 0 <= change_sensitivity <= 1:
            raise ValueError(f"change_sensitivity must be in [0, 1], got {change_sensitivity}")
        self._threshold = congestion_threshold
        self._level_function = level_function
        self._significant = 0.1 + (1.0 - change_sensitivity) * 0.9
        self.rebound(bounds if bounds is not None else Bounds())

    def rebound(self, bounds: Bounds) -> None:
        """Algorithm 1. Other bounds make other levels, about which nothing is known yet."""
        self.bounds = bounds
        self._channels_of = channels_of_levels(self._level_function, bounds)
        levels = len(self._channels_of)
        self._period = 1
        self._level = 0
        self._first: list[float | None] = [None] * (levels + 1)
        self._last: list[float] = [math.inf] * (levels + 1)
        self._congested: list[bool] = [True] * (levels + 1)
        self._visited: list[int] = [-1] * (levels + 1)

    def propose(self, observation: Observation) -> Proposal:
        """Algorithm 2."""
        self._go_where_we_are(observation.channels)
        throughput = observation.throughput
        congested = observation.congestion > self._threshold
        changes = (self._change_via_congestion(congested), self._change_via_throughput(throughput))
        if LoadChange.LESS in changes:
            for i in range(self._level + 1):
                self._congested[i], self._last[i] = False, 0.0
        if LoadChange.MORE in changes:
            for i in range(self._level, len(self._last)):
                self._congested[i], self._last[i] = True, math.inf

        level = self._level
        self._visited[level] = self._period
        self._period += 1
        self._last[level], self._congested[level] = throughput, congested
        if self._first[level] is None:
            self._first[level] = throughput

        branch, reason = self._move(level, throughput, congested)
        seen = [change.value for change in changes if change is not LoadChange.UNKNOWN]
        if seen:
            reason += f" (load change: {', '.join(seen)})"
        return Proposal(self._channels_of[self._level], branch, reason)

    def _move(self, level: int, throughput: float, congested: bool) -> tuple[str, str]:
        came_from_below = level > 0 and self._visited[level - 1] == self._visited[level] - 1
        if came_from_below and self._congested[level - 1] and congested and throughput <= self._last[level - 1]:
            self._enter(level - 1)
            return "remote", f"P5: still congested, and {throughput:g}/s is no more than one level below"
        if congested:
            if level >= len(self._channels_of) - 1:
                return "limit", "P1: congested, but this is the highest level"
            above = self._last[level + 1]
            if above >= throughput:
                self._enter(level + 1)
                return "expand", "P1: congested" + ("" if math.isinf(above) else f", {above:g}/s known above")
            return "hold", f"P1: congested, but the level above is remembered with only {above:g}/s"
        if level > 0 and not self._congested[level - 1]:
            self._enter(level - 1)
            return "contract", "P2: not congested, and the level below is not known to be"
        if level == 0:
            return "hold", "P2: not congested, but this is the lowest level"
        return "hold", "P2: not congested, but the level below is remembered as congested"

    def _enter(self, level: int) -> None:
        self._first[level] = None
        self._level = level

    def _change_via_congestion(self, congested: bool) -> LoadChange:
        """Algorithm 3, first routine (P3)."""
        level, before = self._level, self._period - 1
        if self._visited[level] == before and self._congested[level] != congested:
            return LoadChange.MORE if congested else LoadChange.LESS
        if self._visited[level + 1] == before and self._congested[level + 1] and not congested:
            return LoadChange.LESS
        if level > 0 and self._visited[level - 1] == before and not self._congested[level - 1] and congested:
            return LoadChange.MORE
        return LoadChange.UNKNOWN

    def _change_via_throughput(self, throughput: float) -> LoadChange:
        """Algorithm 3, second routine (P4). A change is significant relative to ideal (linear) scaling."""
        level, before = self._level, self._period - 1
        first = self._first[level]
        if self._visited[level] == before and first is not None:
            channels = self._channels_at(level)
            per_channel = first / channels
            if throughput < first:
                if first - throughput > self._significant * (channels - self._channels_at(level - 1)) * per_channel:
                    return LoadChange.LESS
            elif throughput - first > self._significant * (self._channels_at(level + 1) - channels) * per_channel:
                return LoadChange.MORE
        if self._visited[level + 1] == before and throughput > self._last[level + 1]:
            return LoadChange.MORE
        if level > 0 and self._visited[level - 1] == before and throughput < self._last[level - 1]:
            return LoadChange.LESS
        return LoadChange.UNKNOWN

    def _channels_at(self, level: int) -> int:
        """Channels of a level, also of the one below the lowest (0) and the one above the highest."""
        if level < 0:
            return 0
        if level < len(self._channels_of):
            return self._channels_of[level]
        highest = self._channels_of[-1]
        return 2 * highest - self._channels_at(len(self._channels_of) - 2)

    def _go_where_we_are(self, channels: int) -> None:
        """The paper has no rescaling by hand; we go to the highest level that needs no more channels."""
        if self._channels_of[self._level] == channels:
            return
        fitting = [level for level, count in enumerate(self._channels_of) if count <= channels]
        self._enter(fitting[-1] if fitting else 0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "period": self._period,
            "level": self._level,
            "levels": [
                {
                    "channels": channels,
                    "visited": self._visited[i],
                    "congested": self._congested[i],
                    "throughput_last": None if math.isinf(self._last[i]) else self._last[i],
                    "throughput_first": self._first[i],
                }
                for i, channels in enumerate(self._channels_of)
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        if [level["channels"] for level in state["levels"]] != list(self._channels_of):
            return  # other bounds or another level function: the memory is about other levels
        self._period, self._level = state["period"], state["level"]
        for i, level in enumerate(state["levels"]):
            last = level["throughput_last"]
            self._visited[i], self._congested[i] = level["visited"], level["congested"]
            self._last[i] = math.inf if last is None else last
            self._first[i] = level["throughput_first"]
