"""One object in two places of a key's state, in one field or in two: kept as one.

The codec keeps each field by itself, and what is in two places would be read back as two. So where something that can
change is in two places, all fields of the key that can change are kept as one object graph
(`program/object_graph.py`), in the cell of each of them: a field may get another name, or go, in another version of
the program. Read back, the fields of a key that were kept together come out of one graph.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from anabranch.program.object_graph import ObjectGraph
from anabranch.program.object_parts import attributes_of, is_library, is_plain_instance
from anabranch.program.object_pieces import CHANGING
from anabranch.state.codec import Together, decode, encode, encode_flat
from anabranch.state.maps import StateMap, StateMaps
from anabranch.state.user_objects import UserClasses

__all__ = ["IMMUTABLE", "Together", "decode_state", "encode_state", "shared_object", "tied", "untied"]

# Values of these types cannot change in place: the same object means the same value.
IMMUTABLE = frozenset({type(None), bool, int, float, str, bytes})


@lru_cache(maxsize=256)
def _is_object(kind: Any) -> bool:
    """Whether instances of a class are objects whose attributes may change."""
    return is_plain_instance(kind) and not issubclass(kind, Enum) and not is_library(kind.__module__)


def shared_object(values: Iterable[Any]) -> Any:
    """An object that can change in place and is in two places of these values, or None.

    Kept by itself in each, it would be two objects: changing one would no longer change the other.
    """
    seen: set[int] = set()
    arrays: list[np.ndarray] = []
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        kind: Any = type(value)
        if kind in IMMUTABLE:
            continue
        is_object = _is_object(kind)
        if is_object or isinstance(value, (list, dict, set, deque, StateMap, StateMaps, *CHANGING)):
            if id(value) in seen:
                return value
            seen.add(id(value))
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple, deque)):
            waiting.extend(value)
        elif isinstance(value, (StateMap, StateMaps)):
            waiting.extend(value.held())
        elif isinstance(value, np.ndarray):
            if any(np.may_share_memory(value, other) for other in arrays):
                return value
            arrays.append(value)
        elif is_object:
            waiting.extend(each for _, each in attributes_of(value))
    return None


def tied(names: tuple[str, ...], values: tuple[Any, ...], classes: UserClasses) -> tuple[Any, ...]:
    """The values of a key's fields as they are kept: the same, if nothing in them is shared."""
    if shared_object(values) is None:
        return values
    held = {name: value for name, value in zip(names, values, strict=True) if type(value) not in IMMUTABLE}
    parts = ObjectGraph.of_value(types.SimpleNamespace(**held), _known(classes)).to_parts()
    return tuple(Together(name, parts) if name in held else value for name, value in zip(names, values, strict=True))


def untied(values: Iterable[Any], classes: UserClasses) -> list[Any]:
    """The values that `tied` was given."""
    found = list(values)
    first = next((value for value in found if isinstance(value, Together)), None)
    if first is None:
        return found
    held = vars(ObjectGraph(first.parts).value(_known(classes)))
    return [held[value.name] if isinstance(value, Together) else value for value in found]


def _known(classes: UserClasses) -> dict[str, type]:
    ours = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in (StateMap, StateMaps)}
    return {**classes.classes, **ours}


def encode_state(names: tuple[str, ...], values: tuple[Any, ...], classes: UserClasses) -> bytes:
    """The state of a key as one value."""
    if IMMUTABLE.issuperset(map(type, values)):
        return encode_flat(values)
    return encode(list(tied(names, values, classes)), classes)


def decode_state(data: bytes, classes: UserClasses) -> list[Any]:
    """What `encode_state` was given."""
    return untied(decode(data, classes), classes)
