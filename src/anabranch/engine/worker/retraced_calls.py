"""The calls of an operator that reads several streams, or whose keys wait, up to the first that fails.

They are made by the code that makes them otherwise. What is added: where a call stood, a look at the state it left,
as one thread looks at it behind every call, and whether what was emitted fits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from anabranch.engine.worker.stage import ArrivalCalls
from anabranch.engine.worker.stage_flow import Arrival, Flow
from anabranch.engine.worker.timed_calls import TimedCalls
from anabranch.errors import AnabranchError, OperatorError
from anabranch.program.calling import operator_failed
from anabranch.program.schema import MisfitError, ShapeError


class Stopped(Exception):  # noqa: N818 - an event: where an operator failed
    """A call failed: at a position among what arrived, and for which time and by which key that waited."""

    def __init__(self, position: int, more: tuple[int, ...], error: AnabranchError) -> None:
        super().__init__()
        self.position = position
        self.more = more
        self.error = error


class _UntilItFails:
    """What both kinds of calls need to stop at the first error."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._told: list[Any] = []  # for each tuple that was emitted, what was in hand

    @contextlib.contextmanager
    def _watched(self, position: int, more: tuple[int, ...], row: Any, instance: Any) -> Iterator[None]:
        calls: Any = self
        try:
            yield
        except OperatorError as error:
            raise Stopped(position, more, error) from None
        except AnabranchError as problem:
            raise Stopped(position, more, operator_failed(calls._node, row, problem, calls._epoch)) from None
        finally:
            self._told += [row] * (len(calls._outputs) - len(self._told))
        try:
            calls._table.instances.values(instance)  # refuses what would be lost
        except AnabranchError as error:
            raise Stopped(position, more, error) from None

    def until_it_fails(self, arrival: Arrival) -> tuple[Flow, Stopped | None]:
        """What was emitted before the first error, and that error."""
        calls: Any = self
        stopped: Stopped | None = None
        try:
            calls.take(arrival)
        except Stopped as first:
            stopped = first
        for at, output in enumerate(calls._outputs):
            try:
                calls._node.schema.exact_row(calls._node.schema.unpack(output))
            except (ShapeError, MisfitError) as problem:
                error = operator_failed(calls._node, self._told[at], problem, calls._epoch)
                stopped = Stopped(calls._positions[at], self._more(at), error)
                self._cut(at)
                break
        return calls.flow(arrival), stopped

    def _more(self, at: int) -> tuple[int, ...]:
        raise NotImplementedError

    def _cut(self, at: int) -> None:
        calls: Any = self
        del calls._positions[at:], calls._outputs[at:]


class RetracedCalls(_UntilItFails, ArrivalCalls):
    """Calls of an operator that reads several streams, or waits for punctuations or the start of an epoch."""

    def _call(self, position: int, row: Any, method: Any, *arguments: Any, opened: tuple[int, ...] = ()) -> None:
        with self._watched(position, opened, row, arguments[0]):
            super()._call(position, row, method, *arguments, opened=opened)

    def _more(self, at: int) -> tuple[int, ...]:
        return self._opened[at]

    def _cut(self, at: int) -> None:
        super()._cut(at)
        del self._opened[at:]


class RetracedTimedCalls(_UntilItFails, TimedCalls):
    """Calls of an operator whose keys wait for times."""

    def _take_run(self, start: int, stop: int) -> None:
        for at in range(start, stop):
            with self._watched(self._places[at], (0, *self._never), self._rows[at], self._live[self._keys[at]]):
                super()._take_run(at, at + 1)

    def _take_timed(self, start: int, stop: int) -> None:
        self._take_run(start, stop)  # what it takes is not told: the epoch has failed

    def _call_waiting(self, position: int, key: Any, instance: Any, due: int, since: tuple[int, ...]) -> None:
        with self._watched(position, (due, *since), f"the key {key!r}, which waits", instance):
            super()._call_waiting(position, key, instance, due, since)

    def _more(self, at: int) -> tuple[int, ...]:
        return (self._due[at], *self._since[at])

    def _cut(self, at: int) -> None:
        super()._cut(at)
        del self._due[at:], self._since[at:]
