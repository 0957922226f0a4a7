"""Windows that follow a watermark, of all keys at once: see `operators/shared_windows` and `window_panes`.

    tuples ─► (key, pane): one fold over all ─► (key, window): another, over panes ─► those that the watermark closed

In an epoch, which windows close is known from how far the watermark comes, and where from its advances. A tuple is in
its pane before any window of the pane closes, or it is late. So a window holds all tuples of its panes, and needs no
look at what came when; but for one thing: since when its key waits, which orders what comes out. A key waits from its
first tuple until the last of its panes is gone; a tuple that comes then begins anew.

State is as one tuple after the other would leave it, and is columns (`timed_columns`). Where that is not sure (see
`key_slots`), and where a tuple is late for some of its windows only, tuples are taken one by one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.fold_columns import Fold, held_kinds
from anabranch.engine.worker.key_slots import INT_LIMIT, starting
from anabranch.engine.worker.timed_columns import TIME_LIMIT, Came, Closed, Had, Left, TimedColumns, timed_shape
from anabranch.engine.worker.timeline import Timeline
from anabranch.engine.worker.waiting_columns import begun_here, since_when, waitings
from anabranch.operators.epoch_context import count_anomaly
from anabranch.operators.library_operator import LATE
from anabranch.operators.window_bounds import representable
from anabranch.operators.windows import EventTime
from anabranch.program.graph import Keyed, Node
from anabranch.state import state_columns

_BOUNDS = ("bound start", "bound end", "bound time")
_PAIRS_MAX = 1 << 24  # of a pane and a window of it that closes: more are taken one by one


def has_window_columns(node: Node) -> bool:
    """Whether an operator's windows can be computed over columns."""
    shape = timed_shape(node, EventTime)
    if shape is None or not isinstance(node.logic, Keyed):
        return False
    is_paned = any(field.name == "panes" for field in node.logic.fields)
    return 0 < shape.step <= shape.width < TIME_LIMIT and (shape.width != shape.step) is is_paned


class WindowColumns(TimedColumns):
    """The windows of one operator in one channel for one epoch."""

    def __init__(self, node: Node, table: Any, epoch: int, timeline: Timeline) -> None:
        assert isinstance(node.logic, Keyed)
        shape = type(node.logic.prototype).shape
        schema = node.inputs[0].schema
        self._many = shape.width // shape.step
        self._is_paned = self._many > 1
        measures = [each for each in shape.measures if not each[0].startswith("bound")]
        kinds = [kind for each in measures for kind in held_kinds(each, schema)]
        form = state_columns.a_dict(pa.int64(), [*([pa.int64()] if self._is_paned else []), *kinds])
        super().__init__(node, table, epoch, timeline, {"panes" if self._is_paned else "windows": form})
        policy: Any = shape.window.policy
        is_told = any(name in _BOUNDS for name, _, _ in shape.measures)
        self._bounds = representable(schema.type_of(policy.attribute)) if is_told else None
        first = 2 if self._is_paned else 1  # behind the window, or the pane and its number
        self._places = [first + 2 * at for at in self._before_each()]

    def _before_each(self) -> list[int]:
        """Of each aggregation, how many before it have a state."""
        has_state = [not name.startswith("bound") for name, _, _ in self.shape.measures]
        return [sum(has_state[:at]) for at in range(len(has_state))]

    def _gone(self, now: Any) -> Any:
        """The last window that is closed when time has come so far."""
        return (now - self.shape.width) // self.shape.step

    def can_take(self, came: Came) -> bool:
        panes, gone = came.times // self.shape.step, self._gone(came.reached)
        if self._bounds is not None:
            first, last = (int(panes.min()) - self._many + 1) * self.shape.step, int(panes.max()) * self.shape.step
            if not (self._bounds[0] <= first and last + self.shape.width <= self._bounds[1]):
                return False
        # Not what is late for some of its windows.
        return not self._is_paned or not bool(((panes - self._many < gone) & (panes > gone)).any())

    def made(self, came: Came, had: Had) -> tuple[Closed, Left | None] | None:
        panes, gone = came.times // self.shape.step, self._gone(came.reached)
        late = panes <= gone
        tuples = np.flatnonzero(~late)
        before = len(had.slots)
        rows = _Rows(
            np.concatenate([had.slots, came.slots[tuples]]),
            np.concatenate([had.numbers(0), panes[tuples]]),
            np.concatenate([np.full(before, -INT_LIMIT), gone[tuples]]),
            before,
        )
        found = self._windows(came, had, rows, tuples)
        if found is not None and late.any():
            count_anomaly(self.kind.operator_name, LATE, int(late.sum()))
        return found

    def _windows(self, came: Came, had: Had, rows: _Rows, tuples: np.ndarray) -> tuple[Closed, Left | None] | None:
        shape, many, count = self.shape, self._many, len(had.keys)
        if not len(rows.slots) or not self._is_of_this_size(had):
            return None
        low = int(rows.panes.min()) - many
        span = int(rows.panes.max()) - low + 1
        if span * (count + 1) > INT_LIMIT:
            return None
        # Panes.
        codes = rows.slots * span + (rows.panes - low)
        pane_codes, firsts, group = np.unique(codes, return_index=True, return_inverse=True)
        added = self.folds(came, had, tuples, self._places)
        if added is None:
            return None
        folds = [each.over(np.arange(len(codes)), group.reshape(-1), len(pane_codes)) for each in added]
        runs, begins = waitings(rows.slots, rows.panes, rows.gone, rows.before, count)
        run = runs[firsts]  # of each pane
        # Windows that close: each pane is in `many` with numbers up to its own, of which few may.
        slots, panes = pane_codes // span, pane_codes % span + low
        first, last = self._gone(self.timeline.begun), self._gone(self.timeline.last)
        lowest = np.maximum(panes - many, first) + 1
        lengths = np.maximum(np.minimum(panes, last) - lowest + 1, 0)
        if int(lengths.sum()) > _PAIRS_MAX:
            return None
        of_pane = np.repeat(np.arange(len(panes)), lengths)
        number = np.arange(len(of_pane)) + np.repeat(lowest - np.cumsum(lengths) + lengths, lengths)
        window_codes, some, window = np.unique(
            slots[of_pane] * span + (number - low), return_index=True, return_inverse=True
        )
        totals = [each.over(of_pane, window.reshape(-1), len(window_codes)) for each in folds]
        # Since when keys wait: what the state says, or the trail of a tuple.
        begun = begun_here(came.positions[tuples[begins]], came.arrival.trails, self.epoch)
        since = since_when(had.state.arrays["timer_since"], begun)[run[of_pane[some]]]
        numbers = window_codes % span + low
        starts = numbers * shape.step
        closed = self.closed(had.keys, window_codes // span, starts, starts + shape.width, since, totals)
        if closed is None:
            return None
        return closed, self._left(had, _Panes(slots, panes, firsts, run), folds, last, begun, rows.before)

    def _is_of_this_size(self, had: Had) -> bool:
        """Whether keys wait for what windows of this size would have them wait for."""
        starts = np.flatnonzero(starting(had.slots))
        if not len(starts):
            return True
        first = np.minimum.reduceat(had.numbers(0), starts)
        due = (np.maximum(first - self._many, self._gone(self.timeline.begun)) + 1) * self.shape.step + self.shape.width
        waits = had.state.arrays["timer_due"].fill_null(-INT_LIMIT).to_numpy(zero_copy_only=False)
        return bool((waits[had.slots[starts]] == due).all())

    def _left(self, had: Had, panes: _Panes, folds: list[Fold], last: int, begun: np.ndarray, before: int) -> Left:
        """Panes that are gone go, the others hold what was added."""
        count = len(had.keys)
        current = np.arange(count)
        np.maximum.at(current, panes.slots, panes.run)  # those that begin here rise within a key
        many = np.zeros(count, dtype=np.int64)
        numbers = np.zeros(len(panes.slots), dtype=np.int64)
        if self._is_paned:
            numbers, many = self._numbered(had, panes, current, len(begun), before)
        # Of each key's panes first the one that came first.
        order = np.lexsort([panes.firsts, panes.slots])
        order = order[panes.panes[order] > last]
        columns = [pa.array(panes.panes[order]), *([pa.array(numbers[order])] if self._is_paned else [])]
        for fold in folds:
            columns += [] if fold.name.startswith("bound") else fold.taken(order).held()
        slots = panes.slots[order]
        due = np.full(count, INT_LIMIT)
        np.minimum.at(due, slots, panes.panes[order])
        due = (np.maximum(due - self._many, last) + 1) * self.shape.step + self.shape.width
        return Left(slots, columns, due, many, current, begun)

    def _numbered(
        self, had: Had, panes: _Panes, current: np.ndarray, begun: int, before: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The number of each pane within its waiting, and how many each key's waiting has had."""
        count = len(had.keys)
        base = np.concatenate(
            [np.where(np.bincount(had.slots, minlength=count) > 0, had.count, 0), np.zeros(begun, int)]
        )
        is_new: np.ndarray = panes.firsts >= before
        order = np.lexsort([panes.firsts, panes.run])
        fresh: np.ndarray = np.cumsum(is_new[order])
        starts = np.flatnonzero(starting(panes.run[order]))
        lengths = np.diff(np.append(starts, len(order)))
        fresh -= np.repeat(fresh[starts] - is_new[order][starts], lengths)
        numbers = np.empty(len(order), dtype=np.int64)
        numbers[order] = base[panes.run[order]] + fresh - 1
        numbers[~is_new] = had.numbers(1)[panes.firsts[~is_new]]
        added = np.bincount(panes.run[is_new], minlength=count + begun)
        return numbers, (base + added)[current]


@dataclasses.dataclass
class _Rows:
    """What the keys had, then the tuples that are not late; `before` are the former."""

    slots: np.ndarray
    panes: np.ndarray
    gone: np.ndarray
    before: int


@dataclasses.dataclass
class _Panes:
    """The panes of keys: the first row of each, and the waiting that it belongs to."""

    slots: np.ndarray
    panes: np.ndarray
    firsts: np.ndarray
    run: np.ndarray
