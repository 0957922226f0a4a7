"""The wiring of the sequential run: who is told what an operator gives out, and when. Part of the definition.

Three things travel along an edge, each to all that read it, in the order of declaration, and each all the way down
before the next: tuples, punctuations and the advances of watermarks. Besides, an operator may ask to be called when
an epoch begins (a tick: time has passed) and when it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from anabranch.engine.sequential_failures import Failures
from anabranch.engine.sequential_time import Idleness
from anabranch.program.calling import all_exact, emitted, exact, next_tuple
from anabranch.program.event_time import watermarks_behind
from anabranch.program.graph import Node
from anabranch.program.schema import Row

Consume = Callable[[Row], None]
Listen = Callable[[], None]
TakeAdvance = Callable[[str, int], None]


class Wiring:
    """The edges of a program, and the time of its epoch.

    Attributes
    ----------
    clock_ms : int
        The time of the epoch, for what expires or waits.
    ending : bool
        Whether this is the epoch in which all time has come.
    watermarks : dict
        How far those that streams have by `event_time` have come.
    ticks, ends : list of callable
        What is called when an epoch begins and when it ends, in the order of declaration.
    """

    def __init__(self, nodes: Iterable[Node], clock_ms: int) -> None:
        nodes = list(nodes)
        self.clock_ms = clock_ms
        self.ending = False
        self.watermarks: dict[str, int] = {}
        self.ticks: list[Callable[[], None]] = []
        self.ends: list[Callable[[], None]] = []
        self.behind: Mapping[int, tuple[str, ...]] = watermarks_behind(nodes)
        self.idleness = Idleness(nodes)
        self.failures = Failures(nodes, self.emit)
        self._consumers: dict[int, list[Consume]] = {node.id: [] for node in nodes}
        self._listeners: dict[int, list[Listen]] = {node.id: [] for node in nodes}
        self._advancing: dict[int, list[TakeAdvance]] = {node.id: [] for node in nodes}

    def reads_tuples(self, source: Node, consume: Consume) -> None:
        """Somebody takes the tuples of an operator, after those who do already."""
        self._consumers[source.id].append(consume)

    def reads_punctuations(self, source: Node, listen: Listen) -> None:
        self._listeners[source.id].append(listen)

    def reads_watermarks(self, source: Node, take: TakeAdvance) -> None:
        self._advancing[source.id].append(take)

    def emit(self, node: Node, row: Row) -> None:
        """A tuple goes to all readers; what one does to its lists, maps and structs, the others do not see."""
        readers = self._consumers[node.id]
        if len(readers) > 1 and node.schema.has_changeable:
            for consume in readers[:-1]:
                consume(exact(node.schema, row))
            readers = readers[-1:]
        for consume in readers:
            consume(row)

    def punctuate(self, node: Node) -> None:
        for listen in self._listeners[node.id]:
            listen()

    def advance(self, node: Node, name: str, value: int) -> None:
        """A watermark is told to whoever reads an operator's output."""
        for take in self._advancing[node.id]:
            take(name, value)

    def emit_all(self, node: Node, row: Any, call: Callable[[], Any], before: Callable[[], None] | None = None) -> None:
        """What a call gives. Each tuple goes down before the operator makes the next one: depth-first."""
        if before is not None:
            before()
        calling = self.failures.calling
        if node.on_error != "fail":  # a call that fails has emitted nothing: it is known only when all is made
            for item in calling(node, lambda _: all_exact(node.schema, call()))(row):
                self.emit(node, item)
            return
        outputs = iter(calling(node, lambda _: emitted(call()))(row))
        step = calling(node, lambda _: next_tuple(node.schema, outputs))
        while (item := step(row)) is not None:
            self.emit(node, item)
            if before is not None:
                before()  # other operators ran meanwhile, for which time has come further or less far
