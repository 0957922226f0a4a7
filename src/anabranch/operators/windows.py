"""Windows: which tuples of a key are taken together.

A *policy* says where a window ends: after so many tuples, when an attribute has grown, when the clock of the epochs
has moved, by event time, at a punctuation. `tumbling` puts such windows one behind the other; `sliding` keeps one
window that moves along and says, with `every`, when it gives a result. A policy alone means `tumbling`.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.program.schema import Schema

Duration = int | float | datetime.timedelta


@dataclasses.dataclass(frozen=True)
class Count:
    """Closes with its n-th tuple."""

    size: int

    def __str__(self) -> str:
        return f"count({self.size})"


@dataclasses.dataclass(frozen=True)
class Delta:
    """Closes when a tuple comes whose attribute is more than `size` above that of the window's first tuple."""

    attribute: str
    size: Any
    nulls: str = "fail"

    def __str__(self) -> str:
        return f"delta({self.attribute!r}, {self.size!r})"


@dataclasses.dataclass(frozen=True)
class Time:
    """Closes at the start of the first epoch that is `size_ms` or more later than the one it began in."""

    size_ms: int

    def __str__(self) -> str:
        return f"time({self.size_ms / 1000:g})"


@dataclasses.dataclass(frozen=True)
class EventTime:
    """Aligned windows over an attribute, closed by the stream's watermark or, if it has none, by the key's own."""

    attribute: str
    size: Any
    lateness: Any = 0
    nulls: str = "fail"
    early: Any = None
    per_key: bool = False

    def __str__(self) -> str:
        late = f", lateness={self.lateness!r}" if self.lateness else ""
        return f"event_time({self.attribute!r}, {self.size!r}{late})"


@dataclasses.dataclass(frozen=True)
class Sessions:
    """Tuples that follow one another with less than a gap between; closed by the stream's watermark."""

    attribute: str
    gap: Any
    nulls: str = "fail"

    def __str__(self) -> str:
        return f"sessions({self.attribute!r}, {self.gap!r})"


@dataclasses.dataclass(frozen=True)
class Punctuated:
    """Closes at a window punctuation."""

    def __str__(self) -> str:
        return "punctuation()"


Policy = Count | Delta | Time | EventTime | Sessions | Punctuated
POLICIES = (Count, Delta, Time, EventTime, Sessions, Punctuated)


@dataclasses.dataclass(frozen=True)
class Tumbling:
    """Windows that follow one another without overlap."""

    policy: Policy

    def __str__(self) -> str:
        return f"tumbling({self.policy})"


@dataclasses.dataclass(frozen=True)
class Sliding:
    """One window that moves along, with a result at every trigger."""

    policy: Policy
    every: Any

    def __str__(self) -> str:
        return f"sliding({self.policy}, every={self.every})"


def count(size: int) -> Count:
    """A window of so many tuples.

    Examples
    --------
    >>> str(tumbling(count(10)))
    'tumbling(count(10))'
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise ProgramError(f"count({size!r}): expected a whole number of tuples, 1 or more")
    return Count(size)


def delta(attribute: str, size: Duration, *, nulls: str = "fail") -> Delta:
    """A window over an attribute that grows, such as a time.

    The window holds tuples whose attribute is at most `size` above that of its first tuple; the first
    tuple beyond closes it, and begins the next. A tuple whose attribute lies below the first one's belongs
    to the open window, and is counted as ``backwards``. For timestamps a number means seconds.

    Parameters
    ----------
    nulls : "fail" or "drop"
        What a tuple does whose attribute is null (or NaN): fail the epoch, or go, counted as ``null_attribute``.
    """
    _check_attribute("delta", attribute, nulls)
    _check_duration(f"delta({attribute!r}, {size!r})", size)
    return Delta(attribute, size, nulls)


def time(size: float | datetime.timedelta) -> Time:
    """A window over the clock of the epochs, in seconds.

    Every tuple has the time of its epoch, which is recorded with the epoch, so a replay gives the same windows.
    A window ends at the start of the first epoch that is `size` or more later than the one it began in.
    """
    seconds = size.total_seconds() if isinstance(size, datetime.timedelta) else size
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise ProgramError(f"time({size!r}): expected a positive number of seconds or a timedelta")
    return Time(max(1, round(seconds * 1000)))


def event_time(
    attribute: str,
    size: Duration,
    *,
    lateness: Duration = 0,
    nulls: str = "fail",
    early: Duration | None = None,
    per_key: bool = False,
) -> EventTime:
    """Windows over a time that the tuples carry: [0, size), [size, 2 size), …, counted from zero or from 1970.

    On a stream with event time (``Stream.event_time``) a window closes, for all keys, when the stream's watermark
    reaches its end. With a `lateness` it then stays for that long: a late tuple changes it, and it gives its result
    again.

    On a stream without, or with `per_key`, each key has a watermark: the largest attribute it has seen, less
    `lateness`; a window closes when its key's watermark reaches its end. A key that falls silent keeps its last window
    open.

    A tuple whose windows have all closed is late: it is dropped, and counted as ``late``.

    Parameters
    ----------
    attribute : str
        A column with a number, a date or a timestamp.
    size, lateness : number or timedelta
        In the attribute's own unit; for timestamps a number means seconds, for dates days. In a join the size may be 0:
        equal times meet.
    early : number or timedelta, optional
        Give a result of what a window holds so far, so often, if it has changed; ``agg.emission()`` says which it is.
    nulls : "fail" or "drop"
        What a tuple does whose attribute is null (or not finite): fail the epoch, or go, counted as
        ``null_attribute``.
    """
    _check_attribute("event_time", attribute, nulls)
    _check_duration(f"event_time({attribute!r}, {size!r})", size)
    _check_duration(f"event_time({attribute!r}, …, lateness={lateness!r})", lateness)
    if early is not None:
        _check_duration(f"event_time({attribute!r}, …, early={early!r})", early, positive=True)
    return EventTime(attribute, size, lateness, nulls, early, per_key)


def sessions(attribute: str, gap: Duration, *, nulls: str = "fail") -> Sessions:
    """Sessions: a key's tuples whose times follow one another with less than a gap between.

    The stream needs event time (``Stream.event_time``): a session closes when the watermark reaches its last time and
    the gap. A tuple between two sessions that are open joins them. One that belongs to no open session, and whose own
    would have closed already, is late: it is dropped, and counted as ``late``.

    Parameters
    ----------
    attribute : str
        A column with a timestamp, a date or a whole number.
    gap : number or timedelta
        In the attribute's own unit; for timestamps a number means seconds, for dates days.
    """
    _check_attribute("sessions", attribute, nulls)
    _check_duration(f"sessions({attribute!r}, {gap!r})", gap, positive=True)
    return Sessions(attribute, gap, nulls)


def punctuation() -> Punctuated:
    """Windows that end at the punctuations of the stream: see ``Stream.punctuate``."""
    return Punctuated()


def tumbling(policy: Policy | int) -> Tumbling:
    """Windows that follow one another: ``tumbling(count(10))``, ``tumbling(delta("time", 60))``."""
    if isinstance(policy, int) and not isinstance(policy, bool):
        policy = count(policy)
    if not isinstance(policy, POLICIES):
        raise ProgramError(f"tumbling({policy!r}): expected {_CHOICES}")
    if isinstance(policy, EventTime):
        _check_duration(f"tumbling({policy})", policy.size, positive=True)
    return Tumbling(policy)


def sliding(policy: Policy | int, every: Any = 1) -> Sliding:
    """A window that moves along: its last tuples, with a result at every trigger.

    Parameters
    ----------
    policy : count(n), delta(attribute, size), time(seconds) or event_time(attribute, size)
        What the window holds when it gives a result: the key's last n tuples; those whose attribute is at most
        `size` below that of the newest; those of the last seconds; or an aligned span of event time.
    every : policy
        When it gives one: after each count(n) tuples, when an attribute has grown by more than delta(attribute,
        size) since the last result, after time(seconds), at each punctuation(). A number means so many tuples.
        For event time: how far apart windows begin, in the attribute's unit.

    Examples
    --------
    >>> str(sliding(count(10), every=count(2)))
    'sliding(count(10), every=count(2))'
    """
    if isinstance(policy, int) and not isinstance(policy, bool):
        policy = count(policy)
    if isinstance(policy, EventTime):
        shown = f"sliding({policy}, every={every!r})"
        _check_duration(shown, every, positive=True)
        if isinstance(every, datetime.timedelta) != isinstance(policy.size, datetime.timedelta):
            raise ProgramError(f"{shown}: expected size and every in one unit, found one of them as a timedelta")
        if every > policy.size:
            raise ProgramError(
                f"{shown}: expected at most the size of a window, or tuples between two windows would belong to none"
            )
        return Sliding(policy, every)
    if not isinstance(policy, (Count, Delta, Time)):
        raise ProgramError(
            f"sliding({policy!r}): expected count(n), delta(attribute, size), time(seconds) or "
            "event_time(attribute, size)"
        )
    if isinstance(every, int) and not isinstance(every, bool):
        every = count(every)
    if not isinstance(every, (Count, Delta, Time, Punctuated)):
        raise ProgramError(
            f"sliding({policy}, every={every!r}): expected count(n), delta(attribute, size), time(seconds) or "
            "punctuation()"
        )
    return Sliding(policy, every)


_CHOICES = (
    "count(n), delta(attribute, size), time(seconds), event_time(attribute, size), sessions(attribute, gap) or "
    "punctuation()"
)


def _check_attribute(policy: str, attribute: Any, nulls: str) -> None:
    if not isinstance(attribute, str):
        raise ProgramError(f"{policy}({attribute!r}, …): expected the name of an attribute")
    if nulls not in ("fail", "drop"):
        raise ProgramError(f"{policy}({attribute!r}, …, nulls={nulls!r}): expected 'fail' or 'drop'")


def _check_duration(shown: str, size: Any, positive: bool = False) -> None:
    if isinstance(size, bool) or not isinstance(size, (int, float, datetime.timedelta)):
        raise ProgramError(f"{shown}: expected a number or a timedelta")
    amount = size.total_seconds() if isinstance(size, datetime.timedelta) else size
    if not (amount > 0 if positive else amount >= 0) or amount == float("inf"):
        raise ProgramError(f"{shown}: expected {'more than 0' if positive else '0 or more'}")


# -- what a policy means for a column -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Measure:
    """How a column is measured: the difference of two equal values, and where event time counts from."""

    zero: Any
    origin: Any
    is_floating: bool


def measure(schema: Schema, shown: Any, attribute: str) -> Measure:
    """How the column of a window is measured; SchemaError if it is none that grows."""
    if attribute not in schema:
        raise SchemaError(f"{shown}: no column {attribute!r}; columns: {', '.join(schema.names)}")
    kind = schema.type_of(attribute)
    if pa.types.is_timestamp(kind):
        zone = datetime.UTC if kind.tz else None
        return Measure(datetime.timedelta(0), datetime.datetime(1970, 1, 1, tzinfo=zone), False)
    if pa.types.is_date(kind):
        return Measure(datetime.timedelta(0), datetime.date(1970, 1, 1), False)
    if pa.types.is_decimal(kind):
        return Measure(decimal.Decimal(0), decimal.Decimal(0), False)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return Measure(0, 0, pa.types.is_floating(kind))
    raise SchemaError(f"{shown}: expected a number, date or timestamp, found a column of {kind}")


def amount(schema: Schema, shown: Any, attribute: str, size: Any, aligned: bool = False) -> Any:
    """A size in the unit of a column: seconds for timestamps and days for dates become a timedelta.

    With `aligned`, multiples of it are values of the column, so it must have the column's precision.
    """
    measure(schema, shown, attribute)
    kind = schema.type_of(attribute)
    number = not isinstance(size, datetime.timedelta)
    if pa.types.is_timestamp(kind):
        return datetime.timedelta(seconds=size) if number else size
    if pa.types.is_date(kind):
        days = datetime.timedelta(days=size) if number else size
        if aligned and days % datetime.timedelta(days=1):
            raise SchemaError(f"{shown}: {attribute!r} is a date, so expected whole days, found {size!r}")
        return days
    if not number:
        raise SchemaError(f"{shown}: {attribute!r} is {kind}, so the size must be a number")
    if aligned and pa.types.is_integer(kind) and size != int(size):
        raise SchemaError(f"{shown}: {attribute!r} is {kind}, so expected a whole number, found {size!r}")
    if aligned and pa.types.is_integer(kind):
        return int(size)
    if aligned and pa.types.is_decimal(kind):
        return decimal.Decimal(repr(size))
    return size
