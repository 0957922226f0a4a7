"""What order costs, and how far the engine scales.

    python -m benchmarks ordering [--quick] [--part overhead|selectivity|punctuation|scaling]

**Overhead.** The same program, the same data, the same work per tuple, with and without order
(``option("order", "none")``: tuples are only routed, nothing is numbered, sent along or sorted), one query after the
other in turn; the ratio of the medians of their epochs. One row per ordering strategy of the *Safe* paper, and one
for two regions that exchange tuples. The paper's figures are 12 % for sequence numbers and 21 % with pulses.

**Selectivity and punctuations.** As Figures 9 and 11 of the paper: tuples out per tuple in from 1 to 256, and a
punctuation after every n-th tuple, each against the same without order, or without punctuations. Skew, the third
of these figures, is the benchmark `skew`.

**Scaling.** Operators that sleep (emulated work: two cores do), ``local[32]`` and more, 1 to 32 channels: rows per
second of an epoch against one channel. Stateless behind `spread`, stateful by key, and a shuffle between two keys,
where a tuple's work is split over both regions. Epochs last for many seconds, as their fixed cost must not decide.
Keys are drawn evenly, so the busiest channel has a few percent more than the mean; the ratio that this alone
allows is printed beside.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import _ordering_programs as programs

STRATEGIES = ("round-robin", "sequence numbers", "strict and pulses", "relaxed and pulses", "shuffle")
CHANNELS = (1, 2, 4, 8, 16, 32)
FILES = 4


def start_spark(slots: int, scratch: Path) -> Any:
    from pyspark import cloudpickle
    from pyspark.sql import SparkSession

    from anabranch.spark.java import ensure_java

    cloudpickle.register_pickle_by_value(programs)  # Spark's Python workers need not find this folder
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    ensure_java()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.python.unix.domain.socket.enabled": "true",
    }
    spark = SparkSession.builder.master(f"local[{slots}]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_epochs(directory: Path, rows_of_epochs: list[int], keys: int) -> None:
    directory.mkdir(parents=True)
    random = np.random.default_rng(1)
    for epoch, rows in enumerate(rows_of_epochs):
        for part in range(FILES):
            count = rows // FILES
            table = pa.table(
                {
                    "k": random.integers(0, keys, count),
                    "j": random.integers(0, keys, count),
                    "x": random.random(count),
                }
            )
            path = directory / f"{epoch:03d}-{part}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_700_000_000 + epoch, 1_700_000_000 + epoch))


def run(spark: Any, source: Path, make: Any, channels: int, **options: str) -> list[dict[str, Any]]:
    """The progress of each epoch of a query over all of the source."""
    import anabranch as ab

    stream = ab.session(spark).from_files(str(source), "parquet", programs.COLUMNS, maxFilesPerTrigger=FILES)
    writer = make(stream).writeStream.format("noop").options(channels=channels, balancing="off", **options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query.recentProgress


def seconds(progress: list[dict[str, Any]], warm_up: int) -> list[float]:
    return [each["duration_ms"]["total"] / 1000 for each in progress[warm_up:]]


# -- what order costs ---------------------------------------------------------------------------------------


def overhead(quick: bool, part: str) -> dict[str, float]:
    """Case → how much longer an epoch takes with order (or punctuations) than without."""
    rows, times, rounds = (150_000, 60, 2) if quick else (300_000, 60, 4)
    with tempfile.TemporaryDirectory(prefix="anabranch-ordering-") as folder:
        scratch = Path(folder)
        write_epochs(scratch / "in", [rows // 10, *[rows] * 4], 10_000)
        spark = start_spark(2, scratch)
        try:
            found = {}
            for name, with_order, without in _cases(part, times):
                ordered: list[float] = []
                plain: list[float] = []
                # In turn, and each as often first as second, so that a slow minute of the machine, or a virtual machine
                # that is still getting faster, is nobody's advantage. The first round only warms up.
                for number in range(rounds + 1):
                    pair = [(plain, without), (ordered, with_order)]
                    for into, (make, options) in pair if number % 2 else reversed(pair):
                        measured = seconds(run(spark, scratch / "in", make, 2, **options), 2)
                        into.extend(measured if number else [])
                ratio = statistics.median(ordered) / statistics.median(plain)
                found[name] = ratio - 1
                print(
                    f"{name:28} with {statistics.median(ordered):6.2f} s   without {statistics.median(plain):6.2f} s"
                    f"   {ratio - 1:+7.1%}   ({len(ordered)} epochs each)",
                    flush=True,
                )
            return found
        finally:
            spark.stop()


def _cases(part: str, times: int) -> Any:
    none = {"order": "none"}
    if part == "overhead":
        for name in STRATEGIES:
            make = _program(name, times)
            yield name, (make, {}), (make, none)
    elif part == "selectivity":
        # The same output in all: what differs is how many tuples share a number.
        for copies in (1, 4, 16):
            make = _program(f"1:{copies}", times)
            yield f"1:{copies}", (make, {}), (make, none)
    else:
        plain = _program("sequence numbers", times)
        for every in (10_000, 1_000, 100):
            yield f"a punctuation in {every}", (_punctuated(every, times), {}), (plain, {})


def _program(name: str, times: int) -> Any:
    return lambda stream: programs.overhead_program(name, stream, times)


def _punctuated(every: int, times: int) -> Any:
    def make(stream: Any) -> Any:
        marked = stream.punctuate(lambda t: int(t.x * 1e9) % every == 0)
        return programs.overhead_program("sequence numbers", marked, times)

    return make


# -- how far it scales --------------------------------------------------------------------------------------


def scaling(quick: bool) -> dict[str, dict[int, float]]:
    """Program → channels → rows per second against one channel."""
    # Long enough that going to sleep and waking up, which does cost the processor, is little beside it.
    per_tuple_s, rows_per_channel = (0.010, 2_000) if quick else (0.010, 4_000)
    with tempfile.TemporaryDirectory(prefix="anabranch-ordering-") as folder:
        scratch = Path(folder)
        levels = (1, 32) if quick else CHANNELS
        for channels in levels:
            rows = rows_per_channel * channels
            write_epochs(scratch / f"in-{channels}", [max(channels * 100, 400), rows], 100_000)
        spark = start_spark(max(CHANNELS) + 4, scratch)
        try:
            found: dict[str, dict[int, float]] = {}
            for name in ("stateless", "stateful", "shuffle"):
                rates: dict[int, float] = {}
                for channels in levels:
                    progress = run(
                        spark,
                        scratch / f"in-{channels}",
                        lambda stream, name=name: programs.scaling_program(name, stream, per_tuple_s),
                        channels,
                    )
                    last = progress[-1]
                    rates[channels] = last["rows_in"] / (last["duration_ms"]["total"] / 1000)
                    busiest = _busiest(last)
                    print(
                        f"{name:10} {channels:3} channels  {rates[channels]:9.1f} rows/s  "
                        f"{rates[channels] / rates[1]:6.2f} times one channel"
                        f"   (the busiest channel alone allows {channels / busiest:5.1f})",
                        flush=True,
                    )
                found[name] = {channels: rate / rates[1] for channels, rate in rates.items()}
            return found
        finally:
            spark.stop()


def _busiest(progress: dict[str, Any]) -> float:
    """The rows of the busiest channel over the mean, of the worst stage."""
    worst = 1.0
    for stage in {each["stage"] for each in progress["stages"] if each["level"] > 0}:
        rows = [each["rows_in"] for each in progress["stages"] if each.get("stage") == stage]
        worst = max(worst, max(rows) / (sum(rows) / len(rows)))
    return worst


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ordering")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=["overhead", "selectivity", "punctuation", "scaling"])
    chosen = parser.parse_args(arguments)
    figures: dict[str, Any] = {}
    # A process, and so a JVM, for each part: they need different masters, and none should inherit another's heap.
    for part in [chosen.part] if chosen.part else ["overhead", "selectivity", "punctuation", "scaling"]:
        print(f"-- {part} --", flush=True)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            if part == "scaling":
                scales = pool.submit(scaling, chosen.quick).result()
                figures.update({f"scale32_{name}": round(rates[32], 2) for name, rates in scales.items()})
                continue
            found = pool.submit(overhead, chosen.quick, part).result()
        if part == "overhead":
            figures["seqno_overhead"] = round(found["sequence numbers"], 3)
            figures["pulse_overhead"] = round(max(found["strict and pulses"], found["relaxed and pulses"]), 3)
            figures["shuffle_overhead"] = round(found["shuffle"], 3)
        else:
            figures[part] = {name: round(value, 3) for name, value in found.items()}
    return figures
