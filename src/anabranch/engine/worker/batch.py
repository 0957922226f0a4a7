"""Tuples with their positions, as rows or columns, whichever is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.engine.worker.late_columns import ColumnFacts, LateColumn
from anabranch.program.schema import Row, Schema, to_values

Positions = Sequence[int] | np.ndarray
"""Of tuples: whichever is at hand of a list, a range from 0 on, and an array."""


class Batch:
    """Tuples with their positions, as rows or columns, whichever was asked for last."""

    __slots__ = ("_array", "_columns", "_positions", "_rows", "schema", "ways")

    def __init__(
        self,
        schema: Schema,
        positions: Positions,
        rows: list[Row] | None = None,
        columns: Sequence[Sequence[Any]] | None = None,
    ) -> None:
        self.schema = schema
        is_array = isinstance(positions, np.ndarray)
        self._positions: Any = None if is_array else positions
        self._array: Any = positions if is_array else None
        self._rows = rows
        self._columns = columns
        self.ways: list[int] = []  # what a route or a punctuating operator chose for each tuple

    @property
    def positions(self) -> Sequence[int]:
        """As whole numbers of Python."""
        if self._positions is None:
            self._positions = self._array.tolist()
        return self._positions

    @property
    def position_array(self) -> np.ndarray:
        """As numbers of 64 bits."""
        if self._array is None:
            given = self._positions
            is_range = isinstance(given, range)
            self._array = np.arange(given.start, given.stop) if is_range else np.array(given, dtype=np.int64)
        return self._array

    @property
    def any_positions(self) -> Positions:
        """For tuples that have the same: whatever is at hand."""
        return self._array if self._positions is None else self._positions

    @property
    def are_numbered(self) -> bool:
        """Whether positions are 0, 1, 2, …"""
        return isinstance(self._positions, range)

    def placed(self, positions: Positions) -> Batch:
        """The same tuples with other positions."""
        other = Batch(self.schema, positions, self._rows, self._columns)
        other.ways = self.ways
        return other

    def apart(self) -> Batch:
        """The same tuples for another reader: what one does to their lists and structs, the other does not see."""
        if not self.schema.has_changeable:
            return self
        other = ColumnBatch(self.schema, self.any_positions, self.arrays())
        other.ways = self.ways
        return other

    def renumbered(self) -> Batch:
        """The same tuples, numbered from 0 on."""
        return self.placed(range(len(self)))

    def part(self, start: int, stop: int) -> Batch:
        """The tuples from start to stop, which keep their positions; those of a range begin with 0."""
        positions = self.any_positions[start:stop]
        rows = None if self._rows is None else self._rows[start:stop]
        columns = None if self._columns is None else [column[start:stop] for column in self._columns]
        other = Batch(self.schema, range(len(positions)) if isinstance(positions, range) else positions, rows, columns)
        other.ways = self.ways[start:stop]
        return other

    def picked(self, places: Sequence[int]) -> list[tuple[Any, ...]]:
        """Some of the tuples, without their class; the others are left as they are."""
        if self._rows is not None:
            return [tuple(tuple.__iter__(self._rows[place])) for place in places]
        return list(zip(*([column[place] for place in places] for column in self.columns), strict=True))

    def arrays(self) -> list[pa.Array]:
        """The columns as Arrow has them."""
        return self.schema.arrays(self.columns)

    def array(self, place: int) -> pa.Array:
        """A column as Arrow has it."""
        return pa.array(self.columns[place], self.schema.arrow.field(place).type)

    def kept(self, mask: Sequence[bool] | np.ndarray) -> Batch:
        """Some of the tuples, which keep their positions."""
        return Batch(self.schema, list(compress(self.positions, mask)), list(compress(self.rows, mask)))

    def with_column(self, schema: Schema, column: np.ndarray) -> Batch:
        """The same tuples with a column of numbers more."""
        return Batch(schema, self.any_positions, columns=[*self.columns, column.tolist()])

    def __len__(self) -> int:
        return len(self.any_positions)

    def row_at(self, position: int) -> Row:
        """The (first) tuple with a position."""
        return self.rows[list(self.positions).index(position)]

    @property
    def rows(self) -> list[Row]:
        if self._rows is None:
            assert self._columns is not None
            self._rows = list(map(self.schema.row_class, zip(*self._columns, strict=True)))
        return self._rows

    def values(self, place: int) -> Sequence[Any]:
        """A column as Python values."""
        return self.columns[place]

    @property
    def columns(self) -> Sequence[Sequence[Any]]:
        if self._columns is None:
            assert self._rows is not None
            self._columns = list(zip(*self._rows, strict=True)) if self._rows else [[] for _ in self.schema.names]
        return self._columns


class ColumnBatch(Batch):
    """Tuples by column, each as Arrow has it, as Python values, or both: what no operator looks at stays as it came.

    Columns may also be such that are read when they are asked for (`late_columns`).

    Values of lists, maps and structs can be changed in place by whoever is given them, so once they are Python values
    these are the column, and what Arrow had is forgotten.
    """

    __slots__ = ("_arrays", "_lists")

    def __init__(
        self,
        schema: Schema,
        positions: Positions,
        arrays: Sequence[pa.Array | LateColumn | None],
        lists: Sequence[Sequence[Any] | None] | None = None,
    ) -> None:
        super().__init__(schema, positions)
        self._arrays: list[pa.Array | LateColumn | None] = list(arrays)
        self._lists: list[Sequence[Any] | None] = [None] * len(self._arrays) if lists is None else list(lists)

    def untouched(self, place: int) -> pa.Array | None:
        """A column as Arrow has it, if nobody can have changed its values."""
        found, kind = self._read(place), self.schema.arrow.field(place).type
        if found is None and not pa.types.is_nested(kind):
            found = self._arrays[place] = pa.array(self._lists[place], kind)
        return found

    def field(self, place: int, path: tuple[str, ...], kind: pa.DataType | None = None) -> pa.Array | None:
        """A field of a column, as `field_of`, if nobody can have changed its values; nothing else of it is read."""
        found = self.passed_on(place, path, kind)
        return found.array() if isinstance(found, LateColumn) else found

    def passed_on(
        self, place: int, path: tuple[str, ...], kind: pa.DataType | None = None
    ) -> pa.Array | LateColumn | None:
        """The same, which may not be read yet."""
        found = self._arrays[place]
        if isinstance(found, LateColumn):
            if kind is not None and not found.has(path):  # nobody reads it
                return pa.nulls(len(self), kind)
            return found.field(path)
        array = self.untouched(place)
        return None if array is None else field_of(array, path, kind)

    def nulls(self, place: int, path: tuple[str, ...] = ()) -> pa.Array | None:
        """Where a column, or a field of it, is null, if nobody can have changed its values."""
        found = self.passed_on(place, path)
        return None if found is None else found.is_null()

    def facts(self, place: int, path: tuple[str, ...]) -> ColumnFacts:
        """What is known of a column, or a field of it, without reading it."""
        found = self._arrays[place]
        return found.field(path).facts if isinstance(found, LateColumn) else ColumnFacts()

    def _read(self, place: int) -> pa.Array | None:
        """A column as Arrow has it, if it does."""
        found = self._arrays[place]
        if isinstance(found, LateColumn):
            found = self._arrays[place] = found.array()
        return found

    def values(self, place: int) -> Sequence[Any]:
        found = self._lists[place]
        if found is None:
            array = self._read(place)
            assert array is not None
            found = self._lists[place] = to_values(array)
            if pa.types.is_nested(array.type):
                self._arrays[place] = None
        return found

    @property
    def columns(self) -> Sequence[Sequence[Any]]:
        return [self.values(place) for place in range(len(self._lists))]

    @property
    def rows(self) -> list[Row]:
        if self._rows is None:
            self._rows = list(map(self.schema.row_class, zip(*self.columns, strict=True)))
        return self._rows

    def picked(self, places: Sequence[int]) -> list[tuple[Any, ...]]:
        chosen = pa.array(places, pa.int64())
        columns = []
        for at, values in enumerate(self._lists):
            if values is not None:
                columns.append([values[place] for place in places])
            else:
                array = self._read(at)
                assert array is not None
                columns.append(to_values(array.take(chosen)))
        return list(zip(*columns, strict=True))

    def arrays(self) -> list[pa.Array]:
        return [self.array(place) for place in range(len(self._arrays))]

    def array(self, place: int) -> pa.Array:
        found = self._read(place)
        return found if found is not None else pa.array(self._lists[place], self.schema.arrow.field(place).type)

    def kept(self, mask: Sequence[bool] | np.ndarray) -> Batch:
        places = np.flatnonzero(mask)
        positions = places if self._positions == range(len(self)) else self.position_array[places]
        chosen = pa.array(mask, pa.bool_())
        arrays = [
            array.taken(places) if isinstance(array, LateColumn) else None if array is None else array.filter(chosen)
            for array in self._arrays
        ]
        lists = [None if values is None else list(compress(values, mask)) for values in self._lists]
        return ColumnBatch(self.schema, positions, arrays, lists)

    def apart(self) -> Batch:
        lists: list[Sequence[Any] | None] = [
            None if pa.types.is_nested(field.type) else values
            for field, values in zip(self.schema.arrow, self._lists, strict=True)
        ]
        arrays = [
            self.array(place) if values is None and self._arrays[place] is None else self._arrays[place]
            for place, values in enumerate(lists)
        ]
        other = ColumnBatch(self.schema, self.any_positions, arrays, lists)
        other.ways = self.ways
        return other if self.schema.has_changeable else self

    def with_column(self, schema: Schema, column: np.ndarray) -> Batch:
        return ColumnBatch(schema, self.any_positions, [*self._arrays, pa.array(column)], [*self._lists, None])

    def placed(self, positions: Positions) -> Batch:
        other = ColumnBatch(self.schema, positions, self._arrays, self._lists)
        other._rows, other.ways = self._rows, self.ways
        return other

    def part(self, start: int, stop: int) -> Batch:
        positions = self.any_positions[start:stop]
        arrays = [None if array is None else array.slice(start, stop - start) for array in self._arrays]
        lists = [None if values is None else values[start:stop] for values in self._lists]
        placed = range(len(positions)) if isinstance(positions, range) else positions
        other = ColumnBatch(self.schema, placed, arrays, lists)
        other._rows = None if self._rows is None else self._rows[start:stop]
        other.ways = self.ways[start:stop]
        return other


def of_values(schema: Schema, positions: Positions, columns: Sequence[Sequence[Any]]) -> ColumnBatch:
    """Tuples of which the columns are Python values: exact ones."""
    return ColumnBatch(schema, positions, [None] * len(columns), columns)


def column_batch(
    schema: Schema, positions: Sequence[int], records: list[pa.RecordBatch], order: np.ndarray | None = None
) -> Batch:
    """Tuples that came as Arrow, as operators take them. Columns that nobody reads did not come: they are null."""
    if not records:
        return Batch(schema, [], [])
    table = pa.Table.from_batches(records)
    if order is not None:
        table = table.combine_chunks().take(pa.array(order))
    return ColumnBatch(schema, positions, _all_columns(schema, table))


def sorted_batch(parts: list[tuple[np.ndarray, list[pa.RecordBatch], Schema]]) -> Batch:
    """The tuples of an input, which may come by several edges, by position."""
    schema = parts[0][2]
    positions = np.concatenate([each for each, _, _ in parts])
    tables = [pa.Table.from_batches(records) for _, records, _ in parts if records]
    if not tables:
        return Batch(schema, [], [])
    came = [name for name in schema.names if all(name in table.column_names for table in tables)]
    table = pa.concat_tables([each.select(came) for each in tables])
    if len(positions) > 1 and not (positions[1:] > positions[:-1]).all():
        order = np.argsort(positions, kind="stable")
        table, positions = table.take(pa.array(order)), positions[order]
    return ColumnBatch(schema, positions, _all_columns(schema, table))


def _all_columns(schema: Schema, table: pa.Table) -> list[pa.Array]:
    came = set(table.column_names)
    return [
        _whole(table.column(field.name)) if field.name in came else pa.nulls(len(table), field.type)
        for field in schema.arrow
    ]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def field_of(array: pa.Array, path: Sequence[str], kind: pa.DataType | None = None) -> pa.Array:
    """The column of a field within structs; null where one of these is, or if nobody reads it, so that it was not read.

    `kind` is its type, for where that may be.
    """
    found = array.type
    for name in path:
        if kind is not None and found.get_field_index(name) < 0:
            return pa.nulls(len(array), kind)
        found = found.field(name).type
    return pc.struct_field(array, list(path)) if path else array
