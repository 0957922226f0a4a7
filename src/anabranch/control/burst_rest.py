"""Resting in bursts: at what serves them, or at what serves their mean, instead of following each.

    load of the last periods ─► up and down again, twice or more, by more than noise?
        no   ─► as the policy says
        yes  ─► peak: channels that the policy added for a burst are kept for the next one
                mean: as many channels as the mean load takes, whatever the policy says of this moment

Which is right is the user's to say (option ``bursts``). Where tuples can wait, a burst is worked off in the pause
behind it, and channels for the mean do; who minds how long tuples of a burst wait keeps channels for the peak.

Neither goes beyond what the policy itself has used lately: it knows where more channels do not pay. A load that goes up
and stays, or comes back after longer than the window, is no burst, and a region that tuples always wait for is
overloaded: of these the policy decides.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Policy
from anabranch.control.decision import Proposal
from anabranch.control.observation import Observation

RESTS = ("peak", "mean")
WINDOW_PERIODS = 60
PERIODS_MIN = 12  # fewer say nothing about bursts
BURSTS_MIN = 2
BURST_RATIO = 2.0  # between high and low load; less is noise…
ERRORS_PER_RATIO = 10.0  # …and where measurements are off by more, so is what is more than noise
BETWEEN_SHARE = 0.25  # of the way from one to the other is still the same load
EDGE_SHARE = 0.05  # of the periods, which say what high and low are: single ones may be off
UTILISATION = 0.85  # of the channels, by the load they rest at: what is left works backlogs off
SAME_SHARE = 0.15  # a number this close to the one there is changes nothing
CAPACITY_STEP = 0.2  # how fast what a channel can do is learned
BUSY_SHARE_MIN = 0.3  # an idle region says little about it


class _Period(NamedTuple):
    load: float
    """Tuples per second that there were to be handled."""
    waited: bool
    channels: int


class RestInBursts:
    """A policy that rests in bursts, and leaves all else to another.

    Parameters
    ----------
    policy
        Decides where there are no bursts.
    at
        "peak" or "mean".
    congestion_floor
        Congestion up to here is no waiting.
    """

    def __init__(self, policy: Policy, at: str = "peak", congestion_floor: float = 0.02) -> None:
        if at not in RESTS:
            raise ValueError(f"bursts are served at their peak or their mean, found {at!r}")
        self.name = policy.name
        self.bounds = policy.bounds
        self._policy = policy
        self._at = at
        self._floor = congestion_floor
        self._recent: list[_Period] = []
        self._channel_capacity: float | None = None
        self._resting = False

    def rebound(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._policy.rebound(bounds)

    def propose(self, observation: Observation) -> Proposal:
        proposal = self._policy.propose(observation)
        self._learn(observation)
        needed = self._needed(observation.relative_error)
        if needed is None or observation.remote:
            return proposal
        channels = observation.channels
        needed = self.bounds.clamp(min(needed, max(proposal.channels, *(period.channels for period in self._recent))))
        if self._at == "peak":
            target = max(proposal.channels, min(needed, channels))
        else:
            target = channels if abs(needed - channels) <= max(1.0, SAME_SHARE * channels) else needed
        if target == proposal.channels:
            return proposal
        reason = (
            f"the load comes in bursts, {len(self._falls())} in {len(self._recent)} periods: {needed} channels for "
        )
        return Proposal(target, "bursts", f"{reason}their {self._at}")

    def _learn(self, observation: Observation) -> None:
        load = observation.offered
        if load is None:
            load = observation.throughput / max(1.0 - observation.congestion, 0.1)
        self._recent.append(_Period(load, observation.congestion > self._floor, observation.channels))
        del self._recent[:-WINDOW_PERIODS]
        capacity = observation.capacity
        if capacity is not None and observation.busy_share >= BUSY_SHARE_MIN:
            own, known = capacity / observation.channels, self._channel_capacity
            self._channel_capacity = own if known is None else known + CAPACITY_STEP * (own - known)

    def _edges(self) -> tuple[float, float]:
        """Low and high load."""
        loads = sorted(period.load for period in self._recent)
        edge = min(math.ceil(EDGE_SHARE * len(loads)), (len(loads) - 1) // 2)
        return loads[edge], loads[-1 - edge]

    def _falls(self) -> list[int]:
        """Where in the window a high load has become low again.

        What lies between is neither: a load that falls slowly crosses the middle more than once, with its noise.
        """
        low, high = self._edges()
        falls, was_high = [], False
        for at, period in enumerate(self._recent):
            if period.load >= high - BETWEEN_SHARE * (high - low):
                was_high = True
            elif was_high and period.load <= low + BETWEEN_SHARE * (high - low):
                falls.append(at)
                was_high = False
        return falls

    def _mean(self) -> float:
        """The mean load, of whole bursts with their pauses: of anything else it would swing with them."""
        falls = self._falls()
        counted = self._recent[falls[0] : falls[-1]] if len(falls) > 1 else self._recent
        return sum(period.load for period in counted) / len(counted)

    def _needed(self, relative_error: float) -> int | None:
        """Channels to rest at; None where there are no bursts."""
        low, high = self._edges()
        ratio = max(BURST_RATIO, 1 + ERRORS_PER_RATIO * relative_error)
        least = 1 if self._resting else BURSTS_MIN  # a rest is left when the bursts are gone, not at the first pause
        always = all(period.waited for period in self._recent)
        enough = len(self._recent) >= PERIODS_MIN and high > 0
        self._resting = enough and high >= ratio * low and len(self._falls()) >= least and not always
        if not self._resting or not self._channel_capacity:
            return None
        load = high if self._at == "peak" else self._mean()
        return max(1, math.ceil(load / (UTILISATION * self._channel_capacity)))

    def to_dict(self) -> dict[str, Any]:
        return {
            **self._policy.to_dict(),
            "bursts": [list(period) for period in self._recent],
            "channel_capacity": self._channel_capacity,
            "resting": self._resting,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._policy.restore(state)
        self._recent = [_Period(*period) for period in state.get("bursts", [])]
        self._channel_capacity = state.get("channel_capacity")
        self._resting = state.get("resting", False)
