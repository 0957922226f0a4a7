"""Aggregations of windows and sessions as folds over columns, and their results and state as columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.key_slots import (
    INT_LIMIT,
    Numbers,
    fits_sum,
    is_number,
    is_ordered,
    numbers_of,
    starting,
)
from anabranch.operators.aggregation import Shape
from anabranch.operators.shared_windows import CLOSE
from anabranch.program.schema import Schema

# Timestamps are kept within the years that Python has.
_STAMPS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_KINDS = ("count", "sum", "avg", "min", "max", "bound start", "bound end", "bound time", "bound emission")


def has_time(schema: Schema, attribute: str) -> bool:
    """Whether a column has times that are computed with here."""
    kind = schema.type_of(attribute)
    return is_number(kind) or kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC"))


def are_foldable(measures: Sequence[tuple[str, str | None, int]], schema: Schema) -> bool:
    """Whether aggregations are folds of types that are computed with here."""
    for name, attribute, _ in measures:
        found = None if attribute is None else schema.type_of(attribute)
        if name not in _KINDS or (name in ("sum", "avg") and not is_number(found)):
            return False
        if name in ("min", "max") and not is_ordered(found):
            return False
    return True


def held_kinds(measure: tuple[str, str | None, int], schema: Schema) -> list[pa.DataType]:
    """The types of the two places of an aggregation's state."""
    name, attribute, _ = measure
    own = schema.type_of(attribute) if attribute is not None and name in ("min", "max") else pa.int64()
    return [own, pa.int64()]


def result_columns(
    schema: Schema,
    shape: Shape,
    keys: Sequence[Any],
    slots: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
    totals: Sequence[Fold],
) -> list[pa.Array] | None:
    """The results of windows of some keys; None if a time is beyond what its column can have."""
    parts = [keys] if len(shape.key) == 1 else list(zip(*keys, strict=True))
    taken = pa.array(slots)
    columns = [pa.array(values, schema.arrow.field(at).type).take(taken) for at, values in enumerate(parts)]
    for at, fold in enumerate(totals, start=len(columns)):
        kind = schema.arrow.field(at).type
        if not fold.name.startswith("bound"):
            columns.append(fold.results().cast(kind))
            continue
        if fold.name == "bound emission":
            columns.append(pa.repeat(CLOSE, len(slots)))
            continue
        times = {"bound start": begins, "bound end": ends, "bound time": ends - 1}[fold.name]
        is_stamp = pa.types.is_timestamp(kind)
        low, high = _STAMPS if is_stamp else (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
        if len(times) and not (low <= int(times.min()) and int(times.max()) <= high):
            return None
        columns.append(pa.array(times).cast(kind))
    return columns


@dataclasses.dataclass
class Fold:
    """One aggregation: a number for each of some rows, and how many of the tuples behind it count."""

    name: str
    values: np.ndarray | None = None
    counts: np.ndarray | None = None
    numbers: Numbers | None = None

    @classmethod
    def of(
        cls, name: str, array: pa.Array | None, mask: np.ndarray | None, before: Sequence[pa.Array], count: int
    ) -> Fold | None:
        """For what the state had, in its two places, then for tuples; None if sums may leave 64 bits."""
        firsts, seconds = before
        valid = None
        if array is not None and array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        present = np.ones(count, dtype=bool) if valid is None else valid
        present = present if mask is None else present & mask
        if name == "count":
            return cls(name, None, np.concatenate([_whole_numbers(firsts), present.astype(np.int64)]))
        some = firsts.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        counts = np.concatenate([_whole_numbers(seconds) if name == "avg" else some, present.astype(np.int64)])
        is_extreme = name in ("min", "max")
        found = numbers_of(array if array is None or not is_extreme else pa.concat_arrays([firsts, array]))
        if found is None:
            return None
        numbers, _ = found
        if is_extreme:
            values = np.where(counts > 0, numbers.values, 0)
        else:
            had = _whole_numbers(firsts)
            if not fits_sum(numbers.values, had.tolist()) or np.abs(had.astype(np.float64)).sum() >= INT_LIMIT / 2:
                return None
            values = np.concatenate([had, np.where(present, numbers.values, 0)])
        return cls(name, values, counts, numbers)

    def over(self, rows: np.ndarray, group: np.ndarray, count: int) -> Fold:
        """For groups of rows: which rows, and the group of each."""
        if self.counts is None:
            return self
        order = np.argsort(group, kind="stable")
        starts = np.flatnonzero(starting(group[order]))
        counts = np.add.reduceat(self.counts[rows][order], starts) if len(starts) else np.empty(0, dtype=np.int64)
        if self.values is None:
            return dataclasses.replace(self, counts=counts)
        values = self.values[rows][order]
        if self.name in ("min", "max"):
            ends = np.iinfo(np.int64)
            values = np.where(self.counts[rows][order] > 0, values, ends.max if self.name == "min" else ends.min)
        best: np.ufunc = {"min": np.minimum, "max": np.maximum}.get(self.name, np.add)
        found = best.reduceat(values, starts) if len(starts) else np.empty(0, dtype=np.int64)
        return dataclasses.replace(self, values=found, counts=counts)

    def taken(self, order: np.ndarray) -> Fold:
        values = None if self.values is None else self.values[order]
        return dataclasses.replace(self, values=values, counts=None if self.counts is None else self.counts[order])

    def results(self) -> pa.Array:
        """The results."""
        assert self.counts is not None
        if self.values is None:
            return pa.array(self.counts)
        missing = self.counts == 0
        if self.name == "avg":
            return pa.array(self.values.astype(np.float64) / np.maximum(self.counts, 1), mask=missing)
        assert self.numbers is not None
        if self.name == "sum":
            return pa.array(self.values, mask=missing)
        return self.numbers.column(np.where(missing, 0, self.values), missing)

    def held(self) -> list[pa.Array]:
        """The two places of its state, for each row."""
        assert self.counts is not None
        nothing = pa.nulls(len(self.counts), pa.int64())
        if self.name == "count":
            return [pa.array(self.counts), nothing]
        if self.name == "avg":
            assert self.values is not None
            return [pa.array(self.values), pa.array(self.counts)]
        return [self.results(), nothing]


def _whole_numbers(column: pa.Array) -> np.ndarray:
    """A column of numbers of 64 bits; 0 where it is null."""
    found: np.ndarray = column.fill_null(0).to_numpy(zero_copy_only=False)
    return found
