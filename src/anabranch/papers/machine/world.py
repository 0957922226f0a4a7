"""A discrete-event world: splitters, channels, mergers, controllers and migrations in virtual time.

    heap of ⟨time, number, what to call, with what⟩ ── pop ──► call ──► more events

The number makes the order of simultaneous events that of their scheduling, so a run is decided by its
description, its seed and the code. Nothing here decides anything about channels, order or keys: that is
the code of papers/streaming, papers/merging, partitioning/ and control/.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import repeat
from typing import Any, Protocol

import numpy as np

from anabranch.control.controller import Rescale
from anabranch.control.decision import Decision
from anabranch.papers.machine.costs import jitters
from anabranch.papers.machine.description import Rescaling, WorldDescription
from anabranch.papers.machine.flows import MachineFlow
from anabranch.papers.machine.links import Link, WorldClock
from anabranch.papers.machine.machine_hosts import HostState
from anabranch.papers.machine.machine_source import SourceState
from anabranch.papers.machine.result import MigrationRecord, RegionSample, Result, Sample
from anabranch.papers.merging.punctuation import Punctuation


class StandStill(RuntimeError):  # noqa: N818 — it names what happened
    """Nothing can happen any more, and yet the stream has not come to its end: a deadlock; or it never will."""


class WorldWatch(Protocol):
    """Is told what happens, for the checkers (checkers.py)."""

    def put(self, link: Link) -> None: ...

    def taken(self, link: Link) -> None: ...

    def processed(self, region: int, channel: int, key: int) -> None: ...

    def read(self, value: Any) -> None: ...

    def delivered(self, value: Any) -> None: ...

    def generation_started(self, flow: MachineFlow) -> None: ...


class World:
    """One run of a description.

    Parameters
    ----------
    description
        What is to be run.
    watch
        Is told everything that happens. Costs about a third more time.
    sample_s
        Length of a sampling interval; the adaptation period by default.
    """

    def __init__(
        self, description: WorldDescription, watch: WorldWatch | None = None, sample_s: float | None = None
    ) -> None:
        self.description = description
        self.watch = watch
        self.clock = WorldClock()
        self.end_s = math.inf
        cluster = description.cluster
        self.delays: Iterator[float] | None = None
        """Of all links; None: there is no delay."""
        if cluster.delay_s > 0:
            generator = np.random.default_rng([description.seed, 4])
            random = cluster.jitter > 0
            self.delays = jitters(generator, cluster.delay_s, cluster.jitter) if random else repeat(cluster.delay_s)
        self.source = SourceState(description.source, description.seed, description.resolution_s)
        self.hosts = [HostState(number, host) for number, host in enumerate(description.cluster.hosts)]
        self.migrations: list[MigrationRecord] = []
        self.recoveries: list[tuple[float, float, int]] = []
        self.decisions: list[tuple[float, int, Decision]] = []
        self._sample_s = sample_s if sample_s is not None else description.period_s
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._events = 0
        self._background = 0
        self._waiting_for_hosts: list[Callable[[Any], None]] = []
        self._arrivals: list[float] = []  # by position
        self._latencies: list[float] = []
        self._samples: list[Sample] = []
        self._sampled: dict[str, Any] = {"at": 0.0, "taken": 0, "delivered": 0, "latencies": 0, "regions": []}
        self.flows: list[MachineFlow] = []
        for number, regions in enumerate(description.flows()):
            self.flows.append(MachineFlow(self, number, regions))
        for before, after in zip(self.flows, self.flows[1:], strict=False):
            capacity = after.regions[0].description.queue
            link = Link(("flow", after.number), capacity, self.clock, self.schedule, self.delays, watch)
            link.receiver = after
            before.output = after.input = link

    def schedule(self, at: float, call: Callable[[Any], None], argument: Any) -> None:
        """Call this at that time."""
        self._events += 1
        heappush(self._heap, (at, self._events, call, argument))

    def schedule_background(self, at: float, call: Callable[[Any], None], argument: Any) -> None:
        """Call this at that time; but if nothing else is to happen by then, nothing ever will."""
        self._background += 1
        self.schedule(at, self._in_background, (call, argument))

    def _in_background(self, what: tuple[Callable[[Any], None], Any]) -> None:
        self._background -= 1
        if math.isinf(self.end_s) and len(self._heap) == self._background:
            raise StandStill(f"nothing can happen any more; {self._standing()}")
        what[0](what[1])

    def run(self, until_s: float = math.inf, events_max: float = math.inf) -> Result:
        """Run until the stream has ended, or until this time.

        Raises
        ------
        StandStill
            If nothing can happen any more before the stream has ended, or if it has not ended after so many events.
        """
        self.end_s = until_s
        if math.isinf(until_s) and self.description.source.tuples is None:
            raise ValueError("a run needs an end: tuples of the source, or until_s")
        self._schedule_faults()
        for rescaling in self.description.rescalings:
            self.schedule(rescaling.at_s, self._rescale, rescaling)
        for flow in self.flows:
            flow.start()
        self.schedule_background(self._sample_s, self._sample, None)
        heap, clock, last = self._heap, self.clock, self.flows[-1]
        while heap and not last.ended:
            at, _, call, argument = heappop(heap)
            if at > until_s:
                clock.now = until_s
                break
            clock.now = at
            call(argument)
            if self._events > events_max:
                raise StandStill(f"after {self._events} events there is no end in sight; {self._standing()}")
        if not last.ended and math.isinf(until_s):
            raise StandStill(f"nothing can happen any more; {self._standing()}")
        if not self._samples or clock.now > self._samples[-1].at_s:
            self._take_sample()
        return self._result()

    # -- source and sink ---------------------------------------------------------------------------------

    def take_from_source(self) -> Any:
        """The next tuple that stands ready."""
        taken = self.source.take(self.clock.now)
        if taken is None:
            return None
        came, value = taken
        if value.__class__ is not Punctuation:
            self._arrivals.append(came)
        if self.watch is not None:
            self.watch.read(value)
        return value

    def sink(self, value: Any) -> None:
        """A tuple or punctuation leaves the program."""
        if value.__class__ is not Punctuation:
            self._latencies.append(self.clock.now - self._arrivals[value[0]])
        if self.watch is not None:
            self.watch.delivered(value)

    # -- hosts -------------------------------------------------------------------------------------------

    def _schedule_faults(self) -> None:
        for host in self.hosts:
            for failure in host.host.failures:
                self.schedule(failure.at_s, self._fail, host)
                self.schedule(failure.at_s + failure.length_s, self._return, host)

    def _fail(self, host: HostState) -> None:
        host.alive = False
        for flow in self.flows:
            if flow.uses(host):
                flow.fail()

    def _return(self, host: HostState) -> None:
        host.alive = True
        waiting, self._waiting_for_hosts = self._waiting_for_hosts, []
        for call in waiting:
            self.schedule(self.clock.now, call, None)

    def when_a_host_returns(self, call: Callable[[Any], None]) -> None:
        self._waiting_for_hosts.append(call)

    def _rescale(self, rescaling: Rescaling) -> None:
        for flow in self.flows:
            for region in flow.regions:
                if region.number != rescaling.region or flow.ended:
                    continue
                channels = rescaling.channels
                if region.controller is not None:
                    channels = region.controller.handle(Rescale(channels)).channels
                if flow.set_channels(region, channels):
                    flow.reconfigure()

    # -- measuring ---------------------------------------------------------------------------------------

    def _sample(self, _: Any) -> None:
        self._take_sample()
        self.schedule_background(self.clock.now + self._sample_s, self._sample, None)

    def _take_sample(self) -> None:
        now, before = self.clock.now, self._sampled
        length = max(now - before["at"], 1e-12)
        self.source.advance(now)
        for flow in self.flows:
            if flow.splitter is not None:
                flow.splitter.settle()
        totals = [(*region.totals(), flow.blocked_s) for flow in self.flows for region in flow.regions]
        regions = []
        left_blocked, left_channels = 0.0, 1
        states = [(position, region) for flow in self.flows for position, region in enumerate(flow.regions)]
        for (position, region), total, old in zip(
            states, totals, before["regions"] or [(0, 0.0, 0.0, 0.0)] * len(totals), strict=True
        ):
            taken, busy, blocked, split = (new - earlier for new, earlier in zip(total, old, strict=True))
            congestion = split / length if position == 0 else left_blocked / length / left_channels
            regions.append(
                RegionSample(
                    region.channels, taken / length, min(1.0, congestion), min(1.0, busy / length / region.channels)
                )
            )
            left_blocked, left_channels = blocked, region.channels
        latencies = np.array(self._latencies[before["latencies"] :])
        self._samples.append(
            Sample(
                now,
                self.description.source.load(now),
                (self.source.made - before["taken"]) / length,
                (len(self._latencies) - before["delivered"]) / length,
                float(latencies.mean()) if len(latencies) else math.nan,
                float(np.quantile(latencies, 0.99)) if len(latencies) else math.nan,
                self.source.backlog,
                tuple(regions),
            )
        )
        delivered = len(self._latencies)
        self._sampled = {
            "at": now, "taken": self.source.made, "delivered": delivered, "latencies": delivered, "regions": totals
        }  # fmt: skip

    def _result(self) -> Result:
        latencies: tuple[float, ...] = ()
        if self._latencies:
            latencies = tuple(np.quantile(self._latencies, [0, 0.5, 0.9, 0.99, 1]).tolist())
        return Result(
            names=tuple(region.name for region in self.description.regions),
            seconds=self.clock.now,
            taken=self.source.made,
            delivered=len(self._latencies),
            samples=tuple(self._samples),
            migrations=tuple(self.migrations),
            recoveries=tuple(self.recoveries),
            decisions=tuple(self.decisions),
            events=self._events,
            latencies=latencies,
        )

    def _standing(self) -> str:
        lines = [f"at {self.clock.now:.6f} s the stream has not ended:"]
        for flow in self.flows:
            state = "ended" if flow.ended else "runs" if flow.running else "stands"
            lines.append(f"  flow {flow.number} {state}, generation {flow.generation}")
            lines += [f"    {merger.merger.statistics()}" for merger in flow.mergers]
        return "\n".join(lines)
