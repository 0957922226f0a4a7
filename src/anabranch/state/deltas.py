"""Large values that changed a little: kept as what they are made of, pieces of the value before and bytes that are new.

    before   ┌ header ┬──────────────── items ────────────────┐
    now      ┌ header ┬──────────────── items ────────────────┬ more ┐      a list that grew
    delta    ( new header, copy from 3 to 9,204, more )

A value is the bytes that the codec made of it, so a delta knows nothing of lists or dicts: what stayed the same in
the bytes is copied, whatever it means. That covers a list or dict that grows at its end, a deque that moves on, a count
that changed in the middle of many. Applied to the bytes before it gives exactly the bytes now, which a checksum of
the former makes sure of. Two deltas that follow one another are one (`combined`): a merge of segments needs no value.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgpack
import numpy as np

from anabranch.errors import StateError

# The first byte of a cell; a value's is the version of the codec.
DELTA = 2
_PREFIX = bytes([DELTA])

BYTES_MIN = 512
"""Values below are written whole."""
# A delta must be worth it: following it costs a lookup in older segments.
_SHARE_MAX = 0.5
# How many bytes of the value are looked for in the one before it, to find how far a deque moved on.
_PROBE = 24

Piece = bytes | tuple[int, int]
"""Bytes that are new, or a stretch of the value before: from, to."""


def is_delta(cell: bytes | None) -> bool:
    """Whether a cell is a delta, and no value."""
    return cell is not None and cell[:1] == _PREFIX


def delta_of(before: bytes, now: bytes) -> bytes | None:
    """What makes `now` of `before`; None if that is not worth it."""
    if len(now) < BYTES_MIN or len(before) < BYTES_MIN // 2:
        return None
    pieces = _pieces(before, now)
    cell = _packed(len(before), zlib.crc32(before), pieces)
    return cell if len(cell) <= len(now) * _SHARE_MAX else None


def _pieces(before: bytes, now: bytes) -> list[Piece]:
    """The value as stretches of the one before: its header, the beginning of the items, what changed, their end."""
    header = _header(now)
    # Where the items of now begin in the value before: behind its header or, if some at the front are gone, later.
    start = _header(before)
    probe = now[header : header + _PROBE]
    if before[start : start + len(probe)] != probe:
        found = before.find(probe, start)
        start = start if found < 0 else found
    head = _common(before[start:], now[header:])
    tail = _common(before[start + head :][::-1], now[header + head :][::-1])
    pieces: list[Piece] = [now[:header], (start, start + head), now[header + head : len(now) - tail]]
    pieces.append((len(before) - tail, len(before)))
    return [piece for piece in pieces if piece and (isinstance(piece, bytes) or piece[0] < piece[1])]


def _header(cell: bytes) -> int:
    """How many bytes at the beginning say how many items follow: those change though nothing else does.

    They are the codec's version and MessagePack's header; of a deque, Counter and the like the header of the extension,
    what stands before the items (the greatest length, say), and the header of the items. A wrong guess costs nothing
    but bytes: what is taken for a header is written anew.
    """
    at = 1 + _length(cell, 1)
    if cell[1:2] in (b"\xc7", b"\xc8", b"\xc9"):
        if cell[at : at + 1] == b"\x92":
            at += 1
            at += _length(cell, at)
        at += _length(cell, at)
    return min(at, len(cell))


def _length(cell: bytes, at: int) -> int:
    """The length of the header of an object, or of the whole of one that has no items."""
    kind = cell[at] if at < len(cell) else 0xC0
    if 0xA0 <= kind <= 0xBF:
        return 1 + (kind & 31)
    return _LENGTHS.get(kind, 1)


# Of MessagePack's kinds that have more than one byte before their items, if they have any.
_LENGTHS = {0xDC: 3, 0xDD: 5, 0xDE: 3, 0xDF: 5, 0xC7: 3, 0xC8: 4, 0xC9: 6, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}


def _common(one: bytes, other: bytes) -> int:
    """How many bytes two texts have in common at their beginning."""
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    differs = np.frombuffer(one, np.uint8, size) != np.frombuffer(other, np.uint8, size)
    return int(differs.argmax())


def applied(delta: bytes, before: bytes) -> bytes:
    """The value that a delta makes of the one before it; StateError if it was made for another."""
    length, checksum, pieces = _unpacked(delta)
    if length != len(before) or checksum != zlib.crc32(before):
        raise StateError("a state value is damaged: what it was made of is not there")
    return b"".join(piece if isinstance(piece, bytes) else before[piece[0] : piece[1]] for piece in pieces)


def combined(later: bytes, earlier: bytes) -> bytes:
    """One delta with the meaning of two that follow one another, or the value, if the earlier is one."""
    if not is_delta(earlier):
        return applied(later, earlier)
    length, checksum, first = _unpacked(earlier)
    _, _, second = _unpacked(later)
    ends = np.cumsum([_size(piece) for piece in first])
    made: list[Piece] = []
    for piece in second:
        if isinstance(piece, bytes):
            _append(made, piece)
            continue
        at, stop = piece
        number = int(np.searchsorted(ends, at, side="right"))
        while at < stop:
            inner, begins = first[number], int(ends[number]) - _size(first[number])
            upto = min(stop, int(ends[number]))
            _append(made, _part(inner, at - begins, upto - begins))
            at, number = upto, number + 1
    return _packed(length, checksum, made)


def _size(piece: Piece) -> int:
    return len(piece) if isinstance(piece, bytes) else piece[1] - piece[0]


def _part(piece: Piece, start: int, stop: int) -> Piece:
    return piece[start:stop] if isinstance(piece, bytes) else (piece[0] + start, piece[0] + stop)


def _append(pieces: list[Piece], piece: Piece) -> None:
    """Put a piece behind others; neighbours that are one become one."""
    last = pieces[-1] if pieces else None
    if isinstance(last, bytes) and isinstance(piece, bytes):
        pieces[-1] = last + piece
    elif isinstance(last, tuple) and isinstance(piece, tuple) and last[1] == piece[0]:
        pieces[-1] = (last[0], piece[1])
    else:
        pieces.append(piece)


def _packed(length: int, checksum: int, pieces: list[Piece]) -> bytes:
    return _PREFIX + msgpack.packb([length, checksum, pieces])


def _unpacked(cell: bytes) -> tuple[int, int, list[Any]]:
    try:
        length, checksum, pieces = msgpack.unpackb(cell[1:])
        return length, checksum, [piece if isinstance(piece, bytes) else (piece[0], piece[1]) for piece in pieces]
    except (ValueError, TypeError, IndexError) as problem:
        raise StateError(f"a state value is damaged: {problem!r}") from None
