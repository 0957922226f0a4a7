"""Running VWAP per key in four systems: what a user of each would write, and how each is best run.

Everything Python that runs per row or per key is here and is short; the settings are meant to be each
system's best, not its defaults.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Row
from pyspark.sql import functions as F  # noqa: N812 - every PySpark user knows it by this name
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import anabranch as ab
from benchmarks._vwap_input import (
    FILES_PER_EPOCH,
    SCHEMA,
    Output,
    check_identical,
    check_last_values,
    check_per_key,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OUTPUT = "key long, vwap double"
TOTALS = "amount double, volume double"

ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"
SPARK_STATE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{ROCKSDB}.changelogCheckpointing.enabled": "true",
    # Spares a lookup per write, at the price of a metric.
    f"{ROCKSDB}.trackTotalNumberOfRows": "false",
    # As large as Anabranch sets it for itself; in short trials larger batches were not slower than Spark's 10000.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Not for speed: the check reads from this log which file belongs to which epoch, compacted it would not say.
    "spark.sql.streaming.fileSink.log.compactInterval": "1000",
}


# ---- ours ----


class Vwap(ab.Operator):
    amount: float = ab.state(default=0.0)
    volume: float = ab.state(default=0.0)

    def process(self, t: Any) -> Iterator[tuple[int, float]]:
        self.amount += t.price * t.volume
        self.volume += t.volume
        yield t.key, self.amount / self.volume


def start_anabranch(trades: DataFrame, output: Path, checkpoint: Path, **options: str) -> Any:
    stream = ab.session(trades.sparkSession).read(trades).process(Vwap(), by="key", schema=OUTPUT)
    writer = stream.writeStream.format("parquet").options(checkpointLocation=str(checkpoint), **options)
    return writer.trigger(availableNow=True).start(str(output))


# ---- transformWithState ----


class VwapProcessor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.totals = handle.getValueState("totals", TOTALS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        # get() without exists(): each is a round trip to the JVM.
        amount, volume = self.totals.get() or (0.0, 0.0)
        for row in rows:
            amount += row.price * row.volume
            volume += row.volume
            yield Row(key=row.key, vwap=amount / volume)
        self.totals.update((amount, volume))

    def close(self) -> None:
        pass


def start_transform_with_state(trades: DataFrame, output: Path, checkpoint: Path) -> Any:
    vwaps = trades.groupBy("key").transformWithState(VwapProcessor(), OUTPUT, "Append", "None")
    return append_to_parquet(vwaps, output, checkpoint)


# ---- transformWithState, by pandas ----


class VwapPandasProcessor(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.totals = handle.getValueState("totals", TOTALS)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        amount, volume = self.totals.get() or (0.0, 0.0)
        for batch in rows:
            made, amount, volume = vwaps_of(batch, amount, volume)
            yield made
        self.totals.update((amount, volume))

    def close(self) -> None:
        pass


def start_transform_in_pandas(trades: DataFrame, output: Path, checkpoint: Path) -> Any:
    vwaps = trades.groupBy("key").transformWithStateInPandas(VwapPandasProcessor(), OUTPUT, "Append", "None")
    return append_to_parquet(vwaps, output, checkpoint)


def vwaps_of(batch: pd.DataFrame, amount: float, volume: float) -> tuple[pd.DataFrame, float, float]:
    """The running values of a key's rows, and its totals behind them."""
    batch_volumes = batch["volume"].to_numpy()
    amounts = batch["price"].to_numpy() * batch_volumes
    amounts[0] += amount
    volumes = batch_volumes.copy()
    volumes[0] += volume
    amounts, volumes = np.cumsum(amounts), np.cumsum(volumes)
    made = pd.DataFrame({"key": batch["key"], "vwap": amounts / volumes})
    return made, float(amounts[-1]), float(volumes[-1])


# ---- applyInPandasWithState ----


def running_vwap(key: tuple[Any, ...], batches: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    amount, volume = state.get if state.exists else (0.0, 0.0)
    for batch in batches:
        made, amount, volume = vwaps_of(batch, amount, volume)
        yield made
    state.update((amount, volume))


def start_apply_in_pandas(trades: DataFrame, output: Path, checkpoint: Path) -> Any:
    vwaps = trades.groupBy("key").applyInPandasWithState(running_vwap, OUTPUT, TOTALS, "Append", "NoTimeout")
    return append_to_parquet(vwaps, output, checkpoint)


# ---- the native aggregation ----


def start_native(trades: DataFrame, output: Path, checkpoint: Path) -> Any:
    amount, volume = F.sum(F.col("price") * F.col("volume")), F.sum("volume")
    vwaps = trades.groupBy("key").agg((amount / volume).alias("vwap"))

    def write(batch: DataFrame, epoch: int) -> None:
        batch.write.mode("overwrite").parquet(f"{output}/epoch-{epoch:06d}")

    # The parquet sink takes no updates, so a batch is written by hand, under its number: once, as with the others.
    writer = vwaps.writeStream.outputMode("update").foreachBatch(write)
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


# ---- what they share ----


def read_trades(spark: SparkSession, directory: Path) -> DataFrame:
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES_PER_EPOCH)
    return reader.parquet(str(directory))


def append_to_parquet(rows: DataFrame, output: Path, checkpoint: Path) -> Any:
    writer = rows.writeStream.format("parquet").outputMode("append")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(output))


def read_anabranch(output: Path) -> list[Output]:
    epochs = sorted({path.name.split("-")[1] for path in output.glob("part-*")})
    return [read_files(sorted(output.glob(f"part-{epoch}-*"))) for epoch in epochs]


def read_file_sink(output: Path) -> list[Output]:
    """By the sink's own log: files that are not in it do not count."""
    logs = sorted((path for path in (output / "_spark_metadata").glob("[0-9]*")), key=lambda path: int(path.name))
    outputs = []
    for log in logs:
        _, *lines = log.read_text().splitlines()
        names = sorted(Path(json.loads(line)["path"]).name for line in lines)
        outputs.append(read_files([output / name for name in names]))
    return outputs


def read_epoch_directories(output: Path) -> list[Output]:
    return [read_files(sorted(path.glob("*.parquet"))) for path in sorted(output.glob("epoch-*"))]


def read_files(paths: list[Path]) -> Output:
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    return Output(table.column("key").to_numpy(), table.column("vwap").to_numpy())


@dataclass(frozen=True)
class System:
    """One of the systems that are compared.

    Attributes
    ----------
    settings : dict
        What the Spark session gets beside what all get.
    start : callable
        Starts the query on (trades, output path, checkpoint path).
    read : callable
        Reads back what the query wrote, per epoch.
    check : callable
        Compares that with the sequential output and says what it found.
    is_slow : bool
        An epoch takes it most of a minute; with ``--quick`` it gets fewer of them.
    """

    name: str
    title: str
    settings: dict[str, str]
    start: Callable[[DataFrame, Path, Path], Any]
    read: Callable[[Path], list[Output]]
    check: Callable[[list[Output], list[Output]], str]
    is_slow: bool = False


IN_PANDAS = System(
    "transform_with_state_pandas",
    "transformWithStateInPandas",
    SPARK_STATE,
    start_transform_in_pandas,
    read_file_sink,
    check_per_key,
    is_slow=True,
)
SYSTEMS = {
    system.name: system
    for system in (
        System("anabranch", "Anabranch", {}, start_anabranch, read_anabranch, check_identical),
        System(
            "transform_with_state",
            "transformWithState (Row)",
            SPARK_STATE,
            start_transform_with_state,
            read_file_sink,
            check_per_key,
            is_slow=True,
        ),
        System(
            "apply_in_pandas",
            "applyInPandasWithState",
            SPARK_STATE,
            start_apply_in_pandas,
            read_file_sink,
            check_per_key,
            is_slow=True,
        ),
        System(
            "native",
            "native groupBy().agg() (a row per key)",
            SPARK_STATE,
            start_native,
            read_epoch_directories,
            check_last_values,
        ),
    )
}
