"""*Partitioning*, Figure 13: construction time by the number of channels."""

from __future__ import annotations

import math

from benchmarks._partitioning_world import Setting
from experiments._partitioning import measure, seeds_of
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import at_most, holds

CONSTRUCTIONS = ("scan", "redist", "readj")
TIMED = ("consistent", *CONSTRUCTIONS, "ours")


def run(quick: bool) -> Reproduction:
    counts = (2, 4, 10, 16, 20, 32) if quick else (2, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32)
    setting = Setting("LCL", channels=max(counts))
    found = {name: measure(setting, name, seeds_of(quick), counts) for name in TIMED}
    times = {name: [found[name][n].milliseconds for n in counts] for name in TIMED}
    base = counts.index(4)
    powers = {
        name: math.log(times[name][-1] / times[name][base]) / math.log(counts[-1] / counts[base]) for name in TIMED
    }
    statements = (
        holds(
            "scan is the cheapest, then redist, then readj (N = 32)",
            times["scan"][-1] < times["redist"][-1] < times["readj"][-1],
            ", ".join(f"{name} {times[name][-1]:.1f} ms" for name in CONSTRUCTIONS),
        ),
        holds(
            "all are super-linear in N: power of N between 4 and 32",
            all(powers[name] > 1 for name in CONSTRUCTIONS),
            ", ".join(f"{name} {powers[name]:.2f}" for name in CONSTRUCTIONS),
            because="the fixed cost of numpy calls is a large part of the time at these sizes (not measured apart)",
        ),
        holds(
            "the rate of increase is higher for redist and readj than for scan",
            powers["redist"] > powers["scan"] and powers["readj"] > powers["scan"],
            ", ".join(f"{name} {powers[name]:.2f}" for name in CONSTRUCTIONS),
        ),
        at_most(
            "scan: explicit hash about as costly as the consistent hash (N = 32): ratio of the whole to the latter",
            4,
            times["scan"][-1] / times["consistent"][-1],
            because="the ring's points are computed vectorised, 1000 at a time, scan's keys one by one",
        ),
    )
    return Reproduction(
        "impact of the number of channels on construction time",
        "LCL, z = 1, |D| = 10⁶, σ = 0.1, 1000 replicas; CPU time, median over the seeds",
        statements,
        (
            Table.of(
                "milliseconds", ("N", *TIMED), [(n, *(found[name][n].milliseconds for name in TIMED)) for n in counts]
            ),
        ),
        (
            Panel(
                "construction time",
                "channels N",
                "milliseconds",
                {name: Line(counts, times[name]) for name in TIMED},
                y_log=True,
            ),
        ),
    )
