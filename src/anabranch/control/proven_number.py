"""Going down in overload: back to a smaller number that did more lately, and else by half at most.

    nothing waited at m channels ─► proven: m channels did so much, at that time
    congested and saturated at n > m, with less than m was proven for, twice
                                 ─► back to m, and below n for a while; twice as long each time
    the policy goes below n / 2 in overload, to what was not measured lately to do as much
                                 ─► to n / 2

A region that collapses beyond some number of channels may never have been saturated at the last good one: all tuples
were handled there with room to spare, then one more channel was added. No capacity is known of the good number then, so
no law can say that it was better; but what it did is known. A number at which tuples begin to wait for less than it was
proven for has become slower, and everything with it: all is forgotten, because in overload nobody goes down by memories
of another region. And if the smaller number, gone back to, does no more than the larger one did, then something else
had happened in between (a neighbour took the host): nothing keeps the region below that number any more. Nor by laws
alone: what fits three measurements may say that one channel would do.
"""

from __future__ import annotations

from typing import Any

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Policy
from anabranch.control.decision import Proposal
from anabranch.control.observation import Observation

FRESH_PERIODS = 30  # what was done longer ago proves nothing
CONFIRMING_PERIODS = 2
GAIN_MIN = 0.05  # by so much more the smaller number must have done…
ERRORS_PER_GAIN = 3.0  # …or by so many times what measurements are off by
CEILING_PERIODS = 100
CEILING_PERIODS_MAX = 1600
SATURATED_SHARE = 0.9
CONGESTION_MIN = 0.05


class BackToProven:
    """A policy that goes back to what has proved better, and leaves all else to another.

    Parameters
    ----------
    policy
        Decides about all else.
    congestion_floor
        Congestion up to here is no waiting.
    """

    def __init__(self, policy: Policy, congestion_floor: float = 0.02) -> None:
        self.name = policy.name
        self.bounds = policy.bounds
        self._policy = policy
        self._floor = congestion_floor
        self._proven: dict[int, tuple[float, int]] = {}  # channels → tuples per second, period
        self._measured: dict[int, tuple[float, int]] = {}  # channels → capacity while saturated, period
        self._worse = 0
        self._ceiling: int | None = None
        self._ceiling_did = 0.0  # tuples per second, at the number that has proved worse
        self._void = 0  # periods that spoke against the ceiling
        self._ceiling_until = 0
        self._ceiling_periods = 0

    def rebound(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._policy.rebound(bounds)

    def propose(self, observation: Observation) -> Proposal:
        proposal = self._policy.propose(observation)
        if observation.remote:
            return proposal
        channels, period = observation.channels, observation.period
        if self._ceiling is not None and period > self._ceiling_until:
            self._ceiling = None
        self._look_again(observation)
        proven = self._better(observation)
        self._worse = 0 if proven is None else self._worse + 1
        # Where the policy goes down by itself there is nothing to be confirmed, only a better number to go to.
        if proven is not None and (self._worse >= CONFIRMING_PERIODS or proposal.channels < channels):
            self._ceiling_periods = min(2 * self._ceiling_periods or CEILING_PERIODS, CEILING_PERIODS_MAX)
            self._ceiling, self._ceiling_until = channels, period + self._ceiling_periods
            self._ceiling_did, self._void = observation.throughput, 0
            did = self._proven[proven][0]
            reason = f"{proven} channels did {did:.0f}/s lately, {channels} do {observation.throughput:.0f}/s"
            return Proposal(proven, "return", reason)
        if self._ceiling is not None and proposal.channels >= self._ceiling > channels:
            held = max(channels, self.bounds.channels_min)
            return Proposal(held, "limit", f"{self._ceiling} channels have proved worse; {proposal.reason}")
        return self._not_too_far_down(observation, proposal)

    def _look_again(self, observation: Observation) -> None:
        """Withdraw the ceiling if what the region went back to does no more than what lies above it did."""
        capacity = observation.capacity
        if self._ceiling is None or capacity is None or not _overloaded(observation):
            return
        self._void = self._void + 1 if capacity <= self._ceiling_did else 0
        if self._void >= CONFIRMING_PERIODS:
            self._ceiling, self._ceiling_periods = None, 0
            self._proven.clear()

    def _not_too_far_down(self, observation: Observation, proposal: Proposal) -> Proposal:
        channels, capacity = observation.channels, observation.capacity
        if capacity is None or not _overloaded(observation):
            return proposal
        self._measured[channels] = (capacity, observation.period)
        known, at = self._measured.get(proposal.channels, (0.0, 0))
        as_good = known >= capacity * (1 - GAIN_MIN) and observation.period - at <= FRESH_PERIODS
        half = -(-channels // 2)
        if proposal.channels >= half or as_good:
            return proposal
        return Proposal(half, proposal.branch, f"{proposal.reason}; not measured lately, so by half")

    def _better(self, observation: Observation) -> int | None:
        """Learn from a period; the smaller number that did clearly more, while this one is overloaded."""
        channels, period = observation.channels, observation.period
        if observation.congestion <= self._floor:
            self._proven[channels] = (observation.throughput, period)
            return None
        capacity = observation.capacity
        if capacity is None or not _overloaded(observation):
            return None
        if channels in self._proven and capacity < self._proven[channels][0]:
            self._proven.clear()
        wanted = capacity * (1 + max(GAIN_MIN, ERRORS_PER_GAIN * observation.relative_error))
        better = [
            fewer
            for fewer, (throughput, at) in self._proven.items()
            if fewer < channels and throughput > wanted and period - at <= FRESH_PERIODS
        ]
        return max(better, key=lambda fewer: self._proven[fewer][0], default=None)

    def to_dict(self) -> dict[str, Any]:
        return {
            **self._policy.to_dict(),
            "proven_measured": [[channels, *known] for channels, known in self._measured.items()],
            "proven": [[channels, *known] for channels, known in self._proven.items()],
            "proven_worse": self._worse,
            "proven_ceiling": [self._ceiling, self._ceiling_until, self._ceiling_periods],
            "proven_void": [self._ceiling_did, self._void],
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._policy.restore(state)
        self._proven = {channels: (throughput, at) for channels, throughput, at in state.get("proven", [])}
        self._measured = {channels: (capacity, at) for channels, capacity, at in state.get("proven_measured", [])}
        self._worse = state.get("proven_worse", 0)
        self._ceiling, self._ceiling_until, self._ceiling_periods = state.get("proven_ceiling", [None, 0, 0])
        self._ceiling_did, self._void = state.get("proven_void", [0.0, 0])


def _overloaded(observation: Observation) -> bool:
    return observation.busy_share >= SATURATED_SHARE and observation.congestion >= CONGESTION_MIN
