"""What each operator does with a tuple, in the sequential run. Part of the definition.

Operators with keys are in `sequential_keys.py`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from anabranch.engine.sequential_keys import KeyedOperator
from anabranch.engine.sequential_wiring import Consume, Listen, TakeAdvance, Wiring
from anabranch.operators.epoch_context import count_anomaly
from anabranch.operators.library_operator import NULL_ATTRIBUTE
from anabranch.program.calling import exact, kept, route_of
from anabranch.program.event_time import BEGINNING, END, event_time_of
from anabranch.program.graph import (
    DeadLetters,
    Filter,
    FlatMap,
    Keyed,
    Map,
    Node,
    Port,
    Process,
    Punctuate,
    Route,
    Spread,
    Union,
    Watermark,
)
from anabranch.program.schema import Row


@dataclass(frozen=True)
class Taking:
    """What an operator does with what its inputs give."""

    tuples: list[Consume]
    """For each input, what takes its tuples."""
    punctuation: Listen
    advance: TakeAdvance


class SequentialOperators:
    """The operators of a program, made one by one, those upstream first."""

    def __init__(self, wiring: Wiring) -> None:
        self.keyed: dict[str, KeyedOperator] = {}
        self._wiring = wiring
        self._ways: dict[int, int] = {}  # of the tuple that is on its way through a route

    def operator(self, node: Node) -> Taking:
        wiring, logic = self._wiring, node.logic
        if isinstance(logic, Keyed):
            keyed = self.keyed[node.name] = KeyedOperator(wiring, node, logic)
            consumers = [keyed.consumer(index) for index in range(len(node.inputs))]
            return Taking(consumers, keyed.punctuated, keyed.take_advance)
        consume = self._watermark(node, logic) if isinstance(logic, Watermark) else self._plain(node)
        consumers = [wiring.failures.skipping(node, consume)] * len(node.inputs)
        advance = functools.partial(wiring.advance, node)
        return Taking(consumers, functools.partial(wiring.punctuate, node), advance)

    def _plain(self, node: Node) -> Consume:
        wiring, logic, schema = self._wiring, node.logic, node.schema
        emit, calling = wiring.emit, wiring.failures.calling
        if isinstance(logic, Filter):
            keeps = logic.function
            call = calling(node, lambda row: kept(keeps(row)))

            def consume(row: Row) -> None:
                if call(row):
                    emit(node, row)

        elif isinstance(logic, Map):
            call = calling(node, lambda row: exact(schema, logic.function(row)))

            def consume(row: Row) -> None:
                emit(node, call(row))

        elif isinstance(logic, FlatMap):
            function = logic.function

            def consume(row: Row) -> None:
                wiring.emit_all(node, row, lambda: function(row))

        elif isinstance(logic, Process):

            def consume(row: Row) -> None:
                wiring.emit_all(node, row, lambda: getattr(logic.operator, logic.method)(row))

        elif isinstance(logic, Route):
            choose = calling(node, lambda row: route_of(logic, row))

            def consume(row: Row) -> None:
                self._ways[node.id] = choose(row)
                emit(node, row)

        elif isinstance(logic, Port):
            route, index = node.inputs[0].id, logic.index

            def consume(row: Row) -> None:
                if self._ways[route] == index:
                    emit(node, row)

        elif isinstance(logic, Punctuate):
            ends_here = logic.function
            call = calling(node, lambda row: bool(ends_here(row)))

            def consume(row: Row) -> None:
                ends = call(row)
                emit(node, row)
                if ends:
                    wiring.punctuate(node)

        else:
            assert isinstance(logic, (Union, Spread, DeadLetters)), f"a {node.kind} reads no stream"
            consume = functools.partial(emit, node)

        return consume

    def _watermark(self, node: Node, logic: Watermark) -> Consume:
        """The tuples as they are; behind one that raises the watermark, or that ends a silence, its value."""
        wiring, column, name = self._wiring, node.schema.names.index(logic.attribute), node.name
        time_of = wiring.failures.calling(node, lambda row: event_time_of(logic, tuple.__getitem__(row, column)))
        values = wiring.watermarks
        values[name] = BEGINNING

        def consume(row: Row) -> None:
            time = time_of(row)
            if time is None:
                count_anomaly(name, NULL_ATTRIBUTE)
                return
            wiring.emit(node, row)
            was_idle, after = wiring.idleness.heard(name, wiring.clock_ms), logic.after(time)
            if after > values[name] or was_idle:
                values[name] = max(after, values[name])
                wiring.advance(node, name, values[name])

        def tick() -> None:
            if wiring.ending:
                wiring.advance(node, name, END)

        wiring.ticks.append(tick)
        return consume
