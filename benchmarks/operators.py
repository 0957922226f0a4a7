"""Elastic operators: is the level that is found as good as the best fixed one, on this machine and against a service?

- *Light, medium, heavy, extra heavy* (1, 1,000, 10,000 and 10⁶ floating point operations per tuple, as in *Operators*),
  and work that stands for a machine of 4 and of 16 cores: sleeping under so many permits. Elastic after settling beside
  every fixed level, in turn.
- *External load* (Figure 6): another program takes most of the permits and gives them back; in how many periods the
  level follows, both ways.
- *Four operators* that compete for one machine (Figure 7): how equally they share it, and what all do together.
- *A service over HTTP* in a process of its own, whose best concurrency is 8, then 64, then 16.
- What a call costs beside `concurrent.futures`, what order costs, what level 0 costs beside a plain operator.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.batches import BatchSteps
from anabranch.engine.worker.worker_pools import HostNotes, Pools
from benchmarks._http_service import RunningService
from benchmarks._pool_runs import (
    Permits,
    PinnedLevel,
    Running,
    default_levels,
    fixed,
    floating_point,
    paper_levels,
    pool_for,
)

WORK = {
    "light": lambda: floating_point(1),
    "medium": lambda: floating_point(1_000),
    "heavy": lambda: floating_point(10_000),
    "extra heavy": lambda: floating_point(1_000_000),
    "4 cores": lambda: Permits(4, 0.004),
    "16 cores": lambda: Permits(16, 0.02),
}
LEVELS = {"4 cores": (0, 2, 4, 8), "16 cores": (8, 16, 32)}


def settled(running: Running, periods: int, period_s: float) -> int:
    """Wait until the level is held; how many periods that took, at most so many."""
    for _ in range(periods * 4):
        time.sleep(period_s / 4)
        if running.pool.controller.is_settled:  # type: ignore[attr-defined]
            break
    return len(running.pool.controller.log)


def fixed_levels(names: Sequence[str], period_s: float, rounds: int) -> dict[str, dict[str, Any]]:
    """Work → rates of fixed levels, of the default and of the paper's controller, each over the best fixed one."""
    found = {}
    for name in names:
        work = WORK[name]()
        fixed_rates: dict[int, list[float]] = {level: [] for level in LEVELS.get(name, (0, 1, 2, 4))}
        ours: list[float] = []
        level = 0
        with Running(pool_for(work, default_levels(), period_s)) as elastic:
            settled(elastic, 3 if rounds == 1 else 25, period_s)
        controller = elastic.pool.controller
        for _ in range(rounds):  # in turn, because the machine is not ours alone
            for at, rates in fixed_rates.items():
                with fixed(work, at) as running:
                    running.rate(period_s / 5)
                    rates.append(running.rate(period_s))
            with Running(pool_for(work, controller, period_s)) as elastic:
                elastic.rate(period_s / 5)
                ours.append(elastic.rate(6 * period_s))  # with the looks at other levels that it takes
                level = elastic.pool.level
        best = {at: statistics.median(rates) for at, rates in fixed_rates.items()}
        most = max(best.values())
        found[name] = {
            "elastic": statistics.median(ours) / most,
            "level": level,
            "best_fixed": max(best, key=best.__getitem__),
            "rate": most,
        }
        print(
            f"{name:>12}: best fixed level {found[name]['best_fixed']:>3} with {most:,.0f}/s; elastic at level {level} "
            f"{found[name]['elastic']:.2f} of that"
        )
    return found


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
    parser.add_argument("--quick", action="store_true", help="shorter periods, fewer rounds")
    parser.add_argument("--mini", action="store_true", help="runs everything once, says nothing")
    chosen = parser.parse_args(arguments)
    period_s = 0.05 if chosen.mini else 0.3 if chosen.quick else 1.0
    work = ("light", "4 cores") if chosen.mini else tuple(WORK)
    rates = fixed_levels(work, max(0.1, period_s / 2), 1 if chosen.mini else 3)
    load = external_load(period_s)
    shared = competing(period_s, 4 if chosen.mini else 40)
    paper = competing(period_s, 4 if chosen.mini else 40, paper_levels)
    bests = (4, 12) if chosen.mini else (8, 64, 16)
    service_s = 0.02 if chosen.mini else 0.2
    http = over_http(0.2 if chosen.mini else max(period_s, 1.0), service_s, 6 if chosen.mini else 20, bests)
    costs = overheads(2_000 if chosen.mini else 20_000, 1 if chosen.mini else 5)
    print(f"a call: {costs['pool_us']:.1f} µs in a pool, {costs['futures_us']:.1f} µs in concurrent.futures")
    return {
        "vs_best_fixed_min": round(min(each["elastic"] for each in rates.values()), 3),
        "vs_best_fixed": {name: round(each["elastic"], 3) for name, each in rates.items()},
        "follows_external_load": max(load["periods"].values()),
        "http_vs_best": round(min(http["shares"].values()), 3),
        "http_periods": max(http["periods"].values()),
        "pool_overhead_us": round(costs["pool_us"], 2),
        "futures_overhead_us": round(costs["futures_us"], 2),
        "order_overhead": round(costs["order"], 3),
        "level0_overhead": round(costs["level0"], 3),
        "competing_total": round(shared["total"], 3),
        "competing_fairness": round(shared["fairness"], 3),
        "competing_total_paper": round(paper["total"], 3),
        "competing_fairness_paper": round(paper["fairness"], 3),
    }
