"""Files that tasks read themselves, with pyarrow, where that gives what Spark's reader gives.

    a file's footer ─► is every column stored as its type says? ─► pieces: runs of row groups ─► Arrow batches

Rows that Spark reads cross from the JVM to Python, one column after the other; rows that Python reads do not. Only what
both provably read alike is read here: Parquet in which every column has exactly the type of the stream's column, in the
encoding of today. For anything else `why_not` says what it is, and Spark reads the file.

What both do: columns are found by name, those the file lacks are null, those the stream lacks are passed over. Rows
come in the order of the file.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.engine.worker.late_columns import LateColumn
from anabranch.engine.worker.late_files import late_rows
from anabranch.engine.worker.needed_columns import Needed
from anabranch.engine.worker.packets import number_coordinate, text_coordinate
from anabranch.errors import InputError
from anabranch.program.schema import Schema

BATCH_ROWS = 65_536
"""As many as Spark is told to hand over at once."""
BATCH_BYTES = 64 << 20
"""Wide rows come fewer at a time; Spark's own bound, if nobody changes it, is the same."""
LATE_ROWS_MIN = 4096
"""Of fewer rows all columns are read at once: to read twice costs more than it could spare."""

_SPARK_VERSION = b"org.apache.spark.version"
# What a repeated value stands in, as it is written today.
_REPEATED = {("list", "element"), ("list", "item"), ("key_value", "key"), ("key_value", "value")}
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")


@dataclasses.dataclass(frozen=True)
class SourceRows:
    """Rows of one piece of a source, in order."""

    source: int
    """Which source of the program."""
    coordinate: bytes
    """Where the piece stands among all pieces of the epoch."""
    columns: Sequence[pa.Array | LateColumn]
    modified_ms: float | None = None
    """When their file was last changed."""


@dataclasses.dataclass(frozen=True)
class FilePiece:
    """Row groups of a file that one task reads."""

    source: int
    path: str
    coordinate: bytes
    modified_ms: float
    groups: tuple[int, ...]
    size: int


@dataclasses.dataclass(frozen=True)
class ListedFile:
    """A file of an epoch.

    `name` is what Spark calls it: names order files that were changed in the same millisecond.
    """

    source: int
    path: str
    name: str
    modified_ms: int


def examined(file: ListedFile, wanted: Schema) -> pq.FileMetaData | str:
    """The footer of a file; a text says why tasks cannot read it themselves."""
    try:
        found = pq.read_metadata(file.path)
        problem = why_not(found, wanted)
    except (OSError, pa.ArrowException) as error:  # Spark says it better, or knows how to read it
        problem = str(error).partition("\n")[0]
    return found if problem is None else f"{file.name}: {problem}"


def size_of(found: pq.FileMetaData) -> int:
    """How many bytes the rows of a file have."""
    return sum(found.row_group(group).total_byte_size for group in range(found.num_row_groups))


def cut(file: ListedFile, found: pq.FileMetaData, size_max: int | None) -> list[FilePiece]:
    """A file as pieces of about so many bytes; None: as one piece."""
    runs: list[tuple[list[int], int]] = []
    for group in range(found.num_row_groups):
        size = found.row_group(group).total_byte_size
        if not runs or (size_max is not None and runs[-1][1] + size > size_max):
            runs.append(([], 0))
        runs[-1] = ([*runs[-1][0], group], runs[-1][1] + size)
    before = number_coordinate(file.modified_ms * 1000) + text_coordinate(file.name)
    return [
        FilePiece(file.source, file.path, before + number_coordinate(at), file.modified_ms, tuple(groups), size)
        for at, (groups, size) in enumerate(runs)
    ]


def dealt(pieces: Sequence[FilePiece], tasks: int) -> list[list[FilePiece]]:
    """Pieces for tasks, evenly: the largest first, each to whoever has least. There is one task at least."""
    shares: list[list[FilePiece]] = [[] for _ in range(max(1, min(tasks, len(pieces))))]
    load = [(0, at) for at in range(len(shares))]
    for piece in sorted(pieces, key=lambda each: (-each.size, each.coordinate)):
        size, at = heapq.heappop(load)
        shares[at].append(piece)
        heapq.heappush(load, (size + max(piece.size, 1), at))
    return [sorted(share, key=lambda each: each.coordinate) for share in shares]


def in_turn(pieces: Sequence[FilePiece], tasks: int) -> list[list[FilePiece]]:
    """Pieces for tasks, about evenly, and so that each has later ones than the tasks before it."""
    total = max(1, sum(max(piece.size, 1) for piece in pieces))
    shares: list[list[FilePiece]] = [[] for _ in range(max(1, min(tasks, len(pieces))))]
    before = 0
    for piece in sorted(pieces, key=lambda each: (each.source, each.coordinate)):
        size = max(piece.size, 1)
        shares[min(len(shares) - 1, (2 * before + size) * len(shares) // (2 * total))].append(piece)
        before += size
    return [share for share in shares if share] or [[]]


def why_not(found: pq.FileMetaData, wanted: Schema) -> str | None:
    """Why pyarrow might read other values than Spark does; None if it does not."""
    stored = found.schema.to_arrow_schema()
    names = [name.lower() for name in stored.names]
    if len(set(names)) < len(names):
        return "it has columns whose names differ in case only"
    read = [name for name in wanted.names if name in stored.names]
    if not read:
        return "it has none of the columns"
    if any("." in name or _has(wanted.type_of(name), _has_dots) for name in read):
        return "it has names with a dot in them"
    for field in wanted.arrow:
        if field.name in stored.names:
            kind = _kind(stored.field(field.name).type)
            if kind != field.type:
                return f"its column {field.name} is {kind}, not {field.type}"
        elif field.name.lower() in names:
            return f"its column {field.name} is written in another case"
    leaves = [found.schema.column(at) for at in range(len(found.schema.names))]
    leaves = [leaf for leaf in leaves if leaf.path.split(".")[0] in read]
    for leaf in leaves:
        if leaf.physical_type == "INT96":
            return f"its column {leaf.path} has timestamps of the old kind"
    if any(_has(wanted.type_of(name), pa.types.is_list) for name in read):
        deep = [leaf.path for leaf in leaves if leaf.max_repetition_level and not _is_standard(leaf.path)]
        if deep:
            return f"its column {deep[0]} has lists of the old kind"
    if any(_has(wanted.type_of(name), _is_dated) for name in read) and not _has_new_calendar(found.metadata or {}):
        return "it has dates in the calendar of before Spark 3"
    return None


def _kind(kind: pa.DataType) -> pa.DataType:
    """The type that a stored column has as a stream's column."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return kind  # Spark has no such type
    return Schema(pa.schema([("column", kind)])).arrow.field(0).type


def _is_standard(path: str) -> bool:
    return any(pair in _REPEATED for pair in itertools.pairwise(path.split(".")))


def _has(kind: pa.DataType, is_wanted: object) -> bool:
    """Whether a type, or one within it, is of some sort."""
    assert callable(is_wanted)
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return bool(is_wanted(kind)) or any(_has(each, is_wanted) for each in inner)


def _has_dots(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and any("." in field.name for field in kind)


def _is_dated(kind: pa.DataType) -> bool:
    return pa.types.is_date(kind) or pa.types.is_timestamp(kind)


def _has_new_calendar(metadata: dict[bytes, bytes]) -> bool:
    """Whether dates mean what they say. (Where the writer is not Spark, the session's setting decides: see `spark`.)"""
    version = metadata.get(_SPARK_VERSION)
    return not any(key in metadata for key in _LEGACY) and (version is None or version >= b"3.1")


def read_pieces(pieces: Sequence[FilePiece], needed: Sequence[Needed]) -> Iterator[SourceRows]:
    """The rows of pieces; `needed` is what is needed of each of the program's sources. What is not, is null."""
    for piece in pieces:
        wanted = needed[piece.source]
        try:
            with pq.ParquetFile(piece.path) as file:
                stored = wanted.read & set(file.schema_arrow.names)
                names = [name for name in wanted.names if name.split(".")[0] in stored]
                # Of a file without the columns that are needed it must still be known how many rows it has.
                names = names or [file.schema_arrow.names[0]]
                at_once = _rows_at_once(file.metadata, piece.groups, names)
                rows = sum(file.metadata.row_group(group).num_rows for group in piece.groups)
                if rows >= LATE_ROWS_MIN and stored & {name.split(".")[0] for name in wanted.tested}:
                    for late in late_rows(file, piece.path, piece.groups, wanted, at_once):
                        yield SourceRows(piece.source, piece.coordinate, late, piece.modified_ms)
                    continue
                for batch in file.iter_batches(at_once, piece.groups, names, use_threads=False):
                    columns = [
                        batch.column(field.name).cast(field.type)
                        if field.name in stored
                        else pa.nulls(len(batch), field.type)
                        for field in wanted.schema
                    ]
                    yield SourceRows(piece.source, piece.coordinate, columns, piece.modified_ms)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"the file {piece.path} cannot be read: {error}") from None


def _rows_at_once(found: pq.FileMetaData, groups: Sequence[int], names: Sequence[str]) -> int:
    """How many rows make a batch, by what the widest row group has of these columns."""
    most = BATCH_ROWS
    for group in map(found.row_group, groups):
        chunks = map(group.column, range(group.num_columns))
        read = (each for each in chunks if any(f"{each.path_in_schema}.".startswith(f"{name}.") for name in names))
        size = sum(each.total_uncompressed_size for each in read)
        most = min(most, max(1, BATCH_BYTES * group.num_rows // max(size, 1)) if group.num_rows else most)
    return most
