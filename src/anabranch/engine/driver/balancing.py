"""Which channel should own which keys: frequencies from the splitters, a planner per region.

    reports of an epoch ─► Knowledge of each region ─► Planner of each region ─► keep, or another function

A function is replaced at once when the number of channels changes, and then fits the workload, if one is known.
With as many channels as before it is replaced only if the balance was outside the tolerance for some periods and
the time that a better one saves exceeds the time to move the state (planner.py). A period is an epoch,
or as many as it takes to see enough rows.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anabranch.compiler.layout.stages import Layout, Stage
from anabranch.compiler.rewriting.managed_state import ManagedDicts
from anabranch.engine.reports import ChannelReport, MergerReport, Report
from anabranch.errors import ProgramError
from anabranch.operators.hot_key_parts import HotKeyParts
from anabranch.operators.library_operator import LibraryOperator
from anabranch.partitioning.counting.key_costs import ChannelTimes
from anabranch.partitioning.counting.knowledge import Knowledge
from anabranch.partitioning.counting.tally import Counted
from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import Construction, ConstructionSettings, resized
from anabranch.partitioning.placing.hot_key_ways import plan_splits, resplit
from anabranch.partitioning.placing.planner import Period, Planner, PlannerMemory, PlannerSettings, Replace
from anabranch.partitioning.placing.utility import Utility
from anabranch.partitioning.resources import GROWTHS, TOLERANCE_DEFAULT, Growth, Resources
from anabranch.partitioning.threshold import SIGMA_DEFAULT
from anabranch.program.graph import Keyed
from anabranch.program.model import Load, declaration_of
from anabranch.program.options import BUNDLES_MAX, read_options
from anabranch.state.adaptation_facts import BalancingFacts

_SPEED_KEPT = 0.98
"""Of what is known about the speed of writing state, per report of a channel."""
_BUNDLES_LEAST, _BUNDLES_PER_CHANNEL = 48, 8
"""What *Resources* has at most; and so many that one more or fewer is an eighth of a channel's load."""
_SPLIT_PATIENCE = 3
"""Periods in a row: the way to a program in two steps is not gone back."""


@dataclasses.dataclass(frozen=True)
class BalancingSettings:
    """What a user may say about balancing.

    Attributes
    ----------
    enabled : bool
        Option ``balancing``: "auto" or "off". Off: keys are spread by consistent hashing only.
    tolerances : tuple of float
        Option ``imbalanceTolerance``: how many times the load of the least loaded channel the most loaded one may
        have before anything is done about it; of state, computation, communication.
    construction : Construction
        Option ``partitioning``: how partitioning functions are built. "weigh" is ours; "scan", "redist" and "readj" are
        those of the *Partitioning* paper, told the load of the tail, which is measured here anyway; "consistent" is
        consistent hashing alone, which knows of no frequent keys. Whichever it is, a query begins with key groups dealt
        out evenly.
    sigma : float
        Option ``partitioningSigma``.
    utility : Utility
        Option ``partitioningUtility``, of the paper's constructions.
    bundles : int, optional
        Option ``bundles``: how many ranges of key groups a table gives an owner each; 0: a ring deals key groups; None:
        whichever is better where the state is.
    """

    enabled: bool = True
    tolerances: tuple[float, float, float] = (TOLERANCE_DEFAULT,) * 3
    split_gain_seconds: float = 0.5
    """How much longer than a fair share the channel of a key must work, per epoch, for going over to a program that can
    split it: about what the shuffle costs that comes with it, in CPU seconds of all processes."""
    construction: Construction = Construction.WEIGH
    sigma: float = SIGMA_DEFAULT
    utility: Utility = Utility.APM
    bundles: int | None = None

    def bundles_of(self, known: int | None, shared: bool, channels_max: int) -> int:
        """How many bundles a region has.

        Parameters
        ----------
        known : int, optional
            How many it has; None: it is new.
        shared : bool
            Whether every process opens the files of the state.
        channels_max : int
            How many channels it may get.
        """
        if self.bundles is not None:
            return self.bundles
        if known is not None:
            return known  # another number moves most keys
        # Where files are shared nobody fetches anything, and single groups make channels more even.
        return 0 if shared else min(max(_BUNDLES_LEAST, _BUNDLES_PER_CHANNEL * channels_max), BUNDLES_MAX)

    @staticmethod
    def of_options(options: Mapping[str, str]) -> BalancingSettings:
        """From a query's options; ProgramError for what they cannot mean."""
        said = read_options(options)
        for name in ("partitioning", "partitioningSigma", "partitioningUtility", "imbalanceTolerance"):
            if name in said and said.get("balancing") == "off":
                raise ProgramError(f"option {name} has no effect with balancing='off'; leave one of them out")
        construction = Construction(said.get("partitioning", Construction.WEIGH.value))
        if "partitioningUtility" in said and construction in (Construction.WEIGH, Construction.CONSISTENT):
            raise ProgramError(
                f"option partitioningUtility has no effect with partitioning={construction.value!r}: it is for scan, "
                "redist and readj"
            )
        return BalancingSettings(
            said.get("balancing", "auto") == "auto",
            said.get("imbalanceTolerance", (TOLERANCE_DEFAULT,) * 3),
            construction=construction,
            sigma=said.get("partitioningSigma", SIGMA_DEFAULT),
            utility=Utility(said.get("partitioningUtility", Utility.APM.value)),
            bundles=said.get("bundles"),
        )


class Balancing:
    """The planners of all regions.

    Parameters
    ----------
    layout : Layout, optional
        The program; says which stages are regions, and how their operators' loads grow with the frequency of a key.
    settings : BalancingSettings, optional
    fetches : bool
        Whether new owners fetch segments from where only the checkpoint is: whole ones, if there are no bundles.
    """

    def __init__(
        self, layout: Layout | None = None, settings: BalancingSettings | None = None, fetches: bool = False
    ) -> None:
        self._settings = settings or BalancingSettings()
        self._fetches = fetches
        stages = [stage for stage in layout.stages if stage.is_balanced] if layout is not None else []
        self._names = {stage.number: stage.name for stage in stages}
        self._resources = {
            stage.name: resources_of(layout, stage).tolerating(self._settings.tolerances)
            for stage in stages
            if layout is not None
        }
        # Regions that work on parts of keys, with the operator whose keys these are.
        self._salted = {stage.name: name for stage in stages if layout is not None and (name := _salted(layout, stage))}
        self._splittable = {stage.name for stage in stages if layout is not None and _splittable(layout, stage)}
        self._busy_mean: dict[str, float] = {}
        self._busy_since: dict[str, float] = {}  # the same, summed over the epochs of the period
        self._state_written: dict[str, tuple[float, float]] = {}  # bytes and seconds, fading
        self._too_hot: dict[str, int] = {}  # for how many periods in a row a key was
        self.wants_split = ""
        """Why the program should be the one in two steps, where there is one; empty: it need not."""
        self.split_because = "the query began with aggregations in two steps" if self._salted else ""
        """Why the program is the one in two steps; empty: it is not."""
        self._ways: dict[str, dict[int, int]] = {}
        self._known: dict[str, Knowledge] = {}
        self._planners: dict[str, Planner] = {}
        self._earlier: dict[str, PlannerMemory] = {}  # what planners of an earlier driver left

    def observe(self, epoch: int, reports: Sequence[Report], functions: Mapping[str, PartitioningFunction]) -> None:
        """Take in what splitters and channels reported of an epoch."""
        if not self._settings.enabled:
            return
        counted: dict[str, list[Counted]] = {}
        busy: dict[str, dict[int, float]] = {}
        times: dict[str, list[ChannelTimes]] = {}
        for report in reports:
            if isinstance(report, MergerReport):
                continue
            for keys in report.keys:
                if keys.stage in self._names:
                    counted.setdefault(self._names[keys.stage], []).append(Counted.of_report(keys.tally))
            if isinstance(report, ChannelReport):
                busy.setdefault(report.name, {})[report.channel] = report.busy_seconds
                self._observe_state(report)
                if report.measured is not None:
                    read = ChannelTimes.of_report(report.measured, report.rows_in, report.busy_seconds)
                    times.setdefault(report.name, []).extend([read] if read is not None else [])
        for region, tallies in counted.items():
            function = functions[region]
            seconds = busy.get(region, {})
            measured = None
            if set(seconds) == set(range(function.channels)):
                measured = np.array([seconds[channel] for channel in range(function.channels)])
                self._busy_mean[region] = float(measured.mean())
                self._busy_since[region] = self._busy_since.get(region, 0.0) + self._busy_mean[region]
            self._known.setdefault(region, Knowledge()).observe(tallies, function, measured, times.get(region, ()))

    def function(
        self, region: str, current: PartitioningFunction, channels: int
    ) -> tuple[PartitioningFunction, str] | None:
        """The function a region should have from now on, and why; None: the one it has."""
        known = self._known.get(region)
        if known is None or known.is_empty:
            if channels == current.channels:
                return None
            function = resized(current, channels, self._settings.construction)
            return function, f"the number of channels changes from {current.channels} to {channels}"
        planner = self._planner(region, current)
        if channels == current.channels and not known.take_period():
            return None
        workload = known.workload(current, channels, self._resources[region], self._settings.sigma)
        migration = self._migration_periods(region, known.state_bytes(), channels)
        self._busy_since[region] = 0.0
        if region in self._splittable:
            self._look_for_too_hot(region, workload, channels)
        changed = ""
        if region in self._salted:
            before = self._ways.get(region, {})
            workload, self._ways[region] = resplit(workload, before, channels)
            if self._ways[region] != before:
                # Counted were the parts there were. The next function is built for the parts there will be, and then
                # the count begins anew.
                self._known[region] = Knowledge()
                changed = f"{len(self._ways[region])} keys are split, over {sorted(self._ways[region].values())} parts"
        whole = self._fetches and not current.bundles
        instruction = planner.handle(
            Period(workload, channels, changed=changed, migration_periods=migration, fetches_whole=whole)
        )
        return (instruction.function, instruction.reason) if isinstance(instruction, Replace) else None

    def _observe_state(self, report: ChannelReport) -> None:
        """How fast channels write state; they read it about as fast."""
        size = float(sum(record.bytes for record in report.segments))
        if size > 0 and report.state_seconds > 0:
            amount, seconds = self._state_written.get(report.name, (0.0, 0.0))
            self._state_written[report.name] = (
                amount * _SPEED_KEPT + size,
                seconds * _SPEED_KEPT + report.state_seconds,
            )

    def _migration_periods(self, region: str, state_bytes: float, channels: int) -> float | None:
        """How many periods' worth of time it takes to move all state; None where that was not measured.

        New owners read what they take over, side by side. A period is worth the time that a channel works in it.
        """
        amount, seconds = self._state_written.get(region, (0.0, 0.0))
        busy = self._busy_since.get(region, 0.0)
        if state_bytes <= 0 or amount <= 0 or busy <= 0:
            return None
        return state_bytes * seconds / amount / channels / busy

    def _look_for_too_hot(self, region: str, workload: Workload, channels: int) -> None:
        """Whether a key has more than a channel's share, and for so long and so much that splitting it pays."""
        splits = plan_splits(workload, channels)
        share = splits[0].share if splits else 0.0
        loss = (share * channels - 1) * self._busy_mean.get(region, 0.0)
        if loss < self._settings.split_gain_seconds or loss <= 0:
            self._too_hot[region] = 0
            return
        self._too_hot[region] = self._too_hot.get(region, 0) + 1
        if self._too_hot[region] >= _SPLIT_PATIENCE:
            self.wants_split = (
                f"a key of {region} has {share:.0%} of the load, {share * channels:.1f} times what each of {channels} "
                f"channels should have: {loss:.2f} s of every epoch"
            )

    @property
    def wholes(self) -> dict[str, str]:
        """Regions that work on parts of keys → the operator whose keys these are."""
        return dict(self._salted)

    def _planner(self, region: str, current: PartitioningFunction) -> Planner:
        planner = self._planners.get(region)
        if planner is None:
            settings = ConstructionSettings(
                self._resources[region],
                self._settings.construction,
                sigma=self._settings.sigma,
                utility=self._settings.utility,
                knows_tail=True,
            )
            planner = self._planners[region] = Planner(current, PlannerSettings(settings))
            planner.restore(self._earlier.pop(region, PlannerMemory()))
        planner.adopt(current)
        return planner

    def hot_key_parts(self) -> dict[str, HotKeyParts]:
        """The keys that are in parts from now on, by operator."""
        return {self._salted[region]: HotKeyParts.of(ways) for region, ways in self._ways.items()}

    def history(self, region: str) -> tuple[tuple[int, str], ...]:
        """The last decisions about a region: number of the period, and the reason."""
        return self._planners[region].history if region in self._planners else ()

    def to_facts(self) -> dict[str, BalancingFacts]:
        """What a restarted driver needs to go on, by region."""
        return {
            region: BalancingFacts(
                known.to_facts(), self._planner_memory(region), tuple(self._ways.get(region, {}).items())
            )
            for region, known in self._known.items()
        }

    def _planner_memory(self, region: str) -> PlannerMemory:
        planner = self._planners.get(region)
        return planner.memory() if planner is not None else self._earlier.get(region, PlannerMemory())

    def restore(self, facts: Mapping[str, BalancingFacts]) -> None:
        """Go on from an earlier driver's facts."""
        if not self._settings.enabled:
            return
        for region, each in facts.items():
            if region in self._resources:
                self._known[region] = Knowledge.of_facts(each.known)
                self._earlier[region] = each.planner
                if region in self._salted:
                    self._ways[region] = dict(each.ways)


def _splittable(layout: Layout, stage: Stage) -> bool:
    """Whether all that is bound to the keys of a stage would be in parts if the program were in two steps."""
    keyed = [node.logic for node in layout.nodes(stage) if isinstance(node.logic, Keyed)]
    return bool(keyed) and all(logic.parts is not None for logic in keyed)


def _salted(layout: Layout, stage: Stage) -> str:
    """The operator whose keys a stage works on in parts, if it does."""
    logic = layout.nodes(stage)[0].logic
    return getattr(logic.prototype, "salted", "") if isinstance(logic, Keyed) else ""


def resources_of(layout: Layout, stage: Stage) -> Resources:
    """How the loads of a region grow with the frequency of a key: the steepest of its operators decides.

    An author says it by ``@ab.model(load=…)``. An operator of which nothing is said keeps one value per key.
    """
    loads = [_load_of(node.logic.prototype) for node in layout.nodes(stage) if isinstance(node.logic, Keyed)]
    return Resources.of_operators((GROWTHS[load.state], GROWTHS[load.computation]) for load in loads)


def _load_of(prototype: Any) -> Load:
    if isinstance(prototype, LibraryOperator):
        return prototype.load
    author = prototype.target if isinstance(prototype, ManagedDicts) else prototype
    declared = declaration_of(author)
    if declared is not None and declared.load is not None:
        return declared.load
    letters = getattr(author, "load", None)
    if isinstance(letters, str) and len(letters) == 2 and not set(letters) - set("CLQ"):
        words = [Growth(letter).name.lower() for letter in letters]
        warnings.warn(
            f"{type(author).__name__}.load = {letters!r} is the old way to say how load grows; say "
            f"@ab.model(load=ab.Load(state={words[0]!r}, computation={words[1]!r})) instead",
            DeprecationWarning,
            stacklevel=2,
        )
        return Load(*words)
    return Load()
