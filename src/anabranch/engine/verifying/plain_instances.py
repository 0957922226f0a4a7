"""An operator with an object for each key, as one thread has it: from a given state, over what was taken down."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.engine.worker.batches import Keeper
from anabranch.engine.worker.samples import BROADCAST, PUNCTUATION, TICK, TIME
from anabranch.operators.epoch_context import moment
from anabranch.program.belongings import Belongings
from anabranch.program.calling import Instances, emitted
from anabranch.program.graph import Keyed, Node
from anabranch.state.broadcast_state import BroadcastState
from anabranch.state.codec import decode
from anabranch.state.shared_fields import decode_state, encode_state
from anabranch.state.user_objects import UserClasses

State = Mapping[str, Any]
"""Name → value. What a key has in each of its fields, or what is kept for it in each dict."""
Outputs = list[tuple[Any, ...]]

NOTES = ("opened", "timer_since")
"""Since when a key waits: tasks note that for themselves, by trails."""


class PlainInstances:
    """An operator with an object for each key, as it was declared or as the library has it."""

    def __init__(self, node: Node, states: Mapping[Any, bytes], broadcast: bytes) -> None:
        assert isinstance(node.logic, Keyed)
        self._node, self._logic = node, node.logic
        self._belongings = Belongings([node.logic])
        self._instances = Instances(node)
        self._classes = UserClasses(node)
        self._states, self._broadcast_before = states, broadcast
        self._keep = Keeper(node.schema)
        self._inputs = [(n.schema.row_class, node.logic.method_of(place)) for place, n in enumerate(node.inputs)]
        # Nobody waits, and no time is asked for: what takes a tuple is one call.
        self._is_plain = not (node.logic.waiting or node.logic.timed or node.logic.takes_time)
        self._live: dict[Any, Any] = {}
        self._waiting: dict[Any, None] = {}
        self._orders = itertools.count()
        self._since: dict[Any, int] = {}  # of keys that wait for a time
        self._broadcast: BroadcastState | None = None
        self.begin_again()

    def begin_again(self) -> None:
        names, field = self._instances.names, self._logic.waiting
        values = {key: tuple(decode_state(state, self._classes)) for key, state in self._states.items()}
        self._live = {key: self._instances.restored(each) for key, each in values.items()}
        self._waiting, self._since, self._now = {}, {}, 0
        if self._logic.broadcast is not None:
            self._broadcast = BroadcastState(self._node, self._instances, self._broadcast_before)
        # The order in which they began to wait; from then on it is that of their tuples.
        if field:
            waits = [key for key, each in values.items() if each[names.index(field)]]
            opened = names.index("opened")
            self._waiting = dict.fromkeys(sorted(waits, key=lambda key: values[key][opened]))
        if self._logic.timed:
            waits = [key for key, each in values.items() if each[names.index("timer_due")] is not None]
            since = names.index("timer_since")
            for key in sorted(waits, key=lambda key: values[key][since]):
                self._since[key] = next(self._orders)

    def take(self, place: int, key: Any, row: tuple[Any, ...]) -> Outputs:
        row_class, method = self._inputs[place]
        if self._is_plain:
            return self._kept(getattr(self._live[key], method)(row_class(row)))
        if self._logic.timed:
            moment().reached, moment().fired = self._now, None
        arguments = (self._now,) if self._logic.takes_time else ()
        return self._called(key, method, row_class(row), *arguments)

    def happen(self, place: int, *arguments: Any) -> list[tuple[Any, Outputs]]:
        if place == BROADCAST:
            assert self._broadcast is not None
            self._broadcast.take(self._inputs[-1][0](arguments), anew=True)
            return []
        if place == TIME:
            (self._now,) = arguments
            return list(self._fired())
        method = {PUNCTUATION: self._logic.punctuated, TICK: self._logic.ticked}[place]
        return [(key, self._called(key, method, *arguments)) for key in list(self._waiting)] if method else []

    def fitted(self, made: Outputs) -> Outputs:
        if not made or not self._keep.tuples_last:
            return made
        schema = self._node.schema
        if set(map(type, made)) != {tuple} or set(map(len, made)) != {len(schema.names)}:
            made = [tuple(schema.unpack(each)) for each in made]
        return list(zip(*schema.exact_columns(made), strict=True))

    def _fired(self) -> Iterator[tuple[Any, Outputs]]:
        """What keys make of times that have come, one after the other: by their times, then since when they wait."""
        due = [(self._live[key].timer_due, since, key) for key, since in self._since.items()]
        due = [each for each in due if each[0] <= self._now]
        heapq.heapify(due)
        while due:
            time, since, key = heapq.heappop(due)
            moment().reached, moment().fired = self._now, time
            yield key, self._called(key, self._logic.timed, time)
            again = self._live[key].timer_due
            if again is not None and time <= again <= self._now:
                heapq.heappush(due, (again, since, key))

    def _called(self, key: Any, method: str, *arguments: Any) -> Outputs:
        instance = self._live[key]
        made = self._kept(getattr(instance, method)(*arguments))
        if self._logic.waiting and getattr(instance, self._logic.waiting):
            self._waiting.setdefault(key)
        else:
            self._waiting.pop(key, None)
        if self._logic.timed:
            if instance.timer_due is None:
                self._since.pop(key, None)
            else:
                self._since.setdefault(key, next(self._orders))
        return made

    def _kept(self, found: Any) -> Outputs:
        keep, lasts = self._keep, self._keep.tuples_last
        return [output if lasts and type(output) is tuple else tuple(keep(output)) for output in emitted(found)]

    def states(self) -> dict[Any, State]:
        # As data: objects of the user's are of this copy's classes, and those of the tasks of others.
        found = {key: dict(zip(self._instances.names, decode(self.encoded(key)), strict=True)) for key in self._live}
        return {key: {name: state[name] for name in state if name not in NOTES} for key, state in found.items()}

    def encoded(self, key: Any) -> bytes:
        values = self._instances.values(self._live[key])
        return encode_state(self._instances.names, values, self._classes)

    def broadcast(self) -> bytes:
        if self._broadcast is None:
            return b""
        self._broadcast.check(anew=True)
        return self._broadcast.data

    def together(self) -> Mapping[str, list[Any]]:
        return {}

    def strays(self) -> Mapping[str, Any]:
        return {}

    def kept_elsewhere(self) -> str | None:
        return self._belongings.changed()
