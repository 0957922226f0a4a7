"""The simulator beside Spark: four programs run on this machine and in virtual time, with costs from a fifth one.

Work is emulated by sleeping, so that two cores suffice for eight channels. What Spark and the library take (planning,
launching tasks, commit, …) and by how much a sleep is longer than it should be are measured with a program of its own,
with fixed numbers of channels; nothing is fitted to the runs that are compared. Compared are the rows per second and
the length of epochs in the second half of a run, and the channels that regions came to rest with.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.control.elastic_options import ElasticOptions
from anabranch.sim.hosts import SimulatedHost
from anabranch.sim.load import Constant, Curve, full_at
from anabranch.sim.simulation import Simulation
from anabranch.sim.situation import ALWAYS_MORE, Keys, Situation
from anabranch.sim.work_costs import WorkCosts

SLOTS = 8
ROWS_PER_FILE = 100
FILES = 1_000
EPOCH_TARGET = "4 seconds"
CALIBRATION_S = 12.0
OTHER_KEYS = 997  # of the second of two regions


@dataclass(frozen=True)
class Case:
    """A program whose operators sleep, and its load."""

    name: str
    program: Callable[[ab.Stream], ab.Stream]
    sleeps: Mapping[str, float]
    """Operator → seconds for a tuple."""
    load: Curve = ALWAYS_MORE
    keys: Keys = field(default_factory=lambda: Keys(100_003))


@dataclass(frozen=True)
class Seen:
    """An epoch, as the query told it."""

    ended_s: float
    progress: Mapping[str, Any]

    @property
    def total_s(self) -> float:
        return self.progress["duration_ms"]["total"] / 1000


@dataclass(frozen=True)
class Compared:
    """What a run came to."""

    throughput: float
    epoch_s: float
    channels: dict[str, int]


# -- programs -----------------------------------------------------------------------------------------------------


def worker(seconds: float) -> Any:
    """An operator with state that takes so long. Within a function, so that it is pickled by value."""

    class Work(ab.Operator):
        seen: int = ab.state(default=0)

        def process(self, t):  # type: ignore[no-untyped-def]
            time.sleep(seconds)
            self.seen += 1
            yield t.k, t.k % OTHER_KEYS

    return Work()


def stateless(seconds: float) -> Any:
    """A function that takes so long."""

    @ab.model(state="stateless", selectivity="1:1", forwards=())
    def work(t):  # type: ignore[no-untyped-def]
        time.sleep(seconds)
        return t.k, 1

    return work


def keyed(stream: ab.Stream, name: str, seconds: float, by: str = "k") -> ab.Stream:
    return stream.process(worker(seconds), by=by, schema="k long, n long", name=name)


CALIBRATION = Case("calibration", lambda rows: keyed(rows, "calibrated", 0.006), {"calibrated": 0.006})
CASES = (
    Case(
        "stateless, spread",
        lambda rows: rows.spread(name="spread").map(stateless(0.010), schema="k long, n long", name="heavy"),
        {"heavy": 0.010},
    ),
    Case("keyed, paced", lambda rows: keyed(rows, "work", 0.010), {"work": 0.010}, Constant(260.0)),
    Case(
        "two regions",
        lambda rows: keyed(keyed(rows, "first", 0.005), "second", 0.008, by="n"),
        {"first": 0.005, "second": 0.008},
    ),
    Case("skewed", lambda rows: keyed(rows, "work", 0.010), {"work": 0.010}, keys=Keys(1_000, 1.1)),
)


# -- on Spark -----------------------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Puts files into a directory, as a load curve says: all at once, or over time."""

    def __init__(self, directory: Path, load: Curve, keys: Keys) -> None:
        super().__init__(daemon=True)
        self._directory = directory
        self._load = load
        ranks = np.arange(1, keys.count + 1, dtype=float) ** -keys.skew
        self._shares = np.cumsum(ranks / ranks.sum())
        self._chance = np.random.default_rng(7)
        self._stopped = threading.Event()
        directory.mkdir(parents=True)

    def put(self, number: int) -> None:
        keys = np.searchsorted(self._shares, self._chance.random(ROWS_PER_FILE))
        passing = self._directory / "_passing"
        pq.write_table(pa.table({"k": pa.array(keys, pa.int64())}), passing)
        passing.rename(self._directory / f"{number:06d}.parquet")

    def run(self) -> None:
        began = time.monotonic()
        for number, at_s in zip(range(FILES), full_at(self._load, ROWS_PER_FILE), strict=False):
            if self._stopped.wait(max(0.0, at_s - (time.monotonic() - began))):
                return
            self.put(number)

    def stop(self) -> None:
        self._stopped.set()


def run_on_spark(
    session: Any, case: Case, root: Path, seconds: float, epochs_min: int = 0, **options: Any
) -> tuple[list[Seen], list[str]]:
    """The epochs of a query that ran for so long, and for so many epochs."""
    directory = Path(tempfile.mkdtemp(dir=root))
    writer = Writer(directory / "in", case.load, case.keys)
    if case.load is ALWAYS_MORE:
        for number in range(FILES):
            writer.put(number)
    stream = case.program(session.from_files(str(directory / "in"), "parquet", "k long", **options.pop("source", {})))
    query = (
        stream.writeStream.options(**options).option("checkpointLocation", str(directory / "checkpoint")).format("noop")
    ).start()
    seen: list[Seen] = []

    def note(event: Any) -> None:
        if isinstance(event, ab.EpochEnded):
            seen.append(Seen(time.time(), event.progress))

    query.addListener(note)
    if case.load is not ALWAYS_MORE:
        writer.start()
    regions = [each.name for each in query.regions]
    began = time.monotonic()
    while time.monotonic() - began < seconds or (len(seen) < epochs_min and time.monotonic() - began < 120):
        query.awaitTermination(1.0)
    writer.stop()
    query.stop()
    shutil.rmtree(directory, ignore_errors=True)
    return seen, regions


def compared_real(seen: Sequence[Seen], regions: Sequence[str]) -> Compared:
    half = [each for each in seen[len(seen) // 2 :] if each.progress["rows_in"]]
    rows = sum(each.progress["rows_in"] for each in half[1:])
    last = seen[-max(1, len(seen) // 3) :]
    return Compared(
        rows / (half[-1].ended_s - half[0].ended_s),
        statistics.median(each.total_s for each in half),
        {name: round(statistics.median(each.progress["channels"][name] for each in last)) for name in regions},
    )


def calibrated(session: Any, root: Path, seconds: float) -> WorkCosts:
    """What Spark and the library take here, and by how much sleeping takes longer than it should."""
    seen: list[Seen] = []
    for channels in (2, 6):
        source = {"maxFilesPerTrigger": channels}
        epochs, _ = run_on_spark(session, CALIBRATION, root, seconds, 10, channels=channels, source=source)
        seen += epochs[3:]  # the first ones load and compile
    parts: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        parts.setdefault(name, []).append(max(0.0, value))

    for before, after in pairwise(seen):
        if 0 < after.ended_s - before.ended_s - after.total_s < 5:
            note("between", after.ended_s - before.ended_s - after.total_s)
    for each in seen:
        durations = {name: value / 1000 for name, value in each.progress["duration_ms"].items()}
        started = each.ended_s - durations["total"]
        tasks = each.progress["stages"]
        source = [task for task in tasks if task["kind"] == "source"]
        channel = [task for task in tasks if task["kind"] == "channel"]
        rows = sum(task["rows_in"] for task in channel)
        if not rows:
            continue
        note("begin", durations["begin"])
        note("sink", durations["merge"] + durations["sink"])
        note("commit", durations["commit"])
        first, ended = _span(source)
        second, done = _span(channel)
        note("stage", second - ended)
        note("plan", durations["job"] - (done - started - durations["begin"]) + first - started - durations["begin"])
        note("source", statistics.median(task["seconds"] for task in source))
        note("task", statistics.median(task["seconds"] - task["busy_seconds"] for task in channel))
        note("tuple", sum(task["busy_seconds"] for task in channel) / rows - CALIBRATION.sleeps["calibrated"])
        if len(channel) > 1:
            begins = sorted(task["began_s"] for task in channel)
            note("launch", (begins[-1] - begins[0]) / (len(channel) - 1))
    found = {name: statistics.median(values) for name, values in parts.items()}
    stage = found["stage"]
    print("  calibrated: " + ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in found.items()), flush=True)
    return WorkCosts(
        tuple_s=1e-6,
        key_s=0.0,
        byte_s=0.0,
        file_s=max(0.0, found["source"] - found["task"]),
        task_s=found["task"],
        launch_s=found["launch"],
        stage_s=stage,
        plan_s=max(0.0, found["plan"] - stage),
        begin_s=found["begin"],
        sink_s=found["sink"],
        sink_tuple_s=0.0,
        commit_s=found["commit"],
        between_s=found["between"],
        operators={"": found["tuple"]},
    )


def mean_costs(one: WorkCosts, other: WorkCosts) -> WorkCosts:
    """What things take on average of two measurements."""
    numbers = {
        each.name: (getattr(one, each.name) + getattr(other, each.name)) / 2
        for each in fields(WorkCosts)
        if each.name != "operators"
    }
    extra = (one.operators[""] + other.operators[""]) / 2
    return WorkCosts(operators={"": extra}, **numbers)


def _span(tasks: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    return min(t["began_s"] for t in tasks), max(t["began_s"] + t["seconds"] for t in tasks)


# -- in virtual time ----------------------------------------------------------------------------------------------


def simulated(case: Case, costs: WorkCosts, seconds: float, options: Mapping[str, str]) -> Compared:
    """The same program in the simulator."""
    extra = costs.operators[""]
    sleeping = {name: slept + extra for name, slept in case.sleeps.items()}
    situation = Situation(
        load=case.load,
        rows_per_file=ROWS_PER_FILE,
        seconds=seconds,
        hosts=(SimulatedHost(slots=SLOTS),),
        costs=replace(costs, operators=sleeping),
        options=ElasticOptions.parse({name.lower(): value for name, value in options.items()}),
        keys_default=case.keys,
        keys={"second": Keys(OTHER_KEYS)},
    )
    run = Simulation(case.program(ab.from_rows([], "k long")), situation, fast=True).run()
    half = run.epochs[len(run.epochs) // 2 :]
    rows = sum(epoch.rows_in for epoch in half[1:])
    return Compared(
        rows / (half[-1].ended_s - half[0].ended_s),
        statistics.median(epoch.duration_s for epoch in half),
        {name: run.settled(name) for name in run.regions},
    )


def compare(session: Any, root: Path, seconds: float, cases: Sequence[Case] = CASES) -> dict[str, dict[str, Any]]:
    """All cases, on Spark and simulated."""
    options = {"initialChannels": "2", "maxChannels": str(SLOTS), "epochTarget": EPOCH_TARGET}
    found = {}
    before = calibrated(session, root, CALIBRATION_S)
    for case in cases:
        seen, regions = run_on_spark(session, case, root, seconds, **options)
        # What else a machine does changes: costs are measured before and after.
        after = calibrated(session, root, CALIBRATION_S)
        costs, before = mean_costs(before, after), after
        real, virtual = compared_real(seen, regions), simulated(case, costs, seconds, options)
        errors = {
            "throughput": abs(virtual.throughput / real.throughput - 1),
            "epoch_s": abs(virtual.epoch_s / real.epoch_s - 1),
            "channels": max(abs(virtual.channels[name] - real.channels[name]) for name in regions),
        }
        found[case.name] = {name: round(value, 3) for name, value in errors.items()}
        print(f"  {case.name}")
        for what, each in (("Spark", real), ("simulated", virtual)):
            print(
                f"    {what:10}{each.throughput:8.1f} rows/s   epochs of {each.epoch_s:5.2f} s   "
                f"channels {json.dumps({name: each.channels[name] for name in regions})}"
            )
        print(f"    differ by {errors['throughput']:.1%}, {errors['epoch_s']:.1%}, {errors['channels']}", flush=True)
    return found
