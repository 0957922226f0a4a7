"""The driver of a test on the cluster, a process of its own: runs a program over files, to their end.

It is a process of its own because a process can have only one SparkContext, and because tests kill it.
"""

import argparse
import json
import sys

from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.java import ensure_java
from tests.cheap_jvm import CHEAP_JVM
from tests.cluster.gated_programs import build_gated
from tests.cluster.standalone import PYTHONPATH
from tests.programs import COLUMNS


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--master", "--steps", "--input", "--checkpoint", "--output", "--gate"):
        parser.add_argument(name, required=True)
    parser.add_argument("--cores", type=int, required=True)
    parser.add_argument("--channels", type=int)
    given = parser.parse_args()
    spark = start_session(given.master, given.cores)
    # Two files an epoch: two tasks of the source at once.
    source = ab.session(spark).from_files(given.input, "parquet", COLUMNS, maxFilesPerTrigger=2)
    writer = build_gated(source, json.loads(given.steps), given.gate).writeStream.format("parquet")
    if given.channels is not None:
        writer = writer.option("channels", given.channels)
    query = writer.option("checkpointLocation", given.checkpoint).trigger(availableNow=True).start(given.output)
    query.awaitTermination()
    print(json.dumps(query.recentProgress))
    spark.stop()


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
