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
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from anabranch.compiler.layout.stages import Layout, Stage, Step
from anabranch.engine.sequential import exact, next_tuple
from anabranch.engine.worker.batches import Batch, keys_of
from anabranch.engine.worker.stage import Arrival, Flow, Leaving
from anabranch.engine.worker.trails import LAST, Trails
from anabranch.errors import AnabranchError, OperatorError, error_from_json, error_to_json
from anabranch.program.calling import emitted, operator_failed, route_of
from anabranch.program.graph import Filter, FlatMap, Keyed, Map, Port, Punctuate, Route
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
    """The steps of a stage, one tuple at a time, depth-first. Used as `StageRun` is, until `failure` is not None."""

    def __init__(
        self, layout: Layout, stage: Stage, tables: Mapping[str, Table], epoch: int, clock_ms: int = 0
    ) -> None:
        self._tables = tables
        self._epoch = epoch
        self._clock_ms = clock_ms
        self._entry = layout.steps[stage.steps[0]]
        self.entered = {layout.steps[number].node.name: 0 for number in stage.steps}
        self.timed: list[Any] = []
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
        self._ways: dict[int, int] = {}  # of the tuple that is on its way through a route
        # How many tuples with one trail have come out of a step so far.
        self._numbers: collections.Counter[tuple[int, Trail]] = collections.Counter()
        self._sent: dict[int, list[tuple[Trail, Row]]] = {}
        self._marks: dict[int, list[Trail]] = {}

    def run(self, entering: Flow | Arrival) -> list[Leaving]:
        """What leaves before the first error, for the tuples that entered."""
        if self.failure is not None:
            return []
        self._sent = {number: [] for number in self._edges}
        self._marks = {number: [] for number in self._edges}
        try:
            if isinstance(entering, Flow):
                self._run_flow(entering)
            else:
                self._run_arrival(entering)
        except _Met as met:
            self.failure = met.failure
        return [self._leaving(number) for number in self._edges]

    def _leaving(self, number: int) -> Leaving:
        edge, schema, sent = self._edges[number], self._schemas[number], self._sent[number]
        trails = _columns([trail for trail, _ in sent], edge.width)
        columns = list(zip(*(row for _, row in sent), strict=True)) if sent else [() for _ in schema.names]
        marks = _columns(self._marks[number], edge.width) if edge.punctuated else None
        return Leaving(edge, trails, schema.arrays(columns), marks)

    # -- what enters ----------------------------------------------------------------------------------------

    def _run_flow(self, flow: Flow) -> None:
        trails = _rows(flow.trails)
        for position, row in zip(flow.batch.positions, flow.batch.rows, strict=True):
            self._numbers.clear()
            self._consumers[self._entry.number](row, trails[position])
        for trail in _rows(flow.marks or []):
            self._mark(self._entry, trail)

    def _run_arrival(self, arrival: Arrival) -> None:
        trails = _rows(arrival.trails)
        calls: list[tuple[int, Row] | None] = [None] * len(trails)
        for place, batch in arrival.batches.items():
            for position, row in zip(batch.positions, batch.rows, strict=True):
                calls[position] = place, row
        if self._entry.waits:
            self._run_waiting(arrival, calls, trails)
            return
        consumers = {place: self._consumer(self._entry, place) for place in arrival.batches}
        marks = set(arrival.marks.tolist())
        for position, call in enumerate(calls):
            self._numbers.clear()
            if call is not None:
                consumers[call[0]](call[1], trails[position])
            elif position in marks:
                self._mark(self._entry, trails[position])

    def _run_waiting(self, arrival: Arrival, calls: list[tuple[int, Row] | None], trails: list[Trail]) -> None:
        step, logic, table = self._entry, self._entry.node.logic, self._tables[self._entry.node.name]
        assert isinstance(logic, Keyed)
        never = (0,) * (len(arrival.trails) + 1)
        marks = set(arrival.marks.tolist())
        waiting: dict[Any, Trail] = {}
        if marks or arrival.tick is not None:
            live = table.load_waiting(logic.waiting)
            waiting = {
                k: (*it.opened, *never[len(it.opened) :]) for k, it in live.items() if getattr(it, logic.waiting)
            }

        def call(key: Any, row: Any, method: str, arguments: tuple[Any, ...], trail: Trail, opened: Trail) -> None:
            instance = table.load([key])[key]
            bound = getattr(instance, method)
            outputs = self._outputs_of(step, row, (*trail, *opened), lambda: bound(*arguments))
            for number, item in enumerate(outputs):
                self._leave(step, item, (*trail, *opened, number))
            self._check_state(step, instance, (*trail, *opened))
            if not getattr(instance, logic.waiting):
                instance.opened = None
                waiting.pop(key, None)
            elif instance.opened is None:
                instance.opened = waiting[key] = (self._epoch, *trail)

        for position, arrived in enumerate(calls):
            self._numbers.clear()
            trail = trails[position]
            if arrived is not None:
                place, row = arrived
                self.entered[step.node.name] += 1
                call(self._key(step, place, row), row, logic.method_of(place), (row,), trail, never)
                continue
            is_tick = position == arrival.tick
            method = logic.ticked if is_tick else logic.punctuated
            if method:
                arguments = (self._clock_ms,) if is_tick else ()
                for key, opened in sorted(waiting.items(), key=lambda item: item[1]):
                    call(key, f"the key {key!r}, which waits", method, arguments, trail, opened)
            if not is_tick:
                self._mark(step, (*trail, LAST, *never))

    # -- steps ----------------------------------------------------------------------------------------------

    def _consumer(self, step: Step, place: int = 0) -> Consume:
        """What takes a tuple: calls the operator and carries on what it emits, as it emits it."""
        node, logic = step.node, step.node.logic

        def consume(row: Row, trail: Trail) -> None:
            self.entered[node.name] += 1
            if isinstance(logic, Filter):
                if self._called(step, row, trail, lambda: logic.function(row)):
                    self._leave(step, row, trail)
            elif isinstance(logic, Map):
                self._leave(
                    step, self._called(step, row, trail, lambda: exact(node.schema, logic.function(row))), trail
                )
            elif isinstance(logic, FlatMap):
                for item in self._outputs_of(step, row, trail, lambda: logic.function(row)):
                    self._leave(step, item, trail)
            elif isinstance(logic, Keyed):
                key = self._key(step, place, row)
                instance = self._tables[node.name].load([key])[key]
                method = getattr(instance, logic.method_of(place))
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
            else:
                self._leave(step, row, trail)

        route = next((number for number in self._steps if step.number in self._targets(number)), -1)
        return consume

    def _targets(self, number: int) -> list[int]:
        return [edge.target for edge in self._outputs[number]]

    def _key(self, step: Step, place: int, row: Row) -> Any:
        schema = step.node.inputs[place].schema
        places = tuple(schema.names.index(name) for name in step.node.key_of(place))
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
        for edge in self._outputs[step.number]:
            if edge.crosses:
                self._sent[edge.number].append((trail, row))
            elif edge.target >= 0:
                self._consumers[edge.target](row, trail)

    def _mark(self, step: Step, trail: Trail) -> None:
        """A punctuation that came to a step."""
        self._pass_on(step, (*trail, 0) if isinstance(step.node.logic, Punctuate) else trail)

    def _pass_on(self, step: Step, trail: Trail) -> None:
        if step.refines:
            trail = (*trail, 0)
        for edge in self._outputs[step.number]:
            if edge.punctuated and edge.crosses:
                self._marks[edge.number].append(trail)
            elif edge.punctuated and edge.target >= 0:
                self._mark(self._steps[edge.target], trail)


def _rows(trails: Trails) -> list[Trail]:
    """Trails as tuples of numbers, one for each tuple."""
    return list(zip(*(digit.tolist() for digit in trails), strict=True))


def _columns(trails: list[Trail], width: int) -> Trails:
    if not trails:
        return [np.empty(0, dtype=np.int64) for _ in range(width)]
    return list(np.array(trails, dtype=np.int64).T)
