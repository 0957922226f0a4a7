"""What is remembered of where channels ran and who has copies of their bundles, and what follows for the next epoch.

    reports of an epoch ──► statistics of bundles, hosts ──► plan of the period (control/period_plan)
    what executors lack ──► copies ────────────────────────► standbys: even, then correlated (partitioning/allocating)
    executors there are ──► places of the next job (control/channel_places)

A plan is acted on when its reason has lasted some epochs, so that one slow epoch moves nothing; what a lost executor
ran is restored before the next epoch begins. Nothing here knows Spark.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from anabranch.control.channel_places import Bundle, Channel, Held, PlacePlan, StandbySettings, place_plan
from anabranch.control.executor_planner import ExecutorBounds, ExecutorState
from anabranch.control.period_plan import (
    BundleStatistics,
    HostStatistics,
    PeriodPlan,
    PlanSettings,
    PlanSituation,
    period_plan,
)
from anabranch.engine.driver.epoch_progress import HostProgress, MoveProgress, PlacementProgress
from anabranch.engine.reports import ChannelReport, Report
from anabranch.engine.worker.follow_task import Followed
from anabranch.partitioning.allocating.allocation_problem import AllocationProblem
from anabranch.partitioning.allocating.repair import repaired
from anabranch.partitioning.counting.tally import Counted
from anabranch.partitioning.function import PartitioningFunction, bundle_of_groups
from anabranch.state.records import SegmentRecord
from anabranch.state.store import StateVersion

_log = logging.getLogger("anabranch")
_PATIENCE = 3
"""Epochs in a row that a plan must have a reason for."""
_AWAY_MAX = 2
"""Epochs in a row that a channel may run elsewhere than at home before it has moved."""
_SERIES = 32
_SERIES_MIN = 8
"""Periods whose loads are compared, and from how many on that says something."""
_LOAD_FACTOR = 1.5
_DRIFT = 0.1
"""ε of *Resources*, as a part of all load."""


class Placing:
    """Remembers and plans, for one query.

    Parameters
    ----------
    standbys : StandbySettings
    bounds : ExecutorBounds, optional
        How many executors may be asked for; None: their number is not ours to say.
    clock : callable
        Seconds, only forward.
    """

    def __init__(
        self,
        standbys: StandbySettings,
        bounds: ExecutorBounds | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._standbys = standbys
        most, least = (None, 1) if bounds is None else (bounds.executors_max, bounds.executors_min)
        self._settings = PlanSettings(lag_bytes=standbys.lag_bytes, executors_max=most, executors_min=least)
        self._clock = clock
        self._settled_s = clock()
        self._held: dict[Channel, Held] = {}  # channel → the executor that it belongs to: as a rule, where it ran last
        self._ran: dict[Channel, str] = {}  # channel → the executor it ran on last
        self._away: dict[Channel, int] = {}  # channel → for how many epochs in a row it ran elsewhere than at home
        self._copies: dict[Bundle, dict[str, int]] = {}  # bundle → who follows it → bytes that are missing there
        self._homes: dict[Bundle, str] = {}  # bundle → the executor that had it in the last epoch
        self._written: dict[Bundle, int] = {}  # bundle → bytes of its state that the last epoch wrote
        self._jobs: dict[int, PlacePlan] = {}  # depth → the plan of the last job
        self._unprotected: dict[Bundle, int] = {}  # bundle → epochs since it had a complete copy
        self._functions: dict[str, PartitioningFunction] = {}
        self._channels: dict[str, int] = {}
        self._statistics: dict[Bundle, BundleStatistics] = {}
        self._outside: dict[str, float] = {}
        self._sizes: dict[Bundle, int] = {}
        self._series: dict[Bundle, deque[float]] = {}
        self._chosen: dict[Bundle, tuple[str, ...]] = {}
        self._wishes: dict[Channel, str] = {}
        self._pressed = self._epochs = 0
        self._few = False
        self.executors: Sequence[ExecutorState] = ()
        """Those there are; said by whoever knows."""
        self.rather_back: tuple[str, ...] = ()
        """Executors that should rather go than others, if some do."""

    # -- before a job ---------------------------------------------------------------------------------------

    def job_plan(
        self, depth: int, channels: Sequence[Channel], functions: Mapping[str, PartitioningFunction]
    ) -> PlacePlan:
        """Where the channels of a depth should run."""
        settings, executors = self._standbys, self.executors
        self._functions.update(functions)
        for region in {name for name, _ in channels}:
            self._channels[region] = sum(name == region for name, _ in channels)
        if executors and settings.count >= len(executors) and not self._few:
            self._few = True
            _log.warning("standbys=%d: there are %d executors, so there are fewer", settings.count, len(executors))
        plan = place_plan(
            channels,
            executors,
            self._held,
            self._copies_now(),
            settings.count,
            settings.lag_bytes,
            {channel: self._bundles_of(channel) for channel in channels},
            self._wishes,
            self._chosen,
        )
        self._jobs[depth] = plan
        return plan

    def _bundles_of(self, channel: Channel) -> list[Bundle]:
        region, number = channel
        function = self._functions.get(region)
        if function is None or not function.bundles:
            return [channel]
        return [(region, at) for at in np.flatnonzero(function.bundle_channels == number).tolist()]

    def _channel_of(self, bundle: Bundle) -> Channel:
        function = self._functions.get(bundle[0])
        if function is None or bundle[1] >= function.bundles:
            return bundle
        return bundle[0], int(function.bundle_channels[bundle[1]])

    def _copies_now(self) -> dict[Bundle, dict[str, int]]:
        # What the last epoch wrote nobody else can have yet: it is what a switch between two epochs waits for.
        return {
            bundle: {who: max(0, lacks - self._written.get(bundle, 0)) for who, lacks in each.items()}
            for bundle, each in ((bundle, dict(copies)) for bundle, copies in dict(self._copies).items())
        }

    def restored(self) -> PeriodPlan | None:
        """What to do for executors that are gone, before an epoch begins; None: nothing."""
        present = {each.identity for each in self.executors}
        if not self._standbys.count or all(identity in present for identity, _ in self._held.values()):
            return None
        plan = self._planned()
        return self._acted(plan) if any(step.kind == "restore" for step in plan.steps) else None

    # -- after it -------------------------------------------------------------------------------------------

    def settled(
        self,
        reports: Iterable[Report],
        identity_of: Callable[[str], str],
        busy: Mapping[str, tuple[float, int]] | None = None,
    ) -> tuple[PlacementProgress, PeriodPlan | None]:
        """Take in an epoch; what is told of it, and what changes now.

        Parameters
        ----------
        identity_of : callable
            The executor that a place of a report is at; empty: nobody knows.
        busy : mapping, optional
            Executor → how many cores of its host were busy, with whatever, and how many it has.
        """
        reports = list(reports)
        hosts = {each.identity: each.host for each in self.executors}
        asked = {channel: each for plan in self._jobs.values() for channel, each in plan.now.items()}
        kept = moved = elsewhere = 0
        for report in reports:
            identity = identity_of(report.place) if isinstance(report, ChannelReport) else ""
            if not identity or not isinstance(report, ChannelReport):
                continue
            channel = (report.name, report.channel)
            before = self._ran.get(channel)
            if before is not None:
                kept, moved = (kept + 1, moved) if identity == before else (kept, moved + 1)
            elsewhere += channel in asked and identity != asked[channel].identity
            self._ran[channel] = identity
            if not self._stays_at_home(channel, identity, asked.get(channel)):
                self._held[channel] = (identity, hosts.get(identity, ""))
            for bundle in self._bundles_of(channel):
                self._came_home(bundle, identity)
                self._written[bundle] = sum(self._part(record, bundle) for record in report.segments)
                # Until who follows it says so itself, nobody has what was just written; and it may not be asked soon.
                for who, lacks in dict(self._copies.get(bundle, {})).items():
                    self._copies[bundle][who] = lacks + self._written[bundle]
            if self._wishes.get(channel) == identity:
                del self._wishes[channel]
        for channel in [each for each in self._held if each[1] >= self._channels.get(each[0], each[1] + 1)]:
            for known in (self._held, self._ran, self._away):
                known.pop(channel, None)  # there are fewer channels now
        moves = [
            MoveProgress(*move.channel, move.source, move.target, move.how, move.missing_bytes)
            for plan in self._jobs.values()
            for move in plan.moves
        ]
        for move in moves:
            _log.info(
                "channel %d of %s: executor %s to %s, %s", move.channel, move.region, move.source, move.target, move.how
            )
        self._jobs = {depth: PlacePlan(plan.now, plan.follow) for depth, plan in self._jobs.items()}
        self._measure(reports, busy or {})
        missing, unprotected = self._protection(hosts)
        plan = self._period()
        steps = [] if plan is None else [f"{step.kind}: {step.reason}" for step in plan.steps]
        return PlacementProgress(kept, moved, elsewhere, moves, missing, unprotected, steps, self._hosts()), plan

    def _stays_at_home(self, channel: Channel, identity: str, asked: ExecutorState | None) -> bool:
        """Whether a channel goes back to where it was asked to stay although it just ran elsewhere.

        Its executor was busy for longer than Spark waits, with a compaction, say. It has all but an epoch of the state,
        and if the channel stayed away it would have to push another one from its place, which has to fetch all, too.
        """
        home = self._held.get(channel)
        is_away = home is not None and asked is not None and asked.identity == home[0] != identity
        self._away[channel] = self._away.get(channel, 0) + 1 if is_away else 0
        return is_away and self._away[channel] <= _AWAY_MAX

    def _part(self, record: SegmentRecord, bundle: Bundle) -> int:
        """How many bytes of a segment are fetched for a bundle: its slice, or all of one that is in one piece."""
        function = self._functions.get(bundle[0])
        if not record.slices or function is None or not function.bundles:
            return record.bytes
        of_groups = bundle_of_groups(function.bundles)
        return sum(each.bytes for each in record.slices if of_groups[each.first] <= bundle[1] <= of_groups[each.last])

    def _came_home(self, bundle: Bundle, identity: str) -> None:
        """A bundle was at an executor: what another one had of it until then is a copy."""
        before = self._homes.get(bundle)
        if before is not None and before != identity and self._standbys.count:
            self._copies.setdefault(bundle, {})[before] = 0
            if bundle in self._chosen:  # as the paper has it: the old owner's state becomes the checkpoint
                self._chosen[bundle] = tuple(before if each == identity else each for each in self._chosen[bundle])
        self._copies.get(bundle, {}).pop(identity, None)
        self._homes[bundle] = identity

    def _protection(self, present: Mapping[str, str]) -> tuple[int, dict[str, int]]:
        """What copies lack, and which bundles have no complete copy, for how many epochs."""
        if not self._standbys.count:
            return 0, {}
        total = 0
        current = {bundle for channel in self._held for bundle in self._bundles_of(channel)}
        self._unprotected = {bundle: each for bundle, each in self._unprotected.items() if bundle in current}
        for bundle in current:
            copies = {who: each for who, each in dict(self._copies.get(bundle, {})).items() if who in present}
            total += sum(copies.values())
            behind = self._written.get(bundle, 0) + self._standbys.lag_bytes
            before = self._unprotected.get(bundle, 0)
            self._unprotected[bundle] = 0 if any(each <= behind for each in copies.values()) else before + 1
            if before > 1 and not self._unprotected[bundle]:
                _log.info("bundle %d of %s has a standby copy again, after %d epochs", bundle[1], bundle[0], before)
        return total, {
            f"{region} {number}": each for (region, number), each in sorted(self._unprotected.items()) if each
        }

    # -- statistics -----------------------------------------------------------------------------------------

    def sized(self, version: StateVersion, operators: Mapping[str, Sequence[str]]) -> None:
        """How large the state of each bundle is, by the records of its segments."""
        sizes: dict[Bundle, float] = {}
        for region, names in operators.items():
            function = self._functions.get(region)
            bundles = 0 if function is None else function.bundles
            for record in (each for name in names for each in version.segments.get(name, ())):
                if not bundles or function is None:
                    sizes[region, record.channel] = sizes.get((region, record.channel), 0) + record.bytes
                    continue
                of_groups = bundle_of_groups(bundles)
                parts = {}
                for each in record.slices:
                    parts[int(of_groups[each.first])] = each.bytes
                if not parts:  # in one piece: what of it is whose is not known
                    mine = np.flatnonzero(function.bundle_channels == record.channel).tolist() or list(range(bundles))
                    parts = dict.fromkeys(mine, record.bytes // len(mine))
                for at, size in parts.items():
                    sizes[region, at] = sizes.get((region, at), 0) + size
        self._sizes = {bundle: int(size) for bundle, size in sizes.items()}

    def _measure(self, reports: Sequence[Report], busy: Mapping[str, tuple[float, int]]) -> None:
        now = self._clock()
        elapsed, self._settled_s = max(now - self._settled_s, 1e-3), now
        names = {report.stage: report.name for report in reports if isinstance(report, ChannelReport)}
        groups: dict[str, np.ndarray] = {}
        for report in reports:
            for keys in getattr(report, "keys", ()):
                if keys.stage in names:
                    counted = Counted.of_report(keys.tally).groups
                    groups[names[keys.stage]] = groups.get(names[keys.stage], 0) + counted
        self._statistics = {}
        for report in reports:
            if not isinstance(report, ChannelReport) or (report.name, report.channel) not in self._held:
                continue
            channel = (report.name, report.channel)
            bundles = self._bundles_of(channel)
            rows = dict.fromkeys(bundles, report.rows_in / max(1, len(bundles)))
            function = self._functions.get(report.name)
            if function is not None and function.bundles and report.name in groups:
                counts = np.bincount(bundle_of_groups(function.bundles), groups[report.name], function.bundles)
                rows = {bundle: float(counts[bundle[1]]) for bundle in bundles}
            total = sum(rows.values())
            for bundle in bundles:
                share = rows[bundle] / total if total else 1 / len(bundles)
                self._statistics[bundle] = BundleStatistics(
                    report.channel,
                    min(report.seconds / elapsed, 1.0) * share,
                    self._sizes.get(bundle, 0),
                    report.processor_seconds / elapsed * share,
                    rows[bundle],
                    int(report.memory_bytes * share),
                )
        self._measure_hosts(busy)
        for bundle, each in self._statistics.items():
            self._series.setdefault(bundle, deque(maxlen=_SERIES)).append(each.load)
        self._series = {bundle: each for bundle, each in self._series.items() if bundle in self._statistics}

    def _hosts(self) -> dict[str, HostProgress]:
        """What each executor has to do, in all its channels."""
        found = {each.identity: HostProgress(outside=self._outside.get(each.identity, 0.0)) for each in self.executors}
        for bundle, each in self._statistics.items():
            identity = self._held[bundle[0], each.channel][0]
            if identity in found:
                found[identity] = found[identity].with_bundle(
                    each.load, each.processor, each.rows, each.memory_bytes, each.state_bytes
                )
        return found

    def _measure_hosts(self, busy: Mapping[str, tuple[float, int]]) -> None:
        """What other tenants use of each executor's slots: what is busy on its host beyond what we do there."""
        by_host: dict[str, list[ExecutorState]] = {}
        for each in self.executors:
            by_host.setdefault(each.host, []).append(each)
        ours: dict[str, float] = {}
        for bundle, statistics in self._statistics.items():
            host = self._held[bundle[0], statistics.channel][1]
            ours[host] = ours.get(host, 0.0) + statistics.processor
        for host, executors in by_host.items():
            told = [busy[each.identity] for each in executors if each.identity in busy]
            slots = sum(each.slots for each in executors)
            if not told:
                continue
            cores = max(told[0][1], slots)
            # Others take the cores that we have no slots for first.
            others = max(0.0, max(each for each, _ in told) - ours.get(host, 0.0) - (cores - slots))
            for each in executors:
                before = self._outside.get(each.identity, 0.0)
                self._outside[each.identity] = before + 0.3 * (others * each.slots / slots - before)

    # -- plans ----------------------------------------------------------------------------------------------

    def _planned(self) -> PeriodPlan:
        tables = frozenset(region for region, function in self._functions.items() if function.bundles)
        held = {channel: identity for channel, (identity, _) in self._held.items()}
        hosts = [HostStatistics(each, self._outside.get(each.identity, 0.0)) for each in self.executors]
        copies = self._copies_now() if self._standbys.count else {}
        return period_plan(PlanSituation(self._statistics, held, hosts, copies, tables), self._settings)

    def _period(self) -> PeriodPlan | None:
        self._epochs += 1
        if self._standbys.count and self._epochs % _SERIES_MIN == 0:
            self._allocate()
        plan = self._planned()
        self.rather_back = plan.give_back
        acts = [step for step in plan.steps if step.kind not in ("remove", "restore")]
        self._pressed = self._pressed + 1 if acts else 0
        if not acts or self._pressed % _PATIENCE:
            return None
        return self._acted(plan)

    def _acted(self, plan: PeriodPlan) -> PeriodPlan:
        for step in plan.steps:
            level = logging.WARNING if step.kind == "overloaded" and self._pressed == _PATIENCE else logging.INFO
            _log.log(level, "%s: %s", step.kind, step.reason)
        if not any(step.kind == "restore" for step in plan.steps):  # where those go is seen when the job is planned
            self._wishes.update(plan.places)
        return plan

    def _allocate(self) -> None:
        """Choose who should have copies, by how loads were correlated; what is there stays unless it is much worse."""
        longest = max(map(len, self._series.values()), default=0)
        series = {bundle: list(each) for bundle, each in self._series.items() if len(each) == longest}
        if longest < _SERIES_MIN:
            return
        owners = {bundle: self._homes[bundle] for bundle in self._statistics if bundle in self._homes}
        problem = AllocationProblem.measured(
            series,
            owners,
            [each.identity for each in self.executors],
            standbys=self._standbys.count,
            load_factor=_LOAD_FACTOR,
        )
        followers = [each for plan in self._jobs.values() for each in plan.follow.items()]
        current = self._chosen or {
            bundle: tuple(identity for identity, bundles in followers if bundle in bundles) for bundle in owners
        }
        repair = repaired(problem, current, _DRIFT * sum(problem.loads.values()))
        moved = sum(move.source is not None and move.target is not None for move in repair.moves)
        if moved:
            why = f"correlated loads: score {repair.score_before:.3g}, of Algorithm 3 {repair.score_goal:.3g}"
            _log.info("%d standby copies go to other executors, %s", moved, why)
        self._chosen = repair.allocation

    # -- copies ---------------------------------------------------------------------------------------------

    def followed(self) -> dict[str, list[Followed]]:
        """Executor → the bundles whose state it should have copies of."""
        found: dict[str, list[Followed]] = {}
        for plan in self._jobs.values():
            for identity, bundles in plan.follow.items():
                for bundle in bundles:
                    channel = self._channel_of(bundle)
                    function = self._functions.get(bundle[0])
                    number = bundle[1] if function is not None and function.bundles else None
                    found.setdefault(identity, []).append((*channel, number))
        return found

    def followed_by(self, identity: str, missing: Mapping[Bundle, int]) -> None:
        """An executor said what it lacks."""
        for bundle, size in missing.items():
            if self._homes.get(bundle) != identity:
                self._copies.setdefault(bundle, {})[identity] = size

    def executor_of(self, channel: Channel) -> str:
        """The executor that ran a channel last; empty: nobody knows."""
        return self._held.get(channel, ("", ""))[0]
