"""Managed maps: the state API with put, get, has, remove and iteration.

An operator that keeps more than a few values per key declares a `StateMap` (``ab.store()``), or a set of named
ones that it makes and removes as it runs (``ab.stores()``). They belong to the key of the tuple at hand, like
all its state, and are loaded and written with it. Entries may have a time to live, counted from their last
`put` by the clock of the epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from anabranch.errors import StateError
from anabranch.operators.epoch_context import epoch_time

_MISSING = object()
# Values of these types cannot change in place.
_LASTING = frozenset({type(None), bool, int, float, str, bytes})


class StateMap:
    """A map from keys to values, both of any type that state can hold.

    Examples
    --------
    >>> seen = StateMap()
    >>> seen.put("a", 1)
    >>> seen.get("a"), seen.has("b"), seen.get("b", 0), len(seen)
    (1, False, 0, 1)
    """

    is_managed_state = True  # the compiler knows it by that
    __slots__ = ("_entries", "_ttl_ms", "changed")

    def __init__(self, ttl_ms: int | None = None, entries: dict[Any, tuple[Any, int | None]] | None = None) -> None:
        self._ttl_ms = ttl_ms
        self._entries = {} if entries is None else entries
        self.changed = entries is None

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        if self._is_over(key):
            del self._entries[key]  # it comes last, as one that was never there: what is over is not kept
        self._entries[key] = (value, None if self._ttl_ms is None else epoch_time() + self._ttl_ms)
        self.changed = True

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, or the default. A list, dict or the like may be changed in place."""
        value, _ = self._entries.get(key, (_MISSING, None))
        if value is _MISSING or self._is_over(key):
            return default
        if type(value) not in _LASTING:
            self.changed = True  # it may be, from now on
        return value

    def _is_over(self, key: Any) -> bool:
        _, expires = self._entries.get(key, (None, None))
        return expires is not None and expires <= epoch_time()

    def has(self, key: Any) -> bool:
        """Whether there is a value for a key."""
        return key in self._entries and not self._is_over(key)

    def remove(self, key: Any) -> bool:
        """Take a key out; whether it was there."""
        present = key in self._entries and not self._is_over(key)
        if self._entries.pop(key, None) is not None:
            self.changed = True
        return present

    def clear(self) -> None:
        """Take everything out."""
        self._entries.clear()
        self.changed = True

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values, in the order the keys were first put."""
        now = epoch_time()
        found = [(k, v) for k, (v, expires) in self._entries.items() if expires is None or expires > now]
        if not _LASTING.issuperset(type(value) for _, value in found):
            self.changed = True
        return iter(found)

    def held(self) -> list[Any]:
        """The values, those that are over included."""
        return [value for value, _ in self._entries.values()]

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def __contains__(self, key: Any) -> bool:
        return self.has(key)

    def __len__(self) -> int:
        now = epoch_time()
        return sum(1 for _, expires in self._entries.values() if expires is None or expires > now)

    def __repr__(self) -> str:
        return f"StateMap({dict(self.items())!r})"

    def to_parts(self) -> list[Any]:
        """What the codec keeps; entries that are over are left behind."""
        now = epoch_time()
        live = [[k, v, e] for k, (v, e) in self._entries.items() if e is None or e > now]
        return [self._ttl_ms, live]

    def placed(self, place: Callable[[Any], Any]) -> list[Any]:
        """The same with what `place` makes of keys and values: for a graph, in which others may hold them, too."""
        ttl_ms, entries = self.to_parts()
        return [ttl_ms, [[place(key), place(value), expires] for key, value, expires in entries]]

    def filled(self, contents: list[Any], value_of: Callable[[Any], Any]) -> None:
        """Take what `placed` gave."""
        self._ttl_ms, entries = contents
        self._entries.clear()
        self._entries.update((value_of(key), (value_of(value), expires)) for key, value, expires in entries)

    @classmethod
    def from_parts(cls, parts: list[Any]) -> StateMap:
        ttl_ms, entries = parts
        return cls(ttl_ms, {key: (value, expires) for key, value, expires in entries})


class StateMaps:
    """Named maps that an operator makes and removes as it runs.

    Examples
    --------
    >>> maps = StateMaps()
    >>> maps.create("seen").put("a", 1)
    >>> maps["seen"].get("a"), maps.names()
    (1, ['seen'])
    >>> maps.remove("seen")
    """

    is_managed_state = True
    __slots__ = ("_changed", "_maps")

    def __init__(self, maps: dict[str, StateMap] | None = None) -> None:
        self._maps = {} if maps is None else maps
        self._changed = maps is None

    @property
    def changed(self) -> bool:
        return self._changed or any(each.changed for each in self._maps.values())

    def create(self, name: str, ttl: float | None = None) -> StateMap:
        """Make a map, with a time to live in seconds for its entries; StateError if there is one of that name."""
        if name in self._maps:
            raise StateError(f"there is a store {name!r} already; stores: {', '.join(self._maps)}")
        self._changed = True
        made = self._maps[name] = StateMap(None if ttl is None else round(ttl * 1000))
        return made

    def remove(self, name: str) -> None:
        """Remove a map and all that is in it; StateError if there is none of that name."""
        self[name]
        del self._maps[name]
        self._changed = True

    def names(self) -> list[str]:
        """The names of the maps, in the order they were made."""
        return list(self._maps)

    def __contains__(self, name: str) -> bool:
        return name in self._maps

    def __getitem__(self, name: str) -> StateMap:
        if name not in self._maps:
            raise StateError(f"there is no store {name!r}; stores: {', '.join(self._maps) or 'none'}")
        return self._maps[name]

    def held(self) -> list[Any]:
        """The maps."""
        return list(self._maps.values())

    def __repr__(self) -> str:
        return f"StateMaps({self._maps!r})"

    def to_parts(self) -> list[Any]:
        return [[name, each.to_parts()] for name, each in self._maps.items()]

    def placed(self, place: Callable[[Any], Any]) -> list[Any]:
        """The maps as `place` has them: for a graph, in which others may hold them, too."""
        return [[name, place(each)] for name, each in self._maps.items()]

    def filled(self, contents: list[Any], value_of: Callable[[Any], Any]) -> None:
        """Take what `placed` gave."""
        self._maps.clear()
        self._maps.update((name, value_of(each)) for name, each in contents)

    @classmethod
    def from_parts(cls, parts: list[Any]) -> StateMaps:
        return cls({name: StateMap.from_parts(each) for name, each in parts})
