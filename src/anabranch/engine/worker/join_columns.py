"""Inner joins that follow a watermark, or hold for ever, of all keys at once: see `operators/timed_joins`.

    left    by key and time  ├────┤├──┤├─────┤    for each tuple of the left, those of the right with its key and a
    right   by key and time  ├──┤├────┤├─┤        time near its own are one range; pairs stand where the later one does

A tuple is let go when none that is not late can meet it any more. So whom a tuple meets does not depend on what is held
at which moment, and of what is held only what is left when the epoch ends becomes state, and Python values.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.key_slots import INT_LIMIT, Timeline, since_when, slots_of_columns, waitings
from anabranch.engine.worker.stage_flow import Arrival
from anabranch.operators.epoch_context import count_anomaly
from anabranch.operators.library_operator import LATE
from anabranch.operators.timed_joins import LastingJoin, WatermarkJoin
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import Schema

_TIME_LIMIT = 2**60
_FOR_EVER = INT_LIMIT + 1
_PAIRS_MAX = 1 << 24


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
    held: list[list[Any]]
    came: np.ndarray  # places in the batch
    slots: np.ndarray
    times: np.ndarray
    until: np.ndarray
    order: np.ndarray  # what is held is before 0, in its order; then positions

    def column(self, schema: Schema, name: str, rows: np.ndarray) -> pa.Array:
        """A column of some of the tuples."""
        at = schema.names.index(name)
        kind = schema.arrow.field(at).type
        mine = pa.array([each[0][at] for each in self.held], kind)
        new = self.batch.array(at).take(pa.array(self.came)) if len(self.came) else pa.array([], kind)
        return pa.concat_arrays([mine, new]).take(pa.array(rows))


class JoinColumns:
    """The join of one operator in one channel for one epoch."""

    def __init__(self, node: Node, table: Any, epoch: int, timeline: Timeline) -> None:
        assert isinstance(node.logic, Keyed)
        self._node = node
        self._join: WatermarkJoin | LastingJoin = node.logic.prototype
        # Without a window all tuples of a key meet, and are held for ever.
        self._spans = node.logic.prototype.spans if isinstance(self._join, WatermarkJoin) else None
        self._table = table
        self._epoch = epoch
        self._timeline = timeline

    def taken(self, arrival: Arrival) -> Paired | None:
        """What comes out; None, and nothing was done, if tuples must be taken one by one."""
        batches = [arrival.batches.get(side, Batch(self._node.inputs[side].schema, [], [])) for side in (0, 1)]
        if any(len(batch) and not isinstance(batch, ColumnBatch) for batch in batches) or not any(map(len, batches)):
            return None
        times = [self._times(side, batch) for side, batch in enumerate(batches)]
        columns: list[pa.Array] = []
        for names in zip(self._node.key_of(0), self._node.key_of(1), strict=True):
            parts = [
                batch.untouched(batch.schema.names.index(name))
                for batch, name in zip(batches, names, strict=True)
                if isinstance(batch, ColumnBatch)
            ]
            if any(part is None for part in parts):
                return None
            columns.append(pa.concat_arrays([part for part in parts if part is not None]))
        slots = slots_of_columns(columns, sum(map(len, batches)))
        left, right = times
        if slots is None or left is None or right is None:
            return None
        known = self._table.known(slots.keys)
        number = {key: slot for slot, key in enumerate(slots.keys)}
        live = self._table.load_due("timer_due", self._timeline.begun, self._timeline.last)
        keys = {*known, *(key for key, each in live.items() if self._is_due(each))}
        for key in keys:
            if key not in number:
                number[key] = len(slots.keys)
                slots.keys.append(key)
        live = self._table.load(keys)
        holding = {number[key]: live[key] for key in keys}
        starts = (0, len(batches[0]))
        sides = [
            self._side(side, batches[side], each, slots.of[starts[side] :][: len(each)], holding)
            for side, each in ((0, left), (1, right))
        ]
        pairs = self._pairs(sides, len(slots.keys))
        if pairs is None:
            return None
        one, other = pairs
        late = sum(map(len, batches)) - sum(len(side.came) for side in sides)
        if late:
            count_anomaly(self._join.operator_name, LATE, late)
        order = (sides[0].order[one], sides[1].order[other])
        later = np.maximum(*order)
        sorting = np.lexsort([np.minimum(*order), later])
        one, other, later = one[sorting], other[sorting], later[sorting]
        schemas = [batch.schema for batch in batches]
        made = [
            sides[0].column(schemas[0], name, one) if name in schemas[0] else sides[1].column(schemas[1], name, other)
            for name in self._node.schema.names
        ]
        self._leave(arrival, sides, (one, other), slots.keys, holding)
        return Paired(made, later)

    def _is_due(self, instance: Any) -> bool:
        return instance.timer_due is not None and instance.timer_due <= self._timeline.last

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

    def _side(self, side: int, batch: Batch, times: np.ndarray, slots: np.ndarray, holding: dict[int, Any]) -> _Side:
        positions = np.array(batch.positions, dtype=np.int64)
        if self._spans is None:
            came, until = np.arange(len(times)), np.full(len(times), _FOR_EVER)
        else:
            came = np.flatnonzero(times >= self._timeline.at(positions))
            until = times[came] + self._spans[side] + 1
        had = [(slot, held) for slot, each in holding.items() for held in (each.left, each.right)[side]]
        before = [(_FOR_EVER, 0) if self._spans is None else (held[2], held[3]) for _, held in had]
        at = np.concatenate([np.array([time for _, time in before], dtype=np.int64), times[came]])
        until = np.concatenate([np.array([when for when, _ in before], dtype=np.int64), until])
        mine = np.concatenate([np.array([slot for slot, _ in had], dtype=np.int64), slots[came]])
        order = np.concatenate([np.arange(-len(had), 0), positions[came]])
        return _Side(batch, [held for _, held in had], came, mine, at, until, order)

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
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        base = left.slots * width + (left.times - low)
        first = np.searchsorted(codes, base - spans[1], side="left")
        stop = np.searchsorted(codes, base + spans[0], side="right")
        many = stop - first
        total = int(many.sum())
        if total > _PAIRS_MAX:
            return None
        one = np.repeat(np.arange(len(base)), many)
        within = np.arange(total) - np.repeat(np.cumsum(many) - many, many)
        other = order[np.repeat(first, many) + within]
        new = (one >= len(left.held)) | (other >= len(right.held))  # the others met before
        return one[new], other[new]

    def _leave(
        self,
        arrival: Arrival,
        sides: list[_Side],
        pairs: tuple[np.ndarray, np.ndarray],
        keys: list[Any],
        holding: dict[int, Any],
    ) -> None:
        """Change the state: what is held longer than time has come."""
        last = self._timeline.last
        before = [len(side.held) for side in sides]
        order = np.concatenate([side.order for side in sides])
        rows = np.argsort(order, kind="stable")  # what is held first, then as they came
        slots = np.concatenate([side.slots for side in sides])[rows]
        until = np.concatenate([side.until for side in sides])[rows]
        reached = self._timeline.at(order[rows])
        stays = np.unique(slots[until > last])
        for slot in stays.tolist():
            if slot not in holding:
                holding[slot] = self._table.load([keys[slot]])[keys[slot]]
        runs, begins = waitings(slots, until, reached, sum(before), len(keys))
        current = np.zeros(len(keys), dtype=np.int64)
        np.maximum.at(current, slots, runs)
        nobody = _Nobody()
        waited = [holding.get(slot, nobody) for slot in range(len(keys))]
        since = since_when(waited, order[rows][begins + sum(before)], arrival.trails, self._epoch)
        lists: list[dict[int, list[Any]]] = []
        for side, paired in zip(sides, pairs, strict=True):
            has_met = np.zeros(len(side.slots), dtype=bool)
            has_met[paired] = True
            kept = np.flatnonzero(side.until > last)
            new = kept[kept >= len(side.held)]
            tuples = iter(side.batch.picked(side.came[new - len(side.held)].tolist()) if len(new) else [])
            mine: dict[int, list[Any]] = {}
            listed = (kept, side.slots[kept], has_met[kept], side.until[kept], side.times[kept])
            for row, slot, met, until_when, at in zip(*(each.tolist() for each in listed), strict=True):
                if row < len(side.held):
                    held = side.held[row]
                    held[1] = held[1] or met
                else:
                    held = [next(tuples), met, *((None,) if self._spans is None else (until_when, at))]
                mine.setdefault(slot, []).append(held)
            lists.append(mine)
        for slot, instance in holding.items():
            instance.left, instance.right = lists[0].get(slot, []), lists[1].get(slot, [])
            if self._spans is None:
                continue
            waits = [held[2] for held in (*instance.left, *instance.right)]
            instance.timer_due = min(waits, default=None)
            if not waits:
                instance.timer_since = None
            elif current[slot] >= len(keys) or instance.timer_since is None:
                instance.timer_since = tuple(since[current[slot]].tolist())


class _Nobody:
    """A key that holds nothing."""

    timer_since = None
