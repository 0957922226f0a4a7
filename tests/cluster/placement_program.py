"""The driver of the tests of placement: a query whose state is in an object store, files as they are asked for.

Hosts on loopback are told apart by their caches: each executor has one, in its working directory. Prints a line of
JSON: the progress of all epochs, and what of the state passed through this process.

With `--fill` the first epoch has every key. With `--move-at` channels are wished to other executors before an epoch, as
the plan of a period would wish it. With `--paired` a second query without placement has the same epochs in turn.
"""

import argparse
import collections
import json
import os
import pickle
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.serializers import CPickleSerializer

import anabranch as ab
from anabranch.engine.driver.committer import Committer
from anabranch.spark.cluster import SparkClusterManager
from anabranch.spark.placement import ChannelPlacement, located, location_of
from anabranch.state.object_files import S3Files
from tests.cluster.driver_program import start_session, wait_for_executors
from tests.object_store import ACCESS_KEY, SECRET_KEY

SCHEMA = "key long, value double"
PAUSE_S = 0.5


class Total(ab.Operator):
    """A sum for each key."""

    total: float = ab.state(default=0.0)

    def process(self, t: Any) -> Any:
        self.total += t.value
        yield (t.key, self.total)


def rows_of(number: int, rows: int, keys: int) -> list[tuple[int, float]]:
    """What a file holds."""
    return [((at * 7919 + number * 104_729) % keys, float(at % 10)) for at in range(rows)]


def columns_of(number: int, rows: int, keys: int, fill: bool) -> tuple[np.ndarray, np.ndarray]:
    """The same as columns; the first of a run that is filled has every key once."""
    if fill and number == 0:
        return np.arange(keys), np.ones(keys)
    at = np.arange(rows)
    return (at * 7919 + number * 104_729) % keys, (at % 10).astype(float)


def totals(epochs: int, rows: int, keys: int, fill: bool) -> np.ndarray:
    """What each key has in the end, worked out without us."""
    found = np.zeros(keys)
    for number in range(epochs):
        which, values = columns_of(number, rows, keys, fill)
        np.add.at(found, which, values)
    return found


def is_exact(directory: Path, epochs: int, rows: int, keys: int, fill: bool) -> bool:
    """Whether the last totals that were written of each key are right."""
    found = np.zeros(keys)
    for part in sorted(directory.glob("part-*")):
        table = pq.read_table(part)
        found[table["key"].to_numpy()] = table["total"].to_numpy()  # of a key that is there twice the last counts
    return bool((found == totals(epochs, rows, keys, fill)).all())


def write_file(directory: Path, number: int, rows: int, keys: int, fill: bool = False) -> None:
    which, values = columns_of(number, rows, keys, fill)
    table = pa.table({"key": pa.array(which, pa.int64()), "value": pa.array(values, pa.float64())})
    passing = directory / f".{number:05d}"
    pq.write_table(table, passing)
    os.utime(passing, (1_700_000_000 + number, 1_700_000_000 + number))
    passing.rename(directory / f"{number:05d}.parquet")


def count_state_bytes() -> dict[str, int]:
    """Counts what of the state passes through this process, from now on."""
    counted = {"bytes": 0}
    read, write, commit = S3Files.read, S3Files.write, Committer.commit

    def reading(self: S3Files, name: str) -> bytes | None:
        data = read(self, name)
        counted["bytes"] += len(data or b"") if name.startswith("state/") else 0
        return data

    def writing(self: S3Files, name: str, data: Any, modified: int | None = None) -> None:
        counted["bytes"] += memoryview(data).nbytes if name.startswith("state/") else 0
        write(self, name, data, modified)

    def committing(self: Committer, epoch: int, facts: Any, records: Any, damaged: Any) -> Any:
        counted["bytes"] += sum(len(record.data or b"") for record in records)
        return commit(self, epoch, facts, records, damaged)

    S3Files.read, S3Files.write, Committer.commit = reading, writing, committing  # type: ignore[method-assign]
    return counted


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--master", "--directory", "--state", "--endpoint"):
        parser.add_argument(name, required=True)
    for name in ("--executors", "--epochs", "--rows", "--keys"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--placement", default="auto")
    parser.add_argument("--standbys", default="0")
    parser.add_argument("--bundles", default="auto")
    parser.add_argument("--kill-at", default="", help="before these epochs an executor is killed, with commas between")
    parser.add_argument("--move-at", type=int, default=-1, help="before this epoch a channel is wished elsewhere")
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--paired", action="store_true")
    given = parser.parse_args()
    directory = Path(given.directory)
    spark = start_session(given.master, given.executors)
    wait_for_executors(spark, given.executors)
    reach_store(spark, given.endpoint)
    counted = count_state_bytes()
    placements = seen_placements()
    names = {"": given.placement, **({"off": "off"} if given.paired else {})}
    queries = {name: start_query(spark, given, directory / name, name, placement) for name, placement in names.items()}
    progress: dict[str, list[Any]] = {name: [] for name in names}
    waited = []
    for epoch in range(given.epochs):
        if str(epoch) in given.kill_at.split(","):
            kill_an_executor(spark, placements[0])
        if epoch == given.move_at:
            wish_a_move(placements[0])
        # In turn: whatever else the machine does, it does to both.
        for name in sorted(queries, reverse=bool(epoch % 2)):
            began = time.monotonic()
            write_file(directory / name / "input", epoch, given.rows, given.keys, given.fill)
            queries[name].processAllAvailable()
            progress[name].append(queries[name].lastProgress)
            waited += [time.monotonic() - began] if not name else []
        if given.standbys != "0":
            time.sleep(PAUSE_S)  # for the copies; a source that is always ahead would leave them no slot
    for query in queries.values():
        query.stop()
    size = (given.epochs, given.rows, given.keys, given.fill)
    exact = all(is_exact(directory / name / "output", *size) for name in names)
    told = {"progress": progress[""], "off": progress.get("off", []), "waited_s": waited, "exact": exact}
    print(json.dumps({**told, "driver_state_bytes": counted["bytes"]}))
    spark.stop()


def reach_store(spark: Any, endpoint: str) -> None:
    """Have all processes reach the object store, as Spark's users say it."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    keys = {"endpoint": endpoint, "access.key": ACCESS_KEY, "secret.key": SECRET_KEY}
    for name, value in keys.items():
        settings.set(f"fs.s3a.{name}", value)


def start_query(spark: Any, given: Any, directory: Path, name: str, placement: str) -> Any:
    (directory / "input").mkdir(parents=True, exist_ok=True)
    source = ab.session(spark).from_files(str(directory / "input"), "parquet", SCHEMA, maxFilesPerTrigger=1)
    stream = source.process(Total(), by="key", schema="key long, total double")
    writer = stream.writeStream.option("checkpointLocation", f"{directory}/checkpoint")
    writer = writer.option("stateLocation", f"{given.state}{name}")
    writer = writer.options(channels=given.executors, segmentCache="segments", placement=placement)
    writer = writer.options(standbys=given.standbys if placement == "auto" else "0", bundles=given.bundles)
    return writer.start(f"{directory}/output")


def seen_placements() -> list[ChannelPlacement]:
    """The placements that are made from now on."""
    found: list[ChannelPlacement] = []
    make = ChannelPlacement.__init__

    def making(self: ChannelPlacement, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        found.append(self)

    ChannelPlacement.__init__ = making  # type: ignore[method-assign]
    return found


def wish_a_move(placement: ChannelPlacement) -> None:
    """Wish two channels to change places: each executor has one slot."""
    placing = placement._placing
    one, other = sorted(placing._held)[:2]
    placing._wishes.update({one: placing.executor_of(other), other: placing.executor_of(one)})


def kill_an_executor(spark: Any, placement: ChannelPlacement | None = None) -> None:
    """SIGKILL the JVM that some task runs on, the parent of its Python daemon: with a placement one with much state."""
    location = None if placement is None else place_of_most(placement)
    if location is None:
        asked = spark.sparkContext.parallelize([0], 1)
    else:
        asked = located(spark.sparkContext, [(location, pickle.dumps(0))], CPickleSerializer())
    pids = asked.map(lambda _: executor_process()).collect()
    manager = SparkClusterManager(spark.sparkContext)
    before = {each.identity for each in manager.executors()}
    os.kill(pids[0], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while before <= {each.identity for each in manager.executors()} and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.1)  # executors are looked at once a second


def place_of_most(placement: ChannelPlacement) -> str | None:
    """Where the executor is whose channels have most state."""
    placing = placement._placing
    sizes = collections.Counter[str]()
    for bundle, each in placing._statistics.items():
        sizes[placing.executor_of((bundle[0], each.channel))] += each.state_bytes
    present = {each.identity: each for each in placing.executors}
    found = max((identity for identity in sizes if identity in present), key=lambda each: sizes[each], default=None)
    return None if found is None else location_of(present[found])


def executor_process() -> int:
    """The executor that a task runs in, as a task sees it: the parent of its Python daemon."""
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(daemon[daemon.rindex(")") + 1 :].split()[1])


if __name__ == "__main__":
    sys.exit(main())
