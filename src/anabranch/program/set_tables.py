"""The order of a set, kept: its hash table as data, and a set with the same table.

Python goes through a set in the order of its hash table. That order is not in the members alone: it depends on how
large the table once had to grow, on who came first where two members wanted one place, and on the places of members
that are gone. A set that is read back as ``set(members)`` may therefore be gone through in another order than the set
that was written, now or after the next member came. So a table is kept as it lies:

    place      0    1    2    3    4    5    6    7
    set        8    .    ×    3    .   13    .    .        × was taken out: it is passed over, but not empty

`table_of` reads it, `fill` makes a set whose table is the same, and checks that it is. Most sets are as
``set(members)`` would make them: then there is nothing to keep (None).

Reading looks at the memory of the set, for which Python has no function; nothing is ever written there. To make a set
with a given table, every taken place first gets a stand-in whose hash is that place; then one stand-in after the other
goes, and the member it stood for finds the only place that is free on its way.

Where members have another hash than where they were written (texts, in a process with another ``PYTHONHASHSEED``;
objects that are known by their address) there is no such set: its order is that of its process, as in plain Python.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import is_
from typing import Any, NamedTuple

import numpy as np

from anabranch.errors import StateError

_HEAD = object.__basicsize__
_WORD = ctypes.sizeof(ctypes.c_ssize_t)
_ENTRY = np.dtype([("member", np.uintp), ("hash", np.intp)])
_SMALLEST = 8


class SetTable(NamedTuple):
    """How the members of a set lie."""

    size: int
    """How many places there are."""
    places: bytes
    """Of the members, in order; as unsigned numbers of four bytes."""
    left: bytes
    """Of members that were taken out."""
    finger: int
    """Where `pop` begins to look."""


class _Memory(NamedTuple):
    used: int
    finger: int
    entries: bytes


def _memory(value: Any) -> _Memory:
    _, used, mask, entries, _, finger = (ctypes.c_ssize_t * 6).from_address(id(value) + _HEAD)
    return _Memory(used, finger, ctypes.string_at(entries, _ENTRY.itemsize * (mask + 1)))


def _table(memory: _Memory) -> SetTable:
    entries = np.frombuffer(memory.entries, _ENTRY)
    taken, left = entries["member"] != 0, entries["hash"] == -1
    return SetTable(
        len(entries),
        np.flatnonzero(taken & ~left).astype(np.uint32).tobytes(),
        np.flatnonzero(taken & left).astype(np.uint32).tobytes(),
        memory.finger,
    )


def table_of(value: set[Any] | frozenset[Any]) -> SetTable | None:
    """How a set lies; None if one that is made of its members, in their order, is the same."""
    memory = _memory(value)
    plain = frozenset(tuple(_members(value))) if isinstance(value, frozenset) else set(_members(value))
    if _memory(plain) == memory:
        return None
    table = _table(memory)
    if isinstance(value, frozenset) and not _is_like(frozen(tuple(_members(value)), table), value):
        raise StateError(
            "cannot keep this frozenset as state: none with its order can be made. Keep a set, or a tuple."
        )
    return table


def _is_like(one: frozenset[Any], other: frozenset[Any]) -> bool:
    """Whether two equal frozen sets are gone through in one order, and what is made of them."""
    return all(map(is_, _members(one), _members(other))) and _memory(set(one)) == _memory(set(other))


def _members(value: set[Any] | frozenset[Any]) -> Iterable[Any]:
    # A subclass may go through its members in another way.
    return frozenset.__iter__(value) if isinstance(value, frozenset) else set.__iter__(value)


class _StandIn:
    """Keeps a place for a member."""

    __slots__ = ("_place",)

    def __init__(self, place: int) -> None:
        self._place = place

    def __hash__(self) -> int:
        return self._place

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Stop):
            raise _StoppedError
        return self is other


class _Stop(_StandIn):
    """Ends an update at its first member: the table has the size for all, and nothing came in."""

    __hash__ = _StandIn.__hash__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _Stop):
            return self is other
        raise _StoppedError


class _StoppedError(Exception):
    pass


def fill(value: set[Any], members: Sequence[Any], table: SetTable | None) -> None:
    """Give a set these members in this order, and the table they had where they have the hashes they had there."""
    if table is not None:
        placed = _placed(members, table)
        left = {place: _StandIn(place) for place in _places(table.left)}
        _point(value, table.finger)
        _put(value, table.size, {**placed, **left})
        for stand_in in left.values():
            set.discard(value, stand_in)
        if _table(_memory(value))[:3] == table[:3]:
            return
    _point(value, 0)
    set.update(value, tuple(members))


def frozen(members: Sequence[Any], table: SetTable | None) -> frozenset[Any]:
    """A frozen set of these members in this order, as `fill` makes a set.

    Nothing can be taken out of a frozen set. But it can be the copy of a set, which has the table of the original
    if that is of the size a copy would have. Where there are too many for that, those that lie where their hash says
    come later, in any order; where there are too few, stand-ins are struck out by a symmetric difference.
    """
    if table is not None:
        placed = _placed(members, table)
        fewest, most = (table.size // 4, table.size // 2 - 1) if table.size > 16 else _COPIED[table.size]
        later = _last_to_come(placed, table.size, len(placed) - most)
        free = (place for place in (*_places(table.left), *range(table.size)) if place not in placed)
        wanted = max(fewest - len(placed), min(len(table.left) // 4, most - len(placed)))
        struck = {place: _StandIn(place) for place in islice(dict.fromkeys(free), wanted)}
        original: set[Any] = set()
        _put(original, table.size, {**placed, **struck})
        made = frozenset(struck.values()) ^ original if struck else frozenset(original).union(later)
        if len(made) == len(members) and all(map(is_, made, members)):
            return made
    return frozenset(tuple(members))


_COPIED = {8: (0, 4), 16: (5, 7)}
"""Table size: the least and the most members that a copy with a table of that size has."""


def _last_to_come(placed: dict[int, Any], size: int, count: int) -> list[Any]:
    """Take so many members out which the others do not need to come to their places: in the order to come in."""
    ways = {place: list(_way(hash(member), place, size)) for place, member in placed.items()} if count > 0 else {}
    passed = Counter(each for way in ways.values() for each in way)
    taken: list[Any] = []
    while len(taken) < count and (last := next((place for place in placed if not passed[place]), None)) is not None:
        taken.append(placed.pop(last))
        passed.subtract(ways[last])
    return taken[::-1]


def _way(number: int, place: int, size: int) -> Iterator[int]:
    """The places that a member with a hash passes by on the way to its own."""
    rest, at = number % (1 << 8 * _WORD), number % size
    for _ in range(size):
        for near in range(at, at + (10 if at + 9 < size else 1)):
            if near == place:
                return
            yield near
        rest >>= 5
        at = (at * 5 + 1 + rest) % size


def _places(packed: bytes) -> list[int]:
    return np.frombuffer(packed, np.uint32).tolist()


def _placed(members: Sequence[Any], table: SetTable) -> dict[int, Any]:
    places = _places(table.places)
    taken = len(places) + len(table.left) // 4
    is_right = table.size.bit_count() == 1 and _SMALLEST <= table.size <= _SMALLEST + _SPARSEST * taken
    if len(places) != len(members) or not is_right or not 0 <= table.finger <= _FARTHEST:
        raise StateError("a state value is damaged: its members are not those of the table of a set")
    return dict(zip(places, members, strict=True))


def _put(value: set[Any], size: int, placed: dict[int, Any]) -> None:
    """Give an empty set a table of a size with these members in these places, as far as their hashes allow it."""
    if not placed:
        return
    stand_ins = {place: _StandIn(place) for place in placed}
    _grow(value, next(iter(stand_ins.values())), size)
    set.update(value, list(stand_ins.values()))
    for place, member in placed.items():
        set.discard(value, stand_ins[place])
        set.add(value, member)


def _grow(value: set[Any], first: _StandIn, size: int) -> None:
    """Give an empty set a table of a size, with one stand-in at its place in it."""
    set.add(value, first)
    if size > _SMALLEST:
        with contextlib.suppress(_StoppedError):
            set.update(value, dict.fromkeys([_Stop(hash(first)), *range(size, size + size // 4 - 1)]))


def _point(value: set[Any], finger: int) -> None:
    """Empty a set, and let `pop` begin to look at a place."""
    set.clear(value)
    if _memory(value).finger != finger:
        # It looks behind the last that it took. The very beginning is where a table of any size ends.
        last = (finger or _LARGE) - 1
        _grow(value, _StandIn(last), max(_SMALLEST, 1 << last.bit_length()))
        set.pop(value)
        set.clear(value)


_LARGE = 1 << 16
# Beyond these it is no table that Python made.
_SPARSEST = 1 << 10
_FARTHEST = 1 << 27
