"""An operator as its author wrote it, on one thread, from a given state.

What it shares with the tasks is the author's code and the state they begin with, and nothing of the way they run: no
batches, no rewritten methods, no dicts that hold one entry, no instances that other tasks have seen. All keys are
there at once, as they would be for one thread: a dict of the author's holds the entries of all of them.

    begin:   a copy of the author's object, its dicts and attributes filled with the state of all keys
    take:    a tuple, in the order of one thread ─► what it emits
    end:     the state of each key; and whatever else was changed, which nobody keeps
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from anabranch.compiler.models.key_proof import expression_function
from anabranch.compiler.rewriting.computed_key import BehindKeyColumn
from anabranch.compiler.rewriting.managed_state import ManagedDicts
from anabranch.compiler.rewriting.whole_object import WholeObject
from anabranch.engine.verifying.plain_instances import NOTES, Outputs, PlainInstances, State
from anabranch.program.belongings import Belongings
from anabranch.program.calling import emitted, kept, route_of
from anabranch.program.graph import Filter, FlatMap, Keyed, Map, Node, Process, Punctuate, Route
from anabranch.program.object_filling import Reference
from anabranch.program.object_graph import ObjectGraph
from anabranch.program.object_parts import children, is_atom
from anabranch.program.object_reach import code_of
from anabranch.program.whole_copies import loaded, pickled_whole
from anabranch.state.codec import decode
from anabranch.state.shared_fields import decode_state
from anabranch.state.user_objects import UserClasses


class PlainOperator(Protocol):
    """An operator on one thread, for one epoch."""

    def take(self, place: int, key: Any, row: tuple[Any, ...]) -> Outputs:
        """What is made of a tuple that came by an input; still to be fitted to the schema."""

    def fitted(self, made: Outputs) -> Outputs:
        """What was made, as tuples of the operator's schema; raises if it does not fit."""

    def happen(self, place: int, *arguments: Any) -> list[tuple[Any, Outputs]]:
        """What keys that wait make of a punctuation or a tick, one after the other."""

    def states(self) -> dict[Any, State]:
        """The state of each key now."""

    def encoded(self, key: Any) -> bytes:
        """The state of a key as tasks would write it, if that is all that tasks write; else nothing."""

    def broadcast(self) -> bytes:
        """Its broadcast state now; empty: it has none, or what it is at first. StateError if keys changed it."""

    def together(self) -> Mapping[str, list[Any]]:
        """Dicts whose entries cannot be told apart by key: name → the entries of all keys."""

    def strays(self) -> Mapping[str, Any]:
        """Dicts that hold entries of no key that took a tuple: name → those."""

    def kept_elsewhere(self) -> str | None:
        """What was changed though it is nobody's state; None: nothing."""

    def begin_again(self) -> None:
        """Take the state that it began with; what else was changed stays so."""


class PlainCode:
    """The code of an operator, ready to be run from any state.

    Parameters
    ----------
    written : Node
        The operator as it was written.
    running : Node
        The same as it runs; its logic says what is kept and how.
    """

    def __init__(self, written: Node, running: Node) -> None:
        self.node = written
        self.running = running
        logic = running.logic
        self._managed = isinstance(logic, Keyed) and isinstance(logic.prototype, ManagedDicts)
        self._whole = isinstance(logic, Keyed) and isinstance(logic.prototype, WholeObject)
        self._fields = [field.name for field in logic.fields] if isinstance(logic, Keyed) else []
        held = logic.prototype.written if self._managed else None  # type: ignore[union-attr]
        self._pickled, _ = pickled_whole((written.logic, held), written.logic)

    def begun(
        self, states: Mapping[Any, bytes], rows: Iterable[tuple[Any, tuple[Any, ...]]], broadcast: bytes = b""
    ) -> PlainOperator:
        """The operator before an epoch.

        Parameters
        ----------
        states : mapping
            Key → the values of its fields, encoded.
        rows : iterable
            (key, tuple) of all that it will take: a dict's index is computed from a tuple.
        broadcast : bytes
            Its broadcast state.
        """
        logic, held = loaded(self._pickled)
        node = dataclasses.replace(self.node, logic=logic)
        if self._managed:
            prototype = self.running.logic.prototype  # type: ignore[union-attr]
            return _WithDicts(node, prototype, held, self.running, states, rows)
        if self._whole:
            return _Whole(node, self.running.logic.prototype, states)  # type: ignore[union-attr]
        if isinstance(logic, Keyed):
            return PlainInstances(node, states, broadcast)
        return _WithoutState(node)

    @property
    def may_be_reordered(self) -> bool:
        """Whether only the tuples of one key, if it has any, must come in order."""
        return not self._whole

    def shown(self, state: bytes) -> State:
        """What tasks keep for a key, encoded, in the form that `states` has."""
        fields = dict(zip(self._fields, decode(state), strict=True))
        if self._managed:
            return {each.name: _kept(each, fields) for each in self.running.logic.prototype.dicts}  # type: ignore[union-attr]
        if self._whole:
            graph = fields["graph"]
            return {} if graph is None else {"graph": ordered_parts(graph.to_parts())}
        return {name: value for name, value in fields.items() if name not in NOTES}


# -- what is made of a tuple ------------------------------------------------------------------------------------


def _call_of(node: Node) -> Any:
    """What takes a tuple: the author's function or method, and what it gives as tuples of the operator's schema."""
    logic, schema = node.logic, node.schema

    def all_of(found: Any) -> Outputs:
        return [tuple(schema.exact_row(schema.unpack(each))) for each in emitted(found)]

    if isinstance(logic, Filter):
        return lambda row: [tuple(tuple.__iter__(row))] if kept(logic.function(row)) else []
    if isinstance(logic, Map):
        return lambda row: [tuple(schema.exact_row(schema.unpack(logic.function(row))))]
    if isinstance(logic, FlatMap):
        return lambda row: all_of(logic.function(row))
    if isinstance(logic, Process):
        return lambda row: all_of(getattr(logic.operator, logic.method)(row))
    if isinstance(logic, Route):
        return lambda row: [(route_of(logic, row),)]
    assert isinstance(logic, Punctuate), f"a {node.kind} has no code of the user's"
    return lambda row: [(1 if logic.function(row) else 0,)]


class _WithoutState:
    """An operator that keeps nothing, as it is believed."""

    def __init__(self, node: Node) -> None:
        self._row_class = node.inputs[0].schema.row_class
        self._call = _call_of(node)
        self._belongings = Belongings([node.logic])

    def take(self, place: int, key: Any, row: tuple[Any, ...]) -> Outputs:
        found: Outputs = self._call(self._row_class(row))
        return found

    def fitted(self, made: Outputs) -> Outputs:
        return made

    def happen(self, place: int, *arguments: Any) -> list[tuple[Any, Outputs]]:
        return []

    def states(self) -> dict[Any, State]:
        return {}

    def encoded(self, key: Any) -> bytes:
        return b""

    def broadcast(self) -> bytes:
        return b""

    def together(self) -> Mapping[str, list[Any]]:
        return {}

    def strays(self) -> Mapping[str, Any]:
        return {}

    def kept_elsewhere(self) -> str | None:
        return self._belongings.changed()

    def begin_again(self) -> None:
        pass


class _WithDicts(_WithoutState):
    """An operator whose own dicts are its state: they hold the entries of all keys."""

    def __init__(
        self,
        node: Node,
        prototype: ManagedDicts,
        held: list[Any],
        running: Node,
        states: Mapping[Any, bytes],
        rows: Iterable[tuple[Any, tuple[Any, ...]]],
    ) -> None:
        super().__init__(node)
        self._node, self._prototype = node, prototype
        self._dicts = list(zip(prototype.dicts, held, strict=True))
        self._initial = [set(each) if isinstance(each, set) else dict(each) for each in held]
        self._running, self._states = running, states
        self._indexes: dict[Any, Any] = {}
        index = expression_function(prototype.index_source)
        for key, row in rows:
            if key not in self._indexes:
                self._indexes[key] = index(self._seen(row))
        self.begin_again()

    def take(self, place: int, key: Any, row: tuple[Any, ...]) -> Outputs:
        found: Outputs = self._call(self._seen(row))
        return found

    def _seen(self, row: tuple[Any, ...]) -> Any:
        """The tuple as the author's code sees it: without a column that only its key was put into."""
        found = self._row_class(row)
        return self._prototype.as_written(found) if isinstance(self._prototype, BehindKeyColumn) else found

    def begin_again(self) -> None:
        self._empty()
        for key, state in self._states.items():
            names = [field.name for field in self._running.logic.fields]  # type: ignore[union-attr]
            values = dict(zip(names, decode_state(state, UserClasses(self._running)), strict=True))
            for each, found in self._dicts:
                if each.is_finer:
                    for place, *value in values[f"{each.name}_entries"]:
                        _put(found, place, *map(self._taken_out, value))
                else:
                    present = values[f"{each.name}_present"]
                    if present:
                        _put(found, self._indexes[key], self._taken_out(values.get(f"{each.name}_value")))
                    elif present is not None:
                        _drop(found, self._indexes[key])

    def _taken_out(self, value: Any) -> Any:
        """The value of an entry; objects are of this copy's classes."""
        return value.value(self._classes) if isinstance(value, ObjectGraph) else value

    @functools.cached_property
    def _classes(self) -> dict[str, type]:
        logic: Any = self._node.logic
        return code_of(logic.operator if isinstance(logic, Process) else logic.function, in_globals=True)[0]

    def states(self) -> dict[Any, State]:
        return {
            key: {
                each.name: [self._put_in(each, value) for value in _entry(held, index)]
                for each, held in self._dicts
                if not each.is_finer
            }
            for key, index in self._indexes.items()
        }

    def together(self) -> Mapping[str, list[Any]]:
        return {
            each.name: [[index, *(self._put_in(each, value) for value in entry)] for index, *entry in _entries(held)]
            for each, held in self._dicts
            if each.is_finer
        }

    def _put_in(self, of: Any, value: Any) -> Any:
        """The value of an entry as data, in the form that tasks keep it in."""
        return _as_data(ObjectGraph.of_value(value, self._classes)) if of.has_objects and not is_atom(value) else value

    def strays(self) -> Mapping[str, Any]:
        mine = set(self._indexes.values())
        found: dict[str, Any] = {}
        for (each, held), initial in zip(self._dicts, self._initial, strict=True):
            for index in [] if each.is_finer else dict.fromkeys([*held, *initial]):
                if index not in mine and _entry(held, index) != _entry(initial, index):
                    found.setdefault(each.name, {})[index] = _entry(held, index)
        return found

    def kept_elsewhere(self) -> str | None:
        self._empty()
        return super().kept_elsewhere()

    def _empty(self) -> None:
        """As it was before there was any state."""
        for (_, held), initial in zip(self._dicts, self._initial, strict=True):
            held.clear()
            held.update(initial) if isinstance(held, set) else dict.update(held, initial)


def _put(held: Any, index: Any, value: Any = None) -> None:
    if isinstance(held, set):
        held.add(index)
    else:
        held[index] = value


def _drop(held: Any, index: Any) -> None:
    if isinstance(held, set):
        held.discard(index)
    else:
        held.pop(index, None)


def _entry(held: Any, index: Any) -> list[Any]:
    """[] if there is none, else [its value]."""
    if index not in held:
        return []
    return [None] if isinstance(held, set) else [dict.__getitem__(held, index)]


def _entries(held: Any) -> list[list[Any]]:
    return [[each] for each in held] if isinstance(held, set) else [[key, value] for key, value in held.items()]


def _kept(each: Any, fields: Mapping[str, Any]) -> Any:
    if each.is_finer:
        return [[index, *map(_as_data, value)] for index, *value in fields[f"{each.name}_entries"]]
    return [_as_data(fields.get(f"{each.name}_value"))] if fields[f"{each.name}_present"] else []


def _as_data(value: Any) -> Any:
    return ordered_parts(value.to_parts()) if isinstance(value, ObjectGraph) else value


class _Whole(_WithoutState):
    """An operator whose whole object is its state, that of the empty key."""

    def __init__(self, node: Node, prototype: WholeObject, states: Mapping[Any, bytes]) -> None:
        live = prototype.prototype.fresh()
        (state,) = states.values()
        (graph,) = decode(state)
        self._live = live
        self._parts = live.flatten() if graph is None else graph.to_parts()
        live.fill(self._parts)
        logic: Any = node.logic
        place = "operator" if isinstance(logic, Process) else "function"
        super().__init__(dataclasses.replace(node, logic=dataclasses.replace(logic, **{place: live.target})))
        self._inside = _identities(live.target)

    def states(self) -> dict[Any, State]:
        return {(): {"graph": ordered_parts(ObjectGraph(self._live.flatten()).to_parts())}}

    def kept_elsewhere(self) -> str | None:
        return self._belongings.changed(self._inside)

    def begin_again(self) -> None:
        self._live.fill(self._parts)


def _identities(target: Any) -> set[int]:
    """Those of all that an object holds."""
    seen: set[int] = set()
    waiting = [target]
    while waiting:
        value = waiting.pop()
        if not is_atom(value) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(child for _, child in children(value))
    return seen


def ordered_parts(parts: list[Any]) -> Any:
    """The parts of an object in one order: what sets hold may come in any, and numbers follow from that."""
    try:
        return _deep(Reference(0), parts, {})
    except RecursionError:  # a long chain of objects: as it is, then
        return parts


def _deep(part: Any, parts: list[Any], numbers: dict[int, int]) -> Any:
    """A part with all that is in it; what was met before by its number."""
    if isinstance(part, Reference):
        if part.number in numbers:
            return ["again", numbers[part.number]]
        numbers[part.number] = len(numbers)
        way, kind, held = parts[part.number]
        if kind.endswith(" with a table"):
            kind, held = kind.removesuffix(" with a table"), held[0]
        if kind in ("set", "frozenset"):
            held = sorted(held, key=lambda each: repr(_deep(each, parts, {})))
        return [way, kind, _deep(held, parts, numbers)]
    return [_deep(each, parts, numbers) for each in part] if isinstance(part, list) else part
