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
from anabranch.engine.worker.accumulating_calls import AccumulatingCalls, is_elastic_accumulation
from anabranch.engine.worker.advances import Advances, EventTimes, candidates
from anabranch.engine.worker.arrival_calls import ArrivalCalls, broadcast_of
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import BatchSteps, ElasticSteps, StateTable
from anabranch.engine.worker.needed_columns import made_for_others
from anabranch.engine.worker.running_columns import RunningStep
from anabranch.engine.worker.sampling import StageSampler, StepSampler
from anabranch.engine.worker.stage_flow import Arrival, Flow, Leaving
from anabranch.engine.worker.timed_calls import TimedCalls
from anabranch.engine.worker.timing import LONG_CALL_SECONDS, TIMED_BATCHES, Stopwatch, timed_rows
from anabranch.engine.worker.top_columns import TopStep
from anabranch.engine.worker.trails import emission_index, refined, taken
from anabranch.engine.worker.unordered_step import UnorderedStep
from anabranch.engine.worker.watching import StageWatch
from anabranch.errors import ProgramError
from anabranch.operators.epoch_context import count_anomaly
from anabranch.operators.library_operator import NULL_ATTRIBUTE
from anabranch.program.calling import operator_failed
from anabranch.program.event_time import END, LAST, TimeScale, beyond, event_time_of
from anabranch.program.graph import Punctuate, Spread, Watermark


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
        unordered: Callable[..., UnorderedStep] | None = None,
        columns: Collection[str] = (),
    ) -> None:
        self._columns = columns
        self._elastic = elastic
        self._layout = layout
        self._sampler = sampler
        self._watched = watched
        self._watch_declared = StageWatch(layout, stage, tables, epoch, watched) if watched else None
        self._times = EventTimes() if times is None else times
        self.reached: dict[str, int] = {}
        """Watermark → how far it has come, of those that had tuples here or are this stage's own."""
        self.broadcasts: dict[str, bytes] = {}
        """Operator → its broadcast state, behind the epoch."""
        self._steps = [layout.steps[number] for number in stage.steps]
        self._last_readers = {layout.edges[s.inputs[0]].source: s.number for s in self._steps if s.inputs}
        self._epoch = epoch
        self._clock_ms = clock_ms
        self._tables = tables
        self._watch = watch
        self._batches = 0
        self._takes_long = False
        self.timed: list[tuple[Batch | list[Any], np.ndarray]] = []
        self.entered: dict[str, int] = {step.node.name: 0 for step in self._steps}
        """Operator → tuples that entered it."""
        # Whoever takes down or watches what becomes of single tuples needs to know which they are.
        watches = self._watch_declared.looks_at if self._watch_declared is not None else lambda _: False
        self._unordered = {
            step.number: unordered(step.node, epoch, BatchSteps({}, epoch).checked)
            for step in self._steps
            if unordered is not None and step.unordered and sampler is None and not watches(step)
        }
        """Elastic operators whose results leave as they come."""
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
            isinstance(run, (RunningStep, TopStep)) for run in self._runs.values()
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
            if watch is not None and seconds is not None and isinstance(arrived, Flow):
                spent = watch.take()
                # A step of ours that looks at no single tuple has nothing to time; what comes out of calls that are
                # under way for a while belongs to no tuple of this batch.
                if len(spent) and arrived.origins is not None:
                    places = arrived.origins[arrived.batch.position_array]
                    seconds += np.bincount(places, weights=spent, minlength=len(seconds))
            made[step.number] = out = self._after(step, out)
            self._leave(step, out, leaving)
        return leaving

    def _after(self, step: Step, out: Flow) -> Flow:
        return self._refined(out) if step.refines else out

    def _leave(self, step: Step, out: Flow, leaving: list[Leaving]) -> None:
        for number in step.outputs:
            edge = self._layout.edges[number]
            if edge.crosses or edge.target < 0:
                leaving.append(self._leaving(step, edge, out))

    def finish(self) -> list[Leaving]:
        """All has entered: what leaves of calls that are still under way."""
        leaving: list[Leaving] = []
        for at, step in enumerate(self._steps):
            free = self._unordered.get(step.number)
            if free is None:
                continue
            made = {step.number: self._after(step, _numbered(*free.finish()))}
            self._leave(step, made[step.number], leaving)
            for later in self._steps[at + 1 :]:
                if later.inputs and self._layout.edges[later.inputs[0]].source in made:
                    arrived = self._passed_on(made, later)
                    self.entered[later.node.name] += len(arrived.batch)
                    made[later.number] = self._after(later, self._apply(later, arrived, self._runs))
                    self._leave(later, made[later.number], leaving)
        if self._watch_declared is not None:
            self._watch_declared.shares_nothing()
        return leaving

    def _passed_on(self, made: Mapping[int, Flow], step: Step) -> Flow:
        edge = self._layout.edges[step.inputs[0]]
        flow = made[edge.source]
        if self._last_readers[edge.source] != step.number:
            flow = dataclasses.replace(flow, batch=flow.batch.apart())
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
            made = dataclasses.replace(out, batch=out.batch.placed(arrived.batch.any_positions))
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
            broadcast = broadcast_of(step, table, self._times)
            before = b"" if broadcast is None else broadcast.data
            calls: ArrivalCalls | TimedCalls
            if step.is_timed:
                place = (step, table, self._epoch, self._clock_ms, self._times, self._layout.watermarks_read(step))
                if self._elastic is not None and sampler is None and is_elastic_accumulation(step):
                    calls = AccumulatingCalls(self._elastic, *place)
                else:
                    is_pruned = "needed" in self._columns and self._sampler is None
                    wanted = made_for_others(self._layout, step) if is_pruned else None
                    calls = TimedCalls(*place, self._watch, sampler, broadcast, self._columns, wanted)
            else:
                clock_ms = END if self._times.ending else self._clock_ms
                calls = ArrivalCalls(step, table, self._epoch, clock_ms, self._watch, sampler, broadcast, self._columns)
            flow = calls.run(arrived)
            if broadcast is not None:
                self.broadcasts[step.node.name] = broadcast.data
                if sampler is not None:
                    sampler.shared(before, broadcast.data)
            if isinstance(calls, TimedCalls):
                self.reached[step.node.name] = calls.value
            if calls.timed_keys:
                self.timed.append((calls.timed_keys, np.array(calls.timed_seconds)))
            return flow
        if isinstance(step.node.logic, Watermark):
            return self._with_watermark(step, arrived, step.node.logic)
        free = self._unordered.get(step.number)
        if free is not None:
            return _numbered(*free.take(arrived.batch.rows))
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
        times = TimeScale(logic.kind).numbers(column)
        if len(times) and not -LAST <= int(times.min()) <= int(times.max()) <= LAST:
            at = int(np.flatnonzero((times < -LAST) | (times > LAST))[0])
            raise operator_failed(node, batch.rows[at], ValueError(beyond(int(times[at]))), self._epoch)
        values = (times - logic.lateness) // logic.every * logic.every
        start = self._times.value(node.name)
        places = candidates(values, start, node.name in self._times.idle)
        if len(values):
            self.reached[node.name] = max(int(values.max()), start, self.reached.get(node.name, start))
        positions = batch.position_array
        if batch.are_numbered:
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
        positions = batch.position_array
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
        positions = flow.batch.position_array
        marks = flow.marks
        if marks is not None:
            marks = [*marks, np.zeros(len(marks[0]), dtype=np.int64)]
        advances = tuple(each.then(0) for each in flow.advances)
        return Flow(
            flow.batch.renumbered(), refined(flow.trails, positions), marks, _origins(flow, positions), advances
        )

    def _leaving(self, step: Step, edge: Edge, out: Flow) -> Leaving:
        batch = out.batch
        if batch.are_numbered:
            trails = out.trails
        else:
            positions = batch.position_array
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


def _numbered(batch: Batch, count: int) -> Flow:
    """Tuples with positions among so many that have no other order."""
    return Flow(batch, [np.arange(count)])


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
