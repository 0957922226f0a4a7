"""Dicts and sets that hold the entry of one key, and can be made to refuse everything else.

Calls that are watched (`managed_state`) have a copy of the user's object whose dicts are of these classes; all others
have plain dicts, which cost nothing. While a call lasts a dict is of a class whose methods refuse, and note, what the
proof says cannot happen; before and after it is of one with the same layout that does nothing of its own:

    kept ── watch(held, …) ──► watched: another key, a walk over all ─► Strayed, with the line that did it
         ◄── unwatch(held) ──
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

_ANY = object()


class Strayed(RuntimeError):  # noqa: N818 - told to the user as what his operator raised
    """User code used state otherwise than was proven."""


@dataclasses.dataclass
class Watch:
    """What a call may do with a dict."""

    name: str
    index: Any
    """The entry that it may use; `ANY_INDEX`: any single one."""
    shown: str
    """How the code was seen to compute the index."""
    strayed: Strayed | None = None

    def check(self, index: Any) -> None:
        """Refuse an entry that is not the tuple's."""
        if self.index is not _ANY and not (index is self.index or index == self.index):
            self._refuse(f"used {self.name} with {index!r}, which is not the tuple's own ({self.index!r})")

    def walk(self, how: str) -> None:
        """Refuse what looks at all keys."""
        self._refuse(f"used {self.name} as a whole ({how})")

    def _refuse(self, what: str) -> None:
        found = Strayed(
            f"{what}; it is kept for each key because the code was found to use it only with {self.shown}. "
            "That it does otherwise is an error of the compiler's, or of a declaration: "
            "@ab.model(state='unknown') runs the operator in one channel"
        )
        self.strayed = self.strayed or found
        raise found


ANY_INDEX = _ANY


class KeptDict(dict):
    """As a dict."""

    __slots__ = ("watching",)


class KeptDefaultDict(collections.defaultdict):
    """As a defaultdict."""

    __slots__ = ("watching",)


class KeptCounter(collections.Counter):
    """As a Counter."""

    __slots__ = ("watching",)


class KeptOrderedDict(collections.OrderedDict):
    """As an OrderedDict."""

    __slots__ = ("watching",)


class KeptSet(set):
    """As a set."""

    __slots__ = ("watching",)


_BY_INDEX = (
    *("__getitem__", "__setitem__", "__delitem__", "__contains__", "get", "setdefault", "pop"),
    *("move_to_end", "__missing__", "add", "discard", "remove"),
)
_WHOLE = (
    *("__iter__", "__len__", "__reversed__", "__eq__", "__ne__", "__or__", "__ror__", "__and__", "__rand__", "__xor__"),
    *("__rxor__", "__sub__", "__rsub__", "__isub__", "__iand__", "__ixor__", "__le__", "__lt__", "__ge__", "__gt__"),
    *("__add__", "__iadd__", "__pos__", "__neg__", "__repr__", "__copy__", "keys", "values", "items", "popitem"),
    *("clear", "copy", "most_common", "elements", "total", "subtract", "union", "intersection", "difference"),
    *("symmetric_difference", "intersection_update", "difference_update", "symmetric_difference_update"),
    *("issubset", "issuperset", "isdisjoint"),
)
_FROM_OTHERS = ("update", "__ior__")


def _watched_class(kept: type) -> type:
    members: dict[str, Any] = {"__slots__": (), "__hash__": None}
    base = kept.__mro__[1]
    for name in _BY_INDEX:
        if hasattr(base, name) and not (name == "pop" and issubclass(kept, set)):
            members[name] = _checking(getattr(base, name))
    for name in (*_WHOLE, *(("pop",) if issubclass(kept, set) else ())):
        if hasattr(base, name):
            members[name] = _refusing(name)
    for name in _FROM_OTHERS:
        if hasattr(base, name):
            members[name] = _checking_all(base)
    return type(f"Watched{kept.__name__[4:]}", (kept,), members)


def _checking(method: Callable[..., Any]) -> Callable[..., Any]:
    def checked(self: Any, index: Any, *arguments: Any, **named: Any) -> Any:
        self.watching.check(index)
        return method(self, index, *arguments, **named)

    return checked


def _refusing(name: str) -> Callable[..., Any]:
    def refused(self: Any, *arguments: Any, **named: Any) -> Any:
        self.watching.walk(f"{name}()")

    return refused


def _checking_all(base: type) -> Callable[..., Any]:
    """Entries from somewhere else: each must be the tuple's."""
    method = base.update  # type: ignore[attr-defined]

    def checked(self: Any, *others: Any, **named: Any) -> Any:
        found: Any = set() if issubclass(base, set) else {}
        for other in others:
            found.update(other)
        found.update(named)
        for index in found:
            self.watching.check(index)
        unwatched, self.__class__ = type(self), _UNWATCHED[type(self)]
        try:
            method(self, *others, **named)
        finally:
            self.__class__ = unwatched
        return self

    return checked


KEPT: dict[type, type] = {
    dict: KeptDict,
    collections.defaultdict: KeptDefaultDict,
    collections.Counter: KeptCounter,
    collections.OrderedDict: KeptOrderedDict,
    set: KeptSet,
}
_WATCHED: dict[type, type] = {kept: _watched_class(kept) for kept in KEPT.values()}
_UNWATCHED: dict[type, type] = {watched: kept for kept, watched in _WATCHED.items()}


def empty_like(held: Any) -> Any:
    """An empty one of the same type, which can be watched."""
    kind = KEPT.get(type(held), type(held))
    return kind(held.default_factory) if isinstance(held, collections.defaultdict) else kind()


def watch(held: Any, watching: Watch) -> None:
    """Refuse, from now on, what is not allowed; nothing, if it is not of a class that can."""
    watched = _WATCHED.get(type(held))
    if watched is not None:
        held.watching = watching
        held.__class__ = watched


def unwatch(held: Any) -> None:
    """Refuse nothing any more."""
    held.__class__ = _UNWATCHED.get(type(held), type(held))
