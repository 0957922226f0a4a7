"""Elastic operators where order was given up: results leave as they come, and are those of one thread."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import threading
import time
from collections import Counter

import pytest

import anabranch as ab
from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.pool_run import CallFailed
from anabranch.engine.pool.thread_crew import ThreadCrew
from anabranch.errors import OperatorError, ProgramError
from anabranch.program.elastic import Concurrency
from anabranch.testing import ParallelRun, run_parallel
from tests.engine.test_pool import Fixed, Wandering, Work, pool_of

CASES = int(os.environ.get("ANABRANCH_ELASTIC_CASES", "4"))
SCHEMA = "x long, n long"
FAST = {"elastic": True, "period": 0.01, "max_workers": 8}


# -- rows that are fed --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3 * CASES))
@pytest.mark.parametrize("kind", ["threads", "async"])
def test_what_is_fed_comes_back_once_whatever_happens(seed: int, kind: str) -> None:
    chance = random.Random(seed)
    rows, retries = chance.choice((1, 40, 200)), chance.choice((0, 2))
    doomed = chance.choice((0, 0, min(rows, 2)))
    work = Work(seed, rows, retries=retries, doomed=doomed)
    settings = Concurrency(retries=retries, backoff_s=0.002, period_s=0.01)
    most = chance.choice((1, 4, 16))
    pool = pool_of(work, kind, Wandering(seed, 0 if kind == "threads" else 1, most), settings, chance.choice((8, 4096)))
    feeding = pool.feeding()
    found: dict[int, list[int]] = {}

    def take(some) -> None:
        for first, chunk, results in some:
            assert chunk[0] == first
            for at, result in enumerate(results, first):
                assert at not in found, "twice"
                found[at] = result

    failing = {at for at in range(rows) if work.failures[at] > 10**5}
    at = 0
    try:
        while at < rows:
            stop = min(rows, at + chance.choice((1, 3, 50)))
            take(feeding.feed(list(range(at, stop))))
            at = stop
            if chance.random() < 0.1:
                list(pool.run([]))  # the pool is free for others meanwhile
        take(feeding.finish())
        assert not failing
    except CallFailed as failure:
        assert failure.index in failing and failure.row == failure.index
    if not failing:
        assert found == {at: work.expected(at) for at in range(rows)}
    assert work.most <= max(1, most)
    pool.close()


def test_a_slow_call_does_not_hold_up_the_batches_behind_it() -> None:
    release = threading.Event()

    def many(rows, results) -> None:
        for row in rows:
            if row == 0:
                release.wait(20)
            results.append(row)

    pool = Pool(ThreadCrew(many), many, Concurrency(1), Fixed(3))
    feeding = pool.feeding()
    came = []
    for batch in range(10):
        came += feeding.feed(list(range(10 * batch, 10 * batch + 10)))
        time.sleep(0.002)
    done = [row for _, _, results in came for row in results]
    assert 0 not in done and len(done) > 60, "nine batches behind a call that hangs"
    release.set()
    done += [row for _, _, results in feeding.finish() for row in results]
    assert sorted(done) == list(range(100))
    pool.close()


# -- in programs --------------------------------------------------------------------------------------------


def twice(t):
    time.sleep((t.i % 5) * 0.0006)
    return (t.x, t.i * 2)


async def twice_later(t):
    await asyncio.sleep((t.i % 5) * 0.0006)
    return (t.x, t.i * 2)


def some(t):
    time.sleep(0.0003)
    return [(t.x, n) for n in range(t.n % 3)]


def is_odd(t) -> bool:
    time.sleep(0.0003)
    return t.n % 4 != 2


class Sums(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.n
        yield (t.x, self.total)


@ab.model(ordering="tolerant")
class Counts(ab.Operator):
    count: int = ab.state(default=0)

    def process(self, t):
        self.count += 1
        yield (t.x, self.count)


def numbers(count: int):
    return ab.from_rows([(at * 7 % 5, at) for at in range(count)], "x long, i long", rows_per_epoch=60)


def run(stream, channels: int, order: str, seed: int = 0) -> ParallelRun:
    with tempfile.TemporaryDirectory() as scratch:
        made = ParallelRun(stream, scratch, channels=channels, seed=seed, orders=[order])
        made.run_epochs()
    return made


@pytest.mark.parametrize("seed", range(2 * CASES))
def test_random_programs_give_the_tuples_of_one_thread_in_any_order(seed: int) -> None:
    chance = random.Random(seed)
    stream = numbers(chance.choice((1, 150))).map(chance.choice((twice, twice_later)), SCHEMA, **FAST)
    if chance.random() < 0.5:
        stream = stream.filter(is_odd, **FAST)
    if chance.random() < 0.6:
        stream = stream.process(chance.choice((Sums, Counts))(), by="x", schema=SCHEMA)
    if chance.random() < 0.6:
        stream = stream.flat_map(some, SCHEMA, on_error=chance.choice((None, "skip")), **FAST)
    found = run(stream, chance.choice((1, 3)), "none", seed).output
    assert Counter(map(tuple, found)) == Counter(map(tuple, stream.run_sequential()))


def unordered(stream, *orders: str) -> dict[str, bool]:
    from anabranch.compiler.layout.order_needs import with_needed_order
    from anabranch.program.model import OutputOrder

    layout = with_needed_order(stream.plan().layout, [OutputOrder(order) for order in orders])
    return {step.node.name: step.unordered for step in layout.steps}


def test_results_leave_as_they_come_only_where_nobody_minds() -> None:
    asked = numbers(9).map(twice, SCHEMA, name="asked", **FAST)
    assert not unordered(asked)["asked"] and not unordered(asked, "total")["asked"]
    assert unordered(asked, "none")["asked"]
    behind = asked.process(Sums(), by="x", schema=SCHEMA).map(lambda t: (t.x, t.n), SCHEMA, name="after", **FAST)
    assert unordered(behind, "none") == {**unordered(behind), "asked": False, "after": True}
    assert not unordered(behind, "key")["after"]
    tolerant = asked.process(Counts(), by="x", schema=SCHEMA)
    assert unordered(tolerant, "none")["asked"] and not unordered(tolerant, "total")["asked"]


def test_it_really_leaves_out_of_order() -> None:
    def slow_first(t):
        time.sleep(0.05 if t.i % 20 == 0 else 0)
        return (t.x, t.i)

    stream = numbers(60).map(slow_first, SCHEMA, elastic=True, min_workers=4, max_workers=4)
    found = [row.n for row in run(stream, 1, "none").output]
    assert found != sorted(found) and sorted(found) == list(range(60))
    assert [row.n for row in run(stream, 1, "total").output] == list(range(60))


def test_the_first_error_in_order_is_told_all_the_same() -> None:
    def fails(t):
        time.sleep(0.01 if t.i == 7 else 0)
        if t.i in (7, 9, 30):
            raise ValueError(f"no {t.i}")
        return (t.x, t.i)

    stream = numbers(60).map(fails, SCHEMA, elastic=True, min_workers=4)
    with pytest.raises(OperatorError, match="no 7"):
        run(stream, 2, "none")


# -- state under a lock of the operator's own ---------------------------------------------------------------


class Numbers(ab.Operator):
    """Numbers its tuples, whichever comes first."""

    def open(self) -> None:
        self.lock = threading.Lock()
        self.count = 0

    def process(self, t):
        with self.lock:
            self.count += 1
            mine = self.count
        time.sleep(0.0005)
        yield (t.x, mine)


def test_state_under_its_own_lock_where_order_is_given_up() -> None:
    stream = numbers(60).process(Numbers(), schema=SCHEMA, state="locked", min_workers=4, elastic=True)
    assert sorted(row.n for row in run(stream, 1, "none").output) == list(range(1, 61)), "no update is lost"
    assert "one in each worker process, it is in no checkpoint, and a crash loses it" in " ".join(
        stream.plan().explain().split()
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s: run_parallel(s.process(Numbers(), schema=SCHEMA, elastic=True)), "has state.*count.*state='locked'"),
        (
            lambda s: run_parallel(s.process(Numbers(), schema=SCHEMA, elastic=True, state="locked")),
            r"order of its results must be given up.*an output that it leads to is in order.*option\('order', 'none'\)",
        ),
        (
            lambda s: run(
                s.process(Numbers(), schema=SCHEMA, elastic=True, state="locked").process(
                    Sums(), by="x", schema=SCHEMA
                ),
                1,
                "none",
            ),
            "Sums.* needs its tuples in order",
        ),
        (lambda s: s.map(twice, SCHEMA, elastic=True, state="kept"), "expected 'locked'"),
        (lambda s: s.map(twice, SCHEMA, elastic=True, state="locked", workers="processes"), "does not reach other"),
        (lambda s: s.process(Sums(), by="x", schema=SCHEMA, elastic=True, state="locked"), "it declares state"),
    ],
)
def test_other_state_is_refused_with_the_reason(make, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        make(numbers(3))
