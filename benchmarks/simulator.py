"""The simulator: does it find bugs, does it agree with threads on a real clock, how fast is it.

    python -m benchmarks simulator            about 4 minutes
    python -m benchmarks simulator --quick    about 2: fewer tuples, shorter real runs

Three questions. *Planted bugs*: each of 16 bugs in merger, controller, migration and partitioning is planted, and
random worlds are run until a checker complains; CPU time, a minute at most for each. *Simulated and real*: three
workloads run with threads that sleep for what a tuple costs, and in the simulator; throughput and the time
until the number of channels does not change any more are compared, the mean cost of a tuple being the one
measured in the real run. *Speed*: 100 channels and a million tuples. The figures of the papers are made by
`experiments/`, whose report leaves docs/reproduction.json; if it is there, its counts are added.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from anabranch.control import Bounds, DefaultPolicy
from anabranch.papers.machine import Cluster, Host, MachineRegion, MachineSource, Result, Steps, World, WorldDescription
from anabranch.papers.machine.oracle import sequential
from anabranch.papers.machine.swarm import failures, random_world
from anabranch.sim.smallest import kind_of
from benchmarks._planted_bugs import BUGS, planted
from benchmarks._real_region import Measured, RealRegion

SECONDS_PER_BUG = 60.0
REPORT = Path(__file__).resolve().parents[1] / "docs" / "reproduction.json"
HOST = Cluster(hosts=(Host(cores=64),), barrier_s=0.0)
WORKLOADS = {
    # The first two are saturated, so that their throughput is what the channels can do and not what is offered.
    "stateless, 1:1, always more": WorldDescription(
        MachineSource(),
        (MachineRegion(cost_s=0.025, bounds=Bounds(1, 6), policy=DefaultPolicy, queue=8),),
        HOST,
        period_s=1.0,
    ),
    "partitioned, at most one, always more": WorldDescription(
        MachineSource(keys=400, skew=0.5),
        (MachineRegion(cost_s=0.025, key=0, selectivity=0.5, bounds=Bounds(1, 4), policy=DefaultPolicy, queue=8),),
        HOST,
        period_s=1.0,
    ),
    # A load well away from where one decision more or less depends on a hair's breadth.
    "partitioned, any number, a step of load": WorldDescription(
        MachineSource(load=Steps((30.0, 130.0), (6.6, 100.0)), keys=400),
        (MachineRegion(cost_s=0.025, key=0, selectivity=1.5, bounds=Bounds(1, 8), policy=DefaultPolicy, queue=8),),
        HOST,
        period_s=1.0,
    ),
}


def main(arguments: list[str]) -> dict:
    """Print what was found; return the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks simulator")
    parser.add_argument("--quick", action="store_true", help="a tenth of the tuples, real runs of 14 s")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    figure: dict = {}
    found, planted_bugs = planted_bugs_found(options.seed)
    figure |= swarm_speed(options.seed)
    errors = compare_with_real(14.0 if options.quick else 25.0)
    figure["planted_bugs"] = planted_bugs
    figure["planted_bugs_found"] = found
    figure["sim_vs_real_error"] = round(max(max(pair) for pair in errors.values()), 3)
    figure["sim_vs_real"] = {name: [round(one, 3) for one in pair] for name, pair in errors.items()}
    tuples = 100_000 if options.quick else 1_000_000
    figure["seconds_100_channels"] = hundred_channels(tuples)
    if options.quick:
        figure["seconds_100_channels_extrapolated_from"] = tuples
    return report_of_figures() | figure


def planted_bugs_found(seed: int) -> tuple[int, int]:
    """Plant one bug after the other; count those that the swarm finds within a minute."""
    found: defaultdict[str, int] = defaultdict(int)
    print("planted bugs")
    for bug in BUGS:
        started = time.process_time()
        worlds = 0
        complaints: list[str] = []
        with planted(bug):
            while not complaints and time.process_time() - started < SECONDS_PER_BUG:
                complaints = failures(random_world(seed * 1_000_000 + worlds))
                worlds += 1
        spent = time.process_time() - started
        result = f"{kind_of(complaints[0])}" if complaints else "NOT FOUND"
        found[bug.component] += bool(complaints)
        print(f"  {bug.component:13}{bug.what:48}{worlds:5} worlds {spent:6.2f} s   {result}", flush=True)
    return sum(found.values()), len(BUGS)


def swarm_speed(seed: int) -> dict:
    """Worlds per minute of CPU, without a bug; and whether all are right."""
    started = time.process_time()
    worlds, failed = 0, 0
    while time.process_time() - started < 15:
        failed += bool(failures(random_world(seed * 1_000_000 + 500_000 + worlds)))
        worlds += 1
    rate = worlds / (time.process_time() - started) * 60
    print(f"swarm without a bug: {worlds} worlds, {rate:,.0f} per minute of CPU, {failed} failed")
    return {"worlds_per_cpu_minute": round(rate), "worlds_failed": failed}


def compare_with_real(seconds: float) -> dict[str, tuple[float, float]]:
    """Relative differences of throughput and settling, by workload."""
    errors = {}
    print(f"simulated and real, {seconds:.0f} s each: tuples per second; seconds until the channels were final")
    for name, workload in WORKLOADS.items():
        real = RealRegion(workload).run(seconds)
        # A sleep takes longer than it should on a busy machine: the simulator is told what a tuple did cost.
        (region,) = workload.regions
        simulated = World(replace(workload, regions=(replace(region, cost_s=real.cost_s),))).run(seconds)
        assert real.output == sequential(workload, real.stream).delivered, "the real threads got the output wrong"
        errors[name] = differences(real, simulated)
        steps = [1, *(one.channels_after[0] for one in simulated.migrations)]
        print(f"  {name}: {real.cost_s * 1e3:.1f} ms a tuple; channels {[n for _, n in real.channels]} and {steps}")
        print(f"    real      {real.throughput:7.1f}/s  settled after {real.settled_s:6.2f} s")
        print(f"    simulated {simulated.throughput:7.1f}/s  settled after {settled_s(simulated):6.2f} s")
        print("    differ by {:.1%} and {:.1%}".format(*errors[name]), flush=True)
    return errors


def differences(real: Measured, simulated: Result) -> tuple[float, float]:
    throughput = abs(real.throughput - simulated.throughput) / real.throughput
    settled = abs(real.settled_s - settled_s(simulated)) / max(real.settled_s, 1e-9)
    return throughput, settled


def settled_s(result: Result) -> float:
    return result.migrations[-1].resumed_s if result.migrations else 0.0


def hundred_channels(tuples: int) -> float:
    """CPU seconds for 100 channels (it is one thread); for a million tuples, if fewer were run."""
    world = WorldDescription(
        MachineSource(tuples=tuples, keys=100_000),
        (MachineRegion(cost_s=1e-3, key=0, channels=100),),
        Cluster(hosts=tuple(Host(cores=8) for _ in range(14)), delay_s=1e-4),
    )
    started, clock = time.process_time(), time.perf_counter()
    result = World(world).run()
    spent = (time.process_time() - started) * 1_000_000 / tuples
    passed = (time.perf_counter() - clock) * 1_000_000 / tuples
    print(
        f"100 channels on 14 hosts, {tuples:,} tuples: {spent:.1f} s of CPU per million tuples, {passed:.1f} s on the "
        f"clock of a shared machine; throughput {result.throughput * 1e-3:.1f} times one channel"
    )
    return round(spent, 1)


def report_of_figures() -> dict:
    """What the report of the experiments counted, if there is one."""
    if not REPORT.exists():
        return {}
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    return {key: report[key] for key in ("figures", "met_or_better") if key in report}
