"""Nexmark in rows per processor second: ours beside one plain Python thread and beside Spark's own operators.

    python -m benchmarks nexmark [--quick | --mini] [--only q5,q17] [--rounds N] [--events N]

Events (nested, as `examples/nexmark` makes them) lie in Parquet files. *Ours*: the queries of `examples/nexmark`, with
default options and as many files an epoch, to Parquet, in order, durable. *One thread*: the loops of
`_nexmark_plain`, which read the needed columns only, with `to_pylist`, and write the same rows in the same order, with
no checkpoint; once with rows as dicts (`vs_one_thread`) and once column by column (`vs_one_thread_columns`), which is
faster. *Spark*: the queries that Structured Streaming can say without Python, to Parquet, in any order, with its own
checkpoint (`_nexmark_spark`).

All take the same groups of files. The first group is left out of rows and of processor seconds alike: it pays for
compiling and for starting workers. Processor seconds are those of the whole tree: driver, JVM, workers. For two
cores against one, everything is pinned to one core with ``local[1]``, and to all with ``local[2]``: wall seconds.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import anabranch as ab
from benchmarks import _nexmark_plain as plain
from benchmarks import _nexmark_spark as native
from benchmarks._spark import ProcessorTime, apart, ended_batches, processor_time, spark_session
from examples.nexmark.events import EVENTS, events
from examples.nexmark.queries import PARTITIONED, QUERIES, run

PER_SECOND = 1000
"""Events in a second of event time."""

BY_THE_CLOCK = {"q12"}
"""What these give depends on when they run."""


@dataclass(frozen=True)
class Size:
    """How much is run."""

    names: tuple[str, ...]
    events: int
    groups: int
    files_of_group: int
    rounds: int
    with_one_core: bool


@dataclass(frozen=True)
class Cost:
    """What a query costs behind its first group of files."""

    processor_s: float
    seconds: float
    parts: ProcessorTime | None = None
    """Of driver, JVM and workers, if it is a query on Spark."""


def write_files(place: Path, size: Size) -> None:
    """The events, in as many files as there are groups times files of a group."""
    place.mkdir()
    count = size.groups * size.files_of_group
    bounds = [size.events * at // count for at in range(count + 1)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(_write_file, [place] * count, range(count), bounds, bounds[1:]))


def _write_file(place: Path, number: int, first: int, last: int) -> None:
    schema = ab.from_rows([], EVENTS).schema.arrow
    rows = events(last, 0, PER_SECOND, 0, first=first)
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    path = place / f"{number:05d}.parquet"
    pq.write_table(pa.table(columns, schema=schema), path)
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


class Marks:
    """Seconds of the processors and of the clock at the end of every group."""

    def __init__(self) -> None:
        self.found: list[tuple[ProcessorTime, float]] = []

    def now(self) -> None:
        self.found.append((processor_time(), time.perf_counter()))

    def cost(self) -> Cost:
        """From the end of the first group to the last mark."""
        first, last = self.found[0], self.found[-1]
        used = last[0].since(first[0])
        return Cost(used.total_s, last[1] - first[1], used)


def run_ours(spark: Any, name: str, source: Path, scratch: Path, size: Size) -> Cost:
    marks = Marks()
    session = ab.session(spark)
    session.addListener(lambda event: marks.now() if isinstance(event, ab.EpochEnded) else None)
    stream = run(name, session.from_files(str(source), "parquet", EVENTS, maxFilesPerTrigger=size.files_of_group))
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(scratch / "checkpoint"))
    if name in PARTITIONED:
        writer = writer.partitionBy(*PARTITIONED[name])
    writer = writer.option("endOfInput", "close").trigger(availableNow=True)
    writer.start(str(scratch / "output")).awaitTermination()
    marks.now()
    return marks.cost()


def run_native(spark: Any, name: str, source: Path, scratch: Path, size: Size) -> Cost:
    marks = Marks()
    events = spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", size.files_of_group).parquet(str(source))
    query = native.QUERIES[name](spark, events)
    writer = query.writeStream.format("parquet").option("checkpointLocation", str(scratch / "checkpoint"))
    if name in PARTITIONED:
        writer = writer.partitionBy(*PARTITIONED[name])
    started = writer.trigger(availableNow=True).start(str(scratch / "output"))
    with ended_batches(spark, str(started.id), marks.now):
        started.awaitTermination()
    marks.now()
    return marks.cost()


def run_plain(read: Callable[..., Any], name: str, source: Path, scratch: Path, size: Size) -> Cost:
    """In this process; its own processor seconds, without those of a JVM beside it."""
    schema = run(name, ab.from_rows([], EVENTS)).schema.arrow
    (scratch / "output").mkdir(parents=True)
    paths = sorted(source.iterdir())
    groups = [paths[at : at + size.files_of_group] for at in range(0, len(paths), size.files_of_group)]
    marks: list[tuple[float, float]] = []
    rows = (read(group, plain.NEEDS[name]) for group in groups)
    for number, out in enumerate(plain.QUERIES[name](rows)):
        _write(out, schema, scratch / "output", number, PARTITIONED.get(name))
        used = resource.getrusage(resource.RUSAGE_SELF)
        marks.append((used.ru_utime + used.ru_stime, time.perf_counter()))
    return Cost(marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1])


def _write(out: list[Any], schema: pa.Schema, place: Path, number: int, partitions: tuple[str, ...] | None) -> None:
    if not out:
        return
    columns = [pa.array(column, field.type) for column, field in zip(zip(*out, strict=True), schema, strict=True)]
    table = pa.table(columns, schema=schema)
    if partitions is None:
        pq.write_table(table, place / f"part-{number:05d}.parquet")
        return
    template = f"part-{number:05d}-{{i}}.parquet"
    parting = ds.partitioning(pa.schema([schema.field(name) for name in partitions]), flavor="hive")
    ds.write_dataset(
        table,
        place,
        format="parquet",
        partitioning=parting,
        basename_template=template,
        existing_data_behavior="overwrite_or_ignore",
        use_threads=False,  # with threads the rows of a large table come in another order
    )


def output_of(place: Path, schema: pa.Schema, partitions: tuple[str, ...] | None) -> pa.Table:
    """What a query wrote, in order; of directories by partition, one after the other."""
    names = [name for name in schema.names if name not in (partitions or ())]
    inner = pa.schema([schema.field(name) for name in names])
    parts = sorted(place.rglob("part-*"), key=lambda path: (path.parent, path.name))
    tables = [pq.ParquetFile(part).read(names).cast(inner) for part in parts]
    return pa.concat_tables(tables) if tables else inner.empty_table()


def _sides(name: str) -> Iterator[tuple[str, Callable[..., Cost]]]:
    yield "ours", run_ours
    yield "thread", lambda spark, *given: run_plain(plain.read_rows, *given)
    yield "columns", lambda spark, *given: run_plain(plain.read_columns, *given)
    if name in native.QUERIES:
        yield "spark", run_native


def measure(source: Path, size: Size, slots: int, only_ours: bool, scratch: Path) -> dict[str, Any]:
    """Run in a process of its own. Costs by query and side, and the queries whose rows were not those of one thread."""
    from pyspark import cloudpickle

    import examples.nexmark.events
    import examples.nexmark.queries

    for module in (examples.nexmark.events, examples.nexmark.queries):
        cloudpickle.register_pickle_by_value(module)  # Spark's Python workers need not find this folder
    if only_ours:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    costs: dict[str, dict[str, list[Cost]]] = {name: {} for name in size.names}
    wrong: set[str] = set()
    with spark_session(slots, scratch, {"spark.sql.shuffle.partitions": str(slots)}) as spark:
        run_ours(spark, "q2", source, scratch / "warm", size)
        for number in range(size.rounds):
            for name in size.names:
                sides = list(_sides(name))[: 1 if only_ours else None]
                for side, runs in sides[:: -1 if number % 2 else 1]:
                    place = scratch / f"{name}-{number}-{side}"
                    place.mkdir()
                    costs[name].setdefault(side, []).append(runs(spark, name, source, place, size))
                if not only_ours and not _is_right(name, scratch, number):
                    wrong.add(name)
                print(f"  {name}: " + _line(costs[name], size), flush=True)
    return {"costs": costs, "wrong": sorted(wrong)}


def _is_right(name: str, scratch: Path, number: int) -> bool:
    if name in BY_THE_CLOCK:
        return True
    schema = run(name, ab.from_rows([], EVENTS)).schema.arrow
    found = [
        output_of(scratch / f"{name}-{number}-{side}" / "output", schema, PARTITIONED.get(name))
        for side in ("ours", "thread", "columns")
    ]
    return found[0].equals(found[1]) and found[0].equals(found[2])


def _line(costs: dict[str, list[Cost]], size: Size) -> str:
    return ", ".join(
        f"{side} {statistics.median(each.processor_s for each in found):.2f} processor s and "
        f"{statistics.median(each.seconds for each in found):.2f} s" + _where(found)
        for side, found in costs.items()
    )


def _where(found: list[Cost]) -> str:
    """In which processes the seconds were."""
    parts = [each.parts for each in found if each.parts is not None]
    if not parts:
        return ""
    of = (statistics.median(getattr(each, name) for each in parts) for name in ("workers_s", "driver_s", "jvm_s"))
    return " (workers {:.2f}, driver {:.2f}, JVM {:.2f})".format(*of)


def ratios(costs: dict[str, dict[str, list[Cost]]], other: str) -> dict[str, float]:
    """Rows per processor second of ours over another side, by query: the median of the rounds."""
    return {
        name: statistics.median(b.processor_s / a.processor_s for a, b in zip(of["ours"], of[other], strict=True))
        for name, of in costs.items()
        if other in of
    }


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks nexmark", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="eight queries, fewer events, one round")
    parser.add_argument("--mini", action="store_true", help="that it runs")
    parser.add_argument("--only", help="queries, with commas between")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--events", type=int)
    parser.add_argument("--no-pinning", action="store_true", help="without the runs on one core")
    options = parser.parse_args(arguments)
    size = Size(tuple(QUERIES), 1_000_000, 6, 4, 5, True)
    if options.mini:
        size = Size(("q1", "q17"), 1_200, 2, 2, 1, False)
    elif options.quick:
        size = Size(("q0", "q1", "q3", "q5", "q11", "q14", "q17", "q19"), 150_000, 6, 2, 1, True)
    names = tuple(options.only.split(",")) if options.only else size.names
    if unknown := [name for name in names if name not in QUERIES]:
        raise SystemExit(f"no query is named {', '.join(unknown)}; there are {', '.join(QUERIES)}")
    with_one_core = size.with_one_core and not options.no_pinning
    size = Size(
        *(names, options.events or size.events, size.groups, size.files_of_group, options.rounds or size.rounds),
        with_one_core,
    )
    with tempfile.TemporaryDirectory(prefix="anabranch-nexmark-", ignore_cleanup_errors=True) as held:
        scratch = Path(held)
        write_files(scratch / "events", size)
        (scratch / "two").mkdir()
        found = apart(measure, scratch / "events", size, 2, False, scratch / "two")
        pinned = {}
        if size.with_one_core:
            (scratch / "one").mkdir()
            pinned = apart(measure, scratch / "events", size, 1, True, scratch / "one")["costs"]
    if found["wrong"]:
        print(f"other rows than one thread gives: {', '.join(found['wrong'])}", file=sys.stderr)
    thread, columns, spark = (ratios(found["costs"], side) for side in ("thread", "columns", "spark"))
    faster = [
        statistics.median(each.seconds for each in pinned[name]["ours"])
        / statistics.median(each.seconds for each in found["costs"][name]["ours"])
        for name in pinned
    ]
    for name in size.names:
        print(
            f"{name}: {thread[name]:.2f} of one thread, {columns[name]:.2f} of one that reads by columns"
            + (f", {spark[name]:.2f} of Spark's own" if name in spark else "")
        )

    def middle(values: list[float]) -> float | None:
        return round(statistics.median(values), 3) if values else None

    return {
        "vs_one_thread_min": round(min(thread.values()), 3),
        "vs_one_thread_median": middle(list(thread.values())),
        "vs_one_thread_columns_min": round(min(columns.values()), 3),
        "vs_one_thread_columns_median": middle(list(columns.values())),
        "vs_spark_native_median": middle(list(spark.values())),
        "two_channels_speedup_median": middle(faster),
        "queries": len(size.names),
        "wrong": found["wrong"],
    }
