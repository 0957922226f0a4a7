"""A pool gives what one call after the other gives: under any delays, failures, retries and changes of the level."""

from __future__ import annotations

import asyncio
import os
import queue
import random
import threading
import time
from collections import Counter

import pytest

from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.elastic_call import BACKOFF_MAX_S, CallTimeout, backoff_s
from anabranch.engine.pool.loop_crew import EventLoop, LoopCrew
from anabranch.engine.pool.metering import Latencies, Meter
from anabranch.engine.pool.pool_run import CallFailed
from anabranch.engine.pool.process_crew import ProcessCrew, WorkerDied
from anabranch.engine.pool.thread_crew import ThreadCrew
from anabranch.engine.pool.work import CallExited, Chunk
from anabranch.program.elastic import Concurrency, LoopBlocked

CASES = int(os.environ.get("ANABRANCH_POOL_CASES", "12"))
LOOP = EventLoop()


class Wandering:
    """A controller that goes anywhere at any time."""

    is_looking = False
    collapsed_below = 0.0
    log = ()

    def __init__(self, seed: int, least: int, most: int) -> None:
        self._random = random.Random(seed)
        self._least, self._most = least, most
        self.level = self._random.randint(least, most)
        self.periods = 0

    def handle(self, rate: float) -> None:
        self.periods += 1
        self.level = self._random.randint(self._least, self._most)

    def to_dict(self):
        return {}

    def restore(self, memory):
        pass


class Work:
    """A function with a course of its own for each row: how long, how often it fails, if ever it succeeds."""

    def __init__(self, seed: int, rows: int, *, retries: int, doomed: int) -> None:
        chance = random.Random(seed)
        self.delays = [chance.choice((0.0, 0.0, 0.001, 0.004)) for _ in range(rows)]
        self.failures = [chance.choice((0, 0, 0, 1, retries)) if retries else 0 for _ in range(rows)]
        for at in chance.sample(range(rows), doomed):
            self.failures[at] = 10**6
        self.attempts: Counter[int] = Counter()
        self.lock = threading.Lock()
        self.under_way = self.most = 0

    def expected(self, row: int) -> list[int]:
        return [row * 10 + n for n in range(row % 3)]

    def begin(self, row: int) -> None:
        with self.lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.attempts[row] += 1

    def end(self, row: int) -> list[int]:
        with self.lock:
            self.under_way -= 1
        if self.attempts[row] <= self.failures[row]:
            raise ValueError(f"row {row}")
        return self.expected(row)

    def many(self, rows, results) -> None:
        for row in rows:
            self.begin(row)
            time.sleep(self.delays[row])
            results.append(self.end(row))

    async def one(self, row):
        self.begin(row)
        await asyncio.sleep(self.delays[row])
        return self.end(row)


def pool_of(work: Work, kind: str, controller, settings: Concurrency, window: int = 4096) -> Pool:
    crew = ThreadCrew(work.many) if kind == "threads" else LoopCrew(work.one, LOOP.get())
    return Pool(crew, work.many, settings, controller, window=window)


@pytest.mark.parametrize("seed", range(CASES))
@pytest.mark.parametrize("kind", ["threads", "async"])
def test_results_are_those_of_one_call_after_the_other(seed: int, kind: str) -> None:
    chance = random.Random(seed)
    rows, retries = chance.choice((1, 7, 300)), chance.choice((0, 2))
    doomed = chance.choice((0, 0, min(rows, 3)))
    most = chance.choice((1, 4, 16))
    work = Work(seed, rows, retries=retries, doomed=doomed)
    controller = Wandering(seed, 0 if kind == "threads" else 1, most)
    settings = Concurrency(retries=retries, backoff_s=0.002, period_s=0.01)
    pool = pool_of(work, kind, controller, settings, window=chance.choice((8, 4096)))
    ordered = chance.random() < 0.7
    found: dict[int, list[int]] = {}
    first_failure = next((at for at in range(rows) if work.failures[at] > 10**5), None)
    try:
        for first, results in pool.run(range(rows), ordered=ordered):
            if ordered:
                assert first == len(found)
            for at, result in enumerate(results, first):
                assert at not in found, "twice"
                found[at] = result
        assert first_failure is None
    except CallFailed as failure:
        assert failure.index == first_failure
        assert set(range(first_failure)) <= set(found)
    for at in range(rows if first_failure is None else first_failure):
        assert found[at] == work.expected(at)
        assert work.attempts[at] == work.failures[at] + 1, "a call that succeeded is never made again"
    assert work.most <= max(1, most)
    pool.close()


def test_levels_really_changed_under_way() -> None:
    work = Work(1, 600, retries=0, doomed=0)
    controller = Wandering(1, 0, 8)
    pool = pool_of(work, "threads", controller, Concurrency(period_s=0.005))
    assert [r for _, some in pool.run(range(600)) for r in some] == [work.expected(at) for at in range(600)]
    assert controller.periods > 3 and work.most > 1


class Fixed(Wandering):
    def __init__(self, level: int) -> None:
        super().__init__(0, level, level)


def test_memory_is_bounded_while_the_oldest_call_hangs() -> None:
    gate = threading.Event()
    begun: list[int] = []

    def many(rows, results):
        for row in rows:
            begun.append(row)
            if row == 0:
                gate.wait(10)
            results.append(row)

    pool = Pool(ThreadCrew(many), many, Concurrency(), Fixed(4), window=50)
    out: list[int] = []
    thread = threading.Thread(target=lambda: [out.extend(some) for _, some in pool.run(range(10_000))])
    thread.start()
    time.sleep(0.3)
    assert max(begun) < 50 + 512, "no more than a window and a chunk ahead"
    gate.set()
    thread.join(10)
    assert out == list(range(10_000))


def test_without_order_a_slow_call_holds_up_nobody() -> None:
    gate = threading.Event()

    def many(rows, results):
        for row in rows:
            if row == 0:
                gate.wait(10)
            results.append(row)

    pool = Pool(ThreadCrew(many), many, Concurrency(timeout_s=20.0), Fixed(4), window=50)
    run = pool.run(range(300), ordered=False)
    early = [row for _, some in (next(run) for _ in range(299)) for row in some]
    gate.set()
    rest = [row for _, some in run for row in some]
    assert 0 not in early and rest == [0] and sorted(early + rest) == list(range(300))


def test_a_call_that_hangs_is_given_up_and_made_again_and_its_late_result_is_dropped() -> None:
    attempts: Counter[int] = Counter()
    release = threading.Event()

    def many(rows, results):
        for row in rows:
            attempts[row] += 1
            if row == 5 and attempts[row] == 1:
                release.wait(5)
                results.append("late")
            else:
                results.append(row)

    pool = Pool(ThreadCrew(many), many, Concurrency(1, timeout_s=0.1, retries=1, backoff_s=0.01), Fixed(3))
    assert [r for _, some in pool.run(range(20)) for r in some] == list(range(20))
    release.set()
    time.sleep(0.05)
    assert [r for _, some in pool.run(range(20, 60)) for r in some] == list(range(20, 60))
    assert pool.take_counts().timeouts == 1


def test_a_function_that_blocks_for_ever_ends_the_run_with_an_error() -> None:
    def many(rows, results):
        threading.Event().wait()

    pool = Pool(ThreadCrew(many), many, Concurrency(1, timeout_s=0.05), Fixed(2))
    with pytest.raises(CallFailed) as caught:
        list(pool.run(range(10)))
    assert caught.value.index == 0 and isinstance(caught.value.problem, CallTimeout)


def test_calls_that_seem_to_block_are_told_in_the_log(monkeypatch, caplog) -> None:
    monkeypatch.setattr("anabranch.engine.pool.pool_run.QUIET_S", 0.03)

    def many(rows, results):
        time.sleep(0.2)
        results.extend(rows)

    pool = Pool(ThreadCrew(many), many, Concurrency(1, period_s=0.02), Fixed(1), name="asks (program.py:3)")
    assert [r for _, some in pool.run(range(1)) for r in some] == [0]
    assert "no call of the elastic operator asks (program.py:3) has ended for 0.03 s; without timeout=" in caplog.text
    pool.close()


def test_retries_wait_longer_each_time_and_not_all_as_long() -> None:
    settings = Concurrency(retries=9, backoff_s=0.1)
    for attempt in range(1, 14):
        waits = [backoff_s(settings, attempt) for _ in range(200)]
        longest = min(BACKOFF_MAX_S, 0.1 * 2 ** (attempt - 1))
        assert 0.5 * longest <= min(waits) < 0.6 * longest < 0.9 * longest < max(waits) <= longest


def test_an_async_function_that_blocks_the_loop_is_told_apart(monkeypatch) -> None:
    monkeypatch.setattr("anabranch.engine.pool.loop_crew.BLOCKED_S", 0.1)

    async def one(row):
        time.sleep(0.6)

    pool = Pool(LoopCrew(one, EventLoop().get()), lambda rows, results: None, Concurrency(1, timeout_s=0.05), Fixed(2))
    with pytest.raises(CallFailed) as caught:
        list(pool.run(range(3)))
    assert isinstance(caught.value.problem, LoopBlocked)


def test_work_that_is_dropped_is_that_of_one_run() -> None:
    async def one(row):
        return row

    loop = EventLoop().get()
    crew = LoopCrew(one, loop)
    gate, stopped = threading.Event(), threading.Event()
    loop.call_soon_threadsafe(lambda: (stopped.set(), gate.wait()))  # the loop is late, as it is on a busy machine
    stopped.wait()
    crew.set_level(2)
    before, after = queue.SimpleQueue(), queue.SimpleQueue()
    crew.put(Chunk(0, [1], before))
    crew.drop(before)
    new = Chunk(0, [2], after)
    crew.put(new)
    gate.set()
    assert after.get(timeout=10) is new and new.results == [2]
    assert before.empty() and crew.busy == 0


@pytest.mark.parametrize("kind", ["threads", "async"])
def test_a_run_that_begins_right_after_a_failed_one_ends(kind: str) -> None:
    level = 4

    def begin(row: int) -> int:
        if row == 3:
            raise ValueError("three")
        return row

    def many(rows, results) -> None:
        for row in rows:
            time.sleep(0.0005)
            results.append(begin(row))

    async def one(row):
        await asyncio.sleep(0.0005)
        return begin(row)

    crew = ThreadCrew(many) if kind == "threads" else LoopCrew(one, LOOP.get())
    pool = Pool(crew, many, Concurrency(1, period_s=0.01), Fixed(level))
    for _ in range(25):
        with pytest.raises(CallFailed):
            list(pool.run(range(12)))
        assert [r for _, some in pool.run(range(10, 30)) for r in some] == list(range(10, 30))
    pool.close()


@pytest.mark.parametrize("kind", ["threads", "async"])
def test_a_call_that_wants_to_end_the_program_is_a_call_that_failed(kind: str) -> None:
    def many(rows, results) -> None:
        for row in rows:
            if row == 5:
                raise SystemExit(1)
            results.append(row)

    async def one(row):
        results: list[int] = []
        many([row], results)
        return results[0]

    crew = ThreadCrew(many) if kind == "threads" else LoopCrew(one, EventLoop().get())
    pool = Pool(crew, many, Concurrency(1), Fixed(2))
    with pytest.raises(CallFailed) as caught:
        list(pool.run(range(10)))
    assert caught.value.index == 5 and isinstance(caught.value.problem, CallExited)
    assert [r for _, some in pool.run(range(6, 20)) for r in some] == list(range(6, 20)), "and the crew goes on"
    pool.close()


def test_suspended_workers_are_kept_and_woken() -> None:
    crew = ThreadCrew(lambda rows, results: results.extend(rows))
    crew.set_level(5)
    crew.set_level(1)
    crew.set_level(4)
    assert crew.created == 5
    pool = Pool(crew, lambda rows, results: results.extend(rows), Concurrency(), Fixed(3))
    assert [r for _, some in pool.run(range(100)) for r in some] == list(range(100))
    assert crew.created == 5


class InProcess:
    """What worker processes are sent: dies, or sleeps, when a row says so, the first time."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def open(self) -> None:
        self.opened = os.getpid()

    def close(self) -> None:
        pass

    def rows(self, values):
        return values

    def values(self, row):
        return row

    def many(self, rows, results) -> None:
        for row in rows:
            mark = f"{self.directory}/{row}"
            if row == 3 and not os.path.exists(mark):
                open(mark, "w").close()
                os._exit(9)
            if row == 5 and not os.path.exists(mark):
                open(mark, "w").close()
                time.sleep(60)
            if row == 99:
                raise ValueError("bad row")
            results.append((row, self.opened != 0))


def test_processes_that_die_or_hang_lose_nothing_and_double_nothing(tmp_path) -> None:
    calls = InProcess(str(tmp_path))
    settings = Concurrency(1, timeout_s=1.0, retries=1, backoff_s=0.01)
    crew = ProcessCrew(calls, calls.values)
    pool = Pool(crew, calls.many, settings, Fixed(2))
    assert [r for _, some in pool.run(range(8)) for r in some] == [(row, True) for row in range(8)]
    with pytest.raises(CallFailed) as caught:
        list(pool.run([99]))
    assert "bad row" in str(caught.value.problem) and caught.value.problem.__notes__
    pool.close()


def test_a_process_that_dies_for_good_is_an_error_that_says_so(tmp_path) -> None:
    calls = InProcess(str(tmp_path))
    pool = Pool(ProcessCrew(calls, calls.values), calls.many, Concurrency(1), Fixed(1))
    with pytest.raises(CallFailed) as caught:
        list(pool.run([3]))
    assert isinstance(caught.value.problem, WorkerDied) and "status 9" in str(caught.value.problem)
    pool.close()


# -- periods ------------------------------------------------------------------------------------------------


def test_a_period_counts_only_while_the_queue_was_full() -> None:
    meter = Meter(1.0)
    meter.new_level(4, 0.0)
    now = 0.0
    for epoch in range(4):  # epochs of 0.3 s with calls of 1 ms, and pauses of ten times that
        now = epoch * 3.3
        meter.resume(now)
        for _ in range(300):
            now += 0.001
            meter.ended(now - 0.001, 0.001, 4, now)
        assert meter.is_over(now) == (epoch == 3)
        meter.pause(now)
    assert meter.rate() == pytest.approx(4000, rel=0.05)


def test_calls_that_end_in_waves_have_the_rate_of_their_level() -> None:
    meter = Meter(1.0)
    meter.new_level(64, 0.0)
    meter.resume(0.0)
    for wave in range(1, 6):
        for _ in range(64):
            meter.ended(wave * 0.22 - 0.22, 0.22, 1, wave * 0.22)
    assert meter.is_over(1.1)
    assert meter.rate() == pytest.approx(64 / 0.22)


def test_a_service_that_serves_the_last_first_does_not_look_fast() -> None:
    meter = Meter(1.0)
    meter.new_level(64, 0.0)
    meter.resume(0.0)
    for number in range(1, 101):  # 100 calls a second, each of them short: the others have been waiting from the start
        meter.ended(number * 0.01 - 0.03, 0.03, 1, number * 0.01)
    assert meter.is_over(1.0)
    assert meter.rate() == pytest.approx(100, rel=0.02)


def test_calls_begun_at_another_level_do_not_count() -> None:
    """They took 0.2 s each, and those of the new level take 0.05 s."""

    class Falls(Fixed):
        def handle(self, rate: float) -> None:
            self.rates = [*getattr(self, "rates", []), rate]
            self.level = 4

    controller = Falls(16)
    crew = None

    def many(rows, results):
        time.sleep(0.2 if controller.level == 16 else 0.05)
        results.extend(rows)

    crew = ThreadCrew(many)
    pool = Pool(crew, many, Concurrency(period_s=0.3), controller)
    assert [row for _, some in pool.run(range(200)) for row in some] == list(range(200))
    assert controller.rates[0] > 1.0 and all(50 < rate < 90 for rate in controller.rates[1:])
    pool.close()


def test_percentiles_are_accurate_to_a_tenth() -> None:
    latencies = Latencies()
    for at in range(1, 1001):
        latencies.add(at / 1000)
    for share, seconds in zip((0.5, 0.95, 0.99), latencies.percentiles((0.5, 0.95, 0.99)), strict=True):
        assert seconds == pytest.approx(share, rel=0.1)
