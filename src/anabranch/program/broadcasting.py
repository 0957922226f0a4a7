"""Broadcast state: what all keys of an operator see alike, and what only the tuples of one stream change.

    rules    ────r1──────────r2───────►  on_broadcast(self, rule)   once for each rule, for no key
    payments ─p1────p2──p3───────p4───►  process(self, t)           p2 and p3 see r1, p4 sees r1 and r2

An operator declares it as attributes (`BroadcastField`). All instances of a channel share one holder (`Held`), which
is part of their configuration: so reading an attribute is the same for every key, and nothing of it is a key's state.
It can be assigned only while a tuple of the broadcast stream is taken.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from anabranch.errors import StateError

HELD = "broadcast_held"
"""The attribute of an instance that all instances share."""


class Held:
    """The values of an operator's broadcast state."""

    __slots__ = ("is_open", "values")

    def __init__(self, values: dict[str, Any], is_open: bool = False) -> None:
        self.values = values
        self.is_open = is_open


class BroadcastField:
    """An attribute of an operator that is broadcast state."""

    def __init__(self, default: Any, factory: Callable[[], Any] | None) -> None:
        self.default = default
        self.factory = factory
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def initial(self) -> Any:
        """What it is before the first tuple of the broadcast stream."""
        return self.factory() if self.factory is not None else self.default

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return _held_by(instance).values[self.name]

    def __set__(self, instance: Any, value: Any) -> None:
        held = _held_by(instance)
        if not held.is_open:
            raise StateError(
                f"{type(instance).__name__} assigns self.{self.name}, which is broadcast state: all keys share it, so "
                "only on_broadcast(self, t) may change it. What belongs to one key is ab.state(…)"
            )
        held.values[self.name] = value


def _held_by(instance: Any) -> Held:
    """An operator by itself, in a test say, has a holder of its own, which may be changed."""
    found = instance.__dict__.get(HELD)
    if found is None:
        found = instance.__dict__[HELD] = Held(initial_values(broadcast_fields(type(instance))), is_open=True)
    return found


def broadcast_fields(kind: type) -> tuple[BroadcastField, ...]:
    """The broadcast state that a class declares, base classes first."""
    found: dict[str, BroadcastField] = {}
    for owner in reversed(kind.__mro__):
        for name, value in vars(owner).items():
            if isinstance(value, BroadcastField):
                found[name] = value
            else:
                found.pop(name, None)
    return tuple(found.values())


def initial_values(fields: tuple[BroadcastField, ...]) -> dict[str, Any]:
    """What they are before the first tuple of the broadcast stream."""
    return {field.name: field.initial() for field in fields}


@dataclasses.dataclass(frozen=True)
class Broadcast:
    """What an operator does with the tuples of the stream that is broadcast to it: its last input."""

    method: str
    fields: tuple[BroadcastField, ...]
