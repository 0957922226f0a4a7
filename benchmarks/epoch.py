"""What an epoch costs that has hardly any rows: ours beside a bare ``foreachBatch`` of the same shape.

    python -m benchmarks epoch [--quick | --mini]

*Ours*: a program with so many keyed operators, each by another key than the one before, so that there is a shuffle
before each; with state, an ordered output in Parquet, and all that makes an epoch durable. *Bare*: a function in
Spark's ``foreachBatch`` that sends the rows through as many shuffles (``repartitionById``) and Python stages
(``mapInArrow``, rows passed through) with as many tasks, and writes what comes out as one Parquet file: no state, no
order, no commit of its own. Both read 100 rows an epoch from a file, in one session, in turn.

Given are, for each shape, the median of the seconds of a trigger and the processor seconds of an epoch (of driver, JVM
and workers together) on both sides, and their ratios; what another level (a shuffle and a Python stage) adds to ours;
the calls from Python to the JVM in an epoch of the smallest shape; and where a trigger spends its time: ours as a
budget in which every millisecond has a name.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from benchmarks._spark import apart, processor_time, spark_session

ROWS = 100
COLUMNS = "a long, b long, v double"


@dataclass(frozen=True)
class Shape:
    """How many shuffles, and tasks behind each."""

    levels: int
    channels: int


@dataclass(frozen=True)
class Cost:
    """What an epoch costs: seconds of a trigger, and processor seconds."""

    seconds: float
    processor_s: float


class Sums:
    """The sum so far, by key: small state, one tuple out for one in."""

    def __init__(self) -> None:
        self.sums: dict[int, float] = {}


class SumByA(Sums):
    def __call__(self, t: Any) -> Any:
        self.sums[t.a] = self.sums.get(t.a, 0.0) + t.v
        return (t.a, t.b, self.sums[t.a])


class SumByB(Sums):
    def __call__(self, t: Any) -> Any:
        self.sums[t.b] = self.sums.get(t.b, 0.0) + t.v
        return (t.a, t.b, self.sums[t.b])


def write_input(place: Path, epochs: int) -> None:
    place.mkdir()
    for number in range(epochs):
        rows = [(n % 37, n % 11, float(n + number)) for n in range(ROWS)]
        columns = list(zip(*rows, strict=True))
        path = place / f"{number:05d}.parquet"
        pq.write_table(pa.table(dict(zip("abv", columns, strict=True))), path)
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def read(spark: Any, source: Path) -> Any:
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(source))


def start_ours(spark: Any, source: Path, scratch: Path, shape: Shape, ended: Callable[[], None]) -> Any:
    session = ab.session(spark)
    session.addListener(lambda event: ended() if isinstance(event, ab.EpochEnded) else None)
    stream = session.read(read(spark, source))
    for level in range(shape.levels):
        stream = stream.map((SumByB if level % 2 else SumByA)(), schema=COLUMNS, name=f"level{level}")
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(scratch / "checkpoint"))
    writer = writer.options(channels=shape.channels, balancing="off", spread="off").trigger(availableNow=True)
    return writer.start(str(scratch / "output"))


def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def start_bare(spark: Any, source: Path, scratch: Path, shape: Shape, ended: Callable[[], None]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    (scratch / "output").mkdir()

    def epoch(batch: Any, number: int) -> None:
        batch.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
        rows = batch.mapInArrow(passed, COLUMNS)
        for level in range(shape.levels):
            task = F.col("ab"[level % 2]).cast("int") % shape.channels
            rows = rows.repartitionById(shape.channels, task).mapInArrow(passed, COLUMNS)
        pq.write_table(rows.toArrow(), scratch / "output" / f"{number}.parquet")
        ended()

    writer = read(spark, source).writeStream.foreachBatch(epoch)
    return writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start()


@contextlib.contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Counts the calls from Python to the JVM."""
    from py4j.clientserver import JavaClient
    from py4j.java_gateway import GatewayClient

    count = [0]
    before = {kind: kind.send_command for kind in (GatewayClient, JavaClient)}

    def counting(send: Any) -> Any:
        def call(self: Any, *arguments: Any, **named: Any) -> Any:
            count[0] += 1
            return send(self, *arguments, **named)

        return call

    for kind, send in before.items():
        if "send_command" in vars(kind):
            kind.send_command = counting(send)
    try:
        yield count
    finally:
        for kind, send in before.items():
            if "send_command" in vars(kind):
                kind.send_command = send


@dataclass(frozen=True)
class Measured:
    """What epochs behind the warm-up cost."""

    cost: Cost
    parts: dict[str, float]
    """Of a trigger, as Spark tells them, in ms."""
    calls: int
    """From Python to the JVM, of an epoch."""
    budget: list[tuple[str, float]]
    """Of ours: where a trigger's milliseconds go."""


def budget_of(parts: dict[str, float], own: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Where the milliseconds of a trigger go, in the order in which they pass; medians of our epochs."""

    def ours(name: str) -> float:
        return statistics.median(each["duration_ms"][name] for each in own)

    def slowest(depth: int, what: str) -> float:
        return 1000 * statistics.median(max(t[what] for t in e["stages"] if t["depth"] == depth) for e in own)

    depths = sorted({task["depth"] for task in own[0]["stages"]})
    tasks = {depth: slowest(depth, "seconds") for depth in depths}
    found = [
        ("Spark lists the files", parts.get("latestOffset", 0.0)),
        ("Spark's log of offsets", parts.get("walCommit", 0.0)),
        ("Spark plans its batch", parts.get("getBatch", 0.0) + parts.get("queryPlanning", 0.0)),
        ("looking at what stands ready, and recording it", ours("begin")),
        ("reading, splitting, routing: the slowest task at the sources", tasks[0]),
    ]
    for depth in depths[1:]:
        work, state = slowest(depth, "busy_seconds"), slowest(depth, "state_seconds")
        found.append((f"depth {depth}: operators of the slowest channel", work))
        found.append((f"depth {depth}: writing its state", state))
        found.append((f"depth {depth}: loading the state, taking and sending packets", tasks[depth] - work - state))
    found += [
        ("starting the job, waiting between depths, collecting", ours("job") - sum(tasks.values())),
        ("merging the output", ours("merge")),
        ("the sink", ours("sink")),
        ("the manifest", ours("commit")),
        ("Spark's log of commits", parts.get("commitOffsets", 0.0)),
    ]
    known = sum(ms for _, ms in found)
    return [*found, ("the rest: calls between Spark and Python, Spark's progress", parts["triggerExecution"] - known)]


def measured(spark: Any, start: Any, source: Path, scratch: Path, shape: Shape, warm_up: int) -> Measured:
    scratch.mkdir(parents=True)
    with counted_calls() as calls:
        marks: list[tuple[float, int]] = []
        query = start(spark, source, scratch, shape, lambda: marks.append((processor_time().total_s, calls[0])))
        handle = spark.streams.get(query.id)
        query.awaitTermination()
        count = len(marks) - warm_up
        used, called = marks[-1][0] - marks[warm_up - 1][0], marks[-1][1] - marks[warm_up - 1][1]
    triggers = [each.durationMs for each in handle.recentProgress if "addBatch" in each.durationMs][warm_up:]
    parts = {part: statistics.median(each.get(part, 0) for each in triggers) for part in triggers[0]}
    budget = budget_of(parts, query.recentProgress[warm_up:]) if start is start_ours else []
    return Measured(Cost(parts["triggerExecution"] / 1000, used / count), parts, called // count, budget)


def measure(shapes: list[Shape], epochs: int, warm_up: int, rounds: int, slots: int, scratch: Path) -> dict[str, Any]:
    """Run in a process of its own."""
    from pyspark import cloudpickle

    import benchmarks.epoch as here

    cloudpickle.register_pickle_by_value(here)  # Spark's Python workers need not find this folder
    write_input(scratch / "in", epochs)
    found: dict[str, Any] = {"shapes": [], "calls": 0, "parts": {}, "budgets": {}}
    with spark_session(slots, scratch, {"spark.sql.shuffle.partitions": "2"}) as spark:
        for shape in shapes:
            ours: list[Cost] = []
            bare: list[Cost] = []
            for number in range(rounds + 1):
                for start, costs in ((start_ours, ours), (start_bare, bare))[:: 1 if number % 2 else -1]:
                    place = scratch / f"{shape.levels}-{shape.channels}-{number}-{start.__name__}"
                    ran = measured(spark, start, scratch / "in", place, shape, warm_up)
                    if number == 0:
                        continue  # to warm up
                    costs.append(ran.cost)
                    if shape == shapes[0]:
                        found["parts"][start.__name__.removeprefix("start_")] = ran.parts
                        found["calls"] = ran.calls if start is start_ours else found["calls"]
                    if start is start_ours:
                        found["budgets"][shape] = ran.budget
            found["shapes"].append((shape, ours, bare))
            line = ", ".join(
                f"{name} {statistics.median(each.seconds for each in side):.3f} s and "
                f"{statistics.median(each.processor_s for each in side):.3f} processor s"
                for name, side in (("ours", ours), ("bare", bare))
            )
            print(f"  {shape.levels} levels of {shape.channels} channels: {line}", flush=True)
    return found


def ratio(ours: list[Cost], bare: list[Cost], what: str) -> float:
    return statistics.median(getattr(a, what) / getattr(b, what) for a, b in zip(ours, bare, strict=True))


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks epoch", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer shapes, epochs and rounds")
    parser.add_argument("--mini", action="store_true", help="one shape, two epochs: that it runs")
    options = parser.parse_args(arguments)
    if options.mini:
        shapes, epochs, warm_up, rounds = [Shape(1, 2)], 3, 1, 1
    elif options.quick:
        shapes, epochs, warm_up, rounds = [Shape(1, 2), Shape(3, 2), Shape(1, 8)], 14, 4, 2
    else:
        shapes = [Shape(levels, channels) for levels in (1, 3, 6) for channels in (2, 8, 32)]
        epochs, warm_up, rounds = 25, 10, 5
    with tempfile.TemporaryDirectory(prefix="anabranch-epoch-", ignore_cleanup_errors=True) as scratch:
        found = apart(measure, shapes, epochs, warm_up, rounds, 2, Path(scratch))
    wall = [ratio(ours, bare, "seconds") for _, ours, bare in found["shapes"]]
    spent = [ratio(ours, bare, "processor_s") for _, ours, bare in found["shapes"]]
    by_levels = {
        shape.levels: statistics.median(each.seconds for each in ours)
        for shape, ours, _ in found["shapes"]
        if shape.channels == shapes[0].channels
    }
    fewest, most = min(by_levels), max(by_levels)
    per_level = (by_levels[most] - by_levels[fewest]) / max(1, most - fewest)
    for side, parts in found["parts"].items():
        print(f"a trigger of {side}, in ms: " + ", ".join(f"{part} {ms:.0f}" for part, ms in parts.items()))
    largest = max(found["budgets"], key=lambda shape: (shape.levels, -shape.channels))
    for shape in dict.fromkeys((shapes[0], largest)):
        print(f"the budget of an epoch of ours, {shape.levels} levels of {shape.channels} channels:")
        for what, ms in found["budgets"][shape]:
            print(f"  {ms:7.1f} ms  {what}")
    return {
        "fixed_vs_bare": round(max(wall), 3),
        "fixed_vs_bare_median": round(statistics.median(wall), 3),
        "fixed_vs_bare_cpu": round(max(spent), 3),
        "fixed_vs_bare_cpu_median": round(statistics.median(spent), 3),
        "per_level_s": round(per_level, 4),
        "py4j_calls": found["calls"],
    }
