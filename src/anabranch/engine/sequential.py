"""The sequential run: the definition of correct.

One tuple at a time, in the order of its source, carried through the graph depth-first, outgoing edges in the
order they were declared. No Spark, no batches, no cleverness: when another way of running the program
disagrees with this file, the other way is wrong.

An epoch begins with its time: tables that change are looked at (`table_versions.py`), and operators
that wait for time to pass are called, in the order of declaration.
Then come the tuples that were fed back in the epoch before, then the tuples of each source, both in the order
of declaration. Punctuations and the advances of watermarks travel between the tuples (docs/time.md). At the end of an
epoch the time to live of every key whose state is another than before begins anew.

What travels between operators is in `sequential_wiring.py`, what they do with it in `sequential_operators.py` and
`sequential_keys.py`, which keys wait in `sequential_time.py`, what becomes of calls that fail in
`sequential_failures.py`, and of state when a later version of the program goes on in `sequential_versions.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from anabranch.engine.sequential_operators import SequentialOperators
from anabranch.engine.sequential_wiring import Consume, Wiring
from anabranch.engine.table_versions import FollowedLookups
from anabranch.errors import InputError, ProgramError
from anabranch.operators.epoch_context import EpochContext, current, running
from anabranch.program.belongings import Belongings
from anabranch.program.calling import exact
from anabranch.program.elastic import ElasticFunction
from anabranch.program.event_time import awaiting_watermarks
from anabranch.program.graph import (
    DeadLetters,
    Feedback,
    Node,
    Source,
    Watermark,
    fed_back,
    named,
    upstream,
)
from anabranch.program.misfits import MisfitError, ShapeError
from anabranch.program.punctuated_streams import carrying_punctuations
from anabranch.program.schema import Row


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
        self._nodes = nodes = upstream(*ends)
        self._roots = [node.logic for node in nodes if not isinstance(node.logic, (Source, Feedback))]
        functions = [getattr(logic, "function", None) for logic in self._roots]
        self._elastic = [function for function in functions if isinstance(function, ElasticFunction)]
        self._mine: Belongings | None = None
        self._is_within = False
        self._number = 0
        self._tables = FollowedLookups(nodes)
        self._wiring = Wiring(nodes, clock_ms)
        self._operators = SequentialOperators(self._wiring)
        self._wire(nodes)
        for output, end in zip(self.outputs, ends, strict=True):
            self._wiring.reads_tuples(end, output.append)
        self.sources = {node.name: node for node in nodes if isinstance(node.logic, Source)}
        self._loops = self._wire_loops(nodes)

    def _wire(self, nodes: Sequence[Node]) -> None:
        """The operators, each as a reader of its inputs."""
        wiring, punctuated, awaiting = self._wiring, carrying_punctuations(nodes), awaiting_watermarks(nodes)
        for node in nodes:
            if not node.inputs:
                continue
            takes = self._operators.operator(node)
            if node.id in awaiting and not isinstance(node.logic, Watermark):
                for source in {each.id: each for each in node.inputs}.values():
                    wiring.reads_watermarks(source, takes.advance)
            for source, consume in zip(node.inputs, takes.tuples, strict=True):
                if not isinstance(node.logic, DeadLetters):
                    wiring.reads_tuples(source, consume)
                if source.id in punctuated and node.id in punctuated:
                    wiring.reads_punctuations(source, takes.punctuation)

    def _wire_loops(self, nodes: Sequence[Node]) -> dict[str, tuple[Node, list[Row]]]:
        """What is fed back, by the name of the loop, in the order of declaration; with what is under way there."""
        names = {node.name: node for node in nodes}
        found: dict[str, tuple[Node, list[Row]]] = {}
        for target, loops in fed_back(nodes).items():
            for loop in loops:
                in_flight: list[Row] = []
                found[loop.name] = loop, in_flight
                self._wiring.reads_tuples(names[target], _sender(loop, in_flight))
        return {node.name: found[node.name] for node in nodes if isinstance(node.logic, Feedback)}

    @property
    def clock_ms(self) -> int:
        return self._wiring.clock_ms

    @clock_ms.setter
    def clock_ms(self, clock_ms: int) -> None:
        self._wiring.clock_ms = clock_ms

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
        tables = self._tables.at(self.clock_ms, around.tables)
        context = dataclasses.replace(around, time_ms=self.clock_ms, number=self._number, tables=tables)
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
        self._wiring.idleness.begin(self.clock_ms)
        for tick in self._wiring.ticks:
            tick()
        for loop, rows in sent:
            for row in rows:
                self._wiring.emit(loop, row)
        for name, node in self.sources.items():
            for number, row in enumerate(inputs.get(name, ())):
                self._wiring.emit(node, input_row(node, row, number))
        for end in self._wiring.ends:
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

    def advance(self, node: Node, value: int) -> None:
        """The watermark that an operator makes comes to a value, without a tuple."""
        self._wiring.advance(node, node.name, value)

    def punctuate(self, node: Node) -> None:
        """A punctuation behind an operator."""
        self._wiring.punctuate(node)

    def end(self) -> None:
        """The end of the input: an epoch without tuples, in which all time has come. Nothing may follow."""
        self._wiring.ending = True
        self.epoch({})
        self._wiring.ending = False

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
        keyed = self._operators.keyed[operator]
        return {key: keyed.instances.values(instance) for key, instance in keyed.by_key.items()}

    def initial_state(self, operator: str) -> tuple[Any, ...]:
        """The state of a key that was never seen."""
        instances = self._operators.keyed[operator].instances
        return instances.values(instances.new())


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
