"""Calls of a real service over HTTP that fail, hang and come late: nothing lost, nothing twice, in order."""

from __future__ import annotations

import threading

import pytest

import anabranch as ab
from anabranch.errors import OperatorError
from anabranch.testing import run_parallel
from benchmarks._http_service import RunningService, get

ROWS = 120


class Asks(ab.Operator):
    """Asks the service for each tuple; each thread has a connection of its own."""

    port: int = 0

    def open(self) -> None:
        self.connections = threading.local()

    def process(self, t):
        yield (t.i, get(self.port, t.path, self.connections))


def rows(case: str) -> list[tuple[int, str]]:
    def path(i: int) -> str:
        if i % 10 == 3:
            return f"/fail/{case}{i}"
        return f"/hang/{case}{i}" if i in (20, 77) else f"/row/{case}{i}"

    return [(i, path(i)) for i in range(ROWS)]


def test_calls_that_hang_or_fail_are_made_again_and_the_output_is_whole_and_in_order() -> None:
    with RunningService() as service:
        service.get("/best/6")
        service.get("/sleep/0.01")
        given = rows("a")
        stream = ab.from_rows(given, "i long, path string").process(
            Asks(port=service.port),
            schema="i long, answer string",
            elastic=True,
            timeout=1.0,
            retries=3,
            period=0.05,
            min_workers=4,
            max_workers=16,
        )
        assert [tuple(row) for row in run_parallel(stream)] == given
        assert [tuple(row) for row in stream.run_sequential()] == given


def test_without_retries_the_first_tuple_that_fails_is_told() -> None:
    with RunningService() as service:
        service.get("/sleep/0.005")
        stream = ab.from_rows(rows("b")[:20], "i long, path string").process(
            Asks(port=service.port), schema="i long, answer string", elastic=True, min_workers=4
        )
        with pytest.raises(OperatorError, match=r"503 busy(?s:.)*/fail/b"):
            run_parallel(stream)
