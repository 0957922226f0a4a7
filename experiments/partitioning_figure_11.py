"""*Partitioning*, Figure 11: counters and explicit keys by the number of channels."""

from __future__ import annotations

import numpy as np

from benchmarks._partitioning_world import Setting
from experiments._partitioning import sizes
from experiments.reproduction import Line, Panel, Reproduction, Table
from experiments.statements import at_least


def run(quick: bool) -> Reproduction:
    counts = (2, 8, 16, 32) if quick else (2, 4, 8, 12, 16, 20, 24, 28, 32)
    found = [sizes(Setting("LCL", channels=n)) for n in counts]
    counters, explicit = [c for c, _ in found], [e for _, e in found]
    statements = (
        at_least(
            "counters grow linearly with the number of channels: correlation", 0.97, _correlation(counts, counters)
        ),
        at_least(
            "explicit keys grow linearly with the number of channels: correlation", 0.97, _correlation(counts, explicit)
        ),
    )
    return Reproduction(
        "impact of the number of channels on the size of the function",
        "LCL, z = 1, |D| = 10⁶, σ = 0.1; a lossy counter over 10⁶ random rows, mean size along the way",
        statements,
        (
            Table.of(
                "LCL",
                ("N", "counters", "explicit keys"),
                [(n, round(c), e) for n, (c, e) in zip(counts, found, strict=True)],
            ),
        ),
        (
            Panel(
                "LCL",
                "channels N",
                "counters",
                {"counters": Line(counts, counters), "explicit keys": Line(counts, explicit, True, right=True)},
                y_right="explicit keys",
            ),
        ),
    )


def _correlation(xs, ys) -> float:
    return float(np.corrcoef(xs, ys)[0, 1])
