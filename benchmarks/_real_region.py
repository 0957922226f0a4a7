"""One region with real threads on a real clock: what the simulated one is compared with.

The same Splitter, Channels, Merger, Controller, Planner and migration as in `anabranch.papers.machine`, but
nothing of its world: channels are threads that sleep for what a tuple costs, queues are `queue.Queue`, and the
main thread is source, splitter and controller. So the comparison is about what the simulator adds: time, queues,
blocking, draining, observing.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anabranch.control.controller import Controller
from anabranch.control.observation import Observation
from anabranch.engine.merging.merger import make_merger
from anabranch.engine.merging.punctuation import Punctuation
from anabranch.papers.machine.description import WorldDescription, joints
from anabranch.papers.machine.machine_operators import emitter, result_of, step
from anabranch.papers.machine.machine_source import SourceState
from anabranch.papers.machine.stores import KeyTable, Store
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.migration import migration
from anabranch.papers.streaming.splitter import Splitter
from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.planner import Period, Planner, PlannerSettings

MARKER = object()


@dataclass
class Measured:
    """What a real run has shown."""

    taken: int = 0
    seconds: float = 0.0
    channels: list[tuple[float, int]] = field(default_factory=list)
    """When the region got how many channels."""
    stream: list[Any] = field(default_factory=list)
    output: list[Any] = field(default_factory=list)
    worked: int = 0
    worked_s: float = 0.0
    """Tuples that channels took, and how long they took for them: sleeping is not exact on a busy machine."""

    @property
    def cost_s(self) -> float:
        return self.worked_s / self.worked

    @property
    def throughput(self) -> float:
        return self.taken / self.seconds

    @property
    def settled_s(self) -> float:
        """When the number of channels changed for the last time."""
        return self.channels[-1][0]


class Worker(threading.Thread):
    """A channel: takes, sleeps, emits."""

    def __init__(self, number: int, runner: Channel, numbered: bool, cost_s: float, size: int, merged: Any) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.queue: queue.Queue[Any] = queue.Queue(size)
        self.busy_s = 0.0
        self.taken = 0
        self._runner = runner
        self._numbered = numbered
        self._cost_s = cost_s
        self._merged = merged

    def run(self) -> None:
        while (item := self.queue.get()) is not MARKER:
            value = item[1] if self._numbered else item
            if not isinstance(value, Punctuation):
                started = time.perf_counter()
                time.sleep(self._cost_s)
                self.busy_s += time.perf_counter() - started
                self.taken += 1
            for out in self._runner.push(item):
                self._merged.put((self.number, out))
        self._merged.put((self.number, MARKER))


class RealRegion:
    """The only region of a world, run for real."""

    def __init__(self, world: WorldDescription) -> None:
        (self.region,) = world.regions
        self.world = world
        self.source = SourceState(world.source, world.seed, world.resolution_s)
        self.measured = Measured()
        assert self.region.policy is not None
        self.controller = Controller(self.region.policy(self.region.bounds), self.region.channels)
        self.channels = self.controller.channels
        (self.joint,) = joints([self.region])
        self.emit = emitter(self.region, world.source.keys)
        self.planner: Planner | None = None
        if self.region.key is not None:
            bits = self.region.group_bits
            sizes = [self.region.key_bytes] * world.source.keys
            self.table = KeyTable(world.source.keys, self.region.key, bits, sizes)
            self.planner = Planner(PartitioningFunction.even(self.channels, group_bits=bits), PlannerSettings())
            self.stores = [Store(self.table) for _ in range(self.channels)]

    def run(self, seconds: float) -> Measured:
        """Run for so long."""
        measured = self.measured
        self.begin = time.perf_counter()
        measured.channels.append((0.0, self.channels))
        self.start()
        period = 0
        while (now := time.perf_counter() - self.begin) < seconds:
            if now - self.period_started >= self.world.period_s:
                period += 1
                channels = self.judge(period, now)
                if channels != self.channels:
                    self.drain()
                    self.migrate(channels)
                    self.start()
                    measured.channels.append((time.perf_counter() - self.begin, channels))
                else:
                    self.start_period(now)
                continue
            taken = self.source.take(now)
            if taken is None:
                ask_at = min(self.source.next_at(now), self.period_started + self.world.period_s)
                time.sleep(max(0.0, ask_at - (time.perf_counter() - self.begin)))
                continue
            measured.stream.append(taken[1])
            measured.taken += 1
            self.send(self.splitter.push(taken[1]))
        measured.seconds = now
        self.drain()
        return measured

    def start(self) -> None:
        """A generation: threads, queues, splitter and merger."""
        count, strategy = self.channels, self.joint.strategy
        self.merged: queue.Queue[Any] = queue.Queue()
        self.workers = [
            Worker(
                channel,
                Channel(self.process(channel), strategy, depth=self.joint.depth),
                strategy.is_numbered,
                self.region.cost_s,
                self.region.queue,
                self.merged,
            )
            for channel in range(count)
        ]
        route = None
        if self.planner is not None:
            routes, index = self.table.routes(self.planner.function), 1 + (self.region.key or 0)
            route = lambda value: routes[value[index]]  # noqa: E731 — as short as it is
        self.splitter = Splitter(strategy, count, route=route)
        self.merging = threading.Thread(target=self.merge, daemon=True)
        self.merging.start()
        for worker in self.workers:
            worker.start()
        self.start_period(time.perf_counter() - self.begin)

    def process(self, channel: int) -> Any:
        emit, key = self.emit, self.region.key
        if key is None or self.planner is None:
            return lambda value: emit(value, result_of(value[3], 0))
        store, hot, index = self.stores[channel], self.table.hot(self.planner.function), 1 + key

        def stateful(value: Any) -> list[Any]:
            cell = store.cell(value[index], hot)
            state = cell[value[index]] = step(cell.get(value[index], 0), value[3])
            return emit(value, result_of(value[3], state))

        return stateful

    def merge(self) -> None:
        merger = make_merger(self.joint.strategy, self.channels, depth=self.joint.depth)
        left = self.channels
        while left:
            channel, item = self.merged.get()
            if item is MARKER:
                left -= 1
            else:
                self.measured.output += merger.push(channel, item)
        self.measured.output += merger.finish()

    def send(self, sends: list[tuple[int, Any]]) -> None:
        for channel, item in sends:
            waiting = self.workers[channel].queue
            try:
                waiting.put_nowait(item)
            except queue.Full:
                started = time.perf_counter()
                waiting.put(item)
                self.blocked_s += time.perf_counter() - started

    def drain(self) -> None:
        """All barriers at once: nobody works any more when this returns."""
        self.send(self.splitter.finish())
        self.send([(channel, MARKER) for channel in range(self.channels)])
        for worker in self.workers:
            worker.join()
            self.measured.worked += worker.taken
            self.measured.worked_s += worker.busy_s
        self.merging.join()

    def migrate(self, channels: int) -> None:
        if self.planner is not None:
            before = self.planner.function
            self.planner.handle(Period(Workload.empty(), channels))
            plan = migration(before, self.planner.function)
            packages = [package for i, store in enumerate(self.stores) for package in store.donate(i, plan)]
            self.stores = self.stores[:channels]
            self.stores += [Store(self.table) for _ in range(channels - len(self.stores))]
            for channel, store in enumerate(self.stores):
                store.collect([package for package in packages if package.target == channel], plan)
        self.channels = channels

    def start_period(self, now: float) -> None:
        self.period_started = now
        self.blocked_s = 0.0
        self.source.advance(now)
        self.arrived_before = self.source.arrived
        self.taken_before = [worker.taken for worker in self.workers]
        self.busy_before = [worker.busy_s for worker in self.workers]

    def judge(self, period: int, now: float) -> int:
        length = now - self.period_started
        taken = sum(worker.taken for worker in self.workers) - sum(self.taken_before)
        busy = max(worker.busy_s - old for worker, old in zip(self.workers, self.busy_before, strict=True))
        rates = [worker.taken / worker.busy_s for worker in self.workers if worker.taken]
        error = 0.0
        if len(rates) > 1:
            error = float(np.std(rates) / np.mean(rates) / math.sqrt(len(rates)))
        self.source.advance(now)
        offered = (self.source.arrived - self.arrived_before) / length
        observation = Observation(
            period=period,
            channels=self.channels,
            throughput=taken / length,
            congestion=min(1.0, self.blocked_s / length),
            busy_share=min(1.0, busy / length),
            valid=taken > 0,
            offered=offered if math.isfinite(self.source.rate(now)) else None,
            relative_error=error,
        )
        return self.controller.handle(observation).channels
