"""Sessions that follow a watermark, of all keys at once: see `operators/session_windows`.

    times of a key, sorted   10 12 ··· 30 33 ··· 50       two neighbours less than a gap apart are in one session
                             └──┘      └───┘     └┘       what was held is in it with its first and last time

Where no tuple is behind the watermark when it comes, the order in which they come decides nothing of this: what a
session that closed has missed comes at least a gap behind its end. So sessions are runs of the sorted times, and what
they hold is one fold over all of them. In which order a key's sessions began numbers them; and since when a key waits
orders what comes out, as with windows (`timed_columns`). A batch with a tuple that is behind is taken one by one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.fold_columns import Fold, held_kinds
from anabranch.engine.worker.key_slots import INT_LIMIT
from anabranch.engine.worker.timed_columns import TIME_LIMIT, Came, Closed, Had, Left, TimedColumns, timed_shape
from anabranch.engine.worker.timeline import Timeline
from anabranch.engine.worker.waiting_columns import begun_here, since_when, waitings
from anabranch.operators.session_windows import ACCUMULATORS
from anabranch.operators.window_bounds import representable
from anabranch.operators.windows import Sessions
from anabranch.program.graph import Keyed, Node
from anabranch.state import state_columns


def has_session_columns(node: Node) -> bool:
    """Whether an operator's sessions can be computed over columns."""
    if timed_shape(node, Sessions) is None or not isinstance(node.logic, Keyed):
        return False
    # Sessions that become one are added up anew where partial results do not combine: then they hold their tuples.
    return 0 < _gap(node.logic) < TIME_LIMIT and "held[3].append" not in type(node.logic.prototype).source


def _gap(logic: Keyed) -> int:
    # Around an operator with an error policy there is another method, of which it is not known: 0, one by one.
    gap: int = type(logic.prototype).process.__globals__.get("GAP", 0)
    return gap


class SessionColumns(TimedColumns):
    """The sessions of one operator in one channel for one epoch."""

    def __init__(self, node: Node, table: Any, epoch: int, timeline: Timeline) -> None:
        assert isinstance(node.logic, Keyed)
        shape, schema = type(node.logic.prototype).shape, node.inputs[0].schema
        # First and last time, number, no tuples, accumulators.
        kinds = [pa.int64(), pa.int64(), pa.int64(), pa.list_(pa.null())]
        kinds += [kind for each in shape.measures for kind in held_kinds(each, schema)]
        super().__init__(node, table, epoch, timeline, {"sessions": state_columns.lists_of(kinds)})
        self._gap = _gap(node.logic)
        self._places = [ACCUMULATORS + 2 * at for at in range(len(shape.measures))]

    def can_take(self, came: Came) -> bool:
        if bool((came.times < came.reached).any()):
            return False
        is_told = any(name in ("bound end", "bound time") for name, _, _ in self.shape.measures)
        policy: Any = self.shape.window.policy
        last = representable(self.schema.type_of(policy.attribute))[1]
        return not is_told or int(came.times.max()) + self._gap <= last

    def made(self, came: Came, had: Had) -> tuple[Closed, Left | None] | None:
        starts, lasts = had.numbers(0), had.numbers(1)
        held = np.concatenate([starts, lasts])
        if len(held) and not -TIME_LIMIT < int(held.min()) <= int(held.max()) < TIME_LIMIT:
            return None
        folds = self.folds(came, had, None, self._places)
        if folds is None:
            return None
        before, count = len(had.slots), len(had.keys)
        rows = _Rows(
            np.concatenate([had.slots, came.slots]),
            np.concatenate([starts, came.times]),
            np.concatenate([lasts, came.times]),
            np.concatenate([np.full(before, -INT_LIMIT), came.reached]),
            before,
        )
        sessions = rows.sessions(self._gap)
        totals = [each.over(np.arange(len(rows.slots)), sessions.of, len(sessions.firsts)) for each in folds]
        runs, begins = waitings(rows.slots, rows.lasts + self._gap, rows.reached, before, count)
        begun = begun_here(came.positions[begins], came.arrival.trails, self.epoch)
        ends = sessions.lasts + self._gap
        closing = np.flatnonzero(ends <= self.timeline.last)
        since = since_when(had.state.arrays["timer_since"], begun)[runs[sessions.firsts[closing]]]
        given = [each.taken(closing) for each in totals]
        closed = self.closed(had.keys, sessions.slots[closing], sessions.starts[closing], ends[closing], since, given)
        return None if closed is None else (closed, self._left(had, rows, sessions, totals, runs, begun))

    def _left(
        self, had: Had, rows: _Rows, sessions: _Sessions, totals: list[Fold], runs: np.ndarray, begun: np.ndarray
    ) -> Left:
        """What closed goes, the others hold what was added."""
        count = len(had.keys)
        # How many tuples of its waiting came before each.
        numbers, waiting = rows.numbered(runs, count + len(begun))
        many = np.concatenate([had.count, np.zeros(len(begun), dtype=np.int64)])
        current = np.arange(count)
        np.maximum.at(current, rows.slots, runs)  # those that begin here rise within a key
        staying = np.flatnonzero(sessions.lasts + self._gap > self.timeline.last)
        firsts = sessions.firsts[staying]
        number = many[runs[firsts]] + numbers[firsts]
        is_held = firsts < rows.before
        number[is_held] = had.numbers(2)[firsts[is_held]]
        order = np.lexsort([number, sessions.slots[staying]])
        staying, number = staying[order], number[order]
        slots, lasts = sessions.slots[staying], sessions.lasts[staying]
        nothing = pa.ListArray.from_arrays(pa.array(np.zeros(len(staying) + 1, dtype=np.int32)), pa.nulls(0))
        columns = [pa.array(sessions.starts[staying]), pa.array(lasts), pa.array(number), nothing]
        for fold in totals:
            is_bound = fold.name.startswith("bound")
            columns += [pa.nulls(len(staying), pa.int64())] * 2 if is_bound else fold.taken(staying).held()
        due = np.full(count, INT_LIMIT)
        np.minimum.at(due, slots, lasts)
        return Left(slots, columns, due + self._gap, (many + waiting)[current], current, begun)


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
