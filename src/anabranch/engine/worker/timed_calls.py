"""A keyed operator whose keys wait for times: its calls in one channel for one epoch.

    tuples   t  t  t  t  t  t  t  t
    time         ▲        ▲           ▲     the start of the epoch, then advances of the watermark
                 └ keys whose time has come are called: by their times, then since when they waited

Tuples between two advances are taken in one loop. Which keys are due is found without looking at those that are not: of
state that no tuple touches, only what becomes due in this epoch is loaded (`Table.load_due`).

What a key emits has the trail of the advance, the time it was called for, and since when it waited: an epoch and a
trail. So the keys of all channels come in the order of one thread.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from anabranch.compiler.layout.stages import Step
from anabranch.compiler.rewriting.column_arguments import ColumnArguments, with_column_arguments
from anabranch.engine.worker.advances import Advances, EventTimes
from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.batches import BatchSteps, Keeper, StateTable, keys_of
from anabranch.engine.worker.join_columns import JoinColumns, has_join_columns
from anabranch.engine.worker.samples import TIME
from anabranch.engine.worker.sampling import StepSampler
from anabranch.engine.worker.session_columns import SessionColumns, has_session_columns
from anabranch.engine.worker.stage_flow import Arrival, Flow
from anabranch.engine.worker.timed_columns import Closed
from anabranch.engine.worker.timeline import Timeline
from anabranch.engine.worker.timing import LONG_CALL_SECONDS, Stopwatch, timed_rows
from anabranch.engine.worker.trails import LAST, emission_index
from anabranch.engine.worker.window_columns import WindowColumns, has_window_columns
from anabranch.errors import AnabranchError, ProgramError
from anabranch.operators.epoch_context import moment
from anabranch.program.calling import emitted, operator_failed
from anabranch.program.event_time import END, LeastWatermark, Timetable
from anabranch.program.graph import Keyed, Node
from anabranch.state.broadcast_state import BroadcastState

AT_ONCE: tuple[tuple[str, Callable[[Node], bool], Any], ...] = (
    ("windows", has_window_columns, WindowColumns),
    ("sessions", has_session_columns, SessionColumns),
    ("joins", has_join_columns, JoinColumns),
)
"""What computes operators of a kind for all keys at once: what switches it, and which operators it can take."""


class TimedCalls:
    """The calls of one operator for all that arrived in an epoch."""

    def __init__(
        self,
        step: Step,
        table: StateTable,
        epoch: int,
        clock_ms: int,
        times: EventTimes,
        names_read: Mapping[int, tuple[str, ...]],
        watch: Stopwatch | None = None,
        sampler: StepSampler | None = None,
        broadcast: BroadcastState | None = None,
        columns: Collection[str] = (),
        wanted: Collection[int] | None = None,
    ) -> None:
        self._wanted = wanted  # the columns of what comes out that somebody reads; None: all
        self._at_once: type[WindowColumns] | type[SessionColumns] | type[JoinColumns] | None = None
        if sampler is None:
            self._at_once = next((kind for name, has, kind in AT_ONCE if name in columns and has(step.node)), None)
        assert isinstance(step.node.logic, Keyed)
        self._sampler = sampler
        self._broadcast = broadcast
        self._broadcasts: dict[int, Any] = {}  # position → the tuple that is for all keys
        self._node = step.node
        self._logic = step.node.logic
        self._kind = type(step.node.logic.prototype)
        self._table = table
        self._epoch = epoch
        self._clock = END if times.ending else clock_ms
        names = tuple(dict.fromkeys(name for each in names_read.values() for name in each))
        self._names_read = names_read
        self._watermark = LeastWatermark(names, times.values, times.idle, times.value(step.node.name))
        self._names = names
        self._times = times
        self._watch = watch
        self._keep = Keeper(step.node.schema)
        takes_columns = "methods" in columns and sampler is None and broadcast is None
        self._taking = column_arguments(step.node) if takes_columns else None
        self._timetable = Timetable()
        self._known: dict[Any, Any] = {}  # what the timetable has of a key: the time, and since when
        self._moment = moment()
        self.timed_keys: list[Any] = []
        self.timed_seconds: list[float] = []
        # What is emitted: where, for which time, by a key that waited since when.
        self._positions: list[int] = []
        self._due: list[int] = []
        self._since: list[tuple[int, ...]] = []
        self._outputs: list[Any] = []
        self._advances: Any = []  # pairs of a position and a value

    @property
    def value(self) -> int:
        """How far time has come."""
        return self._watermark.value

    def run(self, arrival: Arrival) -> Flow:
        """What the operator emits, and the advances of its own watermark."""
        flow = None if self._at_once is None else self._all_at_once(arrival, self._at_once)
        if flow is not None:
            return flow
        self.take(arrival)
        return self.flow(arrival)

    def _all_at_once(
        self, arrival: Arrival, kind: type[WindowColumns] | type[SessionColumns] | type[JoinColumns]
    ) -> Flow | None:
        """The same, computed for all keys at once; None if tuples must be taken one by one."""
        begun = self._watch.clock() if self._watch is not None else 0.0
        clock = self._clock if self._logic.by_clock else None
        timeline = Timeline.of(self._watermark, self._events(arrival), clock)
        more = (self._wanted,) if kind is JoinColumns else ()
        found = kind(self._node, self._table, self._epoch, timeline, *more).taken(arrival)
        if found is None:
            return None
        self._watermark, self._advances = timeline.watermark, timeline.advances
        if self._watch is not None:  # each tuple has its share
            for place_of, batch in arrival.batches.items():
                some = batch.part(0, timed_rows(len(batch)))
                self.timed_keys += keys_of(some, self._places_of_key(batch, place_of)) if len(batch) else []
            share = (self._watch.clock() - begun) / max(1, sum(map(len, arrival.batches.values())))
            self.timed_seconds = [share] * len(self.timed_keys)
        count = len(found.positions)
        made = ColumnBatch(self._node.schema, range(count), found.columns)
        if isinstance(found, Closed):
            return self._flowing(arrival, made, found.positions, found.due, found.since)
        nothing = np.zeros((count, len(arrival.trails) + 1), dtype=np.int64)
        return self._flowing(arrival, made, found.positions, nothing[:, 0], nothing)

    def take(self, arrival: Arrival) -> None:
        """Make the calls."""
        self._trails = arrival.trails
        self._width = len(arrival.trails)
        self._never = (0,) * (self._width + 1)
        self._line_up(arrival)
        self._last_time = self._time_at_the_end(arrival)
        self._live = self._table.load_due("timer_due", self.value, self._last_time)
        self._note(self._live)
        if self._sampler is not None:
            self._take_down(arrival, self._sampler)
        at = 0
        for position, name, value in self._events(arrival):
            stop = bisect.bisect_left(self._places, position, at)
            self._take(at, stop)
            at = stop
            if position in self._broadcasts:
                self._take_broadcast(position, self._broadcasts[position])
            elif not name:
                self._tick(position)
            elif self._watermark.take(name, value):
                self._fire(position)
        self._take(at, len(self._places))
        if self._broadcast is not None:
            self._broadcast.check()

    def _take_broadcast(self, position: int, row: Any) -> None:
        assert self._broadcast is not None
        self._broadcast.take(row, self._epoch)

    def _line_up(self, arrival: Arrival) -> None:
        """The tuples of all inputs in their order: their positions, keys, and methods."""
        touched: set[Any] = set()
        parts = []
        for place, batch in arrival.batches.items():
            if self._node.is_broadcast(place):
                self._broadcasts = dict(zip(batch.positions, batch.rows, strict=True))
                continue
            keys = keys_of(batch, self._places_of_key(batch, place))
            method = getattr(self._kind, self._logic.method_of(place))
            if self._logic.per_input:
                method = self._with_own_time(method, self._names_read.get(place, ()))
            rows: Sequence[Any]
            if self._taking is None:
                rows = batch.rows
            else:  # the only input: the method is called with what it reads
                method, rows = self._taking.function, self._arguments(batch, self._taking.reads)
            parts.append((list(batch.positions), keys, rows, [method] * len(keys)))
            touched.update(keys)
        self._table.load(touched)
        if len(parts) == 1:
            self._places, self._keys, self._rows, self._methods = parts[0]
        else:
            joined = sorted((entry for part in parts for entry in zip(*part, strict=True)), key=lambda entry: entry[0])
            columns = [list(column) for column in zip(*joined, strict=True)] if joined else [[], [], [], []]
            self._places, self._keys, self._rows, self._methods = columns
        self._timed_until = timed_rows(len(self._places)) if self._watch is not None else 0
        self._noted = 0

    def _arguments(self, batch: Batch, reads: Sequence[int]) -> list[tuple[Any, ...]]:
        self._batch = batch
        return list(zip(*map(batch.values, reads), strict=True)) if reads else [()] * len(batch)

    def _places_of_key(self, batch: Batch, place: int) -> tuple[int, ...]:
        return tuple(batch.schema.names.index(name) for name in self._node.key_of(place))

    def _take_down(self, arrival: Arrival, sampler: StepSampler) -> None:
        """Have methods take down what they emit, for keys that are to be run again."""
        sampler.due(self._live, self.value)
        inputs = {position: place for place, batch in arrival.batches.items() for position in batch.positions}
        calls = zip(self._methods, self._places, self._keys, self._rows, strict=True)
        self._methods = [sampler.around(each, inputs[at], at, key, row) for each, at, key, row in calls]

    def _with_own_time(self, method: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
        """The method of an input, which takes that input's time instead of the operator's."""
        least = self._watermark.least
        return lambda instance, t, _: method(instance, t, least(names))

    def _events(self, arrival: Arrival) -> list[tuple[int, str, int]]:
        """What happens between the tuples; the start of the epoch has no name."""
        events = [] if self._logic.by_clock else [each for each in arrival.advances if each[1] in self._names]
        if arrival.tick is not None:
            events.append((arrival.tick, "", 0))
        events += [(position, "", 0) for position in self._broadcasts]
        return sorted(events)

    def _time_at_the_end(self, arrival: Arrival) -> int:
        """How far time will have come when all was taken: what is due later need not be looked at."""
        if self._logic.by_clock:
            return self._clock
        ahead = LeastWatermark(self._names, self._times.values, self._times.idle, self.value)
        ahead.advance()
        for _, name, value in self._events(arrival):
            if name:
                ahead.take(name, value)
        return ahead.value

    def _tick(self, position: int) -> None:
        if self._logic.by_clock:
            self._watermark.value = max(self._clock, self._watermark.value)
            self._fire(position)
        elif self._watermark.advance():
            self._fire(position)

    # -- calls ----------------------------------------------------------------------------------------------

    def _take(self, start: int, stop: int) -> None:
        self._moment.reached, self._moment.fired = self.value, None
        if self._broadcast is not None:
            self._broadcast.looked_at = True
        while start < min(stop, self._timed_until):
            until = min(stop, self._timed_until)
            self._take_timed(start, until)
            start = until
            if start == self._timed_until and sum(self.timed_seconds) > LONG_CALL_SECONDS * start:
                self._timed_until = 2 * start
        if start < stop:
            self._take_run(start, stop)

    def _take_run(self, start: int, stop: int) -> None:
        live = self._live
        keys, rows = self._keys[start:stop], self._rows[start:stop]
        called = zip(self._places[start:stop], keys, rows, self._methods[start:stop], strict=True)
        t: Any = None
        position = -1
        try:
            if self._logic.takes_time:
                now = self.value
                for position, key, t, method in called:
                    instance = live[key]
                    result = method(instance, t, now)
                    if result is not None:
                        self._emit(position, result)
                    if instance.timer_since is None:  # only when it is called for a time does such a key end to wait
                        self._settle(instance, position)
            elif self._taking is not None:
                for position, key, t, method in called:
                    instance = live[key]
                    result = method(instance, *t)
                    if result is not None:
                        self._emit(position, result)
                    if (instance.timer_since is None) is not (instance.timer_due is None):
                        self._settle(instance, position)
            else:
                for position, key, t, method in called:
                    instance = live[key]
                    result = method(instance, t)
                    if result is not None:
                        self._emit(position, result)
                    if (instance.timer_since is None) is not (instance.timer_due is None):
                        self._settle(instance, position)
        except AnabranchError:
            raise
        except Exception as problem:
            raise operator_failed(self._node, self._tuple(t, position), problem, self._epoch) from problem

    def _take_timed(self, start: int, stop: int) -> None:
        """The same, with a clock around the call for each tuple."""
        assert self._watch is not None
        clock, arguments = self._watch.clock, (self.value,) if self._logic.takes_time else ()
        for at in range(start, stop):
            t, instance = self._rows[at], self._live[self._keys[at]]
            begun = clock()
            try:
                given = (t,) if self._taking is None else t
                result = self._methods[at](instance, *given, *arguments)
                if result is not None:
                    self._emit(self._places[at], result)
            except AnabranchError:
                raise
            except Exception as problem:
                raise operator_failed(self._node, self._tuple(t, self._places[at]), problem, self._epoch) from problem
            self.timed_seconds.append(clock() - begun)
            self.timed_keys.append(self._keys[at])
            self._settle(instance, self._places[at])

    def _tuple(self, t: Any, position: int) -> Any:
        """The tuple at a position: `t`, unless that is what the method was called with instead."""
        return t if self._taking is None else self._batch.row_at(position)

    def _emit(self, position: int, result: Any) -> None:
        """What a key emits for a tuple."""
        lasts = self._keep.tuples_last
        for output in emitted(result):
            self._outputs.append(output if lasts and isinstance(output, tuple) else self._keep(output))
            self._positions.append(position)
            self._due.append(0)
            self._since.append(self._never)

    def _settle(self, instance: Any, position: int) -> None:
        """A key begins to wait, or ends, if it does."""
        if instance.timer_due is None:
            instance.timer_since = None
        elif instance.timer_since is None:
            instance.timer_since = (self._epoch, *(int(digit[position]) for digit in self._trails))

    def _note(self, keys: Any) -> None:
        """Keys that may wait for another time than before."""
        live, last, known = self._live, self._last_time, self._known
        for key in keys:
            instance = live[key]
            due = instance.timer_due
            if due is not None and due <= last and known.get(key) != (due, instance.timer_since):
                known[key] = due, instance.timer_since
                self._timetable.add(due, self._padded(instance.timer_since), key)

    def _padded(self, since: tuple[int, ...]) -> tuple[int, ...]:
        # A key that waits since the program was laid out with shorter trails waits since an earlier epoch: what its
        # trail lacks decides nothing.
        return since if len(since) == self._width + 1 else (*since, *self._never[len(since) :])[: self._width + 1]

    def _fire(self, position: int) -> None:
        """Call the keys whose time has come."""
        stop = bisect.bisect_left(self._places, position)
        self._note(set(self._keys[self._noted : stop]))
        self._noted = stop
        now = self.value
        self._advances.append((position, now))
        if self._sampler is not None:
            self._sampler.happened(TIME, position, now)
        while (found := self._timetable.next(now)) is not None:
            due, since, key = found
            instance = self._live[key]
            if instance.timer_due != due or self._padded(instance.timer_since) != since:
                continue  # it waits for another time now
            self._moment.reached, self._moment.fired, self._moment.key = now, due, key
            self._call_waiting(position, key, instance, due, since)
            again = instance.timer_due
            if again is None:
                instance.timer_since = None
            elif again < due:
                raise ProgramError(f"operator {self._node.title}: called for the time {due}, it waits for {again}")
            elif again <= self._last_time:
                self._known[key] = again, instance.timer_since
                self._timetable.add(again, since, key)

    def _call_waiting(self, position: int, key: Any, instance: Any, due: int, since: tuple[int, ...]) -> None:
        lasts = self._keep.tuples_last
        if self._broadcast is not None:
            self._broadcast.looked_at = True
        method = getattr(self._kind, self._logic.timed)
        if self._sampler is not None:
            method = self._sampler.around(method, TIME, position, key, None)
        try:
            result = method(instance, due)
            for output in emitted(result) if result is not None else ():
                self._outputs.append(output if lasts and isinstance(output, tuple) else self._keep(output))
                self._positions.append(position)
                self._due.append(due)
                self._since.append(since)
        except AnabranchError:
            raise
        except Exception as problem:
            raise operator_failed(self._node, _waiting(key), problem, self._epoch) from problem

    # -- what leaves ----------------------------------------------------------------------------------------

    def flow(self, arrival: Arrival) -> Flow:
        """What the calls emitted."""
        batch = BatchSteps({}, self._epoch).checked(self._node, self._positions, self._outputs, self)
        positions = np.array(self._positions, dtype=np.int64)
        due = np.array(self._due, dtype=np.int64)
        since = np.array(self._since, dtype=np.int64).reshape(len(positions), self._width + 1)
        return self._flowing(arrival, batch, positions, due, since)

    def _flowing(
        self, arrival: Arrival, batch: Batch, positions: np.ndarray, due: np.ndarray, since: np.ndarray
    ) -> Flow:
        width = len(arrival.trails)
        # Outputs of one call stand together: they have the position, the time and the key's waiting in common.
        same = np.zeros(len(positions), dtype=np.int64)
        if len(positions) > 1:
            differs = (positions[1:] != positions[:-1]) | (due[1:] != due[:-1]) | (since[1:] != since[:-1]).any(axis=1)
            same[1:] = np.cumsum(differs)
        base = [digit[positions] for digit in arrival.trails]
        trails = [*base, due, *(since[:, at] for at in range(width + 1)), emission_index(same)]
        behind = (LAST, *(0,) * (width + 2))
        marks = [digit[arrival.marks] for digit in arrival.trails]
        marks += [np.full(len(arrival.marks), digit, dtype=np.int64) for digit in behind]
        return Flow(batch.renumbered(), trails, marks, advances=tuple(self._own_advances(arrival, behind)))

    def _own_advances(self, arrival: Arrival, behind: tuple[int, ...]) -> Any:
        if self._logic.by_clock:
            yield from (each.then(*behind) for each in arrival.advances_by_name())
        elif len(self._advances):
            places, values = np.array(self._advances, dtype=np.int64).T
            yield Advances(self._node.name, [digit[places] for digit in arrival.trails], values).then(*behind)

    def row_at(self, position: int) -> Any:
        """What was called with at a position, for error messages."""
        at = bisect.bisect_left(self._places, position)
        if at < len(self._places) and self._places[at] == position:
            return self._tuple(self._rows[at], position)
        return "a key, which waits"


def column_arguments(node: Node) -> ColumnArguments | None:
    """The method of an operator with one input that takes columns instead of a tuple; None if there is none."""
    logic = node.logic
    assert isinstance(logic, Keyed)
    if len(node.inputs) != 1 or logic.per_input or logic.takes_time or hasattr(type(logic.prototype), "watched"):
        return None
    return with_column_arguments(getattr(type(logic.prototype), logic.method_of(0)), node.inputs[0].schema.names)


def _waiting(key: Any) -> str:
    return f"the key {key!r}, which waits"
