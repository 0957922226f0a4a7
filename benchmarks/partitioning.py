"""
Partitioning functions under skew: Figures 3 to 14 of the *Partitioning* paper, and our own construction.

    python -m benchmarks partitioning            20 seeds for the LLL row, 5 for the sweeps (`experiments/`)
    python -m benchmarks partitioning --quick    5 seeds, coarser grids and one seed for the sweeps

Imbalance is the mean over the seeds, migration the median (its deviation is 0.4). Constructions of the LLL
row see what a lossy counter reports of a million random rows; those of the sweeps see exact frequencies.
What is measured is always the true distribution.

`eq11` compares ours with readj (told the tail's load) by Equation 11, constant resources included, on seeds that
nothing was tuned with (`--seed`: the first of them).
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.partitioning.counting.sliding_counter import SlidingCounter
from anabranch.partitioning.placing.readj import readj
from anabranch.partitioning.ring import Ring, RingHashes
from benchmarks import skew
from experiments.partitioning_balance import FIGURES as BALANCE
from experiments.partitioning_costs import FIGURES as COSTS
from experiments.partitioning_settings import FIGURES as SETTINGS
from experiments.partitioning_world import (
    ROWS_COUNTED,
    Keys,
    Outcome,
    Setting,
    count_rows,
    estimated,
    point,
    run_approach,
    run_constructed,
    run_hashed,
    run_ours,
    zipf,
)
from experiments.report import label_of
from experiments.reproduction import Table

Runs = dict[str, list[Outcome]]


def main(arguments: list[str]) -> dict:
    """Print the tables; return the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks partitioning")
    parser.add_argument("--quick", action="store_true", help="a coarser grid for the sweeps, 5 seeds, shorter on Spark")
    parser.add_argument("--mini", action="store_true", help="few keys and no sweeps, to see that it runs")
    parser.add_argument("--seeds", type=int, help="of the LLL row (20, or 5 of the quick form)")
    parser.add_argument("--seed", type=int, default=1000, help="the first seed of the comparison by Equation 11")
    options = parser.parse_args(arguments)
    quick, seeds = options.quick, options.seeds or (1 if options.mini else 5 if options.quick else 20)
    domain = 1_000 if options.mini else 10**6
    started = time.perf_counter()

    figure = default_row(seeds, domain)
    figure["eq11"] = equation_11(range(options.seed, options.seed + (1 if options.mini else max(seeds, 5))), domain)
    if not options.mini:
        figures(quick)
    if not quick and not options.mini:
        hundred(seeds=2)
    figure["fast_readj_speedup"], figure["pruned_readj_speedup"] = construction_speed(
        quick, domain, sigma=0.25 if options.mini else 0.008
    )
    figure["lookup_cost"] = lookup_cost(domain)
    figure["skew_gain"] = skew.skew_gain(skew.MINI if options.mini else skew.Setting(measured=3 if quick else 5))
    print(f"\nall in {time.perf_counter() - started:.0f} s")
    return figure


def summary(runs: list[Outcome]) -> tuple[float, float]:
    """Return mean relative imbalance and median relative migration."""
    return (
        float(np.mean([one.imbalance.combined for one in runs])),
        float(np.median([one.migration for one in runs])),
    )


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str | int | float]]) -> None:
    """Print an aligned table."""
    print(f"\n{Table.of(title, head, rows)}", flush=True)


def default_row(seeds: int, domain: int) -> dict:
    """The LLL row at the defaults, with counted frequencies, and the sizes."""
    setting = Setting(domain=domain)
    truth = zipf(setting.domain, setting.skew)
    at = [setting.channels]
    runs: Runs = defaultdict(list)
    counters = []
    for seed in range(seeds):
        keys = Keys(seed, setting.domain)
        counter, sizes = count_rows(keys, setting, min(ROWS_COUNTED, domain))
        counters.append(float(np.mean(sizes)))
        seen = estimated(keys, counter)
        for name in ("uniform", "consistent"):
            runs[name].append(run_hashed(name, keys, setting, truth, at)[at[0]])
        for name in ("scan", "redist", "readj", "readj_tail"):
            runs[name].append(run_constructed(name, keys, setting, truth, at, seen)[at[0]])
        runs["ours"].append(run_ours(keys, setting, truth, at, counter)[at[0]])
    worst = {name: max(one.imbalance.combined for one in outcomes) for name, outcomes in runs.items()}
    table(
        f"LLL row: z = 1, N = 10, |D| = {domain:,}, {seeds} seeds, frequencies from a lossy counter",
        ("approach", "imbalance", "worst seed", "migration", "explicit", "ms"),
        [
            (
                name,
                *(summary(outcomes)[0], worst[name], summary(outcomes)[1]),
                float(np.mean([one.explicit for one in outcomes])),
                float(np.median([one.seconds for one in outcomes])) * 1e3,
            )
            for name, outcomes in runs.items()
        ],
    )
    return {
        "lll": {name: [round(value, 3) for value in summary(found)] for name, found in runs.items()},
        "explicit": round(float(np.mean([one.explicit for one in runs["redist"]])), 1),
        "counters": round(float(np.mean(counters))),
    }


EQUATION_11 = {"LCL": (10, 16, 32), "CCL": (10,), "LLL": (10,)}


def equation_11(seeds: range, domain: int) -> dict[str, dict[str, float]]:
    """Relative imbalance by Equation 11 and relative migration, ours and readj's, with exact frequencies."""
    truth = zipf(domain, 1.0)
    found: dict[str, dict[str, float]] = {"ours": {}, "readj": {}, "ours_migration": {}, "readj_migration": {}}
    rows = []
    for letters, at in EQUATION_11.items():
        setting = Setting(letters, channels=max(at), domain=domain)
        keys = [Keys(seed, domain) for seed in seeds]
        runs = {
            name: [run_approach(approach, each, setting, truth, list(at)) for each in keys]
            for name, approach in (("ours", "ours"), ("readj", "readj_tail"))
        }
        for channels in at:
            for name, outcomes in runs.items():
                b, m = summary([one[channels] for one in outcomes])
                found[name][f"{letters.lower()}{channels}"] = round(b, 3)
                found[f"{name}_migration"][f"{letters.lower()}{channels}"] = round(m, 3)
                worst = max(one[channels].imbalance.combined for one in outcomes)
                rows.append((letters, channels, name, b, worst, m))
    table(
        f"Equation 11, z = 1, |D| = {domain:,}, seeds {seeds.start} to {seeds.stop - 1}",
        ("resources", "N", "approach", "b", "worst seed", "m"),
        rows,
    )
    return found


def figures(quick: bool) -> None:
    """Figures 3 to 14, as the experiments measure them: all numbers, and how they stand to the paper's."""
    for name, figure in {**BALANCE, **SETTINGS, **COSTS}.items():
        found = figure(quick)
        print(f"\n{label_of(name)}: {found.title} ({found.verdict.value})\n")
        print(*found.tables, sep="\n\n", flush=True)


def hundred(seeds: int) -> None:
    """A hundred channels, where readj takes too long to be run at every step."""
    setting = Setting("LCL", channels=100)
    names = ("uniform", "consistent", "scan", "redist", "ours")
    found = {name: point(setting, name, seeds) for name in names}
    rows = [(name, found[name].imbalance, found[name].migration) for name in names]
    table("LCL, N = 100", ("approach", "b", "m"), rows)


def construction_speed(quick: bool, domain: int, sigma: float) -> tuple[float, float]:
    """Ours and both versions of readj at this σ, on the last step to 10 channels."""
    setting = Setting(sigma=sigma, domain=domain)
    truth = zipf(setting.domain, setting.skew)
    keys = Keys(0, setting.domain)
    # The step is built with scan, so that quick runs need not run readj nine times over.
    problem = run_constructed("scan", keys, setting, truth, [10])[10].problem
    assert problem is not None
    direct = clocked(lambda: readj(problem, every_pair=True), 1)
    pruned = clocked(lambda: readj(problem), 1 if quick else 3)
    ours = float(np.median([run_ours(keys, setting, truth, [10])[10].seconds for _ in range(5)]))
    table(
        f"Construction at σ = {sigma}, LLL, N = 10, {len(problem.frequencies)} explicit entries",
        ("", "seconds", "speed-up"),
        [
            ("readj, direct", direct, 1.0),
            ("readj, pruned", pruned, direct / pruned),
            ("ours", ours, direct / ours),
        ],
    )
    return round(direct / ours, 1), round(direct / pruned, 1)


def clocked(work: Callable[[], object], times: int) -> float:
    """Return the least CPU seconds of several runs, by the same clock as the constructions of the world."""
    least = np.inf
    for _ in range(times):
        started = time.process_time()
        work()
        least = min(least, time.process_time() - started)
    return float(least)


def lookup_cost(domain: int) -> dict[str, float]:
    """
    Look-up with 40 hot keys over `hash % N`, and what hashing a column and looking it up cost over hashing it plainly.

    Measured by the skew benchmark's splitter_cost; beside it what was rejected: asking the ring for every row, and
    counting every row by lossy counting.
    """
    rows, channels = domain // 2, 10
    cost = skew.splitter_cost(domain // 10, rows, tries=15 if domain == 10**6 else 1)
    keys = Keys(0, domain)
    truth = zipf(domain, 1.0)
    random = np.random.default_rng(0)
    hashes = keys.hashes[np.searchsorted(np.cumsum(truth), random.random(rows)).clip(max=domain - 1)]
    places = RingHashes.of_items(hashes)
    ring = Ring.of(channels)
    ring.lookup(places)
    cost |= {
        "ring of 10,000 points, per row": clocked(lambda: ring.lookup(places), 3) / rows * 1e9,
        "lossy counter, ε = 1.8e-4": clocked(lambda: LossyCounter(1.8e-4).add(hashes), 3) / rows * 1e9,
        "sliding, 3 counters": clocked(lambda: SlidingCounter(1.8e-4, domain).add(hashes), 3) / rows * 1e9,
    }
    table(
        f"Cost per row, vectorised over {rows:,} rows in batches of 32,768",
        ("", "ns per row", "× hash % N"),
        [(name, each, each / cost["modulo"]) for name, each in cost.items()],
    )
    plain, look_up = cost["modulo"], cost["look_up_with_40_hot_keys"]
    return {
        "look_up": round(look_up / plain, 2),
        "integers": round((cost["hash_integers"] + look_up) / (cost["hash_integers"] + plain), 2),
        "texts": round((cost["hash_texts"] + look_up) / (cost["hash_texts"] + plain), 2),
    }
