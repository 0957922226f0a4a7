"""The controller we use: the paper's two signals and its principles, with the SASO properties for real.

    congested, and confirmed?
      ├─ not saturated, or told that the cause is downstream ─► remote    no channels added (P5)
      ├─ arrivals are below what it handles now              ─► drain     wait, the backlog shrinks
      ├─ these channels brought too little capacity          ─► return    go back, remember (P5)
      └─ otherwise                                           ─► expand    by the model, at most × 2
    just climbed, and hardly any room is left                ─► finish    the rest of the way
    fewer would do for `patience` periods, the load has gone ─► contract  by the model, at most ÷ 2
    otherwise                                                ─► hold

*Congested* (P1, P3): congestion above a noise floor is summed over periods (in the spirit of CUSUM). Strong
congestion above the threshold acts at once, weaker congestion once it has come twice in a row and the sum
passes the threshold. So a high threshold delays, it does not blind; and noise below the floor never adds
up.

*Model* (P6; in the spirit of DS2): the load is the measured throughput / (1 − congestion), or the arrivals
if the source tells; the capacity of one channel is the measured capacity / channels. The jump goes where
the load takes `expand_utilisation` of the channels, corrected by the scaling seen between the last two
saturated sizes.

*Climb* (P5, before anything is forgotten, with a margin): an increase by at least CLIMB_RATIO must raise
the *capacity* by `gain_min`, with the measurement error taken into account: clear cases at once, unclear
ones after up to `gain_periods` periods. Judging capacity instead of throughput is what keeps controllers
from taking each other's effect for their own. A failed climb tries the middle of the interval, then rests
below a *ceiling* that lasts `ceiling_periods` (twice as long each time) or until the region itself has
changed.

*Contract* (P2): `patience` calm periods at the same number of channels must leave room on average, and the
load must have fallen clearly below the one that channels were last added for. So noise at a constant load
can add channels once, never take them away and add them again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from anabranch.control.bounds import Bounds
from anabranch.control.capacity_memory import SAMPLES_MAX, Capacity, CapacityMemory
from anabranch.control.decision import Proposal
from anabranch.control.default_options import DefaultOptions
from anabranch.control.observation import Observation

CLIMB_RATIO = 1.4  # a smaller step's gain drowns in noise
ELASTICITY_MIN = 0.5  # below it the correction would always ask for the doubling anyway
CEILING_PERIODS_MAX_FACTOR = 16
REMOTE_PATIENCE_FACTOR = 2  # a neighbour downstream may be about to grow: its turn first
SAME_LOAD_SHARE = 0.7  # two estimates of a load, the first of them rough, that may be the same load


class _Recent(NamedTuple):
    """One period at the present number of channels."""

    busy_share: float
    throughput: float
    waited: bool
    """Whether tuples waited for anything, this region or another."""


@dataclass(slots=True)
class _Memory:
    """All the policy remembers besides capacities. Plain values, so that it is its own serialisation."""

    channels: int | None = None
    """Channels last asked for; None before the first period."""
    evidence: float = 0.0
    """Congestion above the floor, summed; halved by each period below it."""
    congested_before: bool = False
    """Whether the period before was above the floor: the confirmation of weak congestion."""
    climbing: bool = False
    """Whether the last move was up, so that there may be a rest of the way."""
    load_expanded_for: float | None = None
    """Load (tuples per second) for which channels were last added."""
    judged_periods: int = 0
    """Periods spent on judging whether the present number of channels has paid."""
    limited: bool = False
    """Whether the last jump was cut to a doubling."""
    refining: bool = False
    """Whether the climb is the second try, in the middle, after one that went too far."""
    ceiling: int | None = None
    """So many channels did not pay: stay below."""
    ceiling_until: int = 0
    """Period until which the ceiling holds."""
    ceiling_periods: int = 0
    """How long the last ceiling was to hold."""
    draining: int = 0
    """Periods in which a backlog has been shrinking."""


class DefaultPolicy:
    """See the top of this file.

    Parameters
    ----------
    bounds
        Fewest and most channels.
    options
        Tuning; the defaults suit 0 to 5 % noise.
    """

    name = "default"

    def __init__(self, bounds: Bounds | None = None, options: DefaultOptions | None = None) -> None:
        self.bounds = bounds if bounds is not None else Bounds()
        self.options = options if options is not None else DefaultOptions()
        self._memory = _Memory()
        self._capacities = CapacityMemory(age_max=2 * self.options.ceiling_periods)
        self._recent: list[_Recent] = []  # the latest periods at this number of channels

    def propose(self, observation: Observation) -> Proposal:
        memory = self._memory
        if memory.channels != observation.channels:  # first period, or somebody else rescaled
            self._arrive(observation.channels)
            memory.climbing = False
        self._learn(observation)
        confirmed = self._weigh_congestion(observation.congestion)
        proposal = self._answer(observation, confirmed)
        target = self.bounds.clamp(proposal.channels)
        if target != observation.channels:
            self._arrive(target)
        return Proposal(target, proposal.branch, proposal.reason)

    def rebound(self, bounds: Bounds) -> None:
        self.bounds = bounds

    # -- learning ------------------------------------------------------------------------------------------

    def _arrive(self, channels: int) -> None:
        """Evidence belongs to the number of channels it was seen at."""
        self._memory.channels = channels
        self._memory.evidence = 0.0
        self._memory.draining = 0
        self._memory.judged_periods = 0
        self._recent.clear()

    def _learn(self, observation: Observation) -> None:
        memory, options = self._memory, self.options
        waited = observation.remote or observation.congestion > options.congestion_floor
        self._recent.append(_Recent(observation.busy_share, observation.throughput, waited))
        del self._recent[: -REMOTE_PATIENCE_FACTOR * options.patience]
        capacity = observation.capacity
        saturated = observation.busy_share >= options.saturated_share and not observation.remote
        if (
            capacity is not None
            and saturated
            and self._capacities.record(observation.channels, capacity, observation.period)
        ):
            self._forget_ceiling()
            memory.ceiling_periods = 0
        if memory.ceiling is not None and observation.period > memory.ceiling_until:
            self._forget_ceiling()

    def _forget_ceiling(self) -> None:
        self._memory.ceiling = None
        self._memory.refining = False

    def _weigh_congestion(self, congestion: float) -> bool:
        """Whether the region is congested, beyond noise and beyond the threshold."""
        memory, options = self._memory, self.options
        above_floor = congestion > options.congestion_floor
        memory.evidence = memory.evidence + congestion if above_floor else memory.evidence / 2
        confirmed = congestion >= options.congestion_strong or (above_floor and memory.congested_before)
        memory.congested_before = above_floor
        return confirmed and memory.evidence > options.congestion_threshold

    # -- deciding ------------------------------------------------------------------------------------------

    def _answer(self, observation: Observation, confirmed: bool) -> Proposal:
        if observation.remote:
            return self._contract(observation, "the congestion is downstream", branch="remote")
        if not confirmed:
            finish = self._finish_climb(observation)
            if finish is not None:
                return finish
            if observation.congestion > self.options.congestion_floor:
                return self._hold(observation, "hold", "congestion is not confirmed")
            self._memory.draining = 0
            return self._contract(observation, "not congested")
        if observation.busy_share < self.options.saturated_share:
            cause = f"tuples wait although the region is busy for only {observation.busy_share:.0%}"
            return self._contract(observation, cause, branch="remote")
        if self._drains(observation):
            return self._hold(observation, "drain", "the backlog shrinks by itself")
        judged = self._judge_climb(observation)
        return judged if judged is not None else self._expand(observation)

    def _hold(self, observation: Observation, branch: str, reason: str) -> Proposal:
        return Proposal(observation.channels, branch, f"{reason} (congestion {observation.congestion:.2f})")

    def _drains(self, observation: Observation) -> bool:
        offered = observation.offered
        if offered is None or offered > self.options.saturated_share * observation.throughput:
            self._memory.draining = 0
            return False
        self._memory.draining += 1
        return self._memory.draining <= self.options.drain_periods

    def _judge_climb(self, observation: Observation) -> Proposal | None:
        """P5: None if this number of channels has paid, so that more may be tried."""
        memory, options = self._memory, self.options
        channels = observation.channels
        resting = memory.ceiling == channels + 1  # judged before, perhaps on few samples
        here = self._capacities.get(channels)
        near = resting or memory.refining
        base = self._capacities.best_up_to(channels - 1 if near else channels / CLIMB_RATIO)
        if base is None or here is None or (resting and here.samples >= SAMPLES_MAX):
            return None
        memory.judged_periods += 1
        gain = here.throughput / base.throughput - 1.0
        wanted = options.gain_min * min(1.0, channels / base.channels - 1.0)
        error = observation.relative_error * math.sqrt(1 / here.samples + 1 / base.samples)
        unclear = abs(gain - wanted) < error
        if resting:
            return self._come_back(observation, base, gain) if gain < wanted and not unclear else None
        if unclear and not memory.refining and memory.judged_periods < options.gain_periods:
            return self._hold(observation, "judge", f"{gain:+.0%} capacity since {base.channels}: within noise")
        if gain < wanted:
            return self._come_back(observation, base, gain)
        if unclear or memory.refining:  # capacity curves bend down: the next step would bring less still
            self._put_ceiling(channels + 1, observation.period)
            return self._hold(observation, "limit", f"{gain:+.0%} capacity since {base.channels}, less above")
        return None

    def _come_back(self, observation: Observation, base: Capacity, gain: float) -> Proposal:
        channels = observation.channels
        middle = round(math.sqrt(base.channels * channels))
        reason = f"{channels} channels have {gain:+.0%} of the capacity of {base.channels}"
        if not self._memory.refining and base.channels < middle < channels:
            self._put_ceiling(channels, observation.period)
            self._memory.refining = True
            return Proposal(middle, "return", f"{reason}; trying the middle")
        self._put_ceiling(base.channels + 1, observation.period)
        return Proposal(base.channels, "return", reason)

    def _put_ceiling(self, channels: int, period: int) -> None:
        memory, options = self._memory, self.options
        if memory.ceiling is None:
            longest = CEILING_PERIODS_MAX_FACTOR * options.ceiling_periods
            memory.ceiling_periods = min(longest, max(options.ceiling_periods, 2 * memory.ceiling_periods))
        memory.refining = False
        memory.ceiling = channels
        memory.ceiling_until = period + memory.ceiling_periods

    def _expand(self, observation: Observation) -> Proposal:
        memory = self._memory
        channels = observation.channels
        wanted_by_load = math.ceil(self._channels_for_load(observation))
        wanted = max(channels + 1, min(2 * channels, wanted_by_load))
        allowed = self.bounds.channels_max
        if memory.ceiling is not None:
            allowed = min(allowed, memory.ceiling - 1)
        target = min(wanted, allowed)
        if target <= channels:
            limit = "more did not pay" if memory.ceiling is not None else "maxChannels is reached"
            return self._hold(observation, "limit", f"congested, but {limit}")
        memory.climbing = True
        memory.limited = wanted_by_load > 2 * channels
        memory.load_expanded_for = self._load(observation)
        reason = f"congested ({observation.congestion:.2f}); the load takes about {wanted} channels"
        return Proposal(target, "expand", reason)

    def _finish_climb(self, observation: Observation) -> Proposal | None:
        """Go the rest of the way once congestion is gone, or nearly so.

        If the jump was cut to a doubling, or the region is as good as saturated, the next bit of noise would
        bring the congestion back; rather now than at some later time.
        """
        memory, options = self._memory, self.options
        climbed, memory.climbing = memory.climbing, False
        load, expanded_for = self._load(observation), memory.load_expanded_for
        if climbed and expanded_for is not None and load >= SAME_LOAD_SHARE * expanded_for:
            memory.load_expanded_for = load  # estimated under heavy congestion before, now measured
        enough = options.expand_utilisation if memory.limited else options.finish_utilisation
        memory.limited = False
        # Not just the busy share: that may be the rest of a backlog.
        utilisation = self._demand(observation) * observation.busy_share
        if not climbed or utilisation <= enough or memory.ceiling is not None:
            return None
        target = math.ceil(self._channels_for_load(observation))
        return Proposal(target, "finish", f"the climb would end at a utilisation of {utilisation:.0%}")

    def _channels_for_load(self, observation: Observation) -> float:
        """Channels at which the load takes `expand_utilisation` of the region."""
        factor = self._demand(observation) * observation.busy_share / self.options.expand_utilisation
        return observation.channels * float(max(1.0, factor) ** (1.0 / self._elasticity(observation)))

    def _demand(self, observation: Observation) -> float:
        """The load in units of the present throughput."""
        return self._load(observation) / observation.throughput if observation.throughput > 0 else 1.0

    def _load(self, observation: Observation) -> float:
        """Tuples per second that would be handled if there were channels enough."""
        if observation.offered is not None:
            return observation.offered
        return observation.throughput / max(1.0 - observation.congestion, 0.1)

    def _elasticity(self, observation: Observation) -> float:
        """How capacity grows with channels near here: 1 is linear, 0.5 like the root; in doubt linear."""
        channels = observation.channels
        here = self._capacities.get(channels)
        below = self._capacities.highest_below(channels / CLIMB_RATIO)
        if here is None or below is None or here.throughput <= below.throughput:
            return 1.0
        ratio = here.throughput / below.throughput * (1.0 + 2.0 * observation.relative_error)
        slope = math.log(ratio) / math.log(channels / below.channels)
        return min(1.0, max(ELASTICITY_MIN, slope))

    def _contract(self, observation: Observation, calm: str, branch: str = "hold") -> Proposal:
        memory, options = self._memory, self.options
        channels = observation.channels
        remote = branch == "remote"
        periods = REMOTE_PATIENCE_FACTOR * options.patience if remote else options.patience
        recent = self._recent[-periods:]
        # Where tuples waited downstream, the region was idle for another reason than too many channels.
        if len(recent) < periods or (not remote and any(period.waited for period in recent)):
            return self._hold(observation, branch, calm)
        busy = sum(period.busy_share for period in recent) / periods
        throughput = sum(period.throughput for period in recent) / periods
        needed = max(math.ceil(channels * busy / options.contract_utilisation), math.ceil(channels / 2))
        if needed >= channels:
            return self._hold(observation, branch, f"{calm}; {busy:.0%} busy")
        expanded_for = memory.load_expanded_for
        if expanded_for is not None and throughput > options.load_fall_share * expanded_for:
            return self._hold(observation, branch, f"{calm}; the channels' load is still there")
        if remote and not self._throughput_is_steady(observation.relative_error):
            return self._hold(observation, branch, f"{calm}; whatever is downstream has not settled")
        memory.climbing = False
        return Proposal(needed, "contract", f"{calm}; {busy:.0%} busy for {periods} periods")

    def _throughput_is_steady(self, relative_error: float) -> bool:
        throughputs = [period.throughput for period in self._recent]
        return max(throughputs) <= min(throughputs) * (1.05 + 4 * relative_error)

    # -- a restarted driver continues ----------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        recent = [list(period) for period in self._recent]
        memory = {name: getattr(self._memory, name) for name in _Memory.__dataclass_fields__}
        return {**memory, "recent": recent, **self._capacities.to_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        names = _Memory.__dataclass_fields__
        self._memory = _Memory(**{name: state[name] for name in names})
        self._recent = [_Recent(*period) for period in state["recent"]]
        self._capacities.restore(state)
