"""What functions that read single columns do with a batch: see `compiler/rewriting/over_columns`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.compiler.rewriting.conditions import condition_of
from anabranch.compiler.rewriting.over_columns import ColumnCode, Read, StoppedError, over_columns
from anabranch.engine.worker.batch import Batch, ColumnBatch
from anabranch.engine.worker.condition_columns import held
from anabranch.engine.worker.equal_values import EqualValues, equal_values
from anabranch.engine.worker.late_columns import LateColumn
from anabranch.errors import AnabranchError
from anabranch.operators.chosen_columns import Select
from anabranch.operators.key_columns import Field, KeyColumns, WithoutColumns
from anabranch.program.calling import operator_failed
from anabranch.program.graph import Filter, Map, Node
from anabranch.program.misfits import MisfitError
from anabranch.program.schema import Schema, to_values

Step = Callable[[Batch, Node], Batch]


@dataclasses.dataclass(frozen=True)
class _Part:
    """A function that makes some columns of the output; of a filter, none."""

    code: ColumnCode
    function: Callable[..., Any] | None
    columns: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class ColumnPlan:
    """An operator as functions of columns.

    Attributes
    ----------
    parts : tuple
        The functions.
    copied : dict
        Column of the output → what it is a copy of.
    structs : frozenset of Read
        What must not be null for the plan to hold.
    """

    parts: tuple[_Part, ...]
    copied: dict[int, Read]
    structs: frozenset[Read]

    @property
    def called_with(self) -> frozenset[Read]:
        """What functions are called with; whether structs are null is asked of these, too."""
        return frozenset(read for part in self.parts for read in part.code.reads)

    @property
    def reads(self) -> frozenset[Read]:
        """What of its input is used at all."""
        return self.called_with | frozenset(self.copied.values())


def column_plan(node: Node, with_fields: bool = True) -> ColumnPlan | None:
    """A map or filter as functions of columns; None if its function must be called as it is."""
    if not isinstance(node.logic, (Map, Filter)):
        return None
    function, inputs = node.logic.function, node.inputs[0].schema
    chosen = _chosen(function, inputs) if isinstance(node.logic, Map) else None
    if chosen is not None:
        return _selection(chosen, inputs, node.schema, with_fields)
    code = over_columns(function, inputs, node.schema if isinstance(node.logic, Map) else None, with_fields)
    if code is None:
        return None
    parts = () if code.code is None else (_Part(code, code.bound(function), code.computed),)
    return ColumnPlan(parts, code.copied, code.structs)


def _chosen(function: Any, inputs: Schema) -> Sequence[Any] | None:
    """What an operator of the library that chooses columns makes each of: its place, or a function of the tuple."""
    if isinstance(function, Select):
        return function.chosen
    if isinstance(function, WithoutColumns):
        return function.places
    if isinstance(function, KeyColumns) and all(columns == 1 for _, columns in function.parts):
        return [*range(len(inputs.names)), *(part for part, _ in function.parts)]
    return None


def _selection(given: Sequence[Any], inputs: Schema, outputs: Schema, with_fields: bool) -> ColumnPlan | None:
    parts: list[_Part] = []
    copied: dict[int, Read] = {}
    structs: set[Read] = set()
    for at, chosen in enumerate(given):
        if isinstance(chosen, int):
            copied[at] = Read(chosen)
            continue
        if isinstance(chosen, Field):  # null where a struct on the way is
            copied[at] = Read(chosen.place, chosen.path)
            continue
        only = Schema(pa.schema([outputs.arrow.field(at)]))
        code = over_columns(chosen, inputs, only, with_fields, is_value=True)
        if code is None:
            return None
        structs |= code.structs
        if code.copied:
            copied[at] = code.copied[0]
        else:
            parts.append(_Part(code, code.bound(chosen), (at,)))
    # A value that can be changed, and is given whole to a function, must be nowhere else.
    whole = {read.column for part in parts for read in part.code.reads if not read.path and not read.is_null}
    for read in copied.values():
        if read.column in whole and pa.types.is_nested(inputs.arrow.field(read.column).type):
            return None
    return ColumnPlan(tuple(parts), copied, frozenset(structs))


def column_step(node: Node, epoch: int, otherwise: Step, columns: Collection[str]) -> Step:
    """The step of a map or a filter; `otherwise` is what calls it as it is, `columns` what is done over columns."""
    fields, plain = column_plan(node), column_plan(node, with_fields=False)
    step = otherwise
    if fields is not None or plain is not None:
        step = _ColumnStep([plan for plan in (fields, plain) if plan is not None], epoch, otherwise, "calls" in columns)
    if "filters" in columns and isinstance(node.logic, Filter):
        return _asked(node.logic.function, node.inputs[0].schema, step)
    return step


def _asked(function: Any, schema: Schema, otherwise: Step) -> Step:
    """The step of a filter whose function is a condition of columns, as what is around it is now."""
    if isinstance(condition_of(function, schema), str):
        return otherwise

    def step(batch: Batch, node: Node) -> Batch:
        condition = condition_of(function, schema)
        if isinstance(batch, ColumnBatch) and not isinstance(condition, str):
            mask = held(condition, batch)
            if mask is not None:
                return batch.kept(mask)
        return otherwise(batch, node)

    return step


class _ColumnStep:
    """A rewritten map or filter: of several plans, the first that holds for a batch."""

    def __init__(self, plans: Sequence[ColumnPlan], epoch: int, otherwise: Step, once: bool) -> None:
        self._plans = plans
        self._epoch = epoch
        self._otherwise = otherwise
        self._once = once  # whether functions are called once for equal values

    def __call__(self, batch: Batch, node: Node) -> Batch:
        plan = self._plan(batch)
        if plan is None:
            return self._otherwise(batch, node)
        assert isinstance(batch, ColumnBatch)
        copied: dict[int, pa.Array | LateColumn] = {}
        for at, read in plan.copied.items():
            array = batch.passed_on(read.column, read.path, node.schema.arrow.field(at).type)
            if array is None:
                return self._otherwise(batch, node)
            copied[at] = array
            if not node.schema.arrow.field(at).nullable and array.is_null().true_count:
                return self._otherwise(batch, node)  # which tells for what tuple
        if isinstance(node.logic, Filter):
            (part,) = plan.parts
            equal = self._equal(part, batch)
            held = self._called(part, batch, node, equal)
            return batch.kept(held if equal is None else np.array(held, dtype=bool)[equal.codes])
        columns: dict[int, Sequence[Any]] = {}
        for part in plan.parts:
            equal = self._equal(part, batch)
            made = self._columns(part, self._called(part, batch, node, equal), batch, node, equal)
            if equal is None:
                columns |= made
            else:
                types = node.schema.arrow.types
                copied |= {at: equal.spread(pa.array(column, types[at])) for at, column in made.items()}
        places = range(len(node.schema.names))
        return ColumnBatch(
            node.schema, batch.any_positions, [copied.get(at) for at in places], [columns.get(at) for at in places]
        )

    def _plan(self, batch: Batch) -> ColumnPlan | None:
        if isinstance(batch, ColumnBatch):
            for plan in self._plans:
                if all(_is_whole(batch, read) for read in plan.structs):
                    return plan
        return None

    def _equal(self, part: _Part, batch: ColumnBatch) -> EqualValues | None:
        return equal_values(part.code, part.function, batch) if self._once and part.function is not None else None

    def _called(self, part: _Part, batch: ColumnBatch, node: Node, equal: EqualValues | None) -> list[Any]:
        made: list[Any] = []
        columns = [_read(batch, read) for read in part.code.reads] if equal is None else equal.columns
        assert part.function is not None
        try:
            if columns:
                made.extend(map(part.function, *columns))  # a loop in C
            else:
                made.extend(part.function() for _ in range(len(batch)))
        except AnabranchError:
            raise
        except Exception as problem:
            raised = problem.__cause__ if isinstance(problem, StoppedError) else problem
            assert raised is not None
            place = len(made) if equal is None else equal.firsts[len(made)]
            raise operator_failed(node, batch.rows[place], raised, self._epoch) from raised
        return made

    def _columns(
        self, part: _Part, made: list[Any], batch: ColumnBatch, node: Node, equal: EqualValues | None
    ) -> dict[int, Sequence[Any]]:
        """The columns that were made, as exact values."""
        columns: list[Sequence[Any]] = [[] for _ in part.columns]
        if made:
            columns = [made] if len(part.columns) == 1 else list(zip(*made, strict=True))
        try:
            pairs = zip(part.columns, columns, strict=True)
            return {at: node.schema.exact_column(at, column) for at, column in pairs}
        except MisfitError as problem:
            place = problem.at if equal is None else equal.firsts[problem.at]
            raise operator_failed(node, batch.rows[place], problem, self._epoch) from None


def _is_whole(batch: ColumnBatch, read: Read) -> bool:
    """Whether no struct of a column, or of a field within it, is null."""
    nulls = batch.nulls(read.column, read.path)
    return nulls is not None and not nulls.true_count


def _read(batch: ColumnBatch, read: Read) -> Sequence[Any]:
    """What a function reads, as Python values."""
    if read.is_null:
        nulls = batch.nulls(read.column)
        return [value is None for value in batch.values(read.column)] if nulls is None else to_values(nulls)
    if not read.path:
        return batch.values(read.column)
    array = batch.field(read.column, read.path)
    assert array is not None
    return to_values(array)
