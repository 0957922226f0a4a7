"""Calls of elastic operators made ahead of a stage that is retraced: many at a time, as the epoch had made them.

    some tuples that entered ─► what each elastic operator gets of them ─► its pool ─► a result or an error for each
    one tuple at a time      ─► … ─► the elastic operator: takes what was made for an equal tuple, else makes the call

A stage is retraced one tuple at a time, and one call at a time would take a hundred times as long as the epoch took.
What an elastic operator will get is known ahead where only functions of one tuple lie before it; it is a function of
its tuple itself, so it does not matter when it is called. Whatever differs, or stands behind an operator with state,
is called when its tuple comes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anabranch.compiler.layout.stages import Edge, Step
from anabranch.engine.pool.pool_run import CallFailed
from anabranch.engine.pool.work import Failed
from anabranch.engine.worker.elastic_steps import Calls, guarding_of, opened
from anabranch.errors import OperatorError
from anabranch.operators.guarding import GuardedElastic
from anabranch.program.calling import emitted, exact, kept
from anabranch.program.elastic import ElasticFunction, LoopBlocked
from anabranch.program.graph import Filter, FlatMap, Keyed, Map, Node, Port, Process, Route
from anabranch.program.schema import Row

ROWS_AHEAD = 512
"""Tuples whose calls are made at a time: enough for a pool to have use for all its workers."""


class CallsAhead:
    """The elastic operators of a stage that is retraced.

    Parameters
    ----------
    steps : mapping
        Those of the stage, by number, in the order the tuples flow.
    outputs : mapping
        The edges that leave each.
    """

    def __init__(self, steps: Mapping[int, Step], outputs: Mapping[int, Sequence[Edge]], epoch: int) -> None:
        self._steps = steps
        self._epoch = epoch
        self._functions: dict[int, Any] = {}
        self._made: dict[int, list[tuple[Row, Any]]] = {}
        for number in steps:
            function = getattr(steps[number].node.logic, "function", None)
            if isinstance(function, ElasticFunction):
                self._functions[number] = function.called if isinstance(function, GuardedElastic) else function
                self._made[number] = []
        self._leads: dict[int, list[int]] = {}  # step → those behind it by which an elastic one is reached
        for number in reversed(list(steps)):
            targets = [edge.target for edge in outputs[number] if not edge.crosses and edge.target >= 0]
            self._leads[number] = [each for each in targets if each in self._made or self._leads[each]]

    @contextlib.contextmanager
    def answering(self) -> Iterator[None]:
        """Meanwhile the elastic functions give what their pools made: code may end the process that it runs in."""
        try:
            for number, function in self._functions.items():
                function.apart = functools.partial(self._result, number)
            yield
        finally:
            for function in self._functions.values():
                function.apart = None

    def make(self, rows: Sequence[Row], first: Sequence[int]) -> None:
        """Make the calls that these tuples will lead to; `first` are the steps that take them."""
        for made in self._made.values():
            made.clear()
        arriving: dict[int, list[Row]] = {number: list(rows) for number in first}
        for number, step in self._steps.items():
            if not arriving.get(number):
                continue
            if number in self._made:
                with contextlib.suppress(OperatorError):  # nothing can be opened: told when a tuple comes
                    self._made[number] = self._called(step.node, arriving[number])
            if self._leads[number]:
                leaving = self._through(step, arriving[number])
                for target in self._leads[number]:
                    arriving.setdefault(target, []).extend(leaving)

    def _through(self, step: Step, rows: list[Row]) -> list[Row]:
        """What leaves a step, up to the first tuple for which it fails; nothing if that cannot be known ahead."""
        logic, schema = step.node.logic, step.node.schema
        if isinstance(logic, (Keyed, Port, Process, Route)):
            return []
        if not isinstance(logic, (Map, Filter, FlatMap)):
            return rows
        leaving: list[Row] = []
        results = iter(self._made.get(step.number, ()))
        with contextlib.suppress(Exception):  # it is met, and told, when its tuple comes
            for row in rows:
                if step.number in self._made:
                    _, result = next(results)
                    if isinstance(result, Failed):
                        raise result.problem
                else:
                    result = logic.function(row)
                if isinstance(logic, Filter):
                    leaving += [row] if kept(result) else []
                elif isinstance(logic, Map):
                    leaving.append(exact(schema, result))
                else:
                    leaving += [exact(schema, each) for each in emitted(result)]
        return leaving

    def _called(self, node: Node, rows: list[Row]) -> list[tuple[Row, Any]]:
        # Not above: few retrace.
        from anabranch.engine.worker.worker_pools import POOLS

        pool, calls = POOLS.of(node)
        assert isinstance(calls, Calls)
        made: list[Any] = []
        opened(calls, node, self._epoch)
        try:
            for _, results in pool.run(rows, keeps_failures=guarding_of(node) is not None):
                made += results
        except CallFailed as failure:
            made = [*made[: failure.index], Failed(failure.problem)]
            if isinstance(failure.problem, LoopBlocked):
                POOLS.forget(node)
        return list(zip(rows, made, strict=False))

    def _result(self, number: int, row: Row) -> Any:
        made = self._made[number]
        place = next((at for at, (other, _) in enumerate(made) if _are_equal(other, row)), None)
        if place is None:
            made[:0] = self._called(self._steps[number].node, [row])
            place = 0
        _, result = made.pop(place)
        if isinstance(result, Failed):
            raise result.problem
        return result


def _are_equal(one: Row, other: Row) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # arrays in it, say
        return False
