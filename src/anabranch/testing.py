"""Testing programs without a cluster.

`run_parallel` runs a program as Spark would — splitter, packets, shuffle, channels, state, merge, the very
same code — but in this process, in milliseconds. With `run_sequential` beside it a test compares what the
program does in parallel with what it means:

>>> import anabranch as ab
>>> from anabranch.testing import run_parallel
>>> stream = ab.from_rows([("a", 1), ("b", 2), ("a", 3)], "k string, x long")
>>> totals = stream.aggregate(by="k", window=ab.tumbling(2), total=ab.agg.sum("x"))
>>> run_parallel(totals, channels=4) == totals.run_sequential()
True
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.api.stream import Stream
from anabranch.compiler.graph import detached
from anabranch.compiler.stages import chain_of, stages_of
from anabranch.flow.origins import RowsOrigin
from anabranch.flow.schema import Row, Schema
from anabranch.flow.sequential import input_row
from anabranch.spark.runner import EpochProgress, EpochRunner, describe_program
from anabranch.spark.tasks import PACKETS, RESULTS, ChannelTask, MergeTask, Program, SplitTask
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import LocalFiles

__all__ = ["ParallelRun", "TaskDied", "run_parallel"]


def run_parallel(stream: Stream, *, channels: int = 4, seed: int = 0, checkpoint: str | None = None) -> list[Row]:
    """The program of a stream made of rows, run in parallel in this process.

    Parameters
    ----------
    channels : int
        How many channels each keyed stage has.
    seed : int
        How the input is cut into pieces and partitions; any seed must give the same output.
    checkpoint : str, optional
        A directory for state, to run several times from; a temporary one by default.
    """
    with tempfile.TemporaryDirectory(prefix="anabranch-test-") as scratch:
        run = ParallelRun(stream, checkpoint or scratch, channels=channels, seed=seed)
        run.run_epochs()
        return run.output


class TaskDied(Exception):  # noqa: N818 - an event, raised by fault handlers of tests
    """What a fault handler raises to make one attempt of a task die."""


class ParallelRun:
    """A program that runs epoch by epoch in this process, from a checkpoint."""

    def __init__(
        self,
        stream: Stream,
        checkpoint: str,
        *,
        channels: int = 4,
        seed: int = 0,
        written: dict[int, pa.Table] | None = None,
        allow_state_loss: bool = False,
    ) -> None:
        output = stream._node
        chain = chain_of(output)
        self._source = chain[0]
        origin = self._source.logic.origin  # type: ignore[union-attr]
        assert isinstance(origin, RowsOrigin), "run_parallel needs a stream made by from_rows"
        self._epochs = origin.epochs
        self._seed = seed
        self._schema = output.schema
        # A sink outlives the driver: whoever restarts a run passes on what it wrote.
        self._written = {} if written is None else written
        self.progress: list[EpochProgress] = []
        files = LocalFiles(f"{checkpoint}/anabranch")
        held = Checkpoint(files)
        self.changes = held.bind(describe_program(chain[0], chain[1:]), allow_state_loss)
        bare = detached(output)
        program = Program(chain_of(bare)[0], tuple(stages_of(bare)), "files")
        self.runner = EpochRunner(
            program,
            self._execute,
            channels,
            held,
            f"{files.root}/state",
            True,
            self,
            self.progress.append,
            self._merge,
        )

    @property
    def output(self) -> list[Row]:
        """What the epochs delivered, in order."""
        tables = [self._written[epoch] for epoch in sorted(self._written)]
        return [row for table in tables for row in self._schema.rows(table.columns)]

    def run_epochs(self, first: int = 0, last: int | None = None) -> None:
        """Run the epochs from first to last, all of them by default."""
        for epoch, rows in list(enumerate(self._epochs))[first : None if last is None else last + 1]:
            self.runner(rows, epoch)

    # -- a sink ---------------------------------------------------------------------------------------------

    def prepare(self, owner: str) -> None:
        """Nothing to check."""

    def write(self, table: pa.Table, epoch: int) -> None:
        """Keep an epoch's output."""
        self._written[epoch] = table

    # -- an executor ----------------------------------------------------------------------------------------

    def _execute(self, rows: Sequence[Any], split: SplitTask, channels: Sequence[ChannelTask]) -> pa.Table:
        random = np.random.default_rng([self._seed, split.epoch])
        produced = [batch for part in self._partitions(rows, random) for batch in split(iter(part))]
        for task in channels:
            packets = pa.Table.from_batches(produced, PACKETS)
            produced = []
            for number in range(task.count):
                mine = packets.filter(pa.compute.equal(packets["channel"], number)).select(["place", "payload"])
                # Spark delivers the blocks of a shuffle in any order.
                shuffled = mine.take(pa.array(random.permutation(len(mine)))) if len(mine) else mine
                produced += self._attempts(task, shuffled, number, random)
        return pa.Table.from_batches(produced, RESULTS)

    def _attempts(self, task: ChannelTask, packets: pa.Table, number: int, random: np.random.Generator) -> Any:
        """A channel's results. As on Spark, a task that dies is run again, and one may run twice for nothing."""
        if random.random() < 0.05:
            list(task.run(_sorted_batches(packets), number))
        for _ in range(3):
            try:
                return list(task.run(_sorted_batches(packets), number))
            except TaskDied:
                continue
        raise TaskDied(f"channel {number} died four times")

    def _merge(self, task: MergeTask, wanted: list[Any]) -> Future[list[Any]]:
        done: Future[list[Any]] = Future()
        done.set_result([task(each) for each in wanted])
        return done

    def _partitions(self, rows: Sequence[Any], random: np.random.Generator) -> Iterator[list[pa.RecordBatch]]:
        """The epoch cut into file splits at random, the splits dealt to partitions at random."""
        schema: Schema = self._source.schema
        tuples = [input_row(self._source, row, at) for at, row in enumerate(rows)]
        cuts = sorted(random.integers(0, len(tuples) + 1, size=int(random.integers(0, 5))).tolist())
        pieces = []
        for start, stop in zip([0, *cuts], [*cuts, len(tuples)], strict=True):
            part = tuples[start:stop]
            columns = list(zip(*part, strict=True)) if part else [() for _ in schema.names]
            order = [
                pa.array([v] * len(part), t) for v, t in ((0, pa.int64()), ("in", pa.string()), (start, pa.int64()))
            ]
            arrays = [*schema.arrays(columns), *order]
            names = [f"c{at}" for at in range(len(arrays))]
            pieces.append(pa.RecordBatch.from_arrays(arrays, names))
        partitions: list[list[pa.RecordBatch]] = [[] for _ in range(int(random.integers(1, 5)))]
        for piece in [pieces[at] for at in random.permutation(len(pieces))]:
            size = int(random.integers(1, len(piece) + 2))
            into = partitions[int(random.integers(len(partitions)))]
            into += [piece.slice(at, size) for at in range(0, len(piece), size)]
        yield from partitions


def _sorted_batches(packets: pa.Table) -> Iterator[pa.RecordBatch]:
    rows = sorted(zip(packets["place"].to_pylist(), packets["payload"].to_pylist(), strict=True), key=lambda r: r[0])
    for at in range(0, len(rows), 3):
        places, payloads = zip(*rows[at : at + 3], strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(places, pa.binary()), pa.array(payloads, pa.binary())], ["p", "q"])
