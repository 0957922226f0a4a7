"""Calls of elastic operators that do what calls should not do: the same output, letters and errors as one thread."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.engine.pool.thread_crew import ThreadCrew, Worker
from anabranch.errors import OperatorError
from anabranch.testing import ParallelRun, run_sequential

SCHEMA = "i long, x long"
PROCESSES: dict[str, Any] = {"workers": "processes", "max_workers": 1}


class Unknown(BaseException):
    pass


class UntoldError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def raising(make: Callable[[int], BaseException]) -> Callable[[Any], Any]:
    def f(t):
        if t.i % 7 == 5:
            raise make(t.i)
        return (t.i, t.x)

    return f


def raising_later(make: Callable[[int], BaseException]) -> Callable[[Any], Any]:
    async def f(t):
        await asyncio.sleep(0)
        if t.i % 7 == 5:
            raise make(t.i)
        return (t.i, t.x)

    return f


def unsendable(i: int) -> BaseException:
    class LocalError(Exception):
        def __init__(self, text: str) -> None:
            super().__init__(text)
            self.lock = threading.Lock()

    return LocalError(f"no {i}")


async def cancels_itself(t):
    if t.i % 7 == 5:
        asyncio.current_task().cancel()
    await asyncio.sleep(0)
    return (t.i, t.x)


async def stops_the_loop(t):
    if t.i == 5:
        asyncio.get_running_loop().stop()
    await asyncio.sleep(0.001)
    return (t.i, t.x)


def exits(t):
    if t.i % 7 == 5:
        sys.exit(3)
    return (t.i, t.x)


CALLS: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "base": (raising(lambda i: Unknown(i)), {"min_workers": 3}),
    "base inline": (raising(lambda i: Unknown(i)), {"max_workers": 1}),
    "base async": (raising_later(lambda i: Unknown(i)), {"min_workers": 3}),
    "exit async": (raising_later(lambda i: SystemExit(i)), {"min_workers": 3}),
    "interrupt async": (raising_later(lambda i: KeyboardInterrupt(i)), {"min_workers": 3}),
    "interrupt with timeout": (raising(lambda i: KeyboardInterrupt(i)), {"min_workers": 3, "timeout": 20}),
    "generator exit": (raising(lambda i: GeneratorExit(i)), {"min_workers": 3}),
    "own timeout": (raising_later(lambda i: TimeoutError(f"my own {i}")), {"min_workers": 3, "timeout": 20}),
    "cancelled": (cancels_itself, {"min_workers": 3}),
    "raises cancelled": (raising_later(lambda i: asyncio.CancelledError(i)), {"min_workers": 3}),
    "stopped loop": (stops_the_loop, {"min_workers": 3}),
    "no text": (raising(lambda i: UntoldError(i)), {"min_workers": 3}),
    "exit of a process": (exits, PROCESSES),
    "unsendable error": (raising(unsendable), PROCESSES),
}


def numbers() -> ab.Stream:
    return ab.from_rows([(i, i % 3) for i in range(24)], SCHEMA)


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except OperatorError as error:
        return re.sub(r", epoch \d+", "", str(error))


def parallel(streams: list[ab.Stream], scratch: str) -> list[Any]:
    run = ParallelRun(streams, scratch, channels=2, seed=3)
    run.run_epochs()
    return run.outputs


@pytest.mark.parametrize("policy", ["fail", "dead_letter"])
@pytest.mark.parametrize("name", CALLS)
def test_odd_calls_are_told_as_one_thread_tells_them(name: str, policy: str, tmp_path) -> None:
    function, options = CALLS[name]

    def program() -> list[ab.Stream]:
        made = numbers().map(function, SCHEMA, elastic=True, on_error=policy, **options)
        return [made, made.dead_letters()] if policy == "dead_letter" else [made]

    expected = outcome(lambda: run_sequential(program()))
    assert outcome(lambda: parallel(program(), str(tmp_path))) == expected
    assert isinstance(expected, str) == (policy == "fail" and name != "stopped loop")


class CannotOpen(ab.Operator):
    def open(self):
        raise OSError("nobody there")

    def process(self, t):
        yield (t.i, t.x)


class CannotOpenLater(ab.Operator):
    async def open(self):
        raise OSError("nobody there")

    async def process(self, t):
        yield (t.i, t.x)


@pytest.mark.parametrize("kind", ["threads", "processes", "async"])
def test_an_open_that_fails_fails_the_epoch_whatever_the_policy(kind: str, tmp_path) -> None:
    options: dict[str, Any] = PROCESSES if kind == "processes" else {}
    operator = CannotOpenLater() if kind == "async" else CannotOpen()

    def program() -> list[ab.Stream]:
        return [numbers().process(operator, schema=SCHEMA, elastic=True, on_error="skip", retries=3, **options)]

    expected = outcome(lambda: run_sequential(program()))
    assert "nobody there" in expected and "raised by open()" in expected
    assert outcome(lambda: parallel(program(), str(tmp_path))) == expected


def test_a_worker_that_cannot_work_is_a_call_that_failed(monkeypatch, tmp_path) -> None:
    def nothing_to_work_with(self: ThreadCrew, worker: Worker) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(ThreadCrew, "_prepare", nothing_to_work_with)
    stream = numbers().map(lambda t: (t.i, t.x), SCHEMA, elastic=True, min_workers=2)
    with pytest.raises(OperatorError, match="OSError: no more processes"):
        parallel([stream], str(tmp_path))
