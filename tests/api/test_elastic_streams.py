"""Elastic operators as users write them: the same output as one thread, in any stage, and clear refusals."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import sys
import tempfile
import threading
import time
import types
from typing import NamedTuple

import pytest

import anabranch as ab
from anabranch.engine.pool.process_worker import packed, unpacked
from anabranch.errors import OperatorError, ProgramError
from anabranch.testing import ParallelRun, run_parallel

CASES = int(os.environ.get("ANABRANCH_ELASTIC_CASES", "3"))


class Pair(NamedTuple):
    x: int
    n: int


def twice(t) -> Pair:
    time.sleep((t.x % 5) * 0.0004)
    return Pair(t.x, t.x * 2)


async def twice_later(t) -> Pair:
    await asyncio.sleep((t.x % 5) * 0.0004)
    return Pair(t.x, t.x * 2)


def some(t):
    for n in range(t.x % 3):
        time.sleep(0.0002)
        yield (t.x, n)


async def some_later(t):
    for n in range(t.x % 3):
        await asyncio.sleep(0)
        yield (t.x, n)


def is_odd(t) -> bool:
    time.sleep(0.0003)
    return t.x % 2 == 1


def numbers(count: int):
    return ab.from_rows([(at * 7 % 50, at) for at in range(count)], "x long, i long")


SCHEMA = "x long, n long"
FAST = {"elastic": True, "period": 0.01, "max_workers": 8}


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.map(twice, **FAST),
        lambda s: s.map(twice_later, **FAST),
        lambda s: s.flat_map(some, SCHEMA, **FAST),
        lambda s: s.flat_map(some_later, SCHEMA, **FAST),
        lambda s: s.filter(is_odd, **FAST),
        lambda s: s.map(lambda t: {"x": t.x, "n": t.i}, SCHEMA, timeout=5.0, retries=1, **FAST),
        lambda s: s.map(twice, controller="paper", **FAST),
    ],
)
def test_an_elastic_operator_gives_what_one_thread_gives(make) -> None:
    stream = make(numbers(400))
    assert run_parallel(stream, channels=3, seed=1) == stream.run_sequential()


class Totals(ab.Operator):
    total: int = ab.state(default=0)

    def process(self, t):
        self.total += t.n
        yield (t.x, self.total)


@pytest.mark.parametrize("seed", range(CASES))
def test_random_programs_with_elastic_operators_in_any_stage(seed: int) -> None:
    chance = random.Random(seed)
    stream = numbers(chance.choice((1, 90, 300)))
    stream = stream.map(twice, **FAST) if chance.random() < 0.7 else stream.map(lambda t: (t.x, t.i), SCHEMA)
    if chance.random() < 0.5:
        stream = stream.filter(is_odd, **FAST)
    if chance.random() < 0.7:
        stream = stream.process(Totals(), by="x", schema=SCHEMA)
    for _ in range(2):  # side by side in one stage
        stream = stream.flat_map(some if chance.random() < 0.5 else some_later, SCHEMA, **FAST)
    left = stream.map(twice_later, **FAST)
    merged = left.union(stream.filter(is_odd, **FAST)) if chance.random() < 0.5 else left
    assert run_parallel(merged, channels=chance.choice((1, 3)), seed=seed) == merged.run_sequential()


class Flaky:
    """Fails the first time for some tuples; its connection is made in the worker."""

    def __init__(self, log: str) -> None:
        self.log = log

    def open(self) -> None:
        self.lock = threading.Lock()  # no copy could be made of it
        self.failed: set[int] = set()
        self.tell("open")

    def close(self) -> None:
        self.tell("close")
        del self.lock

    def tell(self, what: str) -> None:
        with open(self.log, "a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    def __call__(self, t) -> Pair:
        with self.lock:
            first = t.i % 11 == 3 and t.i not in self.failed
            if first:
                self.failed.add(t.i)
        if first:
            raise ConnectionError("try again")
        return Pair(t.x, t.i)


def test_open_is_called_once_and_failures_are_retried(tmp_path) -> None:
    log = tmp_path / "log"
    stream = numbers(200).map(Flaky(str(log)), SCHEMA, elastic=True, retries=2, period=0.01)
    with tempfile.TemporaryDirectory() as scratch:
        run = ParallelRun(stream, scratch, channels=2)
        run.run_epochs()
    assert log.read_text().split() == ["open"]
    assert run.output == stream.run_sequential()
    assert log.read_text().split()[:3] == ["open", "open", "close"], "the sequential run opens and closes its own"
    told = run.progress[-1].elastic["map"]
    assert told.calls == 200 and told.retries == len([i for i in range(200) if i % 11 == 3])
    assert told.p50_ms <= told.p95_ms <= told.p99_ms


class Client:
    """Belongs to the loop it was made in, as clients of services do."""

    def __init__(self, log: str) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = log

    async def get(self, number: int) -> int:
        assert asyncio.get_running_loop() is self.loop, "used in another loop"
        await asyncio.sleep(0.0005)
        return number * 2

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        with open(self.log, "a", encoding="utf-8") as file:
            file.write("closed\n")


class AsksLater(ab.Operator):
    log: str = ""

    async def open(self) -> None:
        self.client = Client(self.log)

    async def close(self) -> None:
        await self.client.close()

    async def process(self, t):
        yield (t.x, await self.client.get(t.i))


class MadeAtOnce(AsksLater):
    def open(self) -> None:
        self.client = Client(self.log)


@pytest.mark.parametrize("kind", [AsksLater, MadeAtOnce])
def test_clients_live_in_one_loop_from_open_to_close(kind, tmp_path) -> None:
    log = tmp_path / "log"
    stream = numbers(60).process(kind(log=str(log)), schema=SCHEMA, elastic=True, max_workers=4)
    expected = [(x, 2 * i) for x, i in [(at * 7 % 50, at) for at in range(60)]]
    assert [tuple(row) for row in stream.run_sequential()] == expected
    assert log.read_text().split() == ["closed"]
    assert [tuple(row) for row in run_parallel(stream, channels=2)] == expected

    async def notebook():  # its thread has a loop that is running
        return stream.run_sequential()

    assert [tuple(row) for row in asyncio.run(notebook())] == expected


class Annotated:
    def __call__(self, t) -> Pair:
        return Pair(t.x, t.i)


def test_an_object_is_annotated_at_its_call() -> None:
    assert numbers(3).map(Annotated(), elastic=True).schema == numbers(3).map(twice, elastic=True).schema


def dies(t):
    if t.i == 7:
        os._exit(3)
    return (t.x, t.i)


def leaves(t):
    if t.i == 7:
        raise SystemExit(3)
    return (t.x, t.i)


def test_code_that_ends_its_process_is_an_error_of_the_operator() -> None:
    """Also while the first error is looked for, one call after the other."""
    processes = numbers(20).map(dies, SCHEMA, elastic=True, workers="processes", max_workers=1)
    with pytest.raises(OperatorError, match=r"ended in the middle of the call, with status 3\nfor the tuple .*i=7"):
        run_parallel(processes)
    for least in (0, 2):
        with pytest.raises(OperatorError, match=r"raised CallExited.*SystemExit"):
            run_parallel(numbers(20).map(leaves, SCHEMA, elastic=True, min_workers=least))


def test_the_first_error_is_looked_for_with_as_many_calls_as_the_epoch_had() -> None:
    def slow(t):
        time.sleep(0.02)
        if t.i >= 390:
            raise ValueError(f"no {t.i}")
        return (t.x, t.i)

    def picky(t):
        if t.n == 387:
            raise KeyError(t.n)
        return True

    begun = time.perf_counter()
    # Whoever runs batches meets the error of the map first, and one thread that of the filter behind it.
    stream = numbers(400).map(slow, SCHEMA, elastic=True, min_workers=32).filter(picky)
    with pytest.raises(OperatorError, match="KeyError: 387"):
        run_parallel(stream)
    assert time.perf_counter() - begun < 5.0, "one after the other they take eight seconds"


class Passes(ab.Operator):
    last: int = ab.state(default=0)

    def process(self, t):
        self.last = t.i
        yield (t.x, t.i)


def test_the_first_error_in_order_is_told_with_its_tuple() -> None:
    def fails(t) -> Pair:
        if t.i >= 20:
            time.sleep(0.02 if t.i == 20 else 0)
            raise ValueError(f"no {t.i}")
        return Pair(t.x, t.i)

    stream = numbers(60).process(Passes(), by="x", schema="x long, i long").map(fails, elastic=True, min_workers=4)
    with pytest.raises(OperatorError, match="no 20"):
        run_parallel(stream, channels=1)
    with pytest.raises(OperatorError, match="no 20"):
        stream.run_sequential()


def test_what_does_not_fit_is_told_as_for_a_plain_operator() -> None:
    def wrong(t):
        if t.i == 30:
            raise ValueError("later")
        return (t.x, "text" if t.i == 7 else t.i)

    passed = numbers(60).process(Passes(), by="x", schema="x long, i long")
    stream = passed.map(wrong, SCHEMA, elastic=True, min_workers=4, retries=3)
    with pytest.raises(OperatorError, match="wrong type"):
        run_parallel(stream, channels=1)


def test_a_function_that_blocks_for_ever_is_an_error_with_a_timeout() -> None:
    def blocks(t) -> Pair:
        if t.i == 5:
            threading.Event().wait()
        return Pair(t.x, t.i)

    stream = numbers(10).map(blocks, elastic=True, timeout=0.1)
    for run in (run_parallel, lambda each: each.run_sequential()):
        with pytest.raises(OperatorError, match=r"longer than timeout=0\.1 seconds"):
            run(stream)


def test_a_python_without_its_lock_has_threads_instead_of_processes(monkeypatch, tmp_path) -> None:
    from anabranch.engine.pool.process_crew import ProcessCrew
    from anabranch.engine.pool.thread_crew import ThreadCrew
    from anabranch.engine.worker.worker_pools import HostNotes, Pools

    node = numbers(3).map(twice, elastic=True, workers="processes", max_workers=2)._node
    for is_locked, kind in ((True, ProcessCrew), (False, ThreadCrew)):
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda is_locked=is_locked: is_locked, raising=False)
        pools = Pools(HostNotes(tmp_path))
        assert type(pools.of(node)[0]._crew) is kind
        pools.close()


def test_a_process_that_rested_takes_over_what_another_found(tmp_path) -> None:
    from anabranch.engine.worker.batch import Batch
    from anabranch.engine.worker.batches import BatchSteps
    from anabranch.engine.worker.worker_pools import HostNotes, Pools, note_name

    source = numbers(3)
    node = source.map(twice, elastic=True, period=0.01)._node
    pools = Pools(HostNotes(tmp_path))
    rows = [source.schema.row_class(each) for each in ((1, 2), (3, 4))]

    def task(epoch: int) -> int:
        BatchSteps({}, epoch, pools.step).step(node)(Batch(source.schema, range(2), rows), node)
        return pools.of(node)[0].level

    assert task(1) == 0
    note = {"level": 9, "rate": 1e6, "settled": True, "period": 30}
    path = tmp_path / f"{note_name(node)}-99999.json"  # of another process
    path.write_text(json.dumps(note))
    os.utime(path, (time.time() - 60, time.time() - 60))
    assert task(2) == 0, "what is older than its own is nothing new"
    os.utime(path, (time.time() + 1, time.time() + 1))
    assert task(3) == 9
    path.write_text(json.dumps({**note, "level": 4, "settled": False}))
    os.utime(path, (time.time() + 2, time.time() + 2))
    assert task(4) == 9, "whoever is searching has found nothing yet"
    pools.close()


def scattered(t: object) -> set[int]:
    """A set that is gone through in the order of a table that was once larger."""
    found = set(range(40, 0, -1))
    for each in range(40):
        if each % 7 != t.x % 7:  # type: ignore[attr-defined]
            found.discard(each)
    return {each for each in found if each} | {64 + t.x, t.x}  # type: ignore[attr-defined]


def knows_nan(t: object) -> tuple[int, float]:
    return int(t.y is math.nan), t.y  # type: ignore[attr-defined]


def in_order(t: object) -> list[tuple[int]]:
    return [(each,) for each in scattered(t)]


def test_sets_and_nans_travel_to_processes_and_back_as_they_are() -> None:
    stream = ab.from_rows([(n, math.nan if n % 2 else n / 2) for n in range(12)], "x long, y double")
    nans = stream.map(knows_nan, "same long, y double", elastic=True, workers="processes", max_workers=2)
    assert [row.same for row in run_parallel(nans)] == [n % 2 for n in range(12)]
    assert repr(run_parallel(nans)) == repr(nans.run_sequential())
    numbers = stream.flat_map(in_order, "n long", elastic=True, workers="processes", max_workers=2)
    assert run_parallel(numbers) == numbers.run_sequential()
    for n in range(12):
        found = scattered(types.SimpleNamespace(x=n))
        assert list(unpacked(packed(found))) == list(found)


def test_processes_give_the_same() -> None:
    stream = numbers(30).map(twice, elastic=True, workers="processes", max_workers=2)
    assert run_parallel(stream) == stream.run_sequential()


class Count(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.x, self.seen)


class HalfAsync(ab.Operator):
    async def open(self) -> None: ...

    def process(self, t):
        yield (t.x, t.i)


SEEN: dict[int, int] = {}


def remembers(t) -> Pair:
    SEEN[t.x] = t.i
    return Pair(t.x, len(SEEN))


class Adds:
    def __init__(self) -> None:
        self.total = 0

    def __call__(self, t) -> Pair:
        self.total += t.x
        return Pair(t.x, self.total)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda s: s.process(Count(), by="x", schema=SCHEMA, elastic=True), r"cannot be elastic: it declares state"),
        (lambda s: s.process(Count(), schema=SCHEMA, elastic=True), r"cannot be elastic: it declares state \(seen\)"),
        (lambda s: s.map(remembers, elastic=True).plan(), r"cannot be elastic, because it has state: .*SEEN"),
        (lambda s: s.map(Adds(), SCHEMA, elastic=True).plan(), r"cannot be elastic, because it has state: .*total"),
        (lambda s: s.process(HalfAsync(), schema=SCHEMA, elastic=True), r"open\(\) is async, and the calls are not"),
        (lambda s: s.map(twice, elastic=True, max_workers=0), r"max_workers=0: expected a whole number from 1"),
        (lambda s: s.map(twice, elastic=True, min_workers=9, max_workers=2), "the least is more than the most"),
        (lambda s: s.map(twice, elastic=True, timeout=0), "timeout=0: expected a positive number"),
        (lambda s: s.map(twice, elastic=True, retries=-1), "retries=-1"),
        (lambda s: s.map(twice, elastic=True, workers="fibres"), "'threads' or 'processes'"),
        (lambda s: s.map(twice_later, elastic=True, workers="threads"), "runs on an event loop"),
        (lambda s: s.map(twice, max_workers=4), "add elastic=True"),
        (lambda s: s.map(twice, elastic="yes"), "expected True or False"),
        (lambda s: s.map(twice, elastic=True, wokers="threads"), "no such argument wokers"),
        (lambda s: s.filter(is_odd, elastic=True, controller="pid"), "'default' or 'paper'"),
        (lambda s: s.process(Pair, elastic=True), "give an instance"),
        (lambda s: s.process(ab.Operator(), elastic=True, schema=SCHEMA), "has no process"),
        (lambda s: s.map(twice_later, schema=SCHEMA), "elastic=True"),
    ],
)
def test_bad_input_is_refused_with_the_reason(make, says: str) -> None:
    with pytest.raises(ProgramError, match=says):
        make(numbers(3))


def test_a_connection_that_cannot_be_sent_is_refused_with_the_remedy() -> None:
    lock = threading.Lock()

    def holds(t) -> Pair:
        with lock:
            return Pair(t.x, t.i)

    with pytest.raises(ProgramError, match=r"copy can be sent to workers.*open\(\)"):
        run_parallel(numbers(3).map(holds, elastic=True))


def test_explain_shows_it() -> None:
    plan = numbers(3).map(twice, elastic=True, max_workers=7, timeout=2.0, retries=3).plan()
    assert "elastic      threads, at most 7, at least 1, 2 s for a call, 3 retries" in plan.explain()
    assert '"max_workers": 7' in plan.explain("json")
