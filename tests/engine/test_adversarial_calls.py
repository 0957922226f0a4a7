"""Elastic calls that do what nobody expects of them: the output, letters and errors of one thread."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import AnabranchError, ProgramError
from anabranch.testing import ParallelRun, run_sequential

SCHEMA = "i long, x long"
THREADS: dict[str, Any] = {"min_workers": 4, "max_workers": 8}
PROCESSES: dict[str, Any] = {"workers": "processes", "min_workers": 2, "max_workers": 2}


def source() -> ab.Stream:
    return ab.from_rows([(i, i % 5) for i in range(24)], SCHEMA, rows_per_epoch=8)


class HalfError(Exception):
    def __str__(self) -> str:
        return "half a character: \udcff, and a nought: \x00"


def half(t):
    if t.i % 7 == 5:
        raise HalfError
    return (t.i, t.x)


async def half_later(t):
    await asyncio.sleep(0.001)
    return half(t)


def ours(t):
    """The user's code calls the library, which says no."""
    if t.i % 7 == 5:
        ab.Schema.of(f"x {t.i}")
    return (t.i, t.x)


class Asks(ab.Operator):
    def process(self, t):
        yield ours(t)


def raises_ours(t):
    if t.i % 7 == 5:
        raise ProgramError(f"no {t.i}")
    return (t.i, t.x)


def locked(t):
    return (t.i, threading.Lock() if t.i % 7 == 5 else t.x)


def locked_inside(t):
    return (t.i, [threading.Lock()] if t.i % 7 == 5 else [t.x])


def many_locked(t):
    yield (t.i, 0)
    yield (t.i, threading.Lock() if t.i % 7 == 5 else t.x)


def too_wide(t):
    return (t.i, threading.Lock(), 1) if t.i % 7 == 5 else (t.i, t.x)


def mapped(function: Callable[[Any], Any], schema: str = SCHEMA, **options: Any) -> Callable[[str], ab.Stream]:
    return lambda policy: source().map(function, schema, elastic=True, on_error=policy, **options)


def flat(function: Callable[[Any], Any], **options: Any) -> Callable[[str], ab.Stream]:
    return lambda policy: source().flat_map(function, SCHEMA, elastic=True, on_error=policy, **options)


PROGRAMS: dict[str, Callable[[str], ab.Stream]] = {
    "half a character in a text": mapped(half, **THREADS),
    "half a character, processes": mapped(half, **PROCESSES),
    "half a character, async": mapped(half_later, **THREADS),
    "an error of the library's": mapped(ours, **THREADS),
    "an error of the library's, processes": mapped(ours, **PROCESSES),
    "an error of the library's, raised": mapped(raises_ours, **THREADS),
    "an error of the library's, plain": lambda policy: source().map(ours, SCHEMA, on_error=policy),
    "an error of the library's, by key": lambda policy: source().process(
        Asks(), by="x", schema=SCHEMA, on_error=policy
    ),
    "what cannot travel": mapped(locked, **PROCESSES),
    "what cannot travel, retried": mapped(locked, retries=2, **PROCESSES),
    "what cannot travel within a list": mapped(locked_inside, "i long, x array<long>", **PROCESSES),
    "what cannot travel within a list, threads": mapped(locked_inside, "i long, x array<long>", **THREADS),
    "what cannot travel, of several": flat(many_locked, **PROCESSES),
    "what cannot travel, too wide": mapped(too_wide, **PROCESSES),
}


def outcome(run: Callable[[], list[Any]]) -> Any:
    """What comes out, or the error; without what differs from run to run."""
    try:
        found = repr([[tuple(row) for row in rows] for rows in run()])
    except AnabranchError as error:
        found = f"{type(error).__name__}: {error}"
    return re.sub(r"0x[0-9a-f]+", "0x", re.sub(r", epoch \d+", "", found))


def parallel(streams: list[ab.Stream], scratch: str) -> list[Any]:
    run = ParallelRun(streams, scratch, channels=3, seed=5)
    run.run_epochs()
    return run.outputs


@pytest.mark.parametrize("policy", ["fail", "skip", "dead_letter"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_is_as_by_one_thread(name: str, policy: str, tmp_path) -> None:
    def program() -> list[ab.Stream]:
        made = PROGRAMS[name](policy)
        return [made, made.dead_letters()] if policy == "dead_letter" else [made]

    expected = outcome(lambda: run_sequential(program()))
    assert outcome(lambda: parallel(program(), str(tmp_path))) == expected
    if policy == "dead_letter" and "library" not in name:
        assert expected.count("'map'") + expected.count("'flat_map'") == 3, expected
