"""What the default policy remembers from period to period, besides capacities: plain values, and what they say.

Four answers need nothing but the memory: whether a region is congested (the evidence), whether its backlog shrinks by
itself, how much it would have to do (the load), and how long channels are kept (bursts). What is decided from
them is in default_policy.py, where the words are explained too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anabranch.control.default_options import DefaultOptions
from anabranch.control.observation import Observation

LOADS_MAX = 4  # periods over which the load is averaged…
SAME_LOAD_DEVIATION = 0.25  # …unless it has changed by so much: a step, not noise
TRIAL_PERIODS_MAX_FACTOR = 16
NEEDED_AGAIN_MAX = 8  # channels are kept at most 128 times as long as usual
SOON_FACTOR = 2  # times patience: channels that are needed again within so many periods should have been kept


class RecentPeriod(NamedTuple):
    """One period at the present number of channels."""

    busy_share: float
    throughput: float
    waited: bool
    """Whether tuples waited for anything, this region or another."""
    capacity: float | None = None
    """Of the region, as far as it could be told."""


@dataclass(slots=True)
class PolicyMemory:
    """All the policy remembers besides capacities. Plain values, so that it is its own serialisation."""

    channels: int | None = None
    """Channels last asked for; None before the first period."""
    evidence: float = 0.0
    """Congestion above the floor, summed; halved by each period below it."""
    congested_before: bool = False
    """Whether the period before was above the floor: the confirmation of weak congestion."""
    climbing: bool = False
    """Whether the last move was up, so that there may be a rest of the way."""
    climbing_periods: int = 0
    """Periods without congestion since then."""
    hesitant: bool = False
    """Whether the last move up was made after a period that had spoken against it."""
    load_expanded_for: float | None = None
    """Load (tuples per second) for which channels were last added."""
    judged_periods: int = 0
    """Periods spent on judging whether the present number of channels has paid."""
    ceiling: int | None = None
    """So many channels did not pay: stay below."""
    ceiling_until: int = 0
    """Period until which the ceiling holds."""
    ceiling_periods: int = 0
    """How long the last ceiling was to hold."""
    ceiling_error: float = 0.0
    """What the relative error of a capacity was thought to be when the ceiling was put."""
    ceiling_looked_at: bool = False
    """Whether a ceiling was withdrawn before its time, which happens once."""
    trial_channels: int | None = None
    """Channels there were before more were tried in doubt…"""
    trial_throughput: float = 0.0
    """…and the throughput they had."""
    trial_again: int = 0
    """Period from which on such a trial is allowed: the last one has failed."""
    trial_periods: int = 0
    """For how long the last trial that failed has put the next one off."""
    low: int | None = None
    """While the middle is searched: the most channels known to pay…"""
    high: int | None = None
    """…and the fewest known not to."""
    from_rest: bool = False
    """Whether what is searched lies above a number that the region had come to rest at."""
    back: int | None = None
    """While what lies below a peak is tried: the peak, to be gone back to if it is none the better."""
    careful: bool = False
    """Whether the next move up is a level at most: a ceiling has ended, and may still be there."""
    calm_periods: int = 0
    """Periods at the present number of channels in which nothing waited, in a row."""
    busy_most: float = 1.0
    """How busy the region is said to be when it is saturated."""
    waiting_periods: int = 0
    """Periods of congestion without business, in a row."""
    contracted_at: int | None = None
    """Period in which channels were last given back."""
    needed_again: int = 0
    """How often in a row channels that were given back were needed again soon."""
    draining: int = 0
    """Periods in which a backlog has been shrinking."""
    loads: list[list[float]] = field(default_factory=list)
    """The load of the latest periods: tuples per second, and the weight of the estimate."""

    def put_off_trial(self, period: int, periods: int) -> None:
        """A trial has failed: the next one in so many periods, and in twice as many each time."""
        self.trial_periods = min(max(periods, 2 * self.trial_periods), TRIAL_PERIODS_MAX_FACTOR * periods)
        self.trial_again = period + self.trial_periods

    def stop_search(self) -> None:
        self.low = self.high = self.back = None
        self.from_rest = False

    def weigh_congestion(self, congestion: float, options: DefaultOptions) -> bool:
        """Whether the region is congested, beyond noise and beyond the threshold."""
        above_floor = congestion > options.congestion_floor
        self.evidence = self.evidence + congestion if above_floor else self.evidence / 2
        confirmed = congestion >= options.congestion_strong or (above_floor and self.congested_before)
        self.congested_before = above_floor
        return confirmed and self.evidence > options.congestion_threshold

    def drains(self, observation: Observation, options: DefaultOptions) -> bool:
        """Whether the backlog shrinks by itself, and has not done so for too long."""
        offered = observation.offered
        if offered is None or offered > options.saturated_share * observation.throughput:
            self.draining = 0
            return False
        self.draining += 1
        return self.draining <= options.drain_periods

    def note_load(self, observation: Observation) -> None:
        load = observation.offered
        if load is None:
            load = observation.throughput / max(1.0 - observation.congestion, 0.1)
        # An estimate from heavy congestion multiplies the error of the congestion.
        weight = 1.0 if observation.offered is not None else max(1.0 - observation.congestion, 0.1) ** 2
        self.loads = [*self.loads[-LOADS_MAX + 1 :], [load, weight]]

    @property
    def load(self) -> float:
        """Tuples per second that would be handled if there were channels enough; a mean of periods that agree."""
        latest = self.loads[-1][0]
        total = weights = 0.0
        for load, weight in reversed(self.loads):
            if abs(load - latest) > SAME_LOAD_DEVIATION * latest:
                break
            total += load * weight
            weights += weight
        return total / weights

    def note_unsteadiness(self, period: int, patience: int) -> None:
        """Channels that were given back and are needed again soon are kept longer the next time, and so on."""
        if self.contracted_at is None:
            return
        # Soon against how long they were kept before they were given back.
        soon = period - self.contracted_at <= patience * max(SOON_FACTOR, self.kept_factor / 2)
        self.needed_again = max(0, min(NEEDED_AGAIN_MAX, self.needed_again + (1 if soon else -1)))
        self.contracted_at = None

    @property
    def kept_factor(self) -> int:
        """How much longer than usual channels are kept: once is chance, from then on twice as long each time."""
        return 1 << max(0, self.needed_again - 1)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def of_dict(cls, state: dict[str, Any]) -> PolicyMemory:
        return cls(**{name: state[name] for name in cls.__dataclass_fields__ if name in state})
