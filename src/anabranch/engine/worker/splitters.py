"""Splitters: tasks that read a partition of the sources and send its tuples to the channels of the first depth.

A splitter also runs what needs no state and reads only its source: those steps run where the tuples are.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.engine.reports import ElasticReport, SplitReport
from anabranch.engine.worker.batch import ColumnBatch
from anabranch.engine.worker.exchange import Outbox, Row, batches_of
from anabranch.engine.worker.file_pieces import FilePiece, SourceRows, read_pieces
from anabranch.engine.worker.late_columns import LateColumn
from anabranch.engine.worker.local_channels import LocalChannels
from anabranch.engine.worker.needed_columns import Needed, everything, needed_of
from anabranch.engine.worker.output_files import OutputFiles, Target
from anabranch.engine.worker.packets import number_coordinate, text_coordinate, unpack
from anabranch.engine.worker.retracing import Failure, RetracedStage
from anabranch.engine.worker.stage import StageRun
from anabranch.engine.worker.stage_flow import Flow
from anabranch.engine.worker.tasks import Program, Task, met
from anabranch.engine.worker.worker_pools import POOLS
from anabranch.errors import AnabranchError, InputError, OrderError
from anabranch.operators.epoch_context import running
from anabranch.program.graph import Node
from anabranch.program.misfits import MisfitError
from anabranch.state.store import StateVersion


class _Splitter:
    """Runs the steps of a source's stage on what is read of it, piece by piece."""

    def __init__(self, task: Task, program: Program, source: Node, pieces: dict[bytes, int]) -> None:
        self.source = source
        self._required = [at for at, field in enumerate(source.schema.arrow) if not field.nullable]
        self.prefix = program.prefix(source)
        self._pieces = pieces
        stage = program.stage_of(source)
        self.sampler = task.sampler(program.layout, stage, {})
        self._run: StageRun | RetracedStage
        if task.retraces:
            self._run = RetracedStage(program.layout, stage, {}, task.epoch, times=task.times)
        else:
            more = (None, task.times, POOLS.step, self.sampler, task.watched, POOLS.unordered_step)
            self._run = StageRun(program.layout, stage, {}, task.epoch, task.clock_ms, *more, task.columns)
        self.nodes = program.layout.nodes(stage)
        self.failures: dict[bytes, Failure] = {}
        """Piece → the error that was met in it while retracing."""
        self.rows_in = 0
        self.busy_seconds = 0.0
        self._clock = task.clock

    @property
    def entered(self) -> dict[str, int]:
        """Operator → tuples that entered it."""
        return self._run.entered

    @property
    def reached(self) -> dict[str, int]:
        """Watermark → how far it has come, of those that had tuples here."""
        return self._run.reached

    def leaving(self, piece: bytes, columns: Sequence[pa.Array | LateColumn]) -> Iterator[tuple[bytes, Any]]:
        """What leaves for a run of rows of a piece: (piece, leaving)."""
        piece = self.prefix + piece
        count = len(columns[0])
        first = self._pieces.get(piece, 0)
        self._pieces[piece] = first + count
        self.rows_in += count
        if piece in self.failures:
            return
        for at in self._required:
            if columns[at].null_count:
                self._refuse(at)
        numbers = np.arange(first, first + count)
        batch = ColumnBatch(self.source.schema, range(count), columns)
        begun = self._clock.passing_s()
        leaving = self._run.run(Flow(batch, [numbers]))
        self.busy_seconds += self._clock.passing_s() - begun
        if isinstance(self._run, RetracedStage) and self._run.failure is not None:
            # Other pieces may stand before this one.
            self.failures[piece] = dataclasses.replace(self._run.failure, piece=piece.hex())
            self._run.failure = None
        for each in leaving:
            yield piece, each

    def _refuse(self, at: int) -> None:
        """A null where there must be a value."""
        try:
            self.source.schema.exact_column(at, [None])
        except MisfitError as problem:
            raise InputError(f"source {self.source.title}: a row does not fit its schema: {problem}") from None

    def finish(self, piece: bytes) -> Iterator[tuple[bytes, Any]]:
        """All was read, this piece last: what leaves of calls that are still under way."""
        if isinstance(self._run, StageRun):
            begun = self._clock.passing_s()
            leaving = self._run.finish()
            self.busy_seconds += self._clock.passing_s() - begun
            for each in leaving:
                yield self.prefix + piece, each


@dataclasses.dataclass(frozen=True)
class SplitTask(Task):
    """Reads a partition of the sources, runs what needs no state, sends what comes out to its channels.

    With one source, a batch has its columns, as far as `handed` says, and those of its order. With several there is the
    number of the source, and for each source a struct of these columns.
    """

    state: StateVersion | None = None  # for stages with state that run here
    pieces: Mapping[int, Target] = dataclasses.field(default_factory=dict, kw_only=True)  # exits, in whole pieces
    pieces_from: int = dataclasses.field(default=0, kw_only=True)  # if the epoch has so many bytes, and they are known
    handed: tuple[Needed, ...] = dataclasses.field(default=(), kw_only=True)  # what Spark gives of sources; (): all

    def run(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        """The task of a partition of the sources."""
        return batches_of(self.rows(batches, number))

    def rows(self, batches: Iterator[pa.RecordBatch], whom: int) -> Iterator[Row]:
        """What the task with this number sends for what Spark read."""
        pieces = self.pieces if not self.pieces_from else {}
        return self.rows_of(self._pieces(batches, whom), whom, pieces, apart=True)

    def over(self, size: int) -> SplitTask:
        """The task for an epoch that has so many bytes."""
        return self if size >= self.pieces_from else dataclasses.replace(self, pieces={})

    def rows_of_files(self, pieces: Sequence[FilePiece], whom: int) -> Iterator[Row]:
        """What the task with this number sends for pieces of files that it reads itself.

        If it writes them (`pieces`), tasks with higher numbers have later ones.
        """
        return self.rows_of(read_pieces(pieces, self.needed()), whom, self.pieces)

    def needed(self) -> list[Needed]:
        """What is read of each source."""
        program = self.load()
        if self.retraces or self.sampling is not None:  # an error shows all of its tuple, and so does what is run again
            return [everything(source.schema) for source in program.inputs]
        further, tests = "needed" in self.columns, "filters" in self.columns
        return [needed_of(program.layout, source, further, tests) for source in program.inputs]

    def rows_of(
        self,
        read: Iterator[SourceRows],
        whom: int,
        pieces: Mapping[int, Target] | None = None,
        apart: bool = False,
    ) -> Iterator[Row]:
        """What the task with this number sends for what is read; of some exits it writes pieces, perhaps `apart`."""
        program = self.load()
        files = OutputFiles(program.layout, self.files, self.epoch, (0, whom), pieces, apart)
        with running(self.context()):
            yield from self._rows(read, whom, files)

    def _rows(self, read: Iterator[SourceRows], whom: int, files: OutputFiles) -> Iterator[Row]:
        began, started = self.clock.now_s(), self.clock.passing_s()
        oldest: float | None = None
        program = self.load()
        outbox = self.outbox(program.layout, 0, whom)
        pieces: dict[bytes, int] = {}
        local = LocalChannels(self, program)
        splitters = [_Splitter(self, program, source, pieces) for source in program.inputs]
        rows_out = 0
        try:
            last: dict[int, bytes] = {}  # source → the piece that was read last
            for part in read:
                last[part.source] = part.coordinate
                if part.modified_ms is not None:
                    oldest = part.modified_ms if oldest is None else min(oldest, part.modified_ms)
                for coordinate, each in splitters[part.source].leaving(part.coordinate, part.columns):
                    rows_out += len(each.trails[0])
                    for sent in local.through(each, coordinate):
                        if not files.takes(sent, coordinate):
                            yield from outbox.leaving(sent, coordinate)
            for number, at in last.items():
                for coordinate, each in splitters[number].finish(at):
                    rows_out += len(each.trails[0])
                    if not files.takes(each, coordinate):
                        yield from outbox.leaving(each, coordinate)
            local.finish()
        except AnabranchError as error:
            files.abandon()
            yield from outbox.failure(error)
            return
        for failure in (each for splitter in splitters for each in splitter.failures.values()):
            yield outbox.met(failure)
        written = files.close()
        yield from _samples(splitters, outbox)
        yield from outbox.header(list(pieces.items()))
        rows_in = {s.source.name: s.rows_in for s in splitters}
        seconds = self.clock.passing_s() - started
        entered = _entered(splitters)
        busy = {s.source.name: s.busy_seconds for s in splitters}
        report = SplitReport(began, seconds, rows_out, rows_in, oldest, entered, busy, written)
        report = dataclasses.replace(report, watermarks=_reached(splitters), elastic=_elastic(splitters))
        yield outbox.report(dataclasses.replace(report, anomalies=met()))
        for each in local.reports():
            yield outbox.passed(each)
        for data in local.samples():
            yield outbox.sample(data)

    def _pieces(self, batches: Iterator[pa.RecordBatch], whom: int) -> Iterator[SourceRows]:
        """What Spark read, piece by piece."""
        program = self.load()
        handed = self.handed or [everything(source.schema) for source in program.inputs]
        for number, batch in self._by_source(batches, len(program.inputs)):
            source, needed = program.inputs[number], handed[number]
            order, ordering = program.orders[source.name], batch.columns[len(needed.read) :]
            for coordinate, start, stop in _pieces(source, order, ordering, len(batch), whom):
                part = batch.slice(start, stop - start)
                modified = ordering[0][start].as_py() / 1000 if order == "files" else None
                yield SourceRows(number, coordinate, needed.filled(part), modified)

    def _by_source(self, batches: Iterator[pa.RecordBatch], count: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            if count == 1:
                yield 0, batch
                continue
            numbers = batch.column(0)
            for start, stop in _runs([numbers]):
                number = numbers[start].as_py()
                struct = batch.column(1 + number).slice(start, stop - start)
                yield number, pa.RecordBatch.from_arrays(struct.flatten(), names=[f.name for f in struct.type])


FED_BACK = pa.schema([("loop", pa.int32()), ("first", pa.int64()), ("payload", pa.binary())])


def fed_back_batches(given: Sequence[tuple[int, int, bytes]]) -> list[pa.RecordBatch]:
    """What was fed back, as the task takes it."""
    rows = [dict(zip(FED_BACK.names, row, strict=True)) for row in given]
    return [pa.RecordBatch.from_pylist(rows, FED_BACK)]


@dataclasses.dataclass(frozen=True)
class FeedbackTask(Task):
    """Takes tuples that were fed back: rows of (loop, number of the first tuple, an Arrow batch)."""

    def run(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        """The task of a partition of what was fed back."""
        return batches_of(self.rows(batches, number))

    def rows(self, batches: Iterator[pa.RecordBatch], whom: int = 0) -> Iterator[Row]:
        """What the task sends."""
        with running(self.context()):
            yield from self._rows(batches, whom)

    def _rows(self, batches: Iterator[pa.RecordBatch], whom: int) -> Iterator[Row]:
        began, started = self.clock.now_s(), self.clock.passing_s()
        program = self.load()
        outbox = self.outbox(program.layout, 0, 0)
        files = OutputFiles(program.layout, self.files, self.epoch, (-1, whom))
        pieces: dict[bytes, int] = {}
        rows_out = 0
        splitters: list[_Splitter] = []
        try:
            for batch in batches:
                for loop, first, payload in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    source = program.loops[loop]
                    splitter = _Splitter(self, program, source, pieces)
                    splitters.append(splitter)
                    columns = unpack(payload, source.schema.arrow).columns
                    place = number_coordinate(first)
                    for piece, each in itertools.chain(splitter.leaving(place, columns), splitter.finish(place)):
                        rows_out += len(each.trails[0])
                        if not files.takes(each):
                            yield from outbox.leaving(each, piece)
        except AnabranchError as error:
            files.abandon()
            yield from outbox.failure(error)
            return
        for failure in (each for splitter in splitters for each in splitter.failures.values()):
            yield outbox.met(failure)
        written = files.close()
        yield from _samples(splitters, outbox)
        yield from outbox.header(list(pieces.items()))
        # No row was read from a source. What was fed back is routed, and so counted, like any other.
        seconds = self.clock.passing_s() - started
        entered = _entered(splitters)
        report = SplitReport(began, seconds, rows_out, operators=entered, files=written, anomalies=met())
        yield outbox.report(dataclasses.replace(report, watermarks=_reached(splitters), elastic=_elastic(splitters)))


def _reached(splitters: Sequence[_Splitter]) -> dict[str, int]:
    """Watermark → how far it has come, in all stages of a task."""
    found: dict[str, int] = {}
    for splitter in splitters:
        for name, value in splitter.reached.items():
            found[name] = max(value, found.get(name, value))
    return found


def _samples(splitters: Sequence[_Splitter], outbox: Outbox) -> Iterator[Row]:
    for splitter in splitters:
        for sample in splitter.sampler.samples() if splitter.sampler is not None else ():
            yield outbox.sample(sample.to_bytes())


def _entered(splitters: Sequence[_Splitter]) -> dict[str, int]:
    """Operator → tuples that entered it, in all stages of a task."""
    found: dict[str, int] = {}
    for splitter in splitters:
        for name, rows in splitter.entered.items():
            found[name] = found.get(name, 0) + rows
    return found


def _elastic(splitters: Sequence[_Splitter]) -> tuple[ElasticReport, ...]:
    return POOLS.reports(node for splitter in splitters for node in splitter.nodes)


def _pieces(
    source: Node, order: str, columns: Sequence[pa.Array], count: int, partition_number: int
) -> Iterator[tuple[bytes, int, int]]:
    """The runs of rows of one piece in a batch whose order these columns tell: (piece, first row, end)."""
    if not count:
        return
    if order == "partition":
        # Spark sorted the epoch: a partition's number says where it stands.
        yield number_coordinate(partition_number), 0, count
        return
    if order == "kafka":
        topic, partition, offset = columns
        for start, stop in _runs([topic, partition]):
            # A range of offsets may be cut into several partitions, so the first offset is part of the coordinate.
            numbers = number_coordinate(partition[start].as_py()) + number_coordinate(offset[start].as_py())
            yield text_coordinate(topic[start].as_py()) + numbers, start, stop
        return
    modified, path, block = columns
    for start, stop in _runs([path, block, modified]):
        name = path[start].as_py()
        if not name:
            raise OrderError(
                f"source {source.title}: Spark no longer knows which file a row came from, because the "
                "DataFrame was shuffled or joined before it was read. Read the files themselves, or name the "
                "columns that order the stream: read(df, order_by=[…])"
            )
        written, begins = modified[start].as_py(), block[start].as_py()
        yield number_coordinate(written) + text_coordinate(name) + number_coordinate(begins), start, stop


def _runs(columns: Sequence[pa.Array]) -> Iterator[tuple[int, int]]:
    count = len(columns[0])
    changed = np.zeros(count, dtype=bool)
    for column in columns:
        if count > 1:
            changed[1:] |= pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(changed)
    yield from zip([0, *starts.tolist()], [*starts.tolist(), count], strict=True)
