"""The driver of the tests of placement: a query whose state is in an object store, files as they are asked for.

Hosts on loopback are told apart by their caches: each executor has one, in its working directory. Prints a line of
JSON: the progress of all epochs, and what of the state passed through this process.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.engine.driver.committer import Committer
from anabranch.spark.cluster import SparkClusterManager
from anabranch.state.object_files import S3Files
from tests.cluster.driver_program import start_session
from tests.object_store import ACCESS_KEY, SECRET_KEY

SCHEMA = "key long, value double"


class Total(ab.Operator):
    """A sum for each key."""

    total: float = ab.state(default=0.0)

    def process(self, t: Any) -> Any:
        self.total += t.value
        yield (t.key, self.total)


def rows_of(number: int, rows: int, keys: int) -> list[tuple[int, float]]:
    """What a file holds."""
    return [((at * 7919 + number * 104_729) % keys, float(at % 10)) for at in range(rows)]


def write_file(directory: Path, number: int, rows: int, keys: int) -> None:
    columns = list(zip(*rows_of(number, rows, keys), strict=True))
    table = pa.table({"key": pa.array(columns[0], pa.int64()), "value": pa.array(columns[1], pa.float64())})
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
    parser.add_argument("--kill-at", type=int, default=-1, help="before this epoch an executor is killed")
    given = parser.parse_args()
    directory = Path(given.directory)
    files = directory / "input"
    files.mkdir(parents=True, exist_ok=True)
    spark = start_session(given.master, given.executors)
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    keys = {"endpoint": given.endpoint, "access.key": ACCESS_KEY, "secret.key": SECRET_KEY}
    for name, value in keys.items():
        settings.set(f"fs.s3a.{name}", value)
    counted = count_state_bytes()
    source = ab.session(spark).from_files(str(files), "parquet", SCHEMA, maxFilesPerTrigger=1)
    stream = source.process(Total(), by="key", schema="key long, total double")
    writer = stream.writeStream.option("checkpointLocation", f"{directory}/checkpoint").option(
        "stateLocation", given.state
    )
    writer = writer.options(channels=given.executors, segmentCache="segments", placement=given.placement)
    writer = writer.option("standbys", given.standbys)
    query = writer.start(f"{directory}/output")
    progress = []
    for epoch in range(given.epochs):
        if epoch == given.kill_at:
            kill_an_executor(spark)
        write_file(files, epoch, given.rows, given.keys)
        query.processAllAvailable()
        progress.append(query.lastProgress)
    query.stop()
    print(json.dumps({"progress": progress, "driver_state_bytes": counted["bytes"]}))
    spark.stop()


def kill_an_executor(spark: Any) -> None:
    """SIGKILL the JVM that some task runs on: the parent of its Python daemon."""
    pids = spark.sparkContext.parallelize([0], 1).map(lambda _: _executor_process()).collect()
    manager = SparkClusterManager(spark.sparkContext)
    before = {each.identity for each in manager.executors()}
    os.kill(pids[0], signal.SIGKILL)
    deadline = time.monotonic() + 60
    while before <= {each.identity for each in manager.executors()} and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.1)  # executors are looked at once a second


def _executor_process() -> int:
    daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(daemon[daemon.rindex(")") + 1 :].split()[1])


if __name__ == "__main__":
    sys.exit(main())
