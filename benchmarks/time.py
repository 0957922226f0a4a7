"""What time that all keys share costs: a watermark per row, and timers that wait.

    python -m benchmarks time [--quick | --mini]

In this process, without a JVM: the product's splitters, packets, channels, state and commits (`anabranch.testing`),
over input that is cut and converted beforehand; processor seconds, so that other work on the machine disturbs less.

    watermark_overhead   windows of 10 s by key, a count and a sum, closed by the stream's watermark, against the same
                         windows closed by each key's own: processor seconds of an epoch of the one over those of the
                         same epoch of the other, run right before or after it; the median, less one. Rows are in
                         order but for a second; the watermark advances every second. The first closes every window
                         whose end it has passed; a key's own closes its last only if a later tuple of the key comes,
                         so it may be a few windows behind at the end (in full, 1 of 319,377: the last tuple of key 134
                         is less than the lateness behind the window before it).
    timer_slowdown_held  an epoch in which 10⁴ keys are called while 10⁶ wait, over one in which 10⁴ wait and all are
                         called: medians. One row moves the watermark; it is the keys' timers that are called.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.testing import ParallelRun

COLUMNS = "k long, at long, x long"
CHANNELS = 2


class PreparedRun(ParallelRun):
    """A run over epochs that were cut into partitions beforehand."""

    prepared: Sequence[Sequence[list[pa.RecordBatch]]] = ()

    def epoch(self, number: int) -> float:
        """Run an epoch; the processor seconds it took."""
        begun = time.process_time()
        self.batch({"source": number}, number)  # type: ignore[dict-item]
        return time.process_time() - begun

    def _partitions(self, rows: Mapping[str, Any], random: np.random.Generator) -> Iterator[list[pa.RecordBatch]]:
        yield from self.prepared[rows["source"]]


def partitions(k: Any, at: Any, x: Any, count: int = 2) -> list[list[pa.RecordBatch]]:
    """Columns of an epoch as splitters read them, in so many pieces."""
    limits = [len(at) * number // count for number in range(count + 1)]
    found = []
    for start, stop in itertools.pairwise(limits):
        size = stop - start
        order = [pa.array([0] * size, pa.int64()), pa.array(["in"] * size), pa.array([start] * size, pa.int64())]
        columns = [pa.array(column[start:stop], pa.int64()) for column in (k, at, x)]
        batch = pa.RecordBatch.from_arrays([*columns, *order], [f"c{place}" for place in range(6)])
        found.append([batch.slice(first, 10_000) for first in range(0, size, 10_000)])
    return found


def source(epochs: int) -> ab.Stream:
    return from_epochs([[] for _ in range(epochs)], COLUMNS)


# -- watermarks -----------------------------------------------------------------------------------------------------


def windows(stream: ab.Stream, shared: bool) -> ab.Stream:
    """Windows of 10,000 by key; times are milliseconds."""
    policy = ab.event_time("at", 10_000, lateness=0 if shared else 1000)
    if shared:
        stream = stream.event_time("at", 1000, every=1000)
    return stream.aggregate(by="k", window=policy, n=ab.agg.count(), x=ab.agg.sum("x"))


def watermark_overhead(rows: int, epochs: int, keys: int) -> dict[str, Any]:
    chance = np.random.default_rng(5)
    data = []
    for epoch in range(epochs):
        # A row a millisecond, out of order by up to a second.
        at = np.arange(rows) + epoch * rows - chance.integers(0, 1000, rows)
        data.append(partitions(chance.integers(0, keys, rows), at, chance.integers(0, 100, rows)))
    seconds: dict[bool, list[float]] = {True: [], False: []}
    results: dict[bool, int] = {}
    with tempfile.TemporaryDirectory() as scratch:
        runs = {}
        for shared in (True, False):
            run = PreparedRun(windows(source(epochs), shared), f"{scratch}/{shared}", channels=CHANNELS)
            run.prepared, runs[shared] = data, run
        for number in range(epochs):
            for shared in (True, False) if number % 2 else (False, True):
                seconds[shared].append(runs[shared].epoch(number))
        results = {shared: len(run.output) for shared, run in runs.items()}
    middle = {shared: statistics.median(values[1:]) for shared, values in seconds.items()}
    ratios = [mine / other for mine, other in zip(seconds[True][1:], seconds[False][1:], strict=True)]
    for shared, name in ((True, "the stream's watermark"), (False, "each key's own")):
        print(f"{name:<24} {middle[shared] / rows * 1e6:6.2f} µs per row, {results[shared]} windows of {keys} keys")
    return {
        "watermark_overhead": round(statistics.median(ratios) - 1, 3),
        "us_per_row": round(middle[True] / rows * 1e6, 2),
    }


# -- timers ---------------------------------------------------------------------------------------------------------


class Alarm(ab.Operator):
    """Sets a timer for what its tuple says, and tells when it is called."""

    key: int = ab.state(default=None)

    def process(self, t):
        if t.x:
            self.key = t.k
            self.timers.at(t.x)

    def on_timer(self, time):
        yield (self.key, time, 0)
        self.key = None


def fired_seconds(held: int, fired: int, epochs: int) -> list[float]:
    """Seconds of epochs in which so many timers are called, of so many that wait."""
    keys = np.arange(held)
    random.Random(3).shuffle(keys)
    due = 1000 + 10 * (np.arange(held) // fired)
    data = [
        partitions(
            keys[start : start + 100_000], [0] * len(keys[start : start + 100_000]), due[start : start + 100_000]
        )
        for start in range(0, held, 100_000)
    ]
    setting = len(data)
    data += [partitions([-1], [1000 + 10 * number], [0]) for number in range(epochs)]
    with tempfile.TemporaryDirectory() as scratch:
        stream = source(len(data)).event_time("at").process(Alarm(), by="k", schema=COLUMNS)
        run = PreparedRun(stream, scratch, channels=CHANNELS)
        run.prepared = data
        for number in range(setting):
            run.epoch(number)
        seconds = [run.epoch(setting + number) for number in range(epochs)]
        assert len(run.output) == min(held, epochs * fired), "a timer was lost"
    return seconds


def timer_slowdown(held: int, fired: int, epochs: int) -> dict[str, Any]:
    few = [fired_seconds(fired, fired, 1)[0] for _ in range(epochs)]
    many = fired_seconds(held, fired, epochs)
    for name, values in ((f"{fired} wait", few), (f"{held} wait", many)):
        print(f"{name:<16} {fired} called: {statistics.median(values) * 1000:8.1f} ms")
    return {"timer_slowdown_held": round(statistics.median(many) / statistics.median(few), 3)}


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks time", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, fewer timers")
    parser.add_argument("--mini", action="store_true", help="hardly any: for the tests")
    options = parser.parse_args(arguments)
    if options.mini:
        return watermark_overhead(2000, 3, 50) | timer_slowdown(2000, 200, 2)
    if options.quick:
        return watermark_overhead(50_000, 16, 1000) | timer_slowdown(100_000, 10_000, 5)
    return watermark_overhead(200_000, 16, 1000) | timer_slowdown(1_000_000, 10_000, 7)
