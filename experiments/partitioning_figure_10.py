"""*Partitioning*, Figure 10: counters and explicit keys by skew."""

from __future__ import annotations

from itertools import pairwise

from benchmarks._partitioning_world import Setting
from experiments._partitioning import sizes
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import at_most, holds


def run(quick: bool) -> Reproduction:
    skews = (0.5, 0.8, 1.0) if quick else (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    quadratic = (0.25, 0.5) if quick else (0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    grid = {"LCL": skews, "LLL": skews, "LQL": quadratic}
    found = {letters: [sizes(Setting(letters, skew=skew)) for skew in some] for letters, some in grid.items()}
    counters = [c for c, _ in found["LCL"]]
    explicit = [e for _, e in found["LCL"]]
    rises = [later - earlier for earlier, later in pairwise(explicit)]
    statements = (
        at_most(
            "counters stay mostly flat over the skew (LCL): largest / smallest",
            1.6,
            max(counters) / min(counters),
        ),
        holds(
            "and are slightly fewer for very high skew",
            counters[-1] < max(counters),
            " → ".join(f"{value:.0f}" for value in counters),
        ),
        holds(
            "explicit keys grow at an increasing rate",
            rises[-1] == max(rises) and explicit[-1] == max(explicit),
            " → ".join(str(value) for value in explicit),
        ),
        holds(
            "the lines of LCL and LLL overlap",
            found["LCL"] == found["LLL"],
            "equal" if found["LCL"] == found["LLL"] else "not equal",
        ),
    )
    return Reproduction(
        "impact of skew on the size of the function",
        "N = 10, |D| = 10⁶, σ = 0.1; a lossy counter over 10⁶ random rows, mean size along the way",
        statements,
        tuple(
            Table.of(
                x,
                ("z", "counters", "explicit keys"),
                [(f"{z:g}", round(c), e) for z, (c, e) in zip(grid[x], found[x], strict=True)],
            )
            for x in ("LCL", "LQL")
        ),
        (
            Panel(
                "counters (lines) and explicit keys (dashed)",
                "skew z",
                "counters",
                {
                    **{f"{x} counters": Line(grid[x], [c for c, _ in found[x]]) for x in found},
                    **{f"{x} explicit": Line(grid[x], [e for _, e in found[x]], True, right=True) for x in found},
                },
                y_log=True,
                y_right="explicit keys",
            ),
        ),
    )
