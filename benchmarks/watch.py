"""What watching costs: a program with dicts of its own, with the option `watch` off, on the first tuples, and on all.

    python -m benchmarks watch [--quick | --mini]

In one process, without Spark, so that what is measured is little else than tasks. The three come in turn, in another
order each round, over the same rows. `first_ms` is what a task pays for its first watched tuple (a copy of the user's
object is made), `call_us` what each of the others pays, `sample` what both together are of the processor time of a
task with so many rows.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import anabranch as ab
from anabranch.testing import ParallelRun

WATCHES = ("off", "sample", "all")
SAMPLE = 64


class Counts:
    """Two dicts, by the tuple's key."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.last: dict[str, float] = {}

    def __call__(self, t: Any) -> Any:
        self.counts[t.k] = self.counts.get(t.k, 0) + 1
        if abs(t.v - self.last.get(t.k, 0.0)) > 3:
            self.last[t.k] = t.v
            yield t.k, self.counts[t.k]


def spent(rows: list[tuple[str, float]], epochs: int, watch: str) -> float:
    """The processor seconds of the epochs behind the first; one channel, so that an epoch is one task of it."""
    source = ab.from_rows(rows, "k string, v double", rows_per_epoch=len(rows) // epochs)
    stream = source.process(Counts(), schema="k string, n long")
    with tempfile.TemporaryDirectory(prefix="anabranch-watch-") as scratch:
        run = ParallelRun(stream, scratch, channels=1, watch=watch)
        run.run_epochs(0, 0)
        begun = time.process_time()
        run.run_epochs(1)
        return time.process_time() - begun


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks watch", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three rounds instead of nine")
    parser.add_argument("--mini", action="store_true", help="hardly any rows, one round: that it runs")
    options = parser.parse_args(arguments)
    rounds = 1 if options.mini else 3 if options.quick else 9
    rows_per_task, epochs = (100, 2) if options.mini else (10_000, 11)
    rows = [(f"key{n * 7919 % 501}", float(n * n % 83)) for n in range(rows_per_task * epochs)]
    found: dict[str, list[float]] = {watch: [] for watch in WATCHES}
    spent(rows, epochs, "all")  # to warm up
    for number in range(rounds):
        for watch in (*WATCHES[number % 3 :], *WATCHES[: number % 3]):
            found[watch].append(spent(rows, epochs, watch) / (epochs - 1))
        print(
            "  round",
            number + 1,
            {watch: f"{1000 * seconds[-1]:.1f} ms" for watch, seconds in found.items()},
            flush=True,
        )
    of_all = statistics.median(a - b for a, b in zip(found["all"], found["off"], strict=True))
    of_sample = statistics.median(a - b for a, b in zip(found["sample"], found["off"], strict=True))
    call = (of_all - of_sample) / (rows_per_task - SAMPLE)
    return {
        "rows_per_task": rows_per_task,
        "task_ms": {watch: round(1000 * statistics.median(seconds), 2) for watch, seconds in found.items()},
        "call_us": round(1e6 * call, 2),
        "first_ms": round(1000 * (of_sample - SAMPLE * call), 2),
        "sample": round(of_sample / statistics.median(found["off"]), 4),
        "rounds": rounds,
    }
