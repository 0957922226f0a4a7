"""What crosses the shuffles of an epoch: rows of (task, order, payload).

    depth 0 ─┐ shuffle ┌─ depth 1 ─┐ shuffle ┌─ depth 2 ─► driver
             └─────────┘           └─────────┘

A task has an **index** among those of its depth: it is one channel of one stage. `order` says what the row is
and sorts the few rows of a task, so that what must be known first comes first:

    0  a failure             the task passes it on and does nothing else
    1  a header              the pieces of the sources and their row counts: they make numbers into positions
    2  data                  edge, coordinate; the payload is a packet: an Arrow batch, then trails
    3  punctuations          edge; the payload is trails
    4  advances              edge, which of its watermarks; the payload is trails and values
    5  data for later        depth, index, and what is below: handed on
    6  a result              exit, edge, coordinate
    7  a report              what a task did
    8  an error that was met  while an epoch that failed is retraced (`retracing`)
    9  a sample              what a step did with keys that are run again (`sampling`)

What an early stage has for the driver is handed on from depth to depth.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa

from anabranch.compiler.layout.stages import Edge, Layout, Stage
from anabranch.engine.reports import ChannelReport, Report, RoutedKeys, SplitReport, to_bytes
from anabranch.engine.worker.packets import data_coordinate, number_coordinate, pack, route
from anabranch.engine.worker.retracing import Failure
from anabranch.engine.worker.stage_flow import Leaving
from anabranch.engine.worker.trails import Trails, encoded
from anabranch.errors import AnabranchError, OutputTooLarge, error_to_json
from anabranch.partitioning.counting.tally import Tally
from anabranch.program.hashing import hash_columns

ROW_COLUMNS = "task int, order binary, payload binary"
ROWS = pa.schema([("task", pa.int32()), ("order", pa.binary()), ("payload", pa.binary())])
FAILURE, HEADER, DATA, MARKS, ADVANCES, LATER, RESULT, REPORT, MET, SAMPLE = range(10)

_EDGE = struct.Struct(">BH")
_RESULT = struct.Struct(">BHH")
_LATER = struct.Struct(">BBI")

Row = tuple[int, bytes, bytes]
Arriving = tuple[bytes, "pa.Scalar | Payload"]
"""A row that arrives at a task: its order and its payload."""


@dataclasses.dataclass(frozen=True)
class TaskIndexes:
    """Which task of a depth is which channel of which stage."""

    first: Mapping[int, int]  # stage → its first index
    counts: Mapping[int, int]  # stage → its channels

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    def stage_of(self, index: int) -> tuple[int, int]:
        """The stage and the channel of a task."""
        for stage, first in self.first.items():
            if first <= index < first + self.counts[stage]:
                return stage, index - first
        raise AssertionError(f"no task {index}")


def task_indexes(layout: Layout, depth: int, functions: Mapping[int, Any]) -> TaskIndexes:
    """The tasks of a depth."""
    first: dict[int, int] = {}
    counts: dict[int, int] = {}
    for stage in layout.at_depth(depth):
        first[stage.number] = sum(counts.values())
        counts[stage.number] = functions[stage.number].channels
    return TaskIndexes(first, counts)


@dataclasses.dataclass(frozen=True)
class DriverShare:
    """How much of outputs that tasks could write may pass through the driver."""

    exits: frozenset[int] = frozenset()
    task_bytes: int = 0
    """Of a task."""


class Outbox:
    """Addresses what leaves a task.

    Parameters
    ----------
    layout : Layout
    depth : int
        Of the task.
    functions : mapping
        Stage → its partitioning function.
    whom : int
        The number of the task: what only has to be handed on is dealt out by it.
    epoch : int
        Which rows are looked at more closely, to find frequent keys, differs from epoch to epoch and task to task.
    sent : callable
        The columns that travel on an edge.
    bounds : DriverShare
        How much of the outputs may pass through the driver.
    """

    def __init__(
        self,
        layout: Layout,
        depth: int,
        functions: Mapping[int, Any],
        whom: int,
        epoch: int,
        sent: Callable[[Layout, Edge], pa.Schema],
        bounds: DriverShare,
    ) -> None:
        self._layout = layout
        self._sent = sent
        self._depth = depth
        self._functions = functions
        self._indexes = {at: task_indexes(layout, at, functions) for at in range(depth + 1, layout.depth + 1)}
        self._next = self._indexes.get(depth + 1)
        self._whom = whom % self._next.count if self._next is not None else 0
        self._epoch = epoch
        self._producer = number_coordinate(whom)
        self._packets = 0
        self._tallies: dict[int, Tally] = {}
        self._bounds = bounds
        self._for_driver = 0

    def leaving(self, leaving: Leaving, piece: bytes = b"") -> Iterator[Row]:
        """Tuples and punctuations that leave a stage."""
        edge, trails = leaving.edge, leaving.trails
        if len(trails[0]):
            coordinate = self._coordinate(edge, piece, trails)
            if edge.target < 0:
                schema = self._layout.steps[edge.source].node.schema.arrow
                packet = pack(leaving.columns, schema, trails if edge.ordered else None)
                if edge.place in self._bounds.exits:
                    self._count(len(packet))
                yield self._on(_RESULT.pack(RESULT, edge.place, edge.number) + coordinate, packet)
            else:
                yield from self._data(edge, coordinate, trails, leaving.columns)
        if leaving.marks is not None and len(leaving.marks[0]):
            order = _EDGE.pack(MARKS, edge.number) + data_coordinate(piece, int(leaving.marks[0][0]))
            yield from self._to_all(edge, order, encoded(leaving.marks))
        for each in leaving.advances:
            if len(each.values):
                which = _EDGE.pack(ADVANCES, edge.number) + bytes([edge.watermarks.index(each.name)])
                order = which + data_coordinate(piece, int(each.trails[0][0]))
                yield from self._to_all(edge, order, encoded([*each.trails, each.values]))

    def _count(self, size: int) -> None:
        """Of what could be written by tasks, so many bytes more go to the driver."""
        self._for_driver += size
        if self._for_driver > self._bounds.task_bytes:
            raise OutputTooLarge(f"a task has more than {self._bounds.task_bytes} bytes of output for the driver")

    def _to_all(self, edge: Edge, order: bytes, payload: bytes) -> Iterator[Row]:
        """To every channel of the stage that an edge leads to."""
        target = self._layout.stages[self._layout.steps[edge.target].stage]
        for channel in range(self._functions[target.number].channels):
            yield self._to(target, channel, order, payload)

    def _coordinate(self, edge: Edge, piece: bytes, trails: Trails) -> bytes:
        """Where a packet stands among others: by its first position or, if it has none, behind its producer's last."""
        if edge.ordered or piece:
            return data_coordinate(piece, int(trails[0][0]))
        self._packets += 1
        return data_coordinate(self._producer, self._packets)

    def _data(self, edge: Edge, coordinate: bytes, trails: Trails, columns: Sequence[pa.Array]) -> Iterator[Row]:
        target = self._layout.stages[self._layout.steps[edge.target].stage]
        function = self._functions[target.number]
        order = _EDGE.pack(DATA, edge.number) + coordinate
        schema = self._layout.steps[edge.source].node.schema
        if edge.to_all:
            yield from self._to_all(edge, order, pack(columns, schema.arrow, trails))
            return
        if edge.key:
            hashes = hash_columns([columns[schema.names.index(name)] for name in edge.key])
            self._tally(target.number).add(hashes)
            channels = function.route(hashes)
        elif target.kind == "spread":
            # Pieces begin at different channels, or short pieces would all end with the first ones.
            channels = ((trails[0] + zlib.crc32(coordinate[:-8])) % function.channels).astype(np.int32)
        else:
            channels = np.zeros(len(trails[0]), dtype=np.int32)
        only = self._sent(self._layout, edge)
        if len(only) < len(columns):
            columns = [columns[schema.names.index(name)] for name in only.names]
        numbers = trails if edge.ordered else None
        for channel, payload in route(columns, only, channels, function.channels, numbers):
            yield self._to(target, channel, order, payload)

    def _tally(self, stage: int) -> Tally:
        found = self._tallies.get(stage)
        if found is None:
            found = self._tallies[stage] = Tally(self._epoch << 24 ^ self._depth << 16 ^ self._whom)
        return found

    def _to(self, stage: Stage, channel: int, order: bytes, payload: bytes) -> Row:
        index = self._indexes[stage.depth].first[stage.number] + channel
        if stage.depth == self._depth + 1:
            return index, order, payload
        return self._on(_LATER.pack(LATER, stage.depth, index) + order, payload)

    def result(self, leaving: Leaving, index: int) -> Row:
        """Tuples that leave the program, to a merger."""
        edge = leaving.edge
        schema = self._layout.steps[edge.source].node.schema.arrow
        order = _RESULT.pack(RESULT, edge.place, edge.number) + data_coordinate(b"", int(leaving.trails[0][0]))
        packet = pack(leaving.columns, schema, leaving.trails)
        if self._depth == self._layout.depth:
            return index, order, packet
        return self._on(_LATER.pack(LATER, self._layout.depth + 1, index) + order, packet)

    def _on(self, order: bytes, payload: bytes) -> Row:
        return self._whom, order, payload

    def everywhere(self, order: bytes, payload: bytes) -> Iterator[Row]:
        """To every task of the next depth; to the driver, once."""
        for index in range(self._next.count if self._next is not None else 1):
            yield index, order, payload

    def failure(self, error: AnabranchError) -> Iterator[Row]:
        """An error travels as data: Spark would retry the task, and bury the message in a stack trace."""
        return self.everywhere(bytes([FAILURE, self._depth]), error_to_json(error).encode())

    def met(self, failure: Failure) -> Row:
        """An error that was met while retracing, for the driver."""
        return self._on(bytes([MET]), failure.to_bytes())

    def header(self, pieces: Sequence[tuple[bytes, int]]) -> Iterator[Row]:
        """The pieces that a splitter read, to all who make positions of numbers in them."""
        return self.everywhere(bytes([HEADER]), msgpack.packb(list(pieces)))

    def report(self, report: SplitReport | ChannelReport) -> Row:
        """What the task did, and what it counted of the keys it routed."""
        keys = tuple(RoutedKeys(stage, tally.to_report()) for stage, tally in self._tallies.items())
        return self._on(*report_row(dataclasses.replace(report, keys=keys))[1:])

    def passed(self, report: ChannelReport) -> Row:
        """What a channel did that runs in the same task."""
        return self._on(*report_row(report)[1:])

    def sample(self, data: bytes) -> Row:
        """What a step did with keys that are to be run again, to the driver."""
        return self._on(bytes([SAMPLE]), data)

    def handed_on(self, order: bytes, payload: bytes) -> Row:
        """What was not for the task that has it."""
        if order[0] == LATER:
            _, depth, index = _LATER.unpack_from(order)
            if depth == self._depth + 1:
                return index, order[_LATER.size :], payload
        return self._on(order, payload)


def report_row(report: Report) -> Row:
    """What a task did, to the driver."""
    return 0, bytes([REPORT]), to_bytes(report)


def edge_of(order: bytes) -> tuple[int, bytes]:
    """The edge and the coordinate of data or punctuations."""
    return _EDGE.unpack_from(order)[1], order[_EDGE.size :]


def result_of(order: bytes) -> tuple[int, int, bytes]:
    """The exit, the edge and the coordinate of a result."""
    _, exit_number, edge = _RESULT.unpack_from(order)
    return exit_number, edge, order[_RESULT.size :]


def is_relative(layout: Layout, edge: Edge) -> bool:
    """Whether the numbers on an edge count from the start of a piece, because they were made where it was read."""
    return layout.stages[layout.steps[edge.source].stage].is_at_source


def needs_pieces(layout: Layout, depth: int) -> bool:
    """Whether a depth, or a later one, or the driver, gets numbers that count from the start of a piece."""
    for edge in layout.edges:
        if edge.ordered and is_relative(layout, edge) and (edge.crosses or edge.target < 0):
            at = layout.depth + 1
            if edge.target >= 0:
                at = layout.stages[layout.steps[edge.target].stage].depth
            if at >= depth:
                return True
    return False


class Payload:
    """A payload that came as bytes, as tasks take it: like Arrow's own scalars, without a copy."""

    __slots__ = ("_data",)

    def __init__(self, data: memoryview) -> None:
        self._data = data

    def as_buffer(self) -> pa.Buffer:
        return pa.py_buffer(self._data)

    def as_py(self) -> bytes:
        return bytes(self._data)


def arriving_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Arriving]:
    """Rows (order, payload) that came as Arrow batches."""
    for batch in batches:
        yield from zip(batch.column(0).to_pylist(), batch.column(1), strict=True)


def table_of(rows: Iterator[Row]) -> pa.Table:
    """Rows as the driver takes them."""
    return pa.Table.from_batches(batches_of(rows), ROWS)


def batches_of(rows: Iterator[Row], size: int = 16) -> Iterator[pa.RecordBatch]:
    """Rows as Arrow batches, a few at a time."""
    waiting: list[Row] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == size:
            yield _batch(waiting)
            waiting = []
    if waiting:
        yield _batch(waiting)


def _batch(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)
