"""Files of output that tasks write themselves: under names that nobody reads until the driver says so.

    a task ─► _staged-<epoch>-<number>-<at random>     the driver, when the epoch is whole ─► part-<epoch>-<number>

A task that is repeated writes another file, and the driver publishes the one whose task reported it. Three kinds of
tasks write, and no tuple of theirs passes through the driver:

- mergers, a range of positions in order each (`output_mergers`);
- where an output need not be in total order, whoever makes its tuples;
- where the tuples of an output are made where a source is read, whoever reads: pieces of a source stand one after the
  other, so files of whole pieces do too, and nothing has to be sorted.
"""

from __future__ import annotations

import dataclasses
import os
import uuid
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.compiler.layout.stages import Layout
from anabranch.engine.reports import WrittenFile
from anabranch.engine.worker.stage import Leaving
from anabranch.program.graph import Feedback

STAGED = "_staged-"


@dataclasses.dataclass(frozen=True)
class Target:
    """Where tasks write the tuples of an exit: a directory that every process can open."""

    directory: str
    compression: str


def staged_name(epoch: int, number: int) -> str:
    """A name for a task's file that no other attempt has."""
    return f"{STAGED}{epoch:012d}-{number:05d}-{uuid.uuid4().hex[:12]}.parquet"


def unordered(layout: Layout, number: int) -> bool:
    """Whether the tuples of an exit come without positions, so that those who make them can write them."""
    return not any(layout.edges[at].ordered for at in layout.exits[number].edges)


def in_pieces(layout: Layout, number: int) -> bool:
    """Whether the tuples of an exit are made piece by piece where sources are read, by one edge for each source."""
    edges = [layout.edges[at] for at in layout.exits[number].edges]
    stages = [layout.stages[layout.steps[edge.source].stage] for edge in edges]
    fed_back = any(isinstance(layout.steps[stage.steps[0]].node.logic, Feedback) for stage in stages)
    at_sources = all(stage.kind == "source" for stage in stages) and not fed_back
    one_each = len({stage.number for stage in stages}) == len(stages)
    return at_sources and one_each and all(edge.ordered for edge in edges)


@dataclasses.dataclass
class _OpenFile:
    """A file that is being written."""

    writer: pq.ParquetWriter
    name: str
    first: bytes
    """Where its first piece stands."""
    piece: bytes
    """The piece that was written last."""
    rows: int = 0
    bytes: int = 0


class OutputFiles:
    """What one task writes of the outputs: a file for each it has tuples of; or one for each piece.

    Parameters
    ----------
    layout : Layout
    targets : mapping
        Exit → where its tuples are written, whatever their order.
    epoch : int
    place : (int, int)
        The stage and the number of the task: files are published in this order.
    pieces : mapping
        Exit → where its tuples are written piece by piece, in order.
    apart : bool
        Whether each piece is a file of its own, because pieces that others read may stand between them.
    """

    def __init__(
        self,
        layout: Layout,
        targets: Mapping[int, Target],
        epoch: int,
        place: tuple[int, int],
        pieces: Mapping[int, Target] | None = None,
        apart: bool = False,
    ) -> None:
        self._layout = layout
        self._pieces = frozenset(pieces or ())
        self._targets = {**targets, **(pieces or {})}
        self._epoch = epoch
        self._place = place
        self._apart = apart
        self._open: dict[int, _OpenFile] = {}
        self._written: list[WrittenFile] = []
        self._finished: set[tuple[int, str]] = set()

    def takes(self, leaving: Leaving, piece: bytes = b"") -> bool:
        """Write what leaves, if it is for a file; whether it was."""
        number = leaving.edge.place
        if leaving.edge.target >= 0 or number not in self._targets:
            return False
        if len(leaving.trails[0]):
            schema = self._layout.exits[number].node.schema.arrow
            batch = pa.RecordBatch.from_arrays(leaving.columns, schema=schema)
            file = self._file(number, schema, piece if number in self._pieces else b"")
            file.writer.write_batch(batch)
            file.rows += batch.num_rows
            file.bytes += batch.nbytes
        return True

    def _file(self, number: int, schema: pa.Schema, piece: bytes) -> _OpenFile:
        found = self._open.get(number)
        if found is not None and piece != found.piece:
            assert self._apart or piece > found.piece, "pieces are read in their order"
            found.piece = piece
            if self._apart:
                self._finish(number)
                found = None
        assert found is not None or (number, piece.hex()) not in self._finished, "a piece is read in one go"
        if found is None:
            target = self._targets[number]
            name = staged_name(self._epoch, self._place[1])
            path = os.path.join(target.directory, name)
            writer = pq.ParquetWriter(path, schema, compression=target.compression, store_schema=False)
            found = self._open[number] = _OpenFile(writer, name, piece, piece)
        return found

    def _finish(self, number: int) -> None:
        file = self._open.pop(number)
        file.writer.close()
        self._finished.add((number, file.first.hex()))
        self._written.append(WrittenFile(number, *self._place, file.name, file.rows, file.bytes, file.first.hex()))

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish the files; a record of each."""
        for number in list(self._open):
            self._finish(number)
        return tuple(self._written)

    def abandon(self) -> None:
        """The task failed: nobody will want its files."""
        for file in self.close():
            os.unlink(os.path.join(self._targets[file.exit].directory, file.name))
        self._written = []
