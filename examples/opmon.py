"""OpMon, the operational monitoring application of the *Elastic* paper (its Listing 1), on Anabranch.

Usage records of network traffic come in as files. For each application the flow is summed minute by minute;
sums above a threshold are alarms. The program is written as if for one thread. It runs on all cores, with as
many channels as you ask for, and its output is that of one thread, in the same order: the last line checks it.

    make demo                                  or: python examples/opmon.py --records 200000 --channels 4
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

import anabranch as ab
from anabranch import agg, delta, tumbling

USAGE = "time double, source int, destination int, app string, version int, flow double"


def program(usage: ab.Stream, threshold: float) -> ab.Stream:
    """Minute-by-minute data usage of each application, those above the threshold."""
    minutes = usage.aggregate(
        by="app", window=tumbling(delta("time", 60)), flow=agg.sum("flow"), time=agg.last("time"), name="minutes"
    )
    return minutes.filter(lambda t: t.flow > threshold, name="above")


def records(count: int, seed: int) -> Iterator[dict[str, object]]:
    """Usage records as a network tap would see them: a few applications have most of the traffic."""
    chance = random.Random(seed)
    applications = [f"app-{number:03d}" for number in range(200)]
    weights = [1 / (rank + 1) for rank in range(len(applications))]
    clock = 0.0
    chosen = chance.choices(applications, weights, k=count)
    for app in chosen:
        clock += chance.expovariate(100.0)
        yield {
            "time": round(clock, 3),
            "source": chance.randrange(5000),
            "destination": chance.randrange(5000),
            "app": app,
            "version": chance.randrange(1, 4),
            "flow": round(chance.lognormvariate(3, 1.5), 2),
        }


def write_input(directory: Path, count: int, files: int, seed: int) -> list[dict[str, object]]:
    """The records as JSON files, and as a list for the sequential run."""
    everything = list(records(count, seed))
    size = max(1, -(-count // files))
    directory.mkdir(parents=True)
    for number in range(0, len(everything), size):
        lines = (json.dumps(record) for record in everything[number : number + size])
        (directory / f"usage-{number // size:05d}.json").write_text("\n".join(lines) + "\n")
    return everything


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=120_000, help="how many usage records")
    parser.add_argument("--files", type=int, default=12, help="how many input files; two form an epoch")
    parser.add_argument("--channels", type=int, default=4, help="how many parallel channels")
    parser.add_argument("--threshold", type=float, default=25_000.0, help="flow per minute that is an alarm")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="opmon-"))
    try:
        print(f"Writing {options.records:,} usage records to {options.files} files …")
        everything = write_input(work / "in", options.records, options.files, options.seed)
        streams = ab.session()
        usage = streams.from_files(str(work / "in"), "json", USAGE, name="usage", maxFilesPerTrigger=2)
        alarms = program(usage, options.threshold)
        alarms.explain()
        started = time.perf_counter()
        query = (
            alarms.writeStream.format("parquet")
            .option("checkpointLocation", str(work / "checkpoint"))
            .option("channels", options.channels)
            .trigger(availableNow=True)
            .start(str(work / "out"))
        )
        ab.show_progress(query)
        query.awaitTermination()
        print(f"Parallel run on {options.channels} channels: {time.perf_counter() - started:.1f} s")
        delivered = [
            row
            for part in sorted((work / "out").glob("part-*"))
            for row in alarms.schema.rows(pq.read_table(part).columns)
        ]
        expected = alarms.run_sequential(everything)
        print("The last alarms:", *delivered[-3:], sep="\n  ")
        same = delivered == expected
        verdict = "equals" if same else "DIFFERS FROM"
        print(f"The parallel output ({len(delivered):,} rows, in order) {verdict} the sequential output.")
        raise SystemExit(0 if same else 1)
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
