"""The sequential run: the definition of correct.

One tuple at a time, in the order of its source, carried through the graph depth-first, outgoing edges
in the order they were declared. No Spark, no batches, no cleverness: when another way of running the
program disagrees with this file, the other way is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from anabranch.compiler.graph import Filter, FlatMap, Keyed, Map, Node, Source, upstream
from anabranch.errors import InputError, OperatorError
from anabranch.flow.calling import Instances, emitted, key_of, operator_failed
from anabranch.flow.clock import set_epoch_time
from anabranch.flow.schema import MisfitError, Row, Schema, ShapeError


class SequentialRun:
    """Runs the program that ends in `output`, tuple by tuple.

    Attributes
    ----------
    output : list of Row
        What has come out so far.
    clock_ms : int
        The time, for state that expires; whoever feeds may move it.
    """

    def __init__(self, output: Node, clock_ms: int = 0) -> None:
        self.output: list[Row] = []
        self.clock_ms = clock_ms
        self._states: dict[str, tuple[Instances, dict[Any, Any]]] = {}
        nodes = upstream(output)
        self._consumers: dict[int, list[Callable[[Row], None]]] = {node.id: [] for node in nodes}
        for node in nodes:
            if not isinstance(node.logic, Source):
                self._consumers[node.inputs[0].id].append(self._consumer(node))
        self._consumers[output.id].append(self.output.append)
        self._sources = {node.name: node for node in nodes if isinstance(node.logic, Source)}

    def feed(self, rows: Iterable[Any], source: str | None = None) -> None:
        """Carry rows of a source through the program."""
        node = self._sources[source] if source is not None else next(iter(self._sources.values()))
        set_epoch_time(self.clock_ms)
        for number, row in enumerate(rows):
            self._emit(node, input_row(node, row, number))

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

    def _consumer(self, node: Node) -> Callable[[Row], None]:
        logic, schema = node.logic, node.schema
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

        elif isinstance(logic, Keyed):
            instances = Instances(node)
            by_key: dict[Any, Any] = {}
            self._states[node.name] = (instances, by_key)
            places = tuple(node.inputs[0].schema.names.index(name) for name in node.key)
            method, ttl_ms = logic.method, logic.time_to_live_ms
            expires: dict[Any, int] = {}

            def consume(row: Row) -> None:
                key = key_of(row, places)
                instance = by_key.get(key)
                if instance is None or self.clock_ms >= expires.get(key, self.clock_ms + 1):
                    instance = by_key[key] = instances.new()
                before = repr(instances.values(instance))
                self._emit_all(node, row, lambda: getattr(instance, method)(row))
                after = repr(instances.values(instance))  # refuses what would be lost
                if ttl_ms is not None and after != before:
                    expires[key] = self.clock_ms + ttl_ms

        else:
            raise AssertionError(f"a {node.kind} reads no stream")
        return consume

    def _emit_all(self, node: Node, row: Row, call: Callable[[], Any]) -> None:
        # Each tuple goes down before the operator makes the next one: depth-first.
        outputs = iter(_failing(node, lambda _: emitted(call()))(row))
        step = _failing(node, lambda _: _next(node.schema, outputs))
        while (item := step(row)) is not None:
            self._emit(node, item)


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
