"""A flow at run time: regions joined by shuffles, between one splitter and one merger.

A flow runs in *generations*. In a generation everything is fixed: numbers of channels, partitioning functions,
places. It ends by draining:

    splitter   stops taking, sends what finish() says, then a marker on every channel
    channel    passes the marker on when it has worked off all before it, and donates what it will not own
    merger     with markers from all channels: finish(), nothing waits any more

    ── drained ── donate ──│ vertical ── collect ──│ vertical ──│ horizontal ── next generation
                           barrier                 barrier      barrier (with the splitter)

Nothing is under way then, so this is also where a checkpoint is taken: the state, and from here on a log of the
input and a count of what was delivered. When a host fails, the flow starts over from there: state from the
checkpoint, input from the log; and since the output is the same and in the same order every time, what was
delivered before is left out by counting.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from anabranch.papers.machine.description import joints
from anabranch.papers.machine.links import Link
from anabranch.papers.machine.machine_regions import RegionState
from anabranch.papers.machine.nodes import MergerNode, SplitterNode
from anabranch.papers.machine.result import MigrationRecord
from anabranch.papers.machine.stores import Package, Store
from anabranch.papers.machine.wiring import wire
from anabranch.papers.streaming.migration import Migration, migration
from anabranch.partitioning.function import PartitioningFunction

if TYPE_CHECKING:
    from anabranch.papers.machine.world import World


Donation = tuple[RegionState, PartitioningFunction, Migration, list[Package]]


class MachineFlow:
    """One flow. The world pokes it; it pokes the world's sink or the next flow."""

    def __init__(self, world: World, number: int, regions: list[int]) -> None:
        self.world = world
        self.number = number
        source = world.description.source
        self.regions = [
            RegionState(index, world.description.regions[index], self, source.keys, source.skew) for index in regions
        ]
        first = self.regions[0].description
        self.split_cost_s = first.split_cost_s
        self.joints = joints([region.description for region in self.regions])
        self.input: Link | None = None
        """From the flow before; None: from the source."""
        self.output: Link | None = None
        self.splitter: SplitterNode | None = None
        self.mergers: list[MergerNode] = []
        self.generation = 0
        self.running = False
        self.drain_wanted = False
        self.ending = False
        self.ended = False
        self.upstream_ended = False
        self.wanted: dict[int, int] = {}
        """Channels that stateless regions are to have; partitioned ones ask their planner."""
        self.blocked_s = 0.0
        self.period_blocked_s = 0.0
        self.period_arrived = 0
        self._event_number = 0
        self._drain_started_s = 0.0
        # The checkpoint.
        self._log: deque[Any] = deque()
        self._replay: deque[Any] = deque()
        self._states: list[dict[int, int]] = [{} for _ in self.regions]
        self._since_checkpoint = 0
        self.delivered = 0
        self.to_skip = 0
        hosts = world.description.cluster.hosts
        self._logs = any(host.failures for host in hosts)

    # -- input -------------------------------------------------------------------------------------------

    def next_input(self) -> Any:
        """The next tuple or punctuation; None if there is none now."""
        if self._replay:
            value = self._replay.popleft()
        else:
            value = self._fresh_input()
            if value is None:
                if self._at_end():
                    self.ending = True
                    self.want_drain()
                return None
        if self._logs:
            self._log.append(value)
        self._since_checkpoint += 1
        every = self.world.description.cluster.checkpoint_every
        if every is not None and self._since_checkpoint >= every:
            self.want_drain()
        return value

    def _fresh_input(self) -> Any:
        if self.input is None:
            return self.world.take_from_source()
        items = self.input.items
        if items and items[0][0] <= self.world.clock.now:
            return self.input.take()
        return None

    def _at_end(self) -> bool:
        if self.input is None:
            return self.world.source.exhausted
        return self.upstream_ended and not self.input.items

    def input_at(self) -> float:
        """When there may be input again."""
        if self.input is None:
            return self.world.source.next_at(self.world.clock.now)
        return self.input.items[0][0] if self.input.items else math.inf

    def arrived(self, index: int, ready: float) -> None:
        """The flow before has sent something."""
        if self.splitter is None or not self.running:
            return
        if ready <= self.world.clock.now:
            self.splitter.poke()
        elif len(self.input.items) == 1:  # type: ignore[union-attr]
            self.world.schedule(ready, self.splitter.poke, None)

    def upstream_has_ended(self) -> None:
        self.upstream_ended = True
        if self.splitter is not None and self.running:
            self.splitter.poke()

    # -- generations -------------------------------------------------------------------------------------

    def start(self, _: Any = None) -> None:
        """Begin a generation."""
        world = self.world
        if not any(host.alive for host in world.hosts):
            world.when_a_host_returns(self.start)
            return
        self.generation += 1
        self.running = True
        self.drain_wanted = False
        self._event_number += 1
        self.splitter, self.mergers = wire(self)
        self.start_period()
        if world.watch is not None:
            world.watch.generation_started(self)
        if self._is_behind():
            self.want_drain()
        self.splitter.poke()

    def want_drain(self) -> None:
        """End the generation as soon as the splitter is done with what it has."""
        if not self.drain_wanted and self.running:
            self.drain_wanted = True
            self._drain_started_s = self.world.clock.now

    def reconfigure(self) -> None:
        """Somebody wants other channels or another function."""
        self.want_drain()
        if self.splitter is not None and self.running:
            self.splitter.poke()

    def merger_drained(self) -> None:
        """Everything of this generation has left."""
        world = self.world
        now = world.clock.now
        self.running = False
        self._take_checkpoint()
        if self.ending and not self._replay and self._at_end():
            self._end()
            return
        plans = self._plans()
        donated_at = now
        bytes_per_s = world.description.cluster.migration_bytes_per_s
        barrier_s = world.description.cluster.barrier_s
        collect_s = 0.0
        moved_bytes, moved_keys = 0.0, 0
        donations: list[Donation] = []
        for region, function, plan in plans:
            packages: list[Package] = []
            incoming: dict[int, float] = {}
            for store, node in zip(region.stores, region.nodes, strict=True):
                out_bytes = 0.0
                for package in store.donate(node.number, plan):
                    size = store.size(package.keys())
                    out_bytes += size
                    incoming[package.target] = incoming.get(package.target, 0.0) + size
                    moved_keys += len(package.keys())
                    packages.append(package)
                assert node.drained_at is not None
                donated_at = max(donated_at, node.drained_at + out_bytes / bytes_per_s)
                moved_bytes += out_bytes
            collect_s = max([collect_s, *(size / bytes_per_s for size in incoming.values())])
            donations.append((region, function, plan, packages))
        changed = bool(plans) or bool(self.wanted)
        resume_at = donated_at + collect_s + (3 * barrier_s if changed else barrier_s)
        if changed:
            before = tuple(region.channels for region in self.regions)
            after = tuple(
                region.planner.function.channels if region.planner else self.wanted.get(region.number, region.channels)
                for region in self.regions
            )
            world.migrations.append(
                MigrationRecord(
                    self._drain_started_s, now, resume_at, self.number, before, after, moved_keys, moved_bytes
                )
            )
        self._event_number += 1
        world.schedule(resume_at, self._resume, (self._event_number, donations, self.wanted))
        self.wanted = {}

    def _plans(self) -> list[tuple[RegionState, PartitioningFunction, Migration]]:
        """What moves, for every partitioned region whose planner is ahead of it."""
        found = []
        for region in self.regions:
            if region.planner is not None and region.planner.function is not region.function:
                assert region.function is not None
                function = region.planner.function
                found.append((region, function, migration(region.function, function)))
        return found

    def _resume(self, what: tuple[int, list[Donation], dict[int, int]]) -> None:
        number, donations, wanted = what
        if number != self._event_number:
            self.wanted = {**wanted, **self.wanted}
            return  # a host failed in the meantime
        for region, function, plan, packages in donations:
            # Not the planner's: that may have changed its mind once more while state was moving.
            region.adopt(function)
            kept = region.stores[: region.channels]
            kept += [Store(region.table) for _ in range(region.channels - len(kept))]
            for channel, store in enumerate(kept):
                store.collect([package for package in packages if package.target == channel], plan)
            region.stores = kept
        self._adopt(wanted)
        for region in self.regions:
            region.retire_nodes()
        self.start()

    def _adopt(self, wanted: dict[int, int]) -> None:
        for region in self.regions:
            region.channels = wanted.get(region.number, region.channels)

    def _is_behind(self) -> bool:
        """Whether something else is wanted than is in force."""
        return bool(self.wanted) or any(
            region.planner is not None and region.planner.function is not region.function for region in self.regions
        )

    def _end(self) -> None:
        self.ended = True
        world = self.world
        if self.number + 1 < len(world.flows):
            world.flows[self.number + 1].upstream_has_ended()

    # -- failures ----------------------------------------------------------------------------------------

    def _take_checkpoint(self) -> None:
        self._since_checkpoint = 0
        if self._logs:
            self._states = [region.state() if region.planner is not None else {} for region in self.regions]
            self._log.clear()
            # What is still to be skipped was delivered before a failure, and lies behind this checkpoint.
            self.delivered = self.to_skip

    def uses(self, host: Any) -> bool:
        return any(node.host is host for region in self.regions for node in region.nodes)

    def fail(self) -> None:
        """A host of this flow is gone: start over from the checkpoint."""
        if self.ended:
            return
        world = self.world
        self._kill_nodes()
        self.running = False
        self.ending = False
        self._replay = deque([*self._log, *self._replay])
        self._log.clear()
        self.to_skip = self.delivered
        size = sum(
            sum(region.table.bytes_of[key] for key in states)
            for region, states in zip(self.regions, self._states, strict=True)
            if region.planner is not None
        )
        cluster = world.description.cluster
        self._event_number += 1
        at = world.clock.now + cluster.restore_s + size / cluster.migration_bytes_per_s
        world.recoveries.append((world.clock.now, at, self.number))
        world.schedule(at, self._restart, self._event_number)

    def _restart(self, number: int) -> None:
        if number != self._event_number:
            return  # another host failed in the meantime
        for region, states in zip(self.regions, self._states, strict=True):
            if region.planner is None:
                continue
            # A migration that the failure cut short is completed here: the state goes where it should be.
            region.adopt(region.planner.function)
            shares: list[dict[int, int]] = [{} for _ in range(region.channels)]
            for key, state in states.items():
                shares[region.routes[key]][key] = state
            region.stores = [Store(region.table) for _ in shares]
            for store, share in zip(region.stores, shares, strict=True):
                store.restore(share, region.hot_keys)
        self._adopt(self.wanted)
        self.wanted = {}
        self.start()

    def _kill_nodes(self) -> None:
        if self.splitter is not None:
            self.splitter.settle()
            self.splitter.dead = True
        for region in self.regions:
            for node in region.nodes:
                node.die()
            region.retire_nodes()
        for merger in self.mergers:
            merger.dead = True

    # -- measuring ---------------------------------------------------------------------------------------

    def start_period(self) -> None:
        """Begin an adaptation period: after a reconfiguration the one before says nothing."""
        now = self.world.clock.now
        if self.splitter is not None:
            self.splitter.settle()
        self.period_blocked_s = self.blocked_s
        self.world.source.advance(now)
        self.period_arrived = self.world.source.arrived
        for region in self.regions:
            region.start_period(now)
        self.world.schedule_background(now + self.world.description.period_s, self._end_period, self.generation)

    def _end_period(self, generation: int) -> None:
        if generation != self.generation or not self.running or self.drain_wanted:
            return  # the next generation starts a period of its own
        if self._judge():
            self.reconfigure()
        else:
            self.start_period()

    def _judge(self) -> bool:
        """Ask controllers and planners; whether anything is to change."""
        world = self.world
        now = world.clock.now
        assert self.splitter is not None
        self.splitter.settle()
        changed = False
        for position, region in enumerate(self.regions):
            length = now - region.period_started_s
            offered = None
            if position == 0:
                congestion = (self.blocked_s - self.period_blocked_s) / length
                if self.input is None and world.description.source.stored and math.isfinite(world.source.rate(now)):
                    world.source.advance(now)
                    offered = (world.source.arrived - self.period_arrived) / length
            else:
                left = self.regions[position - 1]
                congestion = sum(node.blocked_s for node in left.nodes) / length / len(left.nodes)
            channels = region.channels
            if region.controller is not None:
                decision = region.controller.handle(region.observe(now, congestion, offered))
                channels = decision.channels
                world.decisions.append((now, region.number, decision))
            changed |= self.set_channels(region, channels)
        return changed

    def set_channels(self, region: RegionState, channels: int) -> bool:
        """A region is to have so many channels; whether anything is to change."""
        if region.planner is not None:
            return region.replan(channels, self.world.clock.now - region.period_started_s)
        if channels == self.wanted.get(region.number, region.channels):
            return False
        self.wanted[region.number] = channels
        return True
