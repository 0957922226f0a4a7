"""A machine that warms up or wanders: levels are compared in turn, not across times.

    capacity at the resting number   900  930  960 … 1100 1105 1098 1102      it has become faster by itself
                                      └ here the verdict fell      └ steady again: the verdict is of another machine
    in turn, a period each:          here  fewer  here  more  here            each beside what was before and after it
                                          └ better than the mean of its two neighbours, beyond noise ─► go there,
                                            and again with what lies beside it; perhaps ─► once more; else what lies
                                            between it and those, if that may do more; else it rests

In the first epochs of a JVM everything gets faster by itself, and the speed of a machine wanders by a tenth. A climb
measures each number of channels at another time, so that this looks like an effect of the channels: more look better
while it warms up, worse while others take the machine. The two cannot be told apart from one pass. They can where the
*same* number is measured before and after another: whatever goes on by itself is in the mean of the two.

More are tried only where it has become faster. Where it has become slower others may want the same host, and one that
takes more gets more at their cost: each would find that in turn, until all are slower.

It is asked only where there is reason to: in overload, at rest, when what the same number of channels does has changed
beyond noise since it was first measured and has come to rest again. A machine that keeps its speed is never disturbed;
after each such trial the next needs twice the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from statistics import fmean
from typing import Any

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Policy
from anabranch.control.decision import Proposal
from anabranch.control.observation import Observation

RATIO = 1.4  # between two levels
NEAR_RATIO = 1.15  # two numbers this close are not told apart
ROUNDS_MAX = 4  # of a trial
FIRST_PERIODS = 3  # at the present number that say what it did when it was chosen
LATEST_PERIODS = 4  # that say what it does now
CHANGE_MIN = 0.06  # of the speed, since then
ERRORS_PER_CHANGE = 5.0  # many periods are looked at, so chance must be rarer than usual
STEADY_SHARE = 0.5  # of the change at most may still be going on
GAIN_MIN = 0.03
ERRORS_PER_GAIN = 2.0
NOISY = 0.03  # of so much noise on, every level is measured twice
NOISE_MAX = 0.06  # beyond this a few periods do not tell levels apart
CAP_PERIODS = 100  # so long no more channels than were best are tried; twice where more clearly did less all along
SATURATED_SHARE = 0.9
CONGESTION_MIN = 0.05
DEVIATION_OF_MEAN_DIFFERENCE = 0.886
DIFFERENCE_STEP = 0.1


@dataclass(slots=True)
class _Memory:
    """Plain values, so that it is its own serialisation."""

    channels: int = 0
    capacities: list[float] = field(default_factory=list)
    """The latest at this number of channels, in overload, oldest first."""
    first: dict[str, list[float]] = field(default_factory=dict)
    """Channels, as text → the first capacities since overload began, or since the last trial."""
    difference: float | None = None
    """Between two periods at the same number, relative: a running mean."""
    rested: int = 0
    plan: list[int] = field(default_factory=list)
    """Numbers of channels still to be measured, a period each; empty: no trial is on."""
    home: int = 0
    """What is best of what the trial has compared."""
    measured: list[list[float]] = field(default_factory=list)
    """Of the trial: channels, capacity."""
    known: list[int] = field(default_factory=list)
    """Of the trial: all numbers that were, or are being, compared."""
    origin: int = 0
    """Where the trial began."""
    rounds: int = 0
    repeated: bool = False
    """Whether what seemed better in this round, but not beyond noise, was measured once more."""
    faster: bool = False
    """Whether the trial began because the machine has become faster."""
    factor: float = 1.0
    """How many times the least change the next trial needs."""
    cap: int | None = None
    cap_until: int = 0


class LevelsInTurn:
    """A policy that compares neighbouring levels in turn where the machine's speed has changed, and else another.

    Parameters
    ----------
    policy
        Decides about all else.
    """

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self.bounds = policy.bounds
        self._policy = policy
        self._memory = _Memory()

    def rebound(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._policy.rebound(bounds)

    def propose(self, observation: Observation) -> Proposal:
        memory = self._memory
        proposal = self._policy.propose(observation)
        overloaded = observation.busy_share >= SATURATED_SHARE and observation.congestion >= CONGESTION_MIN
        if observation.remote or not overloaded or observation.capacity is None:
            self._stop()
            memory.first = {}
            return proposal
        if proposal.branch == "settle":  # what is measured is of the time before the last change
            return Proposal(observation.channels, "settle", proposal.reason)
        if memory.plan:
            return self._go_on(observation, proposal)
        if memory.cap is not None and proposal.channels > memory.cap >= observation.channels:
            proposal = self._capped(observation, proposal, memory.cap)
        if observation.channels != memory.channels or proposal.channels != observation.channels:
            if memory.rested >= 2 * LATEST_PERIODS:  # what it left was chosen long ago; what comes now is chosen anew
                memory.first = {}
            self._stop()
            memory.channels = observation.channels
        memory.rested += 1
        if memory.capacities:
            difference, known = abs(observation.capacity / memory.capacities[-1] - 1.0), memory.difference
            memory.difference = difference if known is None else known + DIFFERENCE_STEP * (difference - known)
        memory.capacities = [*memory.capacities, observation.capacity][-2 * LATEST_PERIODS :]
        first = memory.first.setdefault(str(observation.channels), [])
        if len(first) < FIRST_PERIODS:
            first.append(observation.capacity)
        if proposal.channels == observation.channels and self._has_changed(observation):
            return self._begin(observation, proposal)
        return proposal

    def _capped(self, observation: Observation, proposal: Proposal, cap: int) -> Proposal:
        """More than were best in turn: not for a while, and then by a level."""
        if observation.period <= self._memory.cap_until:
            return Proposal(observation.channels, "limit", f"measured in turn, more than {cap} channels did less")
        self._memory.cap = None
        level = self.bounds.clamp(max(cap + 1, round(cap * RATIO)))
        return replace(proposal, channels=min(proposal.channels, level))

    def _stop(self) -> None:
        memory = self._memory
        memory.capacities, memory.plan, memory.measured, memory.known, memory.rested = [], [], [], [], 0

    def _error(self, observation: Observation) -> float:
        """Of a period's capacity, relative: what is told, or what is seen from period to period."""
        return max(observation.relative_error, DEVIATION_OF_MEAN_DIFFERENCE * (self._memory.difference or 0.0))

    def _has_changed(self, observation: Observation) -> bool:
        memory = self._memory
        if memory.rested < 2 * LATEST_PERIODS:
            return False
        first = fmean(memory.first[str(observation.channels)])
        earlier = fmean(memory.capacities[:LATEST_PERIODS])
        latest = fmean(memory.capacities[-LATEST_PERIODS:])
        change = abs(latest / first - 1.0)
        error = self._error(observation)
        if error > NOISE_MAX:
            return False
        chance = error * (1 / FIRST_PERIODS + 1 / LATEST_PERIODS) ** 0.5
        if change < memory.factor * max(CHANGE_MIN, ERRORS_PER_CHANGE * chance):
            return False
        return abs(latest / earlier - 1.0) <= STEADY_SHARE * change

    def _begin(self, observation: Observation, proposal: Proposal) -> Proposal:
        memory, home = self._memory, observation.channels
        times = 2 if self._error(observation) >= NOISY else 1
        memory.factor *= 2
        memory.known, memory.origin, memory.rounds = [home], home, 0
        memory.faster = fmean(memory.capacities[-LATEST_PERIODS:]) > fmean(memory.first[str(home)])
        measured = [[home, capacity] for capacity in memory.capacities[-times:]]
        why = f"the same {home} channels do another amount than when they were chosen"
        return self._round(home, measured, times, why) or proposal

    def _round(
        self, home: int, measured: list[list[float]], times: int, why: str, others: list[int] | None = None
    ) -> Proposal | None:
        """Begin to measure others beside home; None: there are none left."""
        memory = self._memory
        others = self._others(home) if others is None else others
        if not others or memory.rounds >= ROUNDS_MAX:
            return None
        memory.home, memory.measured, memory.rounds, memory.repeated = home, measured, memory.rounds + 1, False
        first = [] if measured else [home] * times
        memory.plan = first + [step for other in others for step in [other] * times + [home] * times]
        memory.known += others
        return Proposal(memory.plan[0], "in turn", why)

    def _others(self, home: int) -> list[int]:
        """To be compared with home: a level to each side, or what lies between it and what was compared."""
        found = []
        fewer = max((n for n in self._memory.known if n < home), default=None)
        more = min((n for n in self._memory.known if n > home), default=None)
        if more is None and self._memory.faster:
            found.append(self.bounds.clamp(max(home + 1, round(home * RATIO))))
        elif more is not None and more - home > 1 and more > NEAR_RATIO * home:
            found.append((home + more) // 2)
        if fewer is None:
            found.append(self.bounds.clamp(round(home / RATIO)))
        elif home - fewer > 1 and home > NEAR_RATIO * fewer:
            found.append((home + fewer) // 2)
        return [n for n in found if n != home]

    def _may_do_more(self, channels: int, gains: Mapping[int, float]) -> bool:
        """Whether a number between home and fewer, which did less, may do more than home.

        No law is better than linear, and none falls and rises again: what home does more than more channels do is the
        most by which it may do less than one channel fewer.
        """
        memory, home = self._memory, self._memory.home
        fewer = max((n for n in memory.known if n < channels), default=channels)
        more = min((n for n in memory.known if n > home), default=None)
        if more is None or fewer not in gains or more not in gains:
            return False
        falls = -gains[more] / (more - home)
        return min(1.0 + falls * (home - channels), (1.0 + gains[fewer]) * channels / fewer) >= 1.0 + GAIN_MIN

    def _go_on(self, observation: Observation, proposal: Proposal) -> Proposal:
        memory = self._memory
        if observation.channels != memory.plan[0]:  # somebody else has rescaled
            self._stop()
            return proposal
        assert observation.capacity is not None
        memory.measured.append([memory.plan.pop(0), observation.capacity])
        if memory.plan:
            step = memory.plan[0]
            return Proposal(step, "in turn", f"{step} channels beside {memory.home}, at the same time")
        return self._judge(observation)

    def _judge(self, observation: Observation) -> Proposal:
        """Each level beside the mean of the home periods before and after it."""
        memory, home = self._memory, self._memory.home
        error = max(observation.relative_error, _spread([c for n, c in memory.measured if n == home]))
        runs: list[tuple[int, list[float]]] = []
        for channels, capacity in memory.measured:
            if not runs or runs[-1][0] != int(channels):
                runs.append((int(channels), []))
            runs[-1][1].append(capacity)
        seen: dict[int, list[float]] = {}
        for (_, before), (channels, here), (_, after) in zip(runs, runs[1:], runs[2:], strict=False):
            if channels != home:
                seen.setdefault(channels, []).append(fmean(here) / fmean([fmean(before), fmean(after)]) - 1.0)
        gains = {channels: fmean(each) for channels, each in seen.items()}
        best = max(gains, key=lambda channels: gains[channels])
        times = len(runs[0][1])
        better = gains[best] >= max(GAIN_MIN, ERRORS_PER_GAIN * error / (times * len(seen[best])) ** 0.5)
        if not better and gains[best] >= GAIN_MIN and not memory.repeated:
            # Two or three periods say little of the noise, which may be less than it seems.
            memory.repeated = True
            memory.plan = [best] * times + [home] * times
            return Proposal(best, "in turn", f"{best} channels may be better than {home}: once more")
        chosen = best if better else home
        latest = [] if better else [[home, capacity] for n, capacity in memory.measured if n == home][-times:]
        why = f"{chosen} channels are best of {sorted(memory.known)}, measured in turn"
        others = None if better else [n for n in self._others(home) if n < home and self._may_do_more(n, gains)]
        if next_round := self._round(chosen, latest, times, f"{why}; and beside them?", others):
            return next_round
        tried_more = max(memory.known) > chosen
        clearly_less = all(gain <= -GAIN_MIN for channels, gain in gains.items() if channels > chosen)
        self._stop()
        memory.first = {}
        right = chosen == memory.origin  # all along
        if right:
            memory.factor *= 2
        if tried_more or not right:
            periods = CAP_PERIODS * (2 if right and clearly_less else 1)
            memory.cap, memory.cap_until = chosen, observation.period + periods
        return Proposal(chosen, "in turn", why)

    def to_dict(self) -> dict[str, Any]:
        return {**self._policy.to_dict(), "in_turn": asdict(self._memory)}

    def restore(self, state: dict[str, Any]) -> None:
        self._policy.restore(state)
        self._memory = replace(_Memory(), **state.get("in_turn", {}))


def _spread(capacities: list[float]) -> float:
    changes = [abs(after / before - 1.0) for before, after in pairwise(capacities)]
    return DEVIATION_OF_MEAN_DIFFERENCE * fmean(changes) if changes else 0.0
