"""The state of one key as it is kept: a value for each field; where that would not do, one graph for all of them.

Plain data is kept field by field, each by the codec. Objects of the user's classes, and objects that are in two places
of a key's state, in one field or in two, are kept as one object graph (`program/object_graph.py`) in a column of its
own, so that what was one object is one again. Who reads state without the program sees a `UserObject`.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from anabranch.errors import StateError
from anabranch.program.graph import Node
from anabranch.program.object_graph import ObjectGraph
from anabranch.program.object_parts import is_library, is_plain_instance
from anabranch.program.object_pieces import CHANGING, DICT_VIEWS
from anabranch.program.object_reach import code_of
from anabranch.program.object_views import UserObject
from anabranch.program.schema import Row
from anabranch.state.codec import decode, encode
from anabranch.state.maps import StateMap, StateMaps

#: The column of the graphs.
TOGETHER = "#together"
# Values of these types cannot change in place: the same object means the same value.
IMMUTABLE = frozenset({type(None), bool, int, float, str, bytes})
_CAN_CHANGE = (list, dict, set, deque, StateMap, StateMaps, *CHANGING)
_MANAGED = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in (StateMap, StateMaps)}


@lru_cache(maxsize=256)
def _is_object(kind: Any) -> bool:
    """Whether the codec has nothing for a class: those of the user's, enumerations and named tuples."""
    if kind in (ObjectGraph, UserObject):
        return False
    if kind in DICT_VIEWS or kind in (types.MappingProxyType, types.BuiltinFunctionType):
        return True
    if issubclass(kind, (Enum, types.SimpleNamespace)) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return not issubclass(kind, Row)
    return is_plain_instance(kind) and not is_library(kind.__module__)


def is_plain_tree(values: Iterable[Any]) -> bool:
    """Whether nothing that can change in place is in two places of these values, and nothing in them is an object."""
    seen: set[int] = set()
    arrays: list[np.ndarray] = []
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        kind: Any = type(value)
        if kind in IMMUTABLE:
            continue
        if _is_object(kind):
            return False
        if isinstance(value, _CAN_CHANGE):
            if id(value) in seen:
                return False
            seen.add(id(value))
        if isinstance(value, dict):
            _add_some(waiting, value)
            _add_some(waiting, value.values())
        elif isinstance(value, (list, tuple, deque, set, frozenset)):
            _add_some(waiting, value)
        elif isinstance(value, (StateMap, StateMaps)):
            waiting.extend(value.held())
        elif isinstance(value, np.ndarray):
            if any(np.may_share_memory(value, other) for other in arrays):
                return False
            arrays.append(value)
    return True


def _add_some(waiting: list[Any], values: Any) -> None:
    if not IMMUTABLE.issuperset(map(type, values)):
        waiting.extend(values)


class KeyStates:
    """How the state of a keyed operator's keys is kept and restored."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.names = tuple(field.name for field in getattr(node.logic, "fields", ()))

    @cached_property
    def _classes(self) -> dict[str, type]:
        """The classes that the operator's code names, by which its objects are known again."""
        prototype = getattr(self._node.logic, "prototype", None)
        found = code_of(getattr(prototype, "target", prototype))[0]
        for field in getattr(self._node.logic, "fields", ()):
            # A class may be named by its declaration alone: as the factory, or by what it begins with.
            found |= code_of([field.default, field.factory])[0]
        for kind in type(prototype).__mro__:
            named = [each for each in vars(kind).get("__annotations__", {}).values() if isinstance(each, type)]
            found |= code_of(named)[0]
        return found | _MANAGED

    def kept(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], ObjectGraph | None]:
        """What is written for the fields, and the graph of those that are kept together."""
        if is_plain_tree(values):
            return values, None
        pairs = zip(self.names, values, strict=True)
        held = {name: value for name, value in pairs if type(value) not in IMMUTABLE}
        graph = ObjectGraph.of_value(types.SimpleNamespace(**held), self._classes)
        graph = ObjectGraph(graph.to_parts())  # as it is now; refuses what cannot be kept
        return tuple(value if type(value) in IMMUTABLE else None for value in values), graph

    def restored(self, values: tuple[Any, ...], graph: ObjectGraph | None) -> tuple[Any, ...]:
        """The values that `kept` was given."""
        if graph is None:
            return values
        held = vars(graph.value(self._classes))
        return tuple(held.get(name, value) for name, value in zip(self.names, values, strict=True))

    def encoded(self, values: tuple[Any, ...]) -> bytes:
        """The state of a key as one value."""
        plain, graph = self.kept(values)
        return encode([*plain] if graph is None else [*plain, graph])

    def decoded(self, data: bytes) -> list[Any]:
        """What `encoded` was given."""
        *values, last = found = decode(data)
        return found if len(found) == len(self.names) else list(self.restored(tuple(values), last))


def viewed(row: dict[str, Any]) -> dict[str, Any]:
    """The state of a key for those who have no program: what is kept together among its fields."""
    graph = row.pop(TOGETHER, None)
    return row if graph is None else {**row, **graph.view()}


def refuse_views(values: Sequence[Any]) -> None:
    """Objects were once kept by themselves; such state can be looked at, but not gone on with."""
    if any(isinstance(value, UserObject) for value in values):
        raise StateError(
            "the state holds objects as an earlier version of Anabranch kept them. Go on with that version, or start "
            "anew with another checkpointLocation."
        )
