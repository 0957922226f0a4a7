"""The driver of the test of random schedules on a cluster: queries in turn, to whose executors much happens.

Each has a seed, which says how many channels, standbys and bundles it has, and what happens when: an executor is
killed, before an epoch or within it; two channels are wished to each other's executor; the number of channels changes.
The controller keeps out of it. Prints what happened how often, and the seeds whose output is not the sequential one.
"""

import argparse
import collections
import json
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import anabranch as ab
from tests.cluster.driver_program import start_session, wait_for_executors
from tests.cluster.placement_program import (
    SCHEMA,
    Total,
    executor_process,
    kill_an_executor,
    reach_store,
    rows_of,
    seen_placements,
    wish_a_move,
    write_file,
)

ROWS, KEYS = 300, 70
OUTPUT = "key long, total double"
HAPPENINGS = ("kill", "kill within", "move", "rescale", "nothing")


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--master", "--state", "--endpoint"):
        parser.add_argument(name, required=True)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--executors", type=int, required=True)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--schedules", type=int, required=True)
    given = parser.parse_args()
    spark = start_session(given.master, given.executors)
    reach_store(spark, given.endpoint)
    placements = seen_placements()
    happened: collections.Counter[str] = collections.Counter()
    wrong = []
    for seed in range(given.first, given.first + given.schedules):
        try:
            happened += schedule(spark, given, seed, placements)
        except Exception as problem:  # the next one is run all the same
            wrong.append([seed, f"{type(problem).__name__}: {problem}"[:500]])
        print(seed, dict(happened), wrong, flush=True)
    print(json.dumps({"happened": happened, "wrong": wrong}))
    spark.stop()


def schedule(spark: Any, given: Any, seed: int, placements: list[Any]) -> collections.Counter[str]:
    """Run one; what happened how often."""
    chance = random.Random(seed)
    directory = given.directory / str(seed)
    (directory / "input").mkdir(parents=True)
    source = ab.session(spark).from_files(str(directory / "input"), "parquet", SCHEMA, maxFilesPerTrigger=1)
    writer = source.process(Total(), by="key", schema=OUTPUT).writeStream
    writer = writer.option("checkpointLocation", f"{directory}/checkpoint")
    writer = writer.options(stateLocation=f"{given.state}/{seed}", segmentCache="segments")
    writer = writer.options(initialChannels=chance.randint(1, given.executors), maxChannels=given.executors)
    writer = writer.options(adaptationPeriod="1000000 epochs", bundles=chance.choice(["0", "8", "24"]))
    query = writer.options(standbys=chance.choice(["0", "1", "1", "2"])).start(f"{directory}/output")
    happened: collections.Counter[str] = collections.Counter()
    epochs = chance.randint(5, 8)
    for epoch in range(epochs):
        wait_for_executors(spark, given.executors)
        what = chance.choice(HAPPENINGS) if epoch else "nothing"
        killer = None
        if what == "kill":
            kill_an_executor(spark)
        elif what == "kill within":
            (pid,) = spark.sparkContext.parallelize([0], 1).map(lambda _: executor_process()).collect()
            killer = threading.Timer(chance.uniform(0.0, 0.8), os.kill, (pid, signal.SIGKILL))
            killer.start()
        elif what == "move" and len(placements[-1]._placing._held) > 1:
            wish_a_move(placements[-1])
        elif what == "rescale":
            query.rescale("Total", chance.randint(1, given.executors))
        happened[what] += 1
        write_file(directory / "input", epoch, ROWS, KEYS)
        query.processAllAvailable()
        if killer is not None:
            killer.join()
        happened.update(move["how"] for move in query.lastProgress["placement"]["moves"])
    query.stop()
    rows = [row for epoch in range(epochs) for row in rows_of(epoch, ROWS, KEYS)]
    sequential = ab.from_rows(rows, SCHEMA).process(Total(), by="key", schema=OUTPUT).run_sequential()
    parts = sorted((directory / "output").glob("part-*"))
    delivered = [tuple(row.values()) for part in parts for row in pq.read_table(part).to_pylist()]
    assert delivered == [tuple(row) for row in sequential], "the output is another"
    return happened


if __name__ == "__main__":
    sys.exit(main())
