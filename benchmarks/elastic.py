"""Elastic regions: as fast as the best fixed number of channels, found by themselves, and kept.

    python -m benchmarks elastic [--quick] [--model-only]

On Spark (local[16]; two cores suffice, because work is emulated by sleeping)
    A region of one operator, with state per key or without, that takes a millisecond or four for a tuple. First with
    every fixed number of channels of 1, 2, 4, 8, 16, a few epochs each, in one query; then elastic, starting with one
    channel, until it has settled. Files are there beforehand, one an epoch, so the region is saturated. Compared are
    medians of whole epochs, overhead included. Then three loads that must be told apart: saturated; under-loaded;
    a sink that is slow (congestion that is not the region's: no channels may be added).

On the fluid model (`anabranch.control.fluid`), which Spark's clock would make a matter of hours
    SASO in 100 periods at constant load; the sine and the steps of the paper's Figures 13–16; congestion thresholds as
    in Figures 17 and 18; regions whose speed-up is linear, Amdahl's, flat, falling, or that of epochs with a fixed
    cost and one per task. Both controllers, without noise
    and with 5 % on every period. What is not handled is lost.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from anabranch.control import DefaultPolicy
from anabranch.control.fluid import FluidRegion, constant, linear
from anabranch.control.saso import Run, reversals, run
from anabranch.control.saso_report import (
    BOUNDS,
    CHANNEL_RATE,
    CONSTANT_LOAD,
    CURVES,
    SINE_LOAD,
    STEP_LOAD,
    report,
)
from anabranch.spark.session import local_session

SLOTS = 16
FIXED = (1, 2, 4, 8, 16)
ROWS = 1_000
PERIOD_EPOCHS = 3
SETTLED_PERIODS = 3
PERIODS_MAX = 14
SEEDS = 20


# -- on Spark -----------------------------------------------------------------------------------------------------


def worker(kind: str, cost_s: float) -> Any:
    """An operator that takes so long for a tuple. Within a function, so that it is pickled by value."""

    class Work(ab.Operator):
        seen: int = ab.state(default=0)

        def process(self, t):  # type: ignore[no-untyped-def]
            time.sleep(cost_s)
            self.seen += 1
            yield t.k, self.seen

    @ab.model(state="stateless", selectivity="1:1", forwards=())
    def work(t):  # type: ignore[no-untyped-def]
        time.sleep(cost_s)
        return t.k, 1

    return Work() if kind == "stateful" else work


class Files:
    """A directory of input files, and a way to add to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir()
        self._count = 0

    def put(self, files: int, rows: int = ROWS) -> None:
        for _ in range(files):
            keys = pa.array([(self._count * 7919 + at) * 2654435761 % 100_003 for at in range(rows)], pa.int64())
            passing = self.directory / "_passing"
            pq.write_table(pa.table({"k": keys}), passing)
            passing.rename(self.directory / f"{time.time_ns()}-{self._count}.parquet")
            self._count += 1


@dataclass(frozen=True)
class Epoch:
    """An epoch of a measured query: how many channels, and from the end of the one before to its end."""

    channels: int
    seconds: float


class Measured:
    """A query whose epochs and decisions are kept."""

    def __init__(self, stream: ab.Stream, root: Path, sink: Callable[..., Any] | None = None, **options: Any) -> None:
        self.epochs: list[Epoch] = []
        self.decisions: list[Any] = []
        self._last = time.perf_counter()
        writer = stream.writeStream.options(**options).option("checkpointLocation", tempfile.mkdtemp(dir=root))
        writer = writer.format("noop") if sink is None else writer.foreachBatch(sink)
        self.query = writer.start()
        self.query.addListener(self._on_event)
        (self.region,) = [each.name for each in self.query.regions]

    def _on_event(self, event: Any) -> None:
        if isinstance(event, ab.EpochEnded):
            now = time.perf_counter()
            self.epochs.append(Epoch(event.progress["channels"][self.region], now - self._last))
            self._last = now
        elif isinstance(event, ab.Decided) and event.decision.observation is not None:
            self.decisions.append(event.decision)

    def wait(self, done: Callable[[], bool], seconds_max: float) -> None:
        deadline = time.monotonic() + seconds_max
        while not done() and time.monotonic() < deadline:
            if self.query.awaitTermination(0.1):
                raise RuntimeError(f"the query ended: {self.query.exception()}")

    def median_s(self, channels: int) -> float:
        """The median epoch with so many channels, without the first of each stay."""
        kept = [
            after.seconds for before, after in pairwise(self.epochs) if before.channels == after.channels == channels
        ]
        return statistics.median(kept) if kept else float("inf")


def stream_of(session: ab.Session, files: Files, kind: str, cost_s: float) -> ab.Stream:
    rows = session.from_files(str(files.directory), "parquet", "k long", maxFilesPerTrigger=1)
    if kind == "stateful":
        return rows.process(worker(kind, cost_s), by="k", schema="k long, n long", name="work")
    return rows.spread().map(worker(kind, cost_s), schema="k long, n long", name="work")


def case(session: ab.Session, root: Path, kind: str, cost_s: float, epochs: int) -> dict[str, Any]:
    """Elastic against every fixed number of channels."""
    files = Files(root / f"{kind}-{cost_s}")
    files.put(60)
    fixed = Measured(stream_of(session, files, kind, cost_s), root, channels=FIXED[0])
    for count in FIXED:
        if count != FIXED[0]:
            fixed.query.rescale(fixed.region, count)
        wanted = epochs + 1
        fixed.wait(lambda: sum(e.channels == count for e in fixed.epochs) >= wanted, 240)  # noqa: B023 - used at once
    fixed.query.stop()
    times = {count: fixed.median_s(count) for count in FIXED}
    elastic = Measured(
        stream_of(session, files, kind, cost_s),
        root,
        initialChannels=1,
        maxChannels=SLOTS,
        adaptationPeriod=f"{PERIOD_EPOCHS} epochs",
    )

    def settled() -> bool:
        if not len(elastic.decisions) % 5:
            files.put(1)
        last = elastic.decisions[-SETTLED_PERIODS:]
        still = len(last) == SETTLED_PERIODS and all(not decision.changed for decision in last)
        return (still and len(elastic.decisions) > SETTLED_PERIODS) or len(elastic.decisions) >= PERIODS_MAX

    elastic.wait(settled, 600)
    elastic.query.stop()
    final = elastic.epochs[-1].channels
    channels = tuple(decision.channels for decision in elastic.decisions)
    settling = 1 + max((at for at, decision in enumerate(elastic.decisions, 1) if decision.changed), default=0)
    best = min(times.values())
    found = {"vs_best": best / elastic.median_s(final), "settling": settling, "reversals": reversals((1, *channels))}
    shown = ", ".join(f"{count}: {ROWS / seconds:,.0f}/s" for count, seconds in times.items())
    print(f"  {kind}, {cost_s * 1000:g} ms a tuple. Fixed: {shown}")
    way = " → ".join(map(str, channels))
    print(f"    elastic: 1 → {way}; settled in period {settling}, {found['reversals']} reversals")
    print(f"    {ROWS / elastic.median_s(final):,.0f}/s, {found['vs_best']:.1%} of the best fixed number", flush=True)
    for decision in elastic.decisions:
        print(f"      {decision.describe()}", flush=True)
    return found


def signals(session: ab.Session, root: Path, periods: int) -> dict[str, float]:
    """What the controllers are told of three loads; AssertionError if they could not tell them apart."""
    found = {}
    options = {"initialChannels": 2, "maxChannels": SLOTS, "adaptationPeriod": f"{PERIOD_EPOCHS} epochs"}
    for name in ("saturated", "under-loaded", "slow sink"):
        files = Files(root / name)
        sink = (lambda frame, epoch: time.sleep(3.0)) if name == "slow sink" else None
        if name != "under-loaded":
            files.put(40, ROWS if name == "saturated" else 50)
        query = Measured(stream_of(session, files, "stateful", 0.004), root, sink, **options)

        def judged(query: Measured = query, name: str = name, files: Files = files) -> bool:
            if name == "under-loaded" and len(query.epochs) < 60:
                files.put(1, 20)
                time.sleep(2.0)
            return len(query.decisions) >= (1 if name == "saturated" else periods)

        query.wait(judged, 300)
        query.query.stop()
        seen = [decision.observation for decision in query.decisions if decision.observation.valid]
        found[name] = statistics.median(each.congestion for each in seen) if seen else float("nan")
        most = max((decision.channels for decision in query.decisions), default=0)
        print(f"  {name}: congestion {found[name]:.2f}, at most {most} channels (began with 2)")
        for decision in query.decisions:
            print(f"      {decision.describe()}", flush=True)
        found[f"{name}, channels"] = most
    return found


# -- on the model -------------------------------------------------------------------------------------------------


def runs(load: Any, periods: int, noise: float, region: FluidRegion | None = None) -> list[Run]:
    region = region if region is not None else FluidRegion(CHANNEL_RATE, linear())
    seeds = range(SEEDS if noise else 1)
    return [run(DefaultPolicy(BOUNDS), region, load, periods, noise=noise, seed=seed) for seed in seeds]


def model() -> dict[str, Any]:
    """The numbers of the default controller; the tables have both."""
    print(report())
    saturated = {
        noise: [
            each
            for curve in CURVES.values()
            for each in runs(constant(1e6), 100, noise, FluidRegion(CHANNEL_RATE, curve))
        ]
        for noise in (0.0, 0.05)
    }
    calm = [each for noise in (0.0, 0.05) for each in runs(CONSTANT_LOAD, 100, noise)]
    waves, stairs = runs(SINE_LOAD, 300, 0.05), runs(STEP_LOAD, 300, 0.05)
    return {
        "vs_best": min(each.accuracy for each in saturated[0.0]),
        "vs_best_noise_mean": statistics.mean(each.accuracy for each in saturated[0.05]),
        "vs_best_noise_worst": min(each.accuracy for each in saturated[0.05]),
        "settling": max(each.settled for each in [*saturated[0.0], *runs(CONSTANT_LOAD, 100, 0.0)]),
        "settling_noise": max(each.settled for each in [*saturated[0.05], *calm]),
        "oscillations": max(each.reversals for each in calm),
        "probes": max(each.reversals for found in saturated.values() for each in found),
        "overshoot": max(each.overshoot for each in [*calm, *waves, *stairs]),
        "overshoot_probing": max(each.overshoot for found in saturated.values() for each in found),
        "overshoot_final": max(each.final_overshoot for found in saturated.values() for each in found),
        "handled_sine": min(each.handled for each in waves),
        "handled_step": min(each.handled for each in stairs),
    }


def main(arguments: list[str]) -> dict[str, Any]:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks elastic")
    parser.add_argument("--quick", action="store_true", help="one case on Spark, with fewer epochs")
    parser.add_argument("--model-only", action="store_true", help="nothing on Spark")
    given = parser.parse_args(arguments)
    print("The fluid model, at most 32 channels\n")
    modelled = model()
    figures = {
        "elastic_vs_best_fixed": round(modelled["vs_best"], 3),
        "elastic_vs_best_fixed_noise_mean": round(modelled["vs_best_noise_mean"], 3),
        "elastic_vs_best_fixed_noise_worst": round(modelled["vs_best_noise_worst"], 3),
        "settling_periods_max": modelled["settling"],
        "settling_periods_max_noise": modelled["settling_noise"],
        "oscillations": modelled["oscillations"],
        "reversals_to_find_a_limit": modelled["probes"],
        "overshoot_levels": modelled["overshoot"],
        "overshoot_levels_to_find_a_limit": modelled["overshoot_probing"],
        "overshoot_levels_left_by_a_limit": modelled["overshoot_final"],
        "handled_sine": round(modelled["handled_sine"], 4),
        "handled_step": round(modelled["handled_step"], 4),
    }
    if given.model_only:
        return figures
    print(
        f"\nSpark local[{SLOTS}]; load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True
    )
    kinds = (
        [("stateful", 0.004)] if given.quick else [(k, c) for k in ("stateful", "stateless") for c in (0.001, 0.004)]
    )
    spark = local_session(SLOTS)
    with tempfile.TemporaryDirectory(prefix="anabranch-elastic-") as scratch:
        session = ab.session(spark)
        cases = [case(session, Path(scratch), kind, cost, 3 if given.quick else 5) for kind, cost in kinds]
        told = signals(session, Path(scratch), 2 if given.quick else 5)
    spark.stop()
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    return {
        **figures,
        "elastic_vs_best_fixed": round(min(modelled["vs_best"], *(each["vs_best"] for each in cases)), 3),
        "settling_periods_max": max(modelled["settling"], *(each["settling"] for each in cases)),
        "spark_vs_best_fixed": round(min(each["vs_best"] for each in cases), 3),
        "spark_settling_periods": max(each["settling"] for each in cases),
        "spark_reversals": max(each["reversals"] for each in cases),
        "congestion_saturated": round(told["saturated"], 2),
        "congestion_under_loaded": round(told["under-loaded"], 2),
        "channels_slow_sink": told["slow sink, channels"],
    }
