"""Figures 5 and 6 of *Resources*: what a migration costs, by the number of tuples to replay and the size of the state.

The paper's algorithms, message by message (`papers/resources/migrating.py`). A unit of time is a millisecond.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import cache
from random import Random

from anabranch.papers.resources.instances import Way
from anabranch.papers.resources.messages import Snapshot
from anabranch.papers.resources.migrating import MigrationCosts, MigrationWorld
from experiments.reproduction import Figures, Line, Panel, Reproduction, Table
from experiments.statements import at_least, at_most, compares, similar

WAYS: tuple[Way, ...] = ("direct", "cpa", "cpal")
LABELS = {"direct": "direct", "cpa": "CPA", "cpal": "CPAL"}
UPSTREAMS = 20
TUPLES_PER_MS = 0.4
"""8,000 tuples a second over 20 groups."""
COSTS = MigrationCosts(per_tuple_sent=0.01, per_tuple_applied=0.1, per_key=0.02, queueing=20.0, variation=0.3)
REPLAYS = (500, 2_000, 8_000, 32_000)
KEYS = (1_000, 20_000, 100_000)
BEGIN_MS, SETTLE_MS = 300.0, 500.0


@dataclass(frozen=True)
class Cost:
    """Means over seeds, in ms."""

    latency: float
    """How long the group rests, as the paper counts."""
    completion: float
    delayed: float
    """By how much the slowest tuple was later than the slowest of before."""
    spread: float
    """Standard deviation of the latency."""


@cache
def cost(way: Way, keys: int, replay: int, seeds: int) -> Cost:
    found = [_once(way, keys, replay, seed) for seed in range(seeds)]
    latencies = [latency for latency, _, _ in found]
    return Cost(
        statistics.fmean(latencies),
        statistics.fmean(completion for _, completion, _ in found),
        statistics.fmean(delayed for _, _, delayed in found),
        statistics.stdev(latencies) if len(latencies) > 1 else 0.0,
    )


def _once(way: Way, keys: int, replay: int, seed: int) -> tuple[float, float, float]:
    chance = Random(seed)
    world = MigrationWorld(UPSTREAMS, 3, COSTS, seed=seed, state=Snapshot({f"k{n}": 1 for n in range(keys)}))
    world.preload(replay)
    # Tuples come until the migration has surely ended.
    until = BEGIN_MS + SETTLE_MS + 3 * (keys * COSTS.per_key + replay * (COSTS.per_tuple_applied + 0.01))
    at = 0.0
    while at < until:
        at += chance.expovariate(TUPLES_PER_MS)
        name, upstream = f"k{chance.randrange(keys)}", chance.choice(world.upstreams)
        world.at(at, lambda upstream=upstream, name=name: upstream.emit(name, 1))  # type: ignore[misc]
    world.at(BEGIN_MS, lambda: world.migrate(way, 1))
    world.run()
    (done,) = world.done
    delays = {each.sent_at: world.outputs[each.stream, each.number] - each.sent_at for each in world.sent[replay:]}
    before = max(delay for sent, delay in delays.items() if sent < BEGIN_MS - 50)
    after = max(delay for sent, delay in delays.items() if sent >= BEGIN_MS - 50)
    return done.latency, done.completion, max(0.0, after - before)


def _grid(quick: bool) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return (REPLAYS[:3], KEYS[:2], 2) if quick else (REPLAYS, KEYS, 5)


HOW = (
    "Algorithms 1 and 2 and direct migration, message by message, in virtual time: a group of operator 2 with "
    "400 tuples/s from 20 upstream instances moves from one node to another; C = 20 ms, 0.1 ms to apply a tuple, "
    "0.01 ms to send one, 0.02 ms for a key of a checkpoint; times vary by ± 30 %; replay sizes 500 to 32,000 tuples, "
    "states of 1,000 to 100,000 keys; 5 seeds. The costs are ours: the paper's times are not compared"
)


def figure_05(quick: bool) -> Reproduction:
    """*Resources*, Figure 5: latency of direct migration, CPA and CPAL."""
    replays, keys, seeds = _grid(quick)
    small, large = keys[0], keys[-1]
    few, many = replays[0], replays[-1]
    found = {way: [cost(way, large, replay, seeds) for replay in replays] for way in WAYS}
    cpa, cpal = found["cpa"], found["cpal"]
    direct = [cost("direct", size, few, seeds).latency for size in keys]
    statements = (
        at_least(
            "the latency of CPA depends on the amount of data to replay: most over fewest tuples",
            0.25 * many / few,
            cpa[-1].latency / cpa[0].latency,
        ),
        at_most(
            "that of CPAL does not: most over fewest tuples",
            1.25,
            cpal[-1].latency / max(1e-9, cpal[0].latency),
        ),
        at_most(
            "CPAL: negligible latency, as a share of CPA's with the most to replay",
            0.05,
            cpal[-1].latency / cpa[-1].latency,
        ),
        at_most(
            "… and no tuple is noticeably later: the slowest, as a share of that with CPA",
            0.05,
            cpal[-1].delayed / cpa[-1].delayed,
        ),
        at_most(
            "… which does not depend on the replay either: most over fewest tuples",
            1.25,
            cpal[-1].delayed / max(1e-9, cpal[0].delayed),
            because="what came while the buffers were replayed waits at the new owner, and what is sent to it alone "
            "waits behind that; the paper counts only the time from the first syncGroup on",
        ),
        compares(
            "both outperform direct migration where the state is large and the replay small",
            [(cost(way, large, few, seeds).latency, "<", direct[-1]) for way in ("cpa", "cpal")],
            f"direct {direct[-1]:.0f} ms, CPA {cpa[0].latency:.0f}, CPAL {cpal[0].latency:.0f}",
        ),
        similar(
            "direct migration's latency follows the state's size: what a key more adds, over what a key costs",
            (direct[-1] - direct[0]) / (large - small) / COSTS.per_key,
            because="what comes in meanwhile is to be replayed too",
        ),
        compares(
            "ours: where the state is small and the replay large, direct is the faster of direct and CPA",
            [(cost("direct", small, many, seeds).latency, "<", cost("cpa", small, many, seeds).latency)],
            f"direct {cost('direct', small, many, seeds).latency:.0f} ms, "
            f"CPA {cost('cpa', small, many, seeds).latency:.0f}",
            ours=True,
        ),
    )
    return Reproduction(
        "latency of state migrations",
        HOW,
        statements,
        (_table("latency in ms (± standard deviation), the slowest tuple's delay", replays, keys, seeds, "latency"),),
        _panels(replays, keys, seeds, "latency"),
    )


def figure_06(quick: bool) -> Reproduction:
    """*Resources*, Figure 6: completion time of direct migration, CPA and CPAL."""
    replays, keys, seeds = _grid(quick)
    large, few, many = keys[-1], replays[0], replays[-1]
    times = {way: [cost(way, large, replay, seeds).completion for replay in replays] for way in WAYS}
    statements = (
        at_least(
            "completion of CPA depends on the size of the data to replay: most over fewest",
            0.25 * many / few,
            times["cpa"][-1] / times["cpa"][0],
        ),
        at_least(
            "… and that of CPAL: most over fewest",
            0.25 * many / few,
            times["cpal"][-1] / times["cpal"][0],
            because="it waits twice for the queue, once more than CPA, whatever there is to replay",
        ),
        *(
            similar(
                f"CPA and CPAL have similar completion times: CPAL over CPA at {replay:,} tuples",
                times["cpal"][at] / times["cpa"][at],
                because="messages that wait in the queue (C) count for more where little is replayed",
            )
            for at, replay in enumerate(replays)
            if replay in (few, many)
        ),
        compares(
            "both outperform direct migration where the state is large and the replay small",
            [(times[way][0], "<", times["direct"][0]) for way in ("cpa", "cpal")],
            f"direct {times['direct'][0]:.0f} ms, CPA {times['cpa'][0]:.0f}, CPAL {times['cpal'][0]:.0f}",
        ),
    )
    return Reproduction(
        "completion time of state migrations",
        HOW,
        statements,
        (_table("completion in ms", replays, keys, seeds, "completion"),),
        _panels(replays, keys, seeds, "completion"),
    )


def _table(title: str, replays: tuple[int, ...], keys: tuple[int, ...], seeds: int, what: str) -> Table:
    rows = []
    for size in keys:
        for replay in replays:
            costs = [cost(way, size, replay, seeds) for way in WAYS]
            if what == "latency":
                cells = [f"{each.latency:.1f} ± {each.spread:.1f}, {each.delayed:.1f}" for each in costs]
            else:
                cells = [f"{each.completion:.0f}" for each in costs]
            rows.append((f"{size:,}", f"{replay:,}", *cells))
    return Table.of(title, ("keys", "to replay", *LABELS.values()), rows)


def _panels(replays: tuple[int, ...], keys: tuple[int, ...], seeds: int, what: str) -> tuple[Panel, ...]:
    return tuple(
        Panel(
            f"{size:,} keys",
            "tuples to replay",
            f"{what} in ms",
            {
                LABELS[way]: Line(replays, [max(0.1, getattr(cost(way, size, n, seeds), what)) for n in replays])
                for way in WAYS
            },
            x_log=True,
            y_log=True,
        )
        for size in keys
    )


FIGURES: Figures = {"resources_figure_05": figure_05, "resources_figure_06": figure_06}
