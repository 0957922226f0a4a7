"""One hash for keys, the same in every process, on every machine, in every version; and key groups.

The hash of a key decides who owns its state, so it may never change: it is part of the checkpoint's
format. It is computed for whole Arrow columns at once, without Python work per row:

    column ──► 64-bit words ──► mix (the finaliser of splitmix64) ──► combined over the columns of the key

Fixed-size values are one word (decimals two). Strings and binaries are read as little-endian words of
eight bytes, the last one masked, all strings of the column in step: as many passes as the longest has
words, each over the strings that are that long. Null has a hash of its own. Two floats that a grouping
must not tell apart (0.0 and -0.0, all NaNs) have one hash; so have equal integers of any width, dates
and timestamps being integers.

The top bits of the hash are the **key group**: a contiguous range of hashes, the unit in which state is
owned and moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.errors import SchemaError

GROUP_BITS = 12
"""A key's group is this many top bits of its hash; the measurement behind it is in docs/partitioning.md."""
GROUP_COUNT = 1 << GROUP_BITS

_NULL = np.uint64(0x9E3779B97F4A7C15)
_LENGTH = np.uint64(0xD6E8FEB86659FD93)
_COLUMN = np.uint64(0xA0761D6478BD642F)
# How many low bytes of the last word of a string count.
_TAIL_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(8)] + [2**64 - 1], dtype=np.uint64)


def _mix(words: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that spreads every bit."""
    words = words ^ (words >> np.uint64(30))
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words = words ^ (words >> np.uint64(27))
    words = words * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def hash_columns(columns: Sequence[pa.Array | pa.ChunkedArray]) -> np.ndarray:
    """The 64-bit hash of every row of the key made of these columns.

    Examples
    --------
    >>> int(hash_columns([pa.array(["a"])])[0]) == int(hash_columns([pa.array(["b", "a"])])[1])
    True
    """
    combined: np.ndarray | None = None
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        hashed = _hash_array(array)
        combined = hashed if combined is None else _mix(combined * _COLUMN + hashed)
    if combined is None:
        raise ValueError("a key has at least one column")
    return combined


def with_part(hashes: np.ndarray, part: int) -> np.ndarray:
    """The hashes of keys that have another column, an integer, behind theirs."""
    return _mix(hashes * _COLUMN + _hash_array(pa.array([part]))[0])


def without_part(hashes: np.ndarray, part: int) -> np.ndarray:
    """The hashes of keys without their last column: what `with_part` was given."""
    return (_unmix(hashes) - _hash_array(pa.array([part]))[0]) * np.uint64(pow(int(_COLUMN), -1, 1 << 64))


def _unmix(words: np.ndarray) -> np.ndarray:
    """The inverse of `_mix`: every one of its steps can be undone."""
    words = words ^ (words >> np.uint64(31)) ^ (words >> np.uint64(62))
    words = words * np.uint64(pow(0x94D049BB133111EB, -1, 1 << 64))
    words = words ^ (words >> np.uint64(27)) ^ (words >> np.uint64(54))
    words = words * np.uint64(pow(0xBF58476D1CE4E5B9, -1, 1 << 64))
    return words ^ (words >> np.uint64(30)) ^ (words >> np.uint64(60))


def is_hashable(kind: pa.DataType) -> bool:
    """Whether a column of this type can be (part of) a key."""
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_temporal(kind)
        or pa.types.is_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_decimal128(kind)
    )


def key_groups(hashes: np.ndarray, bits: int = GROUP_BITS) -> np.ndarray:
    """The key group of every hash, as integers to index with; `bits` for functions that cut finer or coarser."""
    return (hashes >> np.uint64(64 - bits)).view(np.int64)


def _hash_array(array: pa.Array) -> np.ndarray:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashed = _hash_bytes(array)
    elif pa.types.is_decimal128(kind):
        words = np.frombuffer(array.buffers()[1], dtype=np.uint64)
        words = words[2 * array.offset : 2 * (array.offset + len(array))]
        hashed = _mix(_mix(words[0::2]) * _COLUMN + words[1::2])
    elif is_hashable(kind):
        hashed = _mix(_words(array) + _LENGTH)
    else:
        raise SchemaError(f"a column of type {kind} cannot be (part of) a key")
    if array.null_count:
        hashed = np.where(pc.is_null(array).to_numpy(zero_copy_only=False), _NULL, hashed)
    return hashed


def _words(array: pa.Array) -> np.ndarray:
    kind = array.type
    if pa.types.is_floating(kind):
        numbers = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False)
        numbers = np.where(np.isnan(numbers), np.nan, numbers + 0.0)  # -0.0 + 0.0 is 0.0
        return numbers.view(np.uint64)
    if pa.types.is_boolean(kind):
        return array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    if pa.types.is_temporal(kind):
        array = array.cast(pa.int32()).cast(pa.int64()) if kind.bit_width == 32 else array.cast(pa.int64())
    integers = array.fill_null(0).to_numpy(zero_copy_only=False)
    return integers.astype(np.int64).view(np.uint64)


def _hash_bytes(array: pa.Array) -> np.ndarray:
    count = len(array)
    _, offsets_buffer, data_buffer = array.buffers()
    if count == 0 or offsets_buffer is None:
        return np.zeros(count, dtype=np.uint64)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[array.offset : array.offset + count + 1].astype(np.int64)
    lengths = np.diff(offsets)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.zeros(last - first + 8, dtype=np.uint8)  # room for a whole word behind the last byte
    if last > first:
        data[: last - first] = np.frombuffer(data_buffer, dtype=np.uint8)[first:last]
    # A word can begin at any byte: the same memory seen as overlapping words.
    words = np.ndarray(shape=(len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))
    hashed = _mix((lengths.view(np.uint64) + np.uint64(1)) * _LENGTH)
    starts = offsets[:-1] - first
    rows = np.flatnonzero(lengths)
    at = 0
    while len(rows):
        left = lengths[rows] - at
        word = words[starts[rows] + at] & _TAIL_MASKS[np.minimum(left, 8)]
        hashed[rows] = _mix((hashed[rows] ^ word) * _COLUMN + _LENGTH)
        at += 8
        rows = rows[left > 8]
    return hashed
