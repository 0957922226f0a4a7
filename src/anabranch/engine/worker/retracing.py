"""Retracing: a stage of an epoch that failed, run once more as one thread would have, to find its first error.

    an epoch fails ─► the driver runs its tasks again, retracing ─► failures with trails ─► the least one is raised

Tasks that run side by side meet errors in any order, and steps that run over whole batches do not meet them as one
thread would. So nothing is looked for while all goes well, which costs nothing; and an epoch that failed, of which
nothing is committed, is run once more with trails on every edge. Each channel takes its tuples one by one, carries each
depth-first through its steps, and stops at the first error, having sent on what it emitted before it. Later stages
work on that and may find an earlier error. The least of all failures is the error of one thread:

- Whatever that thread did before its error does not fail here either, and comes out the same. So its error is met.
- Whatever fails for want of what a channel did not send stands behind that channel's own failure.

A failure's trail is that of the tuple in hand, then `LAST`: what the tuple had led to before stands before it.

Calls of elastic operators are made some ahead, by their pools (`retraced_ahead.py`): one after the other they might
take a hundred times as long as the epoch took.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from anabranch.compiler.layout.stages import Layout, Stage, Step
from anabranch.engine.worker.advances import Advances, EventTimes, candidates
from anabranch.engine.worker.arrival_calls import broadcast_of
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import keys_of
from anabranch.engine.worker.retraced_ahead import ROWS_AHEAD, CallsAhead
from anabranch.engine.worker.retraced_calls import RetracedCalls, RetracedTimedCalls, until_it_fails
from anabranch.engine.worker.stage_flow import Arrival, Flow, Leaving
from anabranch.engine.worker.trails import LAST, Trails
from anabranch.errors import AnabranchError, OperatorError, error_from_json, error_to_json
from anabranch.program.calling import emitted, exact, kept, next_tuple, operator_failed, route_of
from anabranch.program.event_time import END, event_time_of
from anabranch.program.graph import Filter, FlatMap, Keyed, Map, Port, Punctuate, Route, Watermark
from anabranch.program.schema import Row
from anabranch.state.table import Table

Trail = tuple[int, ...]
Consume = Callable[[Row, Trail], None]


def with_all_order(layout: Layout) -> Layout:
    """The layout with trails on every edge: what is looked for is the first."""
    return dataclasses.replace(layout, edges=tuple(dataclasses.replace(edge, ordered=True) for edge in layout.edges))


@dataclasses.dataclass(frozen=True)
class Failure:
    """An error that a task met for one tuple, and where one thread would have met it.

    Attributes
    ----------
    trail : tuple of int
        All digits, those that a plan holds among them.
    error : AnabranchError
        What is told: of an operator, with its line, the tuple and what it raised.
    piece : str
        If not empty, the first number counts from the start of this piece of a source (in hexadecimal).
    """

    trail: Trail
    error: AnabranchError
    piece: str = ""

    def to_bytes(self) -> bytes:
        """As it crosses from a task to the driver."""
        parts = {"trail": self.trail, "piece": self.piece, "error": error_to_json(self.error)}
        return json.dumps(parts).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Failure:
        parts = json.loads(data)
        return cls(tuple(parts["trail"]), error_from_json(parts["error"]), parts["piece"])


class _Met(Exception):  # noqa: N818 - carries a failure out of the depth it was met in
    def __init__(self, step: Step, trail: Trail, error: AnabranchError) -> None:
        super().__init__()
        sent = iter(trail)
        digits = [next(sent) if digit is None else digit for digit in step.digits]
        self.failure = Failure((*digits, *sent, LAST), error)


class RetracedStage:
    """The steps of a stage, one tuple at a time, depth-first. Used as `StageRun` is, until `failure` is not None.

    Only an entry that reads several streams, or whose keys wait, takes all that arrived before the steps behind it take
    what it emitted: nothing is lost by that, since what stands before its failure was emitted before it.
    """

    def __init__(
        self,
        layout: Layout,
        stage: Stage,
        tables: Mapping[str, Table],
        epoch: int,
        clock_ms: int = 0,
        times: EventTimes | None = None,
    ) -> None:
        self._layout = layout
        self._tables = tables
        self._epoch = epoch
        self._clock_ms = clock_ms
        self._times = EventTimes() if times is None else times
        self._entry = layout.steps[stage.steps[0]]
        self.entered = {layout.steps[number].node.name: 0 for number in stage.steps}
        self.timed: list[Any] = []
        self.reached: dict[str, int] = {}
        self.broadcasts: dict[str, bytes] = {}
        self.failure: Failure | None = None
        steps = [layout.steps[number] for number in stage.steps]
        # By what they add to trails, as one thread takes them; that may be another order than that of their numbers.
        self._outputs = {
            step.number: sorted((layout.edges[number] for number in step.outputs), key=lambda edge: edge.fork)
            for step in steps
        }
        self._edges = {edge.number: edge for edges in self._outputs.values() for edge in edges if edge.crosses}
        self._schemas = {edge.number: layout.steps[edge.source].node.schema for edge in self._edges.values()}
        self._steps = {step.number: step for step in steps}
        self._consumers = {step.number: self._consumer(step) for step in steps}
        self._ahead = CallsAhead(self._steps, self._outputs, epoch)
        self._ways: dict[int, int] = {}  # of the tuple that is on its way through a route
        # How many tuples with one trail have come out of a step so far.
        self._numbers: collections.Counter[tuple[int, Trail]] = collections.Counter()
        self._sent: dict[int, list[tuple[Trail, Row]]] = {}
        self._marks: dict[int, list[Trail]] = {}
        self._heard: dict[int, list[tuple[Trail, int]]] = {}  # what tuples make of the watermark of a step

    def run(self, entering: Flow | Arrival) -> list[Leaving]:
        """What leaves before the first error, for the tuples that entered."""
        if self.failure is not None:
            return []
        self._sent = {number: [] for number in self._edges}
        self._marks = {number: [] for number in self._edges}
        self._heard = {number: [] for number in self._steps}
        met: _Met | None = None
        if isinstance(entering, Arrival) and self._entry.takes_arrivals:
            flow, met = self._entered(entering)
            take: Consume = functools.partial(self._leave, self._entry)
            first_steps = self._targets(self._entry.number)
        else:
            flow, take = _as_flow(entering), self._consumers[self._entry.number]
            first_steps = [self._entry.number]
        try:
            with self._ahead.answering():
                self._run_flow(flow, take, first_steps)
        except _Met as first:
            met = first  # it came of what the entry emitted before it failed
        if met is not None:
            self.failure = met.failure
        advances = self._advances(flow)
        return [self._leaving(number, advances[edge.source]) for number, edge in self._edges.items()]

    def _entered(self, arrival: Arrival) -> tuple[Flow, _Met | None]:
        """What an entry that takes arrivals emits before it fails, and how it does."""
        step, table = self._entry, self._tables[self._entry.node.name]
        calls: RetracedCalls | RetracedTimedCalls
        broadcast = broadcast_of(step, table, self._times)
        if step.is_timed:
            names = self._layout.watermarks_read(step)
            place = (step, table, self._epoch, self._clock_ms, self._times, names)
            calls = RetracedTimedCalls(*place, None, None, broadcast)
        else:
            clock_ms = END if self._times.ending else self._clock_ms
            calls = RetracedCalls(step, table, self._epoch, clock_ms, None, None, broadcast)
        self.entered[step.node.name] += sum(map(len, arrival.batches.values()))
        flow, stopped = until_it_fails(calls, arrival)
        if stopped is None:
            return flow, None
        base = tuple(int(digit[stopped.position]) for digit in arrival.trails)
        return flow, _Met(step, (*base, *stopped.more), stopped.error)

    def _run_flow(self, flow: Flow, take: Consume, first_steps: list[int]) -> None:
        trails = _rows(flow.trails)
        before: Trail | None = None
        rows = flow.batch.rows
        for at, (position, row) in enumerate(zip(flow.batch.positions, rows, strict=True)):
            if at % ROWS_AHEAD == 0:
                self._ahead.make(rows[at : at + ROWS_AHEAD], first_steps)
            if trails[position] != before:
                self._numbers.clear()
            before = trails[position]
            take(row, before)
        for trail in _rows(flow.marks or []):
            self._mark(self._entry, trail)

    def _advances(self, flow: Flow) -> dict[int, tuple[Advances, ...]]:
        """The advances behind each step: they pass by, as punctuations do."""
        found: dict[int, tuple[Advances, ...]] = {}
        for step in self._steps.values():
            if step is self._entry:
                advances = flow.advances
            else:
                advances = found[self._layout.edges[step.inputs[0]].source]
            if isinstance(step.node.logic, Watermark):
                advances = (self._made(step),)
            elif isinstance(step.node.logic, Punctuate) or step.refines:
                advances = tuple(each.then(0) for each in advances)
            found[step.number] = advances
        return found

    def _made(self, step: Step) -> Advances:
        heard, name = self._heard[step.number], step.node.name
        values = np.array([value for _, value in heard], dtype=np.int64)
        places = candidates(values, self._times.value(name), name in self._times.idle)
        width = sum(digit is None for digit in step.digits) + 1
        return Advances(
            name, [digit[places] for digit in _columns([trail for trail, _ in heard], width)], values[places]
        )

    def _leaving(self, number: int, advances: tuple[Advances, ...]) -> Leaving:
        edge, schema, sent = self._edges[number], self._schemas[number], self._sent[number]
        trails = _columns([trail for trail, _ in sent], edge.width)
        columns = list(zip(*(row for _, row in sent), strict=True)) if sent else [() for _ in schema.names]
        marks = _columns(self._marks[number], edge.width) if edge.punctuated else None
        known = tuple(each for each in advances if each.name in edge.watermarks)
        return Leaving(edge, trails, schema.arrays(columns), marks, known)

    # -- steps ----------------------------------------------------------------------------------------------

    def _consumer(self, step: Step) -> Consume:
        """What takes a tuple: calls the operator and carries on what it emits, as it emits it."""
        node, logic = step.node, step.node.logic

        def consume(row: Row, trail: Trail) -> None:
            self.entered[node.name] += 1
            if isinstance(logic, Filter):
                if self._called(step, row, trail, lambda: kept(logic.function(row))):
                    self._leave(step, row, trail)
            elif isinstance(logic, Map):
                self._leave(
                    step, self._called(step, row, trail, lambda: exact(node.schema, logic.function(row))), trail
                )
            elif isinstance(logic, FlatMap):
                for item in self._outputs_of(step, row, trail, lambda: logic.function(row)):
                    self._leave(step, item, trail)
            elif isinstance(logic, Keyed):
                key = self._key(step, row)
                instance = self._tables[node.name].load([key])[key]
                method = getattr(instance, logic.method_of(0))
                for item in self._outputs_of(step, row, trail, lambda: method(row)):
                    self._leave(step, item, trail)
                self._check_state(step, instance, trail)
            elif isinstance(logic, Route):
                self._ways[step.number] = self._called(step, row, trail, lambda: route_of(logic, row))
                self._leave(step, row, trail)
            elif isinstance(logic, Port):
                if self._ways[route] == logic.index:
                    self._leave(step, row, trail)
            elif isinstance(logic, Punctuate):
                ends = self._called(step, row, trail, lambda: bool(logic.function(row)))
                number = 2 * self._number(step, trail)
                self._leave(step, row, (*trail, number))
                if ends:
                    self._pass_on(step, (*trail, number + 1))
            elif isinstance(logic, Watermark):
                place = node.schema.names.index(logic.attribute)
                at = self._called(step, row, trail, lambda: event_time_of(logic, tuple.__getitem__(row, place)))
                if at is not None:
                    number = 2 * self._number(step, trail)
                    self._leave(step, row, (*trail, number))
                    self._heard[step.number].append(((*trail, number + 1), logic.after(at)))
            else:
                self._leave(step, row, trail)

        route = next((number for number in self._steps if step.number in self._targets(number)), -1)
        return consume

    def _targets(self, number: int) -> list[int]:
        return [edge.target for edge in self._outputs[number]]

    def _key(self, step: Step, row: Row) -> Any:
        schema = step.node.inputs[0].schema
        places = tuple(schema.names.index(name) for name in step.node.key_of(0))
        return keys_of(Batch(schema, range(1), [row]), places)[0]

    def _called(self, step: Step, row: Any, trail: Trail, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except OperatorError as error:
            raise _Met(step, trail, error) from None
        except Exception as problem:
            raise _Met(step, trail, operator_failed(step.node, row, problem, self._epoch)) from None

    def _outputs_of(self, step: Step, row: Any, trail: Trail, call: Callable[[], Any]) -> Iterator[Row]:
        """What a call emits: each when the one before has been carried on."""
        outputs = self._called(step, row, trail, lambda: iter(emitted(call())))
        schema = step.node.schema
        while (item := self._called(step, row, trail, lambda: next_tuple(schema, outputs))) is not None:
            yield item

    def _check_state(self, step: Step, instance: Any, trail: Trail) -> None:
        try:
            self._tables[step.node.name].instances.values(instance)  # refuses what would be lost
        except AnabranchError as error:
            raise _Met(step, trail, error) from None

    # -- on from a step -------------------------------------------------------------------------------------

    def _number(self, step: Step, trail: Trail) -> int:
        self._numbers[step.number, trail] += 1
        return self._numbers[step.number, trail] - 1

    def _leave(self, step: Step, row: Row, trail: Trail) -> None:
        if step.refines:
            trail = (*trail, self._number(step, trail))
        edges, schema = self._outputs[step.number], step.node.schema
        for edge in edges:
            # What one reader does to lists, maps and structs, the others do not see; nor does what was sent.
            mine = exact(schema, row) if schema.has_changeable and (edge.crosses or edge is not edges[-1]) else row
            if edge.crosses:
                self._sent[edge.number].append((trail, mine))
            elif edge.target >= 0:
                self._consumers[edge.target](mine, trail)

    def _mark(self, step: Step, trail: Trail) -> None:
        """A punctuation that came to a step."""
        self._pass_on(step, (*trail, 0) if isinstance(step.node.logic, (Punctuate, Watermark)) else trail)

    def _pass_on(self, step: Step, trail: Trail) -> None:
        if step.refines:
            trail = (*trail, 0)
        for edge in self._outputs[step.number]:
            if edge.punctuated and edge.crosses:
                self._marks[edge.number].append(trail)
            elif edge.punctuated and edge.target >= 0:
                self._mark(self._steps[edge.target], trail)


def _as_flow(entering: Flow | Arrival) -> Flow:
    """What enters a stage by one edge; punctuations and advances pass by."""
    if isinstance(entering, Flow):
        return entering
    (batch,) = entering.batches.values()
    marks = [digit[entering.marks] for digit in entering.trails]
    return Flow(batch, entering.trails, marks, advances=tuple(entering.advances_by_name()))


def _rows(trails: Trails) -> list[Trail]:
    """Trails as tuples of numbers, one for each tuple."""
    return list(zip(*(digit.tolist() for digit in trails), strict=True))


def _columns(trails: list[Trail], width: int) -> Trails:
    if not trails:
        return [np.empty(0, dtype=np.int64) for _ in range(width)]
    return list(np.array(trails, dtype=np.int64).T)
