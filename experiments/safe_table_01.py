"""*Safe*, Table 1: the four ordering strategies, and the circumstances they handle.

Every strategy is put into every circumstance, on the streaming splitter, channels and merger, with channels that
overtake each other at random. It handles a circumstance if the output is that of one thread, every time; the
parts refuse what a strategy cannot handle, instead of giving a wrong order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable

from anabranch.engine.merging.merger import make_merger
from anabranch.engine.merging.ordering import OrderViolation, Strategy
from anabranch.engine.merging.strategies import ordering_strategy
from anabranch.papers.streaming.channel import Channel
from anabranch.papers.streaming.splitter import Splitter
from anabranch.program.model import Selectivity
from experiments.reproduction import Reproduction, Table
from experiments.statements import Statement, holds

CHANNELS = 5
TUPLES = 300
KEYS = 17
EMITTED: dict[Selectivity, Callable[[int], int]] = {
    Selectivity.ONE: lambda value: 1,
    Selectivity.AT_MOST_ONE: lambda value: value * 7919 % 3 % 2,
    Selectivity.ANY: lambda value: value * 7919 % 4,
}
RATIOS = {Selectivity.ONE: "1:1", Selectivity.AT_MOST_ONE: "1:[0,1]", Selectivity.ANY: "1:[0,∞)"}
CIRCUMSTANCES = [(stateless, selectivity) for selectivity in EMITTED for stateless in (True, False)]
HANDLES = {
    Strategy.ROUND_ROBIN: {(True, Selectivity.ONE)},
    Strategy.SEQUENCE: {(True, Selectivity.ONE), (False, Selectivity.ONE)},
    Strategy.STRICT: {(s, r) for s in (True, False) for r in (Selectivity.ONE, Selectivity.AT_MOST_ONE)},
    Strategy.RELAXED: set(CIRCUMSTANCES),
}
"""The table of the paper. A strategy also handles what a cheaper one does."""


def run(quick: bool) -> Reproduction:
    seeds = 10 if quick else 200
    found = {
        (strategy, circumstance): _tried(strategy, *circumstance, seeds)
        for strategy in HANDLES
        for circumstance in CIRCUMSTANCES
    }
    statements: list[Statement] = []
    for strategy, handled in HANDLES.items():
        right = [c for c in CIRCUMSTANCES if found[strategy, c] == "in order"]
        statements.append(
            holds(
                f"{strategy.value}: handles {len(handled)} of the {len(CIRCUMSTANCES)} circumstances, by the table",
                set(right) == handled,
                f"{len(right)} of {len(CIRCUMSTANCES)}, the same" if set(right) == handled else str(right),
                paper=str(len(handled)),
            )
        )
    chosen = {c: ordering_strategy(*c) for c in CIRCUMSTANCES}
    cheapest = all(next(s for s in HANDLES if c in HANDLES[s]) is chosen[c] for c in CIRCUMSTANCES)
    statements.append(
        holds("the compiler picks the cheapest strategy that handles a region", cheapest, "yes" if cheapest else "no")
    )
    rows = [
        (strategy.value, *(found[strategy, c] + (" (chosen)" if chosen[c] is strategy else "") for c in CIRCUMSTANCES))
        for strategy in HANDLES
    ]
    head = ("", *(f"{'stateless' if stateless else 'partitioned'} {RATIOS[s]}" for stateless, s in CIRCUMSTANCES))
    return Reproduction(
        "ordering strategies and the circumstances they handle",
        f"{CHANNELS} channels that overtake each other at random, {TUPLES} tuples, {seeds} seeds each",
        tuple(statements),
        (Table.of("What came out", head, rows),),
    )


def _tried(strategy: Strategy, stateless: bool, selectivity: Selectivity, seeds: int) -> str:
    for seed in range(seeds):
        try:
            if not _is_sequential(strategy, stateless, selectivity, seed):
                return "wrong order"
        except (OrderViolation, ValueError):
            return "refused"
    return "in order"


def _is_sequential(strategy: Strategy, stateless: bool, selectivity: Selectivity, seed: int) -> bool:
    draw = random.Random(seed)
    keys = [draw.randrange(KEYS) for _ in range(TUPLES)]

    def operator() -> Callable[[tuple[int, int]], list[tuple[int, int, int]]]:
        counts: dict[int, int] = {}

        def process(value: tuple[int, int]) -> list[tuple[int, int, int]]:
            number, key = value
            counts[key] = 0 if stateless else counts.get(key, 0) + 1
            return [(number, counts[key], i) for i in range(EMITTED[selectivity](number))]

        return process

    stream = list(enumerate(keys))
    sequential = operator()
    expected = [out for value in stream for out in sequential(value)]
    splitter = Splitter(strategy, CHANNELS, route=None if stateless else lambda value: value[1] % CHANNELS)
    channels = [Channel(operator(), strategy) for _ in range(CHANNELS)]
    merger = make_merger(strategy, CHANNELS)
    wires: list[deque] = [deque() for _ in range(CHANNELS)]
    merged: list = []

    def deliver_one() -> None:
        channel = draw.choice([i for i, wire in enumerate(wires) if wire])
        merged.extend(merger.push(channel, wires[channel].popleft()))

    for value in stream:
        for channel, item in splitter.push(value):
            wires[channel].extend(channels[channel].push(item))
        while any(wires) and draw.random() < 0.5:
            deliver_one()
    for channel, item in splitter.finish():
        wires[channel].extend(channels[channel].push(item))
    while any(wires):
        deliver_one()
    merged.extend(merger.finish())
    return [value for value in merged if isinstance(value, tuple)] == expected
