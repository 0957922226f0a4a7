"""Files of output that tasks write themselves: under names that nobody reads until the driver says so.

    a task ─► _staged-<epoch>-<number>-<at random>     the driver, when the epoch is whole ─► part-<epoch>-<number>

A task that is repeated writes another file, and the driver publishes the one whose task reported it. Two kinds of
tasks write: mergers, a range of positions in order each, and, where an output need not be in total order, whoever
makes its tuples: then no tuple passes through the driver, and none is sorted.
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


class OutputFiles:
    """What one task writes of the outputs: a file for each it has tuples of.

    Parameters
    ----------
    layout : Layout
    targets : mapping
        Exit → where its tuples are written.
    epoch : int
    place : (int, int)
        The stage and the number of the task: files are published in this order.
    """

    def __init__(self, layout: Layout, targets: Mapping[int, Target], epoch: int, place: tuple[int, int]) -> None:
        self._layout = layout
        self._targets = targets
        self._epoch = epoch
        self._place = place
        self._open: dict[int, tuple[pq.ParquetWriter, str]] = {}
        self._rows: dict[int, int] = {}

    def takes(self, leaving: Leaving) -> bool:
        """Write what leaves, if it is for a file; whether it was."""
        number = leaving.edge.place
        if leaving.edge.target >= 0 or number not in self._targets:
            return False
        if len(leaving.trails[0]):
            schema = self._layout.exits[number].node.schema.arrow
            batch = pa.RecordBatch.from_arrays(leaving.columns, schema=schema)
            self._writer(number, schema).write_batch(batch)
            self._rows[number] = self._rows.get(number, 0) + batch.num_rows
        return True

    def _writer(self, number: int, schema: pa.Schema) -> pq.ParquetWriter:
        if number not in self._open:
            target = self._targets[number]
            name = staged_name(self._epoch, self._place[1])
            path = os.path.join(target.directory, name)
            writer = pq.ParquetWriter(path, schema, compression=target.compression, store_schema=False)
            self._open[number] = writer, name
        return self._open[number][0]

    def close(self) -> tuple[WrittenFile, ...]:
        """Finish the files; a record of each."""
        for writer, _ in self._open.values():
            writer.close()
        return tuple(
            WrittenFile(number, *self._place, name, self._rows[number]) for number, (_, name) in self._open.items()
        )

    def abandon(self) -> None:
        """The task failed: nobody will want its files."""
        for number, (writer, name) in self._open.items():
            writer.close()
            os.unlink(os.path.join(self._targets[number].directory, name))
        self._open = {}
