"""The calls of an operator that reads several streams, or whose keys wait, up to the first that fails.

They are made by the code that makes them otherwise. What is added: where a call stood, a look at the state it left,
as one thread looks at it behind every call, and whether what was emitted fits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from anabranch.engine.worker.arrival_calls import ArrivalCalls
from anabranch.engine.worker.stage_flow import Arrival, Flow
from anabranch.engine.worker.timed_calls import TimedCalls
from anabranch.errors import AnabranchError, OperatorError
from anabranch.program.calling import operator_failed
from anabranch.program.misfits import MisfitError, ShapeError


class Stopped(Exception):  # noqa: N818 - an event: where an operator failed
    """A call failed: at a position among what arrived, and for which time and by which key that waited."""

    def __init__(self, position: int, more: tuple[int, ...], error: AnabranchError) -> None:
        super().__init__()
        self.position = position
        self.more = more
        self.error = error


@contextlib.contextmanager
def _watched(
    calls: RetracedCalls | RetracedTimedCalls, position: int, more: tuple[int, ...], row: Any, instance: Any
) -> Iterator[None]:
    """A call, which stops all if it fails, or leaves a state that would be lost."""
    try:
        yield
    except OperatorError as error:
        raise Stopped(position, more, error) from None
    except AnabranchError as problem:
        raise Stopped(position, more, operator_failed(calls._node, row, problem, calls._epoch)) from None
    finally:
        calls.told += [row] * (len(calls._outputs) - len(calls.told))
    table: Any = calls._table
    try:
        table.instances.values(instance)  # refuses what would be lost
    except AnabranchError as error:
        raise Stopped(position, more, error) from None


def until_it_fails(calls: RetracedCalls | RetracedTimedCalls, arrival: Arrival) -> tuple[Flow, Stopped | None]:
    """What was emitted before the first error, and that error."""
    stopped: Stopped | None = None
    try:
        calls.take(arrival)
    except Stopped as first:
        stopped = first
    for at, output in enumerate(calls._outputs):
        try:
            calls._node.schema.exact_row(calls._node.schema.unpack(output))
        except (ShapeError, MisfitError) as problem:
            error = operator_failed(calls._node, calls.told[at], problem, calls._epoch)
            stopped = Stopped(calls._positions[at], calls.more(at), error)
            calls.cut(at)
            break
    return calls.flow(arrival), stopped


class RetracedCalls(ArrivalCalls):
    """Calls of an operator that reads several streams, or waits for punctuations or the start of an epoch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told: list[Any] = []  # for each tuple that was emitted, what was in hand

    def _call(self, position: int, row: Any, method: Any, *arguments: Any, opened: tuple[int, ...] = ()) -> None:
        with _watched(self, position, opened, row, arguments[0]):
            super()._call(position, row, method, *arguments, opened=opened)

    def _take_broadcast(self, position: int, row: Any) -> None:
        try:
            super()._take_broadcast(position, row)
        except AnabranchError as error:
            waits = len(self._step.digits) + 1 if self._step.waits else 0
            raise Stopped(position, (0,) * waits, error) from None

    def more(self, at: int) -> tuple[int, ...]:
        """What orders a tuple that was emitted among those of its position."""
        return self._opened[at]

    def cut(self, at: int) -> None:
        """Take back what was emitted from here on."""
        del self._positions[at:], self._outputs[at:], self._opened[at:]


class RetracedTimedCalls(TimedCalls):
    """Calls of an operator whose keys wait for times."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.told: list[Any] = []  # for each tuple that was emitted, what was in hand

    def _take_run(self, start: int, stop: int) -> None:
        for at in range(start, stop):
            with _watched(self, self._places[at], (0, *self._never), self._rows[at], self._live[self._keys[at]]):
                super()._take_run(at, at + 1)

    def _take_timed(self, start: int, stop: int) -> None:
        self._take_run(start, stop)  # what it takes is not told: the epoch has failed

    def _call_waiting(self, position: int, key: Any, instance: Any, due: int, since: tuple[int, ...]) -> None:
        with _watched(self, position, (due, *since), f"the key {key!r}, which waits", instance):
            super()._call_waiting(position, key, instance, due, since)

    def _take_broadcast(self, position: int, row: Any) -> None:
        try:
            super()._take_broadcast(position, row)
        except AnabranchError as error:
            raise Stopped(position, (0, *self._never), error) from None

    def more(self, at: int) -> tuple[int, ...]:
        """What orders a tuple that was emitted among those of its position."""
        return (self._due[at], *self._since[at])

    def cut(self, at: int) -> None:
        """Take back what was emitted from here on."""
        del self._positions[at:], self._outputs[at:], self._due[at:], self._since[at:]
