"""A channel: the operators of a region applied to batches of tuples, in order.

Operators run one after the other over a whole batch. That gives what depth-first gives, because the
operators of a region share nothing: each still sees its tuples in their order, and what it emits keeps
the position of the tuple it came from. A position is the tuple's place in the epoch's source; tuples
that one tuple gave rise to have equal positions and stand in the order they were emitted.

Work per tuple is one call of user code and little else; what can be done per column is.
"""

from __future__ import annotations

import inspect
import itertools
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from typing import Any, Protocol

import pyarrow as pa

from anabranch.compiler.rewriting.column_arguments import ColumnArguments, with_column_arguments
from anabranch.compiler.rewriting.inline import Inlined, inlined
from anabranch.engine.worker.batch import Batch, of_values
from anabranch.engine.worker.batch_function_steps import batch_function_step
from anabranch.engine.worker.column_steps import column_step
from anabranch.engine.worker.enrich_columns import enrich_step
from anabranch.engine.worker.guarded_steps import as_written, guarded_step, only_tuples_step
from anabranch.engine.worker.latest_columns import latest_step
from anabranch.engine.worker.running_columns import running_step
from anabranch.engine.worker.seen_columns import seen_step
from anabranch.engine.worker.slot_columns import SlotCalls, slot_call, slot_step
from anabranch.engine.worker.timing import Stopwatch
from anabranch.engine.worker.top_columns import top_step
from anabranch.errors import AnabranchError
from anabranch.operators.batch_functions import BatchFunction
from anabranch.operators.combining import Salt
from anabranch.operators.guarding import GuardedFunction, OnlyTuples
from anabranch.operators.joins import StaticEnrich
from anabranch.program.calling import canonical, emitted, kept, operator_failed, route_of
from anabranch.program.elastic import ElasticFunction
from anabranch.program.graph import Filter, FlatMap, Keyed, Map, Node, Port, Punctuate, Route
from anabranch.program.misfits import MisfitError, ShapeError
from anabranch.program.schema import Row, Schema


class StateTable(Protocol):
    """Where a keyed operator's instances come from."""

    def load(self, touched: set[Any]) -> dict[Any, Any]:
        """The live instances by key, those of `touched` among them."""

    def load_waiting(self, field: str) -> dict[Any, Any]:
        """The live instances by key, those among them whose `field` is true."""

    def load_due(self, field: str, after: int, until: int) -> dict[Any, Any]:
        """The live instances by key, those among them whose `field`, a number, is above one and up to another."""


_Instances = Callable[[Batch], Iterator[Any]]
ElasticSteps = Callable[..., Callable[[Batch, Node], Batch]]
"""Makes the step of an elastic operator: of a node, for an epoch, with what checks outputs, with its state if any."""


class Keeper:
    """Takes hold of an output the moment it is emitted.

    Outputs are checked a batch at a time, but the next tuple's call may change a list or dict that was emitted
    before it (its state, say). So what can change is copied at once; what cannot is left as it is.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        # A tuple of numbers and texts cannot change.
        self.tuples_last = not any(pa.types.is_nested(kind) or pa.types.is_binary(kind) for kind in schema.arrow.types)

    def __call__(self, output: Any) -> Any:
        schema = self._schema
        values = schema.unpack(output)
        return tuple(values) if self.tuples_last else schema.exact_row(values)


class BatchSteps:
    """What operators do with a batch.

    Parameters
    ----------
    tables : mapping of str to StateTable
        The state of the keyed ones, by name.
    epoch : int
        For error messages.
    elastic : callable, optional
        Makes the step of an elastic operator; without it, such an operator's calls come one after the other.
    watched : int
        For so many tuples dicts of the user's refuse what is not their key's.
    columns : collection of str
        What runs over whole columns: see `OVER_COLUMNS`.
    """

    def __init__(
        self,
        tables: Mapping[str, StateTable],
        epoch: int,
        elastic: ElasticSteps | None = None,
        watched: int = 0,
        columns: Collection[str] = (),
    ) -> None:
        self._columns = columns
        self._tables = tables
        self._epoch = epoch
        self._elastic = elastic
        self._watched = watched

    def step(self, node: Node, watch: Stopwatch | None = None) -> Callable[[Batch, Node], Batch]:
        """What an operator does with a batch; with a stopwatch, its calls of user code for each tuple are timed."""
        logic = node.logic
        if self._elastic is not None and isinstance(getattr(logic, "function", None), ElasticFunction):
            return self._elastic(node, self._epoch, self.checked)
        keep = Keeper(node.schema)
        timed = watch.around if watch is not None else _as_it_is
        emitting = watch.around_emitting if watch is not None else _as_it_is
        if isinstance(logic, Filter):
            step = self._guard(_run_filter, timed(logic.function))
            return step if watch is not None else column_step(node, self._epoch, step, self._columns)
        called = getattr(logic, "function", None)
        if isinstance(called, BatchFunction) and watch is None:
            run = _run_map if isinstance(logic, Map) else _run_flat_map
            return batch_function_step(called, self._guard(run, called, keep))
        if isinstance(logic, Map):
            if isinstance(logic.function, Salt):  # makes a column for whole batches
                return _adding_step(logic.function)
            step = self._guard(_run_map, timed(logic.function), keep)
            if isinstance(logic.function, StaticEnrich) and "enrich" in self._columns and watch is None:
                return enrich_step(node, step)
            return step if watch is not None else column_step(node, self._epoch, step, self._columns)
        if isinstance(logic, FlatMap):
            step = self._guard(_run_flat_map, emitting(logic.function), keep)
            if watch is None and "methods" in self._columns:
                names = node.inputs[0].schema.names
                rewritten = inlined(logic.function, names, node.schema.names) if keep.tuples_last else None
                if rewritten is not None:
                    return self._inlined_step(rewritten, None, timed)
                step = self._arguments_step(logic.function, node, step, None, keep)
            return self._flat_map_step(node, watch, step)
        if isinstance(logic, Keyed):
            function = getattr(type(logic.prototype), logic.method)
            places = tuple(node.inputs[0].schema.names.index(name) for name in node.key)
            table = self._tables[node.name]
            if not inspect.isgeneratorfunction(function):
                watched = getattr(type(logic.prototype), "watched", None)
                first = repeat(emitting(watched or function), self._watched if watched is not None else 0)
                step = self._guard(_run_keyed, emitting(function), first, places, table, keep)
                if watched is None and watch is None:
                    step = self._arguments_step(function, node, step, _instances(table, places), keep, table)
                    if {"slots", "methods"} <= set(self._columns):
                        step = slot_step(node, table, self, step)
                if "top" in self._columns:
                    step = top_step(node, table, step, watch)
                    step = seen_step(node, table, step, watch)
                if "running" in self._columns:
                    step = latest_step(node, table, step, watch)
                    step = running_step(node, table, step, watch)
                return step
            # Columns of lists or dicts must be copied as they are emitted, which the rewritten method does not.
            may_inline = keep.tuples_last and "methods" in self._columns
            rewritten = inlined(function, node.inputs[0].schema.names, node.schema.names) if may_inline else None
            if rewritten is None:
                step = self._guard(_run_keyed_generator, emitting(function), places, table, keep)
                if watch is None:
                    step = self._arguments_step(function, node, step, _instances(table, places), keep, table)
                return step
            step = self._inlined_step(rewritten, _instances(table, places), timed)
            return slot_step(node, table, self, step, watch) if "slots" in self._columns else step
        if isinstance(logic, (Route, Punctuate)):
            return self._choosing_step(logic)
        if isinstance(logic, Port):
            return _port_step(logic.index)
        raise AssertionError(f"a channel cannot run a {node.kind}")

    def _flat_map_step(self, node: Node, watch: Stopwatch | None, step: Any) -> Any:
        """The step, or a faster one that does the same."""
        function = node.logic.function  # type: ignore[union-attr]
        if isinstance(function, OnlyTuples):
            return only_tuples_step
        if isinstance(function, GuardedFunction):
            return guarded_step(node, self.step(as_written(node), watch), step, watch)
        if isinstance(function, StaticEnrich) and "enrich" in self._columns and watch is None:
            return enrich_step(node, step)
        return step

    def _choosing_step(self, logic: Route | Punctuate) -> Any:
        """The same tuples, with what was chosen for each."""

        def choose(batch: Batch) -> tuple[Sequence[int], list[Any]]:
            if isinstance(logic, Route):
                return batch.positions, [route_of(logic, t) for t in batch.rows]
            return batch.positions, [True if logic.function(t) else False for t in batch.rows]  # noqa: SIM210

        def step(batch: Batch, node: Node) -> Batch:
            try:
                _, ways = choose(batch)
            except AnabranchError:
                raise
            except Exception as problem:
                raise operator_failed(node, _current_row(problem), problem, self._epoch) from problem
            chosen = batch.placed(batch.any_positions)
            chosen.ways = ways
            return chosen

        return step

    def _arguments_step(
        self, function: Any, node: Node, otherwise: Any, instances: _Instances | None, keep: Keeper, table: Any = None
    ) -> Any:
        """The step of a method, or without instances of a function, that reads single columns; or `otherwise`."""
        names = node.inputs[0].schema.names
        rewritten = with_column_arguments(function, names) if "methods" in self._columns else None
        if rewritten is None:
            return otherwise

        def step(batch: Batch, node: Node) -> Batch:
            first = None if instances is None else instances(batch)
            return self._called_with(batch, node, rewritten, first, keep)

        def over_slots(batch: Batch, node: Node, called: ColumnArguments, slots: Iterable[int]) -> Batch:
            return self._called_with(batch, node, called, slots, keep)

        if table is not None and "slots" in self._columns and slot_call(node) is not None:
            return SlotCalls(node, table, over_slots, step)
        return step

    def _called_with(
        self, batch: Batch, node: Node, rewritten: ColumnArguments, first: Iterable[Any] | None, keep: Keeper
    ) -> Batch:
        """What a function gives that is called for each tuple with something of its key, and the columns it reads."""
        positions: list[int] = []
        outputs: list[Any] = []
        called, lasts, taken = rewritten.function, keep.tuples_last, 0
        given: list[Iterable[Any]] = [] if first is None else [first]
        given += [batch.values(at) for at in rewritten.reads]
        calls = zip(*given, strict=True) if given else repeat((), len(batch))
        try:
            for position, arguments in zip(batch.positions, calls, strict=True):
                taken += 1
                result = called(*arguments)
                if result is not None:
                    for output in emitted(result):
                        outputs.append(output if lasts and isinstance(output, tuple) else keep(output))
                        positions.append(position)
        except AnabranchError:
            raise
        except Exception as problem:
            raise operator_failed(node, batch.rows[taken - 1], problem, self._epoch) from problem
        return self.checked(node, positions, outputs, batch)

    def _inlined_step(
        self,
        rewritten: Inlined,
        instances: _Instances | None,
        timed: Callable[[Callable[..., Any]], Callable[..., Any]],
    ) -> Any:
        def step(batch: Batch, node: Node) -> Batch:
            schema = node.schema
            positions: list[int] = []
            columns: list[Sequence[Any]] = [[] for _ in schema.names]
            given: list[Iterable[Any]] = [batch.positions]
            if instances is not None:
                given.append(instances(batch))
            given += [batch.values(place) for place in rewritten.reads]
            appends = [column.append for column in columns]  # type: ignore[attr-defined]
            process = timed(rewritten.make(*appends, positions.append, schema.unpack))
            try:
                # A loop in C that keeps nothing: each call appends what it emits.
                deque(map(process, *given), maxlen=0)
            except AnabranchError:
                raise
            except Exception as problem:
                self.fitting(node, columns, positions, batch)  # what does not fit came before what raises
                raise self.failed(node, batch, problem) from problem
            return of_values(schema, positions, self.fitting(node, columns, positions, batch))

        return step

    def fitting(
        self, node: Node, columns: Sequence[Sequence[Any]], positions: Sequence[int], batch: Batch
    ) -> list[Sequence[Any]]:
        """Output columns as exact values of the schema."""
        try:
            return node.schema.exact(columns)
        except MisfitError as problem:
            raise operator_failed(node, batch.row_at(positions[problem.at]), problem, self._epoch) from None

    def fitting_column(self, node: Node, place: int, column: Sequence[Any], batch: Batch) -> Sequence[Any]:
        """The same for one of them, which has a value for each tuple, as far as tuples were taken."""
        try:
            return node.schema.exact_column(place, column)
        except MisfitError as problem:
            raise operator_failed(node, batch.row_at(batch.positions[problem.at]), problem, self._epoch) from None

    def failed(self, node: Node, batch: Batch, problem: BaseException) -> AnabranchError:
        """The error for what rewritten user code raised."""
        return operator_failed(node, self._row_at(batch, problem), problem, self._epoch)

    def _row_at(self, batch: Batch, problem: BaseException) -> Any:
        """The tuple that was in hand when rewritten user code raised."""
        trace = problem.__traceback__
        while trace is not None:
            position = trace.tb_frame.f_locals.get("_anabranch_position")
            if position is not None:
                return batch.row_at(position)
            trace = trace.tb_next
        return "unknown"

    def _guard(self, run: Callable[..., tuple[Sequence[int], list[Any]]], *arguments: Any) -> Any:
        def step(batch: Batch, node: Node) -> Batch:
            try:
                positions, outputs = run(batch, *arguments)
            except AnabranchError:
                raise
            except Exception as problem:
                raise operator_failed(node, _current_row(problem), problem, self._epoch) from problem
            if isinstance(node.logic, Filter):
                return Batch(node.schema, positions, outputs)
            return self.checked(node, positions, outputs, batch)

        return step

    def checked(self, node: Node, positions: Sequence[int], outputs: list[Any], batch: Any) -> Batch:
        """The outputs as exact tuples of the operator's schema."""
        schema = node.schema
        place = 0
        try:
            kinds = set(map(type, outputs))
            if kinds == {tuple} and set(map(len, outputs)) == {len(schema.names)}:
                values: list[Sequence[Any]] = outputs
            elif kinds - {schema.row_class}:
                values = []
                for place, output in enumerate(outputs):  # noqa: B007 - `place` tells which output failed
                    values.append(schema.unpack(output))
            else:
                values = outputs
            columns = schema.exact_columns(values)
        except (ShapeError, MisfitError) as problem:
            at = problem.at if isinstance(problem, MisfitError) else place
            raise operator_failed(node, batch.row_at(positions[at]), problem, self._epoch) from None
        return of_values(schema, positions, columns)


def _adding_step(function: Any) -> Any:
    def step(batch: Batch, node: Node) -> Batch:
        arrays = batch.arrays()
        return batch.with_column(node.schema, function.added_column([arrays[place] for place in function.places]))

    return step


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _port_step(index: int) -> Any:
    def step(batch: Batch, node: Node) -> Batch:
        kept = [way == index for way in batch.ways]
        return Batch(node.schema, list(compress(batch.positions, kept)), list(compress(batch.rows, kept)))

    return step


def _current_row(problem: BaseException) -> Any:
    """The tuple that was in hand when user code raised: the variable `t` of our loop's frame."""
    trace = problem.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename == __file__ and "t" in frame.f_locals:
            return frame.f_locals["t"]
        trace = trace.tb_next
    return "unknown"


def _run_filter(batch: Batch, function: Callable[[Row], Any]) -> tuple[Sequence[int], list[Any]]:
    rows = batch.rows
    # Mostly it says True or False, and another call is spared.
    held = [found if (found := function(t)) is True or found is False else kept(found) for t in rows]
    return list(compress(batch.positions, held)), list(compress(rows, held))


def _run_map(batch: Batch, function: Callable[[Row], Any], keep: Keeper) -> tuple[Sequence[int], list[Any]]:
    lasts = keep.tuples_last
    return batch.positions, [
        output if isinstance(output := function(t), tuple) and lasts else keep(output) for t in batch.rows
    ]


def _run_flat_map(batch: Batch, function: Callable[[Row], Any], keep: Keeper) -> tuple[Sequence[int], list[Any]]:
    positions: list[int] = []
    outputs: list[Any] = []
    lasts = keep.tuples_last
    for position, t in zip(batch.positions, batch.rows, strict=True):
        for output in emitted(function(t)):
            outputs.append(output if lasts and isinstance(output, tuple) else keep(output))
            positions.append(position)
    return positions, outputs


def _instances(table: StateTable, places: tuple[int, ...]) -> _Instances:
    """What gives the instances of a batch's tuples, by their keys."""

    def instances(batch: Batch) -> Iterator[Any]:
        keys = keys_of(batch, places)
        live = table.load(set(keys))
        return map(live.__getitem__, keys)

    return instances


def keys_of(batch: Batch, places: tuple[int, ...]) -> list[Any]:
    if len(places) == 1:
        keys = batch.values(places[0])
        return [canonical(key) for key in keys] if float in set(map(type, keys)) else list(keys)
    if not places:
        return [()] * len(batch)
    chosen = [batch.values(place) for place in places]
    if any(float in set(map(type, column)) for column in chosen):
        chosen = [[canonical(key) for key in column] for column in chosen]
    return list(zip(*chosen, strict=True))


def _run_keyed_generator(
    batch: Batch, function: Callable[..., Any], places: tuple[int, ...], table: StateTable, keep: Keeper
) -> tuple[Sequence[int], list[Any]]:
    positions: list[int] = []
    outputs: list[Any] = []
    emit, place, lasts = outputs.append, positions.append, keep.tuples_last
    keys = keys_of(batch, places)
    live = table.load(set(keys))
    for position, key, t in zip(batch.positions, keys, batch.rows, strict=True):
        for output in function(live[key], t):
            emit(output if lasts and isinstance(output, tuple) else keep(output))
            place(position)
    return positions, outputs


def _run_keyed(
    batch: Batch,
    function: Callable[..., Any],
    first: Iterator[Callable[..., Any]],
    places: tuple[int, ...],
    table: StateTable,
    keep: Keeper,
) -> tuple[Sequence[int], list[Any]]:
    """`first` are what takes the first tuples instead, of all batches together."""
    positions: list[int] = []
    outputs: list[Any] = []
    lasts = keep.tuples_last
    keys = keys_of(batch, places)
    live = table.load(set(keys))
    functions = itertools.chain(first, repeat(function))
    for position, key, t, call in zip(batch.positions, keys, batch.rows, functions, strict=False):
        result = call(live[key], t)
        if result is not None:
            for output in emitted(result):
                outputs.append(output if lasts and isinstance(output, tuple) else keep(output))
                positions.append(position)
    return positions, outputs
