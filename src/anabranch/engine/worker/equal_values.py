"""The tuples of a batch that are equal in what a function reads: it is called for the first of each.

    url     a b a a c b        codes   0 1 0 0 2 1        firsts  0 1 4        three calls, in the order of the tuples

So the first call that fails is that of the first tuple for which it would fail.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.compiler.rewriting.over_columns import ColumnCode, Read
from anabranch.engine.worker.batch import ColumnBatch
from anabranch.engine.worker.key_slots import INT_LIMIT
from anabranch.program.schema import to_values

SAMPLE = 1024
"""Tuples that are looked at first: if half of them differ, so do most of the others."""


@dataclasses.dataclass
class EqualValues:
    """Which tuples are equal.

    Attributes
    ----------
    codes : numpy array
        For each tuple, which of the distinct ones it is.
    firsts : numpy array
        Of each distinct one, the first tuple.
    columns : list of list
        What is read, of each distinct one.
    """

    codes: np.ndarray
    firsts: np.ndarray
    columns: list[list[Any]]

    def spread(self, values: pa.Array) -> pa.Array:
        """A value for each tuple, from one for each distinct one."""
        return values.take(pa.array(self.codes))


def equal_values(code: ColumnCode, function: Callable[..., Any], batch: ColumnBatch) -> EqualValues | None:
    """Which tuples of a batch a function need not tell apart; None if it must be called for each."""
    if code.equal is None or not code.reads or len(batch) < SAMPLE:
        return None
    arrays = [_array(batch, read) for read in code.reads]
    known = [each for each in arrays if each is not None]
    if len(known) < len(arrays):
        return None
    units = [code.unit_of(at) for at in range(len(arrays))]
    sample = _codes([_numbered(array.slice(0, SAMPLE), unit) for array, unit in zip(known, units, strict=True)])
    if sample is None or 2 * (int(sample.max()) + 1) > SAMPLE or not code.equal.holds(function):
        return None
    codes = _codes([_numbered(array, unit) for array, unit in zip(known, units, strict=True)])
    if codes is None:
        return None
    firsts = np.empty(int(codes.max()) + 1, dtype=np.int64)
    firsts[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    chosen = pa.array(firsts)
    return EqualValues(codes, firsts, [to_values(array.take(chosen)) for array in known])


def _array(batch: ColumnBatch, read: Read) -> pa.Array | None:
    """What a function reads, if its values cannot be changed."""
    if read.is_null:
        return batch.nulls(read.column)
    found = batch.field(read.column, read.path)
    return None if found is None or pa.types.is_nested(found.type) else found


def _numbered(array: pa.Array, unit: int | None) -> pa.Array:
    """The values, or what tells them apart."""
    kind = array.type
    if pa.types.is_float64(kind):  # by their bits: of two zeros, one may be negative
        return array.view(pa.int64())
    if unit is not None and pa.types.is_timestamp(kind):
        micros = array.cast(pa.int64())
        numbers = micros.fill_null(0).to_numpy(zero_copy_only=False) // unit
        return pa.array(numbers, mask=array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None)
    return array


def _codes(columns: Sequence[pa.Array]) -> np.ndarray | None:
    """Equal numbers for equal tuples, in the order in which they first come."""
    codes: np.ndarray | None = None
    size = 1
    for array in columns:
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if codes is None:
            codes, size = numbers, len(encoded.dictionary)
            continue
        if size * len(encoded.dictionary) > INT_LIMIT:
            return None
        both = pa.array(codes * len(encoded.dictionary) + numbers).dictionary_encode()
        codes, size = both.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(both.dictionary)
    return codes
