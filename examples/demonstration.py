"""What the examples share: write generated data to files, run the program over them on Spark, compare.

The program is built twice from one function: over the files, for Spark, and over the same rows in memory, for one
thread. Files of different sources are written and read in step, so an epoch holds the same rows in both.
"""

from __future__ import annotations

import argparse
import inspect
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import anabranch as ab

Rows = list[dict[str, Any]]


def demonstrate(
    program: Callable[..., ab.Stream],
    generate: Callable[[int, int], Mapping[str, Rows]],
    schemas: Mapping[str, str],
    count: int,
) -> None:
    """Run an example from the command line; the exit status says whether parallel and sequential agree.

    Parameters
    ----------
    program : callable
        Takes a stream for each source, by name; gives the stream that is written.
    generate : callable
        From how many and a seed to the rows of each source.
    schemas : mapping
        The columns of each source.
    count : int
        How many, unless the command line says otherwise.
    """
    parser = argparse.ArgumentParser(description=str(inspect.getdoc(inspect.getmodule(program))).splitlines()[0])
    parser.add_argument("--records", type=int, default=count, help="how much data is generated")
    parser.add_argument("--epochs", type=int, default=5, help="how many epochs it is cut into")
    parser.add_argument("--channels", type=int, default=4, help="how many parallel channels")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="anabranch-example-"))
    try:
        rows = generate(options.records, options.seed)
        sizes = {name: max(1, -(-len(each) // options.epochs)) for name, each in rows.items()}
        for name, each in rows.items():
            write_files(work / name, each, sizes[name])
            print(f"{len(each):,} rows of {name} in files of {sizes[name]:,}")
        streams = ab.session()
        found = program(
            **{
                name: streams.from_files(str(work / name), "json", schema, name=name, maxFilesPerTrigger=1)
                for name, schema in schemas.items()
            }
        )
        found.explain()
        started = time.perf_counter()
        query = (
            found.writeStream.format("parquet")
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
            for row in found.schema.rows(pq.read_table(part, schema=found.schema.arrow).columns)
        ]
        in_memory = program(
            **{
                name: ab.from_rows(rows[name], schema, rows_per_epoch=sizes[name], name=name)
                for name, schema in schemas.items()
            }
        )
        same = delivered == in_memory.run_sequential()
        print("The last rows:", *delivered[-3:], sep="\n  ")
        verdict = "equals" if same else "DIFFERS FROM"
        print(f"The parallel output ({len(delivered):,} rows, in order) {verdict} the sequential output.")
        raise SystemExit(0 if same else 1)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_files(directory: Path, rows: Rows, size: int) -> None:
    """The rows as JSON files of so many lines, named in their order."""
    directory.mkdir(parents=True)
    for number, at in enumerate(range(0, len(rows), size)):
        lines = [json.dumps(row) for row in rows[at : at + size]]
        (directory / f"part-{number:05d}.json").write_text("\n".join(lines) + "\n")
