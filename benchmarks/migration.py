"""How long tuples wait when a region is rescaled, beside Spark's own way, in one run.

    python -m benchmarks migration [--quick | --mini] [--keys N,N,…] [--spark-keys N,N,…]

Both queries read parquet files, one an epoch, hold a count and a sum per long key, emit nothing, run on Spark
local[2], and are rescaled 2 → 3 → 4 → 8 → 2 with so many keys in their state. The pause is what the rescaling adds:

    ours     two files are put, and between their epochs the region is rescaled by `query.rescale`; the time until both
             are done − twice the time of an ordinary epoch
    Spark's  a file is put, the query (transformWithState, RocksDB) is stopped, its checkpoint repartitioned by
             `spark._streamingCheckpointManager.repartition`, the query started again; the time until the file is done
             − the time of an ordinary epoch

Ours is also followed for five epochs after the switch, because new owners read what old ones wrote until it has been
merged: *later* is the most any of these took beyond an ordinary epoch.

State is put into our checkpoint in the files that a long run leaves behind (see `_held_state`). Spark's state can
only be made by its own query, at about a millisecond a key, so it is made for fewer sizes: 10⁵ and 10⁶ (about a quarter
of an hour on two cores), not 5·10⁶. With ``--quick`` both have 20,000 keys, and the ratio says little.

*moved* is how many keys change their channel, over the fewest that must for channels that all hold the same number.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import anabranch as ab
from anabranch.papers.streaming.migration import Holdings, moved_keys
from anabranch.state.files import LocalFiles
from anabranch.state.key_owners import KeyOwners
from anabranch.state.reader import CheckpointReader
from benchmarks import _held_state
from benchmarks._spark import spark_session

STEPS = (3, 4, 8, 2)
KEYS = (100_000, 1_000_000, 5_000_000)
SPARK_KEYS = (100_000, 1_000_000)
RATIO_KEYS = 1_000_000
TOUCHED = 2_000
SCHEMA = "key long, value double"
OPERATOR = "Total"
FIELDS = ["count", "total"]
SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Changed by Spark's side, which cannot choose it per query.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
SEED_EPOCHS = 8


@dataclass(frozen=True)
class Rounds:
    """Numbers of channels, one after the other; epochs measured before a rescaling, and after it."""

    steps: tuple[int, ...] = STEPS
    ordinary: int = 5
    after: int = 5


@dataclass(frozen=True)
class Rescaling:
    """One rescaling."""

    before: int
    after: int
    pause_s: float
    later_s: float = 0.0
    moved: float | None = None


class Input:
    """A directory that files are put into; keys at random among those held."""

    def __init__(self, directory: Path, held: int) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self._held = held
        self._random = np.random.default_rng(held)

    def put(self, keys: np.ndarray | None = None) -> None:
        if keys is None:
            keys = self._random.integers(0, self._held, TOUCHED)
        passing = self.directory / "_passing"
        pq.write_table(pa.table({"key": keys, "value": self._random.random(len(keys))}), passing)
        passing.rename(self.directory / f"{time.time_ns()}.parquet")


def seconds(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def ordinary_s(put: Callable[[], None], wait: Callable[[], Any], epochs: int) -> float:
    """How long an epoch takes when nothing changes: the median of a few, after a warm-up."""

    def epoch() -> None:
        put()
        wait()

    epoch()
    return statistics.median(seconds(epoch) for _ in range(epochs))


# -- ours ---------------------------------------------------------------------------------------------------------


def start_ours(session: ab.Session, place: Path) -> Any:
    class Total(ab.Operator):
        count: float = ab.state(default=0.0)
        total: float = ab.state(default=0.0)

        def process(self, t):  # type: ignore[no-untyped-def]
            self.count += 1.0
            self.total += t.value
            if t.value > 2.0:
                yield t

    rows = session.from_files(str(_held_state.input_of(place)), "parquet", SCHEMA, maxFilesPerTrigger=1)
    stream = rows.process(Total(), by="key", schema=SCHEMA, name=OPERATOR)
    writer = stream.writeStream.format("noop").option("channels", 2)
    return writer.option("checkpointLocation", str(place)).start()


def seed_ours(session: ab.Session, root: Path) -> Path:
    """A query with a few epochs of history and hardly any state."""
    place = root / "seed"
    source = Input(_held_state.input_of(place), 1000)
    query = start_ours(session, place)
    for _ in range(SEED_EPOCHS):
        source.put()
        query.processAllAvailable()
    query.stop()
    return place


def rescale_ours(session: ab.Session, root: Path, keys: int, rounds: Rounds) -> Iterator[Rescaling]:
    place = root / f"ours-{keys}"
    _held_state.copy(root / "seed", place)
    _held_state.fill(place, OPERATOR, FIELDS, keys, TOUCHED, 2)
    source = Input(_held_state.input_of(place), keys)
    query = start_ours(session, place)
    (region,) = [each.name for each in query.regions]
    before = 2
    for after in rounds.steps:
        ordinary = ordinary_s(source.put, query.processAllAvailable, rounds.ordinary)
        function = owners(place).function(region)

        def switch(after: int = after) -> None:
            query.rescale(region, after)  # takes effect after the epoch that comes now
            source.put()
            query.processAllAvailable()
            source.put()
            query.processAllAvailable()

        pause = seconds(switch) - 2 * ordinary
        assert query.lastProgress["channels"][region] == after, query.lastProgress

        def epoch() -> None:
            source.put()
            query.processAllAvailable()

        later = max(seconds(epoch) for _ in range(rounds.after)) - ordinary
        hashes = CheckpointReader(LocalFiles(str(place / "anabranch"))).route_hashes(OPERATOR)
        new = owners(place).function(region)
        moved = moved_keys(function, new, Holdings.of(hashes, function, new)).against_minimum
        yield Rescaling(before, after, pause, later, moved)
        before = after
    query.stop()


def owners(place: Path) -> KeyOwners:
    """Who owns what, by the newest manifest."""
    return CheckpointReader(LocalFiles(str(place / "anabranch"))).manifest.facts.owners


# -- Spark's own way ----------------------------------------------------------------------------------------------


def start_sparks(session: ab.Session, place: Path, source: Path) -> Any:
    class TotalProcessor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.totals = handle.getValueState("totals", "count double, total double")

        def handleInputRows(self, key, rows, timerValues):  # type: ignore[no-untyped-def]
            # get() without exists(): each is a round trip to the JVM.
            count, total = self.totals.get() or (0.0, 0.0)
            for row in rows:
                count += 1.0
                total += row.value
            self.totals.update((count, total))
            return iter(())

        def close(self) -> None:
            pass

    reader = session.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    totals = reader.parquet(str(source)).groupBy("key").transformWithState(TotalProcessor(), SCHEMA, "Append", "None")
    writer = totals.writeStream.format("noop").outputMode("append")
    return writer.option("checkpointLocation", str(place)).start()


def rescale_sparks(session: ab.Session, root: Path, keys: int, rounds: Rounds) -> Iterator[Rescaling]:
    place = root / f"sparks-{keys}"
    source = Input(root / f"sparks-{keys}-in", keys)
    query = start_sparks(session, place, source.directory)
    took = seconds(lambda: (source.put(np.arange(keys)), query.processAllAvailable()))
    print(f"  Spark's state of {keys:,} keys was made in {took:.0f} s", flush=True)
    before = 2
    for after in rounds.steps:
        ordinary = ordinary_s(source.put, query.processAllAvailable, rounds.ordinary)
        started = time.perf_counter()
        source.put()
        query.stop()
        session.spark._streamingCheckpointManager.repartition(str(place), after)
        query = start_sparks(session, place, source.directory)
        query.processAllAvailable()
        yield Rescaling(before, after, time.perf_counter() - started - ordinary)
        before = after
    query.stop()


# -- both ---------------------------------------------------------------------------------------------------------


def show(whose: str, keys: int, found: list[Rescaling]) -> None:
    for each in found:
        moved = "" if each.moved is None else f"  later {each.later_s * 1000:7.0f} ms  moved × {each.moved:.3f}"
        print(
            f"  {whose:8} {keys:>9,} keys  {each.before} → {each.after}  pause {each.pause_s * 1000:8.0f} ms{moved}",
            flush=True,
        )


def main(arguments: list[str]) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks migration")
    parser.add_argument("--quick", action="store_true", help="20,000 keys")
    parser.add_argument("--mini", action="store_true", help="hardly any keys, one rescaling, to see that it runs")
    parser.add_argument("--keys", help="keys of our query: N,N,…")
    parser.add_argument("--spark-keys", help="keys of Spark's query: N,N,…")
    given = parser.parse_args(arguments)
    rounds = Rounds(steps=(3,), ordinary=1, after=1) if given.mini else Rounds()
    few = (300,) if given.mini else (20_000,) if given.quick else None
    sizes = _sizes(given.keys, few or KEYS)
    spark_sizes = _sizes(given.spark_keys, few or SPARK_KEYS)
    ours: dict[int, list[Rescaling]] = {}
    theirs: dict[int, list[Rescaling]] = {}
    with tempfile.TemporaryDirectory(prefix="anabranch-migration-", ignore_cleanup_errors=True) as scratch:
        root = Path(scratch)
        with spark_session(2, root, SETTINGS) as spark:
            session = ab.session(spark)
            seed_ours(session, root)
            for keys in sizes:
                ours[keys] = list(rescale_ours(session, root, keys, rounds))
                show("ours", keys, ours[keys])
            for keys in spark_sizes:
                theirs[keys] = list(rescale_sparks(session, root, keys, rounds))
                show("Spark's", keys, theirs[keys])
    keys = RATIO_KEYS if RATIO_KEYS in ours and RATIO_KEYS in theirs else max(ours.keys() & theirs.keys())
    # A pause shorter than the clock's noise is taken for a millisecond.
    pause = max(0.001, statistics.median(each.pause_s for each in ours[keys]))
    print(f"compared at {keys:,} keys, medians of {len(rounds.steps)} steps")
    return {
        "pause_ratio_spark": round(statistics.median(each.pause_s for each in theirs[keys]) / pause, 1),
        "pause_ms": round(pause * 1000),
        "pause_ms_worst": round(1000 * max(each.pause_s for found in ours.values() for each in found)),
        "moved_vs_minimum": round(max(each.moved or 0.0 for found in ours.values() for each in found), 3),
        "keys_compared": keys,
    }


def _sizes(text: str | None, default: tuple[int, ...]) -> tuple[int, ...]:
    return default if text is None else tuple(int(each) for each in text.split(","))
