"""The sequential run: the definition of correct.

One tuple at a time, in the order of its source, carried through the graph depth-first, outgoing edges in the
order they were declared. No Spark, no batches, no cleverness: when another way of running the program
disagrees with this file, the other way is wrong.

An epoch begins with its time: operators that wait for time to pass are called, in the order of declaration.
Then come the tuples that were fed back in the epoch before, then the tuples of each source, both in the order
of declaration. Punctuations and the advances of watermarks travel between the tuples (docs/time.md). At the end of an
epoch the time to live of every key whose state is another than before begins anew.

What becomes of calls that fail is in `sequential_failures.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from anabranch.engine.sequential_failures import Failures
from anabranch.engine.sequential_time import Idleness, WaitingKeys
from anabranch.errors import InputError, ProgramError
from anabranch.operators.epoch_context import EpochContext, count_anomaly, current, moment, running
from anabranch.operators.library_operator import NULL_ATTRIBUTE
from anabranch.program.belongings import Belongings
from anabranch.program.calling import Instances, emitted, exact, key_of, next_tuple, route_of
from anabranch.program.elastic import ElasticFunction
from anabranch.program.event_time import (
    BEGINNING,
    END,
    awaiting_watermarks,
    event_time_of,
    watermarks_behind,
    watermarks_read,
)
from anabranch.program.graph import (
    DeadLetters,
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
    Watermark,
    carrying_punctuations,
    fed_back,
    named,
    upstream,
)
from anabranch.program.schema import MisfitError, Row, ShapeError
from anabranch.state.codec import comparable

Consume = Callable[[Row], None]


class SequentialRun:
    """Runs the program that ends in `outputs`, tuple by tuple.

    Attributes
    ----------
    outputs : list of list of Row
        What has come out so far, for each output.
    delivered : list of int
        How many tuples of each output are of epochs that ended: of one that fails nothing is delivered.
    sources : dict
        The sources, by name.
    clock_ms : int
        The time of the next epoch, for what expires or waits; whoever feeds may move it.
    """

    def __init__(self, outputs: Node | Sequence[Node], clock_ms: int = 0) -> None:
        ends = named([outputs] if isinstance(outputs, Node) else outputs)
        self.outputs: list[list[Row]] = [[] for _ in ends]
        self.delivered = [0] * len(ends)
        self.clock_ms = clock_ms
        self._states: dict[str, tuple[Instances, dict[Any, Any]]] = {}
        self._ticks: list[Callable[[], None]] = []
        self._ends: list[Callable[[], None]] = []
        self._takes_advances: dict[int, Callable[[str, int], None]] = {}
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
        self._behind = watermarks_behind(nodes)
        self._advancing: dict[int, list[Callable[[str, int], None]]] = {node.id: [] for node in nodes}
        self._idleness = Idleness(nodes)
        self._failures = Failures(nodes, self._emit)
        self._number = 0
        self._ending = False
        awaiting = awaiting_watermarks(nodes)
        for node in nodes:
            if node.inputs:
                consumers, punctuated = self._operator(node)
                if node.id in awaiting and not isinstance(node.logic, Watermark):
                    for source in {each.id: each for each in node.inputs}.values():
                        self._advancing[source.id].append(self._takes_advances[node.id])
                for place, source in enumerate(node.inputs):
                    if not isinstance(node.logic, DeadLetters):
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
        around = EpochContext() if around is None else around
        context = dataclasses.replace(around, time_ms=self.clock_ms, number=self._number)
        self._number += 1
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
        self._idleness.begin(self.clock_ms)
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
        self.delivered = [len(rows) for rows in self.outputs]

    def run_epochs(self, clocks_ms: Sequence[int] = (), epochs_max: int | None = None, ends: bool = False) -> None:
        """Epochs with the rows that the sources hold, then those that feedback makes; see `run_epochs` below."""
        epochs = {name: _epochs(node) for name, node in self.sources.items()}
        with self._as_user_left_it():
            for number in range(max((len(each) for each in epochs.values()), default=0)):
                self.clock_ms = clocks_ms[min(number, len(clocks_ms) - 1)] if clocks_ms else 0
                self.epoch({name: each[number] for name, each in epochs.items() if number < len(each)})
            if clocks_ms:
                self.clock_ms = clocks_ms[-1]
            self.finish(epochs_max)
            if ends:
                self.end()
                self.finish(epochs_max)

    def end(self) -> None:
        """The end of the input: an epoch without tuples, in which all time has come. Nothing may follow."""
        self._ending = True
        self.epoch({})
        self._ending = False

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

    def _advance(self, node: Node, name: str, value: int) -> None:
        """A watermark is told to whoever reads an operator's output."""
        for take in self._advancing[node.id]:
            take(name, value)

    def _operator(self, node: Node) -> tuple[list[Consume], Callable[[], None]]:
        """What takes the tuples of each input, and what takes punctuations."""
        logic, schema = node.logic, node.schema
        self._takes_advances[node.id] = functools.partial(self._advance, node)
        if isinstance(logic, Keyed):
            return self._keyed(node, logic)
        if isinstance(logic, Filter):
            keeps = logic.function
            call = self._failures.calling(node, lambda row: bool(keeps(row)))

            def consume(row: Row) -> None:
                if call(row):
                    self._emit(node, row)

        elif isinstance(logic, Map):
            call = self._failures.calling(node, lambda row: exact(schema, logic.function(row)))

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
            choose = self._failures.calling(node, lambda row: route_of(logic, row))

            def consume(row: Row) -> None:
                self._ways[node.id] = choose(row)
                self._emit(node, row)

        elif isinstance(logic, Port):
            route, index = node.inputs[0].id, logic.index

            def consume(row: Row) -> None:
                if self._ways[route] == index:
                    self._emit(node, row)

        elif isinstance(logic, Punctuate):
            ends_here = logic.function
            call = self._failures.calling(node, lambda row: bool(ends_here(row)))

            def consume(row: Row) -> None:
                ends = call(row)
                self._emit(node, row)
                if ends:
                    self._punctuate(node)

        elif isinstance(logic, Watermark):
            return [self._watermark(node, logic)], lambda: self._punctuate(node)

        else:
            assert isinstance(logic, (Union, Spread, DeadLetters)), f"a {node.kind} reads no stream"

            def consume(row: Row) -> None:
                self._emit(node, row)

        return [self._failures.skipping(node, consume)] * len(node.inputs), lambda: self._punctuate(node)

    def _watermark(self, node: Node, logic: Watermark) -> Consume:
        """The tuples as they are; behind one that raises the watermark, or that ends a silence, its value."""
        place, name = node.schema.names.index(logic.attribute), node.name
        time_of = self._failures.calling(node, lambda row: event_time_of(logic, tuple.__getitem__(row, place)))
        value = BEGINNING

        def consume(row: Row) -> None:
            nonlocal value
            time = time_of(row)
            if time is None:
                count_anomaly(name, NULL_ATTRIBUTE)
                return
            self._emit(node, row)
            was_idle, after = self._idleness.heard(name, self.clock_ms), logic.after(time)
            if after > value or was_idle:
                value = max(after, value)
                self._advance(node, name, value)

        def tick() -> None:
            if self._ending:
                self._advance(node, name, END)

        self._ticks.append(tick)
        return self._failures.skipping(node, consume)

    def _keyed(self, node: Node, logic: Keyed) -> tuple[list[Consume], Callable[[], None]]:
        instances = Instances(node)
        by_key: dict[Any, Any] = {}
        self._states[node.name] = (instances, by_key)
        ttl_ms = logic.time_to_live_ms
        expires: dict[Any, int] = {}
        touched: dict[Any, bytes] = {}  # keys of this epoch, with their state before it
        waiting: dict[Any, Row] = {}  # the keys that wait, in the order in which they began to
        names = watermarks_read(node, self._behind) if logic.by_watermark else ()
        timed = WaitingKeys(names)
        watermark = timed.watermark
        initial = instances.values(instances.new())

        def settle(key: Any, instance: Any, row: Row) -> None:
            values = instances.values(instance)  # refuses what would be lost
            if logic.waiting and getattr(instance, logic.waiting):
                waiting.setdefault(key, row)
            elif logic.waiting:
                waiting.pop(key, None)
            if logic.timed:
                timed.settle(key, instance.timer_due)
                if values == initial:
                    by_key.pop(key, None)  # nothing is left of it

        def consumer(place: int) -> Consume:
            names = node.inputs[place].schema.names
            places = tuple(names.index(name) for name in node.key_of(place))
            method = logic.method_of(place)
            takes_time, own = logic.takes_time, self._behind[node.inputs[place].id]

            def consume(row: Row) -> None:
                key = key_of(row, places)
                instance = by_key.get(key)
                if instance is None or self.clock_ms >= expires.get(key, self.clock_ms + 1):
                    instance = by_key[key] = instances.new()
                    expires.pop(key, None)
                if ttl_ms is not None:
                    touched.setdefault(key, comparable(list(instances.values(instance))))
                now = watermark.least(own) if logic.per_input else watermark.value
                arguments = (row, now) if takes_time else (row,)
                before = functools.partial(_set_moment, watermark.value, None) if logic.timed else None
                with self._failures.of_key(node, instance):
                    self._emit_all(node, row, lambda: getattr(instance, method)(*arguments), before)
                settle(key, instance, row)

            return consume

        def fire() -> None:
            """Call the keys that waited for what time has come to: by their times, then since when they waited."""
            for due, key in timed.due():
                instance = by_key[key]
                row: Any = f"the key {key!r}, which waits"
                before = functools.partial(_set_moment, watermark.value, due)
                with self._failures.of_waiting(node, instance, key, due):
                    self._emit_all(node, row, functools.partial(getattr(instance, logic.timed), due), before)
                settle(key, instance, row)

        def takes_advance(name: str, value: int) -> None:
            if watermark.take(name, value):
                fire()
                self._advance(node, node.name, watermark.value)

        def tick() -> None:
            if logic.by_clock:
                watermark.value = END if self._ending else self.clock_ms
                fire()
            elif watermark.advance():
                fire()
                self._advance(node, node.name, watermark.value)

        def call_waiting(method: str, *arguments: Any) -> None:
            for key, row in list(waiting.items()):
                instance = by_key[key]
                if ttl_ms is not None:
                    touched.setdefault(key, comparable(list(instances.values(instance))))
                waits = f"the key {key!r}, which waits"
                with self._failures.of_waiting(node, instance, key):
                    self._emit_all(node, waits, functools.partial(getattr(instance, method), *arguments))
                settle(key, instance, row)

        def ended() -> None:
            for key, before in touched.items():
                if comparable(list(instances.values(by_key[key]))) != before:
                    expires[key] = self.clock_ms + (ttl_ms or 0)
            touched.clear()

        def punctuated() -> None:
            if logic.punctuated:
                call_waiting(logic.punctuated)
            self._punctuate(node)

        if ttl_ms is not None:
            self._ends.append(ended)
        if logic.timed:
            self._ticks.append(tick)
        if logic.by_watermark:
            self._idleness.reads(node.name, names, watermark)
            self._takes_advances[node.id] = takes_advance
        if logic.ticked:
            self._ticks.append(lambda: call_waiting(logic.ticked, END if self._ending else self.clock_ms))
        elif logic.punctuated:
            self._ticks.append(lambda: call_waiting(logic.punctuated) if self._ending else None)
        return [consumer(place) for place in range(len(node.inputs))], punctuated

    def _emit_all(
        self, node: Node, row: Any, call: Callable[[], Any], before: Callable[[], None] | None = None
    ) -> None:
        # Each tuple goes down before the operator makes the next one: depth-first.
        if before is not None:
            before()
        if node.on_error != "fail":  # a call that fails has emitted nothing: it is known only when all is made
            for item in self._failures.calling(node, lambda _: [exact(node.schema, e) for e in emitted(call())])(row):
                self._emit(node, item)
            return
        outputs = iter(self._failures.calling(node, lambda _: emitted(call()))(row))
        step = self._failures.calling(node, lambda _: next_tuple(node.schema, outputs))
        while (item := step(row)) is not None:
            self._emit(node, item)
            if before is not None:
                before()  # other operators ran meanwhile, for which time has come further or less far


def run_epochs(
    outputs: Sequence[Node], clocks_ms: Sequence[int] = (), epochs_max: int | None = None, ends: bool = False
) -> SequentialRun:
    """The program over the rows that its sources hold, epoch by epoch, until nothing is in flight.

    With `ends` the input then ends: all time has come.

    Epoch n has the time `clocks_ms[n]`; the last of them counts for all that follow, and for what is only fed back.
    `epochs_max` limits how long a program whose feedback does not end may go on.
    """
    run = SequentialRun(outputs)
    run.run_epochs(clocks_ms, epochs_max, ends)
    return run


def _epochs(node: Node) -> Sequence[Sequence[Any]]:
    assert isinstance(node.logic, Source)
    found: Sequence[Sequence[Any]] | None = getattr(node.logic.origin, "epochs", None)
    if found is None:
        raise ProgramError(f"run_sequential: the source {node.title} holds no rows; give them: run_sequential(rows)")
    return found


def _set_moment(reached: int, fired: int | None) -> None:
    now = moment()
    now.reached, now.fired = reached, fired


def _sender(loop: Node, in_flight: list[Row]) -> Consume:
    def send(row: Row) -> None:
        in_flight.append(exact(loop.schema, row))

    return send


def input_row(node: Node, row: Any, number: int) -> Row:
    """A row of the input as a tuple of the source's schema; InputError if it does not fit."""
    try:
        return exact(node.schema, row)
    except (ShapeError, MisfitError) as problem:
        raise InputError(f"source {node.title}: row {number} does not fit its schema: {problem}") from None
