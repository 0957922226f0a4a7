"""Controllers in trouble: families of fluid traces and of simulated worlds, ours against the paper's controller.

    python -m benchmarks control            20 seeds for every family, 3 for the simulator's
    python -m benchmarks control --quick    3 seeds, 1 for the simulator's

Handled is what was handled over what the best number of channels of each moment would have handled. Seeds below 1000
are for tuning, those reported begin at 1000 (`--seed`). Families without noise of their own have 1 %, so that seeds
differ. `together` are the families of compound_traces.py, which were written when the controller was done, and are
reported apart, as are the families of EXCEPTED. The simulator's worlds (`_control_simulated.py`) run the product's
own driver loop.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from anabranch.control.bounds import Bounds
from anabranch.control.controller import Policy
from anabranch.control.elastic_options import ElasticOptions
from anabranch.papers.fluid.compound_traces import families_together
from anabranch.papers.fluid.shared_hosts import SharedHost, follow_shared, shared_hosts
from anabranch.papers.fluid.traces import BOUNDS, Outcome, Trace, families, follow
from benchmarks import _control_simulated as simulated

NOISE_LEAST = 0.01
# Changes of direction after settling, 340 periods. What does not pay is tried again after 100 periods, and after 200
# more: up and down, and up and down again, are three. Whatever does more than that oscillates.
REVERSALS_MAX = 3
EXCEPTED = {
    "two regions, no room, four channels a core": "the user allows four times as many channels as there are cores, and "
    "each of two regions gains by what costs both; which of them stops first is chance, and no measurement of its own "
    "tells a region so",
}
"""Families that have a steady state only if regions are coordinated, which they are not: reported apart."""


def main(arguments: list[str]) -> dict:
    """Print a line per family; return the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks control")
    parser.add_argument("--quick", action="store_true", help="3 seeds instead of 20, 1 instead of 3 in the simulator")
    parser.add_argument("--mini", action="store_true", help="one seed of a few families, to see that it runs")
    parser.add_argument("--seed", type=int, default=1000, help="the first of the seeds (%(default)s)")
    parser.add_argument("--only", default="", help="families whose name contains this")
    options = parser.parse_args(arguments)
    seeds = range(options.seed, options.seed + (1 if options.mini else 3 if options.quick else 20))
    started = time.perf_counter()
    print("family                                handled  worst  paper  ratio  steady rev.  channels")
    everything: list[Trace | SharedHost] = [*families(), *shared_hosts()]
    chosen = [family for family in everything if options.only in family.name]
    chosen = chosen[::12] if options.mini else chosen
    rows = [_row(family, seeds) for family in chosen]
    together = [
        _row(family, seeds)
        for family in families_together()[:: 12 if options.mini else 1]
        if options.only in family.name
    ]
    print(f"\n{len(rows)} + {len(together)} families × {len(seeds)} seeds in {time.perf_counter() - started:.0f} s")
    names = [name for name in simulated.FAMILIES if options.only in name]
    for name in (row["name"] for row in rows if row["name"] in EXCEPTED):
        print(f"reported apart: {name}, because {EXCEPTED[name]}")
    return {
        **_worst([row for row in rows if row["name"] not in EXCEPTED], seeds),
        "excepted": _worst([row for row in rows if row["name"] in EXCEPTED], seeds),
        "together": _worst(together, seeds),
        "simulated": _simulated(names[:1] if options.mini else names, seeds[: 1 if options.quick else 3], options.mini),
    }


def _worst(rows: list[dict], seeds: range) -> dict:
    """The figure of some families."""
    return {
        "traces": len(rows) * len(seeds),
        "worst_vs_paper": round(min((row["ratio"] for row in rows), default=1.0), 3),
        "worst_run_vs_paper": round(min((row["ratio_worst"] for row in rows), default=1.0), 3),
        "worst_handled_steady": round(
            min((row["steady"] for row in rows if row["steady"] is not None), default=1.0), 3
        ),
        "reversals_most": max((row["reversals"] for row in rows), default=0),
        "oscillating": sum(row["reversals"] > REVERSALS_MAX for row in rows),
    }


def _ours(bounds: Bounds = BOUNDS) -> Policy:
    return ElasticOptions().make_policy(bounds)


def _papers(bounds: Bounds = BOUNDS) -> Policy:
    return ElasticOptions(policy="paper").make_policy(bounds)


def _followed(make: Callable[..., Policy], family: Trace | SharedHost, seed: int) -> Outcome:
    if isinstance(family, SharedHost):
        return follow_shared(make, family, seed)
    return follow(make(), replace(family, noise=family.noise or NOISE_LEAST), seed)


def _row(family: Trace | SharedHost, seeds: range) -> dict:
    ours = [_followed(_ours, family, seed) for seed in seeds]
    papers = [_followed(_papers, family, seed) for seed in seeds]
    ratios = [mine.handled / max(theirs.handled, 1e-9) for mine, theirs in zip(ours, papers, strict=True)]
    steady = [one.handled_steady for one in ours if one.handled_steady is not None]
    reversals = max((one.reversals_steady or 0 for one in ours), default=0)
    print(
        f"{family.name:36s} {median(_handled(ours)):8.1%} {min(_handled(ours)):6.1%} {median(_handled(papers)):6.1%} "
        f"{median(ratios):6.3f} {f'{min(steady):.1%}' if steady else '–':>7s} {reversals:4d}  {_shape(ours[0])}",
        flush=True,
    )
    return {
        "name": family.name,
        "ratio": median(ratios),
        "ratio_worst": min(ratios),
        "steady": min(steady, default=None),
        "reversals": reversals,
    }


def _simulated(names: list[str], seeds: range, mini: bool) -> dict:
    """The product's simulator: rows committed under our controller over those under the paper's."""
    started = time.perf_counter()
    medians, every = [], []
    for name in names:
        seconds = 20.0 if mini else simulated.seconds_of(name)
        ratios = []
        for seed in seeds:
            ours, papers = (simulated.run(name, policy, seed, seconds) for policy in ("default", "paper"))
            ratios.append(ours.rows_in / max(papers.rows_in, 1))
        medians.append(median(ratios))
        every += ratios
        settled = [ours.settled(region) for region in ours.regions]
        print(f"simulated: {name:25s} ratio {median(ratios):6.3f}, worst {min(ratios):6.3f}, settled at {settled}")
    print(f"{len(every)} simulated worlds, twice each, in {time.perf_counter() - started:.0f} s")
    return {
        "runs": len(every),
        "worst_vs_paper": round(min(medians, default=1.0), 3),
        "worst_run_vs_paper": round(min(every, default=1.0), 3),
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
