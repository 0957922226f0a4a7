"""What an elastic operator does with a batch: the calls of a map, filter or flat_map, made by a pool.

The same checks as a plain operator has, and the same errors: the first in the order of the tuples, be it a call that
failed or a result that does not fit.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.elastic_call import awaited, closed, outcome_of
from anabranch.engine.pool.pool_run import CallFailed
from anabranch.engine.pool.work import CLOSING_S, Failed
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import Keeper
from anabranch.errors import AnabranchError
from anabranch.operators.guarding import GuardedElastic, Guarding
from anabranch.program.calling import emitted, exact, kept, operator_failed
from anabranch.program.elastic import ElasticFunction, OpenFailed
from anabranch.program.graph import Filter, Map, Node
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.engine.pool.loop_crew import EventLoop


class Calls:
    """The user's function as workers call it: what it gives is taken hold of at once, before another call changes it.

    The result for a row is a bool of a filter, an output of a map, a list of outputs of a flat_map.
    """

    def __init__(self, node: Node) -> None:
        function = getattr(node.logic, "function", None)
        assert isinstance(function, ElasticFunction)
        self.function = function.function
        self.settings = function.settings
        self._owner = function.owner
        self._kind = "filter" if isinstance(node.logic, Filter) else "map" if isinstance(node.logic, Map) else "many"
        self._schema: Schema = node.schema
        if isinstance(function, GuardedElastic):
            self._kind, self._schema = function.guarding.kind, function.guarding.schema
        self._input: Schema = node.inputs[0].schema
        self._keep = Keeper(self._schema)
        self._is_open = False
        self.loop: EventLoop | None = None
        """Where async functions run, and with them `open` and `close`: clients belong to the loop they were made in."""
        self.is_elsewhere = False
        """The calls are made in other processes, which open what they need themselves."""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "loop": None, "is_elsewhere": False}

    def open(self) -> None:
        """Let the user's object get what it needs, if it has not."""
        if self.is_elsewhere:
            return
        if not self._is_open and hasattr(self._owner, "open"):
            self._called(self._owner.open, None)
        self._is_open = True

    def close(self) -> None:
        """Let it give that back."""
        if self._is_open and hasattr(self._owner, "close"):
            closed(self._owner, lambda: self._called(self._owner.close, CLOSING_S))
        self._is_open = False

    def _called(self, function: Callable[[], Any], timeout_s: float | None) -> None:
        if self.loop is not None:
            self.loop.run(outcome_of(function), timeout_s)
        else:
            function()

    def many(self, rows: Sequence[Any], results: list[Any]) -> None:
        """Append the result for each row; what raises leaves the results of the rows before it."""
        # `results.append` each time: the interpreter knows that call, and makes it faster than one of a bound method.
        function, keep, lasts = self.function, self._keep, self._keep.tuples_last
        if self._kind == "filter":
            for t in rows:
                results.append(found if (found := function(t)) is True or found is False else kept(found))
        elif self._kind == "map" and lasts:
            for t in rows:
                output = function(t)
                results.append(output if isinstance(output, tuple) else keep(output))
        elif self._kind == "map":
            for t in rows:
                results.append(keep(function(t)))
        else:
            for t in rows:
                results.append([o if lasts and isinstance(o, tuple) else keep(o) for o in emitted(function(t))])

    async def one(self, row: Any) -> Any:
        """The result of an async function for a row."""
        result = await awaited(self.function, row, self.settings.timeout_s)
        if self._kind == "filter":
            return kept(result)
        return self._keep(result) if self._kind == "map" else [self._keep(output) for output in emitted(result)]

    def fitted(self, result: Any) -> None:
        """See that a result fits the schema; MisfitError or ShapeError if it does not."""
        if self._kind != "filter":
            for output in [result] if self._kind == "map" else result:
                exact(self._schema, output)

    def values(self, row: Any) -> tuple[Any, ...]:
        """A row as it travels to another process."""
        return tuple(row)

    def rows(self, values: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The rows that travelled."""
        return [self._input.row_class(each) for each in values]


def elastic_step(pool: Pool, calls: Calls, epoch: int, check: Callable[..., Batch]) -> Callable[[Batch, Node], Batch]:
    """What an elastic operator does with a batch; `check` makes a batch of outputs, or tells which does not fit."""

    def step(batch: Batch, node: Node) -> Batch:
        rows = batch.rows
        results: list[Any] = []
        failure: CallFailed | None = None
        opened(calls, node, epoch)
        guarding = guarding_of(node)
        with contextlib.closing(pool.run(rows, keeps_failures=guarding is not None)) as run:
            try:
                for _, some in run:
                    if results:
                        results += some
                    else:
                        results = some  # all there is, mostly
            except CallFailed as found:
                failure = found
        if failure is None:
            return output_batch(batch, node, results, guarding, check)
        if guarding is None:
            output_batch(batch, node, results, None, check)  # what does not fit may stand before the failure
        raise operator_failed(node, rows[failure.index], failure.problem, epoch) from failure.problem

    return step


def opened(calls: Calls, node: Node, epoch: int) -> None:
    """Let the user's object get what it needs; OperatorError if it cannot."""
    try:
        calls.open()
    except Exception as problem:
        raise operator_failed(node, None, OpenFailed(problem), epoch) from problem


def guarding_of(node: Node) -> Guarding | None:
    """What becomes of calls that fail, if they do not fail the epoch."""
    function = getattr(node.logic, "function", None)
    return function.guarding if isinstance(function, GuardedElastic) else None


def output_batch(
    batch: Batch, node: Node, results: list[Any], guarding: Guarding | None, check: Callable[..., Batch]
) -> Batch:
    """The output for the results of the first rows of a batch."""
    if guarding is not None:
        return _guarded(batch, node, results, guarding, check)
    return _batch(batch, node, results, check)


def _guarded(batch: Batch, node: Node, results: list[Any], guarding: Guarding, check: Callable[..., Batch]) -> Batch:
    """The output of an operator whose calls may fail: what failed is told where its result would be."""
    made: list[list[Any]] = []
    for row, result in zip(batch.rows, results, strict=True):
        if type(result) is Failed and isinstance(result.problem, AnabranchError):
            raise operator_failed(node, row, result.problem) from result.problem
        if type(result) is Failed and isinstance(result.problem, Exception):
            made.append(guarding.failed(row, result.problem))
        else:
            made.append(guarding.outputs(row, functools.partial(_given, result)))
    positions = [at for at, each in zip(batch.positions, made, strict=True) for _ in each]
    return check(node, positions, [output for each in made for output in each], batch)


def _given(result: Any) -> Any:
    return result


def _batch(batch: Batch, node: Node, results: list[Any], check: Callable[..., Batch]) -> Batch:
    """The output for the results of the first rows of a batch."""
    if isinstance(node.logic, Filter):
        return Batch(node.schema, list(compress(batch.positions, results)), list(compress(batch.rows, results)))
    positions: Sequence[int]
    if isinstance(node.logic, Map):
        positions, outputs = batch.positions[: len(results)], results
    else:
        counts = [len(each) for each in results]
        positions = [at for at, count in zip(batch.positions, counts, strict=False) for _ in range(count)]
        outputs = [output for each in results for output in each]
    return check(node, positions, outputs, batch)
