"""When to change the partitioning function: a state machine, period by period.

Events in: what was measured in a period, and perhaps a wish for another number of channels. Instructions
out: keep the function, or replace it by this one. `handle` is the only place that changes anything.

    another number of channels is wanted            → replace, at once
    keys are split in another way                   → replace, at once
    within tolerance                                → keep, and forget earlier trouble
    outside, for fewer than `patience_periods`      → keep
    outside for long enough                         → build a candidate and weigh it:
        time saved over `horizon_periods` > time to move its state, and not too little → replace
        else                                        → keep, and wait twice as long

What is lost to imbalance is the time all channels wait for the busiest: its load over the mean load. That is
also how a candidate is judged; one that cannot help (a single key with all the load) is never taken. After a
refusal, and after a replacement that did not bring the balance it promised, patience doubles up to 32 times: where
the tolerance cannot be met, noise in the counts would else find something to improve for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import (
    Constructed,
    ConstructionSettings,
    construct,
    expect,
    state_fetched_whole,
)
from anabranch.partitioning.placing.metrics import imbalance

_HISTORY = 32
_PATIENCE_FACTOR_MAX = 32


@dataclass(frozen=True)
class PlannerSettings:
    """How eager the planner is.

    Parameters
    ----------
    construction
        How functions are built; holds the tolerances.
    patience_periods
        For how many periods in a row the imbalance must be outside the tolerance.
    horizon_periods
        Over how many periods a better balance is expected to last.
    migration_periods
        How many periods' worth of time it takes to move all state once, where periods do not say it.
    gain_min
        By how much, as a part of what it is now, the load of the busiest channel must fall for a replacement.
    """

    construction: ConstructionSettings = field(default_factory=ConstructionSettings)
    patience_periods: int = 3
    horizon_periods: float = 20.0
    migration_periods: float = 5.0
    gain_min: float = 0.05

    def __post_init__(self) -> None:
        if self.patience_periods < 1 or self.horizon_periods <= 0 or self.migration_periods < 0:
            raise ValueError(
                "patience_periods is at least 1, horizon_periods positive, migration_periods not negative; "
                f"found {self.patience_periods}, {self.horizon_periods}, {self.migration_periods}"
            )


@dataclass(frozen=True, eq=False)
class Period:
    """What happened in one adaptation period.

    Parameters
    ----------
    workload
        Frequencies of all splitters together, and measured loads.
    channels_requested
        The number of channels the controller wants; None: as many as there are.
    channel_loads
        Measured load of every channel (rows), for state, computation, communication (columns), in any unit.
        None: the loads are those that the workload implies.
    changed
        Why the function has to be built anew at once, whatever the balance: keys were split, say.
    migration_periods
        How many periods' worth of time it would take to move all state once, as far as that was measured; None: as the
        settings say.
    fetches_whole
        Whether a new owner fetches all that the old one has, for any key of it: segments that are in one piece are
        fetched whole.
    """

    workload: Workload
    channels_requested: int | None = None
    channel_loads: NDArray[np.float64] | None = None
    changed: str = ""
    migration_periods: float | None = None
    fetches_whole: bool = False


@dataclass(frozen=True, eq=False)
class Keep:
    """Go on with the function there is."""

    reason: str


@dataclass(frozen=True, eq=False)
class Replace:
    """Use another function from the next epoch on."""

    reason: str
    constructed: Constructed

    @property
    def function(self) -> PartitioningFunction:
        """The new function."""
        return self.constructed.function


@dataclass(frozen=True)
class PlannerMemory:
    """What a planner remembers, for a restarted driver."""

    outside: int = 0
    """For how many periods in a row the load has been out of balance."""
    factor: int = 1
    """How many times as long as usual it waits before it replaces a function."""


class Planner:
    """Decides, period by period, whether the partitioning function changes.

    Parameters
    ----------
    function
        The function in use.
    """

    def __init__(self, function: PartitioningFunction, settings: PlannerSettings | None = None) -> None:
        self._settings = settings or PlannerSettings()
        self._function = function
        self._periods = 0
        self._periods_outside = 0
        self._patience_factor = 1
        self._history: deque[tuple[int, str]] = deque(maxlen=_HISTORY)

    @property
    def function(self) -> PartitioningFunction:
        """The function in use after the last instruction."""
        return self._function

    @property
    def history(self) -> tuple[tuple[int, str], ...]:
        """The last decisions: number of the period, and the reason."""
        return tuple(self._history)

    def adopt(self, function: PartitioningFunction) -> None:
        """Go on with a function that somebody else put in place; the same one changes nothing."""
        if function != self._function:
            self._function = function
            self._periods_outside = 0

    def memory(self) -> PlannerMemory:
        """What a restarted driver needs beside the function."""
        return PlannerMemory(self._periods_outside, self._patience_factor)

    def restore(self, memory: PlannerMemory) -> None:
        """Go on from an earlier driver's memory."""
        self._periods_outside = memory.outside
        self._patience_factor = memory.factor

    def handle(self, period: Period) -> Keep | Replace:
        """Take in a period; return what to do, and remember it."""
        instruction = self._decide(period)
        self._periods += 1
        self._history.append((self._periods, instruction.reason))
        if isinstance(instruction, Replace):
            self._function = instruction.function
            self._periods_outside = 0
        return instruction

    def _decide(self, period: Period) -> Keep | Replace:
        current = self._function
        wanted = current.channels if period.channels_requested is None else period.channels_requested
        if wanted < 1:
            raise ValueError(f"a region needs at least 1 channel, {wanted} were requested")
        if wanted != current.channels:
            reason = f"the number of channels changes from {current.channels} to {wanted}"
            return Replace(reason, self._construct(period, wanted))
        if period.changed:
            return Replace(period.changed, self._construct(period, wanted))
        relative = self._relative_imbalance(period)
        if relative <= 1:
            self._periods_outside = 0
            self._patience_factor = 1
            return Keep(f"balanced: relative imbalance {relative:.2f}")
        self._periods_outside += 1
        patience = self._settings.patience_periods * self._patience_factor
        if self._periods_outside < patience:
            return Keep(f"relative imbalance {relative:.2f} for {self._periods_outside} of {patience} periods")
        self._periods_outside = 0
        self._patience_factor = min(2 * self._patience_factor, _PATIENCE_FACTOR_MAX)
        return self._weigh_up(period, relative)

    def _weigh_up(self, period: Period, relative: float) -> Keep | Replace:
        candidate = self._construct(period, self._function.channels)
        now = expect(self._function, period.workload, self._settings.construction.resources).slowdown
        gain = (now - candidate.expectation.slowdown) * self._settings.horizon_periods
        whole = self._settings.migration_periods if period.migration_periods is None else period.migration_periods
        cost = candidate.state_moved * whole
        fetched = ""
        if period.fetches_whole:
            resources = self._settings.construction.resources
            taken = state_fetched_whole(self._function, candidate.function, period.workload, resources)
            cost, fetched = taken * whole, f", for which {taken:.1%} is fetched"
        comparison = (
            f"relative imbalance {relative:.2f}; the busiest channel would go from {now:.2f} to "
            f"{candidate.expectation.slowdown:.2f} times the mean, which saves {gain:.2f} periods and costs "
            f"{cost:.2f} to move {candidate.state_moved:.1%} of the state{fetched}"
        )
        least = self._settings.gain_min * now * self._settings.horizon_periods
        if gain <= cost or gain < least or candidate.function == self._function:
            return Keep(f"not worth it: {comparison}")
        return Replace(comparison, candidate)

    def _relative_imbalance(self, period: Period) -> float:
        resources = self._settings.construction.resources
        if period.channel_loads is None:
            return expect(self._function, period.workload, resources).imbalance.of_balanced
        expected = (self._function.channels, 3)
        if period.channel_loads.shape != expected:
            raise ValueError(
                f"channel_loads needs one row per channel and three resources {expected}, "
                f"found {period.channel_loads.shape}"
            )
        balanced = period.workload.balanced(resources)
        return imbalance(period.channel_loads, resources, balanced=balanced).of_balanced

    def _construct(self, period: Period, channels: int) -> Constructed:
        return construct(self._function, period.workload, channels, self._settings.construction)
