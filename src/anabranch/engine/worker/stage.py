"""A stage at work: its steps applied to the tuples that entered it.

Steps run one after the other over a whole batch. That gives what depth-first gives, because they share nothing:
each sees its tuples in their order, and trails remember where each tuple belongs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.compiler.layout.stages import Edge, Layout, Stage, Step
from anabranch.engine.worker.advances import Advances, EventTimes, candidates
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import BatchSteps, ElasticSteps, Keeper, StateTable, keys_of
from anabranch.engine.worker.running_columns import RunningStep
from anabranch.engine.worker.sampling import PUNCTUATION, TICK, StageSampler, StepSampler
from anabranch.engine.worker.stage_flow import Arrival, Flow, Leaving
from anabranch.engine.worker.timed_calls import TimedCalls
from anabranch.engine.worker.timing import LONG_CALL_SECONDS, TIMED_BATCHES, Stopwatch, timed_rows
from anabranch.engine.worker.trails import LAST, Trails, emission_index, refined, taken
from anabranch.engine.worker.watching import StageWatch
from anabranch.errors import AnabranchError, ProgramError
from anabranch.operators.epoch_context import count_anomaly, moment
from anabranch.operators.library_operator import NULL_ATTRIBUTE
from anabranch.program.calling import emitted, operator_failed
from anabranch.program.event_time import END, TimeScale, event_time_of, idle_watermarks
from anabranch.program.graph import Keyed, Punctuate, Spread, Watermark


class StageRun:
    """The steps of a stage, ready to run in one channel for one epoch.

    With a stopwatch, some of the tuples that enter are timed: `timed` collects them, as a batch or as keys, with the
    seconds of each. Whoever reads it empties it.
    """

    def __init__(
        self,
        layout: Layout,
        stage: Stage,
        tables: Mapping[str, StateTable],
        epoch: int,
        clock_ms: int = 0,
        watch: Stopwatch | None = None,
        times: EventTimes | None = None,
        elastic: ElasticSteps | None = None,
        sampler: StageSampler | None = None,
        watched: int = 0,
        columns: Collection[str] = (),
    ) -> None:
        self._columns = columns
        self._elastic = elastic
        self._layout = layout
        self._sampler = sampler
        self._watched = watched
        self._watch_declared = StageWatch(layout, stage, tables, epoch, watched) if watched else None
        times = EventTimes() if times is None else times
        self._times = dataclasses.replace(times, idle=idle_watermarks(layout.watermarks_made(), times.idle))
        self.reached: dict[str, int] = {}
        """Watermark → how far it has come, of those that had tuples here or are this stage's own."""
        self._steps = [layout.steps[number] for number in stage.steps]
        self._epoch = epoch
        self._clock_ms = clock_ms
        self._tables = tables
        self._watch = watch
        self._batches = 0
        self._takes_long = False
        self.timed: list[tuple[Batch | list[Any], np.ndarray]] = []
        self.entered: dict[str, int] = {step.node.name: 0 for step in self._steps}
        """Operator → tuples that entered it."""
        self._runs = self._made_runs(None)
        self._timed_runs = self._made_runs(watch) if watch is not None else {}

    def _made_runs(self, watch: Stopwatch | None) -> dict[int, Callable[[Batch, Any], Batch]]:
        operators = BatchSteps(self._tables, self._epoch, self._elastic, self._watched, self._columns)
        return {
            step.number: operators.step(step.node, watch)
            for step in self._steps
            if step.node.inputs and not isinstance(step.node.logic, (Spread, Watermark)) and not step.takes_arrivals
        }

    def run(self, entering: Flow | Arrival) -> list[Leaving]:
        """What leaves, for the tuples that entered."""
        if isinstance(entering, Arrival) and not self._steps[0].takes_arrivals:
            # One input, and punctuations pass by.
            (batch,) = entering.batches.values()
            marks = [digit[entering.marks] for digit in entering.trails]
            entering = Flow(batch, entering.trails, marks, advances=tuple(entering.advances_by_name()))
        if self._watch is None or isinstance(entering, Arrival) or not len(entering.batch):
            return self._run(entering)
        self._batches += 1
        if self._batches % TIMED_BATCHES != 1 and not self._takes_long:
            return self._run(entering)
        count, first = len(entering.batch), timed_rows(len(entering.batch))
        parts, seconds = self._run_timed(entering.part(0, first), self._watch)
        rest = dataclasses.replace(entering.part(first, count), marks=entering.marks, advances=entering.advances)
        self._takes_long = seconds > LONG_CALL_SECONDS * first and not any(
            isinstance(run, RunningStep) for run in self._runs.values()
        )
        if self._takes_long:
            others, _ = self._run_timed(rest, self._watch)
        else:
            others = self._run(rest)
        return [_joined(*each) for each in zip(parts, others, strict=True)]

    def _run_timed(self, entering: Flow, watch: Stopwatch) -> tuple[list[Leaving], float]:
        """What leaves, and the seconds of all tuples together; those of each are noted."""
        seconds = np.zeros(len(entering.batch))
        leaving = self._run(entering.timed(), watch, seconds)
        self.timed.append((entering.batch, seconds))
        return leaving, float(seconds.sum())

    def _run(
        self, entering: Flow | Arrival, watch: Stopwatch | None = None, seconds: np.ndarray | None = None
    ) -> list[Leaving]:
        leaving: list[Leaving] = []
        made: dict[int, Flow] = {}
        for at, step in enumerate(self._steps):
            arrived = entering if at == 0 else self._passed_on(made, step)
            self.entered[step.node.name] += _size(arrived)
            out = self._sampled(step, arrived, self._runs if watch is None else self._timed_runs)
            if self._watch_declared is not None:
                self._watch_declared.kept_nothing(step, arrived)
            if watch is not None and seconds is not None and isinstance(arrived, Flow) and arrived.origins is not None:
                spent = watch.take()
                if len(spent):  # a step of ours that looks at no single tuple has nothing to time
                    places = arrived.origins[np.array(arrived.batch.positions, dtype=np.int64)]
                    seconds += np.bincount(places, weights=spent, minlength=len(seconds))
            if step.refines:
                out = self._refined(out)
            made[step.number] = out
            for number in step.outputs:
                edge = self._layout.edges[number]
                if edge.crosses or edge.target < 0:
                    leaving.append(self._leaving(step, edge, out))
        return leaving

    def _passed_on(self, made: Mapping[int, Flow], step: Step) -> Flow:
        edge = self._layout.edges[step.inputs[0]]
        flow = made[edge.source]
        # A union of punctuated streams may lie between the two: it is no step, but removes their punctuations.
        return flow if edge.punctuated or flow.marks is None else dataclasses.replace(flow, marks=None)

    def _sampled(self, step: Step, arrived: Flow | Arrival, runs: Mapping[int, Callable[[Batch, Any], Batch]]) -> Flow:
        """What a step makes of what arrived; taken down, for the keys that are to be run again."""
        sampler = None if self._sampler is None else self._sampler.step(step.number)
        if sampler is None:
            return self._watched_step(step, arrived, runs)
        if isinstance(arrived, Arrival):
            sampler.arrived(arrived)
            return self._apply(step, arrived, runs, sampler)
        if not len(arrived.batch):
            return self._apply(step, arrived, runs)
        chosen = sampler.before(arrived)
        out = self._watched_step(step, arrived, runs)
        made = out
        if isinstance(step.node.logic, Punctuate):  # its tuples were numbered anew, one for each that came
            made = dataclasses.replace(out, batch=out.batch.placed(arrived.batch.positions))
        sampler.after(arrived, chosen, made)
        return out

    def _watched_step(
        self, step: Step, arrived: Flow | Arrival, runs: Mapping[int, Callable[[Batch, Any], Batch]]
    ) -> Flow:
        """What a step makes of what arrived; on the first tuples what its author declared is watched."""
        if self._watch_declared is None or isinstance(arrived, Arrival) or not len(arrived.batch):
            return self._apply(step, arrived, runs)
        self._watch_declared.before(step, arrived)
        out = self._apply(step, arrived, runs)
        self._watch_declared.after(step, arrived, out.batch)
        return out

    def _apply(
        self,
        step: Step,
        arrived: Flow | Arrival,
        runs: Mapping[int, Callable[[Batch, Any], Batch]],
        sampler: StepSampler | None = None,
    ) -> Flow:
        if isinstance(arrived, Arrival):
            assert step.takes_arrivals, "only the entry of a stage sees its inputs in their common order"
            table = self._tables[step.node.name]
            calls: ArrivalCalls | TimedCalls
            if step.is_timed:
                names = self._layout.watermarks_read(step)
                more = (self._watch, sampler, self._columns)
                calls = TimedCalls(step, table, self._epoch, self._clock_ms, self._times, names, *more)
            else:
                clock_ms = END if self._times.ending else self._clock_ms
                calls = ArrivalCalls(step, table, self._epoch, clock_ms, self._watch, sampler)
            flow = calls.run(arrived)
            if isinstance(calls, TimedCalls):
                self.reached[step.node.name] = calls.value
            if calls.timed_keys:
                self.timed.append((calls.timed_keys, np.array(calls.timed_seconds)))
            return flow
        if isinstance(step.node.logic, Watermark):
            return self._with_watermark(step, arrived, step.node.logic)
        run = runs.get(step.number)
        if run is None:
            return arrived
        batch = run(arrived.batch, step.node) if len(arrived.batch) else Batch(step.node.schema, [], [])
        if isinstance(step.node.logic, Punctuate):
            return self._punctuated(step, arrived, batch)
        return dataclasses.replace(arrived, batch=batch)

    def _with_watermark(self, step: Step, arrived: Flow, logic: Watermark) -> Flow:
        """Tuples and, behind some of them, what they would make of the watermark."""
        node = step.node
        batch = arrived.batch
        place = node.schema.names.index(logic.attribute)
        column = batch.array(place)
        if column.null_count:
            try:
                event_time_of(logic, None)
            except ValueError as problem:
                row = batch.rows[column.is_null().index(True).as_py()]
                raise operator_failed(node, row, problem, self._epoch) from None
            count_anomaly(node.name, NULL_ATTRIBUTE, column.null_count)
            batch = batch.kept(column.is_valid().to_pylist())
            column = column.drop_null()
        values = (TimeScale(logic.kind).numbers(column) - logic.lateness) // logic.every * logic.every
        start = self._times.value(node.name)
        places = candidates(values, start, node.name in self._times.idle)
        if len(values):
            self.reached[node.name] = max(int(values.max()), start, self.reached.get(node.name, start))
        positions = np.array(batch.positions, dtype=np.int64)
        if isinstance(batch.positions, range):
            base, own = arrived.trails, np.zeros(len(positions), dtype=np.int64)
        else:
            # Tuples may share a trail so far; an advance stands behind one of them.
            base, own = taken(arrived.trails, positions), emission_index(positions) * 2
        advances = Advances(node.name, [digit[places] for digit in [*base, own + 1]], values[places])
        marks = arrived.marks
        if marks is not None:
            marks = [*marks, np.zeros(len(marks[0]), dtype=np.int64)]
        return Flow(batch.renumbered(), [*base, own], marks, _origins(arrived, positions), (advances,))

    def _punctuated(self, step: Step, arrived: Flow, batch: Batch) -> Flow:
        """Tuples and the punctuations behind some of them; those that came pass on."""
        ends = np.array(batch.ways, dtype=bool) if len(batch) else np.empty(0, dtype=bool)
        positions = np.array(batch.positions, dtype=np.int64)
        # Tuples may share a trail so far; a punctuation stands behind the one it came with.
        own = emission_index(positions) * 2
        base = taken(arrived.trails, positions)
        marks = [digit[ends] for digit in [*base, own + 1]]
        if arrived.marks is not None:
            came = [*arrived.marks, np.zeros(len(arrived.marks[0]), dtype=np.int64)]
            marks = [np.concatenate(pair) for pair in zip(marks, came, strict=True)]
        advances = tuple(each.then(0) for each in arrived.advances)
        return Flow(batch.renumbered(), [*base, own], marks, _origins(arrived, positions), advances)

    def _refined(self, flow: Flow) -> Flow:
        positions = np.array(flow.batch.positions, dtype=np.int64)
        marks = flow.marks
        if marks is not None:
            marks = [*marks, np.zeros(len(marks[0]), dtype=np.int64)]
        advances = tuple(each.then(0) for each in flow.advances)
        return Flow(
            flow.batch.renumbered(), refined(flow.trails, positions), marks, _origins(flow, positions), advances
        )

    def _leaving(self, step: Step, edge: Edge, out: Flow) -> Leaving:
        batch = out.batch
        if isinstance(batch.positions, range):
            trails = out.trails
        else:
            positions = np.array(batch.positions, dtype=np.int64)
            if len(positions) > 1 and not (np.diff(positions) > 0).all():
                raise ProgramError(
                    f"operator {step.node.title}, epoch {self._epoch}: it, or an operator before it, was declared to "
                    "emit at most one tuple for each it takes, and emitted several. Correct the declaration."
                )
            trails = taken(out.trails, positions)
        advances = tuple(each for each in out.advances if each.name in edge.watermarks)
        return Leaving(edge, trails, batch.arrays(), out.marks if edge.punctuated else None, advances)


def _size(arrived: Flow | Arrival) -> int:
    """How many tuples there are."""
    return len(arrived.batch) if isinstance(arrived, Flow) else sum(map(len, arrived.batches.values()))


def _origins(flow: Flow, positions: np.ndarray) -> np.ndarray | None:
    return None if flow.origins is None else flow.origins[positions]


def _joined(first: Leaving, second: Leaving) -> Leaving:
    """What left by an edge, the second behind the first."""
    if not len(first.trails[0]) and first.marks is None and not first.advances:
        return second
    trails = [np.concatenate(pair) for pair in zip(first.trails, second.trails, strict=True)]
    columns = [pa.concat_arrays(pair) for pair in zip(first.columns, second.columns, strict=True)]
    marks = second.marks
    if first.marks is not None and second.marks is not None:
        marks = [np.concatenate(pair) for pair in zip(first.marks, second.marks, strict=True)]
    return Leaving(first.edge, trails, columns, marks, (*first.advances, *second.advances))


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
    ) -> None:
        assert isinstance(step.node.logic, Keyed)
        self._sampler = sampler
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
        self._opened: list[tuple[int, ...]] = []  # since when the key waited, for what a punctuation made
        self._outputs: list[Any] = []

    def run(self, arrival: Arrival) -> Flow:
        """What the operator emits for all that arrived."""
        self.take(arrival)
        return self.flow(arrival)

    def take(self, arrival: Arrival) -> None:
        """Make the calls."""
        count = len(arrival.trails[0])
        calls: list[Any] = [None] * count
        live: dict[Any, Any] = {}
        kind = type(self._logic.prototype)
        for place, batch in arrival.batches.items():
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
            self._run_waiting(arrival, calls, rows, live)
        else:
            for position, call in enumerate(calls):
                if call is not None:  # else a punctuation, which passes by
                    method, key, row = call
                    if position < self._timed_until:
                        self._timed_call(position, key, row, method, live[key])
                    else:
                        self._call(position, row, method, live[key], row)

    def flow(self, arrival: Arrival) -> Flow:
        """What the calls emitted."""
        width = len(arrival.trails)
        positions = np.array(self._positions, dtype=np.int64)
        batch = BatchSteps({}, self._epoch).checked(self._node, self._positions, self._outputs, self._rows)
        marks = [digit[arrival.marks] for digit in arrival.trails]
        if not self._step.waits:
            return Flow(batch, arrival.trails, marks, advances=tuple(arrival.advances_by_name()))
        base = [digit[positions] for digit in arrival.trails]
        opened = np.array(self._opened, dtype=np.int64).reshape(len(positions), width + 1)
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
        passing = {position for position, _, _ in arrival.advances}
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

    def _run_waiting(self, arrival: Arrival, calls: list[Any], rows: _Rows, live: dict[Any, Any]) -> None:
        logic, width = self._logic, len(arrival.trails)
        never = (0,) * (width + 1)
        happens = bool(len(arrival.marks)) or arrival.tick is not None
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
            if call is not None:
                method, key, row = call
                instance = live[key]
                if position < self._timed_until:
                    self._timed_call(position, key, row, method, instance, never)
                else:
                    self._call(position, row, method, instance, row, opened=never)
                self._settle(instance, key, waiting, arrival.trails, position)
                continue
            is_ticked = position == arrival.tick and bool(logic.ticked)
            method = logic.ticked if is_ticked else logic.punctuated
            if not method:
                continue
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
