"""What is still to be made, a coroutine say, is no answer: the same error wherever it stands for a value."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import OperatorError, ProgramError
from anabranch.testing import ParallelRun, run_sequential

SCHEMA = "i long, x long"


async def is_high_later(x):
    await asyncio.sleep(0)
    return x > 2


async def many_later(x):
    for n in range(x):
        await asyncio.sleep(0)
        yield (n, x)


def many(x):
    yield (x, x)


async def row_later(t):
    await asyncio.sleep(0)
    return (t.i, t.x)


class Untrue:
    def __bool__(self) -> bool:
        raise TypeError("neither true nor false")


def found_first(t):
    found = is_high_later(t.x)
    return found


FUNCTIONS: dict[str, Callable[[ab.Stream, dict[str, Any]], ab.Stream]] = {
    "filter by a coroutine": lambda s, o: s.filter(lambda t: is_high_later(t.x), **o),
    "filter by either": lambda s, o: s.filter(lambda t: t.i < 7 or is_high_later(t.x), **o),
    "filter by a name": lambda s, o: s.filter(found_first, **o),
    "filter by a generator": lambda s, o: s.filter(lambda t: many(t.x) if t.i > 7 else True, **o),
    "filter by neither": lambda s, o: s.filter(lambda t: Untrue() if t.i == 7 else True, **o),
    "map to a coroutine": lambda s, o: s.map(lambda t: row_later(t), SCHEMA, **o),
    "map to a generator": lambda s, o: s.map(lambda t: many(t.x), SCHEMA, **o),
    "map of one column": lambda s, o: s.map(lambda t: (is_high_later(t.x),), "b boolean", **o),
    "flat_map to a coroutine": lambda s, o: s.flat_map(lambda t: row_later(t), SCHEMA, **o),
    "flat_map to an asynchronous generator": lambda s, o: s.flat_map(lambda t: many_later(t.x), SCHEMA, **o),
}


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return [[tuple(row) for row in rows] for rows in run()]
    except OperatorError as error:
        return re.sub(r", epoch \d+", "", str(error))


def parallel(streams: list[ab.Stream]) -> list[Any]:
    with tempfile.TemporaryDirectory() as scratch:
        run = ParallelRun(streams, scratch, channels=2, seed=3)
        run.run_epochs()
    return run.outputs


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    "options", [{}, {"elastic": True}, {"on_error": "dead_letter"}], ids=["plain", "elastic", "dead"]
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_still_to_be_made_is_no_answer(name: str, options: dict[str, Any]) -> None:
    def program() -> list[ab.Stream]:
        made = FUNCTIONS[name](ab.from_rows([(i, i % 5) for i in range(24)], SCHEMA), options)
        return [made, made.dead_letters()] if options.get("on_error") else [made]

    expected = outcome(lambda: run_sequential(program()))
    assert outcome(lambda: parallel(program())) == expected
    if options.get("on_error"):
        assert expected[1], "those that give no answer are letters"
    elif name != "filter by neither":
        assert re.search("found an? .*(generator|coroutine) of .*, which nobody", expected)


@pytest.mark.parametrize("function", [many, many_later])
@pytest.mark.parametrize("method", ["map", "filter"])
def test_a_function_that_yields_is_a_flat_map(method: str, function: Any) -> None:
    stream = ab.from_rows([(1, 2)], SCHEMA)
    more = (SCHEMA,) if method == "map" else ()
    with pytest.raises(ProgramError, match=r"many(_later)?\(\) yields; many tuples are emitted by flat_map"):
        getattr(stream, method)(function, *more, elastic=True)
