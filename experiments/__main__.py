"""Runs the experiments and writes the report."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from experiments import (
    elastic_kernels,
    elastic_load,
    elastic_micro,
    operators_levels,
    operators_sharing,
    partitioning_balance,
    partitioning_costs,
    partitioning_settings,
    report,
    resources_allocation,
    resources_migration,
    resources_on_spark,
    safe_order,
    safe_scaling,
    spark_figures,
)
from experiments.drawing import draw
from experiments.reproduction import Figures

ROOT = Path(__file__).resolve().parents[1]
FIGURES: Figures = {
    **safe_order.FIGURES,
    **safe_scaling.FIGURES,
    **elastic_kernels.FIGURES,
    **elastic_micro.FIGURES,
    **elastic_load.FIGURES,
    **operators_levels.FIGURES,
    **operators_sharing.FIGURES,
    **partitioning_balance.FIGURES,
    **partitioning_settings.FIGURES,
    **partitioning_costs.FIGURES,
    **resources_migration.FIGURES,
    **resources_allocation.FIGURES,
}
ON_SPARK: Figures = {**spark_figures.FIGURES, **resources_on_spark.FIGURES}
EVERYTHING: Figures = {**FIGURES, **ON_SPARK}


def names() -> list[str]:
    """The experiments there are: those in virtual time, then those on Spark."""
    return [*sorted(FIGURES), *sorted(ON_SPARK)]


def run_one(name: str, *, quick: bool, output: Path, tables: bool = False) -> dict[str, Any]:
    """Run an experiment, draw its picture, return its entry."""
    started = time.perf_counter()
    result = EVERYTHING[name](quick)
    seconds = time.perf_counter() - started
    picture = None
    if result.panels:
        picture = f"reproduction/{name}.svg"
        (output / "reproduction").mkdir(parents=True, exist_ok=True)
        draw(result.panels, output / picture)
    if tables:
        print(*result.tables, sep="\n\n", end="\n\n", flush=True)
    return report.entry_of(
        name, result, picture=picture, quick=quick, seconds=seconds, commit=_commit(), at=f"{date.today():%Y-%m-%d}"
    )


def _run_all(chosen: list[str], jobs: int, **settings: Any) -> Iterator[dict[str, Any]]:
    """Entries as they come; figures of a module share what they have run, so each module has one process."""
    groups: dict[str, list[str]] = {}
    for name in chosen:
        groups.setdefault(EVERYTHING[name].__module__, []).append(name)
    if jobs <= 1 or len(groups) <= 1:
        for name in chosen:
            yield run_one(name, **settings)
        return
    context = multiprocessing.get_context("fork")  # what `python -m` runs cannot be imported by its name
    with context.Manager() as manager, ProcessPoolExecutor(jobs, context) as pool:
        found = manager.Queue()
        running = {pool.submit(_run_group, group, settings, found) for group in groups.values()}
        left = len(chosen)
        while left:
            try:
                yield found.get(timeout=1.0)
                left -= 1
            except queue.Empty:
                for future in running:
                    if future.done():
                        future.result()  # raises what stopped it


def _run_group(group: list[str], settings: dict[str, Any], found: Any) -> None:
    for name in group:
        found.put(run_one(name, **settings))


def _commit() -> str:
    """The commit that runs; empty where nobody can tell."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=7", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments")
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments to run, or a paper; default: all")
    parser.add_argument(
        "--quick", action="store_true", help="coarser grids and fewer seeds; about two minutes of CPU time"
    )
    parser.add_argument("--tables", action="store_true", help="print all that was measured")
    parser.add_argument("--spark", action="store_true", help="those measured on Spark, instead of those simulated")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--again", action="store_true", help="also what was measured with this commit already")
    parser.add_argument("--output", type=Path, help="default: docs, with --quick build")
    options = parser.parse_args(arguments)
    output = options.output or ROOT / ("build" if options.quick else "docs")
    offered = sorted(ON_SPARK if options.spark else FIGURES)
    chosen = [name for name in offered if not options.names or _paper(name) in options.names]
    chosen += [name for name in names() if name in options.names and name not in chosen]
    if not chosen:
        print(f"no such experiment; NAME is one of: {', '.join(names())}, or a paper", file=sys.stderr)
        return 2

    output.mkdir(parents=True, exist_ok=True)
    file = output / "reproduction.json"
    there = json.loads(file.read_text())["entries"] if file.exists() else []
    entries = {entry["name"]: entry for entry in there if entry["name"] in names()}
    mode, commit = "quick" if options.quick else "full", _commit()
    done = {name for name, entry in entries.items() if commit and (entry["commit"], entry["mode"]) == (commit, mode)}
    if not options.names and not options.again:
        chosen = [name for name in chosen if name not in done]  # a run that was cut off goes on
    started = time.perf_counter()
    data = report.collected(entries.values())
    for entry in _run_all(chosen, options.jobs, quick=options.quick, output=output, tables=options.tables):
        entries[entry["name"]] = entry
        # After each one: a run takes minutes, and what was measured should outlive a failure of the next.
        data = report.collected(entries.values())
        file.write_text(report.to_json(data))
        (output / "reproduction.md").write_text(report.render(data))
        print(f"{entry['name']:24s} {entry['verdict']:8s} {entry['seconds']:6.1f} s", flush=True)
        for statement in entry["statements"]:
            if statement["verdict"] == "differs":
                print(f"    differs: {statement['text']}: {statement['paper']} / {statement['measured']}", flush=True)
    print(
        f"{data['met_or_better']} of {data['figures']} figures and {data['statements_met_or_better']} of "
        f"{data['statements']} statements of the papers met or bettered, in {time.perf_counter() - started:.0f} s"
    )
    return 0


def _paper(name: str) -> str:
    return name.partition("_")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
