"""One operator alone, for unit tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.api.session import from_rows
from anabranch.api.stream_time import scale_of
from anabranch.engine.sequential import SequentialRun
from anabranch.errors import ProgramError
from anabranch.operators.epoch_context import EpochContext, running
from anabranch.program.graph import Keyed
from anabranch.program.schema import Row


class Harness:
    """One operator alone, for unit tests: feed it tuples, let time pass, look at what it emits and keeps.

    It is called exactly as one thread calls it in a program; every call here is an epoch.

    Parameters
    ----------
    operator : Operator, function or object
        As given to ``Stream.process``.
    columns : str or class
        The columns of the tuples it takes.
    by, schema, on_error
        As in ``Stream.process``.
    event_time : str, optional
        The column that holds the time of a tuple: its timers follow the watermark, which `advance` moves, too.
    broadcast : str or class, optional
        The columns of the stream that is broadcast to it, whose tuples the method `broadcast` gives it.

    Examples
    --------
    >>> import anabranch as ab
    >>> class Quiet(ab.Operator):
    ...     last: int = ab.state(default=0)
    ...     def process(self, t):
    ...         self.last = t.at
    ...         self.timers.at(t.at + 10)
    ...     def on_timer(self, time):
    ...         yield (time,)
    >>> alone = Harness(Quiet(), "k string, at long", by="k", schema="at long", event_time="at")
    >>> alone.feed(("a", 1))
    []
    >>> alone.advance(20)
    [(at=11)]
    >>> alone.state("a")["last"]
    1
    """

    def __init__(
        self,
        operator: Any,
        columns: Any,
        by: Any = None,
        schema: Any = None,
        *,
        event_time: str | None = None,
        broadcast: Any = None,
        on_error: str | None = None,
    ) -> None:
        source = from_rows([], columns)
        before = source if event_time is None else source.event_time(event_time)
        marked = before.punctuate(lambda t: False) if hasattr(operator, "on_punctuation") else before
        told = None if broadcast is None else from_rows([], broadcast)
        made = marked.process(operator, by=by, schema=schema, on_error=on_error, broadcast=told)
        self._source, self._told = source._node.name, None if told is None else told._node
        self._node, self._scale = made._node, scale_of(before._node)
        self._watermark, self._marks = before._node, marked._node
        self._run = SequentialRun(made._node)

    def feed(self, *rows: Any) -> list[Row]:
        """What it emits for these tuples."""
        return self._emitted(lambda: self._run.feed(rows, self._source))

    def broadcast(self, *rows: Any) -> None:
        """Give it tuples of the stream that is broadcast to it."""
        if self._told is None:
            raise ProgramError("broadcast: no stream is broadcast to the operator; Harness(…, broadcast='columns')")
        name = next(name for name, node in self._run.sources.items() if node.id == self._told.id)
        self._emitted(lambda: self._run.feed(rows, name))

    def advance(self, time: Any) -> list[Row]:
        """What it emits when the watermark comes to a time."""
        if self._scale is None:
            raise ProgramError("advance: the operator has no event time; Harness(…, event_time='at')")
        number = self._scale.number(time)
        return self._emitted(lambda: self._run.advance(self._watermark, number))

    def clock(self, seconds: float) -> list[Row]:
        """What it emits at the start of an epoch at this time, in seconds since 1970; later calls have this time."""
        self._run.clock_ms = round(seconds * 1000)
        return self._emitted(lambda: self._run.epoch({}))

    def punctuate(self) -> list[Row]:
        """What it emits at a punctuation."""
        return self._emitted(lambda: self._run.punctuate(self._marks))

    def end(self) -> list[Row]:
        """What it emits when the input has ended."""
        return self._emitted(self._run.end)

    def state(self, *key: Any) -> dict[str, Any]:
        """The state of a key, by field; what a key has that was never seen, if there is none."""
        if not isinstance(self._node.logic, Keyed):
            raise ProgramError("state: the operator has no state by key; Harness(…, by='…')")
        name, wanted = self._node.name, key[0] if len(key) == 1 else key
        values = self._run.state(name).get(wanted, self._run.initial_state(name))
        return {field.name: value for field, value in zip(self._node.logic.fields, values, strict=True)}

    def _emitted(self, call: Callable[[], None]) -> list[Row]:
        before = len(self._run.output)
        with self._run._as_user_left_it(), running(EpochContext(self._run.clock_ms)):
            call()
        return self._run.output[before:]
