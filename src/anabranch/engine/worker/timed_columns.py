"""What windows and sessions that follow a watermark have in common where all keys are computed at once.

what keys hold, as columns ─┐
tuples, by slot ────────────┴─► rows ─► folds ─► what closed, in its order; what stays, as columns
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import ColumnBatch
from anabranch.engine.worker.fold_columns import Fold, are_foldable, has_time, result_columns
from anabranch.engine.worker.key_slots import group_slots, note_null_keys, tests_of
from anabranch.engine.worker.stage_flow import Arrival
from anabranch.engine.worker.timeline import Timeline
from anabranch.engine.worker.waiting_columns import since_column
from anabranch.operators.aggregation import Aggregate, Shape
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Keyed, Node
from anabranch.state import state_columns
from anabranch.state.state_columns import ColumnForm, StateBlock, StateColumns, lengths_of, lists, struct_of

TIME_LIMIT = 2**60
"""Times are kept this far from the ends of 64 bits."""


@dataclasses.dataclass
class Closed:
    """What windows gave: for each a place among the advances, the time it was due, since when its key had waited."""

    columns: list[pa.Array]
    positions: np.ndarray
    due: np.ndarray
    since: np.ndarray


@dataclasses.dataclass
class Came:
    """The tuples of an epoch: their times, how far time had come, the slots of their keys, what tests say of them."""

    arrival: Arrival
    batch: ColumnBatch
    times: np.ndarray
    positions: np.ndarray
    reached: np.ndarray
    slots: np.ndarray
    masks: Sequence[np.ndarray]


@dataclasses.dataclass
class Had:
    """What the keys had before: a row for each thing that one holds, in its order; `parts` are their columns."""

    keys: list[Any]
    state: StateColumns
    slots: np.ndarray
    parts: list[pa.Array]

    @property
    def count(self) -> np.ndarray:
        """How many things of its waiting each key has had."""
        found: np.ndarray = self.state.arrays["count"].fill_null(0).to_numpy(zero_copy_only=False)
        return found

    def numbers(self, at: int) -> np.ndarray:
        """A part that is whole numbers."""
        found: np.ndarray = self.parts[at].to_numpy(zero_copy_only=False)
        return found


@dataclasses.dataclass
class Left:
    """What becomes state.

    Attributes
    ----------
    slots : numpy array
        The key of each thing that is held, rising.
    columns : list of pyarrow.Array
        The parts of these.
    due : numpy array
        When the first of each key's is due.
    count : numpy array
        See `Had`.
    current : numpy array
        The waiting of each key.
    begun : numpy array
        The numbers of waitings that begin here.
    """

    slots: np.ndarray
    columns: list[pa.Array]
    due: np.ndarray
    count: np.ndarray
    current: np.ndarray
    begun: np.ndarray


def timed_shape(node: Node, kind: type) -> Shape | None:
    """The shape of an aggregation over windows of a kind that could be computed over columns."""
    logic = node.logic
    if not isinstance(logic, Keyed) or not isinstance(logic.prototype, Aggregate) or len(node.inputs) != 1:
        return None
    shape, schema = type(logic.prototype).shape, node.inputs[0].schema
    policy: Any = shape.window.policy
    is_one = isinstance(policy, kind)
    if not is_one or not logic.timed or logic.by_clock or not shape.is_plain or not shape.key:
        return None
    if not has_time(schema, policy.attribute) or not are_foldable(shape.measures, schema):
        return None
    return shape


class TimedColumns:
    """The windows of one operator in one channel for one epoch.

    Parameters
    ----------
    held : dict
        Field → its form, of the field of what keys hold.
    """

    def __init__(self, node: Node, table: Any, epoch: int, timeline: Timeline, held: dict[str, ColumnForm]) -> None:
        assert isinstance(node.logic, Keyed)
        self.node = node
        self.kind: Any = type(node.logic.prototype)
        self.shape: Shape = self.kind.shape
        self.schema = node.inputs[0].schema
        self.timeline = timeline
        self.epoch = epoch
        self._table = table
        (self._field,) = held
        number = state_columns.plain(pa.int64())
        self._key_kinds = [self.schema.type_of(name) for name in self.shape.key]
        forms = {**held, "count": number, "timer_due": number, "timer_since": state_columns.numbers()}
        forms |= {f"k{at}": state_columns.plain(kind) for at, kind in enumerate(self._key_kinds)}
        self._forms = {field.name: forms[field.name] for field in node.logic.fields}

    def can_take(self, came: Came) -> bool:
        """Whether tuples with these times can be taken at once."""
        raise NotImplementedError

    def made(self, came: Came, had: Had) -> tuple[Closed, Left | None] | None:
        """What closes, and what is left; None if it must be computed one by one."""
        raise NotImplementedError

    def taken(self, arrival: Arrival) -> Closed | None:
        """What comes out; None, and nothing was done, if tuples must be taken one by one."""
        came, keys = self._came(arrival), self.shape.key
        if came is None or not self.can_take(came):
            return None
        places = [self.schema.names.index(name) for name in keys]
        slots = group_slots(came.batch, places, self.shape.null_key)
        functions = [self.kind.functions[test].function for _, _, test in self.shape.measures if test >= 0]
        masks = None if slots is None else tests_of(functions, self.schema, came.batch)
        if slots is None or masks is None:
            return None
        came.slots, came.masks = slots.of, masks
        had = self._had(slots.keys)
        if had is None:
            return None
        found = self.made(came, had)
        if found is None:
            state = had.state
            self._table.put(StateBlock(had.keys, self._forms, state.arrays, ~state.found).kept(state.moved))
            return None
        closed, left = found
        if left is not None:
            self._leave(had, left)
        note_null_keys(self.kind.operator_name, came.batch, places, self.shape.null_key)
        return closed

    def _came(self, arrival: Arrival) -> Came | None:
        ((place, batch),) = arrival.batches.items()
        if place or not isinstance(batch, ColumnBatch) or not len(batch):
            return None
        policy: Any = self.shape.window.policy
        array = batch.untouched(self.schema.names.index(policy.attribute))
        if array is None or array.null_count:
            return None
        times = TimeScale.of(array.type, "").numbers(array)
        if not -TIME_LIMIT < int(times.min()) <= int(times.max()) < TIME_LIMIT:
            return None
        positions = batch.position_array
        return Came(arrival, batch, times, positions, self.timeline.at(positions), np.empty(0, dtype=np.int64), ())

    def _had(self, keys: list[Any]) -> Had | None:
        """What the keys that have tuples, or become due, have. The latter get slots behind the others."""
        touched = set(keys)
        due = self._table.due("timer_due", self.timeline.begun, self.timeline.last)
        keys = [*keys, *(key for key in due if key not in touched)]
        state = self._table.columns(keys, self._forms)
        if state is None:
            return None
        held = state.arrays[self._field]
        return Had(keys, state, np.repeat(np.arange(len(keys)), lengths_of(held)), held.flatten().flatten())

    def folds(self, came: Came, had: Had, chosen: np.ndarray | None, places: Sequence[int]) -> list[Fold] | None:
        """Each aggregation for what keys had, then for (some of) the tuples; None if numbers may leave 64 bits.

        `places` are where their state begins in what keys had.
        """
        waiting = iter(came.masks)
        made: list[Fold] = []
        for (name, attribute, test), place in zip(self.shape.measures, places, strict=True):
            if name.startswith("bound"):
                made.append(Fold(name))
                continue
            mask = next(waiting) if test >= 0 else None
            array = None if attribute is None else came.batch.untouched(self.schema.names.index(attribute))
            if attribute is not None and array is None:
                return None
            if chosen is not None:
                mask = None if mask is None else mask[chosen]
                array = None if array is None else array.take(pa.array(chosen))
            count = len(came.times) if chosen is None else len(chosen)
            fold = Fold.of(name, array, mask, had.parts[place : place + 2], count)
            if fold is None:
                return None
            made.append(fold)
        return made

    def closed(
        self,
        keys: list[Any],
        slots: np.ndarray,
        begins: np.ndarray,
        due: np.ndarray,
        since: np.ndarray,
        totals: Sequence[Fold],
    ) -> Closed | None:
        """What closed, in its order; None if a time is beyond what its column can have."""
        order = np.lexsort([*(since[:, at] for at in reversed(range(since.shape[1]))), due])
        due = due[order]
        results = [each.taken(order) for each in totals]
        columns = result_columns(self.node.schema, self.shape, keys, slots[order], begins[order], due, results)
        if columns is None:
            return None
        fires = np.searchsorted(self.timeline.values[1:], due)
        return Closed(columns, self.timeline.places[fires], due, since[order])

    def _leave(self, had: Had, left: Left) -> None:
        """Change the state."""
        count = len(had.keys)
        lengths = np.bincount(left.slots, minlength=count)
        holds = lengths > 0
        waited = had.state.arrays["timer_since"]
        values = {
            self._field: lists(lengths, struct_of(self._forms[self._field], left.columns)),
            "count": pa.array(np.where(holds, left.count, 0)),
            "timer_due": pa.array(left.due, mask=~holds),
            "timer_since": since_column(waited, left.begun, left.current, holds),
        }
        chosen = pa.array(np.arange(count), mask=~holds)
        parts = [had.keys] if len(self.shape.key) == 1 else list(zip(*had.keys, strict=True))
        for at, (part, kind) in enumerate(zip(parts, self._key_kinds, strict=True)):
            values[f"k{at}"] = pa.array(part, kind).take(chosen)
        arrays = {name: values[name] for name in self._forms}
        changed = had.state.found | holds
        block = StateBlock(had.keys, self._forms, arrays, ~holds)
        self._table.put(block if changed.all() else block.kept(changed))
