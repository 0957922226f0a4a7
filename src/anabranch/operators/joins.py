"""Streams that meet: the window join of two streams, and tuples enriched from a table.

In a join each side keeps a window of its tuples, per key. A tuple that arrives meets the tuples in the other side's
window, in the order they came, and then joins its own side's:

    left   ── l1 ────── l2 ─────────►      l2 meets r1, which is in the right window when it comes;
    right  ────── r1 ────────── r2 ─►      r2 meets l1 and l2 if the left window still holds them.

A table is a stream of which each key's last tuple counts, or rows that never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.epoch_context import epoch_time, table_of
from anabranch.operators.library_operator import (
    BACKWARDS,
    LATE,
    NULL_KEY,
    Guard,
    LibraryOperator,
    UserFunction,
    configured,
    fields,
    guard,
)
from anabranch.operators.windows import Count, Delta, EventTime, amount
from anabranch.program.calling import canonical
from anabranch.program.changing_table import TableShape
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import FlatMap, Keyed, Logic, Map
from anabranch.program.model import Load, Selectivity
from anabranch.program.schema import Schema, restored_row

HOWS = ("inner", "left", "right", "outer")


class WindowJoin(LibraryOperator):
    """The windows of both sides for one key.

    A held tuple is a list ``[tuple, has it met one]``; the second only matters to outer joins.
    """

    left: list[list[Any]]
    right: list[list[Any]]
    newest: Any
    guards: tuple[Guard, Guard]
    names: tuple[tuple[str, ...], tuple[str, ...]]
    keys: tuple[tuple[int, ...], tuple[int, ...]]
    pads: tuple[bool, bool]
    window: str
    sizes: tuple[Any, Any]
    lateness: Any = None
    places: tuple[int, int] = (0, 0)
    combine: Callable[[Any, Any], Any]

    def take_left(self, t: Any) -> Any:
        return self._take(0, t)

    def take_right(self, t: Any) -> Any:
        return self._take(1, t)

    def _take(self, side: int, t: Any) -> Any:
        if not self.guards[side].admits(self, t):
            return
        t = tuple(t)
        if any(t[place] is None for place in self.keys[side]):
            # As in SQL, null equals nothing: it could only wait in vain.
            self.note(NULL_KEY)
            if self.pads[side]:
                yield self._pair(side, t, None)
            return
        windows = (self.left, self.right)
        own, other = windows[side], windows[1 - side]
        if self.window == "count":
            yield from self._meet(side, t, other, own)
            if len(own) > self.sizes[side]:
                yield from self._leave(side, own.pop(0))
            return
        at, newest = t[self.places[side]], self.newest
        if newest is not None and at < newest:
            if self.lateness is not None and at < newest - self.lateness:
                self.note(LATE)
                return
            if self.lateness is None:
                self.note(BACKWARDS)
        else:
            self.newest = newest = at
            for each in (0, 1):
                yield from self._expire(each, windows[each])
        yield from self._meet(side, t, other, own)
        if newest - at > self._reach(side):  # it went so far back that it has no window any more
            yield from self._leave(side, own.pop())

    def _reach(self, side: int) -> Any:
        """How far behind the newest a tuple of a side is held."""
        return self.sizes[side] if self.lateness is None else self.sizes[side] + self.lateness

    def _expire(self, side: int, window: list[list[Any]]) -> Any:
        place, reach, newest = self.places[side], self._reach(side), self.newest
        gone = [held for held in window if newest - held[0][place] > reach]
        if gone:
            window[:] = [held for held in window if not newest - held[0][place] > reach]
            for held in gone:
                yield from self._leave(side, held)

    def _meet(self, side: int, t: Any, other: list[list[Any]], own: list[list[Any]]) -> Any:
        mine = [t, False]
        own.append(mine)
        for held in other:
            if self.window == "count" or self._near(side, t, held[0]):
                held[1] = mine[1] = True
                yield self._pair(side, t, held[0])

    def _near(self, side: int, t: Any, other: Any) -> bool:
        """Whether each is within the window of the other's side."""
        apart = t[self.places[side]] - other[self.places[1 - side]]
        return not apart > self.sizes[1 - side] and not -apart > self.sizes[side]

    def _leave(self, side: int, held: list[Any]) -> Any:
        if self.pads[side] and not held[1]:
            yield self._pair(side, held[0], None)

    def _pair(self, side: int, t: Any, other: Any) -> Any:
        first = self._row(side, t)
        second = None if other is None else self._row(1 - side, other)
        return self.combine(first, second) if side == 0 else self.combine(second, first)

    def _row(self, side: int, t: Any) -> Any:
        names = self.names[side]  # a computed key stands behind what the user's function sees
        return restored_row(names, t if len(t) == len(names) else t[: len(names)])


def join_logic(
    left: Schema,
    right: Schema,
    keys: Sequence[tuple[str, str]],
    window: Any,
    how: str,
    function: Callable[[Any, Any], Any] | None,
    schema: Any,
    name: str,
    ttl_ms: int | None = None,
    scales: tuple[TimeScale | None, TimeScale | None] = (None, None),
    written: tuple[Schema, Schema] | None = None,
) -> tuple[Keyed, Schema]:
    """The operator of a join, and the schema of its results.

    `scales`: the kinds of event time of the two streams. `written`: their columns as the user knows them; behind these
    there may be those of a computed key.
    """
    written = written or (left, right)
    if how not in HOWS:
        raise ProgramError(f"how={how!r}: expected one of {', '.join(map(repr, HOWS))}")
    sides = window if isinstance(window, tuple) else (window, window)
    kinds = {type(each) for each in sides}
    if window is not None and ttl_ms is not None:
        raise ProgramError(
            f"ttl={ttl_ms / 1000:g} and window={window}: expected one of them to say how long tuples wait"
        )
    if window is not None and (len(sides) != 2 or len(kinds) != 1 or not kinds <= {Count, Delta, EventTime}):
        raise ProgramError(
            f"window={window!r}: expected count(n), delta(attribute, size) or event_time(attribute, size), or a "
            "pair of one kind, (left, right)"
        )
    if any(getattr(each, "early", None) is not None for each in sides):
        raise ProgramError(
            f"window={window!r}: a join has no early results: pairs come as they meet, and what met none when the "
            "watermark has passed it; leave early out"
        )
    if function is None:
        output, combine = _joined(written[0], written[1], keys, how)
    elif not callable(function):
        raise ProgramError(f"function={function!r}: expected a function of two tuples")
    elif schema is None:
        raise SchemaError("the columns of what the function returns are unknown; give schema='…'")
    else:
        output, combine = Schema.of(schema), function
    configuration: dict[str, Any] = {"window": "count", "sizes": tuple(getattr(each, "size", 0) for each in sides)}
    configuration["description"] = f"{how}: left {sides[0]}, right {sides[1]}"
    attributes: tuple[str | None, str | None] = (None, None)
    if window is None:
        held = "for ever" if ttl_ms is None else f"for {ttl_ms / 1000:g} seconds"
        configuration |= {"window": "none", "description": f"{how}: {held}", "ttl_ms": ttl_ms}
    elif kinds != {Count}:
        attributes = (sides[0].attribute, sides[1].attribute)
        sizes = [amount(s, each, each.attribute, each.size) for s, each in zip((left, right), sides, strict=True)]
        kind = left.type_of(sides[0].attribute)
        if kind != right.type_of(sides[1].attribute):
            raise SchemaError(
                f"the window is measured by {attributes[0]!r}, which is {kind} on the left, and {attributes[1]!r}, "
                f"which is {right.type_of(sides[1].attribute)} on the right; expected one type"
            )
        places = (left.names.index(sides[0].attribute), right.names.index(sides[1].attribute))
        configuration |= {"window": "attribute", "sizes": tuple(sizes), "places": places}
        if kinds == {EventTime}:
            late = max(amount(left, each, sides[0].attribute, each.lateness) for each in sides)
            configuration["lateness"] = late
    guards = tuple(
        guard(side, (), attribute=attribute, nulls=getattr(policy, "nulls", "fail"))
        for side, attribute, policy in zip((left, right), attributes, sides, strict=True)
    )
    places_of_keys = (
        tuple(left.names.index(one) for one, _ in keys),
        tuple(right.names.index(other) for _, other in keys),
    )
    waits = _waiting_join(left, right, window, scales)
    prototype = configured(
        WindowJoin if waits is None else waits[0],
        name,
        forwards=[one for one, _ in keys if one in output] if function is None else [],
        functions=[UserFunction("its function", function, ("left", "right"))] if function is not None else [],
        guards=guards,
        names=(left.names, right.names) if function is None else (written[0].names, written[1].names),
        keys=places_of_keys,
        pads=(how in ("left", "outer"), how in ("right", "outer")),
        combine=combine,
        load=Load() if configuration["window"] == "count" else Load("linear", "quadratic"),
        **configuration,
        **({} if waits is None else waits[1]),
    )
    methods = ("take_left", "take_right")
    if waits is None:
        return Keyed(prototype, "take_left", fields(left=list, right=list, newest=None), methods=methods), output
    state = fields(left=list, right=list, timer_due=None, timer_since=None)
    by_clock = window is None
    made = Keyed(prototype, "take_left", state, methods=methods, timed="fire", by_clock=by_clock, takes_time=True)
    return made, output


def _waiting_join(
    left: Schema, right: Schema, window: Any, scales: tuple[TimeScale | None, TimeScale | None]
) -> tuple[type[WindowJoin], dict[str, Any]] | None:
    """The join that holds tuples until a time has come, with its configuration; None if it is none of these."""
    from anabranch.operators.timed_joins import LastingJoin, WatermarkJoin

    if window is None:
        return LastingJoin, {}
    sides = window if isinstance(window, tuple) else (window, window)
    if not isinstance(sides[0], EventTime) or any(each.per_key for each in sides) or scales == (None, None):
        return None
    if scales[0] is None or scales[0] != scales[1]:
        shown = " and ".join("none" if each is None else each.unit for each in scales)
        raise ProgramError(
            f"window={sides[0]}: the event time of the streams is {shown}; expected one kind: event_time('…') on both"
        )
    for schema, side in zip((left, right), sides, strict=True):
        own = TimeScale.of(schema.type_of(side.attribute), str(side))
        if own != scales[0]:
            raise ProgramError(f"window={side}: {side.attribute!r} is {own.unit}, the streams' event time is not")
        if side.lateness:
            raise ProgramError(
                f"window={side}: how late tuples may be is said with the stream: event_time('…', lateness=…)"
            )
    return WatermarkJoin, {"scale": scales[0], "spans": tuple(scales[0].span(each.size) for each in sides)}


def _joined(
    left: Schema, right: Schema, keys: Sequence[tuple[str, str]], how: str
) -> tuple[Schema, Callable[[Any, Any], Any]]:
    """The columns of the left, then those of the right that are not its key."""
    taken = {other for _, other in keys}
    added = [name for name in right.names if name not in taken]
    _check_clash(left, added, "or say what comes out: function=…, schema=…")
    one_side = _fields(left, left.names, how in ("right", "outer"))
    output = Schema(pa.schema([*one_side, *_fields(right, added, how in ("left", "outer"))]))
    names = left.names
    other_of = dict(keys)

    def combine(one: Any, other: Any) -> tuple[Any, ...]:
        if one is None:
            first = tuple(other[other_of[name]] if name in other_of else None for name in names)
        else:
            first = tuple(one)[: len(names)]
        return first + tuple(None if other is None else other[name] for name in added)

    return output, combine


def _fields(schema: Schema, names: Iterable[str], padded: bool) -> list[pa.Field]:
    """Columns of one side; `padded`: they are null where the other side is alone."""
    fields = [schema.arrow.field(name) for name in names]
    return [field.with_nullable(True) for field in fields] if padded else fields


def _check_clash(left: Schema, added: Iterable[str], otherwise: str) -> None:
    both = [name for name in added if name in left]
    if both:
        raise SchemaError(f"both sides have a column {both[0]!r}; rename one of them before, with map(…), {otherwise}")


# -- enrichment ---------------------------------------------------------------------------------------------


class Enrich(LibraryOperator):
    """The last row of a table for one key."""

    row: Any
    added: tuple[int, ...]
    keys: tuple[int, ...]
    keep: bool

    def take(self, t: Any) -> Any:
        if any(tuple.__getitem__(t, place) is None for place in self.keys):
            self.note(NULL_KEY)
            row = None
        else:
            row = self.row
        if row is None and not self.keep:
            return None
        return tuple(t) + ((None,) * len(self.added) if row is None else tuple(row))

    def update(self, t: Any) -> None:
        self.row = tuple(tuple.__getitem__(t, place) for place in self.added)

    def update_for_a_time(self, t: Any) -> None:
        self.update(t)
        self.touched = epoch_time()  # a row that comes again as it was lives on, too


class WaitingEnrich(Enrich):
    """The same; tuples wait for the first row of their key."""

    held: list[Any]

    def take(self, t: Any) -> Any:
        if self.row is None and not any(tuple.__getitem__(t, place) is None for place in self.keys):
            self.held.append(tuple(t))
            return None
        return super().take(t)

    def update_and_release(self, t: Any) -> Any:
        self.update(t)
        held, self.held = self.held, []
        return [each + tuple(self.row) for each in held]


def enrich_logic(
    left: Schema, table: Schema, keys: Sequence[tuple[str, str]], how: str, name: str, ttl_ms: int | None, wait: bool
) -> tuple[Keyed, Schema]:
    """The operator that enriches tuples from a table that changes, and the schema of its results."""
    output, added = _enriched(left, table, keys, how)
    prototype = configured(
        WaitingEnrich if wait else Enrich,
        name,
        forwards=[one for one, _ in keys],
        added=tuple(table.names.index(each) for each in added),
        keys=tuple(left.names.index(one) for one, _ in keys),
        keep=how == "left",
    )
    if wait and ttl_ms is not None:
        raise ProgramError("wait and ttl exclude each other: a tuple that waits would be forgotten; leave one out")
    if wait:
        state = fields(row=None, held=list)
        return Keyed(prototype, "take", state, methods=("take", "update_and_release")), output
    if ttl_ms is None:
        return Keyed(prototype, "take", fields(row=None), methods=("take", "update")), output
    state = fields(row=None, touched=None)
    return Keyed(prototype, "take", state, ttl_ms, methods=("take", "update_for_a_time")), output


def _enriched(left: Schema, table: Schema, keys: Sequence[tuple[str, str]], how: str) -> tuple[Schema, list[str]]:
    if how not in ("left", "inner"):
        raise ProgramError(f"how={how!r}: expected 'left' or 'inner'")
    taken = {other for _, other in keys}
    added = [name for name in table.names if name not in taken]
    if not added:
        raise SchemaError("the table has no columns beside its key, so it has nothing to add")
    _check_clash(left, added, "or leave it out of the table")
    return Schema(pa.schema([*left.arrow, *_fields(table, added, how == "left")])), added


def static_enrich_logic(
    left: Schema, table: Any, keys: Sequence[tuple[str, str]], how: str, schema: Schema, name: str
) -> tuple[Logic, Schema]:
    """The operator that enriches tuples from rows that never change: it has no state."""
    output, added = _enriched(left, schema, keys, how)
    rows: dict[Any, tuple[Any, ...]] = {}
    key_places = tuple(schema.names.index(other) for _, other in keys)
    for number, given in enumerate(_rows(table, keys)):
        try:
            row = schema.exact_row(schema.unpack(given))
        except Exception as problem:
            raise SchemaError(f"row {number} of the table does not fit its schema: {problem}") from None
        rows[_key(row, key_places)] = tuple(row[name] for name in added)
    prototype = configured(
        StaticEnrich,
        name,
        selectivity=Selectivity.ONE if how == "left" else Selectivity.AT_MOST_ONE,
        forwards=left.names,
        rows=rows,
        places=tuple(left.names.index(one) for one, _ in keys),
        nothing=(None,) * len(added) if how == "left" else None,
    )
    return (Map(prototype) if how == "left" else FlatMap(prototype)), output


def changing_enrich_logic(
    left: Schema, keys: Sequence[tuple[str, str]], how: str, schema: Schema, name: str, number: str
) -> tuple[Logic, Schema, TableShape]:
    """The operator that enriches tuples from the version of a table that their epoch has: it has no state."""
    output, added = _enriched(left, schema, keys, how)
    places = tuple(schema.names.index(other) for _, other in keys)
    shape = TableShape(number, schema, places, tuple(schema.names.index(each) for each in added))
    prototype = configured(
        ChangingEnrich,
        name,
        selectivity=Selectivity.ONE if how == "left" else Selectivity.AT_MOST_ONE,
        forwards=left.names,
        number=shape.number,
        places=tuple(left.names.index(one) for one, _ in keys),
        nothing=(None,) * len(added) if how == "left" else None,
    )
    return (Map(prototype) if how == "left" else FlatMap(prototype)), output, shape


class StaticEnrich(LibraryOperator):
    """Rows of a table that never changes, by key; no state."""

    rows: Mapping[Any, tuple[Any, ...]]
    places: tuple[int, ...]
    nothing: tuple[None, ...] | None

    def __call__(self, t: Any) -> Any:
        return self.enriched(t, self.table())

    def table(self) -> Mapping[Any, tuple[Any, ...]]:
        """The rows by key."""
        return self.rows

    def enriched(self, t: Any, rows: Mapping[Any, tuple[Any, ...]]) -> Any:
        key = _key(t, self.places)
        if None in key:
            self.note(NULL_KEY)
            found = self.nothing
        else:
            found = rows.get(key, self.nothing)
        return None if found is None else tuple(t) + found


class ChangingEnrich(StaticEnrich):
    """Rows of the version of a table that the epoch has."""

    number: str

    def table(self) -> Mapping[Any, tuple[Any, ...]]:
        return table_of(self.number)


def _key(t: Any, places: Sequence[int]) -> Any:
    return tuple(canonical(tuple.__getitem__(t, place)) for place in places)


def _rows(table: Any, keys: Sequence[tuple[str, str]]) -> Iterable[Any]:
    """The rows of a static table: a list of rows, or a dict from keys to the other columns."""
    if not isinstance(table, Mapping):
        yield from table
        return
    for key, rest in table.items():
        parts = key if isinstance(key, tuple) and len(keys) > 1 else (key,)
        if isinstance(rest, Mapping):
            yield {**{other: part for (_, other), part in zip(keys, parts, strict=True)}, **rest}
        else:
            yield (*parts, *(rest if isinstance(rest, (tuple, list)) else (rest,)))


def key_pairs(by: Any, left: Schema, right: Schema) -> list[tuple[str, str]]:
    """The key's columns on both sides: names that both have, or pairs (left, right)."""
    given = [by] if isinstance(by, (str, tuple)) else list(by)
    if not given:
        raise SchemaError("the key is empty; name at least one column: by='…'")
    pairs: list[tuple[str, str]] = []
    for each in given:
        pair = (each, each) if isinstance(each, str) else each
        if not isinstance(pair, tuple) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise SchemaError(
                f"by={by!r}: expected a column, a pair (left, right) of columns, or a list of these, found {each!r}"
            )
        for name, side, where in ((pair[0], left, "left"), (pair[1], right, "right")):
            if name not in side:
                raise SchemaError(
                    f"the key {name!r} is not a column on the {where}; columns: {', '.join(side.names)}"
                    + ("" if isinstance(each, str) else " (a tuple is a pair: left, right)")
                )
        if left.type_of(pair[0]) != right.type_of(pair[1]):
            raise SchemaError(
                f"the key {pair[0]!r} is {left.type_of(pair[0])} on the left, but {pair[1]!r} is "
                f"{right.type_of(pair[1])} on the right; expected one type"
            )
        pairs.append(pair)
    return pairs
