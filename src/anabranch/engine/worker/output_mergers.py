"""Order need not mean one task: mergers that each put a range of positions in order and write it.

    channels of the last depth ─┐ shuffle ┌─ merger 0: the first positions  ─► part-<epoch>-00000
                                └─────────┘─ merger 1: the next ones        ─► part-<epoch>-00001 …

Small outputs are merged in the driver, which saves a stage. Where outputs are large (`driver/output_ways`), the
channels cut what they emit by ranges of positions, which every channel knows from the headers, and each merger
sorts a range and writes a file. In the order of their names the files are the stream. A merger writes under a name
that nobody reads; the driver renames the files when the epoch is whole, so a repeated task leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.compiler.layout.stages import Exit, Layout
from anabranch.engine.reports import MergerReport, WrittenFile
from anabranch.engine.worker.exchange import RESULT, Arriving, Row, arriving_rows, batches_of, report_row, result_of
from anabranch.engine.worker.output_files import Target, staged_name
from anabranch.engine.worker.packets import merge, unpack
from anabranch.engine.worker.tasks import Task
from anabranch.engine.worker.trails import Trails, decoded, filled


def mergeable(layout: Layout, number: int) -> bool:
    """Whether an exit can be merged by ranges: all its tuples come from behind a shuffle, where positions are known."""
    found = layout.exits[number]
    stages = {layout.steps[layout.edges[at].source].stage for at in found.edges}
    ordered = all(layout.edges[at].ordered for at in found.edges)
    return ordered and not found.loop and all(layout.stages[at].depth > 0 for at in stages)


@dataclasses.dataclass(frozen=True)
class MergerTask(Task):
    """One merger: rows sorted by order in; reports out, its own among them."""

    targets: Mapping[int, Target]  # by exit
    count: int

    def run(self, batches: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        """The merger of a range."""
        return batches_of(self.rows(arriving_rows(batches), number))

    def rows(self, arriving: Iterator[Arriving], number: int) -> Iterator[Row]:
        """What the task sends to the driver."""
        layout = self.load().layout
        parts: dict[int, list[tuple[int, pa.Buffer]]] = {}
        for order, payload in arriving:
            if order[0] == RESULT and result_of(order)[0] in self.targets:
                exit_number, edge, _ = result_of(order)
                parts.setdefault(exit_number, []).append((edge, payload.as_buffer()))
            else:
                yield number, order, payload.as_py()
        for exit_number, found in parts.items():
            target = self.targets[exit_number]
            started = self.clock.passing_s()
            table = merged(layout, layout.exits[exit_number], found)
            name = staged_name(self.epoch, number)
            path = os.path.join(target.directory, name)
            pq.write_table(table, path, compression=target.compression, store_schema=False)
            file = WrittenFile(exit_number, layout.depth + 1, number, name, table.num_rows, table.nbytes)
            yield report_row(MergerReport(layout.depth + 1, self.clock.passing_s() - started, (file,)))


def merged(layout: Layout, found: Exit, parts: Sequence[tuple[int, Any]], bases: Sequence[int] = ()) -> pa.Table:
    """Tuples of an exit, given as (edge, packet), in order.

    `bases` are what to add to the first number of each packet to make it a position; nothing, if it is one already.
    """
    wanted = (None,) * max(len(layout.edges[at].digits) for at in found.edges)
    schema = found.node.schema.arrow
    placed: list[tuple[Trails, pa.Table]] = []
    for at, (number, payload) in enumerate(parts):
        edge = layout.edges[number]
        rows = pa.Table.from_batches([unpack(payload, schema)])
        trails = decoded(memoryview(payload), edge.width, bases[at] if bases else 0)
        # What comes by one edge has the same constants in all its trails: they need not be compared.
        placed.append((trails if len(found.edges) == 1 else filled(trails, edge.digits, wanted), rows))
    return merge(placed, schema)
