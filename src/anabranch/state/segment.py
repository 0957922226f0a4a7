"""Segments: immutable, sorted, columnar pieces of state. The changelog, the snapshots and the working
store are all made of them.

    hash (uint64, sorted) │ key │ field 1 │ field 2 │ … │ dead
    ──────────────────────┼─────┼─────────┼─────────┼───┼─────
    the key's hash; its   │ exact Python values: an Arrow │ true: the key was removed here
    top bits are the      │ column where all have one     │
    key group             │ type, else bytes of the codec │

What an epoch changed is a segment, written once and never touched again. The state at a version is a list
of segments, newest first: a key's value is in the newest that has the key. Merging neighbours gives a
larger segment with the same meaning (compaction); merging all gives a snapshot. So a retried task, a
re-run epoch and a restarted driver need no undo: what was not published is in no list.

A lookup is vectorised: the touched keys of a batch are searched together by binary search in the sorted
hashes of the memory-mapped file; only their rows are read. Time follows what is touched, not what is
held. (LMDB was tried for this place: 6 µs per key and a single writer, against about 1 µs here.)
"""

from __future__ import annotations

import copy
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import CheckpointError
from anabranch.program.calling import canonical
from anabranch.program.not_a_number import NAN, may_have_nan
from anabranch.program.schema import to_values
from anabranch.program.state_fields import FIRST_VERSION
from anabranch.state.codec import decode, encode
from anabranch.state.deltas import BYTES_MIN, DELTA, combined, delta_of, is_delta
from anabranch.state.state_columns import ARROW_TYPES, StateBlock, decoded, key_column
from anabranch.state.user_objects import UserClasses

FORMAT = 1
EXPIRES = "#expires"
NEVER = 2**63 - 1
VERSION = "#version"
_DELTAS = b"anabranch.deltas"

_CODEC = b"codec"
_NONE = type(None)


def encode_column(
    values: Sequence[Any], classes: UserClasses | None = None, before: Sequence[bytes | None] | None = None
) -> tuple[pa.Array, bytes]:
    """A column that gives exactly these values back, and how it is encoded.

    `before` has the cells that older segments have of them: of a large value that changed a little a delta is enough.
    """
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    if len(kinds) <= 1:
        kind = next(iter(kinds), bool)
        arrow = ARROW_TYPES.get(kind)
        if kind is float and may_have_nan(values) and any(v != v and v is not NAN for v in values if v is not None):
            arrow = None  # only the NaN of tuples is known again by its value
        if arrow is not None:
            try:
                return pa.array(values, arrow), b"plain"
            except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
                pass  # an int beyond 64 bits, a lone surrogate
    cells = [encode(value, classes) for value in values]
    if before is not None:
        cells = [cell if old is None else delta_of(old, cell) or cell for cell, old in zip(cells, before, strict=True)]
    return pa.array(cells, pa.binary()), _CODEC


def decode_column(column: pa.Array, encoding: bytes, classes: UserClasses | None = None) -> list[Any]:
    if encoding != _CODEC:
        return decoded(column, encoding)
    values = to_values(column)
    return [None if value is None else decode(value, classes) for value in values]  # None: the row has no such field


def write_segment(
    hashes: np.ndarray,
    keys: Sequence[Any],
    fields: Sequence[str],
    columns: Sequence[Sequence[Any]],
    dead: np.ndarray | None = None,
    classes: UserClasses | None = None,
    version: int = FIRST_VERSION,
    before: Mapping[str, Sequence[bytes | None]] | None = None,
) -> pa.Buffer:
    """The bytes of a segment with these rows, in any order, each key once.

    `before` has, for some fields, the cells that older segments have for these rows; see `encode_column`.
    """
    known = before or {}
    encoded = [encode_column(column, classes, known.get(name)) for name, column in zip(fields, columns, strict=True)]
    return _written(hashes, keys, fields, encoded, dead, version)


def write_block(hashes: np.ndarray, block: StateBlock, version: int = FIRST_VERSION) -> pa.Buffer:
    """The same of state that is columns already."""
    encoded = [(array, block.forms[name].encoding) for name, array in block.arrays.items()]
    return _written(hashes, block.keys, tuple(block.arrays), encoded, block.ended, version)


def _written(
    hashes: np.ndarray,
    keys: Sequence[Any],
    fields: Sequence[str],
    columns: Sequence[tuple[pa.Array, bytes]],
    dead: np.ndarray | None,
    version: int,
) -> pa.Buffer:
    encoded = [key_column(keys) or encode_column(keys), *columns]
    if version != FIRST_VERSION:
        fields, encoded = (*fields, VERSION), [*encoded, encode_column((version,) * len(keys))]
    order = np.argsort(hashes, kind="stable")
    arrays: list[pa.Array] = [pa.array(hashes), *(array for array, _ in encoded)]
    names = ["hash", "key", *(f"field.{name}" for name in fields)]
    encodings = [b"plain", *(encoding for _, encoding in encoded)]
    if dead is not None and dead.any():
        arrays.append(pa.array(dead))
        names.append("dead")
        encodings.append(b"plain")
    table = pa.table(arrays, _segment_schema(names, arrays, encodings))
    return table_bytes(table.take(pa.array(order)))


def _segment_schema(names: Sequence[str], arrays: Sequence[Any], encodings: Sequence[bytes]) -> pa.Schema:
    metadata = {b"anabranch.segment": str(FORMAT).encode()}
    with_deltas = [
        name
        for name, array, encoding in zip(names, arrays, encodings, strict=True)
        if encoding == _CODEC and len(_delta_rows(array))
    ]
    if with_deltas:
        metadata[_DELTAS] = json.dumps(with_deltas).encode()
    return pa.schema(
        [
            pa.field(name, array.type, metadata={b"encoding": encoding})
            for name, array, encoding in zip(names, arrays, encodings, strict=True)
        ],
        metadata=metadata,
    )


def _delta_rows(cells: pa.Array) -> np.ndarray:
    """The rows of a column of cells that are deltas."""
    if not len(cells):
        return np.zeros(0, np.int64)
    _, offsets, data = cells.buffers()
    starts = np.frombuffer(offsets, np.int32)[cells.offset : cells.offset + len(cells) + 1]
    if data is None or not data.size:
        return np.zeros(0, np.int64)
    filled = np.flatnonzero(starts[1:] > starts[:-1])
    return filled[np.frombuffer(data, np.uint8)[starts[:-1][filled]] == DELTA]


def table_bytes(table: pa.Table) -> pa.Buffer:
    """A table as the bytes of a segment."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue()


class Segment:
    """A segment that can be searched. `source` is a path to map into memory, or the bytes themselves.

    `within` says where in the file it begins, and how many bytes it has, if it is a slice; `read_from` where the bytes
    come from, for errors.
    """

    def __init__(
        self,
        source: str | pa.Buffer,
        checksum: int | None = None,
        within: tuple[int, int] | None = None,
        read_from: str = "in memory",
    ) -> None:
        self.name = source if isinstance(source, str) else read_from
        try:
            data = pa.memory_map(source).read_buffer() if isinstance(source, str) else source
            if within is not None:
                data = data.slice(*within)
            if checksum is not None and zlib.crc32(data) != checksum:
                raise CheckpointError(f"the state segment {self.name} is damaged: its checksum does not fit")
            table = pa.ipc.open_file(pa.BufferReader(data)).read_all().combine_chunks()
        except FileNotFoundError:
            raise CheckpointError(f"the state segment {self.name} is missing") from None
        except (pa.ArrowInvalid, OSError) as problem:
            raise CheckpointError(f"the state segment {self.name} is damaged: {problem}") from None
        version = (table.schema.metadata or {}).get(b"anabranch.segment")
        if version != str(FORMAT).encode():
            raise CheckpointError(
                f"the state segment {self.name} has the format {version!r}; this version reads {FORMAT}"
            )
        self.table = table
        self.hashes = _one_chunk(table.column("hash")).to_numpy() if len(table) else np.zeros(0, np.uint64)
        self.fields = tuple(name[6:] for name in table.column_names if name.startswith("field."))
        self.has_dead = "dead" in table.column_names
        self.deltas: frozenset[str] = frozenset(json.loads((table.schema.metadata or {}).get(_DELTAS, b"[]")))
        """The columns of which some cells are deltas: what they change is in older segments."""

    def __len__(self) -> int:
        return len(self.hashes)

    def values(self, name: str, rows: np.ndarray | None = None, classes: UserClasses | None = None) -> list[Any]:
        """Exact values of a column, of some rows or all; `classes` makes objects of the user's classes."""
        column = _one_chunk(self.table.column(name)) if len(self.table) else pa.array([], pa.null())
        if rows is not None:
            column = column.take(pa.array(rows))
        return decode_column(column, self.encoding(name), classes)

    def cells(self, name: str, rows: np.ndarray) -> list[bytes | None]:
        """The bytes of some rows of a column that the codec made."""
        return to_values(_one_chunk(self.table.column(name)).take(pa.array(rows)))

    def is_large(self, name: str, rows: np.ndarray) -> bool:
        """Whether a column that the codec made has large cells in some of these rows."""
        if self.encoding(name) != _CODEC or not len(rows):
            return False
        lengths = pc.binary_length(_one_chunk(self.table.column(name)).take(pa.array(rows)))
        return (pc.max(lengths).as_py() or 0) >= BYTES_MIN

    def absent(self, name: str, rows: np.ndarray) -> np.ndarray | None:
        """Which of some rows do not have a field that others have: those of another version; None: all have it."""
        column = _one_chunk(self.table.column(name))
        if self.encoding(name) != _CODEC or not column.null_count:
            return None
        return column.is_null().to_numpy(zero_copy_only=False)[rows]

    def versions(self, rows: np.ndarray) -> np.ndarray:
        """Which versions of the operator's state some rows are of."""
        if VERSION not in self.fields or not len(self):
            return np.full(len(rows), FIRST_VERSION)
        return _one_chunk(self.table.column(f"field.{VERSION}")).to_numpy()[rows]

    def is_of(self, version: int) -> bool:
        """Whether all rows are of one version of the operator's state."""
        if VERSION not in self.fields or not len(self):
            return version == FIRST_VERSION or not len(self)
        return bool(pc.all(pc.equal(self.table.column(f"field.{VERSION}"), version)).as_py())

    def renamed(self, names: Mapping[str, Sequence[str]]) -> Segment:
        """The same with fields under the names they have now: name → what it was before, latest first."""
        columns = list(self.table.column_names)
        for name, was in names.items():
            old = next((f"field.{each}" for each in was if f"field.{each}" in columns), None)
            if old is not None and f"field.{name}" not in columns:
                columns[columns.index(old)] = f"field.{name}"
        if columns == self.table.column_names:
            return self
        other = copy.copy(self)
        now = dict(zip(self.table.column_names, columns, strict=True))
        other.deltas = frozenset(now[name] for name in self.deltas)
        other.table = self.table.rename_columns(columns)
        other.fields = tuple(name[6:] for name in columns if name.startswith("field."))
        return other

    def column(self, name: str, rows: np.ndarray) -> pa.Array:
        """Some rows of a column, as it is stored."""
        return _one_chunk(self.table.column(name)).take(pa.array(rows))

    def encoding(self, name: str) -> bytes:
        return (self.table.schema.field(name).metadata or {}).get(b"encoding", b"plain")

    def find(self, hashes: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of these keys (an array of objects) are here: (their places in it, their rows).

        `hashes` must be sorted: neighbours are then found in neighbouring pages.
        """
        if not len(self.hashes):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        # Of a segment for few key groups, or a small one, most keys lie outside.
        begin = int(np.searchsorted(hashes, self.hashes[0]))
        inside = hashes[begin : int(np.searchsorted(hashes, self.hashes[-1], side="right"))]
        rows = np.searchsorted(self.hashes, inside)
        places = np.flatnonzero(self.hashes[rows] == inside)
        rows = rows[places]
        places += begin
        found, wanted = self.values("key", rows), keys[places].tolist()
        wrong = []
        if found != wanted:
            wrong = [
                at
                for at, (key, other) in enumerate(zip(found, wanted, strict=True))
                if key != other and canonical(key) is not other
            ]
        if wrong:  # two keys with one hash: look at the other rows of that hash
            keep = np.ones(len(places), dtype=bool)
            for at in wrong:
                row = self._find_among_equals(int(rows[at]), keys[places[at]])
                if row is None:
                    keep[at] = False
                else:
                    rows[at] = row
            places, rows = places[keep], rows[keep]
        return places, rows

    def _find_among_equals(self, row: int, key: Any) -> int | None:
        end = int(np.searchsorted(self.hashes, self.hashes[row], side="right"))
        for at, other in enumerate(self.values("key", np.arange(row, end)), start=row):
            if same_key(other, key):
                return at
        return None

    def between(self, field: str, after: int, until: int) -> np.ndarray:
        """The rows whose field is a number above one and up to another."""
        name = f"field.{field}"
        if field not in self.fields or not len(self):
            return np.zeros(0, np.int64)
        column = _one_chunk(self.table.column(name))
        if self.encoding(name) == _CODEC:
            numbers = decode_column(column, _CODEC)
            return np.flatnonzero([number is not None and after < number <= until for number in numbers])
        if not pa.types.is_integer(column.type):  # nothing but nulls
            return np.zeros(0, np.int64)
        inside = pc.and_(pc.greater(column, after), pc.less_equal(column, until))
        return np.flatnonzero(pc.fill_null(inside, False).to_numpy(zero_copy_only=False))

    def dead_mask(self) -> np.ndarray:
        """Which rows only say that a key was removed."""
        if not self.has_dead:
            return np.zeros(len(self), dtype=bool)
        return _one_chunk(self.table.column("dead")).to_numpy(zero_copy_only=False)

    def dead_rows(self, rows: np.ndarray) -> list[bool]:
        return self.values("dead", rows) if self.has_dead else [False] * len(rows)


def same_key(one: Any, other: Any) -> bool:
    """Whether two keys are the same key: equal, or both NaN, also inside a composite key."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same_key, one, other))
    return one == other or (one != one and other != other)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def compacted_segments(
    segments: Sequence[Segment],
    drop_dead: bool,
    keeps: Callable[[np.ndarray, Callable[[], list[Any]]], np.ndarray] | None = None,
    defaults: Mapping[str, Any] | None = None,
    clock_ms: int | None = None,
    version: int = FIRST_VERSION,
) -> pa.Buffer:
    """One segment with the meaning of several, given newest first.

    Parameters
    ----------
    drop_dead : bool
        Forget removed keys; right only if nothing older exists, where a key could come back from.
    keeps : function of hashes and keys, optional
        Which keys to keep, as a mask; all by default. The keys are given as a function: decoding them takes time.
    defaults : mapping, optional
        The fields the result has, with the value of each where a segment does not have it.
    clock_ms : int, optional
        With `drop_dead`, forget what has expired by this time, too.
    version : int
        The version of the state that has those fields. Rows of others keep the fields they have.
    """
    if defaults is None:
        # The newest segment has the fields the program has now.
        defaults = dict.fromkeys(segments[0].fields) if segments else {}
    live = [segment for segment in segments if len(segment)]
    if not live:
        return write_segment(np.zeros(0, np.uint64), [], tuple(defaults), [[] for _ in defaults])
    is_mixed = not all(segment.is_of(version) for segment in live)
    if any(VERSION in segment.fields for segment in live):
        defaults = {**defaults, VERSION: FIRST_VERSION}
    older = [each for segment in live for each in segment.fields if each not in defaults] if is_mixed else []
    names = ["key", *(f"field.{name}" for name in dict.fromkeys([*defaults, *older]))]
    hashes = np.concatenate([segment.hashes for segment in live])
    # Stable: rows with one hash stay newest first.
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    arrays, encodings = [], []
    for name in names:
        array, encoding = _joined(live, name, defaults.get(name[6:]), is_mixed and not name.startswith("field.#"))
        arrays.append(array.take(pa.array(order)))
        encodings.append(encoding)
    dead = np.concatenate([segment.dead_mask() for segment in live])[order]
    keep = _first_of_each_key(hashes, arrays[0], encodings[0])
    if drop_dead:
        keep &= ~dead
        if clock_ms is not None and EXPIRES in defaults:
            moments = arrays[names.index(f"field.{EXPIRES}")]
            keep &= pc.greater(moments, clock_ms).to_numpy(zero_copy_only=False)
    if keeps is not None:
        keep &= keeps(hashes, lambda: decode_column(arrays[0], encodings[0]))
    for at, name in enumerate(names):
        if any(name in segment.deltas for segment in live):
            arrays[at] = _followed(arrays[at], keep, hashes, arrays[0], encodings[0])
    rows = pa.array(np.flatnonzero(keep))
    columns: list[pa.Array] = [column.take(rows) for column in (pa.array(hashes), *arrays)]
    column_names, column_encodings = ["hash", *names], [b"plain", *encodings]
    for name in [f"field.{each}" for each in dict.fromkeys(older)]:
        at = column_names.index(name)
        if columns[at].null_count == len(columns[at]):  # no row is left that has it
            del columns[at], column_names[at], column_encodings[at]
    if not drop_dead and dead[keep].any():
        columns.append(pa.array(dead[keep]))
        column_names.append("dead")
        column_encodings.append(b"plain")
    return table_bytes(pa.table(columns, _segment_schema(column_names, columns, column_encodings)))


def _followed(cells: pa.Array, keep: np.ndarray, hashes: np.ndarray, keys: pa.Array, encoding: bytes) -> pa.Array:
    """A column in which the deltas of rows that are kept are applied to what they change, as far as it is here.

    Rows of one key stand together, newest first.
    """
    rows = _delta_rows(cells)
    rows = rows[keep[rows]]
    if not len(rows):
        return cells
    values = to_values(cells)
    for row in rows.tolist():
        key = decode_column(keys[row : row + 1], encoding)[0]
        cell, at = values[row], row + 1
        while is_delta(cell) and at < len(values) and hashes[at] == hashes[row]:
            if same_key(decode_column(keys[at : at + 1], encoding)[0], key):
                cell = combined(cell, values[at])
            at += 1
        values[row] = cell
    return pa.array(values, pa.binary())


def _joined(segments: Sequence[Segment], name: str, default: Any, may_lack: bool) -> tuple[pa.Array, bytes]:
    complete = all(name in segment.table.column_names for segment in segments)
    if complete:
        kinds = {(segment.table.column(name).type, segment.encoding(name)) for segment in segments}
        if len(kinds) == 1:
            chunks = [chunk for segment in segments for chunk in segment.table.column(name).chunks]
            return pa.concat_arrays(chunks), next(iter(kinds))[1]
    # The column changed its type over time, or is new: the codec holds every type. What it holds stays as it is:
    # only the program could read it exactly.
    values: list[Any] = []
    packed: list[pa.Array] = []
    for segment in segments:
        known = name in segment.table.column_names
        if known and segment.encoding(name) == _CODEC:
            packed += segment.table.column(name).chunks
            continue
        if not known and may_lack:  # what a field of another version begins with is for the migration to say
            packed.append(pa.nulls(len(segment), pa.binary()))
            continue
        found = segment.values(name) if known else [default] * len(segment)
        values += found
        packed.append(pa.array(map(encode, found), pa.binary()))
    return encode_column(values) if len(values) == sum(map(len, segments)) else (pa.concat_arrays(packed), _CODEC)


def _first_of_each_key(hashes: np.ndarray, keys: pa.Array, encoding: bytes) -> np.ndarray:
    """A mask of the rows that are the first with their key, given rows sorted by hash."""
    keep = np.ones(len(hashes), dtype=bool)
    repeats = hashes[1:] == hashes[:-1]
    if not repeats.any():
        return keep
    if bool(np.all(_same_as_next(keys)[repeats])):
        keep[1:] = ~repeats
        return keep
    # Two keys share a hash, or one key was written in two ways (0.0 and -0.0): look at each.
    starts = np.flatnonzero(np.concatenate([[True], ~repeats]))
    ends = np.append(starts[1:], len(hashes))
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start > 1:
            seen: list[Any] = []
            for row, key in enumerate(decode_column(keys[start:end], encoding), start=start):
                if any(same_key(key, other) for other in seen):
                    keep[row] = False
                else:
                    seen.append(key)
    return keep


def _same_as_next(keys: pa.Array) -> np.ndarray:
    """For each key but the last, whether the next one is the same value."""
    if pa.types.is_struct(keys.type):
        return np.logical_and.reduce([_same_as_next(column) for column in keys.flatten()])
    one, other = keys[:-1], keys[1:]
    same = pc.fill_null(pc.equal(one, other), False).to_numpy(zero_copy_only=False)
    if keys.null_count:
        same = same | pc.and_(pc.is_null(one), pc.is_null(other)).to_numpy(zero_copy_only=False)
    if pa.types.is_floating(keys.type):
        nan = pc.fill_null(pc.is_nan(keys), False).to_numpy(zero_copy_only=False)
        same = same | (nan[:-1] & nan[1:])
    return same


def checksum_of(data: pa.Buffer) -> int:
    """What a record says of the bytes of a segment, so that a damaged one is known."""
    return zlib.crc32(data)
