"""What Spark hands over of the rows it reads: only the columns, and fields of structs, that somebody reads.

    an epoch's rows, every column ─► c0, c3, and of the struct c4 two fields ─► mapInArrow

Rows that Spark read cross from the JVM to Python column by column, and of nested events most of what crosses is read
by nobody. It is left out behind Spark's reader, which reads what it read before: which rows there are, what becomes of
an unreadable one, and which error it is, do not depend on what a program reads. The rows that `foreachBatch` hands over
are read already, whatever the source: so this holds for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - every PySpark user knows it by this name

from anabranch.engine.worker.needed_columns import Needed, everything
from anabranch.program.schema import Schema


def can_be_handed(needed: Needed, schema: Schema) -> Needed:
    """What is needed of a source; all of it where Spark, which finds fields by name in any case, would confuse two."""
    return everything(schema) if any(map(_has_twins, schema.arrow.types)) else needed


def narrowed(rows: DataFrame, needed: Sequence[Needed], schemas: Sequence[Schema]) -> DataFrame:
    """The rows of `OrderedSources` with what is needed of each source, and what their order comes from."""
    if len(needed) == 1:
        return rows.select(*_chosen(needed[0], schemas[0], rows.columns, F.col))
    parts = [F.col("source")]
    for number, (each, schema) in enumerate(zip(needed, schemas, strict=True)):
        struct = F.col(f"s{number}")
        fields: Any = rows.schema[f"s{number}"].dataType
        inner = F.struct(*_chosen(each, schema, fields.names, struct.getField))
        parts.append(F.when(F.col("source") == number, inner).alias(f"s{number}"))
    return rows.select(*parts)


def _chosen(needed: Needed, schema: Schema, names: Sequence[str], column: Callable[[str], Column]) -> list[Column]:
    """The columns that are read, in order, then those that the order comes from."""
    data = [
        _only(column(f"c{at}"), schema.arrow.field(at).type, field.type).alias(f"c{at}")
        for at, field in enumerate(needed.schema)
        if field.name in needed.read
    ]
    return [*data, *(column(name).alias(name) for name in names[len(schema.names) :])]


def _only(column: Column, kind: pa.DataType, wanted: pa.DataType) -> Column:
    """Of a struct the fields that are wanted; null stays null."""
    if kind == wanted:
        return column
    fields = [
        _only(column.getField(each.name), kind.field(each.name).type, each.type).alias(each.name) for each in wanted
    ]
    return F.when(column.isNotNull(), F.struct(*fields))


def _has_twins(kind: pa.DataType) -> bool:
    """Whether fields of a struct have names that differ in case only."""
    if not pa.types.is_struct(kind):
        return False
    fields = [kind.field(at) for at in range(kind.num_fields)]
    return len({each.name.lower() for each in fields}) < len(fields) or any(_has_twins(each.type) for each in fields)
