"""What order costs in all of the Python of an epoch: splitters, channels, operators, state, merge and commit, no JVM.

The JVM only carries bytes between these, a byte per tuple more with order (none where tuples are only passed on), but
its compiler and its collector make the processor time of a whole epoch differ by a tenth from one run to the next, even
where nothing differs at all. Here nothing of that is in it: the same tasks run in this process one after the other,
with order and without in turn, epoch by epoch. What remains is where a process happens to put its objects: that alone
makes one of two equal runners faster by up to a tenth, for as long as the process lives. So each case runs in several
processes, and the median of them is given, with the least and the most.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import anabranch as ab
from anabranch.compiler.compile import compiled
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.driver.program_description import describe_program
from anabranch.engine.driver.runner import EpochRunner
from anabranch.engine.driver.setup import Backend, EpochSettings, Observer, Storage
from anabranch.engine.worker.exchange import ROWS, batches_of
from anabranch.engine.worker.tasks import BATCH_ROWS, Program
from anabranch.program.model import OutputOrder
from anabranch.spark.sinks import NoopSink
from anabranch.spark.spark_job import Job
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import LocalFiles
from benchmarks import _ordering_programs as programs

CHANNELS = 2
PIECES = 4


def pieces_of(rows: int, keys: int, seed: int) -> list[pa.RecordBatch]:
    """An epoch's rows as splitters read them: pieces of files, each row with where it is from."""
    random = np.random.default_rng(seed)
    count = rows // PIECES
    found = []
    for piece in range(PIECES):
        columns = [random.integers(0, keys, count), random.integers(0, keys, count), random.random(count)]
        place = [pa.array([seed] * count), pa.array([f"file-{piece}"] * count), pa.array([0] * count, pa.int64())]
        arrays = [*map(pa.array, columns), *place]
        found.append(pa.RecordBatch.from_arrays(arrays, [f"c{at}" for at in range(len(arrays))]))
    return found


def execute(pieces: list[pa.RecordBatch], job: Job) -> pa.Table:
    """The tasks of an epoch, one after the other."""
    produced: list[pa.RecordBatch] = []
    for number, piece in enumerate(pieces):
        parts = [piece.slice(at, BATCH_ROWS) for at in range(0, len(piece), BATCH_ROWS)]
        produced += batches_of(job.split.rows(iter(parts), number))
    for task in job.depths:
        table = pa.Table.from_batches(produced, ROWS)
        produced = []
        for index in range(task.count):
            mine = table.filter(pc.equal(table["task"], index)).select(["order", "payload"]).sort_by("order")
            produced += task.run(_batches(mine), index)
    return pa.Table.from_batches(produced, ROWS)


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    for batch in table.to_batches():
        yield pa.RecordBatch.from_arrays(batch.columns, ["p", "q"])


def runner_of(make: Callable[[Any, bool], Any], ordered: bool, place: Path) -> EpochRunner:
    stream = make(ab.from_rows([], programs.COLUMNS, name="source"), ordered)
    program = Program.of(compiled([stream._node]), {"source": "files"}, [OutputOrder("total" if ordered else "none")])
    files = LocalFiles(f"{place}/anabranch")
    held = Checkpoint(files)
    held.bind(describe_program(program))
    settings = EpochSettings(ElasticOptions(channels=CHANNELS), BalancingSettings(enabled=False))
    return EpochRunner(program, settings, Storage(held), Backend(execute, _compact_nothing, [NoopSink()]), Observer())


def _compact_nothing(task: Any, wanted: Any) -> Any:
    raise AssertionError("so little state is never merged beside epochs")


def overheads(cases: list[tuple[str, int]], rows: int, epochs: int) -> list[float]:
    """Those of several programs with their work, in one process."""
    return [overhead(name, times, rows, epochs) for name, times in cases]


def overhead(name: str, times: int, rows: int, epochs: int) -> float:
    """How much more processor time an epoch takes with order, in this process: the median of pairs of epochs."""

    def make(stream: Any, ordered: bool) -> Any:
        return programs.overhead_program(name, stream, times, ordered)

    epoch_pieces = [pieces_of(rows, 10_000, 1 + number) for number in range(3)]
    used: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="anabranch-ordering-", ignore_cleanup_errors=True) as folder:
        runners = {ordered: runner_of(make, ordered, Path(folder, str(ordered))) for ordered in used}
        for number in range(epochs + 2):
            for ordered in (True, False) if number % 2 else (False, True):
                begun = time.process_time()
                runners[ordered](epoch_pieces[number % 3], number)
                if number >= 2:
                    used[ordered].append(time.process_time() - begun)
    return statistics.median(a / b for a, b in zip(used[True], used[False], strict=True)) - 1
