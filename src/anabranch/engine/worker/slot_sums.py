"""Users' running sums, of all keys of a batch at once: every key's order of summation is that of its tuples.

    tuples by key   a a a │ b b │ c …      few of a key: a round adds the first of each key, then the second of each
    sums            1 3 6 │ 4 9 │ 2 …      that has one, … ; many of a key: one cumulative sum, from its first on

Numbers are 64-bit floats, which whole columns add, multiply and divide bit by bit as Python does, and whole numbers for
which no result leaves 64 bits (or 53, where they become floats to be divided). Where one value is anything else — null,
a bool, infinite, not a number, a division by zero — nothing was done yet, and tuples are taken one by one.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.compiler.rewriting.slot_folds import Added, Given, Local, SlotFold, column_of, field_of
from anabranch.engine.worker.batch import ColumnBatch
from anabranch.engine.worker.key_slots import running_sums

ROWS_MIN = 256
"""Of fewer tuples a loop is done sooner."""
_ROUNDS = 48
"""A key with more tuples than this in a batch has a sum of its own."""
_LIMIT = 2**62
_EXACT_LIMIT = 2**53


class _UnfitError(Exception):
    """Tuples must be taken one by one."""


class SlotSums:
    """The sums of a batch.

    Parameters
    ----------
    batch : ColumnBatch
    slots : numpy array
        The slot of each tuple.
    values : sequence of list
        The state: field → slot → value.
    """

    def __init__(self, batch: ColumnBatch, slots: np.ndarray, values: Sequence[list[Any]]) -> None:
        self._batch = batch
        self._values = values
        distinct, of = _dense(slots)
        small = of.astype(np.uint16) if len(distinct) <= 1 << 16 else of  # these are sorted in linear time
        self._slots: list[int] = distinct.tolist()
        self._of = of
        self._order = np.argsort(small, kind="stable")
        self._counts = np.bincount(of, minlength=len(distinct))
        self._starts = np.cumsum(self._counts) - self._counts
        self._columns: dict[int, np.ndarray] = {}
        self._locals: dict[str, Any] = {}
        self._fields: dict[int, np.ndarray] = {}

    def run(self, fold: SlotFold, kinds: Mapping[int, pa.DataType]) -> dict[int, pa.Array] | None:
        """The columns that are computed, of these types; the state is changed. None: nothing was done."""
        given: dict[int, pa.Array] = {}
        sums: dict[int, np.ndarray] = {}
        try:
            with np.errstate(all="ignore"):
                for step in fold:
                    value = self._value(step.value)
                    if isinstance(step, Added):
                        sums[step.field] = self._added(step, value)
                    elif isinstance(step, Local):
                        self._locals[step.name] = value
                    else:
                        given[step.output] = self._given(step, value, kinds[step.output])
        except _UnfitError:
            return None
        ends = self._starts + self._counts - 1
        for field, by_key in sums.items():
            held = self._values[field]
            for slot, last in zip(self._slots, by_key[ends].tolist(), strict=True):
                held[slot] = last
        return given

    def _given(self, step: Given, value: Any, kind: pa.DataType) -> pa.Array:
        if kind != (pa.float64() if value.dtype.kind == "f" else pa.int64()):
            raise _UnfitError
        return pa.array(np.broadcast_to(value, len(self._of)))

    # -- arithmetic -------------------------------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=number):
                return np.array(number)
            case ast.UnaryOp(operand=operand):
                found = self._value(operand)
                if found.dtype.kind == "i":
                    _small(found, _LIMIT)
                return -found
            case ast.BinOp(left=left, op=op, right=right):
                return _computed(op, self._value(left), self._value(right))
            case ast.Name(id=name) if name in self._locals:
                return self._locals[name]
        column = column_of(node)
        if column is not None:
            return self._column(column)
        field = field_of(node)
        assert field is not None
        if field not in self._fields:  # only read
            self._fields[field] = self._begun(field, None)[self._of]
        return self._fields[field]

    def _column(self, at: int) -> np.ndarray:
        if at not in self._columns:
            array = self._batch.untouched(at)
            if array is None or array.null_count:
                raise _UnfitError
            if pa.types.is_signed_integer(array.type):
                self._columns[at] = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            elif array.type == pa.float64():
                self._columns[at] = _finite(array.to_numpy(zero_copy_only=False))
            else:
                raise _UnfitError
        return self._columns[at]

    # -- sums -------------------------------------------------------------------------------------------------------

    def _begun(self, field: int, kind: str | None) -> np.ndarray:
        """What keys have before the batch, as numbers; to be added to with numbers of a kind."""
        held = self._values[field]
        values = [held[slot] for slot in self._slots]
        kinds = set(map(type, values))
        if kinds == {float} or (kinds == {int, float} and kind == "f"):
            return _finite(_numbers(values, np.float64))
        if kinds != {int}:
            raise _UnfitError
        whole = _numbers(values, np.int64)
        return whole.astype(np.float64) if kind == "f" else whole

    def _added(self, step: Added, value: Any) -> np.ndarray:
        """The sums behind each tuple, by key; how they stand in the batch is noted."""
        begun = self._begun(step.field, value.dtype.kind)
        if begun.dtype.kind == "f":
            value = value.astype(np.float64, copy=False)  # before its sign is turned: there is a zero below zero then
        if step.is_taken_off:
            if value.dtype.kind == "i":
                _small(value, _LIMIT)
            value = -value
        value = np.broadcast_to(value, len(self._of))[self._order]
        if begun.dtype.kind == "i":
            most = max(abs(int(value.min())), abs(int(value.max()))) * len(value)
            if most + max(abs(int(begun.min())), abs(int(begun.max()))) >= _LIMIT:
                raise _UnfitError
            sums = running_sums(self._of[self._order], self._starts, value, begun)
        else:
            sums = _finite(self._float_sums(value, begun))
        found = np.empty_like(sums)
        found[self._order] = sums
        self._fields[step.field] = found
        return sums

    def _float_sums(self, value: np.ndarray, begun: np.ndarray) -> np.ndarray:
        sums = np.empty_like(value)
        by_count = np.argsort(-self._counts, kind="stable")
        falling = -self._counts[by_count]
        heavy = int(np.searchsorted(falling, -_ROUNDS))
        for key in by_count[:heavy].tolist():
            start = int(self._starts[key])
            own = value[start : start + int(self._counts[key])].copy()
            own[0] = begun[key] + own[0]
            np.cumsum(own, out=sums[start : start + len(own)])
        light = by_count[heavy:]
        reached, places = begun[light], self._starts[light]
        falling = falling[heavy:]
        for number in range(int(-falling[0]) if len(light) else 0):
            count = int(np.searchsorted(falling, -number))  # how many have more tuples than that
            at = places[:count] + number
            reached = reached[:count] + value[at]
            sums[at] = reached
        return sums


def _dense(slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct slots, and of each tuple which of them it has."""
    present = np.zeros(int(slots.max()) + 1, dtype=bool)
    present[slots] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[slots]


def _numbers(values: Sequence[Any], kind: Any) -> np.ndarray:
    try:
        return np.array(values, dtype=kind)
    except OverflowError:
        raise _UnfitError from None


def _computed(op: ast.operator, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """What Python gives for each pair."""
    if left.dtype.kind == "i" and right.dtype.kind == "i":
        if isinstance(op, ast.Div):
            _small(left, _EXACT_LIMIT)
            _small(right, _EXACT_LIMIT)
        else:
            most, other = _most(left), _most(right)
            if (most * other if isinstance(op, ast.Mult) else most + other) >= _LIMIT:
                raise _UnfitError
    if isinstance(op, ast.Div):
        if not right.all():
            raise _UnfitError
        return _finite(left / right)
    if isinstance(op, ast.Mult):
        found = left * right
    else:
        found = left + right if isinstance(op, ast.Add) else left - right
    return _finite(found) if found.dtype.kind == "f" else found


def _most(values: np.ndarray) -> int:
    return max(abs(int(values.min())), abs(int(values.max())))


def _small(values: np.ndarray, limit: int) -> None:
    if _most(values) >= limit:
        raise _UnfitError


def _finite(values: np.ndarray) -> np.ndarray:
    if not np.isfinite(values).all():
        raise _UnfitError
    return values
