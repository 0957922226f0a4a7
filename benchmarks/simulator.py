"""The simulator: does it find bugs, does it agree with Spark, how fast is it.

    python -m benchmarks simulator             about 15 minutes on a quiet machine
    python -m benchmarks simulator --quick     about 4: one program on Spark, until it has settled
    python -m benchmarks simulator --no-spark  planted bugs and speed only
    python -m benchmarks simulator --program skewed --repeat    one program, on Spark twice

Four questions. *Planted bugs*: each of the bugs of `_planted_bugs.py`, all in code of the product, is planted, and
random worlds are run until a checker complains; CPU time, a minute at most for each. *The swarm*: worlds per minute of
CPU without a bug, and what a world is like. *Simulated and real*: four programs on Spark and in the simulator, with
costs measured on others. *Speed*: 100 channels and a million tuples. The figures of the papers are made by
`experiments/`, whose report leaves docs/reproduction.json; if it is there, its counts are added.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import anabranch as ab
from anabranch.control.elastic_options import ElasticOptions
from anabranch.sim.hosts import SimulatedHost
from anabranch.sim.simulation import Simulation
from anabranch.sim.situation import Keys, Situation
from anabranch.sim.smallest import kind_of
from anabranch.sim.swarm import failures, random_world
from anabranch.sim.swarm.judging import judged
from anabranch.sim.work_costs import WorkCosts
from benchmarks._planted_bugs import BUGS, planted
from benchmarks._simulated_and_real import SLOTS, Case, cases, compare

SECONDS_PER_BUG = 60.0
SWARM_SECONDS = 30.0
REPORT = Path(__file__).resolve().parents[1] / "docs" / "reproduction.json"


def main(arguments: list[str]) -> dict:
    """Print what was found; return the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks simulator")
    parser.add_argument("--quick", action="store_true", help="one program on Spark, for 75 s; a tenth of the tuples")
    parser.add_argument("--mini", action="store_true", help="one bug, a few worlds, no Spark, to see that it runs")
    parser.add_argument("--no-spark", action="store_true", help="leave the comparison with Spark out")
    parser.add_argument("--program", default="", help="compare with Spark only programs whose name contains this")
    parser.add_argument("--seconds", type=float, default=110.0, help="that each program runs on Spark")
    parser.add_argument(
        "--stretch", type=float, default=1.0, help="so many times as much work, for as many times as long"
    )
    parser.add_argument(
        "--repeat", action="store_true", help="run each program on Spark twice: how far are they apart?"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    figure = planted_bugs_found(options.seed, 1 if options.mini else len(BUGS))
    figure |= swarm_speed(options.seed, 2.0 if options.mini else 10.0 if options.quick else SWARM_SECONDS)
    if not options.no_spark and not options.mini:
        wanted = [case for case in cases(options.stretch) if options.program in case.name]
        programs = wanted[:1] if options.quick else wanted
        figure |= compare_with_spark(75.0 if options.quick else options.seconds, programs, options.repeat)
    tuples = 20_000 if options.mini else 100_000 if options.quick else 1_000_000
    figure["seconds_100_channels"] = hundred_channels(tuples)
    if options.quick or options.mini:
        figure["seconds_100_channels_extrapolated_from"] = tuples
    return report_of_figures() | figure


@dataclass(frozen=True)
class Search:
    """What became of looking for a planted bug."""

    worlds: int
    seconds: float
    complaint: str
    """What a checker said first; empty: nothing."""


def look_for(number: int, seed: int) -> Search:
    """Plant the bug of this number, and run random worlds until a checker complains, or a minute of CPU is over."""
    started = time.process_time()
    worlds = 0
    complaints: list[str] = []
    with planted(BUGS[number]):
        while not complaints and time.process_time() - started < SECONDS_PER_BUG:
            complaints = failures(random_world(seed * 1_000_000 + worlds))
            worlds += 1
    return Search(worlds, time.process_time() - started, complaints[0] if complaints else "")


def planted_bugs_found(seed: int, bugs: int = len(BUGS)) -> dict:
    """Look for one bug after the other, in two processes; count those that are found, and what the longest took."""
    print("planted bugs")
    found, longest_s = 0, 0.0
    with contextlib.ExitStack() as stack:
        ask = map
        if bugs > 1:
            ask = stack.enter_context(ProcessPoolExecutor(2, mp_context=get_context("spawn"))).map  # type: ignore[assignment]
        for bug, search in zip(BUGS, ask(look_for, range(bugs), [seed] * bugs), strict=False):
            found += bool(search.complaint)
            longest_s = max(longest_s, search.seconds)
            result = kind_of(search.complaint) if search.complaint else "NOT FOUND"
            print(
                f"  {bug.component:12}{bug.what:48}{search.worlds:5} worlds {search.seconds:6.1f} s   {result}",
                flush=True,
            )
    return {"planted_bugs": bugs, "planted_bugs_found": found, "planted_bugs_seconds_max": round(longest_s, 1)}


def swarm_speed(seed: int, seconds: float) -> dict:
    """Worlds per minute of CPU, without a bug; what they are like, and whether all are right."""
    started = time.process_time()
    worlds, failed = 0, 0
    epochs, channels, rescalings, crashes = [], [], [], []
    while time.process_time() - started < seconds:
        complaints, run = judged(random_world(seed * 1_000_000 + 500_000 + worlds))
        failed += bool(complaints)
        worlds += 1
        if run is not None:
            changes = [change for epoch in run.epochs for change in epoch.changes]
            epochs.append(len(run.epochs))
            channels.append(max((max(epoch.channels.values(), default=1) for epoch in run.epochs), default=1))
            rescalings.append(sum(change.channels != change.channels_before for change in changes))
            crashes.append(len(run.crashes))
    rate = worlds / (time.process_time() - started) * 60
    world = {"epochs": median(epochs), "channels": median(channels), "rescalings": median(rescalings)}
    world["crashes"] = median(crashes)
    print(
        f"swarm without a bug: {worlds} worlds, {rate:,.0f} per minute of CPU, {failed} failed; the median has {world}"
    )
    return {"worlds_per_cpu_minute": round(rate), "worlds_failed": failed, "median_world": world}


def compare_with_spark(seconds: float, programs: Sequence[Case], repeat: bool = False) -> dict:
    """Relative differences of throughput and epoch time, and of settled channels, by program."""
    from benchmarks._spark import start_spark

    print(f"simulated and on Spark, {seconds:.0f} s each")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        spark = start_spark(SLOTS, Path(scratch))
        errors = compare(ab.session(spark), Path(scratch), seconds, programs, repeat)
        spark.stop()
    return {
        "sim_vs_real_error": max(max(each["throughput"], each["epoch_s"]) for each in errors.values()),
        "sim_vs_real_channels": max(each["channels"] for each in errors.values()),
        "sim_vs_real": errors,
    }


class Work(ab.Operator):
    """A region of many channels."""

    seen: int = ab.state(default=0)

    def process(self, t):  # type: ignore[no-untyped-def]
        self.seen += 1
        return t


def hundred_channels(tuples: int) -> float:
    """CPU seconds for 100 channels (it is one thread); for a million tuples, if fewer were run."""
    situation = Situation(
        rows_per_file=1_000,
        epochs_max=tuples // 20_000,
        files_per_epoch=20,
        hosts=tuple(SimulatedHost(slots=8) for _ in range(14)),
        costs=WorkCosts(operators={"work": 1e-3}),
        options=ElasticOptions(channels=100),
        keys_default=Keys(100_000),
    )
    stream = ab.from_rows([], "k long").process(Work(), by="k", schema="k long", name="work")
    started = time.process_time()
    run = Simulation(stream, situation, fast=True).run()
    spent = (time.process_time() - started) * 1_000_000 / run.rows_in
    longest = max(epoch.duration_s for epoch in run.epochs)
    print(
        f"100 channels on 14 hosts, {run.rows_in:,} tuples in {len(run.epochs)} epochs: {spent:.1f} s of CPU per "
        f"million tuples; {run.throughput:,.0f} tuples a second, epochs of at most {longest:.2f} s"
    )
    return round(spent, 1)


def report_of_figures() -> dict:
    """What the report of the experiments counted, if there is one."""
    if not REPORT.exists():
        return {}
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    return {key: report[key] for key in ("figures", "met_or_better") if key in report}
