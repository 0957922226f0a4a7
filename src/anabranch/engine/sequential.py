"""The sequential run: the definition of correct.

One tuple at a time, in the order of its source, carried through the graph depth-first, outgoing edges in the
order they were declared. No Spark, no batches, no cleverness: when another way of running the program
disagrees with this file, the other way is wrong.

An epoch begins with its time: operators that wait for time to pass are called, in the order of declaration.
Then come the tuples that were fed back in the epoch before, then the tuples of each source, both in the order
of declaration. Punctuations travel between the tuples. At the end of an epoch the time to live of every key whose
state is another than before begins anew.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from anabranch.errors import InputError, OperatorError, ProgramError
from anabranch.operators.epoch_context import EpochContext, current, running
from anabranch.program.belongings import Belongings
from anabranch.program.calling import Instances, emitted, key_of, operator_failed, route_of
from anabranch.program.elastic import ElasticFunction
from anabranch.program.graph import (
    Feedback,
    Filter,
    FlatMap,
    Keyed,
    Map,
    Node,
    Port,
    Process,
    Punctuate,
    Route,
    Source,
    Spread,
    Union,
    carrying_punctuations,
    fed_back,
    named,
    upstream,
)
from anabranch.program.schema import MisfitError, Row, Schema, ShapeError
from anabranch.state.codec import encode

Consume = Callable[[Row], None]


class SequentialRun:
    """Runs the program that ends in `outputs`, tuple by tuple.

    Attributes
    ----------
    outputs : list of list of Row
        What has come out so far, for each output.
    sources : dict
        The sources, by name.
    clock_ms : int
        The time of the next epoch, for what expires or waits; whoever feeds may move it.
    """

    def __init__(self, outputs: Node | Sequence[Node], clock_ms: int = 0) -> None:
        ends = named([outputs] if isinstance(outputs, Node) else outputs)
        self.outputs: list[list[Row]] = [[] for _ in ends]
        self.clock_ms = clock_ms
        self._states: dict[str, tuple[Instances, dict[Any, Any]]] = {}
        self._ticks: list[Callable[[], None]] = []
        self._ends: list[Callable[[], None]] = []
        self._ways: dict[int, int] = {}  # of the tuple that is on its way through a route
        nodes = upstream(*ends)
        self._roots = [node.logic for node in nodes if not isinstance(node.logic, (Source, Feedback))]
        functions = [getattr(logic, "function", None) for logic in self._roots]
        self._elastic = [function for function in functions if isinstance(function, ElasticFunction)]
        self._mine: Belongings | None = None
        self._is_within = False
        self._punctuated = carrying_punctuations(nodes)
        self._consumers: dict[int, list[Consume]] = {node.id: [] for node in nodes}
        self._listeners: dict[int, list[Callable[[], None]]] = {node.id: [] for node in nodes}
        for node in nodes:
            if node.inputs:
                consumers, punctuated = self._operator(node)
                for place, source in enumerate(node.inputs):
                    self._consumers[source.id].append(consumers[place])
                    if source.id in self._punctuated and node.id in self._punctuated:
                        self._listeners[source.id].append(punctuated)
        for output, end in zip(self.outputs, ends, strict=True):
            self._consumers[end.id].append(output.append)
        self.sources = {node.name: node for node in nodes if isinstance(node.logic, Source)}
        self._loops: dict[str, tuple[Node, list[Row]]] = {}
        names = {node.name: node for node in nodes}
        for target, loops in fed_back(nodes).items():
            for loop in loops:
                in_flight: list[Row] = []
                self._loops[loop.name] = loop, in_flight
                self._consumers[names[target].id].append(_sender(loop, in_flight))
        self._loops = {node.name: self._loops[node.name] for node in nodes if isinstance(node.logic, Feedback)}

    @property
    def output(self) -> list[Row]:
        """What has come out of the (first) output so far."""
        return self.outputs[0]

    @property
    def in_flight(self) -> int:
        """How many tuples were fed back and wait for the next epoch."""
        return sum(len(rows) for _, rows in self._loops.values())

    def feed(self, rows: Iterable[Any], source: str | None = None) -> None:
        """An epoch with these rows of one source."""
        self.epoch({source if source is not None else next(iter(self.sources)): rows})

    def epoch(self, inputs: Mapping[str, Iterable[Any]]) -> None:
        """An epoch: the rows of each source, by its name."""
        around = current()
        # Whoever runs this within an epoch of his own says which keys are in parts, and gets the counts.
        context = EpochContext(self.clock_ms) if around is None else dataclasses.replace(around, time_ms=self.clock_ms)
        with self._as_user_left_it(), running(context):
            self._epoch(inputs)

    @contextlib.contextmanager
    def _as_user_left_it(self) -> Iterator[None]:
        """User code runs on the user's own objects, which hold in this run what the run made of them; and nothing of
        that outside of it.
        """
        if self._is_within:
            yield
            return
        theirs = Belongings(self._roots)
        if self._mine is not None:
            self._mine.put_back()
        self._is_within = True
        try:
            yield
        finally:
            for function in self._elastic:
                function.close()
            self._is_within = False
            self._mine = Belongings(self._roots)
            theirs.put_back()

    def _epoch(self, inputs: Mapping[str, Iterable[Any]]) -> None:
        # What is fed back from now on, by a tick too, is for the next epoch.
        sent = [(loop, list(rows)) for loop, rows in self._loops.values()]
        for _, rows in self._loops.values():
            rows.clear()
        for tick in self._ticks:
            tick()
        for loop, rows in sent:
            for row in rows:
                self._emit(loop, row)
        for name, node in self.sources.items():
            for number, row in enumerate(inputs.get(name, ())):
                self._emit(node, input_row(node, row, number))
        for end in self._ends:
            end()

    def finish(self, epochs_max: int | None = None) -> None:
        """Epochs without input until nothing is in flight; at most so many."""
        done = 0
        while self.in_flight:
            if done == epochs_max:
                raise ProgramError(f"after {done} epochs without input {self.in_flight} tuples are still fed back")
            self.epoch({})
            done += 1

    def state(self, operator: str) -> dict[Any, tuple[Any, ...]]:
        """The state of an operator: key → values of its state fields."""
        instances, by_key = self._states[operator]
        return {key: instances.values(instance) for key, instance in by_key.items()}

    def initial_state(self, operator: str) -> tuple[Any, ...]:
        """The state of a key that was never seen."""
        instances, _ = self._states[operator]
        return instances.values(instances.new())

    def _emit(self, node: Node, row: Row) -> None:
        for consume in self._consumers[node.id]:
            consume(row)

    def _punctuate(self, node: Node) -> None:
        for listen in self._listeners[node.id]:
            listen()

    def _operator(self, node: Node) -> tuple[list[Consume], Callable[[], None]]:
        """What takes the tuples of each input, and what takes punctuations."""
        logic, schema = node.logic, node.schema
        if isinstance(logic, Keyed):
            return self._keyed(node, logic)
        if isinstance(logic, Filter):
            call = _failing(node, logic.function)

            def consume(row: Row) -> None:
                if call(row):
                    self._emit(node, row)

        elif isinstance(logic, Map):
            call = _failing(node, lambda row: _exact(schema, logic.function(row)))

            def consume(row: Row) -> None:
                self._emit(node, call(row))

        elif isinstance(logic, FlatMap):
            function = logic.function

            def consume(row: Row) -> None:
                self._emit_all(node, row, lambda: function(row))

        elif isinstance(logic, Process):

            def consume(row: Row) -> None:
                self._emit_all(node, row, lambda: getattr(logic.operator, logic.method)(row))

        elif isinstance(logic, Route):
            choose = _failing(node, lambda row: route_of(logic, row))

            def consume(row: Row) -> None:
                self._ways[node.id] = choose(row)
                self._emit(node, row)

        elif isinstance(logic, Port):
            route, index = node.inputs[0].id, logic.index

            def consume(row: Row) -> None:
                if self._ways[route] == index:
                    self._emit(node, row)

        elif isinstance(logic, Punctuate):
            call = _failing(node, logic.function)

            def consume(row: Row) -> None:
                ends = call(row)
                self._emit(node, row)
                if ends:
                    self._punctuate(node)

        else:
            assert isinstance(logic, (Union, Spread)), f"a {node.kind} reads no stream"

            def consume(row: Row) -> None:
                self._emit(node, row)

        return [consume] * len(node.inputs), lambda: self._punctuate(node)

    def _keyed(self, node: Node, logic: Keyed) -> tuple[list[Consume], Callable[[], None]]:
        instances = Instances(node)
        by_key: dict[Any, Any] = {}
        self._states[node.name] = (instances, by_key)
        ttl_ms = logic.time_to_live_ms
        expires: dict[Any, int] = {}
        touched: dict[Any, bytes] = {}  # keys of this epoch, with their state before it
        waiting: dict[Any, Row] = {}  # the keys that wait, in the order in which they began to

        def settle(key: Any, instance: Any, row: Row) -> None:
            values = instances.values(instance)  # refuses what would be lost
            if logic.waiting and getattr(instance, logic.waiting):
                waiting.setdefault(key, row)
            elif logic.waiting:
                waiting.pop(key, None)
            del values

        def consumer(place: int) -> Consume:
            names = node.inputs[place].schema.names
            places = tuple(names.index(name) for name in node.key_of(place))
            method = logic.method_of(place)

            def consume(row: Row) -> None:
                key = key_of(row, places)
                instance = by_key.get(key)
                if instance is None or self.clock_ms >= expires.get(key, self.clock_ms + 1):
                    instance = by_key[key] = instances.new()
                    expires.pop(key, None)
                if ttl_ms is not None:
                    touched.setdefault(key, encode(list(instances.values(instance))))
                self._emit_all(node, row, lambda: getattr(instance, method)(row))
                settle(key, instance, row)

            return consume

        def call_waiting(method: str, *arguments: Any) -> None:
            for key, row in list(waiting.items()):
                instance = by_key[key]
                if ttl_ms is not None:
                    touched.setdefault(key, encode(list(instances.values(instance))))
                self._emit_all(node, row, functools.partial(getattr(instance, method), *arguments))
                settle(key, instance, row)

        def ended() -> None:
            for key, before in touched.items():
                if encode(list(instances.values(by_key[key]))) != before:
                    expires[key] = self.clock_ms + (ttl_ms or 0)
            touched.clear()

        def punctuated() -> None:
            if logic.punctuated:
                call_waiting(logic.punctuated)
            self._punctuate(node)

        if ttl_ms is not None:
            self._ends.append(ended)
        if logic.ticked:
            self._ticks.append(lambda: call_waiting(logic.ticked, self.clock_ms))
        return [consumer(place) for place in range(len(node.inputs))], punctuated

    def _emit_all(self, node: Node, row: Row, call: Callable[[], Any]) -> None:
        # Each tuple goes down before the operator makes the next one: depth-first.
        outputs = iter(_failing(node, lambda _: emitted(call()))(row))
        step = _failing(node, lambda _: _next(node.schema, outputs))
        while (item := step(row)) is not None:
            self._emit(node, item)


def run_epochs(outputs: Sequence[Node], clocks_ms: Sequence[int] = (), epochs_max: int | None = None) -> SequentialRun:
    """The program over the rows that its sources hold, epoch by epoch, until nothing is in flight.

    Epoch n has the time `clocks_ms[n]`; the last of them counts for all that follow, and for what is only fed back.
    `epochs_max` limits how long a program whose feedback does not end may go on.
    """
    run = SequentialRun(outputs)
    epochs = {name: _epochs(node) for name, node in run.sources.items()}
    with run._as_user_left_it():
        for number in range(max((len(each) for each in epochs.values()), default=0)):
            run.clock_ms = clocks_ms[min(number, len(clocks_ms) - 1)] if clocks_ms else 0
            run.epoch({name: each[number] for name, each in epochs.items() if number < len(each)})
        if clocks_ms:
            run.clock_ms = clocks_ms[-1]
        run.finish(epochs_max)
    return run


def _epochs(node: Node) -> Sequence[Sequence[Any]]:
    assert isinstance(node.logic, Source)
    found: Sequence[Sequence[Any]] | None = getattr(node.logic.origin, "epochs", None)
    if found is None:
        raise ProgramError(f"run_sequential: the source {node.title} holds no rows; give them: run_sequential(rows)")
    return found


def _sender(loop: Node, in_flight: list[Row]) -> Consume:
    def send(row: Row) -> None:
        in_flight.append(_exact(loop.schema, row))

    return send


def _next(schema: Schema, outputs: Any) -> Row | None:
    for item in outputs:
        return _exact(schema, item)
    return None


def _exact(schema: Schema, value: Any) -> Row:
    return schema.exact_row(schema.unpack(value))


def _failing(node: Node, call: Callable[[Row], Any]) -> Callable[[Row], Any]:
    def guarded(row: Row) -> Any:
        try:
            return call(row)
        except OperatorError:
            raise
        except Exception as problem:
            raise operator_failed(node, row, problem) from problem

    return guarded


def input_row(node: Node, row: Any, number: int) -> Row:
    """A row of the input as a tuple of the source's schema; InputError if it does not fit."""
    try:
        return _exact(node.schema, row)
    except (ShapeError, MisfitError) as problem:
        raise InputError(f"source {node.title}: row {number} does not fit its schema: {problem}") from None
