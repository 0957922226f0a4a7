"""Aggregation functions for `aggregate`: ``flow=agg.sum("flow")``.

Each is a few lines of Python that the aggregation puts into one generated method, so that a tuple costs one
call whatever is aggregated. Values are added in the order of the stream, so floating-point sums are those
of the sequential run, bit for bit. Nulls are skipped, as in SQL, except by `first`, `last`, `any` and
`collect`, which take what is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pyarrow as pa

from anabranch.errors import SchemaError

_NUMERIC = "a number"


@dataclasses.dataclass(frozen=True)
class Aggregation:
    """One aggregation: its state and the code that begins, adds and ends a window.

    The code is about `self.<state>`, where ``{s}`` and ``{u}`` stand for two state fields and ``{v}`` for
    the value of the attribute.
    """

    name: str
    attribute: str | None
    begin: str
    add: str
    result: str
    type_of: Callable[[pa.DataType], pa.DataType | None]
    wanted: str = "any type"
    forwards: bool = False

    def output_type(self, found: pa.DataType | None) -> pa.DataType:
        """The type of the result; SchemaError if the attribute's type does not fit."""
        kind = self.type_of(found if found is not None else pa.null())
        if kind is None:
            raise SchemaError(f"agg.{self.name}({self.attribute!r}): expected {self.wanted}, found a column of {found}")
        return kind

    def __str__(self) -> str:
        return f"{self.name}({self.attribute or ''})"


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


def sum(attribute: str) -> Aggregation:
    """The sum; null if every value was null. Integers stay integers, floats are added in stream order."""
    add = _IF_PRESENT + "self.{s} = {v} if self.{s} is None else self.{s} + {v}"
    return Aggregation("sum", attribute, "self.{s} = None", add, "self.{s}", _sum_type, _NUMERIC)


def count(attribute: str | None = None) -> Aggregation:
    """How many tuples; with an attribute, how many of them have it."""
    add = "self.{s} += 1" if attribute is None else _IF_PRESENT + "self.{s} += 1"
    return Aggregation("count", attribute, "self.{s} = 0", add, "self.{s}", lambda _: pa.int64())


def min(attribute: str) -> Aggregation:
    """The smallest value."""
    add = "if {v} is not None and (self.{s} is None or {v} < self.{s}):\n    self.{s} = {v}"
    return Aggregation("min", attribute, "self.{s} = None", add, "self.{s}", _ordered, "values with an order")


def max(attribute: str) -> Aggregation:
    """The largest value."""
    add = "if {v} is not None and (self.{s} is None or {v} > self.{s}):\n    self.{s} = {v}"
    return Aggregation("max", attribute, "self.{s} = None", add, "self.{s}", _ordered, "values with an order")


def avg(attribute: str) -> Aggregation:
    """The mean, as a double; null if every value was null."""
    begin = "self.{s} = 0; self.{u} = 0"
    add = _IF_PRESENT + "self.{s} += {v}; self.{u} += 1"
    result = "(float(self.{s}) / self.{u} if self.{u} else None)"

    def type_of(kind: pa.DataType) -> pa.DataType | None:
        return None if _sum_type(kind) is None else pa.float64()

    return Aggregation("avg", attribute, begin, add, result, type_of, _NUMERIC)


def first(attribute: str) -> Aggregation:
    """The value of the window's first tuple."""
    add = "if fresh:\n    self.{s} = {v}"
    return Aggregation("first", attribute, "self.{s} = None", add, "self.{s}", _same)


def last(attribute: str) -> Aggregation:
    """The value of the window's last tuple."""
    return Aggregation("last", attribute, "self.{s} = None", "self.{s} = {v}", "self.{s}", _same)


def any(attribute: str) -> Aggregation:
    """The value of any one of the window's tuples (the first's); says that all have the same."""
    return dataclasses.replace(first(attribute), name="any", forwards=True)


def collect(attribute: str) -> Aggregation:
    """All values, in order, as an array."""
    add = "self.{s}.append({v})"
    return Aggregation("collect", attribute, "self.{s} = []", add, "list(self.{s})", pa.list_)
