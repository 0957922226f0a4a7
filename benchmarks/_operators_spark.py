"""Elastic operators on Spark: epochs of a second or two with pauses between them, and what order costs there.

- *Epochs*: work that stands for a machine of 16 cores (sleeping under so many permits), in tasks that live for an
  epoch. Is the level that is found the one that a pool finds that never pauses, and does it stay?
- *Order*: calls of which some take ten times as long, over one file and over many small ones, each a batch of its own;
  an output in total order and one whose order was given up, in turn.
"""

from __future__ import annotations

import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from benchmarks._pool_runs import Permits, Running, default_levels, pool_for
from benchmarks._spark import spark_session

COLUMNS = "n long, x double"


class UnderPermits(ab.Operator):
    """Sleeps under one of so many permits of its worker process."""

    permits: int = 16
    seconds: float = 0.02

    def open(self) -> None:
        self.free = threading.Semaphore(self.permits)

    def process(self, t: Any) -> Any:
        with self.free:
            time.sleep(self.seconds)
        yield (t.n, t.x)


def level_without_epochs(permits: int, seconds: float, period_s: float, periods: int) -> float:
    """The level of a pool that never pauses, in the second half of so many periods."""
    levels = []
    with Running(pool_for(Permits(permits, seconds), default_levels(), period_s)) as running:
        time.sleep(periods / 2 * period_s)
        for _ in range(2 * periods):
            time.sleep(period_s / 4)
            levels.append(running.pool.controller.to_dict()["level"])
    return statistics.median(levels)


def epochs_on_spark(
    scratch: Path, *, epochs: int, epoch_s: float, pause_s: float, permits: int = 16, seconds: float = 0.02
) -> dict[str, Any]:
    """The level held at the end of each epoch, and how long the epochs lasted."""
    period_s = 1.0
    name = f"asks_{time.time():.0f}"  # what earlier runs learnt is another operator's
    rows = int(permits / seconds * epoch_s)
    with spark_session(2, scratch) as spark:
        source = ab.session(spark).from_rows(
            [(n, float(n)) for n in range(rows * epochs)], COLUMNS, rows_per_epoch=rows
        )
        asked = source.process(
            UnderPermits(permits=permits, seconds=seconds),
            schema=COLUMNS,
            name=name,
            elastic=True,
            period=period_s,
        )
        writer = asked.writeStream.format("memory").queryName("epochs_of_calls")
        query = writer.trigger(processingTime=f"{int((epoch_s + pause_s) * 1000)} milliseconds").start()
        told: list[Any] = []
        print("levels:", end="", flush=True)
        give_up = time.time() + 4 * epochs * (epoch_s + pause_s) + 60
        while len(told) < epochs and time.time() < give_up:
            time.sleep(0.5)
            before, told = len(told), [each for each in query.recentProgress if each["rows_in"]]
            for each in told[before:]:
                print(f" {each['elastic'][name]['level']}", end="", flush=True)
        query.stop()
        query.awaitTermination()
    levels = [each["elastic"][name]["level"] for each in told]
    seconds_each = [each["duration_ms"]["total"] / 1000 for each in told]
    alone = level_without_epochs(permits, seconds, period_s, 20)
    settled = levels[len(levels) // 2 :]
    print(f"; without epochs {alone:g}")
    return {
        "levels": levels,
        "level_without": alone,
        "level_with": statistics.median(settled),
        # A look at a level a quarter higher may be under way when an epoch ends.
        "stayed": sum(abs(level - alone) <= 0.3 * alone for level in settled) / len(settled),
        "epoch_s": statistics.median(seconds_each[len(levels) // 2 :]),
        "periods": sum(each["elastic"][name]["periods"] for each in told),
    }


class SometimesSlow(ab.Operator):
    """A call in twenty takes ten times as long."""

    def process(self, t: Any) -> Any:
        time.sleep(0.03 if t.n % 20 == 7 else 0.003)
        yield (t.n, t.x)


def order_on_spark(scratch: Path, *, rounds: int, rows: int = 2_000, small: int = 40) -> dict[str, Any]:
    """Time of an epoch in order over that of one without, less one: of files of few rows, and of one file."""
    seconds: dict[tuple[str, int], list[float]] = {}
    for size in (small, rows):
        directory = scratch / f"of_{size}"
        directory.mkdir()
        for first in range(0, rows, size):
            numbers = range(first, first + size)
            table = pa.table({"n": pa.array(numbers, pa.int64()), "x": pa.array(map(float, numbers), pa.float64())})
            pq.write_table(table, directory / f"{first:06}.parquet")
    with spark_session(2, scratch) as spark:
        for number in range(rounds + 1):
            for size in (small, rows):
                for order in ("total", "none") if number % 2 else ("none", "total"):
                    made = _epoch_seconds(spark, scratch, size, order, f"of_{size}_{order}_{number}")
                    if number:  # the first learns the level
                        seconds.setdefault((order, size), []).append(made)
    costs = {
        size: statistics.median(seconds["total", size]) / statistics.median(seconds["none", size]) - 1
        for size in (small, rows)
    }
    for size in (small, rows):
        each = {order: round(statistics.median(seconds[order, size]), 2) for order in ("total", "none")}
        print(f"files of {size} rows: {each} s an epoch; order costs {costs[size]:+.1%}", flush=True)
    return {"spark_order_overhead_small": round(costs[small], 3), "spark_order_overhead": round(costs[rows], 3)}


def _epoch_seconds(spark: Any, scratch: Path, size: int, order: str, name: str) -> float:
    """How long the epoch of all files took."""
    read = spark.readStream.schema("n long, x double").parquet(str(scratch / f"of_{size}"))
    asked = (
        ab.session(spark)
        .read(read)
        .process(SometimesSlow(), schema=COLUMNS, name=f"slow_{size}", elastic=True, min_workers=8, max_workers=8)
    )
    writer = asked.writeStream.format("parquet").option("order", order).option("path", str(scratch / name))
    query = writer.option("checkpointLocation", str(scratch / f"{name}_state")).trigger(availableNow=True).start()
    query.awaitTermination()
    told = [each for each in query.recentProgress if each["rows_in"]]
    return float(sum(each["duration_ms"]["total"] for each in told)) / 1000
