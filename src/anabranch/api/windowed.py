"""The methods of a stream that look at several tuples of a key: aggregate, sort, deduplicate, top, match."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from anabranch.api.building import like, put, under
from anabranch.api.declarations import to_milliseconds
from anabranch.api.keys import By, KeyedStream, keyed_by
from anabranch.api.stream_time import scale_of
from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.agg import Aggregation
from anabranch.operators.aggregation import aggregate_logic
from anabranch.operators.late_tuples import late_logic, results_logic
from anabranch.operators.pattern_matching import match_logic, seeing_pattern
from anabranch.operators.running_windows import RunningWindow
from anabranch.operators.sorting import deduplicate_logic, sort_logic
from anabranch.operators.top_tuples import top_logic
from anabranch.operators.windows import POLICIES, Policy, Sliding, Tumbling, tumbling
from anabranch.program.annotated_rows import seeing
from anabranch.program.graph import Location, Logic, caller_location
from anabranch.program.hashing import is_hashable
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


@overload
def aggregate(
    stream: Stream,
    by: By | None,
    window: Tumbling | Sliding | RunningWindow | Policy,
    *,
    name: str | None = None,
    null_key: str = "keep",
    reassociate: bool = False,
    on_error: str | None = None,
    ttl: float | datetime.timedelta | None = None,
    late: Literal["drop"] = "drop",
    **aggregations: Aggregation,
) -> Stream: ...


@overload
def aggregate(
    stream: Stream,
    by: By | None,
    window: Tumbling | Sliding | RunningWindow | Policy,
    *,
    name: str | None = None,
    null_key: str = "keep",
    reassociate: bool = False,
    on_error: str | None = None,
    ttl: float | datetime.timedelta | None = None,
    late: Literal["stream"],
    **aggregations: Aggregation,
) -> tuple[Stream, Stream]: ...


def aggregate(
    stream: Stream,
    by: By | None,
    window: Tumbling | Sliding | RunningWindow | Policy | None = None,
    *,
    name: str | None = None,
    null_key: str = "keep",
    reassociate: bool = False,
    on_error: str | None = None,
    ttl: float | datetime.timedelta | None = None,
    late: str = "drop",
    **aggregations: Aggregation,
) -> Stream | tuple[Stream, Stream]:
    """Aggregate windows of each key: one tuple for each window, when it closes; with `running` whenever it changes.

    Parameters
    ----------
    by : str, function, ab.key(…), sequence of these, or None
        The key: columns, fields of structs (``"bid.auction"``), functions of a tuple. None for windows
        over the whole stream, which run on one thread.
    window : tumbling(…), sliding(…), running() or a policy
        Which tuples belong together: see `tumbling`, `sliding` and `running`.
    null_key : "keep", "drop" or "fail"
        What a tuple does whose key is null: it has a key like any other; it goes; it fails the epoch. The first
        two are counted as ``null_key``.
    reassociate : bool
        Whether floats may be added in another order than by one thread, if that lets several channels work on a
        hot key (option ``splitHotKeys``): the last bits of a sum may then differ.
    on_error : "fail", "skip" or "dead_letter", optional
        What a tuple does for which a function of yours fails, or that has no key or time where it must have one; see
        `Stream.on_error`. What fails when a window closes by itself fails the epoch.
    ttl : seconds or timedelta, optional
        A key that brought no tuple for so long, by the clock of the epochs, is forgotten with its window; for windows
        that only tuples close, and for `running`.
    late : "drop" or "stream"
        With windows that follow the watermark of the stream, what becomes of tuples for which no window is open any
        more: they go; or they are a stream: then two streams are given back, the results and the late tuples. They are
        counted as ``late`` either way.
    **aggregations
        The columns of the result, behind those of the key: ``total=agg.sum("amount")``.

    Examples
    --------
    >>> import anabranch as ab
    >>> sales = ab.from_rows([("a", 1), ("b", 5), ("a", 2)], "shop string, amount long")
    >>> sales.aggregate(by="shop", window=ab.tumbling(2), total=ab.agg.sum("amount")).run_sequential()
    [(shop='a', total=3)]
    >>> last_two = ab.sliding(ab.count(2), every=1)
    >>> sales.aggregate(by=None, window=last_two, total=ab.agg.sum("amount")).run_sequential()
    [(total=1), (total=6), (total=7)]
    """
    location = caller_location()
    keyed = _keyed(under(stream, on_error), "aggregate", by, location, name, shown=True)
    key = keyed.names
    chosen = tumbling(window) if isinstance(window, POLICIES) else window
    if not isinstance(chosen, (Tumbling, Sliding, RunningWindow)):
        raise ProgramError(
            f"aggregate at {location}: over which tuples? Expected a window such as tumbling(count(10)), "
            f"tumbling(delta('time', 60)), sliding(count(10), every=count(1)) or running(), found {window!r}"
        )
    if not aggregations:
        raise ProgramError(f"aggregate at {location}: nothing to compute; add for example total=agg.sum('x')")

    seen = {
        each: made.seeing(stream.schema) if isinstance(made, Aggregation) else made
        for each, made in aggregations.items()
    }
    if isinstance(chosen, RunningWindow) and chosen.deleted is not None:
        chosen = dataclasses.replace(chosen, deleted=seeing(chosen.deleted, stream.schema))
    window_seen = chosen

    def make(called: str) -> tuple[Logic, Schema]:
        scale = scale_of(stream._node)
        ttl_ms = to_milliseconds(ttl)
        late_stream = late == "stream"
        return aggregate_logic(
            keyed.stream.schema, key, window_seen, seen, called, null_key, reassociate, scale, late_stream, ttl_ms
        )

    if late not in ("drop", "stream"):
        raise ProgramError(f"aggregate at {location}: late={late!r}: expected 'drop' or 'stream'")
    made = like(put(keyed.stream, "aggregate", make, location, name, key), stream)
    if late == "drop":
        return made
    called = made._node.name
    columns = keyed.stream.schema

    def part(kind: str, logic: Callable[[str], tuple[Logic, Schema]]) -> Stream:
        return put(made, kind, logic, location, None, wanted=f"{called}_{kind}", part_of=called, on_error="fail")

    results = part("results", lambda n: results_logic(made.schema, key, n))
    gone = part("late", lambda n: late_logic(columns, n))
    return results, keyed.plain(gone, location)


def _keyed(
    stream: Stream, method: str, by: By | None, location: Location, name: str | None, shown: bool = False
) -> KeyedStream:
    return KeyedStream(stream, (), ()) if by is None else keyed_by(stream, method, by, location, name, shown)


def sort(
    stream: Stream,
    columns: str | Sequence[str],
    window: Policy,
    *,
    key: By | None = None,
    descending: bool | Sequence[bool] = False,
    late: str = "pass",
    null_key: str = "keep",
    name: str | None = None,
) -> Stream:
    """Put tuples in order, progressively.

    Parameters
    ----------
    columns : str or sequence of str
        What they are ordered by; equal tuples stay in the order they came. Nulls come first, NaN last.
    window : count(n), delta(attribute, size) or punctuation()
        How long a tuple may wait: while at most n are held; until the attribute, which must be the first of the
        columns, has grown by more than `size`; or until the next punctuation.
    key : str or sequence of str, optional
        Sort the tuples of each key by themselves; without one the sort runs on one thread.
    late : "pass" or "drop"
        What a tuple does that belongs before one that has gone already: it goes at once, out of order, or not at
        all. Either way it is counted as ``late``.

    Examples
    --------
    >>> import anabranch as ab
    >>> stream = ab.from_rows([(2,), (1,), (3,), (5,), (4,)], "x long")
    >>> stream.sort("x", window=ab.count(1)).run_sequential()
    [(x=1), (x=2), (x=3), (x=4)]
    """
    location = caller_location()
    keyed = _keyed(stream, "sort", key, location, name)
    by, schema = keyed.names, keyed.stream.schema
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)

    def make(called: str) -> tuple[Logic, Schema]:
        return sort_logic(schema, chosen, window, by, descending, late, null_key, called), schema

    return keyed.plain(put(keyed.stream, "sort", make, location, name, by), location)


def deduplicate(
    stream: Stream,
    by: By | None = None,
    within: Policy | None = None,
    *,
    null_key: str = "keep",
    name: str | None = None,
) -> Stream:
    """The first tuple of each key.

    Parameters
    ----------
    by : str, function, ab.key(…), or sequence of these, optional
        What makes two tuples the same; all columns by default.
    within : count(n), delta(attribute, size) or time(seconds), optional
        How long a tuple is remembered: of each n tuples of the key the first goes through; or the first, and then
        the first whose attribute has grown by more than `size`; or one for each span of so many seconds, by the
        clock of the epochs. For ever by default: the state grows with the number of keys.

    Examples
    --------
    >>> import anabranch as ab
    >>> ab.from_rows([(1,), (2,), (1,)], "x long").deduplicate().run_sequential()
    [(x=1), (x=2)]
    """
    location = caller_location()
    if by is None:
        unfit = [name for name in stream.schema.names if not is_hashable(stream.schema.type_of(name))]
        if unfit:
            raise SchemaError(
                f"deduplicate at {location}: the column {unfit[0]!r} has the type {stream.schema.type_of(unfit[0])}, "
                "which cannot be a key; name the columns that make tuples the same: by=…"
            )
    keyed = keyed_by(stream, "deduplicate", stream.schema.names if by is None else by, location, name)
    key, schema = keyed.names, keyed.stream.schema

    def make(called: str) -> tuple[Logic, Schema]:
        return deduplicate_logic(schema, key, within, null_key, called), schema

    return keyed.plain(put(keyed.stream, "deduplicate", make, location, name, key), location)


def top(
    stream: Stream,
    count: int,
    columns: str | Sequence[str],
    by: By | None = None,
    *,
    descending: bool | Sequence[bool] = True,
    rank: str | None = None,
    change: str | None = None,
    ttl: float | datetime.timedelta | None = None,
    null_key: str = "keep",
    name: str | None = None,
) -> Stream:
    """The first tuples of each key by some order, as they change: a stream of updates.

    Parameters
    ----------
    count : int
        How many tuples of each key; 1 is the best so far, or the latest.
    columns : str or sequence of str
        What they are ordered by. Of equals those that came first are first. Nulls are smaller than any value.
    by : str, function, ab.key(…), or sequence of these, optional
        The key; without one the whole stream is one, and runs on one thread.
    descending : bool or sequence of bool
        Whether the largest come first, for all columns or each.
    rank : str, optional
        The name of a column with the place, from 1. A tuple that enters is emitted, and so is each whose place it
        changes, by their places: an update with the key and the rank. Without it a tuple is emitted as it enters.
    change : str, optional
        The name of a column that says "insert" of a tuple that enters and "delete" of one that leaves, which is then
        emitted, too, before the one that takes its place.
    ttl : seconds or timedelta, optional
        A key whose first tuples did not change for so long, by the clock of the epochs, is forgotten.

    Examples
    --------
    >>> import anabranch as ab
    >>> bids = ab.from_rows([("a", 3), ("a", 9), ("a", 5), ("a", 1)], "item string, price long")
    >>> bids.top(1, "price", by="item").run_sequential()
    [(item='a', price=3), (item='a', price=9)]
    >>> [(t.price, t.place) for t in bids.top(2, "price", by="item", rank="place").run_sequential()]
    [(3, 1), (9, 1), (3, 2), (5, 2)]
    """
    location = caller_location()
    keyed = _keyed(stream, "top", by, location, name)
    key, schema = keyed.names, keyed.stream.schema
    chosen = (columns,) if isinstance(columns, str) else tuple(columns)

    def make(called: str) -> tuple[Logic, Schema]:
        return top_logic(schema, count, chosen, key, descending, rank, change, null_key, to_milliseconds(ttl), called)

    return keyed.plain(put(keyed.stream, "top", make, location, name, key), location)


def match(
    stream: Stream,
    by: By | None,
    pattern: Any,
    within: Policy | None = None,
    *,
    contiguity: str = "strict",
    emit: Callable[[Any], Any] | None = None,
    schema: Any = None,
    null_key: str = "keep",
    name: str | None = None,
    on_error: str | None = None,
) -> Stream:
    """Find a pattern in the tuples of each key.

    A match is emitted with the first tuple that completes one; of several, the one that began first, each step
    taking as much as it can, earlier steps first. Matches do not overlap.

    Parameters
    ----------
    by : str, function, ab.key(…), sequence of these, or None
        The key: columns, fields of structs (``"bid.auction"``), functions of a tuple. None for patterns
        over the whole stream, which run on one thread.
    pattern : list of step(…)
        The steps in their order, each with a name, a condition and how many tuples it takes.
    within : count(n) or delta(attribute, size), optional
        How long a match may be: in tuples of the key, from the first to the last; or by how much the attribute of
        the last may lie above that of the first.
    contiguity : "strict" or "relaxed"
        Whether the tuples of a match must follow one another, or tuples that do not fit are skipped.
    emit : callable, optional
        Makes the result of a match ``m``, whose steps are lists of tuples by name: ``m.failures``. Needs `schema`.
        By default the result has the key, and for each step an array of its tuples.

    Examples
    --------
    >>> import anabranch as ab
    >>> logins = ab.from_rows([("a", False), ("a", False), ("b", True), ("a", True)], "host string, ok boolean")
    >>> pattern = [ab.step("failed", lambda t: not t.ok).times(2, None), ab.step("done", lambda t: t.ok)]
    >>> logins.match(
    ...     by="host", pattern=pattern, emit=lambda m: (m.done[0].host, len(m.failed)), schema="host string, n long"
    ... ).run_sequential()
    [(host='a', n=2)]
    """
    location = caller_location()
    keyed = _keyed(under(stream, on_error), "match", by, location, name, shown=emit is None)
    key = keyed.names

    def make(called: str) -> tuple[Logic, Schema]:
        columns = keyed.stream.schema
        steps = seeing_pattern(pattern, stream.schema)
        return match_logic(columns, key, steps, within, contiguity, emit, schema, null_key, called, stream.schema)

    return like(put(keyed.stream, "match", make, location, name, key), stream)
