"""Calls, and processes, that do not end when they should: what becomes of them, of others, and of whoever waits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine.pool.dispatch import Pool
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.engine.pool.pool_run import CallFailed
from anabranch.engine.pool.thread_crew import ThreadCrew
from anabranch.errors import OperatorError, ProgramError
from anabranch.program.elastic import Concurrency, is_async
from anabranch.testing import run_parallel
from tests.engine.test_odd_elastic_calls import SCHEMA, numbers, outcome
from tests.engine.test_pool import Fixed

ODD = {5, 12, 19}


async def cleans_up_slowly(t):
    try:
        await asyncio.sleep(60 if t.i in ODD else 0)
    finally:
        await asyncio.sleep(3 if t.i in ODD else 0)
    return (t.i, t.x)


async def ignores_cancellation(t):
    for _ in range(40 if t.i in ODD else 0):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.1)
    return (t.i, t.x)


async def answers_late(t):
    try:
        await asyncio.sleep(60 if t.i in ODD else 0)
    except asyncio.CancelledError:
        return (t.i, -1)
    return (t.i, t.x)


async def fails_on_its_way_out(t):
    try:
        await asyncio.sleep(60 if t.i in ODD else 0)
    finally:
        if t.i in ODD:
            raise KeyError("cleaning up")
    return (t.i, t.x)


@pytest.mark.parametrize(
    "function", [cleans_up_slowly, ignores_cancellation, answers_late, fails_on_its_way_out], ids=lambda f: f.__name__
)
def test_a_cancelled_call_is_one_that_took_too_long_whatever_it_does_then(function: Any, monkeypatch) -> None:
    monkeypatch.setattr("anabranch.engine.pool.elastic_call.CLEANING_UP_S", 0.2)
    stream = numbers().map(function, SCHEMA, elastic=True, timeout=0.5, on_error="skip", min_workers=6)
    expected = [(i, i % 3) for i in range(24) if i not in ODD]
    assert [tuple(row) for row in run_parallel(stream)] == expected
    assert [tuple(row) for row in stream.run_sequential()] == expected
    failing = numbers().map(function, SCHEMA, elastic=True, timeout=0.5, min_workers=6)
    told = outcome(lambda: run_parallel(failing))
    assert "CallTimeout: the call took longer than timeout=0.5 seconds" in told and "i=5" in told
    assert told == outcome(failing.run_sequential)


async def waits_a_little(suffix: int, t: Any) -> tuple[int, int]:
    await asyncio.sleep(0)
    return (t.i, t.x + suffix)


class Later:
    async def __call__(self, t: Any) -> tuple[int, int]:
        return (t.i, t.x + 1)

    async def ask(self, more: int, t: Any) -> tuple[int, int]:
        return (t.i, t.x + more)


@functools.wraps(waits_a_little)
async def wrapped(t: Any) -> tuple[int, int]:
    return await waits_a_little(1, t)


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(waits_a_little, 1),
        functools.partial(functools.partial(waits_a_little), 1),
        Later(),
        functools.partial(Later()),
        functools.partial(Later().ask, 1),
        wrapped,
    ],
    ids=["partial", "partial twice", "object", "partial of an object", "partial of a method", "wrapped"],
)
def test_async_functions_are_seen_in_whatever_they_are_wrapped(function: Any) -> None:
    assert is_async(function)
    stream = numbers().map(function, SCHEMA, elastic=True)
    assert [tuple(row) for row in stream.run_sequential()] == [(i, i % 3 + 1) for i in range(24)]
    assert run_parallel(stream) == stream.run_sequential()


@pytest.mark.parametrize("name", ["timeout", "period"])
@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e300, 86_401, -1, "5", True, 1 + 1j])
def test_times_that_nobody_can_wait_for_are_refused(name: str, seconds: Any) -> None:
    with pytest.raises(ProgramError, match=rf"{name}=.*expected a positive number of seconds, 86400 \(a day\) at most"):
        numbers().map(lambda t: t, SCHEMA, elastic=True, **{name: seconds})


class ClosesBadly(ab.Operator):
    def open(self):
        self.made = 1

    def close(self):
        raise OSError("the line was cut")

    def process(self, t):
        yield (t.i, t.x + self.made)


def test_a_close_that_raises_is_told_in_the_log_wherever_it_is_called(caplog) -> None:
    stream = numbers().process(ClosesBadly(), schema=SCHEMA, elastic=True)
    with caplog.at_level(logging.WARNING, "anabranch"):
        expected = stream.run_sequential()
    assert "close() of ClosesBadly raised OSError: the line was cut" in caplog.text
    assert run_parallel(stream) == expected


def test_calls_in_hand_of_a_run_that_failed_do_not_keep_their_workers(monkeypatch) -> None:
    """The calls behind the first failure never return: nobody waits for them, and the next run has all its workers."""
    monkeypatch.setattr("anabranch.engine.pool.thread_crew.LEFT_S", 0.05)
    for_ever, begun = threading.Event(), threading.Barrier(3)

    def many(rows, results) -> None:
        for row in rows:
            if 0 <= row < 3:
                begun.wait(20)
            if row == 0:
                raise ValueError("the first")
            if 0 < row < 3:
                for_ever.wait(60)
            results.append(row)

    pool = Pool(ThreadCrew(many), many, Concurrency(1, period_s=0.05), Fixed(3))
    with pytest.raises(CallFailed, match="the first"):
        list(pool.run(range(3)))
    together = threading.Barrier(3)

    def meets(rows, results) -> None:
        together.wait(20)
        results.extend(rows)

    pool._crew._many = meets
    assert sorted(r for _, some in pool.run(range(10, 13)) for r in some) == [10, 11, 12]
    for_ever.set()
    pool.close()


def test_calls_behind_a_failure_that_take_too_long_are_given_up_in_silence() -> None:
    for_ever = threading.Event()

    def many(rows, results) -> None:
        for row in rows:
            if row == 0:
                time.sleep(0.25)  # so that those behind it are given up before
                raise ValueError("the first")
            if row == 1:
                raise KeyError("behind it")
            for_ever.wait(60)
            results.append(row)

    pool = Pool(ThreadCrew(many), many, Concurrency(1, timeout_s=0.4, period_s=0.05), Fixed(6))
    with pytest.raises(CallFailed, match="the first"):
        list(pool.run(range(6)))
    for_ever.set()
    pool.close()


# -- processes ----------------------------------------------------------------------------------------------


def reads(t):
    return (t.i, len(sys.stdin.read()))


def test_what_reads_the_standard_input_finds_it_empty() -> None:
    stream = ab.from_rows([(n, 0) for n in range(3)], SCHEMA).map(
        reads, SCHEMA, elastic=True, workers="processes", max_workers=1, timeout=60.0
    )
    assert [tuple(row) for row in run_parallel(stream)] == [(n, 0) for n in range(3)]


VICTIM = """
    import os, subprocess, sys, threading, time
    from anabranch.engine.pool.companion import Companion
    from anabranch.engine.pool.process_worker import packed
    from anabranch.engine.thread_settings import ThreadSettings
    from anabranch.program.whole_copies import pickled_whole
    import pickle

    class Calls:
        def open(self): pass
        def close(self): pass
        def rows(self, rows): return rows
        def many(self, rows, results):
            import re
            child = subprocess.Popen(["sleep", "300"])
            print(os.getpid(), child.pid, file=open(rows[0][0], "w"), flush=True)
            re.match(r"(a+)+$", "a" * 60 + "b")  # for ever, with the lock held

    work, _ = pickled_whole((Calls(), ThreadSettings.here()), Calls())
    companion = Companion(work)
    companion.make_ready()
    companion.asked(pickle.dumps(packed([(sys.argv[1],)])))
"""


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")
def test_companions_end_with_a_parent_that_is_killed_in_the_middle_of_a_call_that_holds_the_lock(tmp_path) -> None:
    told = tmp_path / "told"
    victim = subprocess.Popen([sys.executable, "-c", textwrap.dedent(VICTIM), str(told)])
    try:
        until = time.monotonic() + 60
        while not (told.exists() and told.read_text().endswith("\n")) and time.monotonic() < until:
            time.sleep(0.05)
        processes = [int(each) for each in told.read_text().split()]
        assert all(map(is_there, processes))
    finally:
        victim.kill()
        victim.wait()
    until = time.monotonic() + 30
    while any(map(is_there, processes)) and time.monotonic() < until:
        time.sleep(0.05)
    left = [each for each in processes if is_there(each)]
    for each in left:
        os.kill(each, signal.SIGKILL)
    assert left == []


def test_files_of_pools_that_are_gone_are_swept_away(tmp_path) -> None:
    gone, here = Neighbours(tmp_path, "gone"), Neighbours(tmp_path, "here")
    gone.tell(5, 100.0, 2)
    here.tell(5, 100.0, 2)
    os.utime(tmp_path / "gone.calls", (time.time() - 7200, time.time() - 7200))
    Neighbours.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["here.calls"]
    gone.tell(5, 101.0, 2)  # it was only quiet for long
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gone.calls", "here.calls"]
    gone.close()
    here.close()


def test_a_blocked_loop_fails_the_epoch_whatever_is_said_of_calls_that_fail(monkeypatch) -> None:
    for place in ("loop_crew", "elastic_call"):
        monkeypatch.setattr(f"anabranch.engine.pool.{place}.BLOCKED_S", 0.3)
    monkeypatch.setattr("anabranch.engine.pool.elastic_call.CLEANING_UP_S", 0.1)

    async def blocks(t):
        if t.i == 5:
            time.sleep(4)
        return (t.i, t.x)

    stream = numbers().map(blocks, SCHEMA, elastic=True, timeout=0.2, on_error="skip", retries=2)
    for run in (lambda: run_parallel(stream), stream.run_sequential):
        with pytest.raises(OperatorError, match="an async function must not block"):
            run()
