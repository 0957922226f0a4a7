"""An operator with keys in the sequential run: one instance of it per key. Part of the definition.

A call for a tuple is followed by *settling*: what the instance holds now says whether its key waits (for a punctuation,
for time to pass, for a moment) and whether anything is left of it. Keys that wait are called in the order in which they
began to, or by their moments.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from anabranch.engine.sequential_time import WaitingKeys
from anabranch.engine.sequential_wiring import Consume, Wiring
from anabranch.operators.epoch_context import moment
from anabranch.program.calling import Instances, key_of
from anabranch.program.event_time import END, watermarks_read
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import Row
from anabranch.state.broadcast_state import BroadcastState
from anabranch.state.codec import comparable
from anabranch.state.user_objects import UserClasses


class KeyedOperator:
    """The keys of an operator.

    Attributes
    ----------
    instances : Instances
        How an instance is made and what it holds.
    by_key : dict
        The instances there are.
    """

    def __init__(self, wiring: Wiring, node: Node, logic: Keyed) -> None:
        self.instances = Instances(node)
        self.by_key: dict[Any, Any] = {}
        self._wiring, self._node, self._logic = wiring, node, logic
        self._classes = UserClasses(node)
        self._expires_ms: dict[Any, int] = {}
        self._touched: dict[Any, bytes] = {}  # keys of this epoch, with their state before it
        self._waiting: dict[Any, Row] = {}  # the keys that wait, in the order in which they began to
        names = watermarks_read(node, wiring.behind) if logic.by_watermark else ()
        self._timed = WaitingKeys(names)
        self._watermark = self._timed.watermark
        self._initial = self.instances.values(self.instances.new())
        self._broadcast = None if logic.broadcast is None else BroadcastState(node, self.instances)
        if self._broadcast is not None:
            wiring.ends.append(self._check_broadcast)
        if logic.time_to_live_ms is not None:
            wiring.ends.append(self._ended)
        if logic.timed:
            wiring.ticks.append(self._tick)
        if logic.by_watermark:
            wiring.idleness.reads(node.name, names, self._watermark)
        if logic.ticked:
            wiring.ticks.append(lambda: self._call_waiting(logic.ticked, END if wiring.ending else wiring.clock_ms))
        elif logic.punctuated:
            wiring.ticks.append(lambda: self._call_waiting(logic.punctuated) if wiring.ending else None)

    def go_on_from(
        self, before: KeyedOperator, states: Mapping[Any, tuple[Any, ...]], names: Mapping[str, str]
    ) -> None:
        """Take over the keys of another, with these states; `names` has what is called otherwise: earlier → now."""
        self.by_key.update((key, self.instances.restored(state)) for key, state in states.items())
        self._expires_ms.update(before._expires_ms)
        self._waiting.update(before._waiting)
        self._timed.go_on_from(before._timed, names)
        if self._broadcast is not None and before._broadcast is not None:
            self._broadcast = BroadcastState(self._node, self.instances, before._broadcast.data)

    def consumer(self, index: int) -> Consume:
        """What takes the tuples of an input."""
        if self._broadcast is not None and self._node.is_broadcast(index):
            return self._told_to_all
        wiring, node, logic, by_key, expires_ms = self._wiring, self._node, self._logic, self.by_key, self._expires_ms
        watermark, new = self._watermark, self.instances.new
        names = node.inputs[index].schema.names
        columns = tuple(names.index(name) for name in node.key_of(index))
        method = logic.method_of(index)
        takes_time, own = logic.takes_time, wiring.behind[node.inputs[index].id]

        def consume(row: Row) -> None:
            key = key_of(row, columns)
            instance = by_key.get(key)
            if instance is None or wiring.clock_ms >= expires_ms.get(key, wiring.clock_ms + 1):
                instance = by_key[key] = new()
                expires_ms.pop(key, None)
            self._touch(key, instance)
            now = watermark.least(own) if logic.per_input else watermark.value
            arguments = (row, now) if takes_time else (row,)
            before = functools.partial(_set_moment, watermark.value, None) if logic.timed else None
            with wiring.failures.of_key(node, instance):
                wiring.emit_all(node, row, lambda: getattr(instance, method)(*arguments), before)
            self._settle(key, instance, row)

        return consume

    def _told_to_all(self, row: Row) -> None:
        assert self._broadcast is not None
        self._broadcast.take(row, anew=True)

    def _check_broadcast(self) -> None:
        assert self._broadcast is not None
        self._broadcast.check(anew=True)

    def punctuated(self) -> None:
        if self._logic.punctuated:
            self._call_waiting(self._logic.punctuated)
        self._wiring.punctuate(self._node)

    def take_advance(self, name: str, value: int) -> None:
        """A watermark that comes in: the operator's own is made of it, or it goes on as it is."""
        if not self._logic.by_watermark:
            self._wiring.advance(self._node, name, value)
        elif self._watermark.take(name, value):
            self._fire_and_advance()

    def _settle(self, key: Any, instance: Any, row: Row) -> None:
        logic = self._logic
        values = self.instances.values(instance)  # refuses what would be lost
        if logic.waiting and getattr(instance, logic.waiting):
            self._waiting.setdefault(key, row)
        elif logic.waiting:
            self._waiting.pop(key, None)
        if logic.timed:
            self._timed.settle(key, instance.timer_due)
            if values == self._initial:
                self.by_key.pop(key, None)  # nothing is left of it

    def _touch(self, key: Any, instance: Any) -> None:
        if self._logic.time_to_live_ms is not None and key not in self._touched:
            self._touched[key] = self._held(instance)

    def _held(self, instance: Any) -> bytes:
        return comparable(list(self.instances.values(instance)), self._classes)

    def _fire(self) -> None:
        """Call the keys that waited for what time has come to: by their times, then since when they waited."""
        wiring, node = self._wiring, self._node
        for due, key in self._timed.due():
            instance = self.by_key[key]
            row: Any = f"the key {key!r}, which waits"
            before = functools.partial(_set_moment, self._watermark.value, due)
            with wiring.failures.of_waiting(node, instance, key, due):
                wiring.emit_all(node, row, functools.partial(getattr(instance, self._logic.timed), due), before)
            self._settle(key, instance, row)

    def _fire_and_advance(self) -> None:
        self._fire()
        self._wiring.advance(self._node, self._node.name, self._watermark.value)

    def _tick(self) -> None:
        if self._logic.by_clock:
            self._watermark.value = END if self._wiring.ending else self._wiring.clock_ms
            self._fire()
        elif self._watermark.advance():
            self._fire_and_advance()

    def _call_waiting(self, method: str, *arguments: Any) -> None:
        wiring, node = self._wiring, self._node
        for key, row in list(self._waiting.items()):
            instance = self.by_key[key]
            self._touch(key, instance)
            waits = f"the key {key!r}, which waits"
            with wiring.failures.of_waiting(node, instance, key):
                wiring.emit_all(node, waits, functools.partial(getattr(instance, method), *arguments))
            self._settle(key, instance, row)

    def _ended(self) -> None:
        """At the end of an epoch the time to live of every key whose state is another than before begins anew."""
        for key, before in self._touched.items():
            if self._held(self.by_key[key]) != before:
                self._expires_ms[key] = self._wiring.clock_ms + (self._logic.time_to_live_ms or 0)
        self._touched.clear()


def _set_moment(reached: int, fired: int | None) -> None:
    now = moment()
    now.reached, now.fired = reached, fired
