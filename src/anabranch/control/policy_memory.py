"""What the default policy remembers from period to period, besides capacities: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


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
    low: int | None = None
    """While the middle is searched: the most channels known to pay…"""
    high: int | None = None
    """…and the fewest known not to."""
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
