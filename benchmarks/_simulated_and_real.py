"""The simulator beside Spark: four programs run on this machine and in virtual time, with costs from other programs.

Work is emulated by sleeping, so that two cores suffice for eight channels. What Spark and the library take for an
epoch is measured before and after each run, with three small programs of which none is compared:

    one region of 2 channels       4 tasks in 2 stages
    one region of 8 channels      16 tasks in 2 stages      the difference to the first: what 12 tasks take
    three regions of 4 channels   16 tasks in 4 stages      the difference to the second: what 2 stages take

Nothing is fitted to the runs that are compared. Compared is the last part of a run, when everything has settled: the
rows per second, the length of epochs, and the channels of regions. Beside each program runs nothing of ours; what else
the machine does is shown by how much the measurements before and after differ.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.sim.load import Constant, Curve, full_at
from anabranch.sim.simulating import simulate
from anabranch.sim.situation import ALWAYS_MORE, Keys
from anabranch.sim.work_costs import WorkCosts

SLOTS = 8
ROWS_PER_FILE = 40
FILES = 700
SETTLED_SHARE = 0.4
"""Of a run's time, so much at its end is compared."""
EPOCH_TARGET_S = 4.0
INTERVAL_S = 5.0
"""Of the trigger, where the load is paced."""
OTHER_KEYS = 997  # of the second of two regions
CALIBRATED_SLEEP_S = 0.006
CALIBRATED_EPOCHS = 8
WARMING_EPOCHS = 3
"""Of a calibration: they start workers and compile."""


@dataclass(frozen=True)
class Case:
    """A program whose operators sleep, and its load."""

    name: str
    program: Callable[[ab.Stream], ab.Stream]
    sleeps: Mapping[str, float]
    """Operator → seconds for a tuple."""
    load: Curve = ALWAYS_MORE
    keys: Mapping[str, Keys] = field(default_factory=dict)
    """Region → its keys."""
    drawn: Keys = field(default_factory=lambda: Keys(100_003))
    """The keys in the input."""
    stretch: float = 1.0

    @property
    def paced(self) -> bool:
        return self.load is not ALWAYS_MORE

    @property
    def interval_s(self) -> float | None:
        """Of the trigger; None: epochs follow each other."""
        return INTERVAL_S * self.stretch if self.paced else None

    @property
    def options(self) -> dict[str, str]:
        """Of the query, on Spark and simulated."""
        return {
            "initialChannels": "4",
            "maxChannels": str(SLOTS),
            "epochTarget": f"{EPOCH_TARGET_S * self.stretch:g} seconds",
        }


@dataclass(frozen=True)
class Seen:
    """An epoch, as the query told it."""

    ended_s: float
    progress: Mapping[str, Any]

    @property
    def total_s(self) -> float:
        return self.progress["duration_ms"]["total"] / 1000


@dataclass(frozen=True)
class Settled:
    """What a run came to in the end."""

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


def calibration(regions: int) -> Callable[[ab.Stream], ab.Stream]:
    """So many regions, one behind the other."""

    def program(rows: ab.Stream) -> ab.Stream:
        for number in range(regions):
            # By another key than the one before: else they would be one region.
            rows = keyed(rows, f"calibrated{number}", CALIBRATED_SLEEP_S, by=("k", "n")[number % 2])
        return rows

    return program


EVEN = Keys(100_003)
SKEWED = Keys(1_000, 1.1)
NAMES = ("stateless, spread", "keyed, paced", "two regions", "skewed")


def cases(stretch: float = 1.0) -> tuple[Case, ...]:
    """The programs, with work that takes so many times as long: on a busy machine, what Spark takes is less of it."""

    def spread(rows: ab.Stream) -> ab.Stream:
        return rows.spread(name="spread").map(stateless(0.040 * stretch), schema="k long, n long", name="heavy")

    def one_region(rows: ab.Stream) -> ab.Stream:
        return keyed(rows, "work", 0.040 * stretch)

    def two_regions(rows: ab.Stream) -> ab.Stream:
        return keyed(keyed(rows, "first", 0.020 * stretch), "second", 0.030 * stretch, by="n")

    found = (
        Case(NAMES[0], spread, {"heavy": 0.040}),
        Case(NAMES[1], one_region, {"work": 0.040}, Constant(50.0 / stretch), {"work": EVEN}),
        Case(
            NAMES[2], two_regions, {"first": 0.020, "second": 0.030}, keys={"first": EVEN, "second": Keys(OTHER_KEYS)}
        ),
        Case(NAMES[3], one_region, {"work": 0.040}, keys={"work": SKEWED}, drawn=SKEWED),
    )
    return tuple(
        replace(case, stretch=stretch, sleeps={name: stretch * slept for name, slept in case.sleeps.items()})
        for case in found
    )


# -- on Spark -----------------------------------------------------------------------------------------------------


class Writer(threading.Thread):
    """Puts files into a directory, as a load curve says: all at once, or over time."""

    def __init__(self, directory: Path, load: Curve, keys: Keys) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self._load = load
        ranks = np.arange(1, keys.count + 1, dtype=float) ** -keys.skew
        self._shares = np.cumsum(ranks / ranks.sum())
        self._chance = np.random.default_rng(7)
        self._stopped = threading.Event()
        directory.mkdir(parents=True)

    def put(self, number: int, at_s: float | None = None) -> None:
        keys = np.searchsorted(self._shares, self._chance.random(ROWS_PER_FILE))
        passing = self.directory / "_passing"
        pq.write_table(pa.table({"k": pa.array(keys, pa.int64())}), passing)
        if at_s is not None:
            os.utime(passing, (at_s, at_s))
        passing.rename(self.directory / f"{number:06d}.parquet")

    def put_all(self, count: int) -> None:
        # A second apart: an epoch never ends between files of the same time, and file systems' clocks tick slowly.
        begin_s = time.time() - 2 * count
        for number in range(count):
            self.put(number, begin_s + number)

    def run(self) -> None:
        began = time.monotonic()
        for number, at_s in zip(range(FILES), full_at(self._load, ROWS_PER_FILE), strict=False):
            if self._stopped.wait(max(0.0, at_s - (time.monotonic() - began))):
                return
            self.put(number)

    def stop(self) -> None:
        self._stopped.set()


def run_on_spark(
    session: Any,
    program: Any,
    writer: Writer,
    root: Path,
    until: Callable[[list[Seen]], bool],
    trigger: Mapping[str, Any],
    **options: Any,
) -> tuple[list[Seen], list[str]]:
    """Run a query until the epochs it has told of are enough, or it has ended by itself."""
    limits = {name: options.pop(name) for name in ("maxFilesPerTrigger",) if name in options}
    stream = program(session.from_files(str(writer.directory), "parquet", "k long", **limits))
    checkpoint = Path(tempfile.mkdtemp(dir=root)) / "checkpoint"
    sink = stream.writeStream.options(**options).option("checkpointLocation", str(checkpoint)).format("noop")
    seen: list[Seen] = []
    ended = threading.Event()

    def note(event: Any) -> None:
        if isinstance(event, ab.EpochEnded):
            seen.append(Seen(time.time(), event.progress))
            ended.set()

    session.addListener(note)
    query = (sink.trigger(**trigger) if trigger else sink).start()
    regions = [each.name for each in query.regions]
    try:
        while not until(seen) and not query.awaitTermination(0.5):
            pass
        if query.isActive:
            # Spark ends the workers of tasks that it cuts off, and the next query would have to start others.
            ended.clear()
            ended.wait(120.0)
    finally:
        query.stop()
        session.removeListener(note)
    return seen, regions


def settled_real(seen: Sequence[Seen], regions: Sequence[str]) -> Settled:
    """The last part of a run."""
    begin_s = seen[-1].ended_s - SETTLED_SHARE * (seen[-1].ended_s - seen[0].ended_s)
    before = [each for each in seen if each.ended_s < begin_s][-1]
    last = [each for each in seen if each.ended_s >= begin_s]
    return Settled(
        sum(each.progress["rows_in"] for each in last) / (last[-1].ended_s - before.ended_s),
        statistics.median(each.total_s for each in last if each.progress["rows_in"]),
        {name: round(statistics.median(each.progress["channels"][name] for each in last)) for name in regions},
    )


# -- what Spark and the library take ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Overheads:
    """What epochs of a small program take beside the work of their slowest channels, in seconds."""

    epoch_s: float
    between_s: float
    tuple_s: float
    """By how much the work of a tuple takes longer than its sleep."""
    parts: Mapping[str, float]
    """Of the epoch: what the driver does before and after the job."""


def overheads(session: Any, root: Path, regions: int, channels: int, warming: int = WARMING_EPOCHS) -> Overheads:
    """Run so many regions with so many channels each, for a few epochs of as many files."""
    epochs = warming + CALIBRATED_EPOCHS
    writer = Writer(Path(tempfile.mkdtemp(dir=root)) / "in", ALWAYS_MORE, EVEN)
    writer.put_all(channels * epochs)
    seen, _ = run_on_spark(
        session, calibration(regions), writer, root, lambda seen: False, {"availableNow": True},
        channels=str(channels), maxFilesPerTrigger=channels,
    )  # fmt: skip
    measured = seen[warming:]
    found: dict[str, list[float]] = {}
    for before, each in zip(seen[warming - 1 :], measured, strict=False):
        tasks = [task for task in each.progress["stages"] if task["kind"] == "channel"]
        work_s = sum(
            max(task["busy_seconds"] for task in tasks if task["depth"] == depth)
            for depth in {task["depth"] for task in tasks}
        )
        rows = sum(task["rows_in"] for task in tasks)
        durations = {name: value / 1000 for name, value in each.progress["duration_ms"].items()}
        for name, value in (
            ("epoch", each.total_s - work_s),
            ("between", each.ended_s - before.ended_s - each.total_s),
            ("tuple", sum(task["busy_seconds"] for task in tasks) / rows - CALIBRATED_SLEEP_S),
            ("begin", durations["begin"]),
            ("sink", durations["merge"] + durations["sink"]),
            ("commit", durations["commit"]),
        ):
            found.setdefault(name, []).append(max(0.0, value))
    middle = {name: statistics.median(values) for name, values in found.items()}
    return Overheads(middle.pop("epoch"), middle.pop("between"), middle.pop("tuple"), middle)


def calibrated(session: Any, root: Path) -> WorkCosts:
    """What Spark and the library take here, and by how much sleeping takes longer than it should."""
    many = overheads(session, root, regions=1, channels=8)
    few = overheads(session, root, regions=1, channels=2, warming=1)
    deep = overheads(session, root, regions=3, channels=4, warming=1)
    task_s = max(0.0, many.epoch_s - few.epoch_s) / 12
    stage_s = max(0.0, deep.epoch_s - many.epoch_s) / 2
    driver = {name: statistics.median(each.parts[name] for each in (many, few, deep)) for name in many.parts}
    fixed_s = max(0.0, few.epoch_s - 4 * task_s - 2 * stage_s - sum(driver.values()))
    extra_s = statistics.median(each.tuple_s for each in (many, few, deep))
    between_s = statistics.median(each.between_s for each in (many, few, deep))
    print(
        f"  epochs of 4, 16, 16 tasks in 2, 2, 4 stages: beside work {few.epoch_s:.2f}, {many.epoch_s:.2f}, "
        f"{deep.epoch_s:.2f} s: {1000 * fixed_s:.0f} ms, {1000 * task_s:.0f} ms a task, "
        f"{1000 * stage_s:.0f} ms a stage; {1000 * between_s:.0f} ms between epochs, {1000 * extra_s:.2f} ms a sleep",
        flush=True,
    )
    return WorkCosts(
        tuple_s=1e-6,
        key_s=0.0,
        byte_s=0.0,
        file_s=0.0,
        task_s=0.0,
        launch_s=task_s,
        stage_s=stage_s,
        plan_s=fixed_s,
        begin_s=driver["begin"],
        sink_s=driver["sink"],
        sink_tuple_s=0.0,
        commit_s=driver["commit"],
        between_s=between_s,
        operators={"": extra_s},
    )


def mean_costs(one: WorkCosts, other: WorkCosts) -> WorkCosts:
    """What things take on average of two measurements."""
    numbers = {
        each.name: (getattr(one, each.name) + getattr(other, each.name)) / 2
        for each in fields(WorkCosts)
        if each.name != "operators"
    }
    return WorkCosts(operators={"": (one.operators[""] + other.operators[""]) / 2}, **numbers)


# -- in virtual time ----------------------------------------------------------------------------------------------


def settled_simulated(case: Case, costs: WorkCosts, seconds: float) -> Settled:
    """The same program in the simulator."""
    extra = costs.operators[""]
    run = simulate(
        case.program(ab.from_rows([], "k long")),
        load=case.load,
        rows_per_file=ROWS_PER_FILE,
        seconds=seconds * case.stretch,
        interval_s=case.interval_s,
        slots=SLOTS,
        costs=replace(costs, operators={name: slept + extra for name, slept in case.sleeps.items()}),
        keys=case.keys,
        fast=True,
        **case.options,
    )
    begin_s = run.epochs[-1].ended_s - SETTLED_SHARE * (run.epochs[-1].ended_s - run.epochs[0].ended_s)
    before = [epoch for epoch in run.epochs if epoch.ended_s < begin_s][-1]
    last = [epoch for epoch in run.epochs if epoch.ended_s >= begin_s]
    return Settled(
        sum(epoch.rows_in for epoch in last) / (last[-1].ended_s - before.ended_s),
        statistics.median(epoch.duration_s for epoch in last),
        {name: round(statistics.median(epoch.channels[name] for epoch in last)) for name in run.regions},
    )


def compare(
    session: Any, root: Path, seconds: float, programs: Sequence[Case], repeat: bool = False
) -> dict[str, dict[str, Any]]:
    """Cases on Spark and simulated; with `repeat`, on Spark twice: how far are two runs of one program apart?"""
    found = {}
    before = calibrated(session, root)
    for case in programs:
        runs = [run_case(session, case, root, seconds) for _ in range(2 if repeat else 1)]
        # What else a machine does changes: costs are measured before and after.
        after = calibrated(session, root)
        costs, before = mean_costs(before, after), after
        virtual = settled_simulated(case, costs, seconds)
        print(f"  {case.name}")
        for what, each in (*(("Spark", real) for real in runs), ("simulated", virtual)):
            print(
                f"    {what:10}{each.throughput:8.1f} rows/s   epochs of {each.epoch_s:5.2f} s   "
                f"channels {json.dumps(each.channels)}"
            )
        errors = differences(virtual, runs[0])
        print(f"    differ by {errors['throughput']:.1%}, {errors['epoch_s']:.1%}, {errors['channels']}", flush=True)
        found[case.name] = errors
        if repeat:
            again = differences(runs[1], runs[0])
            found[case.name]["repeated"] = again
            print(f"    two runs:  {again['throughput']:.1%}, {again['epoch_s']:.1%}, {again['channels']}", flush=True)
    return found


def run_case(session: Any, case: Case, root: Path, seconds: float) -> Settled:
    """A program on Spark, from its first epoch on for so long."""
    writer = Writer(Path(tempfile.mkdtemp(dir=root)) / "in", case.load, case.drawn)
    if not case.paced:
        writer.put_all(FILES)

    def until(seen: list[Seen]) -> bool:
        if case.paced and seen and not writer.ident:
            writer.start()
        return bool(seen) and time.time() - seen[0].ended_s > seconds * case.stretch

    if case.paced:
        writer.put(FILES)  # something to begin with
    trigger = {"processingTime": f"{case.interval_s:g} seconds"} if case.paced else {}
    seen, regions = run_on_spark(session, case.program, writer, root, until, trigger, **case.options)
    writer.stop()
    shutil.rmtree(writer.directory, ignore_errors=True)
    return settled_real(seen, regions)


def differences(one: Settled, other: Settled) -> dict[str, Any]:
    """How far one is from another, relative; channels in channels."""
    return {
        "throughput": round(abs(one.throughput / other.throughput - 1), 3),
        "epoch_s": round(abs(one.epoch_s / other.epoch_s - 1), 3),
        "channels": max(abs(one.channels[name] - other.channels[name]) for name in other.channels),
    }
