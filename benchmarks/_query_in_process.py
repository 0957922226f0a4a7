"""A whole query without a JVM: the product's runner, checkpoint, segments and output, in a directory.

Spark's part is played by a few lines: a log of offsets, written before a batch, and of commits, written after it; a
batch that has the one and not the other runs again. So drivers can be started, killed and frozen by the thousand.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.driver.output_directory import OutputDirectory
from anabranch.engine.driver.sink import Holder, TableSink
from anabranch.engine.sequential import run_epochs
from anabranch.errors import CheckpointError
from anabranch.program.ddl import to_ddl
from anabranch.program.graph import Keyed, Source, upstream
from anabranch.spark.batch_log import BatchLog
from anabranch.spark.row_files import RowFiles, write_rows
from anabranch.state import store
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun, run_sequential

COLUMNS = "k long, s string, x double"
_planned = itertools.count(time.time_ns())


class Total(ab.Operator):
    """A running total of each key, and the names it came with."""

    total: float = ab.state(default=0.0)
    names: list = ab.state(factory=list)

    def process(self, t):
        self.total += t.x
        self.names = [*self.names[-2:], t.s]
        yield (t.k, f"{len(self.names)}{t.s}", self.total)


class Count(ab.Operator):
    """How often a name came."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.k, t.s, t.x + self.seen)


def keyed(epochs: Sequence[Sequence[Any]]) -> list[ab.Stream]:
    """Two regions, one behind the other."""
    stream = from_epochs(epochs, COLUMNS, name="rows")
    totals = stream.process(Total(), by="k", schema=COLUMNS, name="total")
    return [totals.process(Count(), by="s", schema=COLUMNS, name="count")]


def loop(epochs: Sequence[Sequence[Any]]) -> list[ab.Stream]:
    """Tuples go round, some of them for several epochs, past an operator with state."""
    stream = from_epochs(epochs, COLUMNS, name="rows")
    again = ab.feedback(COLUMNS, name="again")
    both = stream.union(again).process(Total(), by="k", schema=COLUMNS, name="total")
    again.close(both.filter(lambda t: t.x > 6.0).map(lambda t: (t.k, t.s[-3:], -4.5), schema=COLUMNS))
    return [both]


def join(epochs: Sequence[Sequence[Any]]) -> list[ab.Stream]:
    """Two outputs: pairs of two streams, and one of the two."""
    left = from_epochs(epochs, COLUMNS, name="left")
    right = from_epochs([rows[::-1] for rows in epochs], "k long, name string, y double", name="right")
    totals = left.process(Total(), by="k", schema=COLUMNS, name="total")
    pairs = totals.join(right, by="k", window=ab.count(3), name="pairs")
    return [pairs, totals]


PROGRAMS = {"keyed": keyed, "loop": loop, "join": join}


def rows_of(seed: int, epochs: int, rows: int) -> list[list[tuple[int, str, float]]]:
    """Input: some keys frequent, some names long."""

    def row(n: int, at: int) -> tuple[int, str, float]:
        return (n * n + at * seed) % 7, "abcde"[(at + n) % 5] * (1 + at % 2), float((at * 3 + n + seed) % 9)

    return [[row(n, at) for at in range(rows)] for n in range(epochs)]


class DirectorySink(TableSink):
    """Parquet files, as the query writes them."""

    def __init__(self, files: LocalFiles, schema: Any) -> None:
        self._files = files
        self._schema = schema
        self._directory = OutputDirectory(files, "parquet", to_ddl(schema.arrow))

    def check(self, holder: Holder) -> None:
        self._directory.check(holder)

    def prepare(self, holder: Holder) -> None:
        self._directory.prepare(holder)

    def write(self, table: pa.Table, epoch: int) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, store_schema=False)
        self._directory.publish(epoch, {"00000.parquet": memoryview(sink.getvalue())} if table.num_rows else {})

    def rows(self) -> list[str]:
        """What is there, in order."""
        tables = [pq.read_table(each) for each in sorted(self._files.path("").glob("part-*"))]
        return [repr(row) for table in tables for row in self._schema.rows(table.columns)]


class LocalQuery:
    """A driver of a query: started, it runs what there is to read, and ends.

    Parameters
    ----------
    streams : list of Stream
    place : Path
        The checkpoint and the outputs.
    channels, seed : int
        How it runs; what comes out is the same for any.
    kept : int
        How many epochs back the checkpoint goes.
    durable : bool
        Whether its files are on the disk before they count.
    **how
        What else `ParallelRun` takes.
    """

    def __init__(
        self,
        streams: list[ab.Stream],
        place: Path,
        channels: int = 2,
        seed: int = 0,
        kept: int = 10,
        durable: bool = False,
        **how: Any,
    ) -> None:
        self._location = place / "checkpoint"
        # A driver that is started has new processes: none that has read the segments before.
        store._segments.retain(f"{self._location}/anabranch/state", ())
        self._log = LocalFiles(str(self._location), durable)
        outputs = [LocalFiles(str(place / f"out-{at}"), durable) for at in range(len(streams))]
        self.sinks = [DirectorySink(files, each.schema) for files, each in zip(outputs, streams, strict=True)]
        self.run = ParallelRun(
            streams,
            str(self._location),
            channels=channels,
            seed=seed,
            sinks=self.sinks,
            batches=BatchLog(self._log),
            clocks_ms=[1_000_000],
            versions_kept=kept,
            files=LocalFiles(f"{self._location}/anabranch", durable),
            **how,
        )
        nodes = {node.name: node for stream in streams for node in upstream(stream._node)}
        self._sources = [node for node in nodes.values() if isinstance(node.logic, Source)]
        rows = RowFiles(self._sources)
        for name, (node, epochs) in rows.rows.items():
            files = LocalFiles(f"{self._location}/anabranch/sources/{name}")
            write_rows(files, node, epochs, self.run.checkpoint.query or "", self.run.checkpoint.owner.check)

    def batches(self, last: int | None = None) -> None:
        """What Spark does: run the batch that was planned and not committed, then plan the next, to the end."""
        planned = _numbers(self._log, "offsets")
        done = _numbers(self._log, "commits")
        if planned and planned[-1] not in done:
            self._batch(planned[-1])
        number = planned[-1] + 1 if planned else 0
        while (number < self.run.epochs) if last is None else (number <= last):
            # Each source keeps its own note of what it read, before the note of the batch.
            for at in range(len(self._sources)):
                self._create(f"sources/{at}/{number}", f"v1\n{json.dumps({'epoch': number})}\n")
            steps = "".join(f'{{"logOffset":{number}}}\n' for _ in self._sources)
            self._create(f"offsets/{number}", f'v1\n{{"batchTimestampMs":{next(_planned)}}}\n{steps}')
            self._batch(number)
            number += 1
        while last is None and self.run.drain():
            pass

    def _create(self, name: str, text: str) -> None:
        if not self._log.create(name, text.encode()) and name.startswith("offsets"):
            raise CheckpointError(f"{name}: another stream of Spark's is running (CONCURRENT_STREAM_LOG_UPDATE)")

    def _batch(self, number: int) -> None:
        rows = {}
        for source in self._sources:
            path = self._location / f"anabranch/sources/{source.name}/{number:09d}.parquet"
            rows[source.name] = [tuple(row) for row in source.schema.rows(pq.read_table(path).columns)]
        self.run.batch(rows, number)
        self._create(f"commits/{number}", "v1\n{}\n")

    def outputs(self) -> list[list[str]]:
        """What was delivered."""
        return [sink.rows() for sink in self.sinks]

    def state(self) -> dict[str, dict[str, str]]:
        """What the checkpoint holds."""
        reader = CheckpointReader(LocalFiles(f"{self._location}/anabranch"))
        names = [store.operator for store in reader.stores()]
        return {name: {repr(k): repr(tuple(v.values())) for k, v in reader.items(name)} for name in names}


def _numbers(files: LocalFiles, directory: str) -> list[int]:
    return sorted(int(name) for name in files.names(directory) if name.isdigit())


def expected(streams: list[ab.Stream]) -> list[list[str]]:
    """What one thread delivers."""
    return [[repr(row) for row in rows] for rows in run_sequential(streams, clocks_ms=[1_000_000])]


def expected_state(streams: list[ab.Stream]) -> dict[str, dict[str, str]]:
    """What one thread holds at the end, of operators written here."""
    run = run_epochs([stream._node for stream in streams], [1_000_000])
    found = {}
    for stream in streams:
        for node in upstream(stream._node):
            if isinstance(node.logic, Keyed) and node.name in ("total", "count"):
                found[node.name] = {repr(key): repr(value) for key, value in run.state(node.name).items()}
    return found
