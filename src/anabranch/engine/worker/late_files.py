"""Rows of Parquet files of which some columns are read first, and the others when somebody asks for them.

    row groups ─┬─ columns that conditions are asked of ──► for which tuples they hold
                └─ the others: read from where they are asked for, and not at all where nobody asks

Between both stand what the file says of its row groups: how many values are null, the least and the most. Columns are
read forward, in two passes over the same row groups. So what is passed over in the middle of a row group is still
decoded, if something behind it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from anabranch.engine.worker.late_columns import ColumnFacts, LateColumn, Path
from anabranch.engine.worker.needed_columns import Needed
from anabranch.errors import InputError

# Whose statistics are known to be bounds of all values. Of older ones by the first some are not (PARQUET-251, -1246).
_TRUSTED = re.compile(r"parquet-mr version 1\.[1-9]\d|parquet-cpp-arrow version|parquet-rs version")
_TO_MICROSECONDS = {"us": 1, "ms": 1000}


def late_rows(
    opened: pq.ParquetFile, path: str, groups: Sequence[int], wanted: Needed, rows_at_once: int
) -> Iterator[list[pa.Array | LateColumn]]:
    """The columns of rows of a file, batch by batch; what is not stored is null."""
    file = _File(opened, path, wanted)
    for run in _runs(opened.metadata, groups, rows_at_once):
        total = sum(opened.metadata.row_group(group).num_rows for group in run)
        passes = _Passes(file, run, rows_at_once)
        for start in range(0, total, rows_at_once):
            rows = _Rows(passes, start, min(rows_at_once, total - start))
            yield [
                LateColumn(rows, at, field.type) if field.name in file.stored else pa.nulls(rows.count, field.type)
                for at, field in enumerate(wanted.schema)
            ]


def _runs(found: pq.FileMetaData, groups: Sequence[int], rows_at_once: int) -> list[list[int]]:
    """Row groups that are read together: small ones, since batches are to be large."""
    runs: list[list[int]] = []
    size = 0
    for group in groups:
        rows = found.row_group(group).num_rows
        if not runs or size + rows > rows_at_once:
            runs.append([])
            size = 0
        runs[-1].append(group)
        size += rows
    return runs


class _File:
    """A file; opened once more, if something of it is asked for when all of it has been given."""

    def __init__(self, opened: pq.ParquetFile, path: str, wanted: Needed) -> None:
        self._path = path
        self._file = opened
        self.schema: pa.Schema = wanted.schema
        self.stored: frozenset[str] = wanted.read & set(self.opened().schema_arrow.names)
        self.first = self._stored(wanted.tested)
        self.others = self._stored(wanted.late)
        schema = self.opened().schema
        self._leaves = {schema.column(at).path: at for at in range(len(self.opened().schema.names))}

    def _stored(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name.split(".")[0] in self.stored)

    def opened(self) -> pq.ParquetFile:
        """The file, to be read from."""
        if self._file.closed:
            self._file = pq.ParquetFile(self._path)
        return self._file

    def batches(self, groups: Sequence[int], names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        """Some columns of row groups."""
        try:
            yield from self.opened().iter_batches(rows, groups, names, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise self.error(error) from None

    def error(self, problem: object) -> InputError:
        """It cannot be read."""
        return InputError(f"the file {self._path} cannot be read: {problem}")

    def facts(self, groups: Sequence[int], name: str, kind: pa.DataType) -> ColumnFacts:
        """What is known of a field without lists in it."""
        file = self.opened()
        at = self._leaves.get(name)
        if (
            at is None
            or file.schema.column(at).max_repetition_level
            or not _TRUSTED.match(file.metadata.created_by or "")
        ):
            return ColumnFacts()
        unit = _unit(file.schema_arrow, name, kind)
        each = [_facts_of(file.metadata.row_group(group).column(at), unit) for group in groups]
        found = each[0]
        for other in each[1:]:
            found = found.joined(other)
        return found


def _unit(schema: pa.Schema, name: str, kind: pa.DataType) -> int | None:
    """What a bound that is stored is to be multiplied with; None: it is not used. Texts are bytes."""
    if pa.types.is_string(kind):
        return 0
    if pa.types.is_timestamp(kind):
        first, *others = name.split(".")
        stored = schema.field(first).type
        for inner in others:
            stored = stored.field(inner).type
        return _TO_MICROSECONDS.get(stored.unit) if pa.types.is_timestamp(stored) else None
    is_number = pa.types.is_signed_integer(kind) or pa.types.is_floating(kind) or pa.types.is_date32(kind)
    return 1 if is_number else None


def _facts_of(chunk: pq.ColumnChunkMetaData, unit: int | None) -> ColumnFacts:
    found = chunk.statistics
    if found is None:
        return ColumnFacts()
    may_be_null = may_be_there = True
    if found.has_null_count:
        may_be_null, may_be_there = found.null_count > 0, found.null_count < chunk.num_values
    if unit is None or not found.has_min_max or not may_be_there:
        return ColumnFacts(may_be_null, may_be_there)
    least, most = found.min_raw, found.max_raw
    if unit and isinstance(least, (int, float)):
        least, most = least * unit, most * unit
    elif unit or not isinstance(least, bytes):
        return ColumnFacts(may_be_null, may_be_there)
    # A NaN is no bound: it compares with nothing.
    return (
        ColumnFacts(may_be_null, may_be_there, least, most) if least <= most else ColumnFacts(may_be_null, may_be_there)
    )


class _Passes:
    """Two passes over the same row groups: of the columns that conditions are asked of, and of the others."""

    def __init__(self, file: _File, groups: Sequence[int], rows_at_once: int) -> None:
        self.file = file
        self._groups = groups
        self._passes = {names: _Pass(file, groups, names, rows_at_once) for names in (file.first, file.others)}
        self._facts: dict[tuple[int, Path], ColumnFacts] = {}

    def rows(self, names: tuple[str, ...], start: int, count: int) -> dict[str, pa.Array]:
        """Some columns of some rows."""
        return self._passes[names].rows(start, count)

    def facts(self, column: int, path: Path) -> ColumnFacts:
        """What is known of a column, or of a field."""
        key = column, path
        if key not in self._facts:
            self._facts[key] = self._found(column, path)
        return self._facts[key]

    def _found(self, column: int, path: Path) -> ColumnFacts:
        kind = self.file.schema.field(column).type
        for name in path:
            kind = kind.field(name).type
        name = ".".join([self.file.schema.field(column).name, *path])
        if not pa.types.is_struct(kind):
            return self.file.facts(self._groups, name, kind)
        # Where a field of it is never null, it is not either; where all are null, it may be there all the same.
        inner = (self.facts(column, (*path, field.name)) for field in kind)
        return ColumnFacts(may_be_null=all(each.may_be_null for each in inner))


class _Pass:
    """Reads some columns of row groups forward."""

    def __init__(self, file: _File, groups: Sequence[int], names: tuple[str, ...], rows_at_once: int) -> None:
        self._file = file
        self._groups = groups
        self._names = names
        self._rows_at_once = rows_at_once
        self._begin()

    def _begin(self) -> None:
        self._batches = self._file.batches(self._groups, self._names, self._rows_at_once)
        self._held: list[tuple[int, pa.RecordBatch]] = []  # what was read and not passed yet, and its first row
        self._read = 0

    def rows(self, start: int, count: int) -> dict[str, pa.Array]:
        """The columns of some rows."""
        if start < (self._held[0][0] if self._held else self._read):
            self._begin()
        while self._read < start + count:
            batch = next(self._batches, None)
            if batch is None:
                raise self._file.error("it has fewer rows than it says")
            self._held.append((self._read, batch))
            self._read += len(batch)
        self._held = [(first, batch) for first, batch in self._held if first + len(batch) > start]
        parts = [
            batch.slice(max(0, start - first), min(start + count, first + len(batch)) - max(start, first))
            for first, batch in self._held
            if first < start + count
        ]
        if len(parts) == 1:
            return dict(zip(parts[0].schema.names, parts[0].columns, strict=True))
        table = pa.Table.from_batches(parts).unify_dictionaries()
        return {name: table.column(name).combine_chunks() for name in table.column_names}


class _Rows:
    """A batch's rows: see `LateRows`."""

    def __init__(self, passes: _Passes, start: int, count: int) -> None:
        self._passes = passes
        self._start = start
        self.count = count
        self._read: dict[tuple[str, ...], dict[str, pa.Array]] = {}

    def facts(self, column: int, path: Path) -> ColumnFacts:
        return self._passes.facts(column, path)

    def array(self, column: int, path: Path) -> pa.Array:
        field = self._passes.file.schema.field(column)
        kind = field.type
        for name in path:
            kind = kind.field(name).type
        return self._whole(".".join([field.name, *path]), kind)

    def is_null(self, column: int, path: Path) -> pa.Array:
        field = self._passes.file.schema.field(column)
        name = ".".join([field.name, *path])
        # Which structs are null shows in whatever is read of them.
        read = next((names for names in self._both if any(_is_within(each, name) for each in names)), None)
        if read is None:
            return self.array(column, path).is_null()
        return self._of(read, name).is_null()

    @property
    def _both(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._passes.file.first, self._passes.file.others

    def _whole(self, name: str, kind: pa.DataType) -> pa.Array:
        """A column, or a field, by its path; of a struct whose fields are read in both passes, put together."""
        for names in self._both:
            within = [each for each in names if _is_within(each, name) or _is_within(name, each)]
            if within and not any(_is_within(each, name) for other in self._both if other != names for each in other):
                return self._of(names, name).cast(kind)
        fields = [self._whole(f"{name}.{field.name}", field.type) for field in kind]
        first = next(names for names in self._both if any(_is_within(each, name) for each in names))
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=self._of(first, name).is_null())

    def _of(self, names: tuple[str, ...], name: str) -> pa.Array:
        """A column, or a field, as far as a pass reads it."""
        if names not in self._read:
            self._read[names] = self._passes.rows(names, self._start, self.count)
        column, *path = name.split(".")
        array = self._read[names][column]
        return pc.struct_field(array, path) if path else array


def _is_within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")
