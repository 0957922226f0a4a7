"""Windows that follow a watermark, of all keys at once: see `operators/shared_windows` and `window_panes`.

    tuples ─► (key, pane): one fold over all ─► (key, window): another, over panes ─► those that the watermark closed

In an epoch, which windows close is known from how far the watermark comes, and where from its advances. A tuple is in
its pane before any window of the pane closes, or it is late. So a window holds all tuples of its panes, and needs no
look at what came when; but for one thing: since when its key waits, which orders what comes out. A key waits from its
first tuple until the last of its panes is gone; a tuple that comes then begins anew.

State is as one tuple after the other would leave it. Where that is not sure (see `key_slots`), and where a tuple is
late for some of its windows only, tuples are taken one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.batch import ColumnBatch
from anabranch.engine.worker.key_slots import (
    INT_LIMIT,
    KeySlots,
    Numbers,
    Timeline,
    fits_sum,
    group_slots,
    is_number,
    is_ordered,
    note_null_keys,
    numbers_of,
    since_when,
    starting,
    tests_of,
    waitings,
)
from anabranch.engine.worker.stage_flow import Arrival
from anabranch.operators.aggregation import Aggregate, Shape
from anabranch.operators.epoch_context import count_anomaly
from anabranch.operators.library_operator import LATE
from anabranch.operators.shared_windows import CLOSE
from anabranch.operators.window_bounds import representable
from anabranch.operators.windows import EventTime
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import Schema, to_values

# Times are kept this far from the ends of 64 bits; timestamps also within the years that Python has.
TIME_LIMIT = 2**60
_STAMPS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_KINDS = ("count", "sum", "avg", "min", "max", "bound start", "bound end", "bound time", "bound emission")
_BOUNDS = ("bound start", "bound end", "bound time")


def has_window_columns(node: Node) -> bool:
    """Whether an operator's windows can be computed over columns."""
    logic = node.logic
    if not isinstance(logic, Keyed) or not isinstance(logic.prototype, Aggregate) or len(node.inputs) != 1:
        return False
    shape, schema = type(logic.prototype).shape, node.inputs[0].schema
    policy = shape.window.policy
    if not isinstance(policy, EventTime) or not logic.timed or logic.by_clock or not shape.is_plain or not shape.key:
        return False
    if not has_time(schema, policy.attribute):
        return False
    is_paned = any(field.name == "panes" for field in logic.fields)
    if not (0 < shape.step <= shape.width < TIME_LIMIT) or (shape.width != shape.step) is not is_paned:
        return False
    return are_foldable(shape.measures, schema)


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


@dataclasses.dataclass
class Closed:
    """What windows gave: for each a place among the advances, the time it was due, since when its key had waited."""

    columns: list[pa.Array]
    positions: np.ndarray
    due: np.ndarray
    since: np.ndarray


@dataclasses.dataclass
class _Held:
    """What the keys had before: a row for each pane, in the order of its key's panes."""

    instances: list[Any]
    slots: np.ndarray
    panes: np.ndarray
    values: list[list[Any]]


class WindowColumns:
    """The windows of one operator in one channel for one epoch."""

    def __init__(self, node: Node, table: Any, epoch: int, timeline: Timeline) -> None:
        assert isinstance(node.logic, Keyed)
        self._node = node
        self._kind: Any = type(node.logic.prototype)
        self._shape: Shape = self._kind.shape
        self._table = table
        self._epoch = epoch
        self._begun = timeline.begun
        self._many = self._shape.width // self._shape.step
        self._is_paned = self._many > 1
        self._field = "panes" if self._is_paned else "windows"
        self._timeline = timeline
        policy = self._shape.window.policy
        assert isinstance(policy, EventTime)
        is_told = any(name in _BOUNDS for name, _, _ in self._shape.measures)
        self._bounds = representable(node.inputs[0].schema.type_of(policy.attribute)) if is_told else None

    def _has_bounds(self, panes: np.ndarray) -> bool:
        """Whether the column can hold the bounds of all windows of some panes."""
        assert self._bounds is not None
        first, last = (int(panes.min()) - self._many + 1) * self._shape.step, int(panes.max()) * self._shape.step
        return self._bounds[0] <= first and last + self._shape.width <= self._bounds[1]

    def _gone(self, now: Any) -> Any:
        """The last window that is closed when time has come so far."""
        return (now - self._shape.width) // self._shape.step

    def taken(self, arrival: Arrival) -> Closed | None:
        """What comes out; None, and nothing was done, if tuples must be taken one by one."""
        ((place, batch),) = arrival.batches.items()
        if place or not isinstance(batch, ColumnBatch) or not len(batch):
            return None
        schema = batch.schema
        policy = self._shape.window.policy
        assert isinstance(policy, EventTime)
        array = batch.untouched(schema.names.index(policy.attribute))
        if array is None or array.null_count:
            return None
        times = TimeScale.of(array.type, "").numbers(array)
        if not -TIME_LIMIT < int(times.min()) <= int(times.max()) < TIME_LIMIT:
            return None
        positions = np.array(batch.positions, dtype=np.int64)
        gone = self._gone(self._timeline.at(positions))
        panes = times // self._shape.step
        if self._bounds is not None and not self._has_bounds(panes):
            return None
        late = panes <= gone
        if self._is_paned and bool(((panes - self._many < gone) & ~late).any()):
            return None  # late for some of its windows
        keys = [schema.names.index(name) for name in self._shape.key]
        slots = group_slots(batch, keys, self._shape.null_key)
        functions = [self._kind.functions[test].function for _, _, test in self._shape.measures if test >= 0]
        masks = None if slots is None else tests_of(functions, schema, batch)
        if slots is None or masks is None:
            return None
        held = self._state(slots)
        if held is None:
            return None
        working = _Working(self, batch, slots, held, panes, gone, ~late, masks)
        made = working.closed(arrival, positions)
        if made is None:
            return None
        note_null_keys(self._kind.operator_name, batch, keys, self._shape.null_key)
        if late.any():
            count_anomaly(self._kind.operator_name, LATE, int(late.sum()))
        return made

    def _state(self, slots: KeySlots) -> _Held | None:
        """What the keys that have tuples, or become due, have. The latter get slots behind the others."""
        self._table.load(slots.keys)
        last = self._timeline.last
        live = self._table.load_due("timer_due", self._begun, last)
        touched = set(slots.keys)
        slots.keys += [
            key
            for key, each in live.items()
            if key not in touched and each.timer_due is not None and each.timer_due <= last
        ]
        instances = [live[key] for key in slots.keys]
        found: tuple[list[int], list[int], list[Any]] = ([], [], [])
        gone = self._gone(self._begun)
        for slot, instance in enumerate(instances):
            kept = getattr(instance, self._field)
            if kept:
                due = (max(min(kept) - self._many, gone) + 1) * self._shape.step + self._shape.width
                if instance.timer_due != due:
                    return None  # it was left by windows of another size
                for pane, values in kept.items():
                    found[0].append(slot)
                    found[1].append(pane)
                    found[2].append(values)
        of_slot, of_pane = (np.array(each, dtype=np.int64) for each in found[:2])
        return _Held(instances, of_slot, of_pane, found[2])


class _Working:
    """The folds over one epoch: rows are what the keys had, then the tuples that are not late."""

    def __init__(
        self,
        windows: WindowColumns,
        batch: ColumnBatch,
        slots: KeySlots,
        held: _Held,
        panes: np.ndarray,
        gone: np.ndarray,
        kept: np.ndarray,
        masks: Sequence[np.ndarray],
    ) -> None:
        self._windows = windows
        self._shape = windows._shape
        self._batch = batch
        self._keys = slots.keys
        self._held = held
        self._tuples = np.flatnonzero(kept)
        self._masks = masks
        self._before = len(held.slots)
        self._slots = np.concatenate([held.slots, slots.of[self._tuples]])
        self._panes = np.concatenate([held.panes, panes[self._tuples]])
        self._gone = np.concatenate([np.full(self._before, -INT_LIMIT), gone[self._tuples]])

    def closed(self, arrival: Arrival, positions: np.ndarray) -> Closed | None:
        shape, windows, many = self._shape, self._windows, self._windows._many
        if not len(self._slots):
            return None
        low = int(self._panes.min()) - many
        span = int(self._panes.max()) - low + 1
        if span * (len(self._keys) + 1) > INT_LIMIT:
            return None
        self._low, self._span = low, span
        # Panes.
        codes = self._slots * span + (self._panes - low)
        pane_codes, firsts, group = np.unique(codes, return_index=True, return_inverse=True)
        folds = self._folds(group.reshape(-1))
        if folds is None:
            return None
        runs, begins = waitings(self._slots, self._panes, self._gone, self._before, len(self._keys))
        self._run = runs[firsts]  # of each pane
        # Windows: each pane is in so many.
        group_slots, group_panes = pane_codes // span, pane_codes % span + low
        first = windows._gone(windows._begun)
        last = windows._gone(windows._timeline.last)
        of_pane = np.repeat(np.arange(len(pane_codes)), many)
        number = group_panes[of_pane] - np.tile(np.arange(many), len(pane_codes))
        inside = (number > first) & (number <= last)
        of_pane, number = of_pane[inside], number[inside]
        window_codes, some, window = np.unique(
            group_slots[of_pane] * span + (number - low), return_index=True, return_inverse=True
        )
        totals = [each.over(of_pane, window.reshape(-1), len(window_codes)) for each in folds]
        slots, numbers, runs_of = window_codes // span, window_codes % span + low, self._run[of_pane[some]]
        due = numbers * shape.step + shape.width
        # Since when keys wait: what the state says, or the trail of a tuple.
        begun = positions[self._tuples[begins]]
        since_all = since_when(self._held.instances, begun, arrival.trails, windows._epoch)
        since = since_all[runs_of]
        order = np.lexsort([*(since[:, at] for at in reversed(range(since.shape[1]))), due])
        begins_at = numbers[order] * shape.step
        columns = result_columns(
            *(windows._node.schema, shape, self._keys, slots[order], begins_at, due[order]),
            [each.taken(order) for each in totals],
        )
        if columns is None:
            return None
        timeline = windows._timeline
        fires = np.searchsorted(timeline.values[1:], due[order])
        self._leave(group_slots, group_panes, firsts, folds, last, since_all)
        return Closed(columns, timeline.places[fires], due[order], since[order])

    def _folds(self, group: np.ndarray) -> list[Fold] | None:
        """Each aggregation for each pane; None if numbers may leave 64 bits."""
        schema = self._batch.schema
        waiting = iter(self._masks)
        place = 1 if self._windows._is_paned else 0
        made: list[Fold] = []
        for name, attribute, test in self._shape.measures:
            if name.startswith("bound"):
                made.append(Fold(name))
                continue
            mask = next(waiting)[self._tuples] if test >= 0 else None
            array = None
            if attribute is not None:
                found = self._batch.untouched(schema.names.index(attribute))
                if found is None:
                    return None
                array = found.take(pa.array(self._tuples))
            before = [(values[place], values[place + 1]) for values in self._held.values]
            fold = Fold.of(name, array, mask, before, len(self._tuples))
            if fold is None:
                return None
            made.append(fold.over(np.arange(len(group)), group, int(group.max()) + 1))
            place += 2
        return made

    def _leave(
        self,
        slots: np.ndarray,
        panes: np.ndarray,
        firsts: np.ndarray,
        folds: Sequence[Fold],
        last: int,
        since: np.ndarray,
    ) -> None:
        """Change the state: panes that are gone go, the others hold what was added."""
        shape, many, is_paned = self._shape, self._windows._many, self._windows._is_paned
        order = np.argsort(firsts, kind="stable")  # of each key's panes, the one that came first
        values = [each for fold in folds if not fold.name.startswith("bound") for each in fold.held()]
        kept: list[dict[int, Any]] = [{} for _ in self._keys]
        counts = [
            (each.count if is_paned and getattr(each, self._windows._field) else 0) for each in self._held.instances
        ]
        run = list(range(len(self._keys)))
        listed = (order, slots[order], panes[order], self._run[order], firsts[order])
        for group, slot, pane, waiting, first in zip(*(each.tolist() for each in listed), strict=True):
            if waiting != run[slot]:
                run[slot], counts[slot] = waiting, 0
            number = counts[slot]
            if first >= self._before:
                counts[slot] += 1
            elif is_paned:
                number = self._held.values[first][0]
            if pane > last:
                kept[slot][pane] = [*([number] if is_paned else []), *(value[group] for value in values)]
        for key, instance, mine, waiting, count in zip(
            self._keys, self._held.instances, kept, run, counts, strict=True
        ):
            setattr(instance, self._windows._field, mine)
            if is_paned:
                instance.count = count if mine else 0
            parts = key if len(shape.key) > 1 else (key,)
            for at, part in enumerate(parts):
                setattr(instance, f"k{at}", part if mine else None)
            if not mine:
                instance.timer_due = instance.timer_since = None
                continue
            instance.timer_due = (max(min(mine) - many, last) + 1) * shape.step + shape.width
            if waiting >= len(self._keys) or instance.timer_since is None:
                instance.timer_since = tuple(since[waiting].tolist())


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
        cls, name: str, array: pa.Array | None, mask: np.ndarray | None, before: list[tuple[Any, Any]], count: int
    ) -> Fold | None:
        """For what the state had, then for tuples; None if sums may leave 64 bits."""
        firsts, seconds = [first for first, _ in before], [second for _, second in before]
        valid = None
        if array is not None and array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
        present = np.ones(count, dtype=bool) if valid is None else valid
        present = present if mask is None else present & mask
        if name == "count":
            counts = np.concatenate([np.array(firsts, dtype=np.int64), present.astype(np.int64)])
            return cls(name, None, counts)
        found = numbers_of(array, [each for each in firsts if each is not None] if name in ("min", "max") else [])
        if found is None:
            return None
        numbers, more = found
        if name in ("min", "max"):
            known = iter(more)
            had = [0 if each is None else next(known) or 0 for each in firsts]
        else:
            had = [each or 0 for each in firsts]
            if not fits_sum(numbers.values, had) or not fits_sum(np.zeros(0), [sum(map(abs, had))]):
                return None
        values = np.concatenate([np.array(had, dtype=np.int64), np.where(present, numbers.values, 0)])
        some = seconds if name == "avg" else [int(each is not None) for each in firsts]
        counts = np.concatenate([np.array(some, dtype=np.int64), present.astype(np.int64)])
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

    def held(self) -> list[list[Any]]:
        """The two places of its state, for each row."""
        assert self.counts is not None
        if self.name == "count":
            return [self.counts.tolist(), [None] * len(self.counts)]
        if self.name == "avg":
            assert self.values is not None
            return [self.values.tolist(), self.counts.tolist()]
        return [to_values(self.results()), [None] * len(self.counts)]
