"""Between epochs: measure → analyse → plan → activate, for every region.

    reports of an epoch ─► scaling    how many channels each region should have
                        ├► balancing  which channel should own which keys
                        ├► plan       where channels run, which bundles leave overloaded hosts (placing.py)
                        └► sizing     how many files the next epoch takes
                             │
                             └► new partitioning functions ─► the owners of the next epoch

One plan: bundles of a region move for the plan's sake only in a period in which neither scaling nor balancing moves
keys of it. All only look at what happened and answer; the runner activates. A new function is a new generation of the
region's layout (state/key_owners.py): the new owners read what the old ones wrote, and nothing stops for it.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence

from anabranch.control import Decision
from anabranch.control.period_plan import PeriodPlan
from anabranch.engine.driver.balancing import Balancing
from anabranch.engine.driver.epoch_progress import Change, EpochDurations
from anabranch.engine.driver.epoch_sizing import EpochSizing, TakenFiles
from anabranch.engine.driver.scaling import Scaling, overhead_s
from anabranch.engine.reports import Report
from anabranch.partitioning.function import PartitioningFunction
from anabranch.state.adaptation_facts import AdaptationFacts
from anabranch.state.key_owners import KeyOwners

_PLANS_KEPT = 100


@dataclasses.dataclass(frozen=True)
class EpochFacts:
    """An epoch that was committed, as adaptation sees it.

    Attributes
    ----------
    epoch : int
    started_s : float
        On a clock that only goes forward.
    durations_s : EpochDurations
        Where the driver's time went.
    rows_in : int
        Rows taken from the sources.
    depths : mapping
        Region → the depth it runs in: depths run one after the other, the regions of one side by side.
    ready_rows : int or None
        Rows that stood ready at the start; None if the sources cannot tell.
    waited_s : float or None
        How long the oldest of them had stood there; None if the sources cannot tell.
    bookkeeping_s : float
        What Spark does between two epochs, beside waiting.
    interval_s : float or None
        The trigger's interval, if it has one.
    taken_files : TakenFiles or None
        What it had of the sources whose files per epoch are ours to say.
    cut_short : bool
        It was shorter than it should have been, because our own limit is still on its way up: rows that stood ready
        did not wait for channels.
    fed_back : int
        Tuples that the epoch before had sent back, and that this one took: in a loop there may be nothing else.
    reports : sequence of Report
        What splitters, channels and mergers reported.
    """

    epoch: int
    started_s: float
    durations_s: EpochDurations
    rows_in: int
    reports: Sequence[Report]
    depths: Mapping[str, int]
    ready_rows: int | None = None
    waited_s: float | None = None
    bookkeeping_s: float = 0.0
    interval_s: float | None = None
    taken_files: TakenFiles | None = None
    cut_short: bool = False
    fed_back: int = 0


class Adaptation:
    """Decides for all regions of a query. Called by the runner between epochs, never while one runs."""

    def __init__(self, scaling: Scaling, balancing: Balancing, sizing: EpochSizing | None = None) -> None:
        self.scaling = scaling
        self.balancing = balancing
        self.sizing = sizing
        self.spread_because = ""
        """Why what has no state runs in channels of its own; empty: it runs where its source is read."""
        self._asked: dict[str, tuple[dict[int, int], str]] = {}
        self._plan_log: deque[tuple[str, Decision]] = deque(maxlen=_PLANS_KEPT)

    def move_bundles(self, region: str, channels: Mapping[int, int], why: str) -> None:
        """Give bundles of a region to other channels from the next epoch on: bundle → channel.

        It is done only if nothing else changes the owners of the region's keys in the same period: one plan.
        """
        before = self._asked.get(region, ({}, ""))[0]
        self._asked[region] = ({**before, **channels}, why)

    def take_plan(self, plan: PeriodPlan, epoch: int, owners: KeyOwners) -> None:
        """Note a plan of the period: its bundles move with what else changes, and its steps are remembered."""
        for region, targets in plan.bundles.items():
            why = next((step.reason for step in plan.steps if step.region == region), "")
            self.move_bundles(region, targets, why)
        for step in plan.steps:
            for region in [step.region] if step.region else self.scaling.regions:
                if region in owners.regions:
                    channels = owners.function(region).channels
                    self._plan_log.append(
                        (region, Decision("plan", epoch, channels, channels, step.kind, step.reason, None))
                    )

    def restored(self, plan: PeriodPlan, epoch: int, owners: KeyOwners) -> KeyOwners:
        """The owners after executors were lost: bundles go where copies of them are, at once."""
        self.take_plan(plan, epoch, owners)
        for region, targets in plan.bundles.items():
            owners = owners.replaced(region, _with_moved(owners.function(region), targets))
        self._asked = {}
        return owners

    def plan_decisions(self, region: str) -> tuple[Decision, ...]:
        """What the plans of the last periods changed in a region, oldest first."""
        return tuple(decision for name, decision in self._plan_log if name == region)

    def after(self, facts: EpochFacts, owners: KeyOwners) -> tuple[KeyOwners, list[Change]]:
        """The owners of the next epoch, and what changed in them."""
        functions = {region: owners.function(region) for region in self.scaling.regions}
        if self.sizing is not None:
            facts = dataclasses.replace(facts, cut_short=self.sizing.after(facts, overhead_s(facts)))
        self.balancing.observe(facts.epoch, facts.reports, functions)
        wanted = self.scaling.wanted(facts, {region: each.channels for region, each in functions.items()})
        changes = []
        for region, (channels, why) in wanted.items():
            found = self.balancing.function(region, functions[region], channels)
            if found is not None:
                function, reason = found
                changes.append(
                    Change(region, facts.epoch + 1, functions[region].channels, function.channels, why or reason)
                )
                owners = owners.replaced(region, function)
        moved = {change.region for change in changes}
        for region, (targets, why) in self._asked.items():
            if region in functions and region not in moved:
                function = _with_moved(functions[region], targets)
                if function != functions[region]:
                    changes.append(Change(region, facts.epoch + 1, function.channels, function.channels, why))
                    owners = owners.replaced(region, function)
        self._asked = {}
        if changes:
            self.scaling.changed()
            if self.sizing is not None:
                self.sizing.changed()
        return owners, changes

    def to_facts(self) -> AdaptationFacts:
        """What a restarted driver needs to go on, for the manifest."""
        sizing = None if self.sizing is None else self.sizing.to_facts()
        return AdaptationFacts(self.scaling.to_facts(), self.balancing.to_facts(), sizing)

    def restore(self, facts: AdaptationFacts, owners: KeyOwners) -> None:
        """Go on from an earlier driver's facts, with the owners of now."""
        channels = {region: owners.function(region).channels for region in self.scaling.regions}
        self.scaling.restore(facts.scaling, channels)
        self.balancing.restore(facts.balancing)

    def take_over(self, channels: Mapping[str, int], split_because: str, spread_because: str) -> None:
        """Go on from another form of the program, whose regions had so many channels; and why it has this one."""
        self.balancing.split_because = split_because
        self.spread_because = spread_because
        before = dict(channels)
        for part, whole in self.balancing.wholes.items():
            # Partial windows have the work now, so they begin with the channels of what they are parts of.
            before.setdefault(part, before.get(whole, 1))
        for status in self.scaling.status():
            wanted = before.get(status.name, status.channels)
            if wanted != status.channels and not status.pinned:
                self.scaling.rescale(status.name, wanted)


def _with_moved(function: PartitioningFunction, targets: Mapping[int, int]) -> PartitioningFunction:
    """The function with some bundles at other channels, as far as it has these."""
    table = function.bundle_channels.copy()
    for bundle, channel in targets.items():
        if bundle < function.bundles and channel < function.channels:
            table[bundle] = channel
    return function.with_bundles(table)
