"""Tuples that were fed back: kept with the epoch that made them, read by the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from anabranch.engine.worker.tasks import BATCH_ROWS, Program
from anabranch.errors import CheckpointError
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.manifest_facts import FedBack


class FeedbackStore:
    """The tuples in flight between two epochs, as files of the checkpoint that its manifest names."""

    def __init__(self, program: Program, checkpoint: Checkpoint) -> None:
        self._program = program
        self._checkpoint = checkpoint

    def keep(self, epoch: int, tables: Sequence[pa.Table]) -> dict[str, FedBack]:
        """Keep what was fed back for the next epoch; what of it, for the manifest."""
        kept: dict[str, FedBack] = {}
        for found, table in zip(self._program.layout.exits, tables, strict=True):
            if not found.loop:
                continue
            name = f"feedback/{epoch:012d}-{found.loop}.arrow"
            if table.num_rows:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                self._checkpoint.files.write(name, memoryview(sink.getvalue()))
            kept[found.loop] = FedBack(name, table.num_rows)
            self._checkpoint.files.delete(f"feedback/{epoch - self._checkpoint.kept:012d}-{found.loop}.arrow")
        return kept

    def pieces(self, fed_back: Mapping[str, FedBack]) -> list[tuple[int, int, bytes]]:
        """What an epoch fed back, by loop, for the tasks of the next: (loop, first row, rows as an Arrow batch)."""
        found = []
        for number, loop in enumerate(self._program.loops):
            kept = fed_back.get(loop.name)
            if kept is None or not kept.rows:
                continue
            data = self._checkpoint.files.read(kept.name)
            if data is None:
                raise CheckpointError(f"{self._checkpoint.files.root}/{kept.name} is missing from the checkpoint")
            table = pa.ipc.open_stream(data).read_all().cast(loop.schema.arrow).combine_chunks()
            first = 0
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                found.append((number, first, batch.serialize().to_pybytes()))
                first += len(batch)
        return found
