"""*Partitioning*, Figure 8: imbalance and migration by the size of the domain."""

from __future__ import annotations

from itertools import pairwise

from benchmarks._partitioning_world import Setting
from experiments._partitioning import APPROACHES, CONSTRUCTIONS, PAPERS, SEEDS_DIFFER, both_panels, both_table, point
from experiments.reproduction import Reproduction
from experiments.statements import at_most, holds, near, surpasses

SEEDS_LARGE = 2
"""For 10⁷ keys; one seed takes seconds per approach."""


def run(quick: bool) -> Reproduction:
    seeds = 3 if quick else 10
    domains = (10**4, 10**5, 10**6) if quick else (10**4, 10**5, 10**6, 10**7)
    found = {
        name: [point(Setting("LCL", domain=d), name, seeds if d < 10**7 else SEEDS_LARGE) for d in domains]
        for name in APPROACHES
    }
    uniform = [one.migration for one in found["uniform"]]
    moved = [[found[name][i].migration for name in CONSTRUCTIONS] for i in range(len(domains))]
    balance = {name: [one.imbalance for one in found[name]] for name in APPROACHES}
    steps = {name: [a - b for a, b in pairwise(balance[name])] for name in CONSTRUCTIONS}
    statements = (
        holds(
            "the constructions balance better than uniform and consistent, consistent worst",
            all(
                max(balance[name][i] for name in CONSTRUCTIONS) < balance["uniform"][i] < balance["consistent"][i]
                for i in range(len(domains))
            ),
            ", ".join(f"{name} {balance[name][-1]:.2f}" for name in PAPERS) + " (largest domain)",
        ),
        at_most(
            "the three constructions are similar, redist up to 3 % above readj: largest ratio",
            1.05,
            max(balance["redist"][i] / balance["readj_tail"][i] for i in range(len(domains))),
        ),
        holds(
            "with a larger domain it is easier to balance, flattening",
            all(steps[name][0] > steps[name][-1] > 0 for name in CONSTRUCTIONS),
            ", ".join(f"{name} {' → '.join(f'{value:.2f}' for value in balance[name])}" for name in CONSTRUCTIONS),
        ),
        surpasses(
            "none is able to reach the ideal balance at z = 1 (ours: worst over the domains)",
            max(balance["ours"]) <= 1,
            f"{max(balance['ours']):.2f}",
            paper="> 1",
        ),
        near("uniform: migration from 6.5 …", 6.5, uniform[0], within=0.05),
        near("… to 7.5 times the ideal, worse with larger domains", 7.5, uniform[-1], within=0.05),
        at_most(
            "consistent: migration below the ideal (mean over the domains)",
            1.0,
            _mean(found["consistent"]),
            because=SEEDS_DIFFER,
        ),
        holds(
            "the constructions: migration between 2.2 and 1.25, falling with the domain",
            sum(moved[-1]) < sum(moved[0]) and max(map(max, moved)) <= 2.2 * 1.15,
            ", ".join(f"10^{len(str(d)) - 1}: {min(m):.2f}–{max(m):.2f}" for d, m in zip(domains, moved, strict=True)),
        ),
        holds(
            "redist the lowest migration of them, scan the highest (mean over the domains)",
            _mean(found["redist"]) <= min(_mean(found["readj_tail"]), _mean(found["scan"]) + 0.01),
            ", ".join(f"{name} {_mean(found[name]):.2f}" for name in CONSTRUCTIONS),
        ),
    )
    return Reproduction(
        "impact of the domain size",
        f"LCL, z = 1, N = 10, σ = 0.1, {seeds} seeds ({SEEDS_LARGE} for 10⁷ keys)",
        statements,
        (both_table("LCL", "domain", domains, found),),
        tuple(both_panels("LCL", "keys in the domain", domains, found, x_log=True)),
    )


def _mean(line) -> float:
    return sum(one.migration for one in line) / len(line)
