"""How many items per second a streaming merger takes, per strategy, in CPU time of one core.

    python -m benchmarks merger_speed [--mini]

Per-item calls of `push`, which is how the papers' machine uses it. *steady*: items come in the
order of their numbers; *jittered*: each may be overtaken by up to 64 items of other channels; *batched*: the
jittered arrivals in `push_many` calls of 64.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

from anabranch.papers.merging.merger import make_merger
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.splitter import Splitter

TUPLES = 100_000
EMITTED: dict[Strategy, Callable[[int], int]] = {
    Strategy.ROUND_ROBIN: lambda value: 1,
    Strategy.SEQUENCE: lambda value: 1,
    Strategy.STRICT: lambda value: value % 2,
    Strategy.RELAXED: lambda value: value % 4,
    Strategy.INDEXED: lambda value: value % 4,
}


def arrivals_of(strategy: Strategy, channels: int, depth: int, tuples: int) -> list[tuple[int, Any]]:
    emitted = EMITTED[strategy]
    route = None if strategy is Strategy.ROUND_ROBIN else lambda value: value * 7919 % 1_000_003 % channels
    splitter = Splitter(strategy, channels, route=route)
    lines = [Channel(lambda value: [value] * emitted(value), strategy, depth=depth) for _ in range(channels)]
    arrivals = []
    for value in range(tuples):
        for channel, item in splitter.push(value):
            arrivals += [(channel, out) for out in lines[channel].push(item)]
    return arrivals


def jittered(arrivals: list[tuple[int, Any]], channels: int) -> list[tuple[int, Any]]:
    draw = random.Random(1)
    times = []
    latest = [0] * channels
    for position, (channel, _) in enumerate(arrivals):
        latest[channel] = max(latest[channel], position + draw.randrange(65))
        times.append((latest[channel], position))
    return [arrivals[position] for _, position in sorted(times)]


def batched(arrivals: list[tuple[int, Any]], channels: int, size: int = 64) -> list[tuple[int, list[Any]]]:
    batches: list[tuple[int, list[Any]]] = []
    open_batches: list[list[Any]] = [[] for _ in range(channels)]
    for channel, item in arrivals:
        open_batches[channel].append(item)
        if len(open_batches[channel]) == size:
            batches.append((channel, open_batches[channel]))
            open_batches[channel] = []
    return batches + [(channel, batch) for channel, batch in enumerate(open_batches) if batch]


def items_per_second(strategy: Strategy, channels: int, depth: int, calls: list[Any], name: str) -> float:
    best = 0.0
    items = sum(len(what) if name == "push_many" else 1 for _, what in calls)
    for _ in range(5):
        push = getattr(make_merger(strategy, channels, depth=depth), name)
        started = time.process_time()
        for channel, what in calls:
            push(channel, what)
        best = max(best, items / (time.process_time() - started))
    return best


def main(arguments: list[str]) -> dict[str, int]:
    """Measure all strategies; `--quick` changes nothing, it takes half a minute."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks merger_speed")
    parser.add_argument("--quick", action="store_true", help="changes nothing")
    parser.add_argument("--mini", action="store_true", help="hardly any tuples, to see that it runs")
    tuples = 1_000 if parser.parse_args(arguments).mini else TUPLES
    figure = {}
    for channels in (4, 32):
        for strategy in Strategy:
            depth = 1 if strategy is Strategy.INDEXED else 0
            steady = arrivals_of(strategy, channels, depth, tuples)
            late = jittered(steady, channels)
            row = {
                "steady": items_per_second(strategy, channels, depth, steady, "push"),
                "jittered": items_per_second(strategy, channels, depth, late, "push"),
                "batched": items_per_second(strategy, channels, depth, batched(late, channels), "push_many"),
            }
            figures = "  ".join(f"{name} {speed / 1000:7.0f}" for name, speed in row.items())
            print(f"{channels:3d} channels  {strategy.value:12s} {figures}  thousand items/s")
            for name, speed in row.items():
                figure[f"{strategy.value}_{channels}_{name}_kips"] = round(speed / 1000)
    return figure
