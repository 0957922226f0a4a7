"""Operators about order: sort, combine two ordered streams, and let each tuple through once.

`sort` is progressive: it holds a bounded number of tuples and lets the smallest go when another comes, so a stream
that is nearly in order comes out in order, without waiting for an end that a stream does not have.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.library_operator import BACKWARDS, LATE, Guard, LibraryOperator, configured, fields, guard
from anabranch.operators.windows import Count, Delta, Punctuated, Time, amount
from anabranch.program.graph import Keyed
from anabranch.program.model import Load, Selectivity
from anabranch.program.schema import Schema


class Rank:
    """Makes what tuples are compared by: nulls first, NaN last, some columns the other way round."""

    def __init__(self, places: Sequence[int], descending: Sequence[bool]) -> None:
        self.columns = tuple(zip(places, descending, strict=True))

    def __call__(self, t: Any) -> tuple[Any, ...]:
        return tuple(
            _Reversed(_comparable(tuple.__getitem__(t, place))) if down else _comparable(tuple.__getitem__(t, place))
            for place, down in self.columns
        )


def _comparable(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (1, value) if value == value else (2,)


class _Reversed:
    """A value whose order is turned round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return other.value < self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and other.value == self.value

    __hash__ = None  # type: ignore[assignment]


class Sort(LibraryOperator):
    """The tuples of one key that are held, in order; and the last that was let go."""

    held: list[Any]
    last: Any
    newest: Any
    open: bool
    rank: Callable[[Any], tuple[Any, ...]]
    guard: Guard
    size: Any
    place: int
    late: str

    def _insert(self, t: tuple[Any, ...]) -> bool:
        """Put a tuple in its place, behind its equals. False if what comes behind it has gone already."""
        rank = self.rank(t)
        if self.last is not None and rank < self.rank(self.last):
            self.note(LATE)
            return False
        self.held.insert(bisect.bisect_right(self.held, rank, key=self.rank), t)
        return True

    def take_counted(self, t: Any) -> Any:
        if not self.guard.admits(self, t):
            return
        if not self._insert(tuple(t)):
            if self.late == "pass":
                yield t
        elif len(self.held) > self.size:
            self.last = self.held.pop(0)
            yield self.last

    def take_measured(self, t: Any) -> Any:
        if not self.guard.admits(self, t):
            return
        if not self._insert(tuple(t)):
            if self.late == "pass":
                yield t
            return
        at = tuple.__getitem__(t, self.place)
        if self.newest is None or at > self.newest:
            self.newest = at
        while self.held and self.newest - self.held[0][self.place] > self.size:
            self.last = self.held.pop(0)
            yield self.last

    def take_punctuated(self, t: Any) -> None:
        if self.guard.admits(self, t):
            self.open = True
            self._insert(tuple(t))

    def release(self) -> list[Any]:
        self.open = False
        released, self.held = self.held, []
        return released


def sort_logic(
    schema: Schema,
    columns: Sequence[str],
    window: Any,
    key: Sequence[str],
    descending: Any,
    late: str,
    null_key: str,
    name: str,
) -> Keyed:
    """The operator of a sort."""
    places, turned = ranked_columns(schema, columns, descending, "sort")
    if late not in ("pass", "drop"):
        raise ProgramError(f"late={late!r}: expected 'pass' or 'drop'")
    configuration: dict[str, Any] = {"rank": Rank(places, turned), "late": late, "size": 0, "place": 0}
    configuration["description"] = f"{window}: by {', '.join(columns)}"
    attribute, nulls = None, "fail"
    state: dict[str, Any] = {"held": list, "last": None, "newest": None}
    method, waiting, punctuated = "take_counted", "", ""
    if isinstance(window, Count):
        configuration["size"] = window.size
    elif isinstance(window, Delta):
        if window.attribute != columns[0] or turned[0]:
            raise ProgramError(
                f"window={window}: a tuple waits until {window.attribute!r} has grown, so expected to sort by "
                f"{window.attribute!r} first, ascending; found {columns[0]!r}{', descending' if turned[0] else ''}"
            )
        configuration |= {"size": amount(schema, window, window.attribute, window.size), "place": places[0]}
        attribute, nulls, method = window.attribute, window.nulls, "take_measured"
    elif isinstance(window, Punctuated):
        state = {"held": list, "last": None, "open": False, "opened": None}
        method, waiting, punctuated = "take_punctuated", "open", "release"
    else:
        raise ProgramError(f"window={window!r}: expected count(n), delta(attribute, size) or punctuation()")
    configuration["guard"] = guard(schema, key, null_key, attribute, nulls)
    # It emits other tuples of the key than the one it takes: only the key is the same.
    load = Load() if isinstance(window, Count) else Load(state="linear")
    prototype = configured(Sort, name, forwards=key, load=load, **configuration)
    return Keyed(prototype, method, fields(**state), waiting=waiting, punctuated=punctuated)


def ranked_columns(schema: Schema, columns: Sequence[str], descending: Any, does: str) -> tuple[list[int], list[bool]]:
    """Where the columns are that an operator orders by, and which of them are turned round, as a user says it."""
    if not columns:
        raise SchemaError(f"nothing to {does} by; name at least one column")
    for column in columns:
        if column not in schema:
            raise SchemaError(f"no column {column!r}; columns: {', '.join(schema.names)}")
    turned = [descending] * len(columns) if isinstance(descending, bool) else list(descending)
    if len(turned) != len(columns) or not all(isinstance(each, bool) for each in turned):
        raise ProgramError(f"descending={descending!r}: expected True, False, or one of them for each column")
    return [schema.names.index(column) for column in columns], turned


# -- combine ------------------------------------------------------------------------------------------------


class Combine(LibraryOperator):
    """Two queues, each in the order of an attribute; the smaller head goes when both have one."""

    left: list[Any]
    right: list[Any]
    newest_left: Any
    newest_right: Any
    guards: tuple[Guard, Guard]
    place: int

    def take_left(self, t: Any) -> Any:
        if not self.guards[0].admits(self, t):
            return []
        at = tuple.__getitem__(t, self.place)
        if self.newest_left is not None and at < self.newest_left:
            self.note(BACKWARDS)
        else:
            self.newest_left = at
        self.left.append(tuple(t))
        return self._merge()

    def take_right(self, t: Any) -> Any:
        if not self.guards[1].admits(self, t):
            return []
        at = tuple.__getitem__(t, self.place)
        if self.newest_right is not None and at < self.newest_right:
            self.note(BACKWARDS)
        else:
            self.newest_right = at
        self.right.append(tuple(t))
        return self._merge()

    def _merge(self) -> list[Any]:
        left, right, place = self.left, self.right, self.place
        at = other = 0
        merged = []
        while at < len(left) and other < len(right):
            if right[other][place] < left[at][place]:
                merged.append(right[other])
                other += 1
            else:
                merged.append(left[at])
                at += 1
        del left[:at], right[:other]
        return merged


def combine_logic(schema: Schema, other: Schema, on: str, key: Sequence[str], nulls: str, name: str) -> Keyed:
    """The operator that merges two streams by an attribute."""
    if schema != other:
        raise SchemaError(
            f"expected two streams with the same columns, found {schema} and {other}; bring both to one schema with "
            "map(…) first"
        )
    if on not in schema:
        raise SchemaError(f"on={on!r}: no such column; columns: {', '.join(schema.names)}")
    guards = (guard(schema, key, "keep", on, nulls),) * 2
    prototype = configured(Combine, name, forwards=key, guards=guards, place=schema.names.index(on))
    state = fields(left=list, right=list, newest_left=None, newest_right=None)
    return Keyed(prototype, "take_left", state, methods=("take_left", "take_right"))


# -- deduplicate --------------------------------------------------------------------------------------------


class Deduplicate(LibraryOperator):
    """Whether a key was seen, and how much of its span is over."""

    seen: bool
    span: Any
    guard: Guard
    size: Any
    place: int

    def take(self, t: Any) -> Any:
        if not self.guard.admits(self, t) or self.seen:
            return None
        self.seen = True
        return t

    def take_counted(self, t: Any) -> Any:
        if not self.guard.admits(self, t):
            return None
        if 0 < self.span < self.size:
            self.span += 1
            return None
        self.span = 1
        return t

    def take_measured(self, t: Any) -> Any:
        if not self.guard.admits(self, t):
            return None
        at = tuple.__getitem__(t, self.place)
        if self.span is not None:
            if at < self.span:
                self.note(BACKWARDS)
            if not at - self.span > self.size:
                return None
        self.span = at
        return t


def deduplicate_logic(schema: Schema, key: Sequence[str], within: Any, null_key: str, name: str) -> Keyed:
    """The operator that lets the first tuple of each key through."""
    method, state, ttl_ms = "take", fields(seen=False), None
    configuration: dict[str, Any] = {"size": 0, "place": 0}
    attribute, nulls = None, "fail"
    if isinstance(within, Time):
        # The key's state is forgotten when the span is over, so it does not grow with the stream.
        ttl_ms = within.size_ms
    elif isinstance(within, Count):
        method, state, configuration["size"] = "take_counted", fields(span=0), within.size
    elif isinstance(within, Delta):
        method, state = "take_measured", fields(span=None)
        configuration["size"] = amount(schema, within, within.attribute, within.size)
        attribute, nulls = within.attribute, within.nulls
        configuration["place"] = schema.names.index(attribute)
    elif within is not None:
        raise ProgramError(f"within={within!r}: expected count(n), delta(attribute, size), time(seconds) or nothing")
    configuration["guard"] = guard(schema, key, null_key, attribute, nulls)
    configuration["description"] = f"within {within}" if within is not None else "for ever"
    prototype = configured(
        Deduplicate, name, selectivity=Selectivity.AT_MOST_ONE, forwards=schema.names, **configuration
    )
    return Keyed(prototype, method, state, ttl_ms)
