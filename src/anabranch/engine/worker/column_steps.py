"""What functions that read single columns do with a batch: see `compiler/rewriting/over_columns`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.compiler.rewriting.over_columns import ColumnCode, Read, StoppedError, over_columns
from anabranch.engine.worker.batch import Batch, ColumnBatch, field_of
from anabranch.errors import AnabranchError
from anabranch.program.calling import operator_failed
from anabranch.program.graph import Filter, Map, Node
from anabranch.program.schema import MisfitError, to_values

Step = Callable[[Batch, Node], Batch]


def column_step(node: Node, epoch: int, otherwise: Step) -> Step:
    """The step of a map or a filter; `otherwise` is what calls it as it is."""
    assert isinstance(node.logic, (Map, Filter))
    function = node.logic.function
    outputs = node.schema if isinstance(node.logic, Map) else None
    plain = over_columns(function, node.inputs[0].schema, outputs, with_fields=False)
    if plain is None:
        return otherwise
    fields = over_columns(function, node.inputs[0].schema, outputs)
    return _ColumnStep(function, plain, fields, epoch, otherwise)


class _ColumnStep:
    """A rewritten map or filter.

    Parameters
    ----------
    function : function
        What the user wrote.
    plain, fields : ColumnCode
        What it became: without fields of structs as columns of their own, and with them.
    """

    def __init__(
        self, function: Any, plain: ColumnCode, fields: ColumnCode | None, epoch: int, otherwise: Step
    ) -> None:
        self._plain = (plain, plain.bound(function))
        self._fields = None if fields is None or not fields.structs else (fields, fields.bound(function))
        self._epoch = epoch
        self._otherwise = otherwise

    def __call__(self, batch: Batch, node: Node) -> Batch:
        if not isinstance(batch, ColumnBatch):
            return self._otherwise(batch, node)
        code, function = self._plain
        if self._fields is not None and all(_is_whole(batch, read) for read in self._fields[0].structs):
            code, function = self._fields
        copied: dict[int, pa.Array] = {}
        for at, read in code.copied.items():
            array = batch.untouched(read.column)
            if array is None:
                return self._otherwise(batch, node)
            copied[at] = field_of(array, read.path)
            if copied[at].null_count and not node.schema.arrow.field(at).nullable:
                return self._otherwise(batch, node)  # which tells for what tuple
        made = [] if function is None else self._called(function, code, batch, node)
        if isinstance(node.logic, Filter):
            return batch.kept(made)
        columns = self._columns(code, made, batch, node)
        places = range(len(node.schema.names))
        return ColumnBatch(
            node.schema, batch.positions, [copied.get(at) for at in places], [columns.get(at) for at in places]
        )

    def _called(self, function: Callable[..., Any], code: ColumnCode, batch: ColumnBatch, node: Node) -> list[Any]:
        made: list[Any] = []
        count = len(batch)
        columns = [_read(batch, read) for read in code.reads]
        try:
            if columns:
                made.extend(map(function, *columns))  # a loop in C
            else:
                made.extend(function() for _ in range(count))
        except AnabranchError:
            raise
        except Exception as problem:
            raised = problem.__cause__ if isinstance(problem, StoppedError) else problem
            assert raised is not None
            raise operator_failed(node, batch.rows[len(made)], raised, self._epoch) from raised
        return made

    def _columns(self, code: ColumnCode, made: list[Any], batch: ColumnBatch, node: Node) -> dict[int, Sequence[Any]]:
        """The columns that were made, as exact values."""
        columns: list[Sequence[Any]] = [[] for _ in code.computed]
        if made:
            columns = [made] if len(code.computed) == 1 else list(zip(*made, strict=True))
        try:
            pairs = zip(code.computed, columns, strict=True)
            return {at: node.schema.exact_column(at, column) for at, column in pairs}
        except MisfitError as problem:
            raise operator_failed(node, batch.rows[problem.at], problem, self._epoch) from None


def _is_whole(batch: ColumnBatch, read: Read) -> bool:
    """Whether no struct of a column, or of a field within it, is null."""
    array = batch.untouched(read.column)
    return array is not None and field_of(array, read.path).null_count == 0


def _read(batch: ColumnBatch, read: Read) -> Sequence[Any]:
    """What a function reads, as Python values."""
    if read.is_null:
        array = batch.untouched(read.column)
        if array is not None:
            return to_values(array.is_null())
        return [value is None for value in batch.values(read.column)]
    if not read.path:
        return batch.values(read.column)
    array = batch.untouched(read.column)
    assert array is not None
    return to_values(field_of(array, read.path))
