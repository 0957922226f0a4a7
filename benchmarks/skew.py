"""Throughput under skew on Spark: the hybrid partitioning function beside consistent and uniform hashing.

    python -m benchmarks skew [--quick | --mini] [--channels N] [--rows N] [--seed N]

What is compared. One program, a running total per key, that takes the same time for every tuple (emulated: channels
sleep, so all channels work at once, also on two cores). Keys are Zipf 1.0. Everything but the partitioning function
is the same, in one run, one after the other:

    hybrid       the system as it is: it begins with consistent hashing, counts, and replaces the function itself
    consistent   option balancing=off: the ring, evened out so that every channel has as many key groups
    uniform      every key by its hash modulo the number of channels

The figure is the median throughput of the epochs after the hybrid has settled: rows over Spark's own time for the
epoch, with everything in it. Every output is compared with the sequential run. Which keys are frequent is drawn; of
21 draws that one is taken for which consistent hashing is of median quality, so luck flatters neither side.

Then the *Skew* experiment of *Safe* (Figure 9): p % of 1,000 keys have 80 % of the rows, from p = 78 to p = 1. The
paper's runtime hashes keys and loses its speedup as skew grows; beside it the same with balancing. Speedup is the
work of an epoch, all tuples one after the other, over the time of the slowest channel.

Then a key with 60 % of the rows, which no placement can balance, in a sum per key: split ``off``, ``auto``, ``on``, and
what two steps cost where no key is hot (`_skew_hot_key.py`).

And what the splitter pays: nanoseconds per row for hashing, for look-up, for counting, beside ``hash % N``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.partitioning.counting.tally import Tally
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import evened
from anabranch.program.hashing import hash_columns
from anabranch.state import key_owners
from benchmarks._skew_program import FILES_PER_EPOCH, write_epoch
from benchmarks._spark import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRAWS = 21
SYSTEMS = ("hybrid", "consistent", "uniform")
OUTPUT = "key long, value long, total long"


@dataclass(frozen=True)
class Setting:
    """How large the experiment is.

    Attributes
    ----------
    rows, seconds_per_row
        Of an epoch; how long the work for a tuple is.
    settling, measured
        Epochs before, and epochs of, the measurement.
    """

    channels: int = 8
    rows: int = 40_000
    keys: int = 20_000
    seconds_per_row: float = 0.0004
    settling: int = 5
    measured: int = 5

    @property
    def epochs(self) -> int:
        return self.settling + self.measured


MINI = Setting(channels=2, rows=400, keys=100, settling=1, measured=1)


# ---- input ----


def zipf(keys: int, z: float = 1.0) -> np.ndarray:
    shares = 1 / np.arange(1, keys + 1, dtype=float) ** z
    return shares / shares.sum()


def two_classes(keys: int, percent: int) -> np.ndarray:
    """`percent` % of the keys have 80 % of the rows, equally among themselves; the others share the rest."""
    hot = max(1, round(keys * percent / 100))
    return np.concatenate([np.full(hot, 0.8 / hot), np.full(keys - hot, 0.2 / (keys - hot))])


def slowdown(function: PartitioningFunction, names: np.ndarray, shares: np.ndarray) -> float:
    """The busiest channel's rows over the mean, for true frequencies."""
    loads = np.bincount(function.route(hash_columns([pa.array(names)])), weights=shares, minlength=function.channels)
    return float(loads.max() / loads.mean())


def median_names(shares: np.ndarray, function: PartitioningFunction, seed: int) -> np.ndarray:
    """Names of keys such that a function is of median quality among so many draws."""
    drawn = [np.random.default_rng([seed, draw]).permutation(len(shares)) for draw in range(DRAWS)]
    drawn.sort(key=lambda names: slowdown(function, names, shares))
    return drawn[DRAWS // 2]


def write_epochs(directory: Path, names: np.ndarray, shares: np.ndarray, setting: Setting, seed: int) -> None:
    directory.mkdir(parents=True)
    draw = np.random.default_rng(seed)
    for epoch in range(setting.epochs):
        keys = names[draw.choice(len(shares), setting.rows, p=shares)]
        table = pa.table({"key": keys, "value": draw.integers(0, 100, setting.rows)})
        write_epoch(directory, epoch, table)


def sequential_totals(source: Path) -> pa.Table:
    """What one thread would have written, by numpy."""
    table = pq.read_table(sorted(source.glob("*.parquet")))
    keys, values = table["key"].to_numpy(), table["value"].to_numpy()
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.diff(keys[order], prepend=-1))
    sums = np.cumsum(values[order])
    before = np.concatenate([[0], sums[starts[1:] - 1]])
    totals = np.empty(len(keys), dtype=np.int64)
    totals[order] = sums - np.repeat(before, np.diff([*starts, len(keys)]))
    return pa.table({"key": keys, "value": values, "total": totals})


# ---- one query ----


@dataclass(frozen=True)
class Run:
    """What a query did in its measured epochs."""

    rows_per_second: float
    slowest_seconds: float
    """Median over epochs: the busiest channel's time in operators."""
    busiest: float
    """Median over epochs: its rows over the mean."""
    replacements: int
    hot_keys: int


@contextlib.contextmanager
def beginning_with(make: Callable[[int, int], PartitioningFunction]) -> Iterator[None]:
    """Queries begin with another function."""
    before = key_owners.evened
    key_owners.evened = make
    try:
        yield
    finally:
        key_owners.evened = before


def uniform(names: np.ndarray, channels: int) -> PartitioningFunction:
    """Every key explicitly where its hash modulo the number of channels says."""
    hashes = hash_columns([pa.array(np.sort(names))])
    return PartitioningFunction.even(channels).with_hot({h: h % channels for h in hashes.tolist()})


def run(spark: SparkSession, system: str, source: Path, scratch: Path, names: np.ndarray, setting: Setting) -> Run:
    import anabranch as ab
    from benchmarks._skew_program import Total, working

    make = evened if system != "uniform" else lambda channels, _bundles: uniform(names, channels)
    frame = spark.readStream.schema("key long, value long").option("maxFilesPerTrigger", FILES_PER_EPOCH)
    with beginning_with(make):
        stream = ab.session(spark).read(frame.parquet(str(source)))
        query = (
            stream.process(Total(), by="key", schema=OUTPUT)
            .map(working(setting.seconds_per_row), schema=OUTPUT)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .option("channels", setting.channels)
            .option("balancing", "auto" if system == "hybrid" else "off")
            .trigger(availableNow=True)
            .start(str(scratch / "output"))
        )
        handle = spark.streams.get(query.id)
        query.awaitTermination()
    check(scratch / "output", source)
    spent = [
        each.durationMs["triggerExecution"] / 1000 for each in handle.recentProgress if "addBatch" in each.durationMs
    ]
    epochs = query.recentProgress
    channels = [
        [stage for stage in epoch["stages"] if stage["kind"] == "channel"] for epoch in epochs[setting.settling :]
    ]
    rows = [[stage["rows_in"] for stage in each] for each in channels]
    (region,) = query._runner.current.functions
    return Run(
        rows_per_second=setting.rows / statistics.median(spent[setting.settling :]),
        slowest_seconds=statistics.median(max(stage["busy_seconds"] for stage in each) for each in channels),
        busiest=statistics.median(max(each) * len(each) / sum(each) for each in rows),
        replacements=sum(len(epoch["changes"]) for epoch in epochs),
        hot_keys=len(query._runner.current.functions[region].hot_hashes),
    )


def check(output: Path, source: Path) -> None:
    """Every row, in order, equals the sequential run."""
    found = pa.concat_tables(pq.read_table(path) for path in sorted(output.glob("**/*.parquet")))
    expected = sequential_totals(source)
    assert found.equals(expected.cast(found.schema)), "the output is not that of the sequential run"


# ---- the experiments ----


def compare(spark: SparkSession, scratch: Path, setting: Setting, seed: int) -> dict[str, Run]:
    shares = zipf(setting.keys)
    names = median_names(shares, evened(setting.channels), seed)
    write_epochs(scratch / "source", names, shares, setting, seed)
    return {each: run(spark, each, scratch / "source", scratch / each, names, setting) for each in SYSTEMS}


def paper_skew(
    spark: SparkSession, scratch: Path, setting: Setting, percents: list[int]
) -> dict[int, dict[str, float]]:
    """Percent of the keys with 80 % of the rows → speedup with and without balancing."""
    found: dict[int, dict[str, float]] = {}
    for percent in percents:
        shares = two_classes(1000, percent)
        names = median_names(shares, evened(setting.channels), percent)
        here = scratch / f"skew-{percent}"
        write_epochs(here / "source", names, shares, setting, percent)
        alone = setting.rows * setting.seconds_per_row
        found[percent] = {
            each: round(alone / run(spark, each, here / "source", here / each, names, setting).slowest_seconds, 2)
            for each in ("hybrid", "consistent")
        }
        print(f"  {percent:>3} % of the keys have 80 % of the rows: {found[percent]}", flush=True)
    return found


def splitter_cost(keys: int = 100_000, rows: int = 500_000, tries: int = 15) -> dict[str, float]:
    """Nanoseconds per row (CPU), the least of several tries: batches of 32,768 rows, as the splitter has them.

    The ways take turns, so that a busy moment of the machine is one of all of them.
    """
    ranks = np.random.default_rng(0).choice(keys, rows, p=zipf(keys))
    batches = [pa.array(ranks[at : at + 32_768]) for at in range(0, rows, 32_768)]
    texts = [pa.array([f"key {rank}" for rank in batch.to_pylist()]) for batch in batches]
    hashes = [hash_columns([batch]) for batch in batches]
    everything = np.concatenate(hashes)
    hot, counts = np.unique(everything, return_counts=True)
    hottest = hot[np.argsort(-counts)[:40]].tolist()
    hybrid = evened(8).with_hot({key: at % 8 for at, key in enumerate(hottest)})

    def count() -> None:
        tally = Tally(1)
        for each in hashes:
            tally.add(each)
        tally.to_report()

    ways: dict[str, Callable[[], Any]] = {
        "hash_integers": lambda: [hash_columns([each]) for each in batches],
        "hash_texts": lambda: [hash_columns([each]) for each in texts],
        "modulo": lambda: [(each % np.uint64(8)).astype(np.int32) for each in hashes],
        "look_up_without_hot_keys": lambda: [evened_8.route(each) for each in hashes],
        "look_up_with_40_hot_keys": lambda: [hybrid.route(each) for each in hashes],
        "count": count,
    }
    least = dict.fromkeys(ways, float("inf"))
    for _ in range(tries):
        for name, way in ways.items():
            begun = time.process_time()
            way()
            least[name] = min(least[name], time.process_time() - begun)
    return {name: round(seconds / rows * 1e9, 2) for name, seconds in least.items()}


evened_8 = evened(8)


def skew_gain(setting: Setting | None = None, seed: int = 1) -> float:
    """Throughput of the hybrid function over that of consistent hashing."""
    found = _measured(setting or Setting(), seed, hot_key=False)[0]
    return round(found["hybrid"].rows_per_second / found["consistent"].rows_per_second, 2)


def _measured(
    setting: Setting, seed: int, percents: tuple[int, ...] = (), hot_key: bool = True
) -> tuple[dict[str, Run], dict[int, dict[str, float]], dict[str, dict[str, Any]]]:
    from pyspark import cloudpickle

    from benchmarks import _skew_hot_key, _skew_program

    cloudpickle.register_pickle_by_value(_skew_program)
    with tempfile.TemporaryDirectory(prefix="anabranch-skew-", ignore_cleanup_errors=True) as directory:
        scratch = Path(directory)
        settings = {"spark.sql.shuffle.partitions": str(setting.channels)}
        with spark_session(setting.channels, scratch, settings) as spark:
            runs = compare(spark, scratch, setting, seed)
            for name, each in runs.items():
                print(
                    f"{name:11} {each.rows_per_second:>9,.0f} rows/s   busiest channel {each.busiest:.2f} × the mean, "
                    f"{each.slowest_seconds:.2f} s; {each.replacements} replacements, {each.hot_keys} explicit keys",
                    flush=True,
                )
            settling, measured = min(4, setting.settling), min(3, setting.measured)
            smaller = Setting(setting.channels, setting.rows // 2, 1000, settling=settling, measured=measured)
            paper = paper_skew(spark, scratch, smaller, list(percents))
            one = _skew_hot_key.HotKey(channels=setting.channels)
            calm_epochs = 12
            if setting == MINI:
                one, calm_epochs = _skew_hot_key.HotKey(setting.channels, 400, 50, settling=1, measured=1), 1
            return runs, paper, _skew_hot_key.compare(spark, scratch, one, calm_epochs) if hot_key else {}


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks skew", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer epochs, two points of the Skew experiment")
    parser.add_argument("--mini", action="store_true", help="hardly any rows, to see that it runs")
    parser.add_argument("--channels", type=int, default=8)
    parser.add_argument("--rows", type=int, default=40_000, help="rows per epoch (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    measured = 3 if options.quick else 5
    setting = MINI if options.mini else Setting(channels=options.channels, rows=options.rows, measured=measured)
    shares = zipf(setting.keys)
    print(
        f"{setting.rows:,} rows per epoch, {setting.keys:,} keys, Zipf 1.0 (the hottest has {shares[0]:.1%}), "
        f"{setting.channels} channels, {setting.seconds_per_row * 1e6:.0f} µs of work per row; "
        f"{len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    cost = splitter_cost(keys=1000, rows=5000, tries=1) if options.mini else splitter_cost()
    print("splitter, ns per row: " + ", ".join(f"{name} {value}" for name, value in cost.items()), flush=True)
    percents = (1,) if options.mini else (78, 1) if options.quick else (78, 50, 25, 10, 5, 1)
    runs, paper, hot = _measured(setting, options.seed, percents)
    rates = {name: each.rows_per_second for name, each in runs.items()}
    return {
        "skew_gain": round(rates["hybrid"] / rates["consistent"], 2),
        "skew_gain_uniform": round(rates["hybrid"] / rates["uniform"], 2),
        "busiest": {name: round(each.busiest, 2) for name, each in runs.items()},
        "speedup": {str(percent): each for percent, each in paper.items()},
        "hot_key_rows_per_second": {mode: round(hot[mode]["rows_per_second"]) for mode in ("off", "auto", "on")},
        "no_hot_key_epoch_s": {
            mode: round(hot[f"nothing hot, {mode}"]["epoch_s"], 2) for mode in ("off", "auto", "on")
        },
        "splitter_ns": cost,
        "load": round(os.getloadavg()[0], 1),
    }
