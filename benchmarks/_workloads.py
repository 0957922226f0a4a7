"""What two commits are compared by: the public API only, so that the same text runs on the library of either.

    python -m benchmarks._workloads NAME [--mini]

Runs the workload on whatever `anabranch` is found first, and prints, as its last line, the processor seconds (user and
system, of this process, its JVM and their workers) of each of its parts, as JSON. ``whole`` is all that the process
used, the start of the JVM and the warm-up included; the other parts are epochs after the warm-up. Benchmarks measure
more, but they call what lies inside, and that moves.

    stateful   running VWAP per key: long epochs, one shuffle, ordered parquet output
    ordering   three programs of the ordering benchmark with light work: sequence numbers, several tuples out for each
               in, two shuffles
    state      many keys held, few touched in an epoch, all of them changed
    compiler   explaining a program of a few hundred different operators (no JVM)
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from benchmarks import _ordering_programs, _vwap_systems
from benchmarks._spark import processor_time, spark_session
from benchmarks._vwap_input import make_epochs, write_epochs

Parts = dict[str, float]


@dataclass(frozen=True)
class Size:
    """Rows of an epoch, epochs that are measured, keys held, operators compiled."""

    rows: int = 200_000
    measured: int = 6
    held: int = 500_000
    operators: int = 250


MINI = Size(400, 1, 100, 5)
WARM_UP = 2


def stateful(size: Size, scratch: Path) -> Parts:
    write_epochs(make_epochs([size.rows] * (WARM_UP + size.measured), 50_000), scratch / "in")

    def start(spark: Any) -> Any:
        trades = _vwap_systems.read_trades(spark, scratch / "in")
        return _vwap_systems.start_anabranch(trades, scratch / "out", scratch / "checkpoint")

    with spark_session(2, scratch, {"spark.sql.shuffle.partitions": "2"}) as spark:
        return {"epochs": _used(spark, start, scratch)}


def ordering(size: Size, scratch: Path) -> Parts:
    random = np.random.default_rng(1)
    rows = size.rows // 4
    (scratch / "in").mkdir()
    for epoch in range(WARM_UP + size.measured):
        keys, others = random.integers(0, 10_000, (2, rows))
        _write(scratch / "in", epoch, pa.table({"k": keys, "j": others, "x": random.random(rows)}))

    def starting(name: str) -> Callable[[Any], Any]:
        def start(spark: Any) -> Any:
            source = ab.session(spark).from_files(
                str(scratch / "in"), "parquet", _ordering_programs.COLUMNS, maxFilesPerTrigger=1
            )
            stream = _ordering_programs.overhead_program(name, source, 10)
            writer = stream.writeStream.format("noop").options(channels=2, balancing="off")
            return writer.trigger(availableNow=True).start()

        return start

    with spark_session(2, scratch) as spark:
        names = ("sequence numbers", "relaxed and pulses", "shuffle")
        return {name: _used(spark, starting(name), scratch) for name in names}


def state(size: Size, scratch: Path) -> Parts:
    random = np.random.default_rng(1)
    (scratch / "in").mkdir()
    everything = np.arange(size.held)
    touched = [everything, *(random.integers(0, size.held, size.rows // 10) for _ in range(1 + size.measured))]
    for epoch, keys in enumerate(touched):
        _write(scratch / "in", epoch, pa.table({"key": keys, "value": random.random(len(keys))}))

    def start(spark: Any) -> Any:
        # Within a function, so that it is pickled by value and the workers need not find this module.
        class Drift(ab.Operator):
            mean: float = ab.state(default=0.0)
            deviation: float = ab.state(default=0.0)

            def process(self, t):  # type: ignore[no-untyped-def]
                away = t.value - self.mean
                self.mean += 0.1 * away
                self.deviation += 0.1 * (abs(away) - self.deviation)
                if t.value > 0.99:
                    yield t

        schema = "key long, value double"
        source = ab.session(spark).from_files(str(scratch / "in"), "parquet", schema, maxFilesPerTrigger=1)
        stream = source.process(Drift(), by="key", schema=schema)
        writer = stream.writeStream.format("noop").option("channels", 2)
        return writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start()

    with spark_session(2, scratch) as spark:
        return {"epochs": _used(spark, start, scratch)}


def compiler(size: Size, scratch: Path) -> Parts:
    from benchmarks.compiler import TEMPLATES

    text = "from collections import defaultdict\n" + "".join(
        TEMPLATES[number % len(TEMPLATES)].format(n=number) for number in range(size.operators)
    )
    path = scratch / "operators.py"
    path.write_text(text)  # a file, because the compiler reads the source of operators
    space: dict[str, Any] = {"__name__": "benchmark_operators"}
    exec(compile(text, str(path), "exec", dont_inherit=True), space)
    columns = "id int, name string, value double, count int, items array<double>, day date"
    used = []
    with contextlib.redirect_stdout(io.StringIO()):
        ab.from_rows([], columns).explain()  # loads the compiler, which some commits do with the package
    for _ in range(3):
        stream = ab.from_rows([], columns)
        for number in range(size.operators):
            operator = space.get(f"operator{number}") or space[f"Operator{number}"]()
            stream = stream.process(operator, schema=columns)
        before = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            stream.explain()
        used.append(time.process_time() - before)
    # The first reads the source of all operators; the least of the others is undisturbed.
    return {"first": used[0], "again": min(used[1:])}


WORKLOADS: dict[str, Callable[[Size, Path], Parts]] = {
    "stateful": stateful,
    "ordering": ordering,
    "state": state,
    "compiler": compiler,
}


def _write(directory: Path, epoch: int, table: pa.Table) -> None:
    path = directory / f"{epoch:03d}.parquet"
    pq.write_table(table, path, row_group_size=max(1, table.num_rows // 2))
    os.utime(path, (1_700_000_000 + epoch, 1_700_000_000 + epoch))


def _used(spark: Any, start: Callable[[Any], Any], scratch: Path) -> float:
    """Processor seconds from the end of the warm-up to the end of the query."""
    ended: list[float] = []
    query = start(spark)
    query.addListener(
        lambda event: ended.append(processor_time().total_s) if isinstance(event, ab.EpochEnded) else None
    )
    query.awaitTermination()
    # A listener that comes too late misses epochs of the warm-up, not measured ones: they are counted from the end.
    all_s = processor_time().total_s
    return all_s - ended[0] if len(ended) < WARM_UP else all_s - ended[WARM_UP - 1]


def run(name: str, size: Size) -> Parts:
    from pyspark import cloudpickle

    for module in (_ordering_programs, _vwap_systems):
        cloudpickle.register_pickle_by_value(module)  # Spark's Python workers need not find this folder
    with tempfile.TemporaryDirectory(prefix="anabranch-compare-", ignore_cleanup_errors=True) as scratch:
        parts = WORKLOADS[name](size, Path(scratch))
    return {**parts, "whole": processor_time().total_s}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks._workloads")
    parser.add_argument("name", choices=WORKLOADS)
    parser.add_argument("--mini", action="store_true")
    given = parser.parse_args()
    print(json.dumps(run(given.name, MINI if given.mini else Size())))
