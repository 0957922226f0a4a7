"""
Partitioning functions under skew: Figures 3 to 14 of the *Partitioning* paper, and our own construction.

    python -m benchmarks partitioning            20 seeds for the LLL row, 2 for the sweeps
    python -m benchmarks partitioning --quick    the same row, a coarser grid for the sweeps
    python -m benchmarks partitioning --sweep-seeds 20    as many seeds for everything; an hour

Imbalance is the mean over the seeds, migration the median (its deviation is 0.4). Constructions of the LLL
row see what a lossy counter reports of a million random rows; those of the sweeps see exact frequencies.
What is measured is always the true distribution.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np

from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.partitioning.counting.sliding_counter import SlidingCounter
from anabranch.partitioning.placing.readj import readj
from anabranch.partitioning.placing.utility import Utility
from anabranch.partitioning.ring import Places, Ring
from benchmarks._partitioning_world import (
    Keys,
    Outcome,
    Setting,
    count_rows,
    estimated,
    run_constructed,
    run_hashed,
    run_ours,
    zipf,
)

APPROACHES = ("uniform", "consistent", "scan", "redist", "readj", "ours")
ROWS_COUNTED = 10**6
Runs = dict[str, list[Outcome]]


def main(arguments: list[str]) -> dict:
    """Print the tables; return the figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks partitioning")
    parser.add_argument("--quick", action="store_true", help="a coarser grid for the sweeps")
    parser.add_argument("--seeds", type=int, default=20, help="of the LLL row (%(default)s)")
    parser.add_argument("--sweep-seeds", type=int, default=2, help="of everything else (%(default)s)")
    options = parser.parse_args(arguments)
    quick, seeds, sweep_seeds = options.quick, options.seeds, options.sweep_seeds
    started = time.perf_counter()

    figure = default_row(seeds)
    figures_by_setting(quick, sweep_seeds)
    figure_domain(quick, sweep_seeds)
    figure_sizes(quick)
    figure["fast_readj_speedup"], figure["pruned_readj_speedup"] = construction_speed(quick)
    figure["lookup_cost"] = lookup_cost()
    if (gain := skew_gain()) is not None:
        figure["skew_gain"] = gain
    print(f"\nall in {time.perf_counter() - started:.0f} s")
    return figure


def run(name: str, keys: Keys, setting: Setting, truth: np.ndarray, at: list[int]) -> dict[int, Outcome]:
    """Run one approach, of whichever kind."""
    if name in ("uniform", "consistent"):
        return run_hashed(name, keys, setting, truth, at)
    if name == "ours":
        return run_ours(keys, setting, truth, at)
    return run_constructed(name, keys, setting, truth, at)


def summary(runs: list[Outcome]) -> tuple[float, float]:
    """Return mean relative imbalance and median relative migration."""
    return (
        float(np.mean([one.imbalance.combined for one in runs])),
        float(np.median([one.migration for one in runs])),
    )


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print an aligned table."""
    lines = [[str(cell) for cell in head]] + [
        [f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    print(f"\n{title}")
    for line in lines:
        print("  " + "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def default_row(seeds: int) -> dict:
    """The LLL row at the defaults, with counted frequencies, and the sizes."""
    setting = Setting()
    truth = zipf(setting.domain, setting.skew)
    at = [setting.channels]
    runs: Runs = defaultdict(list)
    counters = []
    for seed in range(seeds):
        keys = Keys(seed, setting.domain)
        counter, sizes = count_rows(keys, setting, ROWS_COUNTED)
        counters.append(float(np.mean(sizes)))
        seen = estimated(keys, counter)
        for name in ("uniform", "consistent"):
            runs[name].append(run_hashed(name, keys, setting, truth, at)[at[0]])
        for name in ("scan", "redist", "readj", "readj_tail"):
            runs[name].append(run_constructed(name, keys, setting, truth, at, seen)[at[0]])
        runs["ours"].append(run_ours(keys, setting, truth, at, counter)[at[0]])
    worst = {name: max(one.imbalance.combined for one in outcomes) for name, outcomes in runs.items()}
    table(
        f"LLL row: z = 1, N = 10, |D| = 10^6, {seeds} seeds, frequencies from a lossy counter",
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


def figures_by_setting(quick: bool, seeds: int) -> None:
    """Figures 3 to 7, 12, 13 and 14: everything over one domain of a million keys."""
    skews = (0.1, 0.5, 0.8, 1.0) if quick else tuple(round(0.1 * i, 1) for i in range(1, 11))
    quadratic_skews = (0.25, 0.5) if quick else (0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    sigmas = (1.0, 0.25, 0.1, 0.03) if quick else (1.0, 0.5, 0.25, 0.1, 0.05, 0.025, 0.008)
    counts = [2, 4, 10, 20] if quick else [2, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32]

    settings: dict[Setting, tuple[str, ...]] = {}
    for letters in ("CCL", "LCL", "LLL", "LQL"):
        settings[Setting(letters)] = APPROACHES
        for utility in Utility:
            settings.setdefault(Setting(letters, utility=utility), ("redist", "readj"))
    for skew in skews:
        settings |= {Setting(letters, skew=skew): APPROACHES for letters in ("LCL", "LLL")}
    settings |= {Setting("LQL", skew=skew): APPROACHES for skew in quadratic_skews}
    for sigma in sigmas:
        settings |= {Setting(letters, sigma=sigma): APPROACHES for letters in ("LCL", "LQL")}

    found: dict[tuple[Setting, str, int], list[Outcome]] = defaultdict(list)
    for seed in range(seeds):
        keys = Keys(seed, 10**6)
        for setting, approaches in settings.items():
            truth = zipf(setting.domain, setting.skew)
            for name in approaches:
                found[setting, name, 10].append(run(name, keys, setting, truth, [10])[10])
        growing = Setting("LCL", channels=max(counts))
        truth = zipf(growing.domain, growing.skew)
        for name in APPROACHES:
            for channels, one in run(name, keys, growing, truth, counts).items():
                found[growing, name, channels].append(one)

    def columns(setting: Setting, channels: int = 10, names: tuple[str, ...] = APPROACHES) -> list[str]:
        return ["{:.2f} / {:.2f}".format(*summary(found[setting, name, channels])) for name in names]

    def seconds(setting: Setting, channels: int = 10) -> list[str]:
        runs = [[one.seconds for one in found[setting, name, channels]] for name in APPROACHES[1:]]
        return [f"{np.median(times) * 1e3:.1f}" for times in runs]

    for letters in ("CCL", "LCL", "LLL", "LQL"):
        rows = []
        for name in APPROACHES:
            runs = found[Setting(letters), name, 10]
            per_resource = np.mean([one.imbalance.relative for one in runs], axis=0)
            rows.append((name, summary(runs)[1], summary(runs)[0], *(float(value) for value in per_resource)))
        table(f"Figure 3, {letters}, {seeds} seeds", ("approach", "m", "b", "b_s", "b_c", "b_n"), rows)
    both = "imbalance / migration"
    for letters, some in (("LCL", skews), ("LLL", skews), ("LQL", quadratic_skews)):
        rows = [(skew, *columns(Setting(letters, skew=skew))) for skew in some]
        table(f"Figure 4, {letters}: {both} by skew", ("z", *APPROACHES), rows)
    for letters in ("LCL", "LQL"):
        rows = [(sigma, *columns(Setting(letters, sigma=sigma))) for sigma in sigmas]
        table(f"Figure 5, {letters}: {both} by σ", ("σ", *APPROACHES), rows)
    table(
        f"Figure 6, LCL: {both} by number of channels",
        ("N", *APPROACHES),
        [(n, *columns(growing, n)) for n in counts],
    )
    for name in ("readj", "redist"):
        table(
            f"Figure 7, {name}: {both} by utility function",
            ("", *(utility.value for utility in Utility)),
            [
                (letters, *(columns(Setting(letters, utility=u), 10, (name,))[0] for u in Utility))
                for letters in ("CCL", "LCL", "LLL", "LQL")
            ],
        )
    head = APPROACHES[1:]
    rows = [(sigma, *seconds(Setting("LCL", sigma=sigma))) for sigma in sigmas]
    table("Figure 12, LCL: construction time in ms by σ", ("σ", *head), rows)
    rows = [(n, *seconds(growing, n)) for n in counts]
    table("Figure 13, LCL: construction time in ms by N", ("N", *head), rows)
    rows = [(skew, *seconds(Setting("LCL", skew=skew))) for skew in skews]
    table("Figure 14, LCL: construction time in ms by skew", ("z", *head), rows)
    if not quick:
        hundred(-(-seeds // 4))


def hundred(seeds: int) -> None:
    """A hundred channels, where readj takes too long to be run at every step."""
    setting = Setting("LCL", channels=100)
    truth = zipf(setting.domain, setting.skew)
    names = tuple(name for name in APPROACHES if name != "readj")
    runs: Runs = defaultdict(list)
    for seed in range(seeds):
        keys = Keys(seed, setting.domain)
        for name in names:
            runs[name].append(run(name, keys, setting, truth, [100])[100])
    rows = [(name, *summary(runs[name])) for name in names]
    table("Figure 6 continued, LCL, N = 100", ("approach", "b", "m"), rows)


def figure_domain(quick: bool, seeds: int) -> None:
    """Figure 8."""
    domains = (10**4, 10**5) if quick else (10**4, 10**5, 10**6, 10**7)
    rows = []
    for domain in domains:
        setting = Setting("LCL", domain=domain)
        truth = zipf(domain, setting.skew)
        runs: Runs = defaultdict(list)
        for seed in range(seeds if domain < 10**7 else -(-seeds // 4)):
            keys = Keys(seed, domain)
            for name in APPROACHES:
                runs[name].append(run(name, keys, setting, truth, [10])[10])
        rows.append((domain, *("{:.2f} / {:.2f}".format(*summary(runs[name])) for name in APPROACHES)))
    table("Figure 8, LCL: imbalance / migration by domain size", ("|D|", *APPROACHES), rows)


def figure_sizes(quick: bool) -> None:
    """Figures 9 to 11: how many counters and how many explicit entries."""
    keys = Keys(0, 10**6)

    def sizes(setting: Setting) -> tuple[int, int]:
        counter, along = count_rows(keys, setting, ROWS_COUNTED)
        seen = estimated(keys, counter)
        explicit = run_constructed("scan", keys, setting, seen, [setting.channels], seen)
        return round(float(np.mean(along))), explicit[setting.channels].explicit

    head = ("", "counters", "explicit")
    letters = ("LCL", "LQL")
    sigmas = (1.0, 0.1) if quick else (1.0, 0.5, 0.25, 0.1, 0.05, 0.025, 0.008)
    rows = [(f"{name} σ={sigma}", *sizes(Setting(name, sigma=sigma))) for name in letters for sigma in sigmas]
    table("Figure 9: sizes by σ", head, rows)
    skews = (0.5, 1.0) if quick else (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0)
    rows = [(f"LCL z={skew}", *sizes(Setting("LCL", skew=skew))) for skew in skews]
    table("Figure 10: sizes by skew", head, rows)
    counts = (4, 16) if quick else (2, 4, 8, 16, 24, 32)
    rows = [(f"LCL N={n}", *sizes(Setting("LCL", channels=n))) for n in counts]
    table("Figure 11: sizes by number of channels", head, rows)


def construction_speed(quick: bool) -> tuple[float, float]:
    """Ours and both versions of readj at σ = 0.008, on the last step to 10 channels."""
    setting = Setting(sigma=0.008)
    truth = zipf(setting.domain, setting.skew)
    keys = Keys(0, setting.domain)
    # The step is built with scan, so that quick runs need not run readj nine times over.
    problem = run_constructed("scan", keys, setting, truth, [10])[10].problem
    assert problem is not None
    direct = clocked(lambda: readj(problem, every_pair=True), 1)
    pruned = clocked(lambda: readj(problem), 1 if quick else 3)
    ours = float(np.median([run_ours(keys, setting, truth, [10])[10].seconds for _ in range(5)]))
    table(
        f"Construction at σ = 0.008, LLL, N = 10, {len(problem.frequencies)} explicit entries",
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


def skew_gain() -> float | None:
    """Throughput of the hybrid function over consistent hashing, on Spark; None without that benchmark.

    It starts a JVM, so it is a benchmark of its own (skew.py) and imported only here.
    """
    if importlib.util.find_spec("benchmarks.skew") is None:
        return None
    return importlib.import_module("benchmarks.skew").skew_gain()


def lookup_cost() -> dict[str, float]:
    """
    Look-up with 40 hot keys over `hash % N`, and what hashing a column and looking it up cost over hashing it plainly.

    Measured by the skew benchmark's splitter_cost; beside it what was rejected: asking the ring for every row, and
    counting every row by lossy counting.
    """
    cost = importlib.import_module("benchmarks.skew").splitter_cost()
    rows, channels = 500_000, 10
    keys = Keys(0, 10**6)
    truth = zipf(10**6, 1.0)
    random = np.random.default_rng(0)
    hashes = keys.hashes[np.searchsorted(np.cumsum(truth), random.random(rows)).clip(max=10**6 - 1)]
    places = Places.of_items(hashes)
    ring = Ring.of(channels)
    ring.lookup(places)
    cost |= {
        "ring of 10,000 points, per row": clocked(lambda: ring.lookup(places), 3) / rows * 1e9,
        "lossy counter, ε = 1.8e-4": clocked(lambda: LossyCounter(1.8e-4).add(hashes), 3) / rows * 1e9,
        "sliding, 3 counters": clocked(lambda: SlidingCounter(1.8e-4, 10**6).add(hashes), 3) / rows * 1e9,
    }
    table(
        "Cost per row, vectorised over 500,000 rows in batches of 32,768",
        ("", "ns per row", "× hash % N"),
        [(name, each, each / cost["modulo"]) for name, each in cost.items()],
    )
    plain, look_up = cost["modulo"], cost["look_up_with_40_hot_keys"]
    return {
        "look_up": round(look_up / plain, 2),
        "integers": round((cost["hash_integers"] + look_up) / (cost["hash_integers"] + plain), 2),
        "texts": round((cost["hash_texts"] + look_up) / (cost["hash_texts"] + plain), 2),
    }
