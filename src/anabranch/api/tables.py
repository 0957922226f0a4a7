"""Tables where rows may be given: of pyarrow, pandas, Spark, and whatever else hands out Arrow data."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.program.misfits import ShapeError
from anabranch.program.schema import Row, Schema
from anabranch.program.table_columns import fitted_column


def is_table(given: Any) -> bool:
    """Whether it has columns with types of its own."""
    return hasattr(given, "__arrow_c_stream__") or hasattr(given, "toArrow") or _is_pandas(given)


def rows_of(given: Any, schema: Any) -> tuple[list[Row], Schema]:
    """The rows of a table; its columns, unless a schema says which of them and what types."""
    table = _arrow(given)
    if schema is None:
        wanted = Schema.of(pa.schema([_canonical(field) for field in table.schema]))
    else:
        wanted = Schema.of(schema)
    missing = [name for name in wanted.names if name not in table.column_names]
    if missing:
        raise SchemaError(f"the table has no columns {', '.join(missing)}; it has {', '.join(table.column_names)}")
    try:
        columns = [fitted_column(table, field) for field in wanted.arrow]
    except ShapeError as problem:
        raise SchemaError(str(problem)) from None
    return wanted.rows(columns), wanted


def _arrow(given: Any) -> pa.Table:
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.Table):
        return given
    if _is_pandas(given):
        return pa.Table.from_pandas(given, preserve_index=False)
    if hasattr(given, "toArrow"):
        if given.isStreaming:
            raise ProgramError("this DataFrame is a stream, which is read as one: session.read(dataframe)")
        return given.toArrow()
    return pa.table(given)


def _is_pandas(given: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(given, pandas.DataFrame)


def _canonical(field: pa.Field) -> pa.Field:
    """A column with the type by which we know such values; others are as they are, and told if there is none."""
    return pa.field(field.name, _known(field.type), field.nullable)


def _known(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _known(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", _known(kind.value_type), kind.value_field.nullable))
    if pa.types.is_struct(kind):
        return pa.struct([_canonical(each) for each in kind])
    return kind
