"""One key too hot for any channel: a sum per key over punctuated windows, its hot key split or not.

    off    every key is one channel's, as placement can have it
    auto   the default: as written, and in two steps from the moment the system finds the key
    on     in two steps from the first epoch

Then the same without a hot key and without work: what the shuffle of two steps costs where it is no use, in seconds of
an epoch and in CPU seconds of all processes. `auto` must cost what `off` does.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._skew_program import FILES_PER_EPOCH, write_epoch
from benchmarks._spark import processor_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODES = ("off", "auto", "on")


@dataclass(frozen=True)
class HotKey:
    """How large the experiment is.

    Attributes
    ----------
    share
        Of the rows, that the hot key has.
    settling, measured
        Epochs before, and epochs of, the measurement: `auto` looks at three epochs, and needs one more to split.
    """

    channels: int = 8
    rows: int = 10_000
    keys: int = 2_000
    share: float = 0.6
    seconds_per_row: float = 0.0004
    settling: int = 5
    measured: int = 4


def write(directory: Path, setting: HotKey) -> None:
    """Epochs of rows; the last row of each ends the windows."""
    directory.mkdir(parents=True)
    draw = np.random.default_rng(11)
    for epoch in range(setting.settling + setting.measured):
        hot = draw.random(setting.rows) < setting.share
        keys = np.where(hot, 0, draw.integers(1, setting.keys, setting.rows))
        ends = np.arange(setting.rows) == setting.rows - 1
        table = pa.table({"key": keys, "value": draw.integers(0, 100, setting.rows), "ends": ends})
        write_epoch(directory, epoch, table)


def expected(source: Path) -> pa.Table:
    """What one thread would have written: sums by epoch, keys in the order of their first rows."""
    found: list[tuple[int, int]] = []
    files = sorted(source.glob("*.parquet"))
    for at in range(0, len(files), FILES_PER_EPOCH):
        table = pq.read_table(files[at : at + FILES_PER_EPOCH])
        keys, values = table["key"].to_numpy(), table["value"].to_numpy()
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        sums = np.bincount(inverse, weights=values).astype(np.int64)
        found += [(int(distinct[key]), int(sums[key])) for key in np.argsort(first)]
    return pa.table({"key": [key for key, _ in found], "total": [total for _, total in found]})


def run(spark: SparkSession, mode: str, source: Path, scratch: Path, setting: HotKey) -> dict[str, Any]:
    """Seconds of the measured epochs, CPU seconds of all, and whether the program is in two steps at the end."""
    import anabranch as ab
    from benchmarks._skew_program import slow_sum

    frame = spark.readStream.schema("key long, value long, ends boolean").option("maxFilesPerTrigger", FILES_PER_EPOCH)
    stream = ab.session(spark).read(frame.parquet(str(source)))
    begun = processor_time()
    query = (
        stream.punctuate(lambda t: t.ends)
        .aggregate(by="key", window=ab.punctuation(), total=slow_sum(setting.seconds_per_row))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .option("channels", setting.channels)
        .option("splitHotKeys", mode)
        .trigger(availableNow=True)
        .start(str(scratch / "output"))
    )
    handle = spark.streams.get(query.id)
    query.awaitTermination()
    spent = processor_time().since(begun).total_s
    outputs = [pq.read_table(path) for path in sorted((scratch / "output").glob("**/*.parquet"))]
    wanted = expected(source)
    assert pa.concat_tables(outputs).equals(wanted.cast(outputs[0].schema)), "not the output of the sequential run"
    epochs = [
        each.durationMs["triggerExecution"] / 1000 for each in handle.recentProgress if "addBatch" in each.durationMs
    ]
    stages = query.recentProgress[-1]["stages"]
    slowest = [slowest_channels(epoch["stages"]) for epoch in query.recentProgress[setting.settling :]]
    return {
        "slowest_s": statistics.median(slowest),
        "epoch_s": statistics.median(epochs[setting.settling :]),
        "rows_per_second": setting.rows / statistics.median(epochs[setting.settling :]),
        "cpu_s_per_epoch": spent / len(epochs),
        "two_steps": any("-parts" in stage["name"] for stage in stages),
    }


def slowest_channels(stages: list[dict[str, Any]]) -> float:
    """How long the slowest channel of each stage worked, one stage after the other."""
    slowest: dict[str, float] = {}
    for each in stages:
        if each["kind"] == "channel":
            slowest[each["name"]] = max(slowest.get(each["name"], 0.0), each["busy_seconds"])
    return sum(slowest.values())


def compare(spark: SparkSession, scratch: Path, setting: HotKey, calm_epochs: int = 12) -> dict[str, dict[str, Any]]:
    """Mode → what it did; ``nothing hot, …`` is without a hot key and without work."""
    write(scratch / "hot", setting)
    found = {}
    for mode in MODES:
        found[mode] = run(spark, mode, scratch / "hot", scratch / f"hot-{mode}", setting)
        each = found[mode]
        print(
            f"one key with {setting.share:.0%}, split {mode:4} {each['rows_per_second']:>8,.0f} rows/s, "
            f"{each['epoch_s']:.2f} s per epoch, slowest channels {each['slowest_s']:.2f} s; {_steps(each)}",
            flush=True,
        )
    calm = HotKey(setting.channels, setting.rows, setting.keys, 0.0, 0.0, min(3, setting.settling), calm_epochs)
    write(scratch / "calm", calm)
    for mode in MODES:
        each = found[f"nothing hot, {mode}"] = run(spark, mode, scratch / "calm", scratch / f"calm-{mode}", calm)
        print(
            f"no hot key, split {mode:4} {each['epoch_s']:.2f} s and {each['cpu_s_per_epoch']:.2f} CPU s per epoch; "
            f"{_steps(each)}",
            flush=True,
        )
    return found


def _steps(found: dict[str, Any]) -> str:
    return "two steps" if found["two_steps"] else "as written"
