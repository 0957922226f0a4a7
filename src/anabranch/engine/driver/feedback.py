"""Tuples that were fed back: kept with the epoch that made them, read by the next one.

The files have the owner in their names: what a driver that was frozen still writes is not what a manifest names.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import pyarrow as pa

from anabranch.engine.worker.tasks import BATCH_ROWS, Program
from anabranch.faults import reach
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.envelope import damaged, seal, unseal
from anabranch.state.manifest_facts import FedBack

_KIND = "feedback"


class FeedbackStore:
    """The tuples in flight between two epochs, as files of the checkpoint that its manifest names."""

    def __init__(self, program: Program, checkpoint: Checkpoint) -> None:
        self._program = program
        self._checkpoint = checkpoint

    def keep(self, epoch: int, tables: Sequence[pa.Table]) -> dict[str, FedBack]:
        """Keep what was fed back for the next epoch; what of it, for the manifest."""
        kept: dict[str, FedBack] = {}
        query, owner = self._checkpoint.query, self._checkpoint.owner.token
        assert query is not None
        for found, table in zip(self._program.layout.exits, tables, strict=True):
            if not found.loop:
                continue
            name = f"feedback/{epoch:012d}-{owner:06d}-{found.loop}.arrow"
            size = checksum = 0
            if table.num_rows:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                data = seal(_KIND, query, memoryview(sink.getvalue()))
                self._checkpoint.files.write(name, data)
                size, checksum = len(data), zlib.crc32(data)
                reach("feedback kept", epoch=epoch)
            kept[found.loop] = FedBack(name, table.num_rows, size, checksum)
        self._forget(epoch - self._checkpoint.kept)
        return kept

    def _forget(self, epoch: int) -> None:
        """Remove what no manifest that is kept can name."""
        for name in self._checkpoint.files.names("feedback") if epoch >= 0 else ():
            number = name.split("-")[0]
            if number.isdigit() and int(number) <= epoch:
                self._checkpoint.files.delete(f"feedback/{name}")

    def pieces(self, fed_back: Mapping[str, FedBack]) -> list[tuple[int, int, bytes]]:
        """What an epoch fed back, by loop, for the tasks of the next: (loop, first row, rows as an Arrow batch)."""
        found = []
        for number, loop in enumerate(self._program.loops):
            kept = fed_back.get(loop.name)
            if kept is None or not kept.rows:
                continue
            table = self._read(kept).cast(loop.schema.arrow).combine_chunks()
            first = 0
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                found.append((number, first, batch.serialize().to_pybytes()))
                first += len(batch)
        return found

    def _read(self, kept: FedBack) -> pa.Table:
        """The tuples of a file, once it is known to be the one that the manifest means."""
        place = f"{self._checkpoint.files.root}/{kept.name}"
        data = self._checkpoint.files.read(kept.name)
        if data is None:
            raise damaged(place, "it is missing")
        content = unseal(data, _KIND, self._checkpoint.query, place)
        if (len(data), zlib.crc32(data)) != (kept.bytes, kept.checksum):
            raise damaged(place, "it is not the one that the manifest names")
        table = pa.ipc.open_stream(content).read_all()
        if table.num_rows != kept.rows:
            raise damaged(place, f"it holds {table.num_rows} tuples, the manifest says {kept.rows}")
        return table
