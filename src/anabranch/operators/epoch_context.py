"""What user code and library operators can ask of the epoch that runs, and tell it.

    whoever runs a task ── running(EpochContext(…)) ──► operators ask: epoch_time, moment, parts_of
                                                    ◄── operators tell: count_anomaly

**The time** of an epoch is recorded with it, so that running it again sees the same; nobody asks the machine.
**Parts of hot keys** are what the driver decided between two epochs (`hot_key_parts`).
**Anomalies** are what operators met and had to follow their policy for: late tuples, nulls where a key or a time should
be, steps backwards. No tuple carries the count and no state holds it; whoever runs a task takes the counts when it
ends. A task that is run again counts again, so only the counts of the attempt that is committed may be kept.

Each task has a context of its own, and so has each thread: two programs in one process do not meet here.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.operators.hot_key_parts import NO_PARTS, HotKeyParts
from anabranch.program.changing_table import Lookup


@dataclasses.dataclass
class Moment:
    """How far time has come for the operator that is called: set by whoever calls one whose keys wait for a time."""

    reached: int = 0
    """The watermark, or the clock: a whole number."""
    fired: int | None = None
    """The time that it is called for; None if it takes a tuple."""
    asked: int = 0
    """The time of the timer that it is called for, which may have passed long before."""
    key: Any = None
    """The key that is called though it takes no tuple."""


@dataclasses.dataclass(frozen=True)
class EpochContext:
    """The epoch that runs, as operators see it."""

    time_ms: int = 0
    """Milliseconds since 1970."""
    parts: Mapping[str, HotKeyParts] = dataclasses.field(default_factory=dict)
    """Operator → its hot keys that are in parts."""
    anomalies: dict[tuple[str, str], int] = dataclasses.field(default_factory=dict)
    """Operator and what it met → how often."""
    moment: Moment = dataclasses.field(default_factory=Moment)
    number: int = 0
    """The epoch's own."""
    tables: Mapping[str, Lookup] = dataclasses.field(default_factory=dict)
    """The versions of changing tables, by their numbers."""


_running: contextvars.ContextVar[EpochContext | None] = contextvars.ContextVar("anabranch_epoch", default=None)


def current() -> EpochContext | None:
    """The context of the epoch that runs here; None: none does."""
    return _running.get()


@contextlib.contextmanager
def running(context: EpochContext) -> Iterator[EpochContext]:
    """Have operators that run within see a context; afterwards what was there before.

    Examples
    --------
    >>> with running(EpochContext(time_ms=7)) as context:
    ...     count_anomaly("aggregate", "late", 2)
    ...     epoch_time(), context.anomalies
    (7, {('aggregate', 'late'): 2})
    >>> epoch_time()
    0
    """
    before = _running.get()
    _running.set(context)
    try:
        yield context
    finally:
        # Not by a token: a task that is given up may be closed in another context than it ran in.
        _running.set(before)


def epoch_time() -> int:
    """The time of the epoch that is running, in milliseconds since 1970; 0 in a sequential run without a clock."""
    context = _running.get()
    return 0 if context is None else context.time_ms


def epoch_number() -> int:
    """The number of the epoch that is running; 0 outside of any."""
    context = _running.get()
    return 0 if context is None else context.number


def table_of(number: str) -> Lookup:
    """The version of a changing table that the epoch has."""
    context = _running.get()
    return {} if context is None else context.tables[number]


def moment() -> Moment:
    """How far time has come for the operator that is called."""
    context = _running.get()
    return Moment() if context is None else context.moment


def parts_of(operator: str) -> HotKeyParts:
    """The hot keys of an operator that are in parts."""
    context = _running.get()
    return NO_PARTS if context is None else context.parts.get(operator, NO_PARTS)


def count_anomaly(operator: str, what: str, number: int = 1) -> None:
    """Add to what an operator has met."""
    context = _running.get()
    if context is not None:
        counts = context.anomalies
        counts[operator, what] = counts.get((operator, what), 0) + number


def take_anomalies() -> dict[tuple[str, str], int]:
    """The counts of the epoch that runs since they were last taken, by operator and what was met; they begin anew."""
    context = _running.get()
    if context is None:
        return {}
    taken = dict(context.anomalies)
    context.anomalies.clear()
    return taken
