"""The methods of a stream that bring it together with others: union, join, enrich, combine."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.api.building import like, next_number, put, remade, under
from anabranch.api.declarations import to_milliseconds
from anabranch.api.keys import By, KeyedStream, both_keyed_by, keyed_by, pairs_of_key
from anabranch.api.refreshed_tables import RefreshedTable
from anabranch.api.stream_time import scale_of
from anabranch.api.tables import is_table, rows_of
from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.aligning import align_logic
from anabranch.operators.joins import changing_enrich_logic, enrich_logic, join_logic, key_pairs, static_enrich_logic
from anabranch.operators.sorting import combine_logic
from anabranch.operators.windows import Policy
from anabranch.program.annotated_rows import seeing
from anabranch.program.changing_table import TableShape
from anabranch.program.graph import Location, Logic, Union, caller_location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


def union(stream: Stream, *others: Stream, name: str | None = None) -> Stream:
    """All tuples of this stream and others with the same columns.

    Tuples that come from one tuple of a source keep the order in which the streams are named here.
    """
    location = caller_location()
    _must_be_streams("union", others, location)
    for other in others:
        if other.schema != stream.schema:
            raise SchemaError(
                f"union at {location}: expected streams with the columns {stream.schema}, found {other.schema}; "
                "bring them to one schema with map(…) first"
            )
    return put(stream, "union", lambda _: (Union(), stream.schema), location, name, others=others)


def join(
    stream: Stream,
    other: Stream,
    by: Any,
    window: Policy | tuple[Policy, Policy] | None = None,
    how: str = "inner",
    function: Callable[[Any, Any], Any] | None = None,
    schema: Any = None,
    *,
    ttl: float | datetime.timedelta | None = None,
    name: str | None = None,
    on_error: str | None = None,
) -> Stream:
    """Pairs of tuples of two streams that agree on a key, within a window or however far apart.

    Each tuple meets those of the other stream's window when it comes, in the order they came.

    Parameters
    ----------
    by : str, function, ab.key(…), pair of these, or list of these
        The key: columns, fields of structs (``"bid.auction"``), functions of a tuple. A tuple is a pair: what it is
        here and what it is there.
    window : count(n), delta(attribute, size) or event_time(attribute, size), or a pair of one kind
        What a side holds for the other's tuples to meet: its key's last n tuples; tuples whose attribute is at
        most `size` apart from that of the tuple that comes; the same with tuples that come late by up to the
        lateness. Of a pair the first is for this side and the second for the other. If both streams have event time
        (``Stream.event_time``), windows of event time follow their watermark: a tuple is held until none can come any
        more that it could meet. Without a window every tuple is held: for ever, or for the `ttl`.
    how : "inner", "left", "right" or "outer"
        Whether a tuple of this side, the other, or both, that leaves its window without having met one is emitted
        with nulls. With event time that is when the watermark has passed its window.
    ttl : seconds or timedelta, optional
        How long a tuple waits for others, by the clock of the epochs, in a join without a window.
    function : callable, optional
        Makes the result from the two tuples, of which one may be None in an outer join; needs `schema`. By default
        the result has the columns of this side, then those of the other without its key.
    """
    location = caller_location()
    _must_be_streams("join", (other,), location)
    left, right = both_keyed_by(under(stream, on_error), under(other, on_error), "join", by, location, name)
    pairs, keys = _pairs("join", left, right, location)

    def make(called: str) -> tuple[Logic, Schema]:
        scales = scale_of(stream._node), scale_of(other._node)
        ttl_ms = to_milliseconds(ttl)
        columns, written = (left.stream.schema, right.stream.schema), (stream.schema, other.schema)
        made = function if function is None else seeing(function, *written, nulls=True)
        return join_logic(*columns, pairs, window, how, made, schema, called, ttl_ms, scales, written)

    made = put(left.stream, "join", make, location, name, keys[0], others=(right.stream,), keys=keys)
    return like(made, stream)


def enrich(
    stream: Stream,
    table: Any,
    by: Any,
    how: str = "left",
    schema: Any = None,
    *,
    wait: bool = False,
    ttl: float | datetime.timedelta | None = None,
    name: str | None = None,
) -> Stream:
    """Add the columns of a table to each tuple.

    Parameters
    ----------
    table : Stream, ab.table(…), or list of rows, or dict, or table
        ``ab.table(path)`` is read again when it changes; all tuples of an epoch meet one version. A
        stream: the last tuple of each key counts, when a tuple comes. Rows, or a dict from keys to the other columns,
        or a table of pyarrow, pandas or Spark: it never changes; the operator then has no state.
    by : str, function, ab.key(…), pair of these, or list of these
        The key: columns, fields of structs (``"bid.auction"``), functions of a tuple. A tuple is a pair: what it is
        here and what it is in the table.
    how : "left" or "inner"
        What a tuple does for which there is no row: go on with nulls, or go.
    schema : str or class
        The columns of a table that is no stream and does not know them; of a dict, the key's columns first.
    wait : bool
        With a stream as the table: tuples wait for the first row of their key, however long, and then come in their
        order. So they do not depend on which of two sources was read first; later rows of the key still count from
        when they come. Tuples whose key is null do not wait.
    ttl : seconds or timedelta, optional
        With a stream as the table: a row is forgotten when none came for its key for so long, by the clock of the
        epochs.

    Examples
    --------
    >>> import anabranch as ab
    >>> orders = ab.from_rows([("a", 3), ("c", 1)], "who string, amount long")
    >>> orders.enrich({"a": "Anna"}, by="who", schema="who string, name string").run_sequential()
    [(who='a', amount=3, name='Anna'), (who='c', amount=1, name=None)]
    """
    location = caller_location()
    from anabranch.api.stream import Stream

    if isinstance(table, RefreshedTable):
        if wait or ttl is not None or schema is not None:
            raise ProgramError(
                f"enrich at {location}: wait and ttl are for a table that is a stream, and ab.table(…) has its schema"
            )
        return _enrich_changing(stream, table, by, how, location, name)
    if isinstance(table, Stream):
        if schema is not None:
            raise SchemaError(f"enrich at {location}: the table is a stream and has its own schema; leave out schema=…")
        left, right = both_keyed_by(stream, table, "enrich", by, location, name)
        pairs, keys = _pairs("enrich", left, right, location)

        def make(called: str) -> tuple[Logic, Schema]:
            ttl_ms = to_milliseconds(ttl)
            return enrich_logic(left.stream.schema, right.stream.schema, pairs, how, called, ttl_ms, wait)

        made = put(left.stream, "enrich", make, location, name, keys[0], others=(right.stream,), keys=keys)
        return left.plain(made, location)
    if wait or ttl is not None:
        raise ProgramError(
            f"enrich at {location}: wait and ttl are for a table that is a stream; this one is all there"
        )
    if is_table(table):
        try:
            table, schema = rows_of(table, schema)
        except (ProgramError, SchemaError) as problem:
            raise type(problem)(f"enrich at {location}: {problem}") from None
    if not isinstance(table, (Mapping, Iterable)) or isinstance(table, (str, bytes)):
        raise ProgramError(f"enrich at {location}: expected a stream, a list of rows or a dict, found {table!r}")
    if schema is None:
        raise SchemaError(f"enrich at {location}: the columns of the table are unknown; give schema='…'")
    parts = pairs_of_key(by, "enrich", location)
    here = keyed_by(stream, "enrich", [part for part, _ in parts], location, name, typed=True)
    there = [other for _, other in parts]

    def make_static(called: str) -> tuple[Logic, Schema]:
        columns = Schema.of(schema)
        pairs = key_pairs(list(zip(here.names, there, strict=True)), here.stream.schema, columns)
        return static_enrich_logic(here.stream.schema, table, pairs, how, columns, called)

    return here.plain(put(here.stream, "enrich", make_static, location, name), location)


def _enrich_changing(
    stream: Stream, table: RefreshedTable, by: Any, how: str, location: Location, name: str | None
) -> Stream:
    parts = pairs_of_key(by, "enrich", location)
    here = keyed_by(stream, "enrich", [part for part, _ in parts], location, name, typed=True)
    given = list(zip(here.names, (there for _, there in parts), strict=True))
    shapes: list[TableShape] = []

    def make(called: str) -> tuple[Logic, Schema]:
        pairs = key_pairs(given, here.stream.schema, table.schema)
        logic, schema, shape = changing_enrich_logic(
            here.stream.schema, pairs, how, table.schema, called, str(next_number())
        )
        shapes.append(shape)
        return logic, schema

    made = put(here.stream, "enrich", make, location, name)
    return here.plain(remade(made, table=table.followed(shapes[0])), location)


def align(
    stream: Stream,
    *others: Stream,
    on: str,
    by: By | None = None,
    nulls: str = "fail",
    name: str | None = None,
) -> Stream:
    """All tuples of this stream and others, in the order of their event times, whenever they come.

    All streams need event time (``Stream.event_time``). A tuple is held until the watermark of all has passed its time;
    so the order is a function of the data, and does not depend on how fast which source was read. Of equal times the
    order is that of the other columns. A tuple that is late by its own stream's watermark goes, counted as ``late``. A
    stream that brings nothing holds the others up, unless it has an ``idle`` limit.

    Parameters
    ----------
    on : str
        The column that holds the time.
    by : str or sequence of str, optional
        Align the tuples of each key by themselves, in parallel; between keys the order at equal times is then that in
        which their tuples came. Without a key all are in one order, on one thread.
    nulls : "fail" or "drop"
        What a tuple does whose time is null.

    Examples
    --------
    >>> import anabranch as ab
    >>> one = ab.from_rows([(1,), (4,), (9,)], "at long").event_time("at")
    >>> other = ab.from_rows([(2,), (3,), (8,)], "at long").event_time("at")
    >>> one.align(other, on="at").run_sequential()
    [(at=1), (at=2), (at=3), (at=4)]
    """
    location = caller_location()
    _must_be_streams("align", others, location)
    sides = [_side(each, "align", by, location, name) for each in (stream, *others)]
    key = sides[0].names

    def make(called: str) -> tuple[Logic, Schema]:
        for each in (stream, *others):
            if scale_of(each._node) is None:
                raise ProgramError("expected streams with event time; one has none: stream.event_time('…') before it")
        scale = scale_of(stream._node, *(other._node for other in others))
        assert scale is not None
        first, *rest = (side.stream.schema for side in sides)
        return align_logic(first, rest, on, key, nulls, scale, called), first

    keys = (key,) * len(sides)
    streams = [side.stream for side in sides]
    return sides[0].plain(put(streams[0], "align", make, location, name, key, others=streams[1:], keys=keys), location)


def combine(
    stream: Stream,
    other: Stream,
    on: str,
    *,
    by: By | None = None,
    nulls: str = "fail",
    name: str | None = None,
) -> Stream:
    """Merge this stream and another, each in the order of an attribute, into one in that order.

    When both have a tuple waiting, the smaller goes; of equals, that of this stream. So a tuple waits until the
    other stream has come as far.

    Parameters
    ----------
    on : str
        The attribute. A tuple that goes backwards on its own stream keeps its place there, and is counted as
        ``backwards``.
    by : str or sequence of str, optional
        Combine the tuples of each key by themselves; without it everything runs on one thread.
    nulls : "fail" or "drop"
        What a tuple does without the attribute; dropped ones are counted as ``null_attribute``.
    """
    location = caller_location()
    _must_be_streams("combine", (other,), location)
    left, right = (_side(each, "combine", by, location, name) for each in (stream, other))
    key, schema = left.names, left.stream.schema

    def make(called: str) -> tuple[Logic, Schema]:
        return combine_logic(schema, right.stream.schema, on, key, nulls, called), schema

    made = put(left.stream, "combine", make, location, name, key, others=(right.stream,), keys=(key, key))
    return left.plain(made, location)


def _side(stream: Stream, method: str, by: By | None, location: Location, name: str | None) -> KeyedStream:
    return KeyedStream(stream, (), ()) if by is None else keyed_by(stream, method, by, location, name)


def _pairs(
    method: str, left: KeyedStream, right: KeyedStream, location: Location
) -> tuple[list[tuple[str, str]], tuple[tuple[str, ...], tuple[str, ...]]]:
    given = list(zip(left.names, right.names, strict=True))
    try:
        return key_pairs(given, left.stream.schema, right.stream.schema), (left.names, right.names)
    except SchemaError as problem:
        raise SchemaError(f"{method} at {location}: {problem}") from None


def _must_be_streams(method: str, others: Sequence[Any], location: Location) -> None:
    from anabranch.api.stream import Stream

    if not others:
        raise ProgramError(f"{method} at {location}: expected at least one other stream")
    for other in others:
        if not isinstance(other, Stream):
            raise ProgramError(f"{method} at {location}: expected a stream, found {other!r}")
