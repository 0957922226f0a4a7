"""A table of updates made one of rows: of each key the last, without those that were deleted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.operators.changes import BEFORE, DELETE
from anabranch.program.calling import canonical
from anabranch.program.hashing import is_hashable
from anabranch.program.schema import Schema, to_values


def latest_rows(table: pa.Table, key: Sequence[str], change: str | None, keeps_deleted: bool = False) -> pa.Table:
    """The last tuple of each key, in the order in which the first of them came.

    `change` is the column that says what a tuple does, if there is one. Rows that were deleted are gone, and a row that
    comes again is behind the others; or, with `keeps_deleted`, the tuple that says so stands for them.
    """
    columns = [to_values(table.column(name)) for name in key]
    keys = [tuple(map(canonical, each)) for each in zip(*columns, strict=True)]
    does: list[Any] = [None] * len(keys) if change is None else table.column(change).to_pylist()
    places: dict[Any, int] = {}
    for place, (each, what) in enumerate(zip(keys, does, strict=True)):
        if what == DELETE and not keeps_deleted:
            places.pop(each, None)
        elif what != BEFORE:
            places[each] = place
    return table.take(pa.array(list(places.values()), pa.int64()))


def change_column(schema: Schema, name: str) -> str | None:
    """The column that says what a tuple does; None if the stream has none."""
    return name if name in schema and schema.type_of(name) == pa.string() else None


@dataclasses.dataclass(frozen=True)
class Latest:
    """By which key only the last tuples of an output are wanted."""

    key: tuple[str, ...]
    change: str | None

    @classmethod
    def of(cls, schema: Schema, names: str, change: str) -> Latest:
        """From the names of columns with commas between; SchemaError if they cannot be a key."""
        key = tuple(name.strip() for name in names.split(","))
        for name in key:
            if name not in schema or not is_hashable(schema.type_of(name)):
                raise SchemaError(f"{name!r} is not a column that can be a key; columns: {schema}")
        return cls(key, change_column(schema, change))

    def rows(self, table: pa.Table, keeps_deleted: bool = False) -> pa.Table:
        """The last tuple of each key."""
        return latest_rows(table, self.key, self.change, keeps_deleted)
