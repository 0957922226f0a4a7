"""Sessions that follow a watermark, of all keys at once: see `operators/session_windows`.

    times of a key, sorted   10 12 ··· 30 33 ··· 50       two neighbours less than a gap apart are in one session
                             └──┘      └───┘     └┘       what was held is in it with its first and last time

Where no tuple is behind the watermark when it comes, the order in which they come decides nothing of this: what a
session that closed has missed comes at least a gap behind its end. So sessions are runs of the sorted times, and what
they hold is one fold over all of them. In which order a key's sessions began numbers them; and since when a key waits
orders what comes out, as with windows (`window_columns`). A batch with a tuple that is behind is taken one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from anabranch.engine.worker.batch import ColumnBatch
from anabranch.engine.worker.key_slots import (
    INT_LIMIT,
    KeySlots,
    Timeline,
    group_slots,
    note_null_keys,
    since_when,
    tests_of,
    waitings,
)
from anabranch.engine.worker.stage_flow import Arrival
from anabranch.engine.worker.window_columns import TIME_LIMIT, Closed, Fold, are_foldable, has_time, result_columns
from anabranch.operators.aggregation import Aggregate, Shape
from anabranch.operators.session_windows import ACCUMULATORS
from anabranch.operators.window_bounds import representable
from anabranch.operators.windows import Sessions
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Keyed, Node


def has_session_columns(node: Node) -> bool:
    """Whether an operator's sessions can be computed over columns."""
    logic = node.logic
    if not isinstance(logic, Keyed) or not isinstance(logic.prototype, Aggregate) or len(node.inputs) != 1:
        return False
    shape, schema = type(logic.prototype).shape, node.inputs[0].schema
    policy = shape.window.policy
    if not isinstance(policy, Sessions) or not logic.timed or logic.by_clock or not shape.is_plain or not shape.key:
        return False
    if not has_time(schema, policy.attribute) or not are_foldable(shape.measures, schema):
        return False
    # Sessions that become one are added up anew where partial results do not combine: then they hold their tuples.
    return 0 < _gap(logic) < TIME_LIMIT and "held[3].append" not in type(logic.prototype).source


def _gap(logic: Keyed) -> int:
    # Around an operator with an error policy there is another method, of which it is not known: 0, one by one.
    gap: int = type(logic.prototype).process.__globals__.get("GAP", 0)
    return gap


@dataclasses.dataclass
class _Held:
    """What the keys had before: a row for each session, in the order of its key's sessions."""

    instances: list[Any]
    slots: np.ndarray
    sessions: list[list[Any]]


class SessionColumns:
    """The sessions of one operator in one channel for one epoch."""

    def __init__(self, node: Node, table: Any, epoch: int, timeline: Timeline) -> None:
        assert isinstance(node.logic, Keyed)
        self._node = node
        self._kind: Any = type(node.logic.prototype)
        self._shape: Shape = self._kind.shape
        self._gap = _gap(node.logic)
        self._table = table
        self._epoch = epoch
        self._timeline = timeline

    def taken(self, arrival: Arrival) -> Closed | None:
        """What comes out; None, and nothing was done, if tuples must be taken one by one."""
        ((place, batch),) = arrival.batches.items()
        if place or not isinstance(batch, ColumnBatch) or not len(batch):
            return None
        schema, policy = batch.schema, self._shape.window.policy
        assert isinstance(policy, Sessions)
        array = batch.untouched(schema.names.index(policy.attribute))
        if array is None or array.null_count:
            return None
        times = TimeScale.of(array.type, "").numbers(array)
        positions = np.array(batch.positions, dtype=np.int64)
        reached = self._timeline.at(positions)
        if not -TIME_LIMIT < int(times.min()) <= int(times.max()) < TIME_LIMIT or bool((times < reached).any()):
            return None
        is_told = any(name in ("bound end", "bound time") for name, _, _ in self._shape.measures)
        if is_told and int(times.max()) + self._gap > representable(array.type)[1]:
            return None
        keys = [schema.names.index(name) for name in self._shape.key]
        slots = group_slots(batch, keys, self._shape.null_key)
        functions = [self._kind.functions[test].function for _, _, test in self._shape.measures if test >= 0]
        masks = None if slots is None else tests_of(functions, schema, batch)
        if slots is None or masks is None:
            return None
        held = self._state(slots)
        starts, lasts = (np.array([each[at] for each in held.sessions], dtype=object) for at in (0, 1))
        if any(abs(each) >= TIME_LIMIT for each in (*starts, *lasts)):
            return None
        folds = self._folds(batch, held, masks)
        if folds is None:
            return None
        rows = _Rows(
            np.concatenate([held.slots, slots.of]),
            np.concatenate([starts.astype(np.int64), times]),
            np.concatenate([lasts.astype(np.int64), times]),
            np.concatenate([np.full(len(held.slots), -INT_LIMIT), reached]),
            len(held.slots),
        )
        made = self._closed(arrival, positions, slots.keys, held, rows, folds)
        if made is not None:
            note_null_keys(self._kind.operator_name, batch, keys, self._shape.null_key)
        return made

    def _state(self, slots: KeySlots) -> _Held:
        """What the keys that have tuples, or become due, have. The latter get slots behind the others."""
        self._table.load(slots.keys)
        last = self._timeline.last
        live = self._table.load_due("timer_due", self._timeline.begun, last)
        touched = set(slots.keys)
        slots.keys += [
            key
            for key, each in live.items()
            if key not in touched and each.timer_due is not None and each.timer_due <= last
        ]
        instances = [live[key] for key in slots.keys]
        found = [(slot, held) for slot, each in enumerate(instances) for held in each.sessions]
        return _Held(instances, np.array([slot for slot, _ in found], dtype=np.int64), [held for _, held in found])

    def _folds(self, batch: ColumnBatch, held: _Held, masks: Sequence[np.ndarray]) -> list[Fold] | None:
        """Each aggregation for each row; None if numbers may leave 64 bits."""
        waiting = iter(masks)
        made: list[Fold] = []
        for place, (name, attribute, test) in enumerate(self._shape.measures):
            if name.startswith("bound"):
                made.append(Fold(name))
                continue
            mask = next(waiting) if test >= 0 else None
            array = None if attribute is None else batch.untouched(batch.schema.names.index(attribute))
            if attribute is not None and array is None:
                return None
            first = ACCUMULATORS + 2 * place
            fold = Fold.of(name, array, mask, [(each[first], each[first + 1]) for each in held.sessions], len(batch))
            if fold is None:
                return None
            made.append(fold)
        return made

    def _closed(
        self,
        arrival: Arrival,
        positions: np.ndarray,
        keys: list[Any],
        held: _Held,
        rows: _Rows,
        folds: Sequence[Fold],
    ) -> Closed | None:
        sessions = rows.sessions(self._gap)
        many = len(sessions.firsts)
        totals = [each.over(np.arange(len(rows.slots)), sessions.of, many) for each in folds]
        runs, begins = waitings(rows.slots, rows.lasts + self._gap, rows.reached, rows.before, len(keys))
        last = self._timeline.last
        due = sessions.lasts + self._gap
        since = since_when(held.instances, positions[begins], arrival.trails, self._epoch)
        closing = np.flatnonzero(due <= last)
        since_of = since[runs[sessions.firsts[closing]]]
        order = np.lexsort([*(since_of[:, at] for at in reversed(range(since_of.shape[1]))), due[closing]])
        closing, since_of = closing[order], since_of[order]
        columns = result_columns(
            *(self._node.schema, self._shape, keys, sessions.slots[closing], sessions.starts[closing], due[closing]),
            [each.taken(closing) for each in totals],
        )
        if columns is None:
            return None
        fires = np.searchsorted(self._timeline.values[1:], due[closing])
        self._leave(keys, held, rows, sessions, totals, runs, since)
        return Closed(columns, self._timeline.places[fires], due[closing], since_of)

    def _leave(
        self,
        keys: list[Any],
        held: _Held,
        rows: _Rows,
        sessions: _Sessions,
        totals: Sequence[Fold],
        runs: np.ndarray,
        since: np.ndarray,
    ) -> None:
        """Change the state: what closed goes, the others hold what was added."""
        count = len(keys)
        # How many tuples of its waiting came before each.
        numbers, waiting = rows.numbered(runs, len(since))
        begun = np.zeros(len(since), dtype=np.int64)
        begun[:count] = [each.count for each in held.instances]
        current = np.arange(count)
        np.maximum.at(current, rows.slots, runs)  # those that begin here rise within a key
        counts = (begun + waiting)[current].tolist()
        staying = np.flatnonzero(sessions.lasts + self._gap > self._timeline.last)
        firsts = sessions.firsts[staying]
        own = (begun[runs[firsts]] + numbers[firsts]).tolist()
        number = [held.sessions[row][2] if row < rows.before else own[at] for at, row in enumerate(firsts.tolist())]
        values = [part for fold in totals for part in _parts(fold, staying)]
        kept: list[list[list[Any]]] = [[] for _ in keys]
        listed = (sessions.slots[staying], sessions.starts[staying], sessions.lasts[staying])
        for at, (slot, start, end) in enumerate(zip(*(each.tolist() for each in listed), strict=True)):
            kept[slot].append([start, end, number[at], [], *(value[at] for value in values)])
        several = len(self._shape.key) > 1
        for key, instance, mine, run, many in zip(keys, held.instances, kept, current.tolist(), counts, strict=True):
            mine.sort(key=lambda each: each[2])
            instance.sessions = mine
            instance.count = many if mine else 0
            for at, part in enumerate(key if several else (key,)):
                setattr(instance, f"k{at}", part if mine else None)
            if not mine:
                instance.timer_due = instance.timer_since = None
                continue
            instance.timer_due = min(each[1] for each in mine) + self._gap
            if run >= count or instance.timer_since is None:
                instance.timer_since = tuple(since[run].tolist())


def _parts(fold: Fold, chosen: np.ndarray) -> list[list[Any]]:
    """The two places of an aggregation in what sessions hold."""
    if fold.name.startswith("bound"):
        return [[None] * len(chosen)] * 2
    return fold.taken(chosen).held()


@dataclasses.dataclass
class _Sessions:
    """The sessions of all rows: of which each is, and of each its key, first row, first and last time."""

    of: np.ndarray
    slots: np.ndarray
    firsts: np.ndarray
    starts: np.ndarray
    lasts: np.ndarray


@dataclasses.dataclass
class _Rows:
    """What the keys had, then the tuples in their order; `before` are the former."""

    slots: np.ndarray
    starts: np.ndarray
    lasts: np.ndarray
    reached: np.ndarray
    before: int

    def sessions(self, gap: int) -> _Sessions:
        """Rows of a key whose times are less than a gap apart."""
        order = np.lexsort([self.starts, self.slots])
        slots, starts, lasts = self.slots[order], self.starts[order], self.lasts[order]
        other = np.concatenate([[True], slots[1:] != slots[:-1]])
        # The last time so far, of the key: numbers of a later key are made higher than all of those before it.
        dense = np.cumsum(other) - 1
        ranked = np.unique(lasts)
        above = dense * (len(ranked) + 1)
        highest = ranked[np.maximum.accumulate(np.searchsorted(ranked, lasts) + above) - above]
        begins = other.copy()
        begins[1:] |= starts[1:] - highest[:-1] >= gap
        number = np.cumsum(begins) - 1
        at = np.flatnonzero(begins)
        of = np.empty(len(order), dtype=np.int64)
        of[order] = number
        return _Sessions(of, slots[at], np.minimum.reduceat(order, at), starts[at], np.maximum.reduceat(lasts, at))

    def numbered(self, runs: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """How many tuples of its waiting come before each row; how many each waiting has."""
        tuples = runs[self.before :]
        order = np.argsort(tuples, kind="stable")
        ordered = tuples[order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        lengths = np.diff(np.append(starts, len(ordered)))
        within = np.empty(len(tuples), dtype=np.int64)
        within[order] = np.arange(len(tuples)) - np.repeat(starts, lengths)
        return np.concatenate([np.zeros(self.before, dtype=np.int64), within]), np.bincount(tuples, minlength=count)
