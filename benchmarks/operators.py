"""Elastic operators: is the level that is found as good as the best fixed one, on this machine and against a service?

- *Light, medium, heavy, extra heavy* (1, 1,000, 10,000 and 10⁶ floating point operations per tuple, as in *Operators*),
  and work that stands for a machine of 4 and of 16 cores: sleeping under so many permits. Elastic after settling beside
  every fixed level, in turn.
- *External load* (Figure 6): another program takes most of the permits and gives them back; in how many periods the
  level follows, both ways.
- *Four operators* that compete for one machine (Figure 7): how equally they share it, and what all do together.
- *A service over HTTP* in a process of its own, whose best concurrency is 8, then 64, then 16.
- *Costs*: of a call beside `concurrent.futures`, of order, of level 0 beside a plain operator.
- *Grids*: radio imaging with one grid that all workers share, and with local ones, beside one thread.
- On Spark, *epochs* of a second with pauses between them: the level beside that of a pool that never pauses; and what
  *order* costs, beside an output whose order was given up.

All parts take several times the five minutes that one may have a machine to oneself: `--only` runs some.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import BatchSteps
from anabranch.engine.worker.worker_pools import HostNotes, Pools
from benchmarks._http_service import RunningService
from benchmarks._operators_spark import epochs_on_spark, order_on_spark
from benchmarks._pool_runs import (
    Permits,
    PinnedLevel,
    Running,
    Slices,
    default_levels,
    fixed,
    floating_point,
    paper_levels,
    pool_for,
)
from benchmarks._radio_grids import grids
from benchmarks._spark import apart

WORK = {
    "light": lambda: floating_point(1),
    "medium": lambda: floating_point(1_000),
    "heavy": lambda: floating_point(10_000),
    "extra heavy": lambda: floating_point(1_000_000),
    "4 cores": lambda: Permits(4, 0.004),
    "16 cores": lambda: Permits(16, 0.02),
}
LEVELS = {"4 cores": (0, 2, 4, 8), "16 cores": (8, 16, 32)}
ON_SPARK = ("epochs", "order")
PARTS = (*WORK, "load", "competing", "http", "costs", "grids", *ON_SPARK)
VERBOSE = bool(os.environ.get("ANABRANCH_BENCHMARK_VERBOSE"))


def settled(running: Running, periods: int, period_s: float) -> int:
    """Wait until the level is held; how many periods that took, at most so many."""
    for _ in range(periods * 4):
        time.sleep(period_s / 4)
        if running.pool.controller.is_settled:  # type: ignore[attr-defined]
            break
    return len(running.pool.controller.log)


def fixed_levels(name: str, period_s: float, slice_s: float, rounds: int) -> dict[str, Any]:
    """Rates of fixed levels and of the default controller, in slices of time in turn: the machine is not ours alone.

    A slice of one level stands beside one of every other, and the controller's looks at other levels are in its own.
    Of levels that give much the same the luckiest would win: so the best is chosen by one half of the rounds and
    measured by the other, and the other way round.
    """
    work = WORK[name]()
    levels = LEVELS.get(name, (0, 1, 2, 4))
    slices = {level: Slices(pool_for(work, PinnedLevel(level), period_s)) for level in levels}
    elastic = Slices(pool_for(work, default_levels(), period_s))
    for _ in range(3 if rounds <= 2 else 40):
        elastic.run(period_s)
        if elastic.pool.controller.is_settled:  # type: ignore[attr-defined]
            break
    settled_after = len(elastic.pool.controller.log)
    everybody = [*slices.values(), elastic]
    for each in everybody:
        each.run(slice_s / 4)  # chunks have their size, threads are there
        each.done.clear()
    for number in range(rounds):
        for each in everybody[number % len(everybody) :] + everybody[: number % len(everybody)]:
            each.run(slice_s)
    for each in everybody:
        each.pool.close()
    best, rate = _best_level({level: each.done for level, each in slices.items()})
    found = {
        "elastic": statistics.mean(elastic.done) / rate,
        "level": elastic.pool.controller.to_dict()["level"],
        "best_fixed": best,
        "rate": rate,
    }
    shares = {level: round(statistics.mean(each.done) / rate, 2) for level, each in slices.items()}
    print(
        f"{name:>12}: fixed levels {shares} of {rate:,.0f}/s; elastic at level {found['level']}, settled after "
        f"{settled_after} periods: {found['elastic']:.3f} of the best",
        flush=True,
    )
    for decision in elastic.pool.controller.log[settled_after:] if VERBOSE else ():
        print(f"    {decision.rate:,.0f}/s at {decision.before}, then {decision.level}: {decision.branch}")
    return found


def _best_level(done: dict[int, list[float]]) -> tuple[int, float]:
    """The best level by all rounds; and the rate of the one that one half chooses, in the other half."""
    rates = []
    for half in (0, 1):
        chosen = max(done, key=lambda level: statistics.mean(done[level][half::2]))
        rates.append(statistics.mean(done[chosen][1 - half :: 2] or done[chosen]))
    return max(done, key=lambda level: statistics.mean(done[level])), statistics.mean(rates)


def external_load(period_s: float, make: Any = default_levels) -> dict[str, Any]:
    """Another program takes 12 of 16 permits, and gives them back: periods until the level fits, both ways."""
    work = Permits(16, max(0.02, period_s / 20))
    with Running(pool_for(work, make(), period_s)) as running:
        controller = running.pool.controller
        settled(running, 20, period_s)
        time.sleep(3 * period_s)
        before = running.pool.level
        periods: dict[str, int] = {}
        levels = {}
        for what, change, low, high in (("down", work.take, 3, 7), ("up", work.give_back, 13, 24)):
            begun = len(controller.log)
            change(12)
            give_up = time.perf_counter() + 40 * period_s
            while len(controller.log) - begun < 25 and time.perf_counter() < give_up:
                time.sleep(period_s / 4)
                is_held = getattr(controller, "is_settled", True)
                if is_held and low <= controller.to_dict()["level"] + (make is paper_levels) <= high:
                    break
            periods[what] = len(controller.log) - begun
            levels[what] = running.pool.level
    print(f"external load: level {before}, then {levels}; followed within {periods} periods")
    return {"before": before, "levels": levels, "periods": periods}


def competing(period_s: float, periods: int, make: Any = default_levels) -> dict[str, Any]:
    """Four operators share 16 permits: what they do together, and how equal their shares are."""
    work = Permits(16, max(0.02, period_s / 20))
    with fixed(work, 20) as alone:
        alone.rate(max(0.2, period_s / 2))
        most = alone.rate(2 * period_s)
    with tempfile.TemporaryDirectory() as scratch:
        seats = [Neighbours(Path(scratch), str(number)) for number in range(4)]
        return _compete([Running(pool_for(work, make(), period_s, seat)) for seat in seats], period_s, periods, most)


def _compete(runs: list[Running], period_s: float, periods: int, most: float) -> dict[str, Any]:
    for run in runs:
        run.__enter__()
    try:
        time.sleep(periods * period_s)
        before = [run.done for run in runs]
        begun = time.perf_counter()
        time.sleep(5 * period_s)
        seconds = time.perf_counter() - begun
        rates = [(run.done - was) / seconds for run, was in zip(runs, before, strict=True)]
        levels = [run.pool.level for run in runs]
    finally:
        for run in runs:
            run.__exit__()
    fairness = sum(rates) ** 2 / (4 * sum(rate * rate for rate in rates)) if sum(rates) else 0.0
    print(f"four operators: levels {levels}, together {sum(rates) / most:.2f} of the best, fairness {fairness:.3f}")
    return {"levels": levels, "total": sum(rates) / most, "fairness": fairness}


def over_http(period_s: float, service_s: float, periods: int, bests: tuple[int, ...]) -> dict[str, Any]:
    """A service whose best concurrency changes: rate beside that of the best fixed level, periods until it is near."""
    shares, waited = {}, {}
    with RunningService() as service:
        service.get(f"/sleep/{service_s}")

        def call(row: Any) -> Any:
            return service.get(f"/row/{row}")

        reference = {}
        for best in bests:
            service.get(f"/best/{best}")
            time.sleep(8 * service_s)  # what is left of the one before
            with fixed(call, best) as running:
                running.rate(3 * service_s)
                reference[best] = running.rate(max(2 * period_s, 10 * service_s))
        with Running(pool_for(call, default_levels(256, 1), period_s)) as running:
            controller = running.pool.controller
            for place, best in enumerate(bests):
                service.get(f"/best/{best}")
                begun = len(controller.log)
                near = None
                give_up = time.perf_counter() + 3 * periods * period_s
                while len(controller.log) - begun < periods and time.perf_counter() < give_up:
                    time.sleep(period_s / 5)
                    held = controller.to_dict()
                    is_new = len(controller.log) > begun + (place > 0)
                    crowd = max(1.0, held["level"] / best)
                    model = min(held["level"], best) / best * crowd**-0.5
                    if near is None and is_new and controller.is_settled and model >= 0.9:  # type: ignore[attr-defined]
                        near = len(controller.log) - begun
                shares[best] = running.rate(max(8 * period_s, 20 * service_s)) / reference[best]
                waited[best] = near if near is not None else periods + 1
                print(
                    f"service, best concurrency {best:>3}: {reference[best]:.0f}/s fixed, level {held['level']} "
                    f"after {waited[best]} periods, {shares[best]:.2f} of the fixed rate"
                )
    return {"shares": shares, "periods": waited}


def overheads(calls: int, rounds: int) -> dict[str, float]:
    """What a call costs: in a pool and in `concurrent.futures`, in order and without, at level 0 and plain."""
    found: dict[str, list[float]] = {"pool": [], "futures": [], "inline": [], "plain": [], "order": []}
    rows = list(range(calls))
    for _ in range(rounds):
        gc.collect()
        begun = time.perf_counter()
        plain = list(map(_same, rows))
        alone = time.perf_counter() - begun
        pool = pool_for(_same, PinnedLevel(2), 1.0)
        begun = time.perf_counter()
        results = [result for _, some in pool.run(rows) for result in some]
        found["pool"].append((time.perf_counter() - begun - alone) / calls * 1e6)
        pool.close()
        assert results == plain
        with concurrent.futures.ThreadPoolExecutor(2) as executor:
            begun = time.perf_counter()
            futures = [executor.submit(_same, row) for row in rows]
            assert [future.result() for future in futures] == plain
            found["futures"].append((time.perf_counter() - begun - alone) / calls * 1e6)
        found["order"].append(_order_cost(random.Random(1)))
    found["plain"], found["inline"] = _level_0(10_000, 8 * rounds)  # as many rows as a batch of Spark has
    return {
        "pool_us": min(found["pool"]),
        "futures_us": min(found["futures"]),
        "order": statistics.median(found["order"]),
        "level0": statistics.median(found["inline"]) / statistics.median(found["plain"]) - 1,
    }


def _same(row: int) -> int:
    return row


def _order_cost(chance: random.Random) -> float:
    """Time in order over time without, less one, for calls of which some take ten times as long."""
    delays = [0.02 if chance.random() < 0.05 else 0.002 for _ in range(1000)]
    seconds = []
    for ordered in (True, False):
        pool = pool_for(lambda at: time.sleep(delays[at]), PinnedLevel(8), 1.0)
        begun = time.perf_counter()
        for _ in pool.run(range(len(delays)), ordered=ordered):
            pass
        seconds.append(time.perf_counter() - begun)
        pool.close()
    return seconds[0] / seconds[1] - 1


def _level_0(calls: int, rounds: int) -> tuple[list[float], list[float]]:
    """CPU seconds of a plain operator and of an elastic one at level 0, over the same batches, in turn."""
    stream = ab.from_rows([(0, 0.0)], "x long, y double")
    plain_node = stream.map(lambda t: (t.x, t.y * 1.5), "x long, y double")._node
    elastic_node = stream.map(lambda t: (t.x, t.y * 1.5), "x long, y double", elastic=True)._node
    seconds: tuple[list[float], list[float]] = ([], [])
    with tempfile.TemporaryDirectory() as scratch:
        pools = Pools(HostNotes(Path(scratch)))
        pools.of(elastic_node)[0].controller = PinnedLevel(0)
        steps = BatchSteps({}, 0, pools.step)
        columns = [list(range(calls)), [float(at) for at in range(calls)]]
        nodes = [(steps.step(plain_node), plain_node, 0), (steps.step(elastic_node), elastic_node, 1)]
        for number in range(rounds + 2):
            for step, node, at in nodes if number % 2 else nodes[::-1]:
                gc.collect()
                batch = Batch(stream.schema, range(calls), columns=columns)
                begun = time.process_time()
                step(batch, node)
                if number >= 2:  # until then the interpreter and the pool learn what is done here
                    seconds[at].append(time.process_time() - begun)
        pools.close()
    return seconds


def main(arguments: list[str]) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="python -m benchmarks operators", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter periods, fewer rounds, not on Spark")
    parser.add_argument("--mini", action="store_true", help="runs everything once, says nothing")
    parser.add_argument("--only", default="", help=f"some parts, with commas: {', '.join(PARTS)}")
    chosen = parser.parse_args(arguments)
    parts = [name.strip() for name in chosen.only.split(",") if name.strip()] or list(PARTS)
    unknown = [name for name in parts if name not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if not chosen.only:
        left_out = {"mini": ("medium", "heavy", "extra heavy", "16 cores", "grids", *ON_SPARK), "quick": ON_SPARK}
        without = left_out["mini" if chosen.mini else "quick"] if chosen.mini or chosen.quick else ()
        parts = [name for name in parts if name not in without]
    period_s = 0.05 if chosen.mini else 0.3 if chosen.quick else 1.0
    figure: dict[str, Any] = {}
    rounds = 2 if chosen.mini else 12 if chosen.quick else 24
    rates = {
        name: fixed_levels(name, period_s, 0.1 if chosen.mini else 0.3 if chosen.quick else 0.5, rounds)
        for name in WORK
        if name in parts
    }
    if rates:
        figure["vs_best_fixed_min"] = round(min(each["elastic"] for each in rates.values()), 3)
        figure["vs_best_fixed"] = {name: round(each["elastic"], 3) for name, each in rates.items()}
    if "load" in parts:
        figure["follows_external_load"] = max(external_load(period_s)["periods"].values())
    if "http" in parts:
        bests = (4, 12) if chosen.mini else (8, 64, 16)
        service_s = 0.02 if chosen.mini else 0.2
        http = over_http(0.2 if chosen.mini else max(period_s, 1.0), service_s, 6 if chosen.mini else 20, bests)
        figure["http_vs_best"] = round(min(http["shares"].values()), 3)
        figure["http_periods"] = max(http["periods"].values())
    if "costs" in parts:
        costs = overheads(2_000 if chosen.mini else 20_000, 1 if chosen.mini else 5)
        print(f"a call: {costs['pool_us']:.2f} µs in a pool, {costs['futures_us']:.1f} µs in concurrent.futures")
        figure["pool_overhead_us"] = round(costs["pool_us"], 2)
        figure["futures_overhead_us"] = round(costs["futures_us"], 2)
        figure["order_overhead"] = round(costs["order"], 3)
        figure["level0_overhead"] = round(costs["level0"], 3)
    if "competing" in parts:
        for name, make in (("", default_levels), ("_paper", paper_levels)):
            shared = competing(period_s, 4 if chosen.mini else 40, make)
            figure[f"competing_total{name}"] = round(shared["total"], 3)
            figure[f"competing_fairness{name}"] = round(shared["fairness"], 3)
    if "grids" in parts:
        made = grids(6 if chosen.quick else 24, 3 if chosen.quick else 7)
        figure["shared_grid_vs_sequential"] = round(made["shared"], 3)
        figure["local_grids_vs_sequential"] = round(made["local"], 3)
    for name in ON_SPARK:
        if name in parts:
            figure.update(apart(_on_spark, name, chosen.quick))
    return figure


def _on_spark(part: str, quick: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        if part == "order":
            return order_on_spark(Path(scratch), rounds=2 if quick else 5)
        found = epochs_on_spark(Path(scratch), epochs=12 if quick else 42, epoch_s=1.2, pause_s=0.5 if quick else 1.2)
    return {
        "epochs_level": found["level_with"],
        "epochs_level_without": found["level_without"],
        "epochs_stayed": round(found["stayed"], 3),
    }
