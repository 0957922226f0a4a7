"""The first tuple of each key, of all keys at once: `deduplicate`, for ever or of each so many.

keys as dense slots ─► how many each had before, and the number of each tuple within its key ─► who goes through
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import group_slots, is_key, note_null_tuples
from anabranch.engine.worker.timing import Stopwatch
from anabranch.operators.sorting import Deduplicate
from anabranch.program.graph import Keyed, Node
from anabranch.state import state_columns
from anabranch.state.state_columns import StateBlock

Step = Callable[[Batch, Node], Batch]


def seen_step(node: Node, table: Any, otherwise: Step, watch: Stopwatch | None = None) -> Step:
    """The step of `deduplicate`; `otherwise` is what takes tuples one by one."""
    logic = node.logic
    assert isinstance(logic, Keyed)
    if not isinstance(logic.prototype, Deduplicate) or not node.key or logic.time_to_live_ms is not None:
        return otherwise
    schema = node.inputs[0].schema
    if logic.method not in ("take", "take_counted") or not all(is_key(schema.type_of(name)) for name in node.key):
        return otherwise
    return SeenStep(node, table, otherwise, watch)


class SeenStep:
    """Takes batches over columns, or as they are."""

    def __init__(self, node: Node, table: Any, otherwise: Step, watch: Stopwatch | None) -> None:
        assert isinstance(node.logic, Keyed)
        self._operator: Any = node.logic.prototype
        schema = node.inputs[0].schema
        self._places = [schema.names.index(name) for name in node.key]
        self._is_counted = node.logic.method == "take_counted"
        self._field = "span" if self._is_counted else "seen"
        self._forms = {self._field: state_columns.plain(pa.int64() if self._is_counted else pa.bool_())}
        self._table = table
        self._otherwise = otherwise
        self._watch = watch

    def __call__(self, batch: Batch, node: Node) -> Batch:
        begun = self._watch.clock() if self._watch is not None else 0.0
        found = self._taken(batch) if isinstance(batch, ColumnBatch) and len(batch) else None
        if found is None:
            return self._otherwise(batch, node)
        if self._watch is not None:
            self._watch.share(self._watch.clock() - begun, len(batch))
        return found

    def _taken(self, batch: ColumnBatch) -> Batch | None:
        null_key = self._operator.guard.null_key
        slots = group_slots(batch, self._places, null_key)
        state = None if slots is None else self._table.columns(slots.keys, self._forms)
        if slots is None or state is None:
            return None
        note_null_tuples(self._operator.operator_name, batch, self._operator.guard)
        numbers = np.arange(len(batch)) - slots.starts[slots.sorted]  # of each tuple within its key
        lengths = np.diff(np.append(slots.starts, len(batch)))
        if self._is_counted:
            size = self._operator.size
            had = state.arrays["span"].fill_null(0).to_numpy(zero_copy_only=False)
            had = np.where(had < size, had, 0)
            goes = (had[slots.sorted] + numbers) % size == 0
            left, changed = (had + lengths - 1) % size + 1, np.ones(len(lengths), dtype=bool)
        else:
            seen = state.arrays["seen"].fill_null(False).to_numpy(zero_copy_only=False)
            goes = (numbers == 0) & ~seen[slots.sorted]
            left, changed = np.ones(len(lengths), dtype=bool), ~seen | state.moved
        block = StateBlock(slots.keys, self._forms, {self._field: pa.array(left)}, np.zeros(len(lengths), dtype=bool))
        self._table.put(block if changed.all() else block.kept(changed))
        mask = np.zeros(len(batch), dtype=bool)
        mask[slots.order[goes]] = True
        return batch.kept(mask)
