"""Running aggregates of updates, of all keys at once: each tuple takes the place of the one before it, of its key, that
it replaces (`running(latest_of=…)`).

    what keys hold  (a, 1) 5   (a, 2) 7
    tuples          (a, 1) 6   (b, 1) 2   (a, 1) 9      a tuple adds what it has, less what the row before it of the
    differences          +1         +2         +3       same key and name had: so sums are running sums of differences

Only where taking a tuple out again gives what never adding it had given, which is so for counts and sums of whole
numbers. What keys hold stays in the order in which each of it first came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import INT_LIMIT, KeySlots, fits_sum, is_key, is_number, running_sums
from anabranch.engine.worker.running_columns import RunningColumn, RunningStep, Step, differs, forms_of
from anabranch.engine.worker.timing import Stopwatch
from anabranch.operators.aggregation import Aggregate, Shape
from anabranch.operators.running_windows import RunningWindow
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import Schema
from anabranch.state import state_columns
from anabranch.state.state_columns import StateColumns, lengths_of, lists, struct_of

_NUMBERS_LIMIT = 2**60
"""Differences of numbers below this are numbers of 64 bits."""


def latest_step(node: Node, table: Any, otherwise: Step, watch: Stopwatch | None = None) -> Step:
    """The step of a running aggregate of updates; `otherwise` is what takes tuples one by one."""
    logic = node.logic
    assert isinstance(logic, Keyed)
    shape, schema = getattr(type(logic.prototype), "shape", None), node.inputs[0].schema
    if shape is None or not isinstance(logic.prototype, Aggregate) or not _can(shape, schema):
        return otherwise
    names, items = ([schema.type_of(name) for name in chosen] for chosen in _held(shape))
    forms = {**forms_of(shape.measures, schema), "held": state_columns.mapping(names, items)}
    fields = [field.name for field in logic.fields]
    if logic.time_to_live_ms is not None or not set(fields) <= set(forms):
        return otherwise
    own = {name: forms[name] for name in fields}
    return LatestStep(shape, type(logic.prototype), own, table, otherwise, watch)


def _held(shape: Shape) -> tuple[tuple[str, ...], list[str]]:
    """The columns that tell what replaces what, and those that aggregations need of it."""
    assert isinstance(shape.window, RunningWindow)
    needed = [attribute for _, attribute, _ in shape.measures if attribute is not None]
    return shape.window.latest_of, list(dict.fromkeys(needed))


def _can(shape: Shape, schema: Schema) -> bool:
    window = shape.window
    if not isinstance(window, RunningWindow) or not window.latest_of or window.deleted is not None:
        return False
    if not shape.is_plain or not shape.key:
        return False
    for name, attribute, test in shape.measures:
        if test >= 0 or name not in ("count", "sum", "avg"):
            return False
        if name != "count" and not is_number(schema.type_of(attribute or "")):
            return False
    return all(is_key(schema.type_of(name)) for chosen in _held(shape) for name in chosen)


class LatestStep(RunningStep):
    """Takes batches over columns, or as they are."""

    def _taken(self, batch: ColumnBatch, node: Node) -> Batch | None:
        # Here it is known whether all columns are at hand; else nothing was done yet.
        names = {name for chosen in _held(self._shape) for name in chosen}
        if any(batch.untouched(batch.schema.names.index(name)) is None for name in names):
            return None
        return super()._taken(batch, node)

    def _made(
        self,
        batch: ColumnBatch,
        slots: KeySlots,
        state: StateColumns,
        is_open: np.ndarray,
        arrays: Sequence[pa.Array | None],
        masks: Sequence[np.ndarray],
    ) -> list[RunningColumn] | None:
        held = state.arrays["held"]
        had = held.flatten().flatten()
        rows_of = np.concatenate([np.repeat(np.arange(len(held)), lengths_of(held)), slots.of])
        latest_of, items = _held(self._shape)
        names = batch.schema.names
        columns = [
            pa.concat_arrays([before, batch.array(names.index(name))])
            for before, name in zip(had, [*latest_of, *items], strict=True)
        ]
        rows = _Rows.of(rows_of, columns[: len(latest_of)], len(rows_of) - len(slots.of))
        if rows is None:
            return None
        made: list[RunningColumn] = []
        for at, (name, attribute, _) in enumerate(self._shape.measures):
            column = None if attribute is None else columns[len(latest_of) + items.index(attribute)]
            found = _Differences(slots, state, is_open, at, rows, column).of(name)
            if found is None:
                return None
            made.append(found)
        made[0].state["held"] = self._left(rows, columns, len(latest_of), len(slots.keys))
        return made

    def _left(self, rows: _Rows, columns: Sequence[pa.Array], count: int, keys: int) -> pa.Array:
        """What keys hold now: the names as they first came, what was needed of the last."""
        order = np.lexsort([rows.firsts, rows.slots[rows.firsts]])
        firsts, lasts = rows.firsts[order], rows.lasts[order]
        taken = [column.take(pa.array(firsts if at < count else lasts)) for at, column in enumerate(columns)]
        lengths = np.bincount(rows.slots[firsts], minlength=keys)
        return lists(lengths, struct_of(self._forms["held"], taken))


class _Rows:
    """What keys held, then the tuples in their order.

    Attributes
    ----------
    slots : numpy array
        The key of each.
    count : int
        How many keys held.
    replaced : numpy array
        Of each tuple the row that it takes the place of; -1: none.
    firsts, lasts : numpy array
        The first and the last row of each name of a key.
    """

    def __init__(self, slots: np.ndarray, codes: np.ndarray, count: int) -> None:
        self.slots = slots
        self.count = count
        order = np.argsort(codes, kind="stable")
        is_same = codes[order][1:] == codes[order][:-1]
        before = np.full(len(codes), -1)
        before[order[1:][is_same]] = order[:-1][is_same]
        self.replaced = before[count:]
        self.firsts = order[np.concatenate([[True], ~is_same])]
        self.lasts = order[np.concatenate([~is_same, [True]])]

    @classmethod
    def of(cls, slots: np.ndarray, names: Sequence[pa.Array], count: int) -> _Rows | None:
        """Of rows with a key and names each; None if they are too many to tell apart by numbers."""
        codes, size = slots, int(slots.max()) + 1
        for column in names:
            encoded = pc.dictionary_encode(column, null_encoding="encode")
            many = max(1, len(encoded.dictionary))
            if size * many > INT_LIMIT:
                return None
            codes = codes * many + encoded.indices.to_numpy(zero_copy_only=False)
            size *= many
        return cls(slots, codes, count)


class _Differences:
    """One aggregation over a batch."""

    def __init__(
        self,
        slots: KeySlots,
        state: StateColumns,
        is_open: np.ndarray,
        at: int,
        rows: _Rows,
        column: pa.Array | None,
    ) -> None:
        self._slots = slots
        self._state = state
        self._is_open = is_open
        self._first, self._second = f"a{at}", f"b{at}"
        self._rows = rows
        self._column = column

    def of(self, name: str) -> RunningColumn | None:
        column = self._column
        valid = np.ones(len(self._rows.slots), dtype=np.int64)
        if column is not None and column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
        if name == "count":
            counts = self._sums(valid, self._first)
            if counts is None:
                return None
            return RunningColumn(lambda at: pa.array(counts[at]), differs(counts), {self._first: self._lasts(counts)})
        assert column is not None
        values = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        sums, some = self._sums(values, self._first), self._sums(valid, self._second)
        if sums is None or some is None:
            return None
        missing = some == 0
        # A whole number becomes a float as Python has it: the nearest, of two the even.
        results = sums if name == "sum" else sums.astype(np.float64) / np.maximum(some, 1)
        state = {self._first: self._lasts(sums), self._second: self._lasts(some)}
        changes = differs(results) | differs(missing)
        return RunningColumn(lambda at: pa.array(results[at], mask=missing[at]), changes, state)

    def _sums(self, values: np.ndarray, field: str) -> np.ndarray | None:
        """Behind each tuple, by slot, the sum of what its key holds; None if it may leave 64 bits."""
        if not -_NUMBERS_LIMIT < int(values.min()) <= int(values.max()) < _NUMBERS_LIMIT:
            return None
        before = self._rows.replaced
        changed = values[self._rows.count :] - np.where(before < 0, 0, values[before])
        begun = self._state.arrays[field].fill_null(0).to_numpy(zero_copy_only=False)
        begun = np.where(self._is_open, begun, 0)
        if not fits_sum(changed, (int(begun.min()), int(begun.max()))):
            return None
        return running_sums(self._slots.sorted, self._slots.starts, changed[self._slots.order], begun)

    def _lasts(self, values: np.ndarray) -> pa.Array:
        return pa.array(values[self._slots.ends])
