"""The first tuples of each key, of all keys at once: see `operators/top_tuples`.

    tuples            keys as dense slots, what they are ranked by as whole numbers
    held  ─┐
    batch ─┴─► rows   what is held, and emitted, are numbers of rows: no tuple is made of any

The loop over tuples compares whole numbers; where one tuple of each key is held there is no loop. What comes out, and
what is held, is taken from the columns at its end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import (
    KeySlots,
    group_slots,
    is_ordered,
    note_null_tuples,
    numbers_of,
    running_maxima,
    starting,
)
from anabranch.engine.worker.timing import Stopwatch
from anabranch.operators.changes import DELETE, INSERT
from anabranch.operators.top_tuples import TopTuples
from anabranch.program.graph import Keyed, Node
from anabranch.state import state_columns
from anabranch.state.state_columns import StateBlock, lengths_of, lists, struct_of

Step = Callable[[Batch, Node], Batch]


def top_step(node: Node, table: Any, otherwise: Step, watch: Stopwatch | None = None) -> Step:
    """The step of `top`; `otherwise` is what takes tuples one by one."""
    logic = node.logic
    assert isinstance(logic, Keyed)
    if not isinstance(logic.prototype, TopTuples) or not node.key or logic.time_to_live_ms is not None:
        return otherwise
    if logic.method not in ("take", "take_ranked", "take_changes"):
        return otherwise
    types = node.inputs[0].schema.arrow.types
    if not all(is_ordered(types[place]) for place, _ in logic.prototype.rank.columns):  # type: ignore[attr-defined]
        return otherwise
    return TopStep(node, table, otherwise, watch)


class TopStep:
    """Takes batches over columns, or as they are."""

    def __init__(self, node: Node, table: Any, otherwise: Step, watch: Stopwatch | None) -> None:
        assert isinstance(node.logic, Keyed)
        self._top: Any = node.logic.prototype
        self._method = node.logic.method
        self._schema = node.inputs[0].schema
        self._places = [self._schema.names.index(name) for name in node.key]
        self._forms = {"held": state_columns.tuples(self._schema.arrow.types)}
        self._table = table
        self._otherwise = otherwise
        self._watch = watch

    def __call__(self, batch: Batch, node: Node) -> Batch:
        begun = self._watch.clock() if self._watch is not None else 0.0
        found = self._taken(batch, node) if isinstance(batch, ColumnBatch) and len(batch) else None
        if found is None:
            return self._otherwise(batch, node)
        if self._watch is not None:
            self._watch.share(self._watch.clock() - begun, len(batch))
        return found

    def _taken(self, batch: ColumnBatch, node: Node) -> Batch | None:
        slots = group_slots(batch, self._places, self._top.guard.null_key)
        columns = [batch.untouched(at) for at in range(len(self._schema.names))]
        if slots is None or any(column is None for column in columns):
            return None
        state = self._table.columns(slots.keys, self._forms)
        if state is None:
            return None
        held = state.arrays["held"]
        many = lengths_of(held)
        before = int(many.sum())
        # What is held, then what came: rows are numbered through both.
        had = held.flatten().flatten()
        rows = [pa.concat_arrays([one, other]) for one, other in zip(had, columns, strict=True)]
        codes = self._codes(rows)
        if codes is None or (len(many) and int(many.max()) > self._top.count):
            self._table.put(StateBlock(slots.keys, self._forms, state.arrays, ~state.found).kept(state.moved))
            return None
        note_null_tuples(self._top.operator_name, batch, self._top.guard)
        if self._top.count == 1 and self._method == "take":
            entered, tops = _best(slots, codes, many)
            self._keep(slots, many | 1, tops, rows, (tops >= before) | state.moved)
            return _made(node, batch, rows, entered + before, entered)
        ends = np.cumsum(many).tolist()
        held_by = [list(range(end - count, end)) for end, count in zip(ends, many.tolist(), strict=True)]
        first = codes[:before].tolist()
        ranked = [[first[row] for row in rows_of] for rows_of in held_by]
        emitting = _Emitting(self._method, self._top.count, held_by, ranked)
        changed = emitting.take(slots.of.tolist(), codes[before:].tolist(), before)
        lengths = np.array([len(each) for each in held_by], dtype=np.int64)
        chosen = np.array(list(chain.from_iterable(held_by)), dtype=np.int64)
        self._keep(slots, lengths, chosen, rows, changed | state.moved)
        return _made(node, batch, rows, emitting.rows, emitting.tuples, emitting.more)

    def _codes(self, rows: Sequence[pa.Array]) -> np.ndarray | None:
        """What tuples are ranked by, as whole numbers in that order."""
        found: list[np.ndarray] = []
        for place, down in self._top.rank.columns:
            numbers = numbers_of(rows[place])
            if numbers is None:
                return None
            values = numbers[0].values
            valid = numbers[0].valid
            if valid is not None:  # nulls come first
                _, values = np.unique(values, return_inverse=True)
                values = np.where(valid, values + 1, 0)
            found.append(~values if down else values)
        if len(found) == 1:
            return found[0]
        order = np.lexsort(found[::-1])
        differs = np.zeros(len(order), dtype=bool)
        for values in found:
            ordered = values[order]
            differs[1:] |= ordered[1:] != ordered[:-1]
        codes = np.empty(len(order), dtype=np.int64)
        codes[order] = np.cumsum(differs)
        return codes

    def _keep(
        self, slots: KeySlots, lengths: np.ndarray, tops: np.ndarray, rows: Sequence[pa.Array], changed: np.ndarray
    ) -> None:
        """Change the state: `tops` are the rows that slots hold, so many each."""
        places = np.flatnonzero(changed)
        chosen = pa.array(tops[np.repeat(changed, lengths)])
        inner = struct_of(self._forms["held"], [column.take(chosen) for column in rows])
        keys = [slots.keys[place] for place in places.tolist()]
        held = {"held": lists(lengths[places], inner)}
        self._table.put(StateBlock(keys, self._forms, held, np.zeros(len(keys), dtype=bool)))


def _best(slots: KeySlots, codes: np.ndarray, many: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where one tuple of each key is held: which tuples take the place of one, and the row that each slot holds then.

    A tuple does if nothing of its key before it ranks as high: the running maximum rises there.
    """
    before = len(codes) - len(slots.of)
    of = np.concatenate([np.repeat(np.arange(len(many)), many), slots.of])
    order = np.argsort(of, kind="stable")
    ordered = of[order]
    is_start = starting(ordered)
    highest, _ = running_maxima(ordered, np.flatnonzero(is_start), ~codes[order])
    rises = is_start.copy()
    rises[1:] |= highest[1:] > highest[:-1]
    rows = order[rises]
    tops = np.empty(len(many), dtype=np.int64)
    tops[ordered[rises]] = rows  # the last of each slot stays
    return np.sort(rows[rows >= before]) - before, tops


class _Emitting:
    """The loop over tuples: `tops` has the rows that each slot holds, `ranked` what they are ranked by."""

    def __init__(self, method: str, count: int, tops: list[list[int]], ranked: list[list[int]]) -> None:
        self._method = method
        self._count = count
        self._tops = tops
        self._ranked = ranked
        self.rows: list[int] = []  # what comes out
        self.tuples: list[int] = []  # for which tuple
        self.more: list[Any] = []  # the value of the column more, if there is one

    def take(self, slots: Sequence[int], codes: Sequence[int], before: int) -> np.ndarray:
        """Take the tuples; which slots hold others now."""
        count, tops, ranked = self._count, self._tops, self._ranked
        changed = np.zeros(len(tops), dtype=bool)
        is_ranked, is_changes = self._method == "take_ranked", self._method == "take_changes"
        rows, tuples, more = self.rows, self.tuples, self.more
        entered: list[int] = []
        for at, (slot, code) in enumerate(zip(slots, codes, strict=True)):
            mine = ranked[slot]
            if len(mine) == count and code >= mine[-1]:
                continue
            place = bisect_right(mine, code)
            top = tops[slot]
            entered.append(slot)
            if is_changes and len(mine) == count:
                rows.append(top[-1])
                tuples.append(at)
                more.append(DELETE)
            mine.insert(place, code)
            top.insert(place, before + at)
            del mine[count:], top[count:]
            if is_ranked:
                out = top[place:]
                rows += out
                tuples += [at] * len(out)
                more += range(place + 1, len(top) + 1)
            else:
                rows.append(before + at)
                tuples.append(at)
                if is_changes:
                    more.append(INSERT)
        changed[entered] = True
        return changed


def _made(
    node: Node,
    batch: ColumnBatch,
    rows: Sequence[pa.Array],
    chosen: Sequence[int] | np.ndarray,
    tuples: Sequence[int] | np.ndarray,
    more: Sequence[Any] = (),
) -> Batch:
    """What comes out: rows, for which tuple each, and the value of the column more, if there is one."""
    if len(tuples) == len(batch) and len(rows) == len(node.schema.names):  # each tuple is what comes out for it
        return ColumnBatch(node.schema, batch.any_positions, [batch.array(at) for at in range(len(rows))])
    arrays = [column.take(pa.array(chosen, pa.int64())) for column in rows]
    if len(arrays) < len(node.schema.names):
        arrays.append(pa.array(more, node.schema.arrow.field(len(arrays)).type))
    placed = batch.position_array[np.array(tuples, dtype=np.int64)]
    return ColumnBatch(node.schema, placed, arrays)
