"""A keyed operator that reads several streams, or waits for punctuations or epochs: its calls in one channel.

All that arrived is in one order: tuples of every input, punctuations, the start of the epoch, and tuples of a stream
that is broadcast, which come to no key (`program/broadcasting.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from anabranch.compiler.layout.stages import Step
from anabranch.engine.worker.advances import EventTimes
from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.batches import BatchSteps, Keeper, StateTable, keys_of
from anabranch.engine.worker.clock_columns import ClosedByClock, clock_columns
from anabranch.engine.worker.samples import PUNCTUATION, TICK
from anabranch.engine.worker.sampling import StepSampler
from anabranch.engine.worker.stage_flow import Arrival, Flow
from anabranch.engine.worker.timing import LONG_CALL_SECONDS, Stopwatch, timed_rows
from anabranch.engine.worker.trails import LAST, Trails, emission_index
from anabranch.errors import AnabranchError
from anabranch.operators.epoch_context import moment
from anabranch.program.calling import emitted, operator_failed
from anabranch.program.graph import Keyed
from anabranch.state.broadcast_state import BroadcastState


def broadcast_of(step: Step, table: Any, times: EventTimes) -> BroadcastState | None:
    """The broadcast state of an operator as an epoch begins; None: it has none."""
    logic = step.node.logic
    if not isinstance(logic, Keyed) or logic.broadcast is None:
        return None
    return BroadcastState(step.node, table.instances, times.broadcasts.get(step.node.name, b""))


class ArrivalCalls:
    """A keyed operator that reads several streams, or waits for punctuations or time: one call after the other."""

    def __init__(
        self,
        step: Step,
        table: StateTable,
        epoch: int,
        clock_ms: int,
        watch: Stopwatch | None = None,
        sampler: StepSampler | None = None,
        broadcast: BroadcastState | None = None,
        columns: Collection[str] = (),
    ) -> None:
        assert isinstance(step.node.logic, Keyed)
        self._sampler = sampler
        self._broadcast = broadcast
        self._broadcasts: dict[int, Any] = {}  # position → the tuple that is for all keys
        self._watch = watch
        self.timed_keys: list[Any] = []
        self.timed_seconds: list[float] = []
        self._step = step
        self._node = step.node
        self._logic = step.node.logic
        self._table = table
        self._epoch = epoch
        self._clock_ms = clock_ms
        self._keep = Keeper(step.node.schema)
        self._positions: list[int] = []
        takes_columns = "windows" in columns and sampler is None and broadcast is None
        self._windows = clock_columns(step.node, table, epoch) if takes_columns else None
        self._at_once: ClosedByClock | None = None  # what these give, if they are closed
        self._opened: list[tuple[int, ...]] = []  # since when the key waited, for what a punctuation made
        self._outputs: list[Any] = []

    def run(self, arrival: Arrival) -> Flow:
        """What the operator emits for all that arrived."""
        self.take(arrival, self._closed(arrival))
        return self.flow(arrival)

    def _closed(self, arrival: Arrival) -> bool | None:
        """Windows of the clock, all at once: they are closed, and whether tuples were taken; None: nothing was done."""
        batches = list(arrival.batches.values())
        first = min((batch.positions[0] for batch in batches if len(batch)), default=0)
        if self._windows is None or len(batches) != 1 or len(arrival.marks) or (arrival.tick or 0) > first:
            return None
        begun = self._watch.clock() if self._watch is not None else 0.0
        can_fold = self._windows.prepare(batches[0])
        if arrival.tick is not None:
            due, width = self._windows.due(self._clock_ms), len(arrival.trails) + 1
            self._at_once = self._windows.close(due, width) if due else None
            if due and self._at_once is None:
                live = self._table.load(set(due))
                waiting = {key: (*live[key].opened, *(0,) * width)[:width] for key in due}
                self._call_waiting(arrival, arrival.tick, waiting, _Rows([]), live)
        if not len(batches[0]):
            return True
        if not can_fold or self._windows.fold(arrival.trails) is None:
            return False
        if self._watch is not None:  # each tuple has its share
            some = batches[0].part(0, timed_rows(len(batches[0])))
            names = some.schema.names
            self.timed_keys = keys_of(some, tuple(names.index(name) for name in self._node.key_of(0)))
            share = (self._watch.clock() - begun) / len(batches[0])
            self.timed_seconds = [share] * len(self.timed_keys)
        return True

    def take(self, arrival: Arrival, closed: bool | None = None) -> None:
        """Make the calls; of windows of the clock that are `closed`, those for tuples, unless they were made."""
        if closed:
            self._rows = _Rows([None] * len(arrival.trails[0]))
            return
        count = len(arrival.trails[0])
        calls: list[Any] = [None] * count
        live: dict[Any, Any] = {}
        kind = type(self._logic.prototype)
        for place, batch in arrival.batches.items():
            if self._node.is_broadcast(place):
                self._broadcasts = dict(zip(batch.positions, batch.rows, strict=True))
                continue
            names = batch.schema.names
            keys = keys_of(batch, tuple(names.index(name) for name in self._node.key_of(place)))
            live = self._table.load(set(keys))
            method = getattr(kind, self._logic.method_of(place))
            for position, key, row in zip(batch.positions, keys, batch.rows, strict=True):
                calls[position] = (method, key, row)
        self._rows = rows = _Rows(calls)
        if self._sampler is not None:
            calls = self._taken_down(calls, arrival)
        self._timed_until = timed_rows(count) if self._watch is not None else 0
        if self._step.waits:
            self._run_waiting(arrival, calls, rows, live, closed is False)
        else:
            for position, call in enumerate(calls):
                if position in self._broadcasts:
                    self._take_broadcast(position, self._broadcasts[position])
                elif call is not None:  # else a punctuation, which passes by
                    method, key, row = call
                    if position < self._timed_until:
                        self._timed_call(position, key, row, method, live[key])
                    else:
                        self._call(position, row, method, live[key], row)
        if self._broadcast is not None:
            self._broadcast.check()

    def _take_broadcast(self, position: int, row: Any) -> None:
        assert self._broadcast is not None
        self._broadcast.take(row, self._epoch)

    def flow(self, arrival: Arrival) -> Flow:
        """What the calls emitted."""
        width = len(arrival.trails)
        batch: Batch
        if self._at_once is not None:  # when the clock ticks, and tuples give nothing
            self._positions = [arrival.tick or 0] * len(self._at_once.opened)
            batch = ColumnBatch(self._node.schema, self._positions, self._at_once.columns)
        else:
            batch = BatchSteps({}, self._epoch).checked(self._node, self._positions, self._outputs, self._rows)
        positions = np.array(self._positions, dtype=np.int64)
        marks = [digit[arrival.marks] for digit in arrival.trails]
        if not self._step.waits:
            return Flow(batch, arrival.trails, marks, advances=tuple(arrival.advances_by_name()))
        base = [digit[positions] for digit in arrival.trails]
        waited = self._opened if self._at_once is None else self._at_once.opened
        opened = np.array(waited, dtype=np.int64).reshape(len(positions), width + 1)
        # Outputs of one call stand together: they have the position and the key's opening in common.
        same = np.zeros(len(positions), dtype=np.int64)
        if len(positions) > 1:
            differs = (positions[1:] != positions[:-1]) | (opened[1:] != opened[:-1]).any(axis=1)
            same[1:] = np.cumsum(differs)
        trails = [*base, *(opened[:, at] for at in range(width + 1)), emission_index(same)]
        behind = [np.full(len(arrival.marks), LAST), *[np.zeros(len(arrival.marks), dtype=np.int64)] * (width + 1)]
        advances = tuple(each.then(LAST, *(0,) * (width + 1)) for each in arrival.advances_by_name())
        return Flow(batch.renumbered(), trails, [*marks, *behind], advances=advances)

    def _taken_down(self, calls: list[Any], arrival: Arrival) -> list[Any]:
        """The same calls; what those of keys that are to be run again emit is taken down."""
        assert self._sampler is not None
        places = {position: place for place, batch in arrival.batches.items() for position in batch.positions}
        noted: list[Any] = []
        passing = {position for position, _, _ in arrival.advances} | self._broadcasts.keys()
        for position, call in enumerate(calls):
            if call is None:
                if position not in passing:
                    is_ticked = position == arrival.tick and bool(self._logic.ticked)
                    arguments = (self._clock_ms,) if is_ticked else ()
                    self._sampler.happened(TICK if is_ticked else PUNCTUATION, position, *arguments)
                noted.append(None)
            else:
                method, key, row = call
                noted.append((self._sampler.around(method, places[position], position, key, row), key, row))
        return noted

    def _run_waiting(
        self, arrival: Arrival, calls: list[Any], rows: _Rows, live: dict[Any, Any], is_closed: bool
    ) -> None:
        logic, width = self._logic, len(arrival.trails)
        never = (0,) * (width + 1)
        happens = (bool(len(arrival.marks)) or arrival.tick is not None) and not is_closed
        waiting: dict[Any, tuple[int, ...]] = {}
        if happens:
            live = self._table.load_waiting(logic.waiting)
            # A key that waits since the program was laid out with shorter trails (its aggregation was not in two steps
            # yet, say) waits since an earlier epoch: what its trail lacks decides nothing.
            waiting = {
                key: (*it.opened, *never[len(it.opened) :]) for key, it in live.items() if getattr(it, logic.waiting)
            }
        passing = {position for position, _, _ in arrival.advances}
        for position, call in enumerate(calls):
            if position in passing:
                continue
            if position in self._broadcasts:
                self._take_broadcast(position, self._broadcasts[position])
                continue
            if call is not None:
                method, key, row = call
                instance = live[key]
                if position < self._timed_until:
                    self._timed_call(position, key, row, method, instance, never)
                else:
                    self._call(position, row, method, instance, row, opened=never)
                self._settle(instance, key, waiting, arrival.trails, position)
                continue
            if not is_closed:
                self._call_waiting(arrival, position, waiting, rows, live)

    def _call_waiting(
        self, arrival: Arrival, position: int, waiting: dict[Any, Any], rows: _Rows, live: dict[Any, Any]
    ) -> None:
        """The start of the epoch, or a punctuation: the keys that wait are called."""
        logic = self._logic
        is_ticked = position == arrival.tick and bool(logic.ticked)
        method = logic.ticked if is_ticked else logic.punctuated
        if not method:
            return
        arguments = (self._clock_ms,) if is_ticked else ()
        for key, opened in sorted(waiting.items(), key=lambda item: item[1]):
            instance, row = live[key], rows.waiting(key)
            moment().key = key
            called = getattr(type(instance), method)
            if self._sampler is not None:
                place = TICK if is_ticked else PUNCTUATION
                called = self._sampler.around(called, place, position, key, None)
            self._call(position, row, called, instance, *arguments, opened=opened)
            self._settle(instance, key, waiting, arrival.trails, position)

    def _settle(self, instance: Any, key: Any, waiting: dict[Any, Any], trails: Trails, position: int) -> None:
        if not getattr(instance, self._logic.waiting):
            instance.opened = None
            waiting.pop(key, None)
        elif instance.opened is None:
            instance.opened = waiting[key] = (self._epoch, *(int(digit[position]) for digit in trails))

    def _timed_call(
        self, position: int, key: Any, row: Any, method: Any, instance: Any, opened: tuple[int, ...] = ()
    ) -> None:
        """A call for one of the first tuples; if those take long, more are timed."""
        assert self._watch is not None
        begun = self._watch.clock()
        self._call(position, row, method, instance, row, opened=opened)
        self.timed_seconds.append(self._watch.clock() - begun)
        self.timed_keys.append(key)
        if position + 1 >= self._timed_until and sum(self.timed_seconds) > LONG_CALL_SECONDS * len(self.timed_keys):
            self._timed_until = 2 * (position + 1)

    def _call(self, position: int, row: Any, method: Any, *arguments: Any, opened: tuple[int, ...] = ()) -> None:
        lasts = self._keep.tuples_last
        if self._broadcast is not None:
            self._broadcast.looked_at = True
        try:
            result = method(*arguments)
            if result is None:
                return
            for output in emitted(result):
                self._outputs.append(output if lasts and isinstance(output, tuple) else self._keep(output))
                self._positions.append(position)
                self._opened.append(opened)
        except AnabranchError:
            raise
        except Exception as problem:
            raise operator_failed(self._node, row, problem, self._epoch) from problem


class _Rows:
    """The tuples behind positions, for error messages."""

    def __init__(self, calls: list[Any]) -> None:
        self._calls = calls

    def row_at(self, position: int) -> Any:
        call = self._calls[position]
        return "a punctuation" if call is None else call[2]

    def waiting(self, key: Any) -> str:
        return f"the key {key!r}, which waits"
