"""Inner joins that follow a watermark, or hold for ever, of all keys at once: see `operators/timed_joins`.

    left    by key and time  ├────┤├──┤├─────┤    for each tuple of the left, those of the right with its key and a
    right   by key and time  ├──┤├────┤├─┤        time near its own are one range; pairs stand where the later one does

A tuple is let go when none that is not late can meet it any more. So whom a tuple meets does not depend on what is held
at which moment, and of what is held only what is left when the epoch ends becomes state. That is columns, too: what
keys hold is read and written without a Python value of any tuple.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import INT_LIMIT, KeySlots, slots_of_columns
from anabranch.engine.worker.stage_flow import Arrival
from anabranch.engine.worker.timeline import Timeline
from anabranch.engine.worker.waiting_columns import begun_here, since_column, waitings
from anabranch.operators.epoch_context import count_anomaly
from anabranch.operators.library_operator import LATE
from anabranch.operators.timed_joins import LastingJoin, WatermarkJoin
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import Schema
from anabranch.state import state_columns
from anabranch.state.state_columns import ColumnForm, StateBlock, StateColumns, lengths_of, lists, struct_of

_TIME_LIMIT = 2**60
_FOR_EVER = INT_LIMIT + 1
_PAIRS_MAX = 1 << 24  # that come out: more are taken one by one
_FIELDS = ("left", "right")


def has_join_columns(node: Node) -> bool:
    """Whether an operator is a join that can be computed over columns."""
    logic = node.logic
    if not isinstance(logic, Keyed) or len(node.inputs) != 2 or logic.per_input or not node.key_of(0):
        return False
    join = logic.prototype
    if not isinstance(join, (WatermarkJoin, LastingJoin)) or any(join.pads) or join.functions:
        return False
    if join.ttl_ms is not None if isinstance(join, LastingJoin) else max(join.spans) >= _TIME_LIMIT:
        return False
    left, right = (node.inputs[side].schema for side in (0, 1))
    names = {*left.names, *right.names}
    for one, other in zip(node.key_of(0), node.key_of(1), strict=True):
        if left.type_of(one) != right.type_of(other):
            return False
    return all(
        name in names and (left if name in left else right).type_of(name) == node.schema.type_of(name)
        for name in node.schema.names
    )


@dataclasses.dataclass
class Paired:
    """What comes out, and at which positions."""

    columns: list[pa.Array]
    positions: np.ndarray


@dataclasses.dataclass
class _Side:
    """The tuples of an input: what keys hold of it, then what came and is not late."""

    batch: Batch
    held: list[pa.Array]  # the columns of what keys hold: those of the tuple, whether it met one, and more
    came: np.ndarray  # places in the batch
    slots: np.ndarray
    times: np.ndarray
    until: np.ndarray
    order: np.ndarray  # what is held is before 0, in its order; then positions

    @property
    def before(self) -> int:
        """How many are held."""
        return len(self.held[0])

    def columns(self, schema: Schema, names: Sequence[str], rows: np.ndarray) -> list[pa.Array]:
        """Columns of some of the tuples."""
        chosen, came = pa.array(rows), pa.array(self.came)
        found = []
        for at in map(schema.names.index, names):
            new = self.batch.array(at).take(came) if len(self.came) else pa.array([], schema.arrow.field(at).type)
            found.append(pa.concat_arrays([self.held[at], new]).take(chosen))
        return found


class JoinColumns:
    """The join of one operator in one channel for one epoch."""

    def __init__(
        self, node: Node, table: Any, epoch: int, timeline: Timeline, wanted: Collection[int] | None = None
    ) -> None:
        assert isinstance(node.logic, Keyed)
        self._node = node
        self._wanted = range(len(node.schema.names)) if wanted is None else wanted  # what is read of what comes out
        self._join: WatermarkJoin | LastingJoin = node.logic.prototype
        # Without a window all tuples of a key meet, and are held for ever.
        self._spans = node.logic.prototype.spans if isinstance(self._join, WatermarkJoin) else None
        more = [pa.bool_(), pa.int64()] if self._spans is None else [pa.bool_(), pa.int64(), pa.int64()]
        self._forms: dict[str, ColumnForm] = {
            **{
                field: state_columns.held(each.schema.arrow.types, more)
                for field, each in zip(_FIELDS, node.inputs, strict=True)
            },
            "timer_due": state_columns.plain(pa.int64()),
            "timer_since": state_columns.numbers(),
        }
        self._table = table
        self._epoch = epoch
        self._timeline = timeline

    def taken(self, arrival: Arrival) -> Paired | None:
        """What comes out; None, and nothing was done, if tuples must be taken one by one."""
        batches = [arrival.batches.get(side, Batch(self._node.inputs[side].schema, [], [])) for side in (0, 1)]
        if any(len(batch) and not isinstance(batch, ColumnBatch) for batch in batches):
            return None
        left, right = (self._times(side, batch) for side, batch in enumerate(batches))
        slots = self._slots(batches)
        if slots is None or left is None or right is None:
            return None
        if self._spans is not None:
            known = set(slots.keys)
            due = self._table.due("timer_due", self._timeline.begun, self._timeline.last)
            slots.keys += [key for key in due if key not in known]
        state = self._table.columns(slots.keys, self._forms)
        if state is None:
            return None
        starts = (0, len(batches[0]))
        sides = [
            self._side(side, batches[side], each, slots.of[starts[side] :][: len(each)], state)
            for side, each in ((0, left), (1, right))
        ]
        pairs = self._pairs(sides, len(slots.keys))
        if pairs is None:
            self._table.put(StateBlock(slots.keys, self._forms, state.arrays, ~state.found).kept(state.moved))
            return None
        one, other = pairs
        late = sum(map(len, batches)) - sum(len(side.came) for side in sides)
        if late:
            count_anomaly(self._join.operator_name, LATE, late)
        order = (sides[0].order[one], sides[1].order[other])
        later = np.maximum(*order)
        sorting = np.lexsort([np.minimum(*order), later])
        one, other, later = one[sorting], other[sorting], later[sorting]
        self._leave(arrival, sides, (one, other), slots.keys, state)
        return Paired(self._made(sides, (one, other)), later)

    def _slots(self, batches: Sequence[Batch]) -> KeySlots | None:
        """The keys of both sides; None if they must be taken one by one."""
        columns: list[pa.Array] = []
        count = sum(map(len, batches))
        if not count:
            nothing = np.empty(0, dtype=np.int64)
            return KeySlots([], nothing, nothing, nothing, nothing)
        for names in zip(self._node.key_of(0), self._node.key_of(1), strict=True):
            parts = [
                batch.untouched(batch.schema.names.index(name))
                for batch, name in zip(batches, names, strict=True)
                if isinstance(batch, ColumnBatch)
            ]
            if any(part is None for part in parts):
                return None
            columns.append(pa.concat_arrays([part for part in parts if part is not None]))
        return slots_of_columns(columns, count)

    def _made(self, sides: Sequence[_Side], pairs: tuple[np.ndarray, np.ndarray]) -> list[pa.Array]:
        """The columns of what comes out; those that nobody reads are null."""
        schemas = [each.schema for each in self._node.inputs]
        fields = self._node.schema.arrow
        names = [fields.field(at).name for at in sorted(self._wanted)]
        mine = [[name for name in names if name in schemas[0]], [name for name in names if name not in schemas[0]]]
        found: dict[str, pa.Array] = {}
        for side, schema, chosen, rows in zip(sides, schemas, mine, pairs, strict=True):
            found |= zip(chosen, side.columns(schema, chosen, rows), strict=True)
        count = len(pairs[0])
        return [found[each.name] if each.name in found else pa.nulls(count, each.type) for each in fields]

    def _times(self, side: int, batch: Batch) -> np.ndarray | None:
        if not isinstance(batch, ColumnBatch):
            return np.empty(0, dtype=np.int64)
        if self._spans is None:
            return np.zeros(len(batch), dtype=np.int64)
        array = batch.untouched(self._join.places[side])
        if array is None or array.null_count:
            return None
        times = TimeScale.of(array.type, "").numbers(array)
        return times if -_TIME_LIMIT < int(times.min()) <= int(times.max()) < _TIME_LIMIT else None

    def _side(self, side: int, batch: Batch, times: np.ndarray, slots: np.ndarray, state: StateColumns) -> _Side:
        positions = batch.position_array
        if self._spans is None:
            came, until = np.arange(len(times)), np.full(len(times), _FOR_EVER)
        else:
            came = np.flatnonzero(times >= self._timeline.at(positions))
            until = times[came] + self._spans[side] + 1
        lists_of = state.arrays[_FIELDS[side]]
        had = lists_of.flatten().flatten()
        count = len(had[0])
        if self._spans is None:
            before = [np.full(count, _FOR_EVER), np.zeros(count, dtype=np.int64)]
        else:
            before = [column.to_numpy(zero_copy_only=False) for column in had[-2:]]
        at = np.concatenate([before[1], times[came]])
        until = np.concatenate([before[0], until])
        mine = np.concatenate([np.repeat(np.arange(len(lists_of)), lengths_of(lists_of)), slots[came]])
        order = np.concatenate([np.arange(-count, 0), positions[came]])
        return _Side(batch, had, came, mine, at, until, order)

    def _pairs(self, sides: list[_Side], count: int) -> tuple[np.ndarray, np.ndarray] | None:
        """The rows of both sides that meet; None if there are too many to have them all at once."""
        left, right = sides
        if not len(left.slots) or not len(right.slots):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        spans = (0, 0) if self._spans is None else self._spans
        low = min(int(left.times.min()), int(right.times.min())) - max(spans)
        width = max(int(left.times.max()), int(right.times.max())) + max(spans) - low + 1
        if width * count > INT_LIMIT:
            return None
        codes = right.slots * width + (right.times - low)
        base = left.slots * width + (left.times - low)
        # What is held met all else that is held before: what came meets all, and what is held what came.
        parts = [
            (np.arange(left.before, len(base)), np.arange(len(codes))),
            (np.arange(left.before), np.arange(right.before, len(codes))),
        ]
        met: list[tuple[np.ndarray, np.ndarray]] = []
        total = 0
        for ones, others in parts:
            order = others[np.argsort(codes[others], kind="stable")]
            ordered = codes[order]
            first = np.searchsorted(ordered, base[ones] - spans[1], side="left")
            many = np.searchsorted(ordered, base[ones] + spans[0], side="right") - first
            total += int(many.sum())
            if total > _PAIRS_MAX:
                return None
            one = np.repeat(ones, many)
            within = np.arange(len(one)) - np.repeat(np.cumsum(many) - many - first, many)
            met.append((one, order[within]))
        (one, other), (more, others) = met
        return np.concatenate([one, more]), np.concatenate([other, others])

    def _leave(
        self,
        arrival: Arrival,
        sides: Sequence[_Side],
        pairs: tuple[np.ndarray, np.ndarray],
        keys: list[Any],
        state: StateColumns,
    ) -> None:
        """Change the state: what is held longer than time has come."""
        last = self._timeline.last
        arrays: dict[str, pa.Array] = {}
        holds = np.zeros(len(keys), dtype=bool)
        due = np.full(len(keys), _FOR_EVER)
        for at, (side, paired) in enumerate(zip(sides, pairs, strict=True)):
            has_met = np.zeros(len(side.slots), dtype=bool)
            has_met[: side.before] = side.held[len(self._node.inputs[at].schema.names)].to_numpy(zero_copy_only=False)
            has_met[paired] = True
            kept = np.flatnonzero(side.until > last)
            kept = kept[np.argsort(side.slots[kept], kind="stable")]
            slots, until = side.slots[kept], side.until[kept]
            holds[slots] = True
            np.minimum.at(due, slots, until)
            schema = self._node.inputs[at].schema
            columns = [*side.columns(schema, schema.names, kept), pa.array(has_met[kept])]
            if self._spans is None:
                columns.append(pa.nulls(len(kept), pa.int64()))
            else:
                columns += [pa.array(until), pa.array(side.times[kept])]
            form = self._forms[_FIELDS[at]]
            arrays[_FIELDS[at]] = lists(np.bincount(slots, minlength=len(keys)), struct_of(form, columns))
        if self._spans is None:
            arrays["timer_due"] = pa.nulls(len(keys), pa.int64())
            arrays["timer_since"] = pa.nulls(len(keys), self._forms["timer_since"].kind)
        else:
            arrays["timer_due"] = pa.array(due, mask=~holds)
            arrays["timer_since"] = self._since(arrival, sides, len(keys), state, holds)
        changed = state.found | holds
        block = StateBlock(keys, self._forms, arrays, ~holds)
        self._table.put(block if changed.all() else block.kept(changed))

    def _since(
        self, arrival: Arrival, sides: Sequence[_Side], count: int, state: StateColumns, holds: np.ndarray
    ) -> pa.Array:
        """Since when keys wait: what they held was gone before, or not."""
        before = sum(side.before for side in sides)
        order = np.concatenate([side.order for side in sides])
        rows = np.argsort(order, kind="stable")  # what is held first, then as they came
        slots = np.concatenate([side.slots for side in sides])[rows]
        until = np.concatenate([side.until for side in sides])[rows]
        reached = self._timeline.at(order[rows])
        runs, begins = waitings(slots, until, reached, before, count)
        current = np.zeros(count, dtype=np.int64)
        np.maximum.at(current, slots, runs)
        # Of most keys nothing is left: only the waitings that go on are told by numbers.
        lasting = np.unique(current[holds & (current >= count)])
        own = begun_here(order[rows][begins[lasting - count] + before], arrival.trails, self._epoch)
        current = np.where(current < count, current, count + np.searchsorted(lasting, current))
        return since_column(state.arrays["timer_since"], own, current, holds)
