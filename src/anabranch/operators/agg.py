"""Aggregation functions for `aggregate`: ``flow=agg.sum("flow")``.

Each is a few lines of Python that the aggregation puts into one generated method, so that a tuple costs one
call whatever is aggregated. Values are added in the order of the stream, so floating-point sums are those
of the sequential run, bit for bit. Nulls are skipped, as in SQL, except by `first`, `last`, `any` and
`collect`, which take what is there.

A sliding window could take leaving tuples out of a sum again, but floats do not forget: (1e16 + 1) - 1e16 is 0. So
the result of a sliding window is, by definition, what its tuples give when they are added in order from nothing.
Where taking out provably gives the same (counts, sums of integers, a `custom` aggregation whose author says how) it
is done so, at constant cost; everything else is computed anew from the tuples.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.library_operator import UserFunction
from anabranch.program.annotated_rows import seeing
from anabranch.program.ddl import parse_ddl
from anabranch.program.schema import Schema

_NUMERIC = "a number"


@dataclasses.dataclass(frozen=True)
class Slide:
    """The code of an aggregation that can take a tuple out of its window again."""

    begin: str
    add: str
    remove: str
    result: str


@dataclasses.dataclass(frozen=True)
class PartialResults:
    """How partial results of an aggregation combine: what a part hands over, and the code that takes it in.

    Each column is (code, type); in `code` ``{p0}``, ``{p1}`` stand for them. Parts come in the order of their first
    tuples.
    """

    columns: tuple[tuple[str, pa.DataType], ...]
    code: str


@dataclasses.dataclass(frozen=True)
class Aggregation:
    """One aggregation: its state and the code that begins, adds and ends a window.

    In the code ``{s}`` and ``{u}`` stand for two places that hold state and ``{v}`` for the value of the attribute;
    ``{f0}``, ``{f1}``, … for the functions of a user; ``{w}`` for the value of a second attribute.

    Attributes
    ----------
    slide : callable
        From the attribute's type to the `Slide` that gives the same results at constant cost, or None.
    at : int or None
        The result is simply the value of the window's tuple at this place: 0 the first, -1 the last.
    bound : str
        The result is a bound of the window: "start", "end" or "time"; or why it is given: "emission".
    functions : tuple of callable
        What a user wrote; the compiler reads it.
    combine : callable
        From the attribute's type, and whether floats may be added in another order, to how partial results combine
        to exactly the result (but for that), or None.
    second : str or None
        A second attribute that it needs.
    helpers : tuple of callable
        Functions of the library that its code calls: ``{h0}``, ``{h1}``, …
    is_filtered : bool
        Its code looks at whole tuples, to leave some out.
    """

    name: str
    attribute: str | None
    begin: str
    add: str
    result: str
    type_of: Callable[[pa.DataType], pa.DataType | None]
    wanted: str = "any type"
    slide: Callable[[pa.DataType], Slide | None] = lambda _: None
    at: int | None = None
    bound: str = ""
    functions: tuple[Callable[..., Any], ...] = ()
    combine: Callable[[pa.DataType, bool], PartialResults | None] = lambda _, __: None
    second: str | None = None
    is_filtered: bool = False
    helpers: tuple[Callable[..., Any], ...] = ()

    def where(self, predicate: Callable[[Any], Any]) -> Aggregation:
        """The same over those tuples of the window for which the predicate is true.

        Examples
        --------
        >>> import anabranch as ab
        >>> sales = ab.from_rows([("a", 1), ("a", 9), ("a", 5)], "shop string, amount long")
        >>> large = ab.agg.count().where(lambda t: t.amount > 3)
        >>> sales.aggregate(by="shop", window=ab.tumbling(3), large=large).run_sequential()
        [(shop='a', large=2)]
        """
        if not callable(predicate):
            raise ProgramError(f"agg.{self.name}(…).where({predicate!r}): expected a function of a tuple")
        if self.bound:
            raise ProgramError(f"agg.{self.name}().where(…): a bound of the window has no tuples to leave out")
        begin, add = self.begin, self.add
        if self.at == 0:  # the first of those, which need not be the window's first
            begin, add = "{s} = None; {u} = False", "if not {u}:\n    {s} = {v}; {u} = True"
        guarded = [f"if {{f{len(self.functions)}}}(t):", *(f"    {line}" for line in add.splitlines())]
        return dataclasses.replace(
            self,
            begin=begin,
            add="\n".join(guarded),
            functions=(*self.functions, predicate),
            slide=lambda _: None,
            combine=self.combine if self.at is None else lambda _, __: None,
            at=None,
            is_filtered=True,
        )

    def seeing(self, schema: Schema) -> Aggregation:
        """The same with functions that get tuples of the class which they are annotated with."""
        functions = list(self.functions)
        if self.is_filtered:
            functions[-1] = seeing(functions[-1], schema)
        if self.name == "custom" and self.attribute is None:  # what adds a tuple, and what takes one out again
            for place in range(1, len(functions) - self.is_filtered, 2):
                functions[place] = seeing(functions[place], None, schema)
        return dataclasses.replace(self, functions=tuple(functions))

    def user_functions(self, at: int) -> list[UserFunction]:
        """The user's functions, as the aggregation that is the operator's number `at` calls them."""
        called = f"a function of agg.{self.name}"
        held, value = f"accumulator {at}", "tuple" if self.attribute is None else f"column {self.attribute}"
        calls: list[tuple[tuple[str, ...], str]] = [(("tuple",), "")]  # a predicate
        if self.name == "custom":  # create, add, result, remove
            calls = [((), held), ((held, value), held), ((held,), ""), ((held, value), held)]
        made = [UserFunction(called, function, *call) for function, call in zip(self.functions, calls, strict=False)]
        if self.is_filtered:
            made[len(self.functions) - 1 :] = [UserFunction(called, self.functions[-1])]
        return made

    def output_type(self, found: pa.DataType | None) -> pa.DataType:
        """The type of the result; SchemaError if the attribute's type does not fit."""
        kind = self.type_of(found if found is not None else pa.null())
        if kind is None:
            raise SchemaError(f"agg.{self.name}({self.attribute!r}): expected {self.wanted}, found a column of {found}")
        return kind

    def __str__(self) -> str:
        return f"{self.name}({self.attribute or ''}){' where …' if self.is_filtered else ''}"


def _sum_type(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_integer(kind):
        return pa.int64()
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else None


def _same(kind: pa.DataType) -> pa.DataType:
    return kind


def _ordered(kind: pa.DataType) -> pa.DataType | None:
    nested = pa.types.is_nested(kind) or pa.types.is_map(kind)
    return None if nested else kind


_IF_PRESENT = "if {v} is not None:\n    "
_IF_PART = _IF_PRESENT.replace("{v}", "{p0}")


def sum(attribute: str) -> Aggregation:
    """The sum; null if every value was null. Integers stay integers, floats are added in stream order."""
    add = _IF_PRESENT + "{s} = {v} if {s} is None else {s} + {v}"
    return Aggregation(
        "sum",
        attribute,
        "{s} = None",
        add,
        "{s}",
        _sum_type,
        _NUMERIC,
        _slide("({s} if {u} else None)"),
        combine=_sums("(None if {s} is None else str({s}))", "{s}", "{s} = {v} if {s} is None else {s} + {v}"),
    )


def _sums(text: str, number: str, add: str, *more: tuple[str, pa.DataType]) -> Callable[..., PartialResults | None]:
    """Partial sums: of integers as text, because a part may be too large for the type that the whole fits into."""
    then = "".join(f"; {{u}} += {{p{at}}}" for at in range(1, 1 + len(more)))

    def combine(kind: pa.DataType, reassociate: bool) -> PartialResults | None:
        if pa.types.is_integer(kind):
            return PartialResults(((text, pa.string()), *more), _IF_PART + add.replace("{v}", "int({p0})") + then)
        if pa.types.is_floating(kind) and reassociate:
            return PartialResults(((number, pa.float64()), *more), _IF_PART + add.replace("{v}", "{p0}") + then)
        return None

    return combine


def _same_value(code: str, in_order: bool = False) -> Callable[..., PartialResults | None]:
    """A value that one of the tuples has; unless the first one counts, floats depend on their order (NaN, -0.0)."""

    def combine(kind: pa.DataType, reassociate: bool) -> PartialResults | None:
        if _ordered(kind) is None or (pa.types.is_floating(kind) and not (in_order or reassociate)):
            return None
        return PartialResults((("{s}", kind),), code.replace("{v}", "{p0}"))

    return combine


def _slide(result: str) -> Callable[[pa.DataType], Slide | None]:
    """The sum and the number of values, where taking a value out gives what never adding it had given."""
    made = Slide("{s} = 0; {u} = 0", _IF_PRESENT + "{s} += {v}; {u} += 1", _IF_PRESENT + "{s} -= {v}; {u} -= 1", result)
    return lambda kind: made if pa.types.is_integer(kind) else None


def count(attribute: str | None = None) -> Aggregation:
    """How many tuples; with an attribute, how many of them have it."""
    add = "{s} += 1" if attribute is None else _IF_PRESENT + "{s} += 1"
    made = Slide("{s} = 0", add, add.replace("+=", "-="), "{s}")
    parts = PartialResults((("{s}", pa.int64()),), "{s} += {p0}")
    return Aggregation(
        "count",
        attribute,
        "{s} = 0",
        add,
        "{s}",
        lambda _: pa.int64(),
        slide=lambda _: made,
        combine=lambda _, __: parts,
    )


def min(attribute: str) -> Aggregation:
    """The smallest value."""
    add = "if {v} is not None and ({s} is None or {v} < {s}):\n    {s} = {v}"
    combine = _same_value(add)
    return Aggregation("min", attribute, "{s} = None", add, "{s}", _ordered, "values with an order", combine=combine)


def max(attribute: str) -> Aggregation:
    """The largest value."""
    add = "if {v} is not None and ({s} is None or {v} > {s}):\n    {s} = {v}"
    combine = _same_value(add)
    return Aggregation("max", attribute, "{s} = None", add, "{s}", _ordered, "values with an order", combine=combine)


def avg(attribute: str) -> Aggregation:
    """The mean, as a double; null if every value was null."""
    begin = "{s} = 0; {u} = 0"
    add = _IF_PRESENT + "{s} += {v}; {u} += 1"
    result = "(float({s}) / {u} if {u} else None)"

    def type_of(kind: pa.DataType) -> pa.DataType | None:
        return None if _sum_type(kind) is None else pa.float64()

    combine = _sums("str({s})", "float({s})", "{s} += {v}", ("{u}", pa.int64()))
    return Aggregation("avg", attribute, begin, add, result, type_of, _NUMERIC, _slide(result), combine=combine)


def first(attribute: str) -> Aggregation:
    """The value of the window's first tuple."""
    add = "if fresh:\n    {s} = {v}"
    combine = _same_value(add, in_order=True)
    return Aggregation("first", attribute, "{s} = None", add, "{s}", _same, at=0, combine=combine)


def last(attribute: str) -> Aggregation:
    """The value of the window's last tuple."""
    return Aggregation("last", attribute, "{s} = None", "{s} = {v}", "{s}", _same, at=-1)


def any(attribute: str) -> Aggregation:
    """The value of any one of the window's tuples (the first's); says that all have the same."""
    return dataclasses.replace(first(attribute), name="any")


def collect(attribute: str) -> Aggregation:
    """All values, in order, as an array."""
    add = "{s}.append({v})"
    return Aggregation("collect", attribute, "{s} = []", add, "list({s})", pa.list_)


def distinct(attribute: str) -> Aggregation:
    """How many different values there are, exactly: they are all kept until the window closes. Nulls do not count.

    Of floats, all NaN are one value, and so are 0.0 and -0.0, as in SQL.
    """
    # NaN, which is not even equal to itself, is kept as None, which no other value is.
    return Aggregation(
        "distinct",
        attribute,
        "{s} = set()",
        _IF_PRESENT + "{s}.add({v} if {v} == {v} else None)",
        "len({s})",
        lambda kind: None if _ordered(kind) is None else pa.int64(),
        "values that can be compared",
        combine=lambda kind, _: PartialResults((("list({s})", pa.list_(kind)),), "{s}.update({p0})"),
    )


def top(attribute: str, n: int, by: str | None = None) -> Aggregation:
    """The values of the n tuples with the largest `by` (by default the attribute itself), as an array, largest first.

    Of equals those that came first. Tuples whose `by` is null, or NaN, do not count.

    Examples
    --------
    >>> import anabranch as ab
    >>> bids = ab.from_rows([("a", 3), ("b", 9), ("c", 5)], "who string, price long")
    >>> best = ab.agg.top("who", 2, by="price")
    >>> bids.aggregate(by=None, window=ab.tumbling(3), best=best).run_sequential()
    [(best=['b', 'c'])]
    """
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ProgramError(f"agg.top({attribute!r}, {n!r}): expected how many, 1 or more")
    add = (
        "if {w} is not None and {w} == {w}:\n"
        "    {s}.append(({w}, {v}))\n"
        "    {s}.sort(key=lambda pair: pair[0], reverse=True)\n"
        f"    del {{s}}[{n}:]"
    )
    result = "[value for _, value in {s}]"
    return Aggregation("top", attribute, "{s} = []", add, result, pa.list_, second=attribute if by is None else by)


def approx_count_distinct(attribute: str, *, precision: int = 12) -> Aggregation:
    """How many different values there are, about: a sketch of 2 ** precision bytes, however many. Nulls do not count.

    The standard error is 1.04 / 2 ** (precision / 2), with the default 1.6 %. The result is the same in parallel as on
    one thread. Needs ``anabranch[sketches]``.
    """
    from anabranch.operators import sketches

    sketches.check_library("agg.approx_count_distinct")
    if isinstance(precision, bool) or not isinstance(precision, int) or not 7 <= precision <= 21:
        raise ProgramError(f"agg.approx_count_distinct(precision={precision!r}): expected 7 to 21")
    helpers = (
        functools.partial(sketches.with_distinct, precision),
        functools.partial(sketches.distinct_estimate, precision),
    )
    return _sketched("approx_count_distinct", attribute, helpers, lambda kind: _ordered(kind) and pa.int64())


def quantiles(attribute: str, ranks: Sequence[float], *, precision: int = 200) -> Aggregation:
    """The values at some ranks (0.5 is the median), about, as an array of doubles; null if there are no values.

    A t-digest of about 16 * precision bytes, which is most exact near 0 and 1. Nulls and NaN do not count. The
    result is the same in parallel as on one thread. Needs ``anabranch[sketches]``.
    """
    from anabranch.operators import sketches

    sketches.check_library("agg.quantiles")
    wanted = tuple(ranks)
    if not wanted or not all(isinstance(rank, (int, float)) and 0 <= rank <= 1 for rank in wanted):
        raise ProgramError(f"agg.quantiles(…, {ranks!r}): expected ranks from 0 to 1, such as [0.5, 0.99]")
    if isinstance(precision, bool) or not isinstance(precision, int) or not 10 <= precision <= 10_000:
        raise ProgramError(f"agg.quantiles(…, precision={precision!r}): expected 10 to 10000")
    helpers = (
        functools.partial(sketches.with_quantiles, precision),
        functools.partial(sketches.quantile_estimates, precision, tuple(map(float, wanted))),
    )

    def type_of(kind: pa.DataType) -> pa.DataType | None:
        return None if _sum_type(kind) is None else pa.list_(pa.float64())

    return _sketched("quantiles", attribute, helpers, type_of, _NUMERIC, " and {v} == {v}")


def _sketched(
    name: str,
    attribute: str,
    helpers: tuple[Callable[..., Any], ...],
    type_of: Callable[[pa.DataType], pa.DataType | None],
    wanted: str = "values that can be compared",
    also: str = "",
) -> Aggregation:
    """Values wait in a list until there is a block of them, and then go into a sketch."""
    from anabranch.operators.sketches import BLOCK

    add = (
        f"if {{v}} is not None{also}:\n    {{s}}.append({{v}})\n"
        f"    if len({{s}}) == {BLOCK}:\n        {{u}} = {{h0}}({{u}}, {{s}}); {{s}} = []"
    )
    result = "{h1}({u}, {s})"
    return Aggregation(name, attribute, "{s} = []; {u} = b''", add, result, type_of, wanted, helpers=helpers)


def window_start() -> Aggregation:
    """The start of an event-time window: the smallest value of the attribute that belongs to it.

    Of a window of `time` the moment at which it began, by the clock of the epochs.
    """
    return Aggregation("window_start", None, "", "", "", _same, bound="start")


def window_end() -> Aggregation:
    """The end of an event-time window: the smallest value of the attribute that lies beyond it.

    Of a window of `time` the moment from which on it closes.
    """
    return Aggregation("window_end", None, "", "", "", _same, bound="end")


def window_time() -> Aggregation:
    """The last moment of a window that follows the watermark: what comes of it keeps this time.

    It is the end less the smallest step of the column (a microsecond, a day, or 1). Results come out just before the
    watermark reaches the end, so that windows and joins of results by this time are never late.
    """
    return Aggregation("window_time", None, "", "", "", _same, bound="time")


def emission() -> Aggregation:
    """Why a window gives a result: ``early``, ``close``, or ``late`` if a late tuple changed it when it had closed."""
    return Aggregation("emission", None, "", "", "", lambda _: pa.string(), bound="emission")


def custom(
    create: Callable[[], Any],
    add: Callable[[Any, Any], Any],
    result: Callable[[Any], Any],
    type: str,
    attribute: str | None = None,
    *,
    remove: Callable[[Any, Any], Any] | None = None,
) -> Aggregation:
    """An aggregation of your own.

    Parameters
    ----------
    create : callable
        ``create()`` gives the accumulator of a window with nothing in it: plain data.
    add : callable
        ``add(accumulator, value)`` gives the accumulator with one more.
    result : callable
        ``result(accumulator)`` gives the value of the output's column.
    type : str
        The type of that column, as in a schema: ``"double"``, ``"array<string>"``.
    attribute : str, optional
        The column whose values are added; without one, whole tuples.
    remove : callable, optional
        ``remove(accumulator, value)`` takes out the value that was added first, for sliding windows. What it gives
        must be what adding the rest had given; without it the window is added up anew for each result.

    Examples
    --------
    >>> import anabranch as ab
    >>> product = ab.agg.custom(lambda: 1, lambda a, x: a * x, lambda a: a, "long", "x")
    >>> stream = ab.from_rows([("a", 2), ("a", 3), ("a", 4)], "k string, x long")
    >>> stream.aggregate(by="k", window=ab.tumbling(3), product=product).run_sequential()
    [(k='a', product=24)]
    """
    for name, function in (("create", create), ("add", add), ("result", result)):
        if not callable(function):
            raise ProgramError(f"agg.custom({name}={function!r}): expected a function")
    if remove is not None and not callable(remove):
        raise ProgramError(f"agg.custom(remove={remove!r}): expected a function")
    try:
        kind = parse_ddl(f"x {type}").field(0).type
    except (SchemaError, AttributeError, TypeError) as problem:
        raise SchemaError(f"agg.custom(type={type!r}): expected a type such as 'double': {problem}") from None
    begin, more, end = "{s} = {f0}()", "{s} = {f1}({s}, {v})", "{f2}({s})"
    less = None if remove is None else Slide(begin, more, "{s} = {f3}({s}, {v})", end)
    functions = (create, add, result) if remove is None else (create, add, result, remove)
    return Aggregation("custom", attribute, begin, more, end, lambda _: kind, slide=lambda _: less, functions=functions)
