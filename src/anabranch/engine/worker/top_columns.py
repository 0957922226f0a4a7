"""The first tuples of each key, of all keys at once: see `operators/top_tuples`.

    tuples            keys as dense slots, what they are ranked by as whole numbers
    held  ─┐
    batch ─┴─► rows   what is held, and emitted, are numbers of rows: no tuple is made of any

The loop over tuples compares whole numbers. What comes out, and what is held, is taken from the columns at its end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import KeySlots, is_ordered, key_slots, numbers_of
from anabranch.engine.worker.timing import Stopwatch
from anabranch.operators.changes import DELETE, INSERT
from anabranch.operators.top_tuples import TopTuples
from anabranch.program.graph import Keyed, Node
from anabranch.state import state_columns
from anabranch.state.state_columns import StateBlock, lengths_of, lists, struct_of

Step = Callable[[Batch, Node], Batch]
_LAST = 2**64  # behind all numbers of 64 bits


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
        slots = key_slots(batch, self._places)
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
        ends = np.cumsum(many).tolist()
        tops = [list(range(end - count, end)) for end, count in zip(ends, many.tolist(), strict=True)]
        first = codes[:before].tolist()
        ranked = [[first[row] for row in rows_of] for rows_of in tops]
        emitting = _Emitting(self._method, self._top.count, tops, ranked)
        changed = emitting.take(slots.of.tolist(), codes[before:].tolist(), before)
        self._keep(slots, tops, rows, changed | state.moved)
        return emitting.batch(node, batch, rows, before)

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
        self, slots: KeySlots, tops: Sequence[Sequence[int]], rows: Sequence[pa.Array], changed: np.ndarray
    ) -> None:
        """Change the state."""
        places = np.flatnonzero(changed).tolist()
        kept = [tops[place] for place in places]
        chosen = pa.array(list(chain.from_iterable(kept)), pa.int64())
        inner = struct_of(self._forms["held"], [column.take(chosen) for column in rows])
        array = lists(np.array([len(each) for each in kept], dtype=np.int64), inner)
        keys = [slots.keys[place] for place in places]
        self._table.put(StateBlock(keys, self._forms, {"held": array}, np.zeros(len(keys), dtype=bool)))


class _Emitting:
    """The loop over tuples: `tops` has the rows that each slot holds, `ranked` what they are ranked by."""

    def __init__(self, method: str, count: int, tops: list[list[int]], ranked: list[list[int]]) -> None:
        self._method = method
        self._count = count
        self._tops = tops
        self._ranked = ranked
        self._rows: list[int] = []  # what comes out
        self._tuples: list[int] = []  # for which tuple
        self._more: list[Any] = []  # the value of the column more, if there is one

    def take(self, slots: Sequence[int], codes: Sequence[int], before: int) -> np.ndarray:
        """Take the tuples; which slots hold others now."""
        count, tops, ranked = self._count, self._tops, self._ranked
        changed = np.zeros(len(tops), dtype=bool)
        if count == 1 and self._method == "take":
            changed[self._take_best(slots, codes, before)] = True
            return changed
        is_ranked, is_changes = self._method == "take_ranked", self._method == "take_changes"
        rows, tuples, more = self._rows, self._tuples, self._more
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

    def _take_best(self, slots: Sequence[int], codes: Sequence[int], before: int) -> list[int]:
        """The same where one tuple of each key is held; the slots that hold another now."""
        best = [mine[0] if mine else _LAST for mine in self._ranked]
        entered: dict[int, int] = {}
        note = self._tuples.append
        for at, (slot, code) in enumerate(zip(slots, codes, strict=True)):
            if code < best[slot]:
                best[slot] = code
                entered[slot] = at
                note(at)
        self._rows = [before + at for at in self._tuples]
        for slot, at in entered.items():
            self._tops[slot] = [before + at]
        return list(entered)

    def batch(self, node: Node, batch: ColumnBatch, rows: Sequence[pa.Array], before: int) -> Batch:
        """What comes out."""
        positions: Sequence[int] = batch.positions
        if len(self._tuples) == len(batch) and self._method == "take":
            return ColumnBatch(node.schema, positions, [batch.array(at) for at in range(len(rows))])
        chosen = pa.array(self._rows, pa.int64())
        arrays = [column.take(chosen) for column in rows]
        if self._more or len(arrays) < len(node.schema.names):
            arrays.append(pa.array(self._more, node.schema.arrow.field(len(arrays)).type))
        placed = np.array(positions, dtype=np.int64)[np.array(self._tuples, dtype=np.int64)].tolist()
        return ColumnBatch(node.schema, placed, arrays)
