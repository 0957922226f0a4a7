"""One key group of *Resources* in virtual time: it is fed, checkpointed, and moved in one of three ways.

    upstream 0 ─┐         ┌─ node 0: owner       checkpoints of the owner go to the node that holds them; then the
    upstream 1 ─┼─ group ─┼─ node 1: checkpoint  upstream buffers are trimmed
    upstream 2 ─┘         └─ node 2: neither

A message without data takes 1, with data so much per tuple, or per key of a checkpoint; a normal one then waits for
what is before it, and for `queueing`, the paper's C. An instance applies one tuple after the other. All times can be
made to vary by chance; what was sent first between two instances still comes first.

direct   a fresh checkpoint of all the state to the new node, trimming, then CPA. The group rests meanwhile.
CPA      the node that holds the checkpoint makes it its state and applies the upstream buffers; then new data.
CPAL     the same, but the old owner goes on with a copy of all data until the new one has caught up.

After each the old owner's state is the checkpoint. Latency is how long the group rests; completion runs from the order
until the new owner has all and the old one's state is a checkpoint. What leaves the operator carries the id of the
tuple that it was made from, so that whoever comes next removes what he has had (`outputs` and `repeated`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from anabranch.papers.resources.instances import Instance, Upstream, Way
from anabranch.papers.resources.messages import Message, Snapshot, Tuple


@dataclass(frozen=True)
class MigrationCosts:
    """Times, in units of one fast message."""

    per_tuple_sent: float = 0.01
    """Of a message with tuples, each."""
    per_tuple_applied: float = 0.05
    per_key: float = 0.02
    """Of a checkpoint: to make, send and read each key that it has."""
    queueing: float = 2.0
    """C: what a normal message waits for others' work."""
    variation: float = 0.0
    """Every time is so much longer or shorter by chance, as a share."""


@dataclass(frozen=True)
class MigrationTimes:
    """What one migration took."""

    way: Way
    ordered_at: float
    latency: float
    completion: float
    replayed: int
    """Tuples in the upstream buffers when it began."""


class MigrationWorld:
    """A group, who feeds it, and the nodes that can run it."""

    def __init__(
        self, upstreams: int, nodes: int, costs: MigrationCosts, *, seed: int = 0, state: Snapshot | None = None
    ) -> None:
        self.now = 0.0
        self.owner, self.holder = 0, 1
        self.costs = costs
        self.sent: list[Tuple] = []
        self.outputs: dict[tuple[int, int], float] = {}
        """By id of the tuple: when its result was there first."""
        self.repeated = 0
        """Results that came again and were removed by their id."""
        self.duplicates = 0
        """Tuples that came again and were removed by their id."""
        self.done: list[MigrationTimes] = []
        self._chance = Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._links: dict[tuple[str, int, int], float] = {}
        self.upstreams = [Upstream(self, number) for number in range(upstreams)]
        self.instances = [Instance(self, node) for node in range(nodes)]
        self.instances[0].state = state or Snapshot()
        self.instances[1].checkpoint = self.instances[0].state.copy()
        self._migration: _Migration | None = None
        self._checkpointing = False

    def preload(self, count: int) -> None:
        """Begin with so many tuples that the owner has applied, and no checkpoint contains yet."""
        owner = self.instances[self.owner].state
        assert owner is not None
        keys = list(owner.values)
        for number in range(count):
            each = self.upstreams[number % len(self.upstreams)].keep(keys[number % len(keys)])
            owner.apply(each)
            self.outputs[each.stream, each.number] = self.now

    # ---- time ----

    def after(self, time: float, action: Callable[[], None]) -> None:
        self.at(self.now + self._varied(time), action)

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (max(time, self.now), self._number, action))

    def run(self, until: float = float("inf")) -> None:
        """Until nothing happens any more, or that time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, action = heapq.heappop(self._events)
            action()

    def _varied(self, time: float) -> float:
        return time * (1 + self.costs.variation * self._chance.uniform(-1, 1))

    def processing_time(self, message: Message) -> float:
        return len(message.tuples) * self.costs.per_tuple_applied

    # ---- messages ----

    def send_down(self, upstream: Upstream, node: int, message: Message) -> None:
        """To a node; with data it takes as long as that is large."""
        size = len(message.tuples) * self.costs.per_tuple_sent
        self._send(("down", upstream.number, node), message, size, lambda: self.instances[node].receive(message))

    def _send(self, link: tuple[str, int, int], message: Message, size: float, arrive: Callable[[], None]) -> None:
        time = max(1.0, size) if message.kind != "data" else 1.0
        # First in, first out; then a normal message waits for what the node does for others.
        arrival = max(self.now + self._varied(time), self._links.get(link, 0.0))
        if not message.fast:
            arrival += self.costs.queueing if message.kind != "data" else 0.0
        self._links[link] = arrival
        self.at(arrival, arrive)

    def _send_up(self, node: int, message: Message) -> None:
        for upstream in self.upstreams:
            link = ("up", node, upstream.number)
            self._send(link, message, 1.0, lambda upstream=upstream: upstream.receive(message))  # type: ignore[misc]

    def _send_checkpoint(self, source: int, target: int, checkpoint: Snapshot) -> None:
        message = Message("checkpointed", -1, fast=True, checkpoint=checkpoint)
        size = max(1.0, len(checkpoint.values) * self.costs.per_key)
        self._send(("across", source, target), message, size, lambda: self.instances[target].receive(message))

    # ---- checkpoints ----

    def checkpoint(self) -> None:
        """The owner's next checkpoint, to the node that holds it; not while the group moves."""
        if self._migration is None and not self._checkpointing:
            state = self.instances[self.owner].state
            assert state is not None
            self._checkpointing = True
            self._send_checkpoint(self.owner, self.holder, state.copy())

    def acknowledged(self, holder: Instance, message: Message) -> None:
        """A checkpoint is stored: who sends may forget what it contains."""
        self._checkpointing = False
        if self._migration is not None:
            self._migration.fresh = message.checkpoint
        self._send_up(self.owner, Message("trim", -1, fast=True, checkpoint=message.checkpoint))

    def trimmed(self, checkpoint: Snapshot) -> None:
        """An upstream instance has forgotten what the checkpoint contains; of older ones news may still come."""
        if self._migration is not None and self._migration.fresh is checkpoint:
            self._migration.trimmed += 1
            if self._migration.trimmed == len(self.upstreams):
                self.instances[self.owner].resume()
                self._inform()

    # ---- migrations ----

    def migrate(self, way: Way, node: int) -> bool:
        """Order a migration; refused while another one, or a checkpoint, is under way, and to where it may not go."""
        if self._migration is not None or self._checkpointing or node == self.owner:
            return False
        if way != "direct" and node != self.holder:
            return False
        replayed = sum(len(upstream.buffer) for upstream in self.upstreams)
        self._migration = _Migration(way, self.now, node, replayed)
        if way == "direct":
            self._migration.rests_since = self.now
            self.after(1.0, self._make_checkpoint)
        else:
            self._inform()
        return True

    def _make_checkpoint(self) -> None:
        assert self._migration is not None
        owner = self.instances[self.owner]
        assert owner.state is not None
        owner.pause()
        if self.holder != self._migration.node:
            self.instances[self.holder].checkpoint = None
            self.holder = self._migration.node
        self._checkpointing = True
        self._send_checkpoint(self.owner, self._migration.node, owner.state.copy())

    def _inform(self) -> None:
        assert self._migration is not None
        way, old, new = self._migration.way, self.owner, self._migration.node
        for upstream in self.upstreams:
            self.after(1.0, lambda upstream=upstream: self._informed(upstream, way, old, new))  # type: ignore[misc]

    def _informed(self, upstream: Upstream, way: Way, old: int, new: int) -> None:
        if way != "cpal" and self._migration is not None and self._migration.rests_since is None:
            self._migration.rests_since = self.now
        upstream.inform(way, old, new)

    def replayed(self, instance: Instance) -> None:
        """The new owner has applied all upstream buffers."""
        assert self._migration is not None
        if self._migration.way == "cpal":
            self._send_up(instance.node, Message("processedAllReplay", -1, fast=True))
        else:
            self._migration.ready_at = self.now
            self._end()

    def synchronising(self) -> None:
        assert self._migration is not None
        self._migration.rests_since = self.now

    def synchronised(self) -> None:
        assert self._migration is not None
        self._migration.ready_at = self.now
        self._end()

    def converted(self, old: Instance) -> None:
        """The old owner's state is the checkpoint now: what it contains may be trimmed."""
        assert self._migration is not None and old.checkpoint is not None
        self._migration.converted = True
        self._send_up(old.node, Message("trim", -1, fast=True, checkpoint=old.checkpoint.copy()))
        self._end()

    def _end(self) -> None:
        found = self._migration
        if found is not None and found.converted and found.ready_at is not None:
            assert found.rests_since is not None
            latency, completion = found.ready_at - found.rests_since, self.now - found.ordered_at
            self.done.append(MigrationTimes(found.way, found.ordered_at, latency, completion, found.replayed))
            self.owner, self.holder = found.node, self.owner
            self._migration = None

    def emitted(self, instance: Instance, each: Tuple) -> None:
        name = (each.stream, each.number)
        if name in self.outputs:
            self.repeated += 1
        else:
            self.outputs[name] = self.now


@dataclass
class _Migration:
    """One that is under way."""

    way: Way
    ordered_at: float
    node: int
    replayed: int
    fresh: Snapshot | None = None
    """Of direct migration: the checkpoint that was made for it, once it is there."""
    trimmed: int = 0
    rests_since: float | None = None
    ready_at: float | None = None
    converted: bool = False
