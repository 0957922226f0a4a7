"""Predicates that only compare whole numbers, or times with times, as operations on whole columns.

    lambda t: 10 <= t.price < 100 and t.kind != 3    ──►    (10 <= price) & (price < 100) & (kind != 3)

Python compares ints of any size exactly, and numpy those of 64 bits: where columns have no null and constants fit, both
say the same. Anything else is None here, and called tuple by tuple.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.program.schema import Schema
from anabranch.program.source_code import NoSource, tree_of

_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


@dataclasses.dataclass(frozen=True)
class NumberTest:
    """Comparisons that must all hold: (a column or a number, how they compare, a column or a number)."""

    comparisons: tuple[tuple[Any, Callable[[Any, Any], Any], Any], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are compared."""
        sides = [side for left, _, right in self.comparisons for side in (left, right)]
        return tuple(dict.fromkeys(side for side in sides if isinstance(side, str)))

    def of(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """For which tuples they hold."""
        parts = [
            compare(*(columns[side] if isinstance(side, str) else side for side in (left, right)))
            for left, compare, right in self.comparisons
        ]
        return functools.reduce(np.logical_and, parts)


def number_test(function: Any, schema: Schema) -> NumberTest | None:
    """A predicate as a test of columns; None if it is something else."""
    if not isinstance(function, types.FunctionType) or function.__defaults__ or function.__kwdefaults__:
        return None
    tree = tree_of(function)
    if not isinstance(tree, ast.Lambda) or isinstance(tree, NoSource) or hasattr(function, "__wrapped__"):
        return None
    arguments = tree.args
    if len(arguments.posonlyargs + arguments.args) != 1 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return None
    row = (arguments.posonlyargs + arguments.args)[0].arg
    parts = tree.body.values if isinstance(tree.body, ast.BoolOp) and isinstance(tree.body.op, ast.And) else [tree.body]
    found: list[tuple[Any, Callable[[Any, Any], Any], Any]] = []
    for part in parts:
        if not isinstance(part, ast.Compare):
            return None
        sides = [_side(each, row, schema) for each in [part.left, *part.comparators]]
        if None in sides or not any(isinstance(side, str) for side in sides):
            return None
        for left, how, right in zip(sides, part.ops, sides[1:], strict=False):
            if type(how) not in _OPERATIONS or not _are_comparable(left, right, schema):
                return None
            found.append((left, _OPERATIONS[type(how)], right))
    return NumberTest(tuple(found))


def _side(node: ast.expr, row: str, schema: Schema) -> str | int | None:
    match node:
        case ast.Constant(value=value) if type(value) is int and -(2**63) <= value < 2**63:
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) is int and value < 2**63:
            return -value
        case ast.Attribute(value=ast.Name(id=name), attr=column) if name == row and column in schema:
            kind = schema.type_of(column)
            return column if (pa.types.is_signed_integer(kind) or _is_time(kind)) and column[0] != "_" else None
    return None


def _is_time(kind: pa.DataType) -> bool:
    return kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))


def _are_comparable(left: Any, right: Any, schema: Schema) -> bool:
    """Whether one is a column, and both are whole numbers, or times of one kind."""
    times = [schema.type_of(side) for side in (left, right) if isinstance(side, str) and _is_time(schema.type_of(side))]
    if times:  # a time with a zone and one without cannot be compared
        return len(times) == 2 and times[0] == times[1]
    return isinstance(left, str) or isinstance(right, str)


def test_columns(test: NumberTest, arrays: Sequence[tuple[str, pa.Array | None]]) -> np.ndarray | None:
    """For which tuples a test holds; None if a column has nulls, or values that were given to somebody."""
    columns: dict[str, np.ndarray] = {}
    for name, array in arrays:
        if array is None or array.null_count:
            return None
        columns[name] = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return test.of(columns)
