"""Running VWAP per key, one row out for each row in: Anabranch beside Spark's own stateful operators.

    python -m benchmarks stateful [--quick | --mini] [--rows N] [--keys N] [--epochs N] [--system NAME]

What is compared. Every system reads the same parquet files (four per epoch, 500,000 rows, 100,000 possible keys,
Zipf), keeps a durable checkpoint and writes parquet, exactly once. Its time is Spark's own
``durationMs.triggerExecution`` of each epoch, so reading, state, checkpoint, output and Spark's offset and commit
logs are all in it. An epoch's rows divided by the median of the epochs after the warm-up are its rows/s. Beside it
stand the processor seconds of an epoch: of driver, JVM and Python workers together.

    anabranch             rows in the order of the input, values equal to the sequential run bit for bit
    transform_with_state  a row per row, no order among keys and none promised within one
    apply_in_pandas       the same; cumulative sums with numpy for each key
    native                groupBy().agg() in update mode: a row *per key* and epoch, no order, no Python. It does
                          much less, and no user code can be put into it; it says how far off the ceiling is.

Spark's operators use the RocksDB store with changelog checkpoints and without row counting, as many shuffle
partitions as there are cores, and Arrow batches as large as Anabranch's; Anabranch has as many channels as there are
cores. All talk to their Python workers through Unix sockets. The sockets and the batch size were tried, on a busy
machine: the sockets helped transformWithState, the batch size did no harm. The RocksDB settings were not tried against
others.

What is not compared. Spark's operators are not asked for order: that would take a sequence column and a sort.
Rescaling, hot keys, recovery and clusters are other benchmarks. State is small (tens of thousands of keys).

Each system runs in a process, and so a JVM, of its own, one after the other: in a shared one the later ones would
find compiled code, warm Python workers and a grown heap, and RocksDB's memory would stay for those that follow.
All see a small epoch and then full ones before measuring starts. ``--quick`` spares the two slow systems the full
ones and measures a single epoch, against nearly empty state, which is to their advantage if anything.

Every output is checked against a recomputation before a figure is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import _vwap_systems
from benchmarks._spark import apart, ended_batches, processor_time, spark_session
from benchmarks._vwap_input import link_epochs, make_epochs, sequential_output, write_epochs
from benchmarks._vwap_systems import SYSTEMS, System, read_trades

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SMALL_EPOCH_SHARE = 25  # the first epoch has a 25th of the rows


@dataclass(frozen=True)
class Measurement:
    """What a system did with its epochs.

    Attributes
    ----------
    epoch_rows : int
        Rows in each measured epoch.
    epoch_seconds : list of float
        How long each measured epoch took, by Spark's progress.
    processor_s : float
        What a measured epoch took of the processors, of driver, JVM and workers together, in the mean.
    own_progress : list of dict
        Anabranch's own account of the measured epochs; empty for the others.
    verdict : str
        What the check of the output found.
    """

    epoch_rows: int
    epoch_seconds: list[float]
    processor_s: float
    own_progress: list[dict[str, Any]]
    verdict: str

    @property
    def seconds(self) -> float:
        return statistics.median(self.epoch_seconds)

    @property
    def rows_per_second(self) -> float:
        return self.epoch_rows / self.seconds


@dataclass(frozen=True)
class Workload:
    """How much each system gets: epochs to warm up on, the first of them small, and epochs that are measured."""

    rows: int
    keys: int
    warm_up: int
    measured: int
    quick: bool

    def epochs_of(self, system: System) -> tuple[int, int]:
        """How many epochs the system warms up on, and how many are measured."""
        if self.quick and system.is_slow:
            return 1, 1
        return self.warm_up, self.measured

    def rows_of_epochs(self, systems: list[System]) -> list[int]:
        full = max(sum(self.epochs_of(system)) for system in systems) - 1
        return [max(self.rows // SMALL_EPOCH_SHARE, 1), *[self.rows] * full]


def run_query(
    spark: SparkSession, system: System, source: Path, scratch: Path
) -> tuple[list[Any], list[float], list[Any]]:
    """Run over all of `source`, into ``scratch/output``.

    Given are Spark's progress per epoch, the processor seconds that all processes had used behind each, and the
    system's own progress.
    """
    used: list[float] = []
    query = system.start(read_trades(spark, source), scratch / "output", scratch / "checkpoint")
    # Anabranch's handle has a progress of its own; Spark's is had from Spark, so it is the same for all.
    handle = spark.streams.get(query.id)
    with ended_batches(spark, str(query.id), lambda: used.append(processor_time().total_s)):
        query.awaitTermination()
        progress = [each for each in handle.recentProgress if "addBatch" in each.durationMs]
        until = time.monotonic() + 10
        while len(used) < len(progress) and time.monotonic() < until:
            time.sleep(0.01)  # Spark tells of the last one a moment later
    return progress, used, query.recentProgress


def measure(system_name: str, workload: Workload, cores: int, source: Path, scratch: Path) -> Measurement:
    """Run one system; called in a process of its own."""
    import pyarrow.parquet as pq
    from pyspark import cloudpickle

    # Spark's Python workers need not find this folder.
    cloudpickle.register_pickle_by_value(_vwap_systems)
    system = SYSTEMS[system_name]
    warm_up, measured = workload.epochs_of(system)
    mine = link_epochs(source, warm_up + measured, scratch / "input")
    with spark_session(cores, scratch, {"spark.sql.shuffle.partitions": str(cores), **system.settings}) as spark:
        progress, used, own = run_query(spark, system, mine, scratch)
    # Rows that our tasks read themselves are none that Spark counts.
    rows = [each["rows_in"] for each in own] if system_name == "anabranch" else [each.numInputRows for each in progress]
    expected_rows = workload.rows_of_epochs([system])
    if rows != expected_rows:
        raise AssertionError(f"{system.title}: epochs of {rows} rows, expected {expected_rows}")
    if len(used) != len(progress):
        raise AssertionError(f"{system.title}: Spark told of {len(used)} of {len(progress)} epochs")
    epochs = epochs_in(pq.read_table(sorted(mine.glob("*.parquet"))), rows)
    verdict = system.check(system.read(scratch / "output"), sequential_output(epochs))
    return Measurement(
        epoch_rows=workload.rows,
        epoch_seconds=[each.durationMs["triggerExecution"] / 1000 for each in progress[warm_up:]],
        processor_s=(used[-1] - used[warm_up - 1]) / measured,
        own_progress=own[warm_up:] if system_name == "anabranch" else [],
        verdict=verdict,
    )


def epochs_in(table: pa.Table, rows_of_epochs: list[int]) -> list[pa.Table]:
    starts = [sum(rows_of_epochs[:epoch]) for epoch in range(len(rows_of_epochs))]
    return [table.slice(start, rows) for start, rows in zip(starts, rows_of_epochs, strict=True)]


def measure_apart(system: System, workload: Workload, cores: int, source: Path, scratch: Path) -> Measurement:
    return apart(measure_or_explain, system.name, workload, cores, source, scratch / system.name)


def measure_or_explain(*arguments: Any) -> Measurement:
    """An error as text: Spark's own errors cannot be sent to another process."""
    try:
        return measure(*arguments)
    except Exception:
        raise RuntimeError(traceback.format_exc()) from None


# ---- what is printed ----


def describe(system: System, measurement: Measurement) -> str:
    seconds = measurement.epoch_seconds
    return (
        f"{system.title:38} {measurement.rows_per_second:>11,.0f} rows/s   epoch {measurement.seconds:6.2f} s "
        f"(min {min(seconds):.2f}, max {max(seconds):.2f}, of {len(seconds)}), {measurement.processor_s:.2f} of the "
        "processors\n"
        f"{'':38} {measurement.verdict}"
    )


def breakdown(measurement: Measurement) -> list[str]:
    """Where Anabranch's epochs spent their time: medians over the measured ones."""
    epochs = measurement.own_progress

    def median(values: list[float]) -> str:
        return f"{statistics.median(values):.2f}"

    total_seconds = [epoch["duration_ms"]["total"] / 1000 for epoch in epochs]
    outside = [whole - own for whole, own in zip(measurement.epoch_seconds, total_seconds, strict=True)]
    parts = [
        f"{name} {median([epoch['duration_ms'][name] / 1000 for epoch in epochs])}"
        for name in epochs[0]["duration_ms"]
        if name != "total"
    ]
    lines = [f"  epoch, s: {', '.join(parts)}, Spark's own offsets, listing and commit {median(outside)}"]
    for stage in sorted({task["stage"] or 0 for task in epochs[0]["stages"]}):
        title = "splitters" if stage == 0 else f"channels of stage {stage}"
        reports = [[each for each in epoch["stages"] if (each["stage"] or 0) == stage] for epoch in epochs]
        names = [name for name in reports[0][0] if name.endswith("seconds")]
        slowest = [f"{name} {median([max(r[name] for r in epoch) for epoch in reports])}" for name in names]
        lines.append(f"  {title}, slowest of {len(reports[0])}: {', '.join(slowest)}")
    written = median([epoch["state_bytes"] / 1e6 for epoch in epochs])
    lines.append(f"  state written per epoch: {written} MB")
    return lines


def figures_of(measurements: dict[str, Measurement]) -> dict[str, float]:
    """Ours divided by theirs, by the clock and (``_cpu``) by processor second; of a system without ours, its rows/s."""
    ours = measurements.get("anabranch")
    peers = {name: found for name, found in measurements.items() if name != "anabranch"}
    if ours is None or not peers:
        return {f"rows_per_second_{name}": round(found.rows_per_second) for name, found in measurements.items()}
    by_the_clock = {f"ratio_{name}": ours.rows_per_second / found.rows_per_second for name, found in peers.items()}
    by_processor = {f"ratio_{name}_cpu": found.processor_s / ours.processor_s for name, found in peers.items()}
    return {name: round(ratio, 2) for name, ratio in {**by_the_clock, **by_processor}.items()}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks stateful", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one measured epoch for the slow systems: 3 minutes")
    parser.add_argument("--mini", action="store_true", help="hardly any rows, to see that it runs")
    parser.add_argument("--rows", type=int, default=500_000, help="rows per epoch (%(default)s)")
    parser.add_argument("--keys", type=int, default=100_000, help="possible keys (%(default)s)")
    parser.add_argument("--epochs", type=int, default=5, help="measured epochs (%(default)s)")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="only this one; may be repeated")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> dict[str, float]:
    options = parse(arguments)
    systems = [SYSTEMS[name] for name in options.system or SYSTEMS]
    if options.mini:
        workload = Workload(rows=1000, keys=50, warm_up=1, measured=1, quick=True)
    else:
        workload = Workload(options.rows, options.keys, 4, options.epochs, options.quick)
    cores = len(os.sched_getaffinity(0))
    started = time.perf_counter()
    measurements = {}
    with tempfile.TemporaryDirectory(prefix="anabranch-stateful-", ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        epochs = make_epochs(workload.rows_of_epochs(systems), workload.keys)
        write_epochs(epochs, scratch / "source")
        distinct = len(epochs[-1].column("key").unique())
        print(
            f"{workload.rows:,} rows and {distinct:,} distinct keys of {workload.keys:,} per epoch; {cores} cores, "
            f"{cores} channels, {cores} shuffle partitions"
        )
        for system in systems:
            load = os.getloadavg()[0]
            found = measure_apart(system, workload, cores, scratch / "source", scratch)
            measurements[system.name] = found
            print(f"{describe(system, found)}; load average before: {load:.1f}", flush=True)
            if found.own_progress:
                print("\n".join(breakdown(found)), flush=True)
    print(f"took {time.perf_counter() - started:.0f} s in all")
    return figures_of(measurements)
