"""*Partitioning*, Figure 14: construction time by skew."""

from __future__ import annotations

from benchmarks._partitioning_world import Setting
from experiments._partitioning import seeds_of, sweep
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import at_most, holds

CONSTRUCTIONS = ("scan", "redist", "readj")
TIMED = ("consistent", *CONSTRUCTIONS, "ours")


def run(quick: bool) -> Reproduction:
    skews = (0.1, 0.5, 0.8, 1.0) if quick else tuple(round(0.1 * i, 1) for i in range(1, 11))
    found = sweep((Setting("LCL", skew=skew) for skew in skews), TIMED, seeds_of(quick))
    times = {name: [one.milliseconds for one in line] for name, line in found.items()}
    calm = [i for i, skew in enumerate(skews) if skew <= 0.5]
    middle = skews.index(0.8)
    rises = {name: times[name][-1] / times[name][middle] for name in CONSTRUCTIONS}
    statements = (
        at_most(
            "scan: mostly insensitive to skew: milliseconds between the fastest and the slowest",
            5,
            max(times["scan"]) - min(times["scan"]),
        ),
        at_most(
            "redist and readj: flat for low skew (until 0.5): slowest / fastest",
            2,
            max(max(times[n][i] for i in calm) / min(times[n][i] for i in calm) for n in ("redist", "readj")),
        ),
        holds(
            "redist and readj: growing beyond z = 0.8",
            rises["redist"] > 1 and rises["readj"] > 1,
            ", ".join(f"{name} × {rises[name]:.2f} from 0.8 to 1" for name in ("redist", "readj")),
        ),
        holds(
            "the increase is faster for readj than for redist",
            rises["readj"] > rises["redist"],
            ", ".join(f"{name} × {rises[name]:.2f}" for name in ("redist", "readj")),
        ),
    )
    return Reproduction(
        "impact of skew on construction time",
        "LCL, N = 10, |D| = 10⁶, σ = 0.1; CPU time, median over the seeds",
        statements,
        (
            Table.of(
                "milliseconds",
                ("z", *TIMED),
                [(f"{skew:g}", *(times[name][i] for name in TIMED)) for i, skew in enumerate(skews)],
            ),
        ),
        (
            Panel(
                "construction time",
                "skew z",
                "milliseconds",
                {name: Line(skews, times[name]) for name in TIMED},
                y_log=True,
            ),
        ),
    )
