"""Windows by the clock of the epochs, of all keys at once.

The clock stands still within an epoch. So windows close as it begins, before any tuple, and then all tuples of a key
are added to one window: a fold over the batch. What closes is read off the state.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import KeySlots, group_slots, is_key, note_null_keys, tests_of
from anabranch.engine.worker.running_columns import Folding, forms_of, is_foldable
from anabranch.engine.worker.trails import Trails
from anabranch.engine.worker.waiting_columns import since_when
from anabranch.operators.aggregation import Aggregate
from anabranch.operators.epoch_context import epoch_time
from anabranch.operators.windows import Time, Tumbling
from anabranch.program.graph import Keyed, Node
from anabranch.state import state_columns
from anabranch.state.state_columns import ColumnForm, StateBlock, lengths_of, lists

_BOUNDS = ("bound start", "bound end")


def clock_columns(node: Node, table: Any, epoch: int) -> ClockColumns | None:
    """The windows of an operator, if they can be computed over columns."""
    logic = node.logic
    if not isinstance(logic, Keyed) or not isinstance(logic.prototype, Aggregate) or len(node.inputs) != 1:
        return None
    shape, schema = type(logic.prototype).shape, node.inputs[0].schema
    window = shape.window
    if not isinstance(window, Tumbling) or not isinstance(window.policy, Time) or not shape.is_plain or not shape.key:
        return None
    if logic.time_to_live_ms is not None or logic.punctuated or logic.waiting != "open":
        return None
    folded = [each for each in shape.measures if each[0] not in _BOUNDS]
    if not is_foldable(folded, schema) or not all(is_key(schema.type_of(name)) for name in shape.key):
        return None
    forms = forms_of(shape.measures, schema) | {
        "anchor": state_columns.plain(pa.int64()),
        "opened": state_columns.numbers(),
        **{f"k{at}": state_columns.plain(schema.type_of(name)) for at, name in enumerate(shape.key)},
    }
    names = [field.name for field in logic.fields]
    if not set(names) <= set(forms):
        return None
    return ClockColumns(node, {name: forms[name] for name in names}, table, epoch, window.policy.size_ms)


@dataclasses.dataclass
class ClosedByClock:
    """What windows gave, and since when each key had waited."""

    columns: list[pa.Array]
    opened: np.ndarray


class ClockColumns:
    """The windows of one operator in one channel for one epoch."""

    def __init__(self, node: Node, forms: dict[str, ColumnForm], table: Any, epoch: int, size_ms: int) -> None:
        assert isinstance(node.logic, Keyed)
        self._node = node
        self._kind: Any = type(node.logic.prototype)
        self._shape = self._kind.shape
        self._forms = forms
        self._table = table
        self._epoch = epoch
        self._size_ms = size_ms
        self._batch: ColumnBatch | None = None
        self._slots: KeySlots | None = None
        self._masks: list[np.ndarray] = []

    def prepare(self, batch: Batch) -> bool:
        """Whether the tuples can be taken at once; nothing was done yet."""
        if not isinstance(batch, ColumnBatch) or not len(batch):
            return False
        names = batch.schema.names
        needed = [names.index(name) for _, name, _ in self._shape.measures if name is not None]
        slots = group_slots(batch, [names.index(name) for name in self._shape.key], self._shape.null_key)
        if slots is None or any(batch.untouched(place) is None for place in needed):
            return False
        functions = [self._kind.functions[test].function for _, _, test in self._shape.measures if test >= 0]
        masks = tests_of(functions, batch.schema, batch)
        if masks is None:
            return False
        self._batch, self._slots, self._masks = batch, slots, masks
        return True

    def due(self, clock_ms: int) -> list[Any]:
        """The keys whose windows close."""
        found: list[Any] = self._table.due("anchor", -(2**63), clock_ms - self._size_ms, only="open")
        return found

    def close(self, due: list[Any], width: int) -> ClosedByClock | None:
        """Close the windows of these keys; None, and nothing was done, if the keys must be called one by one."""
        state = self._table.columns(due, self._forms)
        if state is None:
            return None
        arrays = state.arrays
        opened = since_when(arrays["opened"], np.empty((0, width), dtype=np.int64))
        order = np.lexsort([opened[:, at] for at in reversed(range(width))])
        found = [arrays[f"k{at}"] for at in range(len(self._shape.key))]
        found += [self._result(at, name, arrays) for at, (name, _, _) in enumerate(self._shape.measures)]
        left = {"open": pa.array(np.zeros(len(due), dtype=bool)), "opened": pa.nulls(len(due), arrays["opened"].type)}
        self._table.put(StateBlock(due, self._forms, arrays | left, np.zeros(len(due), dtype=bool)))
        kinds = [field.type for field in self._node.schema.arrow]
        columns = [each.take(pa.array(order)).cast(kind) for each, kind in zip(found, kinds, strict=True)]
        return ClosedByClock(columns, opened[order])

    def _result(self, at: int, name: str, arrays: dict[str, pa.Array]) -> pa.Array:
        """What an aggregation gives for the windows that the state has."""
        if name in _BOUNDS:
            since = arrays["anchor"].to_numpy(zero_copy_only=False)
            moved = self._size_ms if name == "bound end" else 0
            return pa.array((since + moved) * 1000).cast(pa.timestamp("us", tz="UTC"))
        first = arrays[f"a{at}"]
        if name == "distinct":
            return pa.array(lengths_of(first))
        if name != "avg":
            return first
        sums, counts = (each.to_numpy(zero_copy_only=False) for each in (first, arrays[f"b{at}"]))
        return pa.array(sums.astype(np.float64) / np.maximum(counts, 1), mask=counts == 0)

    def fold(self, trails: Trails) -> bool | None:
        """Add the tuples to their windows; None, and nothing was done, if they must be taken one by one."""
        batch, slots = self._batch, self._slots
        assert batch is not None and slots is not None
        state = self._table.columns(slots.keys, self._forms)
        if state is None:
            return None
        is_open = pc.fill_null(state.arrays["open"], False).to_numpy(zero_copy_only=False)
        waiting = iter(self._masks)
        names = batch.schema.names
        firsts = slots.order[slots.starts]
        new: dict[str, Any] = {"open": pa.array(np.ones(len(slots.keys), dtype=bool))}
        for at, (name, attribute, test) in enumerate(self._shape.measures):
            if name in _BOUNDS:
                continue
            array = None if attribute is None else batch.untouched(names.index(attribute))
            mask = next(waiting)[slots.order] if test >= 0 else None
            found = Folding(slots, state, is_open, at, array, mask).of(name)
            if found is None:
                self._table.put(StateBlock(slots.keys, self._forms, state.arrays, ~state.found).kept(state.moved))
                return None
            new |= found.state
        for at, name in enumerate(self._shape.key):
            key = batch.untouched(names.index(name))
            assert key is not None
            new[f"k{at}"] = key.take(pa.array(firsts))
        opened = batch.position_array[firsts]
        numbers = np.column_stack([np.full(len(firsts), self._epoch), *(digit[opened] for digit in trails)])
        begun = lists(np.full(len(firsts), numbers.shape[1]), pa.array(numbers.reshape(-1).astype(np.int64)))
        known = pa.array(is_open)
        new["opened"] = pc.if_else(known, state.arrays["opened"], begun)
        if "anchor" in self._forms:
            new["anchor"] = pc.if_else(known, state.arrays["anchor"], pa.scalar(epoch_time(), pa.int64()))
        columns = {
            name: new[name] if isinstance(new[name], pa.Array) else form.array(new[name])
            for name, form in self._forms.items()
        }
        self._table.put(StateBlock(slots.keys, self._forms, columns, np.zeros(len(slots.keys), dtype=bool)))
        places = [names.index(name) for name in self._shape.key]
        note_null_keys(self._kind.operator_name, batch, places, self._shape.null_key)
        return True
