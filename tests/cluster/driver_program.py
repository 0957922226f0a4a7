"""A driver of the tests on the cluster, a process of its own: runs programs over files, each to its end.

It is a process of its own because a process can have only one SparkContext, and because tests kill it. What it is to
run comes as files of a directory, `0.json`, `1.json`, …; what became of each is told beside it, in `0.told`, …
"""

import argparse
import itertools
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.java import ensure_java
from tests.cheap_jvm import CHEAP_JVM
from tests.cluster.gated_programs import build_gated
from tests.cluster.standalone import PYTHONPATH
from tests.programs import COLUMNS

EXECUTORS_SECONDS_MAX = 60


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", required=True)
    parser.add_argument("--jobs", type=Path, required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--stays", action="store_true", help="for one job after the other, until it is killed")
    given = parser.parse_args()
    tests = os.getppid()
    spark = start_session(given.master, given.cores)
    for number in itertools.count() if given.stays else [0]:
        wanted = given.jobs / f"{number}.json"
        while not wanted.exists():
            if os.getppid() != tests:
                return
            time.sleep(0.02)
        wait_for_executors(spark, given.cores)
        told = told_of(spark, json.loads(wanted.read_text()))
        passing = wanted.with_suffix(".passing")
        passing.write_text(json.dumps(told))
        passing.rename(wanted.with_suffix(".told"))
    spark.stop()


def told_of(spark: SparkSession, wanted: dict[str, Any]) -> dict[str, Any]:
    """What became of a job."""
    try:
        return {"progress": run(spark, wanted)}
    except Exception:  # the next one is run all the same
        return {"failure": traceback.format_exc()}


def run(spark: SparkSession, wanted: dict[str, Any]) -> list[Any]:
    """Run a program to its end: its progress."""
    # Two files an epoch: two tasks of the source at once.
    source = ab.session(spark).from_files(wanted["input"], "parquet", COLUMNS, maxFilesPerTrigger=2)
    writer = build_gated(source, wanted["steps"], wanted["gate"]).writeStream.format("parquet")
    if wanted["channels"] is not None:
        writer = writer.option("channels", wanted["channels"])
    writer = writer.option("checkpointLocation", wanted["checkpoint"])
    query = writer.trigger(availableNow=True).start(wanted["output"])
    query.awaitTermination()
    return query.recentProgress


def wait_for_executors(spark: SparkSession, count: int) -> None:
    """Until all are there: an earlier job may have lost one."""
    deadline = time.monotonic() + EXECUTORS_SECONDS_MAX
    # The driver is among them.
    while spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() <= count:
        assert time.monotonic() < deadline, f"{count} executors do not come"
        time.sleep(0.05)


def start_session(master: str, cores: int) -> SparkSession:
    """A session on the cluster, with an executor on each of as many workers."""
    ensure_java()
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": CHEAP_JVM,
        "spark.executor.extraJavaOptions": CHEAP_JVM,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": PYTHONPATH,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        # All executors are there before the first task, so that the work is spread over all of them.
        "spark.cores.max": str(cores),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        # Both workers are on one host. An executor must not read the files of another, which on a real cluster
        # are gone together with it.
        "spark.shuffle.readHostLocalDisk": "false",
        # A loss is noticed, and given up on, within seconds.
        "spark.network.timeout": "20s",
        "spark.network.timeoutInterval": "5s",
        "spark.executor.heartbeatInterval": "2s",
        "spark.shuffle.io.maxRetries": "1",
        "spark.shuffle.io.retryWait": "200ms",
    }
    builder = SparkSession.builder.master(master).appName("anabranch-cluster-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


if __name__ == "__main__":
    sys.exit(main())
