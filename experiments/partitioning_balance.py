"""How balanced, and what moves: *Partitioning*, Figures 3 to 5, by resource functions, skew and σ."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.partitioning_world import (
    APPROACHES,
    CONSTRUCTIONS,
    LETTERS,
    PAPERS,
    SEEDS_DIFFER,
    Setting,
    Sweep,
    both_panels,
    both_table,
    point,
    ratios,
    seeds_of,
    sweep,
)
from experiments.reproduction import Figures, Line, Panel, Reproduction, Table
from experiments.statements import at_least, at_most, close, compares, holds, surpasses

UNIFORM = "rank mod N has no chance in it: it is 1.51 for every seed, so there is no spread to allow for"
NAMES = ("uniform", "consistent", "scan", "redist", "readj", "readj_tail", "ours")


def figure_03(quick: bool) -> Reproduction:
    """*Partitioning*, Figure 3: migration and imbalance under four combinations of resource functions."""
    seeds = 2 if quick else 20
    found = {(letters, name): point(Setting(letters), name, seeds) for letters in LETTERS for name in NAMES}
    lll = {name: found["LLL", name] for name in NAMES}
    lql_computation = {name: found["LQL", name].per_resource[1] for name in NAMES}
    others = [name for name in PAPERS if name != "consistent"]
    statements = (
        at_least(
            "uniform hash: migration up to more than 8 times the ideal",
            8,
            max(found[x, "uniform"].migration for x in LETTERS),
        ),
        holds(
            "consistent hash has the best migration, below 1 in some cases",
            all(found[x, "consistent"].migration <= found[x, name].migration + 0.05 for x in LETTERS for name in others)
            and min(found[x, "consistent"].migration for x in LETTERS) < 1,
            ", ".join(f"{x} {found[x, 'consistent'].migration:.2f}" for x in LETTERS),
        ),
        holds(
            "consistent hash has the worst balance",
            all(
                found[x, "consistent"].imbalance > found[x, name].imbalance
                for x in LETTERS
                for name in (*others, "ours")
            ),
            ", ".join(f"{x} {found[x, 'consistent'].imbalance:.2f}" for x in LETTERS),
        ),
        close("consistent, LLL: imbalance", 1.75, lll["consistent"].imbalances),
        close("uniform, LLL: imbalance", 1.55, lll["uniform"].imbalances, because=UNIFORM),
        close("redist, LLL: imbalance", 1.32, lll["redist"].imbalances),
        close("scan, LLL: imbalance", 1.32, lll["scan"].imbalances),
        close("readj, LLL: imbalance (readj_tail: it knows the load of the tail)", 1.20, lll["readj_tail"].imbalances),
        close(
            "readj, LLL: imbalance (as printed: it sees explicit keys only)",
            1.20,
            lll["readj"].imbalances,
            because="what it does not see, the unevenness of the tail, is as large as what it puts right",
        ),
        close("redist and scan, LLL: migration", 1.23, lll["redist"].migrations, middle=True),
        close("readj, LLL: migration (readj_tail)", 1.34, lll["readj_tail"].migrations, middle=True),
        holds(
            "readj has the lowest imbalance throughout (readj_tail)",
            all(
                found[x, "readj_tail"].imbalance <= min(found[x, name].imbalance for name in PAPERS) * 1.01
                for x in LETTERS
            ),
            ", ".join(f"{x} {found[x, 'readj_tail'].imbalance:.2f}" for x in LETTERS),
            because="under LQL the product with the quadratic resource decides, and there the variants of readj and "
            "the greedy constructions come within a few per cent of each other in either order",
        ),
        at_most(
            "redist and scan are indistinguishable: difference of imbalance",
            0.05,
            max(abs(found[x, "redist"].imbalance - found[x, "scan"].imbalance) for x in LETTERS),
        ),
        holds(
            "LQL: computation imbalance of the constructions in the 30s",
            all(29 <= lql_computation[name] < 40 for name in CONSTRUCTIONS),
            ", ".join(f"{name} {lql_computation[name]:.0f}" for name in CONSTRUCTIONS),
        ),
        holds(
            "LQL: computation imbalance of uniform hash in the 30s as well",
            29 <= lql_computation["uniform"] < 40,
            f"{lql_computation['uniform']:.1f}",
            because="with rank mod N the busiest channel has ranks 1, 11, 21, … and the least busy 10, 20, …: the sums "
            "of squares are 1.0125 and 0.0164 of the first key's, which is 61.7 / 1.2 = 51 whatever the seed",
        ),
        surpasses(
            "no approach keeps the balance requirement at z = 1 (ours, LLL)",
            lll["ours"].imbalance <= 1 and lll["ours"].migration <= 1.2,
            f"{lll['ours'].imbalance:.2f} at migration {lll['ours'].migration:.2f}",
            paper="≥ 1.2",
        ),
    )
    tables = [
        Table.of(
            letters,
            ("approach", "migration", "imbalance", "state", "computation", "communication", "explicit keys"),
            [
                (
                    name,
                    found[letters, name].migration,
                    found[letters, name].imbalance,
                    *found[letters, name].per_resource,
                    found[letters, name].explicit,
                )
                for name in NAMES
            ],
        )
        for letters in LETTERS
    ]
    panels = [
        Panel(
            letters,
            "",
            "relative to ideal",
            {
                name: Line([], [found[letters, name].migration, *_four(found[letters, name])])
                for name in (*PAPERS, "readj_tail", "ours")
            },
            y_log=True,
            level=1.0,
            categories=("m", "b", "state", "comp.", "comm."),
        )
        for letters in LETTERS
    ]
    return Reproduction(
        "impact of resource functions on migration and imbalance",
        f"z = 1, N = 10, |D| = 10⁶, α = 1.2, σ = 0.1, APM, {seeds} seeds, mean imbalance, median migration; "
        f"approaches: {', '.join(APPROACHES)}, and readj with knowledge of the tail's load",
        statements,
        tuple(tables),
        tuple(panels),
    )


def _four(summary) -> tuple[float, ...]:
    return summary.imbalance, *summary.per_resource


def figure_04(quick: bool) -> Reproduction:
    """*Partitioning*, Figure 4: migration and imbalance by skew."""
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
        close(
            "consistent up to 50 % above the best alternative (readj; LLL, z = 1): ratio",
            1.5,
            ratios(lll["consistent"].imbalances, tail.imbalances),
            neutral=1.0,
        ),
        compares(
            "violations start earliest for LQL, latest for LCL",
            [
                (first["LQL"]["consistent"], "<", first["LLL"]["consistent"]),
                (first["LLL"]["consistent"], "<", first["LCL"]["consistent"]),
            ],
            ", ".join(f"{x} z = {first[x]['consistent']:g}" for x in ("LQL", "LLL", "LCL")),
        ),
        holds(
            "for very low skews all approaches are below the ideal line, uniform hash the best of the paper's",
            all(line[name][0].imbalance <= 1 for line in linear for name in PAPERS)
            and all(line["uniform"][0].imbalance == min(line[name][0].imbalance for name in PAPERS) for line in linear),
            ", ".join(f"{name} {found['LLL'][name][0].imbalance:.2f}" for name in PAPERS),
        ),
        close(
            "readj up to 8 % below redist and scan (LLL, z = 1): ratio",
            0.92,
            ratios(tail.imbalances, lll["redist"].imbalances),
            neutral=1.0,
        ),
        at_most(
            "LQL: all constructions close: spread",
            1.05,
            max(lql[n] for n in CONSTRUCTIONS) / min(lql[n] for n in CONSTRUCTIONS),
        ),
        compares(
            "LQL: readj slightly higher (1–2 %)",
            [(lql["readj_tail"], ">", max(lql["redist"], lql["scan"]))],
            ", ".join(f"{name} {lql[name]:.3f}" for name in CONSTRUCTIONS),
            because="readj knows the load of the tail here, and is the lowest",
        ),
        surpasses(
            "the requirement is violated before z = 1 by every approach (ours: worst over all skews, LLL)",
            all(one.imbalance <= 1 for one in found["LLL"]["ours"]),
            f"{max(one.imbalance for one in found['LLL']['ours']):.2f}",
            paper="> 1",
        ),
        at_most(
            "LCL, z = 1: ours over readj, with numbers of keys within their bound",
            1.05,
            found["LCL"]["ours"][-1].imbalance / found["LCL"]["readj_tail"][-1].imbalance,
            ours=True,
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


def figure_05(quick: bool) -> Reproduction:
    """*Partitioning*, Figure 5: migration and imbalance by the frequency threshold scaler σ."""
    seeds = seeds_of(quick)
    sigmas = (1.0, 0.5, 0.25, 0.1, 0.03) if quick else (1.0, 0.75, 0.5, 0.25, 0.1, 0.05, 0.025, 0.008)
    # One run of readj with LQL at σ = 0.008 takes half a minute.
    grid = {"LCL": sigmas, "LQL": tuple(sigma for sigma in sigmas if sigma >= 0.025)}
    found = {
        letters: sweep((Setting(letters, sigma=sigma) for sigma in some), APPROACHES, seeds)
        for letters, some in grid.items()
    }
    lcl, lql = found["LCL"], found["LQL"]
    default = sigmas.index(0.1)

    def gain(letters: str, first: int, last: int) -> float:
        return found[letters]["redist"][first].imbalance / found[letters]["redist"][last].imbalance

    jumps = {
        (sigmas[i + 1], sigmas[i]): lql["redist"][i].imbalance / lql["redist"][i + 1].imbalance
        for i in range(len(grid["LQL"]) - 1)
    }
    steepest = max(jumps, key=lambda pair: jumps[pair])
    lowest = {name: lcl[name][-1] for name in APPROACHES}
    statements = (
        holds(
            "lower σ brings lower imbalance (LCL, from σ = 1 to the lowest)",
            all(
                lcl[name][-1].imbalance < lcl[name][default].imbalance < lcl[name][0].imbalance
                for name in CONSTRUCTIONS
            ),
            ", ".join(f"{name} {lcl[name][0].imbalance:.2f} → {lcl[name][-1].imbalance:.2f}" for name in CONSTRUCTIONS),
        ),
        holds(
            "lower σ brings higher migration (LCL)",
            all(lcl[name][-1].migration > lcl[name][0].migration for name in CONSTRUCTIONS),
            ", ".join(f"{name} {lcl[name][0].migration:.2f} → {lcl[name][-1].migration:.2f}" for name in CONSTRUCTIONS),
        ),
        holds(
            "consistent has the best migration, uniform the worst (LCL, σ = 0.1)",
            lcl["consistent"][default].migration == min(lcl[name][default].migration for name in PAPERS)
            and lcl["uniform"][default].migration == max(lcl[name][default].migration for name in PAPERS),
            f"{lcl['consistent'][default].migration:.2f} and {lcl['uniform'][default].migration:.2f}",
        ),
        holds(
            "of the constructions redist has the lowest migration and scan the highest (LCL, lowest σ)",
            lowest["redist"].migration <= lowest["readj_tail"].migration + 0.02
            and lowest["scan"].migration >= max(lowest["redist"].migration, lowest["readj_tail"].migration) - 0.02,
            ", ".join(f"{name} {lowest[name].migration:.2f}" for name in CONSTRUCTIONS),
            because=SEEDS_DIFFER,
        ),
        at_most(
            "the three constructions have similar balance (LCL): largest ratio at any σ",
            1.15,
            max(
                max(lcl[name][i].imbalance for name in CONSTRUCTIONS)
                / min(lcl[name][i].imbalance for name in CONSTRUCTIONS)
                for i in range(len(sigmas))
            ),
            because="readj knows the load of the tail here, the other two do not; as printed it is in the table",
        ),
        holds(
            "at very low σ readj no longer has the lowest imbalance",
            lowest["readj_tail"].imbalance >= min(lowest["scan"].imbalance, lowest["redist"].imbalance),
            ", ".join(f"{name} {lowest[name].imbalance:.3f}" for name in (*CONSTRUCTIONS, "readj")),
            because="readj knows the load of the tail here; as printed it has the last of these numbers",
        ),
        holds(
            "LQL: a significant jump of the imbalance around [0.25, 0.5]",
            steepest[0] >= 0.25 and steepest[1] <= 0.5,
            f"the steepest step is between {steepest[0]:g} and {steepest[1]:g}: × {jumps[steepest]:.2f}",
        ),
        holds(
            "LQL: below that, lower σ improves less than for LCL (σ from 0.25 on)",
            gain("LQL", sigmas.index(0.25), -1) < gain("LCL", sigmas.index(0.25), -1) * 1.05,
            f"LQL ÷ {gain('LQL', sigmas.index(0.25), -1):.2f}, LCL ÷ {gain('LCL', sigmas.index(0.25), -1):.2f}",
        ),
    )
    return Reproduction(
        "impact of the frequency threshold scaler σ",
        f"z = 1, N = 10, |D| = 10⁶, {seeds} seeds (3 below σ = 0.03, where readj takes seconds per step)",
        statements,
        tuple(both_table(x, "σ", grid[x], found[x]) for x in found),
        tuple(panel for x in found for panel in both_panels(x, "σ", grid[x], found[x], x_log=True)),
    )


FIGURES: Figures = {
    "partitioning_figure_03": figure_03,
    "partitioning_figure_04": figure_04,
    "partitioning_figure_05": figure_05,
}
