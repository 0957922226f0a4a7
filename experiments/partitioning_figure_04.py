"""*Partitioning*, Figure 4: migration and imbalance by skew."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks._partitioning_world import Setting
from experiments._partitioning import (
    APPROACHES,
    CONSTRUCTIONS,
    PAPERS,
    SEEDS_DIFFER,
    Sweep,
    both_panels,
    both_table,
    seeds_of,
    sweep,
)
from experiments.reproduction import Reproduction
from experiments.statements import at_least, at_most, holds, near, surpasses


def run(quick: bool) -> Reproduction:
    seeds = seeds_of(quick)
    skews = (0.1, 0.5, 0.8, 1.0) if quick else tuple(round(0.1 * i, 1) for i in range(1, 11))
    quadratic_skews = (0.25, 0.5) if quick else (0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    grid = {"LCL": skews, "LLL": skews, "LQL": quadratic_skews}
    found = {
        letters: sweep((Setting(letters, skew=skew) for skew in some), APPROACHES, seeds)
        for letters, some in grid.items()
    }
    linear = (found["LCL"], found["LLL"])
    first = {
        letters: {name: _first_violation(line, grid[letters], name) for name in APPROACHES}
        for letters, line in found.items()
    }
    calm = max(
        line[name][i].migration
        for line in linear
        for name in CONSTRUCTIONS
        for i, skew in enumerate(skews)
        if skew <= 0.8
    )
    steep = min(line[name][-1].migration for line in linear for name in CONSTRUCTIONS)
    lll = {name: found["LLL"][name][-1] for name in APPROACHES}
    tail = lll["readj_tail"]
    lql = {name: found["LQL"][name][-1].imbalance for name in APPROACHES}
    statements = (
        at_least(
            "uniform hash: more than 8 times the ideal migration", 8, max(s.migration for s in found["LLL"]["uniform"])
        ),
        at_most("other approaches have close to ideal migration, up to z = 0.8", 1.1, calm),
        holds(
            "migration of the constructions starts to increase after z = 0.8",
            steep > calm,
            f"≤ {calm:.2f} until 0.8, ≥ {steep:.2f} at 1",
        ),
        holds(
            "of these, scan has the worst migration at z = 1, readj and redist follow",
            lll["scan"].migration >= lll["readj_tail"].migration >= lll["redist"].migration,
            ", ".join(f"{name} {lll[name].migration:.2f}" for name in CONSTRUCTIONS),
            because=SEEDS_DIFFER,
        ),
        holds(
            "consistent hash is the first to violate the balance requirement",
            all(first[x]["consistent"] <= min(first[x][name] for name in PAPERS) for x in grid),
            ", ".join(f"{x} z = {first[x]['consistent']:g}" for x in grid),
        ),
        near(
            "consistent up to 50 % above the best alternative (readj; LLL, z = 1)",
            1.5,
            lll["consistent"].imbalance / tail.imbalance,
        ),
        holds(
            "violations start earliest for LQL, latest for LCL",
            first["LQL"]["consistent"] < first["LLL"]["consistent"] <= first["LCL"]["consistent"],
            ", ".join(f"{x} z = {first[x]['consistent']:g}" for x in ("LQL", "LLL", "LCL")),
        ),
        holds(
            "for very low skews all approaches are below the ideal line, uniform hash the best of the paper's",
            all(line[name][0].imbalance <= 1 for line in linear for name in PAPERS)
            and all(line["uniform"][0].imbalance == min(line[name][0].imbalance for name in PAPERS) for line in linear),
            ", ".join(f"{name} {found['LLL'][name][0].imbalance:.2f}" for name in PAPERS),
        ),
        near(
            "readj up to 8 % below redist and scan (LLL, z = 1): ratio",
            0.92,
            tail.imbalance / lll["redist"].imbalance,
            within=0.05,
        ),
        at_most(
            "LQL: all constructions close, readj slightly higher (1–2 %): spread",
            1.05,
            max(lql[n] for n in CONSTRUCTIONS) / min(lql[n] for n in CONSTRUCTIONS),
        ),
        surpasses(
            "the requirement is violated before z = 1 by every approach (ours: worst over all skews, LCL and LLL)",
            all(one.imbalance <= 1 for line in linear for one in line["ours"]),
            f"{max(one.imbalance for line in linear for one in line['ours']):.2f}",
            paper="> 1",
        ),
    )
    axis = "skew z"
    return Reproduction(
        "impact of skew on migration and balance",
        f"N = 10, |D| = 10⁶, σ = 0.1, {seeds} seeds",
        statements,
        tuple(both_table(x, "z", grid[x], found[x]) for x in grid),
        tuple(panel for x in grid for panel in both_panels(x, axis, grid[x], found[x])),
    )


def _first_violation(found: Sweep, skews: Sequence[float], name: str) -> float:
    return next((skew for skew, one in zip(skews, found[name], strict=True) if one.imbalance > 1), 9.9)
