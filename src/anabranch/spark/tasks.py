"""What runs in Spark's Python workers: the splitter at the source, and the channels.

Both are callables over iterators of Arrow batches, as `mapInArrow` wants them. They carry the program as
bytes with a digest, so that a worker that stays alive unpickles a program once and not once per task.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
from pyspark import TaskContext, cloudpickle

from anabranch.compiler.graph import Node
from anabranch.compiler.stages import Stage
from anabranch.errors import AnabranchError, OrderError, error_from_json, error_to_json
from anabranch.flow.batches import Batch, BatchChannel
from anabranch.flow.clock import set_epoch_time
from anabranch.flow.packets import (
    HEADER,
    Positions,
    data_place,
    number_place,
    pack,
    piece_of,
    route,
    text_place,
    unpack,
)
from anabranch.flow.schema import Schema, to_values
from anabranch.partitioning.hashing import hash_columns
from anabranch.state.store import StateVersion

PACKET_COLUMNS = "channel int, place binary, payload binary"
PACKETS = pa.schema([("channel", pa.int32()), ("place", pa.binary()), ("payload", pa.binary())])
RESULT_COLUMNS = "kind int, channel int, place binary, payload binary"
RESULTS = pa.schema([("kind", pa.int32()), ("channel", pa.int32()), ("place", pa.binary()), ("payload", pa.binary())])
DATA, REPORT, FAILURE, PIECES = 0, 1, 2, 3

# Rows that go through the operators together: enough to make the work per batch small.
BATCH_ROWS = 32_768


@dataclasses.dataclass(frozen=True)
class Program:
    """The stages of a program, as every task of a query needs them."""

    source: Node
    stages: tuple[Stage, ...]
    order: str  # how the source's pieces are found: files, kafka, partition

    @property
    def output(self) -> Schema:
        """The columns of what the program delivers."""
        return self.schema_into(len(self.stages))

    def schema_into(self, stage: int) -> Schema:
        """The columns of the tuples that enter a stage."""
        for earlier in reversed(self.stages[:stage]):
            if earlier.nodes:
                return earlier.nodes[-1].schema
        return self.source.schema


_programs: dict[str, Program] = {}


@dataclasses.dataclass(frozen=True)
class Task:
    """What all tasks of an epoch have in common."""

    program: bytes
    digest: str
    epoch: int
    routes: Sequence[Any]  # per stage: its partitioning function (None for stage 0)

    def load(self) -> Program:
        found = _programs.get(self.digest)
        if found is None:
            _programs.clear()  # a worker serves one query at a time; what it served before is garbage
            found = _programs[self.digest] = cloudpickle.loads(self.program)
        return found


def packet_schema(columns: Schema, prolific: bool) -> pa.Schema:
    """Row number, emission index if the stage before may repeat a number, the columns."""
    numbers = [pa.field("#row", pa.int64())]
    if prolific:
        numbers.append(pa.field("#emission", pa.int32()))
    return pa.schema([*numbers, *columns.arrow])


class Router:
    """Sends the rows that leave a stage to the channels of the next."""

    def __init__(self, task: Task, program: Program, stage: int) -> None:
        self.next = program.stages[stage + 1]
        self.columns = program.schema_into(stage + 1)
        self.prolific = program.stages[stage].prolific
        self.schema = packet_schema(self.columns, self.prolific)
        self.key_places = [self.columns.names.index(name) for name in self.next.key]
        self.function = task.routes[stage + 1]
        self.multiplicity = 1

    def packets(self, piece: bytes, numbers: np.ndarray, columns: Sequence[pa.Array]) -> Iterator[Any]:
        if not len(numbers):
            return
        channels = self.function.route(hash_columns([columns[place] for place in self.key_places]))
        columns = list(columns)
        if self.prolific:
            emissions = _emission_index(numbers)
            self.multiplicity = max(self.multiplicity, int(emissions.max()) + 1)
            columns.insert(0, pa.array(emissions))
        place = data_place(piece, int(numbers[0]))
        for channel, payload in route(columns, self.schema, numbers, channels, self.function.channels):
            yield channel, place, payload

    def failure(self, error: AnabranchError) -> Iterator[Any]:
        """An error travels as data: Spark would retry the task, and bury the message in a stack trace."""
        payload = msgpack.packb({"failure": error_to_json(error)})
        for channel in range(self.function.channels):
            yield channel, HEADER, payload

    def headers(self, pieces: dict[bytes, int], report: dict[str, Any]) -> Iterator[Any]:
        header = {"pieces": list(pieces.items()), "multiplicity": self.multiplicity}
        for channel in range(self.function.channels):
            # Reports travel with the data that they are about, so a repeated task is counted once.
            payload = {**header, "reports": [report]} if channel == 0 else header
            yield channel, HEADER, msgpack.packb(payload)


def _emission_index(numbers: np.ndarray) -> np.ndarray:
    """0, 1, 2, … within each run of equal numbers."""
    count = len(numbers)
    starts = np.concatenate([[True], numbers[1:] != numbers[:-1]])
    first = np.maximum.accumulate(np.where(starts, np.arange(count), 0))
    return (np.arange(count) - first).astype(np.int32)


def _batches(rows: Iterator[tuple[Any, ...]], schema: pa.Schema, size: int = 16) -> Iterator[pa.RecordBatch]:
    waiting: list[tuple[Any, ...]] = []
    for row in rows:
        waiting.append(row)
        if len(waiting) == size:
            yield _record_batch(waiting, schema)
            waiting = []
    if waiting:
        yield _record_batch(waiting, schema)


def _record_batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


@dataclasses.dataclass(frozen=True)
class SplitTask(Task):
    """Reads a partition of the source, runs stage 0 on it, routes what comes out.

    A program without keyed operators has no other stage: what comes out is its result, piece by piece, and
    the driver puts the pieces in order.
    """

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if len(self.load().stages) == 1:
            return _batches(self._results(batches), RESULTS)
        return _batches(self._packets(batches), PACKETS)

    def _packets(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
        router = Router(self, self.load(), 0)
        pieces: dict[bytes, int] = {}
        report: dict[str, Any] = {}
        try:
            for piece, numbers, columns in self._outputs(batches, pieces, report):
                yield from router.packets(piece, numbers, columns)
        except AnabranchError as error:
            yield from router.failure(error)
            return
        yield from router.headers(pieces, report)

    def _results(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
        schema = result_schema(self.load())
        pieces: dict[bytes, int] = {}
        report: dict[str, Any] = {}
        try:
            for piece, numbers, columns in self._outputs(batches, pieces, report):
                if len(numbers):
                    yield (
                        DATA,
                        0,
                        data_place(piece, int(numbers[0])),
                        pack([pa.array(numbers), *columns], schema),
                    )
        except AnabranchError as error:
            yield FAILURE, 0, HEADER, error_to_json(error).encode()
            return
        yield PIECES, 0, HEADER, msgpack.packb(list(pieces.items()))
        yield REPORT, 0, HEADER, msgpack.packb(report)

    def _outputs(
        self, batches: Iterator[pa.RecordBatch], pieces: dict[bytes, int], report: dict[str, Any]
    ) -> Iterator[tuple[bytes, np.ndarray, list[pa.Array]]]:
        """What stage 0 makes of each run of rows: (piece, row numbers in it, columns)."""
        started = time.perf_counter()
        program = self.load()
        schema = program.source.schema
        nodes = program.stages[0].nodes
        channel = BatchChannel(nodes, {}, self.epoch)
        rows_in = rows_out = 0
        for batch in batches:
            rows_in += batch.num_rows
            for piece, start, stop in _pieces(program, batch):
                part = batch.slice(start, stop - start)
                first = pieces.get(piece, 0)
                pieces[piece] = first + part.num_rows
                columns = [part.column(at).cast(field.type) for at, field in enumerate(schema.arrow)]
                numbers = np.arange(first, first + part.num_rows)
                if nodes:
                    out = channel.run(Batch(schema, numbers.tolist(), columns=[to_values(c) for c in columns]))
                    numbers = np.array(out.positions, dtype=np.int64)
                    columns = nodes[-1].schema.arrays(out.columns)
                rows_out += len(numbers)
                yield piece, numbers, columns
        seconds = time.perf_counter() - started
        report.update({"stage": 0, "rows_in": rows_in, "rows_out": rows_out, "seconds": seconds})


def result_schema(program: Program) -> pa.Schema:
    """The columns of results: the position (or row in its piece), then the output's columns."""
    return pa.schema([pa.field("#position", pa.int64()), *program.output.arrow])


def partition_number() -> int:
    """Which partition this task has."""
    context = TaskContext.get()
    assert context is not None, "outside a Spark task"
    return context.partitionId()


def _pieces(program: Program, batch: pa.RecordBatch) -> Iterator[tuple[bytes, int, int]]:
    """The runs of rows of one piece in a batch: (piece, first row, end)."""
    count = batch.num_rows
    if not count:
        return
    if program.order == "partition":
        # Spark sorted the epoch: a partition's number says where it stands.
        yield number_place(partition_number()), 0, count
        return
    columns = batch.columns[len(program.source.schema.names) :]
    if program.order == "kafka":
        topic, partition, offset = columns
        for start, stop in _runs([topic, partition]):
            # A range of offsets may be cut into several partitions, so the first offset is part of the place.
            numbers = number_place(partition[start].as_py()) + number_place(offset[start].as_py())
            yield text_place(topic[start].as_py()) + numbers, start, stop
        return
    modified, path, block = columns
    for start, stop in _runs([path, block, modified]):
        name = path[start].as_py()
        if not name:
            raise OrderError(
                f"source {program.source.title}: Spark no longer knows which file a row came from, because the "
                "DataFrame was shuffled or joined before it was read. Read the files themselves, or name the "
                "columns that order the stream: read(df, order_by=[…])"
            )
        yield (
            number_place(modified[start].as_py()) + text_place(name) + number_place(block[start].as_py()),
            start,
            stop,
        )


def _runs(columns: Sequence[pa.Array]) -> Iterator[tuple[int, int]]:
    import pyarrow.compute as pc

    count = len(columns[0])
    changed = np.zeros(count, dtype=bool)
    for column in columns:
        if count > 1:
            changed[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(changed)
    yield from zip([0, *starts.tolist()], [*starts.tolist(), count], strict=True)


@dataclasses.dataclass(frozen=True)
class ChannelTask(Task):
    """One channel of a stage for one epoch: packets in, state in and out, packets or results out."""

    stage: int
    state: StateVersion

    @property
    def count(self) -> int:
        """How many channels the stage has."""
        return self.routes[self.stage].channels

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.run(batches, partition_number())

    def run(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        """The channel with this number over its packets, sorted by place."""
        if self.stage == len(self.load().stages) - 1:
            return _batches(self._results(batches, number), RESULTS)
        return _batches(self._packets(batches, number), PACKETS)

    def _results(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[tuple[Any, ...]]:
        program = self.load()
        schema = result_schema(program)
        reports: list[Any] = []
        try:
            for numbers, columns in self._outputs(batches, number, reports):
                if len(numbers):
                    yield DATA, number, HEADER, pack([pa.array(numbers), *columns], schema)
        except AnabranchError as error:
            yield FAILURE, number, HEADER, error_to_json(error).encode()
        for report in reports:
            yield REPORT, number, HEADER, msgpack.packb(report)

    def _packets(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[tuple[Any, ...]]:
        program = self.load()
        router = Router(self, program, self.stage)
        reports: list[Any] = []
        try:
            for numbers, columns in self._outputs(batches, number, reports):
                yield from router.packets(b"", numbers, columns)
        except AnabranchError as error:
            yield from router.failure(error)
            return
        for at, (channel, place, payload) in enumerate(router.headers({}, reports[-1])):
            if at == 0 and len(reports) > 1:
                payload = msgpack.packb({**msgpack.unpackb(payload), "reports": reports})
            yield channel, place, payload

    def _outputs(
        self, batches: Iterator[pa.RecordBatch], number: int, reports: list[Any]
    ) -> Iterator[tuple[np.ndarray, list[pa.Array]]]:
        started = time.perf_counter()
        program = self.load()
        stage = program.stages[self.stage]
        state = self.state(number)
        set_epoch_time(self.state.clock_ms)
        nodes = stage.nodes
        channel = BatchChannel(nodes, state.open(nodes), self.epoch)
        rows_in = rows_out = 0
        busy = 0.0
        for batch in self._inputs(batches, program, reports):
            begun = time.perf_counter()
            rows_in += len(batch)
            out = channel.run(batch)
            rows_out += len(out)
            numbers = np.array(out.positions, dtype=np.int64)
            columns = out.schema.arrays(out.columns)
            busy += time.perf_counter() - begun
            yield numbers, columns
        begun = time.perf_counter()
        segments = state.save(nodes)
        finished = time.perf_counter()
        reports.append(
            {
                "stage": self.stage,
                "channel": number,
                "rows_in": rows_in,
                "rows_out": rows_out,
                "seconds": finished - started,
                "busy_seconds": busy,
                "state_seconds": finished - begun,
                "segments": segments,
                "damaged": state.damaged,
            }
        )

    def _inputs(self, batches: Iterator[pa.RecordBatch], program: Program, reports: list[Any]) -> Iterator[Batch]:
        schema = program.schema_into(self.stage)
        prolific = program.stages[self.stage - 1].prolific
        arrow = packet_schema(schema, prolific)
        positions = Positions()
        multiplicity = 1
        waiting: list[tuple[np.ndarray, pa.RecordBatch]] = []
        size = 0
        interleaved = self.stage > 1  # packets of several channels: rows must be sorted, not packets
        for record in batches:
            for place, payload in zip(record.column(0).to_pylist(), record.column(1), strict=True):
                if place == HEADER:
                    header = msgpack.unpackb(payload.as_buffer())
                    if "failure" in header:
                        raise error_from_json(header["failure"])
                    positions.add(header["pieces"])
                    multiplicity = max(multiplicity, header["multiplicity"])
                    reports.extend(header.get("reports", ()))
                    continue
                rows = unpack(payload.as_buffer(), arrow)
                numbers = rows.column(0).to_numpy()
                if not interleaved:
                    numbers = numbers + positions.base(piece_of(place))
                if prolific:
                    numbers = numbers * multiplicity + rows.column(1).to_numpy()
                waiting.append((numbers, rows))
                size += len(numbers)
                if size >= BATCH_ROWS and not interleaved:
                    yield self._batch(waiting, schema, sort=False)
                    waiting, size = [], 0
        if waiting:
            yield self._batch(waiting, schema, sort=interleaved)

    def _batch(self, waiting: list[tuple[np.ndarray, pa.RecordBatch]], schema: Schema, sort: bool) -> Batch:
        numbers = np.concatenate([numbers for numbers, _ in waiting])
        table = pa.Table.from_batches([rows for _, rows in waiting])
        if sort:
            order = np.argsort(numbers, kind="stable")
            numbers, table = numbers[order], table.take(pa.array(order))
        columns = [to_values(table.column(name)) for name in schema.names]
        return Batch(schema, numbers.tolist(), columns=columns)


@dataclasses.dataclass(frozen=True)
class MergeTask:
    """Merges segments of one channel of one operator."""

    state: StateVersion

    def __call__(self, wanted: tuple[str, int, list[Any]]) -> dict[str, Any]:
        operator, channel, records = wanted
        state = self.state(channel)
        return state.merge(operator, records, is_all=len(records) == len(state.visible(operator)))
