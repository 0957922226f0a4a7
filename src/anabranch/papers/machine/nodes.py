"""The three kinds of nodes that a flow is made of. Each drives a splitter, a channel or a merger and adds time.

    SplitterNode ──links──► ChannelNode ──links──► MergerNode ──► next flow, or sink      (one region)
                                 └──links──► MergerNode ──► ChannelNode ──links──► …      (a shuffle)

All work alike: take an item, be busy with it, send what comes of it in order, block where a link is full. Nodes live
for one generation of their flow; a dead node ignores the events still under way to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from anabranch.papers.machine.links import MARKER, Link, WorldClock
from anabranch.papers.machine.machine_hosts import HostState
from anabranch.papers.merging.merger_base import Merger
from anabranch.papers.merging.punctuation import Punctuation
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.splitter import ShuffleSplitter, Splitter

if TYPE_CHECKING:
    from anabranch.papers.machine.flows import MachineFlow, RegionState


class SendingNode:
    """A node that sends over several links, each thing after the other: a full link holds up what comes behind it."""

    __slots__ = ("_blocked_since", "_clock", "_pending", "dead", "outs")

    def __init__(self, clock: WorldClock, outs: list[Link]) -> None:
        self._clock = clock
        self.outs = outs
        self._pending: deque[tuple[int, Any]] = deque()
        self._blocked_since: float | None = None
        self.dead = False

    def poke(self, _: Any = None) -> None:
        """Take what there is, unless busy or blocked."""
        raise NotImplementedError

    def settle(self) -> None:
        """Account for the time until now."""
        raise NotImplementedError

    def _flush(self) -> bool:
        """Send what is to be sent; false if a link was full before the end."""
        pending, outs = self._pending, self.outs
        while pending:
            channel, item = pending[0]
            link = outs[channel]
            if len(link.items) >= link.capacity:
                link.waiter = self
                self._blocked_since = self._clock.now
                return False
            pending.popleft()
            link.send(item)
        return True

    def unblock(self, _: Any = None) -> None:
        if self.dead:
            return
        self.settle()
        self._blocked_since = None
        if self._flush():
            self.poke()


class SplitterNode(SendingNode):
    """First joint of a flow: takes tuples from the flow's input, when there are any."""

    __slots__ = (
        "_asked_for",
        "_draining",
        "_flow",
        "_working",
        "splitter",
    )

    def __init__(self, flow: MachineFlow, splitter: Splitter, outs: list[Link]) -> None:
        super().__init__(flow.world.clock, outs)
        self._flow = flow
        self.splitter = splitter
        self._working = False
        self._draining = False
        self._asked_for = -1.0

    def poke(self, _: Any = None) -> None:
        """Take what there is, unless busy or blocked."""
        if self.dead or self._working or self._pending or self._draining:
            return
        flow = self._flow
        world = flow.world
        push = self.splitter.push
        pending = self._pending
        while not flow.drain_wanted:
            value = flow.next_input()
            if value is None:
                # Asked for once: many nodes may poke while nothing is there.
                at = flow.input_at()
                if at > world.clock.now and at != self._asked_for and at < world.end_s:
                    self._asked_for = at
                    world.schedule(at, self.poke, None)
                break
            pending.extend(push(value))
            if flow.split_cost_s:
                self._working = True
                world.schedule(world.clock.now + flow.split_cost_s * len(pending), self._done, None)
                return
            if not self._flush():
                return
        if flow.drain_wanted:
            self._drain()

    def _done(self, _: Any) -> None:
        if self.dead:
            return
        self._working = False
        if self._flush():
            self.poke()

    def _drain(self) -> None:
        self._draining = True
        self._pending.extend(self.splitter.finish())
        self._pending.extend((channel, MARKER) for channel in range(len(self.outs)))
        self._flush()

    def settle(self) -> None:
        """Account for the time blocked until now."""
        if self._blocked_since is not None:
            now = self._clock.now
            self._flow.blocked_s += now - self._blocked_since
            self._blocked_since = now


class ChannelNode(SendingNode):
    """One channel of a region, on a host."""

    __slots__ = (
        "_channel",
        "_cost_factors",
        "_costs",
        "_host",
        "_input",
        "_is_numbered",
        "_item",
        "_key",
        "_poke_at",
        "_region",
        "_schedule",
        "_shuffle",
        "_started",
        "_working",
        "blocked_s",
        "busy_s",
        "drained_at",
        "number",
        "taken",
    )

    def __init__(
        self,
        region: RegionState,
        number: int,
        host: HostState,
        channel: Channel,
        is_numbered: bool,
        costs: Iterator[float],
        outs: list[Link],
        shuffle: ShuffleSplitter | None,
    ) -> None:
        super().__init__(region.flow.world.clock, outs)
        self._region = region
        # Looked up once: these are asked for at every event.
        self._schedule = region.flow.world.schedule
        self._cost_factors = region.cost_factors
        self.number = number
        self._host = host
        self._channel = channel
        self._is_numbered = is_numbered
        self._costs = costs
        self._key = region.description.key
        self._input: Link | None = None
        self._shuffle = shuffle
        self._item: Any = None
        self._working = False
        self._started = 0.0
        self._poke_at = -1.0
        self.drained_at: float | None = None
        self.taken = 0
        self.busy_s = 0.0
        self.blocked_s = 0.0

    @property
    def host(self) -> HostState:
        return self._host

    def read_from(self, link: Link) -> None:
        self._input = link
        link.receiver = self

    def arrived(self, index: int, ready: float) -> None:
        if self._working or self._pending:
            return
        now = self._clock.now
        if ready <= now:
            self.poke()
        elif self._poke_at <= now:
            self._poke_at = ready
            self._schedule(ready, self.poke, None)

    def poke(self, _: Any = None) -> None:
        """Start with the next item, unless busy or blocked."""
        if self.dead or self._working or self._pending:
            return
        link = self._input
        assert link is not None
        now = self._clock.now
        items = link.items
        while items:
            ready = items[0][0]
            if ready > now:
                if self._poke_at <= now or self._poke_at > ready:
                    self._poke_at = ready
                    self._schedule(ready, self.poke, None)
                return
            item = link.take()
            if item is MARKER:
                self.drained_at = now
                self._pending.extend((out, MARKER) for out in range(len(self.outs)))
                self._flush()
                return
            value = item[1] if self._is_numbered else item
            if value.__class__ is not Punctuation:
                cost = next(self._costs)
                if self._key is not None:
                    cost *= self._cost_factors[value[1 + self._key]]
                self.taken += 1
                if cost > 0:
                    self._item = item
                    self._working = True
                    self._started = now
                    self._host.busy += 1
                    self._schedule(self._host.finish_time(now, cost), self._finish, None)
                    return
            if not self._process(item):
                return

    def _finish(self, _: Any) -> None:
        if self.dead:
            return
        self._working = False
        self._host.busy -= 1
        self.busy_s += self._clock.now - self._started
        if self._process(self._item):
            self.poke()

    def _process(self, item: Any) -> bool:
        emitted = self._channel.push(item)
        if self._shuffle is None:
            link = self.outs[0]
            if not self._pending and len(link.items) + len(emitted) <= link.capacity:
                for out in emitted:
                    link.send(out)
                return True
            self._pending.extend((0, out) for out in emitted)
        else:
            for out in emitted:
                self._pending.extend(self._shuffle.push(out))
        return self._flush()

    def settle(self) -> None:
        """Account for the time busy and blocked until now."""
        now = self._clock.now
        if self._working:
            self.busy_s += now - self._started
            self._started = now
        if self._blocked_since is not None:
            self.blocked_s += now - self._blocked_since
            self._blocked_since = now

    def die(self) -> None:
        """The host is gone, or the flow starts over."""
        self.settle()
        if self._working:
            self._host.busy -= 1
            self._working = False
        self.dead = True


class MergerNode:
    """The merger at the end of a flow, or in front of a right channel of a shuffle."""

    __slots__ = (
        "_cost_s",
        "_flow",
        "_has_capacity",
        "_is_last",
        "_links",
        "_markers",
        "_out",
        "_pending",
        "_refused",
        "_waiting",
        "_working",
        "dead",
        "merger",
    )

    def __init__(
        self, flow: MachineFlow, merger: Merger, links: list[Link], out: Link | None, cost_s: float, has_capacity: bool
    ) -> None:
        self._flow = flow
        self.merger = merger
        self._links = links
        for index, link in enumerate(links):
            link.index = index
            link.receiver = self
        self._out = out
        """None: the sink."""
        self._is_last = False
        self._cost_s = cost_s
        self._has_capacity = has_capacity
        self._waiting: deque[int] = deque()  # links with items to take, one entry per item
        self._refused: list[int] = []  # …whose queue in the merger is full
        self._pending: deque[Any] = deque()
        self._working = False
        self._markers = 0
        self.dead = False

    def is_last(self) -> MergerNode:
        """It ends the flow: what leaves here is delivered."""
        self._is_last = True
        return self

    def arrived(self, index: int, ready: float) -> None:
        world = self._flow.world
        if ready <= world.clock.now:
            self._arrive(index)
        else:
            world.schedule(ready, self._arrive, index)

    def _arrive(self, index: int) -> None:
        if self.dead:
            return
        self._waiting.append(index)
        if not self._working and not self._pending:
            self._run()

    def _run(self) -> None:
        waiting = self._waiting
        while waiting:
            index = waiting.popleft()
            if self._has_capacity and not self.merger.accepts(index):
                self._refused.append(index)
                continue
            item = self._links[index].take()
            if self._cost_s:
                self._working = True
                world = self._flow.world
                world.schedule(world.clock.now + self._cost_s, self._done, (index, item))
                return
            if not self._push(index, item):
                return

    def _done(self, what: tuple[int, Any]) -> None:
        if self.dead:
            return
        self._working = False
        if self._push(*what):
            self._run()

    def _push(self, index: int, item: Any) -> bool:
        if item is MARKER:
            self._markers += 1
            if self._markers < len(self._links):
                return True
            released = [*self.merger.finish(), MARKER]
        else:
            released = self.merger.push(index, item)
        if self._refused:
            self._waiting.extendleft(reversed(self._refused))
            self._refused.clear()
        if not released:
            return True
        if self._out is None:
            for value in released:
                self._leave(value)
            return True
        self._pending.extend(released)
        return self._flush()

    def _flush(self) -> bool:
        pending, link = self._pending, self._out
        assert link is not None
        while pending:
            if self._is_last and not self._counts(pending[0]):
                pending.popleft()
                continue
            if len(link.items) >= link.capacity:
                link.waiter = self
                return False
            link.send(pending.popleft())
            if self._is_last:
                self._flow.delivered += 1
        return True

    def _counts(self, value: Any) -> bool:
        """Whether this goes on: not if it is a marker, nor if it was delivered before a failure."""
        if value is MARKER:
            self._flow.merger_drained()
            return False
        if self._flow.to_skip:
            self._flow.to_skip -= 1
            return False
        return True

    def _leave(self, value: Any) -> None:
        if self._counts(value):
            self._flow.delivered += 1
            self._flow.world.sink(value)

    def unblock(self, _: Any = None) -> None:
        if self.dead:
            return
        if self._flush():
            self._run()
