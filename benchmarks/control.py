"""Controllers in trouble: families of fluid traces, ours against the paper's controller.

    python -m benchmarks control            20 seeds for every family
    python -m benchmarks control --quick    3 seeds

Handled is what was handled over what the best number of channels of each moment would have handled. Seeds below 1000
are for tuning, those reported begin at 1000 (`--seed`).
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.paper_policy import PaperPolicy
from anabranch.papers.fluid.traces import BOUNDS, Outcome, Trace, families, follow

EXCEPTIONS = {
    "busy never above 70 %": "congestion without business looks like a slow sink, for which channels would be of no "
    "use: it takes 50 periods until more are tried all the same",
}
OSCILLATING = 4  # direction changes in a steady state: more than a retry of a ceiling


def main(arguments: list[str]) -> dict:
    """Print a line per family; return the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks control")
    parser.add_argument("--quick", action="store_true", help="3 seeds instead of 20")
    parser.add_argument("--mini", action="store_true", help="one seed of a few families, to see that it runs")
    parser.add_argument("--seed", type=int, default=1000, help="the first of the seeds (%(default)s)")
    parser.add_argument("--only", default="", help="families whose name contains this")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + (1 if options.mini else 3 if options.quick else 20))
    started = time.perf_counter()
    print("family                                handled  worst  paper  ratio  steady rev.  channels")
    chosen = [trace for trace in families() if options.only in trace.name]
    chosen = chosen[::12] if options.mini else chosen
    rows = {trace.name: _row(trace, seeds) for trace in chosen}
    judged = [row for name, row in rows.items() if name not in EXCEPTIONS]
    for name in rows.keys() & EXCEPTIONS.keys():
        print(f"left out of worst_vs_paper: {name}, because {EXCEPTIONS[name]}")
    steady = [row["steady"] for row in rows.values() if row["steady"] is not None]
    print(f"\n{len(rows)} families × {len(seeds)} seeds in {time.perf_counter() - started:.0f} s")
    return {
        "traces": len(rows) * len(seeds),
        "worst_vs_paper": round(min(row["ratio"] for row in judged), 3),
        "worst_run_vs_paper": round(min(row["ratio_worst"] for row in judged), 3),
        "worst_handled_steady": round(min(steady, default=1.0), 3),
        "oscillating": sum(row["oscillates"] for row in rows.values()),
    }


def _row(trace: Trace, seeds: range) -> dict:
    # Without noise every seed is the same run.
    used = seeds if trace.noise else seeds[:1]
    ours = [follow(DefaultPolicy(BOUNDS), trace, seed) for seed in used]
    papers = [follow(PaperPolicy(BOUNDS), trace, seed) for seed in used]
    ratios = [mine.handled / max(theirs.handled, 1e-9) for mine, theirs in zip(ours, papers, strict=True)]
    steady = [one.handled_steady for one in ours if one.handled_steady is not None]
    reversals = max((one.reversals_steady or 0 for one in ours), default=0)
    print(
        f"{trace.name:36s} {median(_handled(ours)):8.1%} {min(_handled(ours)):6.1%} {median(_handled(papers)):6.1%} "
        f"{median(ratios):6.3f} {f'{min(steady):.1%}' if steady else '–':>7s} {reversals:4d}  {_shape(ours[0])}",
        flush=True,
    )
    return {
        "ratio": median(ratios),
        "ratio_worst": min(ratios),
        "steady": min(steady, default=None),
        "oscillates": bool(steady) and reversals > OSCILLATING,
    }


def _handled(outcomes: list[Outcome]) -> list[float]:
    return [one.handled for one in outcomes]


def _shape(outcome: Outcome) -> str:
    """The first numbers of channels, without repetitions."""
    shown = [outcome.channels[0]]
    for n in outcome.channels:
        if n != shown[-1]:
            shown.append(n)
    return " ".join(map(str, shown[:14])) + (" …" if len(shown) > 14 else "")
