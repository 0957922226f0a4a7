"""Columns of tables that others made, as columns of a schema."""

from __future__ import annotations

import pyarrow as pa

from anabranch.program.misfits import ShapeError


def fitted_column(table: pa.Table | pa.RecordBatch, field: pa.Field) -> pa.Array | pa.ChunkedArray:
    """A table's column of this name with the type of the field; `ShapeError` if its values do not fit."""
    column = table.column(field.name)
    try:
        fitted = column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise ShapeError(f"the column {field.name!r} is {column.type}, not {field.type}: {problem}") from None
    if fitted.null_count and not field.nullable:
        raise ShapeError(f"the column {field.name!r} has nulls, and is declared not null")
    return fitted
