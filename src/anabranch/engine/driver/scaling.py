"""How many channels each region should have: a controller per region, and what the user asks for by hand.

    reports of an epoch ─► measurement ─► adaptation periods ─► controllers ─► channels wanted
    (tasks: when, how long)   whose time     control/               one per region

**Whose time is it?** Levels of an epoch run one after the other, the stages of a depth side by side. A stage lasts
from its first task's start to its last task's end, whatever the number of tasks that run at once: so more channels
than slots show as what they are. Reading the source and what needs no state (depth 0) is a part of the epoch that no
channels can shorten; it is measured as a region without a controller, and so are regions of one channel. What is
left of the epoch is overhead: planning, scheduling, commit, and Spark's own bookkeeping between two epochs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.control import (
    AdaptationPeriods,
    Bounds,
    Controller,
    Decision,
    EpochMeasurement,
    Observation,
    Pin,
    Rescale,
    Unpin,
)
from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.executor_planner import side_by_side
from anabranch.engine.reports import ChannelReport, MergerReport, Report
from anabranch.errors import ProgramError
from anabranch.program.options import CHANNELS_MAX
from anabranch.state.adaptation_facts import ScalingFacts
from anabranch.state.rescale_requests import RescaleRequests

if TYPE_CHECKING:
    from anabranch.engine.driver.adaptation import EpochFacts

SOURCE = "(source)"
_TARGET_S = 1.0
# So long executors that were asked for may take to come: a container, a JVM, Python…
_ARRIVAL_S = 60.0
_ARRIVAL_S_MAX = 960.0  # …and twice as long each time they have not, up to this: new machines, other people's jobs


@dataclass(frozen=True)
class RegionStatus:
    """A region as it is now.

    Attributes
    ----------
    name : str
        The operator at its entry.
    channels : int
        From the next epoch on.
    channels_min, channels_max : int
        What the controller stays within.
    pinned : bool
        The number of channels is the user's, not the controller's.
    asked : int or None
        Channels asked for by hand that wait for the end of an epoch; they are kept if the query restarts before.
    """

    name: str
    channels: int
    channels_min: int
    channels_max: int
    pinned: bool
    asked: int | None = None


class Scaling:
    """The controllers of all regions.

    Parameters
    ----------
    channels : mapping
        The regions that have channels by key, with how many they begin with; other regions have one for ever.
    options : ElasticOptions
        What the user said about it.
    slots : callable
        How many tasks run at once, or could soon.
    on_decision : callable, optional
        Told of every decision: (region, decision).
    requests : RescaleRequests, optional
        What is asked for by hand.
    slots_now : callable, optional
        How many tasks run at once; None: as `slots`.
    """

    def __init__(
        self,
        channels: Mapping[str, int],
        options: ElasticOptions,
        slots: Callable[[], int] = lambda: 1,
        on_decision: Callable[[str, Decision], None] | None = None,
        requests: RescaleRequests | None = None,
        slots_now: Callable[[], int] | None = None,
    ) -> None:
        self.regions = tuple(channels)
        self._options = options
        self._slots = slots
        self._slots_now = slots_now if slots_now is not None else slots
        self._short_since_s: float | None = None
        self._arrival_s = _ARRIVAL_S
        self._fitting: dict[str, int] = dict(channels)  # the latest channels that all had a slot
        self._confined_until_s: float | None = None
        self._on_decision = on_decision
        self._requests = requests if requests is not None else RescaleRequests()
        # What is more than the slots because the user, or an earlier driver with more slots, has it so.
        self._raised = dict(channels)
        self._periods = AdaptationPeriods(options.period_s, options.period_epochs)
        self._warming = True
        now = slots()
        self._controllers = {
            region: Controller(options.make_policy(self._bounds(region, now)), count)
            for region, count in channels.items()
        }
        if options.channels is not None:
            for controller in self._controllers.values():
                controller.handle(Pin(options.channels))

    def _bounds(self, region: str, slots: int) -> Bounds:
        bounds = self._options.bounds(max(slots, self._raised[region]))
        if self._confined_until_s is None:
            return bounds
        return Bounds(bounds.channels_min, min(bounds.channels_max, max(bounds.channels_min, self._fitting[region])))

    # -- what the user asks -------------------------------------------------------------------------------

    def rescale(self, region: str, channels: int) -> None:
        """Ask for a number of channels by hand, from the next epoch on. May be called from any thread."""
        if region not in self.regions:
            raise ProgramError(f"rescale({region!r}): no such region; regions: {', '.join(self.regions) or 'none'}")
        if isinstance(channels, bool) or not isinstance(channels, int) or not 1 <= channels <= CHANNELS_MAX:
            raise ProgramError(f"rescale({region!r}, {channels!r}): expected a whole number from 1 to {CHANNELS_MAX}")
        least, most = self._options.channels_min, self._options.channels_max
        if channels < least or (most is not None and channels > most):
            raise ProgramError(
                f"rescale({region!r}, {channels}): the query was started with minChannels={least}"
                f"{'' if most is None else f' and maxChannels={most}'}"
            )
        self._requests.ask(region, channels)

    def status(self) -> list[RegionStatus]:
        """The regions as they are now."""
        slots, asked = self._slots(), self._requests.waiting
        found = []
        for region, controller in self._controllers.items():
            bounds = self._bounds(region, slots)
            least, most = bounds.channels_min, bounds.channels_max
            found.append(RegionStatus(region, controller.channels, least, most, controller.pinned, asked.get(region)))
        return found

    def decisions(self, region: str) -> tuple[Decision, ...]:
        """The latest decisions about a region, oldest first."""
        if region not in self._controllers:
            raise ProgramError(f"decisions({region!r}): no such region; regions: {', '.join(self.regions) or 'none'}")
        return self._controllers[region].log

    # -- between epochs -----------------------------------------------------------------------------------

    def wanted(self, facts: EpochFacts, channels: Mapping[str, int]) -> dict[str, tuple[int, str]]:
        """For every region how many channels it should have from now on, and why it is another number."""
        found = {region: (count, "") for region, count in channels.items()}
        for region, decision in self._decided(facts, channels).items():
            if decision.channels != channels[region]:
                found[region] = (decision.channels, decision.reason)
        for region, count in self._requests.take().items():
            self._raised[region] = max(count, self._raised[region])
            self._follow_slots()
            decision = self._handle(region, Rescale(count))
            found[region] = (decision.channels, "asked for by hand")
        return found

    def changed(self) -> None:
        """Some region has another function from now on: the next epoch moves state, and is no measure."""
        self._warming, self._short_since_s = True, None

    def _awaits_slots(self, facts: EpochFacts, channels: Mapping[str, int]) -> bool:
        """Channels outnumber the slots, and executors may be on their way: before they come nothing can be judged."""
        now = self._slots_now()
        if now >= self._slots() or now >= side_by_side(channels, facts.depths):
            self._short_since_s = None
            self._fitting = dict(channels)
            return False
        if self._short_since_s is None:
            self._short_since_s = facts.started_s
        return facts.started_s - self._short_since_s < self._arrival_s

    def _decided(self, facts: EpochFacts, channels: Mapping[str, int]) -> dict[str, Decision]:
        # Asked first, because it notes since when slots are short.
        awaits = self._awaits_slots(facts, channels)
        if self._short_since_s is not None and not awaits and (gone_back := self._go_back(facts, channels)):
            return gone_back
        warming = awaits or self._warming or facts.cut_short
        observations = self._periods.handle(measured(facts, self._target_s(facts), warming), channels)
        self._warming = False
        if observations is None:
            return {}
        self._follow_slots(facts.started_s)
        return {region: self._handle(region, observations[region]) for region in channels}

    def _go_back(self, facts: EpochFacts, channels: Mapping[str, int]) -> dict[str, Decision]:
        """Nobody has given slots for the channels that were added: back to those that have one, for half as long.

        Nothing is learned from it: what more channels do without slots says nothing of what they do with them. They
        are asked for again later, and waited for longer.
        """
        if any(controller.pinned for controller in self._controllers.values()):
            return {}
        fewer = {region: self._fitting[region] for region in channels if self._fitting[region] < channels[region]}
        if not fewer:
            return {}  # slots have gone that there were: that is how it is
        self._confined_until_s = facts.started_s + self._arrival_s / 2
        self._arrival_s = min(2 * self._arrival_s, _ARRIVAL_S_MAX)
        self._short_since_s = None
        self._follow_slots(facts.started_s)
        why = f"nobody has given slots for {{}} channels; asked for again in {self._arrival_s / 4:.0f} s"
        return {region: self._handle(region, Rescale(n, why.format(channels[region]))) for region, n in fewer.items()}

    def _target_s(self, facts: EpochFacts) -> float:
        given = self._options.epoch_target_s
        return given if given is not None else facts.interval_s or _TARGET_S

    def _follow_slots(self, at_s: float | None = None) -> None:
        """Executors come and go, and with them what is reasonable."""
        slots = self._slots()
        if self._confined_until_s is not None:
            more = self._slots_now() > sum(self._fitting.values())
            if more or (at_s is not None and at_s >= self._confined_until_s):
                self._confined_until_s = None
        for region, controller in self._controllers.items():
            controller.rebound(self._bounds(region, slots))

    def _handle(self, region: str, event: Observation | Rescale) -> Decision:
        decision = self._controllers[region].handle(event)
        if self._on_decision is not None:
            self._on_decision(region, decision)
        return decision

    # -- a restarted driver continues ---------------------------------------------------------------------

    def to_facts(self) -> ScalingFacts:
        """What a restarted driver needs to go on."""
        controllers = {region: controller.memory() for region, controller in self._controllers.items()}
        return ScalingFacts(self._periods.period, controllers)

    def restore(self, facts: ScalingFacts, channels: Mapping[str, int]) -> None:
        """Go on from an earlier driver's facts, with the channels the regions really have.

        What the controllers learned is kept; a pin is this run's option, never an earlier run's.
        """
        self._periods.restore(facts.period)
        for region, memory in facts.controllers.items():
            controller = self._controllers.get(region)
            if controller is None:
                continue  # the program has changed
            controller.restore(dataclasses.replace(memory, pinned=None, channels=channels[region]))
            if self._options.channels is not None:
                controller.handle(Pin(self._options.channels))
            elif controller.pinned:
                controller.handle(Unpin())


def measured(facts: EpochFacts, target_s: float, warm_up: bool) -> EpochMeasurement:
    """An epoch as the controllers' signals want it: whose time it was, and what stood ready."""
    times = stage_times(facts.reports, facts.durations_s.job)
    # What runs where a source is read is a part of the source's time.
    depths = sorted(facts.depths.items(), key=lambda each: each[1])
    names = [name for name, depth in depths if depth and name in times]
    by_depth: dict[int, list[str]] = {}
    for name in names:
        by_depth.setdefault(facts.depths[name], []).append(name)
    work = times.get(SOURCE, 0.0) + sum(max(times[name] for name in depth) for depth in by_depth.values())
    sink = facts.durations_s.merge + facts.durations_s.sink + _merger_s(facts.reports)
    total = facts.durations_s.total
    return EpochMeasurement(
        epoch=facts.epoch,
        started_s=facts.started_s,
        duration_s=max(total, 1e-6) + facts.bookkeeping_s,
        ready_rows=None if facts.ready_rows is None else max(facts.ready_rows, facts.rows_in) + facts.fed_back,
        taken_rows=facts.rows_in + facts.fed_back,
        region_s=((SOURCE, times.get(SOURCE, 0.0)), *((name, times[name]) for name in names)),
        sink_s=sink,
        overhead_s=max(0.0, total - work - sink) + facts.bookkeeping_s,
        target_s=target_s,
        waited_s=facts.waited_s,
        warm_up=warm_up,
        beside=tuple(tuple(depth) for depth in by_depth.values() if len(depth) > 1),
        has_interval=bool(facts.interval_s),
    )


def overhead_s(facts: EpochFacts) -> float:
    """The part of an epoch's time in which no stage and no sink worked."""
    return measured(facts, _TARGET_S, warm_up=False).overhead_s


def _merger_s(reports: Sequence[Report]) -> float:
    """The time of mergers that run as tasks: they are a part of writing the output."""
    return max((report.seconds for report in reports if isinstance(report, MergerReport)), default=0.0)


def stage_times(reports: Sequence[Report], job_s: float) -> dict[str, float]:
    """Stage → seconds from the start of its first task to the end of its last one.

    Clocks of different hosts differ: a stage lasts no longer than the job, and no less than its slowest task.
    """
    spans: dict[str, list[tuple[float, float]]] = {}
    for report in reports:
        if isinstance(report, MergerReport):
            continue  # its time is that of the sink
        name = report.name if isinstance(report, ChannelReport) else SOURCE
        spans.setdefault(name, []).append((report.began_s, report.seconds))
    found = {}
    for name, tasks in spans.items():
        slowest = max(seconds for _, seconds in tasks)
        span = max(began + seconds for began, seconds in tasks) - min(began for began, _ in tasks)
        found[name] = max(slowest, min(span, job_s))
    return found
