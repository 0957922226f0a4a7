"""Conditions asked of whole columns: see `compiler/rewriting/conditions`.

For every tuple of a batch a condition is true, is false, or fails. Where it fails for one, nothing is told here: then
the function is called, tuple by tuple, and says so itself. What is known of columns that are not read yet may say that
it is false, or true, for all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.compiler.rewriting.conditions import (
    Among,
    Compared,
    Condition,
    IsNull,
    IsTrue,
    Outcome,
    ReadValue,
    Test,
    combined,
)
from anabranch.engine.worker.batch import ColumnBatch
from anabranch.engine.worker.late_columns import ColumnFacts

_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_TEXT_ORDERS = {
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "==": pc.equal,
    "!=": pc.not_equal,
}
# What Python has times and dates for: from the year 1 to 9999.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_DAY = 86_400_000_000


class _NoAnswerError(Exception):
    """Columns cannot be asked: values were given to somebody, or Python has none for them."""


def held(condition: Condition, batch: ColumnBatch) -> np.ndarray | None:
    """For which tuples a condition is true; None if the function must be called."""
    if (known := known_for_all(condition, batch)) is not None:
        return np.full(len(batch), known)
    try:
        true, _, fails = combined(condition, _Asked(batch), lambda which: bool(which.any()))
    except _NoAnswerError:
        return None
    return None if fails.any() else true


def known_for_all(condition: Condition, batch: ColumnBatch) -> bool | None:
    """What a condition is for all tuples, if that is known without reading their columns."""
    true, false, fails = combined(condition, _Known(batch), bool)
    return None if fails or bool(true) == bool(false) else bool(true)


class _Known:
    """Asks tests of what is known: whether they may be true, may be false, may fail."""

    def __init__(self, batch: ColumnBatch) -> None:
        self._batch = batch

    def __call__(self, test: Test) -> Outcome[bool]:
        if isinstance(test, Compared):
            if isinstance(test.right, ReadValue) or test.left.by:
                return True, True, True
            found = self._of(test.left)
            true, false = self._orders(found, test.how, test.right, test.left)
            if test.how in ("==", "!="):
                null = found.may_be_null
                return true or (null and test.how == "!="), false or (null and test.how == "=="), self._fails(test.left)
            return true, false, found.may_be_null
        value, found = test.value, self._of(test.value)
        fails = self._fails(value)
        if isinstance(test, IsNull):
            return found.may_be_null, found.may_be_there, fails
        if isinstance(test, IsTrue) or value.by:
            return True, True, True
        equal = [self._orders(found, "==", each, value) for each in test.constants]
        true = any(each for each, _ in equal) or (test.has_null and found.may_be_null)
        surely = any(not other for _, other in equal) and (test.has_null or not found.may_be_null)
        return true, not surely, fails

    def _of(self, value: ReadValue) -> ColumnFacts:
        found = self._batch.facts(value.read.column, value.read.path)
        if found.least is not None and not _python_has(value.kind, found.least, found.most):
            return replace(found, least=None, most=None)  # whoever reads them meets what Python has no value for
        return found

    def _fails(self, value: ReadValue) -> bool:
        """Whether a struct may be null that the value is a field of: where the field is never null, none is."""
        return bool(value.read.path) and self._of(value).may_be_null

    def _orders(self, found: ColumnFacts, how: str, constant: Any, value: ReadValue) -> tuple[bool, bool]:
        """Whether a comparison with a constant may be true, and may be false, of values that are there."""
        if not found.may_be_there:
            return False, False
        if found.least is None:
            return True, True
        given = constant.encode() if isinstance(constant, str) else constant
        least, most = found.least, found.most
        true, false = {
            "<": (least < given, most >= given),
            "<=": (least <= given, most > given),
            ">": (most > given, least <= given),
            ">=": (most >= given, least < given),
            "==": (least <= given <= most, not least == given == most),
            "!=": (not least == given == most, least <= given <= most),
        }[how]
        if pa.types.is_floating(value.kind):  # it may be a NaN, which is in no bounds
            return true or how == "!=", false or how != "!="
        return true, false


class _Asked:
    """Asks tests of the columns of a batch."""

    def __init__(self, batch: ColumnBatch) -> None:
        self._batch = batch
        self._none = np.zeros(len(batch), dtype=bool)

    def __call__(self, test: Test) -> Outcome[np.ndarray]:
        if isinstance(test, Compared):
            return self._compared(test)
        value = test.value
        outer = self._is_outer_null(value)
        if isinstance(test, IsNull):
            null = self._is_null(value, value.read.path)
            return null & ~outer, ~null & ~outer, outer
        array = self._array(value)
        null = _nulls(array)
        if isinstance(test, IsTrue):
            true = _bits(array) & ~null
            return true, ~true & ~outer, outer
        assert isinstance(test, Among)
        if value.by:
            true, fails = self._is_one_of(test, array) & ~null, null
            return true, ~true & ~fails, fails
        true = self._is_one_of(test, array) & ~null
        if test.has_null:
            true |= null & ~outer
        return true, ~true & ~outer, outer

    def _is_one_of(self, test: Among, array: pa.Array) -> np.ndarray:
        if not test.constants:
            return self._none
        if pa.types.is_string(array.type) or pa.types.is_boolean(array.type):
            return _bits(pc.is_in(array, value_set=pa.array(test.constants, array.type)))
        numbers = _numbers(array, test.value.by)
        if len(test.constants) <= 4:
            return np.logical_or.reduce([numbers == each for each in test.constants])
        return np.isin(numbers, np.array(test.constants, dtype=numbers.dtype))

    def _compared(self, test: Compared) -> Outcome[np.ndarray]:
        left, right = test.left, test.right
        sides = [(left, self._array(left))]
        if isinstance(right, ReadValue):
            sides.append((right, self._array(right)))
        nulls = [_nulls(array) for _, array in sides]
        is_null = np.logical_or.reduce(nulls)
        true = self._orders(test, [array for _, array in sides]) & ~is_null
        if test.how not in ("==", "!="):
            return true, ~true & ~is_null, is_null
        fails = self._none
        for (value, _), null in zip(sides, nulls, strict=True):  # two that can be compared may be null
            fails = fails | (null if value.by else self._is_outer_null(value))
        same = nulls[0] & nulls[1] if len(nulls) == 2 else self._none
        true = true | (same if test.how == "==" else is_null & ~same)
        return true & ~fails, ~true & ~fails, fails

    def _orders(self, test: Compared, arrays: list[pa.Array]) -> np.ndarray:
        """How the values compare, where none is null."""
        first, *others = arrays
        if pa.types.is_string(first.type) or pa.types.is_boolean(first.type):
            other = others[0] if others else pa.scalar(test.right, first.type)
            return _bits(_TEXT_ORDERS[test.how](first, other))
        left = _numbers(first, test.left.by)
        right = _numbers(others[0], test.right.by) if others else test.right
        found: np.ndarray = _ORDERS[test.how](left, right)
        return found

    def _is_outer_null(self, value: ReadValue) -> np.ndarray:
        """Where a struct is null that the value is a field of."""
        if not value.read.path:
            return self._none
        return self._is_null(value, value.read.path[:-1])

    def _is_null(self, value: ReadValue, path: tuple[str, ...]) -> np.ndarray:
        """Where a column, or a field on the way to a value, is null."""
        found = self._batch.nulls(value.read.column, path)
        if found is None:
            raise _NoAnswerError
        return _bits(found)

    def _array(self, value: ReadValue) -> pa.Array:
        """The values; null where a struct on the way is."""
        array = self._batch.field(value.read.column, value.read.path)
        if array is None:
            raise _NoAnswerError
        _check(array)
        return array


def _check(array: pa.Array) -> None:
    """Fail where Python has no value for what a column holds: calls tell of which."""
    kind = array.type
    if pa.types.is_string(kind):
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise _NoAnswerError from None
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        numbers = _numbers(array, 0)
        if len(numbers) and not _python_has(kind, int(numbers.min()), int(numbers.max())):
            raise _NoAnswerError


def _python_has(kind: pa.DataType, least: Any, most: Any) -> bool:
    """Whether Python has values for what a column holds between two bounds: its times are of the years 1 to 9999."""
    if not pa.types.is_timestamp(kind) and not pa.types.is_date(kind):
        return True
    unit = _DAY if pa.types.is_timestamp(kind) else 1
    return bool(_FIRST_DAY * unit <= least and most < (_LAST_DAY + 1) * unit)


def _numbers(array: pa.Array, by: int) -> np.ndarray:
    """Numbers as they compare; anything where there is none."""
    kind = array.type
    if pa.types.is_floating(kind):
        filled = array.fill_null(0.0) if array.null_count else array
        return filled.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
    if pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    numbers = array.cast(pa.int64())
    found: np.ndarray = (numbers.fill_null(0) if numbers.null_count else numbers).to_numpy(zero_copy_only=False)
    return np.remainder(found, by) if by else found


def _bits(array: pa.Array) -> np.ndarray:
    """Booleans; False for null."""
    found: np.ndarray = (array.fill_null(False) if array.null_count else array).to_numpy(zero_copy_only=False)
    return found


def _nulls(array: pa.Array) -> np.ndarray:
    return _bits(array.is_null()) if array.null_count else np.zeros(len(array), dtype=bool)
