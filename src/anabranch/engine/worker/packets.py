"""Packets: what crosses a shuffle, and how positions are made without counting first.

A splitter task reads one Spark partition of the source. It cuts what it reads into **pieces**: runs of
rows that stand together in the source's order (one split of a file, one range of a Kafka partition). A
piece has a *coordinate*, bytes that sort as the source orders its pieces. Rows go to channels in packets, one
per (piece, chunk, channel), and every splitter tells every channel its pieces and their row counts in a
*header*. So each channel knows all pieces, sorts them, and gives every row the same dense position as
every other channel would: (rows in the pieces before) + (row in the piece).

A packet's coordinate is that of its piece, then the number of its first row. Spark sorts the few packets of a
channel by coordinate, not its rows. A packet is an Arrow batch of the rows and, where order matters, their trails.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.trails import Trails, encoded, joined, order_of

_END = struct.Struct(">Q")


def text_coordinate(text: str) -> bytes:
    """Bytes that sort as the text's UTF-8 does, and end where the text ends.

    Zero bytes are escaped, so that "a" sorts before "ab" whatever follows it.
    """
    return text.encode().replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def number_coordinate(number: int) -> bytes:
    """Bytes that sort as the (signed 64-bit) number does."""
    return _END.pack(number + 2**63)


def text_of(coordinate: bytes) -> str:
    """The text that `text_coordinate` made bytes of."""
    return coordinate[:-2].replace(b"\x00\xff", b"\x00").decode()


def number_of(coordinate: bytes) -> int:
    """The number that `number_coordinate` made bytes of."""
    (found,) = _END.unpack(coordinate)
    return int(found) - 2**63


class Positions:
    """Where each piece begins in the epoch, from the headers of all splitters."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._bases: dict[bytes, int] | None = None

    def add(self, pieces: Iterable[tuple[bytes, int]]) -> None:
        assert self._bases is None, "a header after the first data packet: packets are not sorted"
        for piece, count in pieces:
            # Two splitters with one piece would mean that Spark read a split twice.
            assert piece not in self._counts, "a piece was read twice"
            self._counts[piece] = count

    @property
    def total(self) -> int:
        """How many rows the epoch has."""
        return sum(self._counts.values())

    def base(self, piece: bytes) -> int:
        if self._bases is None:
            self._bases = {}
            at = 0
            for name in sorted(self._counts):
                self._bases[name] = at
                at += self._counts[name]
        return self._bases[piece]


def data_coordinate(piece: bytes, first_row: int) -> bytes:
    return piece + number_coordinate(first_row)


def piece_of(coordinate: bytes) -> bytes:
    return coordinate[:-8]


def pack(columns: Sequence[pa.Array], schema: pa.Schema, trails: Trails | None = None) -> bytes:
    """An Arrow batch without its schema, which both ends know; behind it the trails, if there are any."""
    return _packed(pa.RecordBatch.from_arrays(list(columns), schema=schema), trails)


def _packed(batch: pa.RecordBatch, trails: Trails | None) -> bytes:
    rows = batch.serialize()
    return rows.to_pybytes() if not trails else b"".join([rows, encoded(trails)])


def unpack(payload: bytes | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a packet; `trails.decoded` has their trails."""
    return pa.ipc.read_record_batch(pa.py_buffer(payload), schema)


def route(
    columns: Sequence[pa.Array],
    schema: pa.Schema,
    channels: np.ndarray,
    count: int,
    trails: Trails | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Cut a batch by channel: (channel, packet) for every channel that gets a row, rows in order."""
    if not len(channels):
        return
    if count == 1:
        yield 0, pack(columns, schema, trails)
        return
    narrow = channels.astype(np.uint8) if count <= 256 else channels.astype(np.uint16)  # radix sort
    order = np.argsort(narrow, kind="stable")
    sizes = np.bincount(channels, minlength=count)
    batch = pa.RecordBatch.from_arrays(list(columns), schema=schema).take(pa.array(order))
    sorted_trails = [digit[order] for digit in trails or ()]
    start = 0
    for channel in np.flatnonzero(sizes).tolist():
        stop = start + int(sizes[channel])
        yield channel, _packed(batch.slice(start, stop - start), [digit[start:stop] for digit in sorted_trails])
        start = stop


def merge(parts: Sequence[tuple[Trails, pa.Table]], schema: pa.Schema) -> pa.Table:
    """The tuples of all channels in one order: by their trails, which are all different.

    Parts that stand in order already, as those of one channel do, are not copied.
    """
    parts = [part for part in parts if part[1].num_rows]
    if not parts:
        return schema.empty_table()
    table = pa.concat_tables([rows for _, rows in parts])
    if len(parts) == 1:
        return table
    # Where every number occurs once, placing tuples by their numbers would do; it takes as long as this sort, which
    # finds the runs of the channels.
    order = order_of(joined([trails for trails, _ in parts]))
    if np.array_equal(order, np.arange(len(order))):
        return table
    return table.combine_chunks().take(pa.array(order))
