"""Channels that run where their source is read, because it is partitioned by their key (`partitioned_source`).

    a file, or a Kafka partition ─► the channel of its first key ─ every other key of it must be that channel's
                                        └► its state is opened, its steps run, piece by piece, numbers as in the source

What a task reads belongs to few channels, mostly one. Two tasks with tuples of one channel would both begin with its
state before the epoch: the driver sees that in their reports and has the epoch run again, with a shuffle. So it does
where a task gets the pieces of a channel in another order than the source's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from anabranch.compiler.layout.stages import Stage
from anabranch.engine.reports import ChannelReport
from anabranch.engine.worker.batch import column_batch
from anabranch.engine.worker.packets import number_of, text_of
from anabranch.engine.worker.stage_flow import Flow, Leaving
from anabranch.engine.worker.tasks import ChannelRun, Program
from anabranch.errors import InputError, ShuffleNeeded
from anabranch.program.hashing import hash_columns

if TYPE_CHECKING:
    from anabranch.engine.worker.splitters import SplitTask


class LocalChannels:
    """The channels that one task runs, opened when their first tuples come; and the check of every key."""

    def __init__(self, task: SplitTask, program: Program) -> None:
        self._task = task
        self._program = program
        layout = program.layout
        # By the edge that leads to it.
        self._stages = {layout.inputs_of(stage)[0].number: stage for stage in layout.stages if stage.partitions}
        self._owners: dict[tuple[int, bytes], int] = {}  # stage, file or Kafka partition → the channel of its first key
        self._channels: dict[tuple[int, int], ChannelRun] = {}
        self._last: dict[tuple[int, int], bytes] = {}  # the piece that a channel is at

    def through(self, leaving: Leaving, piece: bytes) -> Iterator[Leaving]:
        """What leaves the source's stage; or, if that is for a channel of this task, what leaves the channel."""
        stage = self._stages.get(leaving.edge.number)
        if stage is None or not len(leaving.trails[0]):
            yield leaving
            return
        number = self._owner(stage, leaving, piece)
        if not stage.local:
            yield leaving
            return
        at = stage.number, number
        if piece < self._last.get(at, b""):
            raise ShuffleNeeded(f"a task read {stage.name}'s tuples of channel {number} in another order than theirs")
        self._last[at] = piece
        if at not in self._channels:
            assert self._task.state is not None, "a stage that runs here needs its state"
            self._channels[at] = ChannelRun(self._task, self._task.state, self._program, *at)
        schema = self._program.layout.steps[leaving.edge.source].node.schema
        records = [pa.RecordBatch.from_arrays(leaving.columns, schema=schema.arrow)]
        count = len(leaving.trails[0])
        yield from self._channels[at].worked(Flow(column_batch(schema, range(count), records), leaving.trails), count)

    def _owner(self, stage: Stage, leaving: Leaving, piece: bytes) -> int:
        """The channel of all these tuples: that of the first key of their file or Kafka partition."""
        layout, function = self._program.layout, self._task.functions[stage.number]
        node = layout.steps[leaving.edge.source].node
        columns = [leaving.columns[node.schema.names.index(name)] for name in leaving.edge.key]
        owners = function.route(hash_columns(columns))
        # A piece ends with where it begins in its file or Kafka partition.
        expected = self._owners.setdefault((stage.number, piece[:-8]), int(owners[0]))
        others = np.flatnonzero(owners != expected)
        if len(others):
            first = int(others[0])
            source = layout.steps[layout.stages[layout.steps[leaving.edge.source].stage].steps[0]].node
            key = ", ".join(
                f"{name}={column[first].as_py()!r}" for name, column in zip(leaving.edge.key, columns, strict=True)
            )
            (row,) = node.schema.rows([column.slice(first, 1) for column in leaving.columns])
            raise InputError(
                f"source {source.title}, epoch {self._task.epoch}: the tuple {row!r} is not where its key says: {key} "
                f"belongs to partition {owners[first]} of {stage.partitions}, and the tuple came with those of "
                f"partition {expected}, in {_whereabouts(self._program.orders.get(source.name), piece)}. "
                f"partitioned_by={list(stage.partitioned_by)} says that each file or Kafka partition has the keys of "
                "one partition only, as anabranch.partition_of numbers them. Write the data so; or leave "
                "partitioned_by away: the stream is then shuffled. The epoch failed and nothing of it was written."
            )
        return expected

    def finish(self) -> None:
        """All was read: save the state."""
        for channel in self._channels.values():
            left = list(channel.finish())
            assert not left, "what runs piece by piece keeps nothing back"

    def samples(self) -> Iterator[bytes]:
        """What their steps did with keys that are to be run again."""
        for channel in self._channels.values():
            for sample in channel.samples:
                yield sample.to_bytes()

    def reports(self) -> Iterator[ChannelReport]:
        """What the channels did."""
        for channel in self._channels.values():
            yield channel.report()


def _whereabouts(order: str | None, piece: bytes) -> str:
    """Where in its source a piece is, for people."""
    coordinate = piece[1:-8]  # without which source it is, and where in a file or partition it begins
    if order == "kafka":
        return f"partition {number_of(coordinate[-8:])} of topic {text_of(coordinate[:-8])}"
    return text_of(coordinate[8:])
