"""Event time as whole numbers, where watermarks are known, and the watermark of an operator that reads several.

Inside, a time is a whole number in the unit of its column: microseconds since 1970, days since 1970, or the number
itself. So times compare and travel the same way whatever the column holds. docs/time.md has what a watermark is.
"""

from __future__ import annotations

import dataclasses
import datetime
import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.program.graph import Feedback, Keyed, Node, Source, Watermark

BEGINNING = -(2**62)
"""The watermark of a stream of which nothing has come."""
END = 2**62
"""The watermark of a stream that has ended: above every time."""
LAST = 2**61
"""The last time there may be; the first is -LAST."""
_UNHEARD = 2**63 - 1
"""In place of the value of what is idle."""
_LONGEST = 2**60
"""Durations are below this, so that a window of any time, or a watermark, is between the two ends."""

_GRAINS = {
    "timestamp": datetime.timedelta(microseconds=1),
    "timestamp_ntz": datetime.timedelta(microseconds=1),
    "clock": datetime.timedelta(milliseconds=1),
    "date": datetime.timedelta(days=1),
}
_ORIGINS: Mapping[str, Any] = {
    "timestamp": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    "timestamp_ntz": datetime.datetime(1970, 1, 1),
    "clock": datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
    "date": datetime.date(1970, 1, 1),
    "number": 0,
}
_UNITS: Mapping[str, str] = {
    "timestamp": "a timestamp",
    "timestamp_ntz": "a timestamp without time zone",
    "clock": "a timestamp",
    "date": "a date",
    "number": "a whole number",
}


@dataclasses.dataclass(frozen=True)
class TimeScale:
    """How times of a kind of column are written as whole numbers.

    Examples
    --------
    >>> scale = TimeScale("date")
    >>> scale.number(datetime.date(1970, 1, 3)), scale.value(2), scale.span(7)
    (2, datetime.date(1970, 1, 3), 7)
    """

    kind: str

    @classmethod
    def of(cls, kind: pa.DataType, shown: str) -> TimeScale:
        """The scale of a column's type; SchemaError if it is none that can be event time."""
        if pa.types.is_timestamp(kind):
            return cls("timestamp" if kind.tz else "timestamp_ntz")
        if pa.types.is_date(kind):
            return cls("date")
        if pa.types.is_integer(kind):
            return cls("number")
        raise SchemaError(f"{shown}: expected a column with a timestamp, a date or a whole number, found {kind}")

    @property
    def unit(self) -> str:
        """What a time is, for people."""
        return _UNITS[self.kind]

    def number(self, value: Any) -> int:
        """A time as a whole number; TypeError if it is none of this kind."""
        if self.kind == "number":
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"expected a whole number as a time, found {value!r}")
            if not -LAST <= value <= LAST:
                raise ValueError(beyond(value))
            return value
        is_moment = isinstance(value, datetime.datetime)
        fits = isinstance(value, datetime.date) and is_moment == (self.kind != "date")
        if not fits or (self.kind == "timestamp_ntz" and value.tzinfo is not None):
            raise TypeError(f"expected {self.unit} as a time, found {value!r}")
        if self.kind in ("timestamp", "clock") and value.tzinfo is None:
            value = value.replace(tzinfo=datetime.UTC)
        since: datetime.timedelta = value - _ORIGINS[self.kind]
        return since // _GRAINS[self.kind] if is_moment else since.days

    def value(self, number: int) -> Any:
        """The time that a whole number stands for; the first or the last there is, if it is beyond."""
        if self.kind == "number":
            return number
        try:
            return _ORIGINS[self.kind] + number * _GRAINS[self.kind]
        except OverflowError:
            kind = type(_ORIGINS[self.kind])
            edge = kind.max if number > 0 else kind.min
            return edge.replace(tzinfo=datetime.UTC) if self.kind in ("timestamp", "clock") else edge

    def span(self, size: Any) -> int:
        """A duration as a whole number: for timestamps a plain number means seconds, for dates days."""
        if isinstance(size, datetime.timedelta):
            if self.kind == "number":
                raise SchemaError(f"expected a whole number as a duration, found {size!r}")
            whole = size / _GRAINS[self.kind] if self.kind == "date" else size // _GRAINS[self.kind]
        elif isinstance(size, bool) or not isinstance(size, (int, float)):
            raise SchemaError(f"expected a number or a timedelta as a duration, found {size!r}")
        else:
            if not math.isfinite(size):
                raise SchemaError(f"expected a duration that ends, found {size!r}")
            second = {"clock": 1000, "date": 1, "number": 1}.get(self.kind, 1_000_000)
            whole = round(size * second) if second > 1 else size
        if whole != int(whole):
            found = "whole days" if self.kind == "date" else "a whole number"
            raise SchemaError(f"expected {found} as a duration, found {size!r}")
        if not -_LONGEST < whole < _LONGEST:
            raise SchemaError(f"expected a duration below 2**60 of {self.unit}, found {size!r}")
        return int(whole)

    def numbers(self, column: pa.Array) -> np.ndarray:
        """A column of times, none of them null, as whole numbers."""
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        elif pa.types.is_date(column.type):
            column = column.cast(pa.date32()).cast(pa.int32())
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False)


def beyond(value: Any) -> str:
    """What is said of a whole number that is no time."""
    return (
        f"expected a time between -2**61 and 2**61, found {value!r}; times count from zero in a unit of your choice: "
        "choose one that keeps them between, or filter such tuples out before (on_error='skip' drops and counts them)"
    )


def event_time_of(logic: Watermark, value: Any) -> int | None:
    """The time of a tuple; None if it has none and is to be dropped for that, ValueError if that is a failure."""
    if value is not None:
        return TimeScale(logic.kind).number(value)
    if logic.nulls == "drop":
        return None
    raise ValueError(f"the event time {logic.attribute!r} is null; nulls='drop' drops and counts such tuples")


class LeastWatermark:
    """The watermark of an operator: the least of those that it reads and that are not idle. It never goes back.

    Parameters
    ----------
    names : collection of str
        Of the watermarks it reads.
    values : mapping
        Their values so far.
    idle : collection of str
        Those that hold nobody up until they are heard of again.
    value : int
        Its own so far.
    """

    def __init__(
        self, names: Collection[str], values: Mapping[str, int], idle: Collection[str], value: int = BEGINNING
    ) -> None:
        self._values = {name: values.get(name, BEGINNING) for name in names}
        self._idle = {name for name in names if name in idle}
        self.value = value

    def go_on_from(self, before: LeastWatermark, names: Mapping[str, str]) -> None:
        """Take over how far another has come, whose watermarks have other names."""
        held = {names.get(name, name): value for name, value in before._values.items()}
        self._values = {name: held.get(name, value) for name, value in self._values.items()}
        self.value = before.value

    def set_idle(self, idle: Collection[str]) -> None:
        """Say anew which are idle."""
        self._idle = {name for name in self._values if name in idle}

    def least(self, names: Iterable[str]) -> int:
        """The least value of some of those it reads."""
        return min((self._values[name] for name in names), default=BEGINNING)

    def advance(self) -> bool:
        """Whether it is higher than before."""
        heard = [value for name, value in self._values.items() if name not in self._idle]
        low = min(heard, default=BEGINNING)
        if low <= self.value:
            return False
        self.value = low
        return True

    def take(self, name: str, value: int) -> bool:
        """One of those it reads has a value: whether whoever reads this one must be told."""
        was_idle = len(self._idle) == len(self._values)
        self._idle.discard(name)
        self._values[name] = max(value, self._values[name])
        return self.advance() or was_idle

    def take_all(self, names: Sequence[str], values: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The same for many, one after the other (of no name: `advance`): what each says, and how high it is then."""
        places = {name: at for at, name in enumerate(self._values)}
        named = np.array([places.get(name, -1) for name in names], dtype=np.int64)
        given = np.array(values, dtype=np.int64)
        was_idle = len(self._idle) == len(self._values)
        least = np.full(len(named), _UNHEARD)
        for name, at in places.items():
            mine = named == at
            high = np.maximum.accumulate(np.where(mine, given, self._values[name]))
            high = np.maximum(high, self._values[name])
            if mine.any():
                self._values[name] = int(high[-1])
            if name in self._idle:
                heard = np.logical_or.accumulate(mine)
                high = np.where(heard, high, _UNHEARD)
                self._idle -= {name} if mine.any() else set()
            least = np.minimum(least, high)
        highest = np.maximum.accumulate(np.maximum(np.where(least == _UNHEARD, BEGINNING, least), self.value))
        told = highest > np.concatenate([[self.value], highest[:-1]])[: len(highest)]
        if was_idle and (named >= 0).any():
            told[int(np.argmax(named >= 0))] = True
        if len(highest):
            self.value = int(highest[-1])
        return told, highest


def idle_watermarks(read: Iterable[tuple[str, Collection[str]]], idle: Collection[str]) -> frozenset[str]:
    """All watermarks that are idle: those that are said to be, and those made of none but idle ones.

    `read` has, in an order in which inputs come first, the name of each watermark that is made of others, and these.
    """
    found = set(idle)
    for name, names in read:
        if names and found.issuperset(names):
            found.add(name)
    return frozenset(found)


def watermarks_behind(nodes: Iterable[Node]) -> dict[int, tuple[str, ...]]:
    """Operator → the names of the watermarks of its output, in an order in which inputs come first.

    A watermark has the name of the operator that makes it: an `event_time`, or one whose keys wait for watermarks,
    behind which there is one instead of those it reads. All others let watermarks pass.
    """
    found: dict[int, tuple[str, ...]] = {}
    for node in nodes:
        read = watermarks_read(node, found)
        makes = isinstance(node.logic, Watermark) or (isinstance(node.logic, Keyed) and node.logic.by_watermark)
        found[node.id] = (node.name,) if makes else read
    return found


def watermarks_read(node: Node, behind: Mapping[int, tuple[str, ...]]) -> tuple[str, ...]:
    """The names of the watermarks that an operator reads, of all inputs."""
    return tuple(dict.fromkeys(name for each in node.inputs for name in behind[each.id]))


def awaiting_watermarks(nodes: Sequence[Node]) -> set[int]:
    """The operators that need the watermarks of their inputs, or pass them on to one that does."""
    found: set[int] = set()
    for node in reversed(nodes):
        waits = isinstance(node.logic, Keyed) and node.logic.by_watermark
        if (waits or node.id in found) and not isinstance(node.logic, (Source, Feedback)):
            found.add(node.id)
            found.update(each.id for each in node.inputs if not isinstance(node.logic, Watermark))
    return found


class Timetable:
    """The keys that wait, by the time that each waits for; those of one time since when they wait.

    What a key waits for may change while it waits: whoever takes an entry asks whether it still holds.

    Examples
    --------
    >>> table = Timetable()
    >>> table.add(20, 1, "a"), table.add(10, 2, "b"), table.add(10, 1, "c")
    (None, None, None)
    >>> table.next(15), table.next(15), table.next(15)
    ((10, 1, 'c'), (10, 2, 'b'), None)
    """

    def __init__(self) -> None:
        # Many keys wait for one time, the end of a window say: there is a list for each time, sorted when it has come.
        self._times: list[int] = []
        self._waiting: dict[int, list[tuple[Any, int, Any]]] = {}
        self._added = 0
        self._due = 0
        self._left: list[tuple[Any, int, Any]] = []  # of those that are due, the first one last

    def add(self, due: int, since: Any, key: Any) -> None:
        """A key waits for a time, which must not be before that of the last that was due."""
        if self._left and due == self._due:
            self._added += 1
            self._left.append((since, self._added, key))
            if len(self._left) > 1 and self._left[-2][0] < since:
                self._left.sort(reverse=True)
            return
        waiting = self._waiting.get(due)
        if waiting is None:
            waiting = self._waiting[due] = []
            heapq.heappush(self._times, due)
        self._added += 1  # keys need not have an order
        waiting.append((since, self._added, key))

    def next(self, now: int) -> tuple[int, Any, Any] | None:
        """The next that is due when time has come to `now`: (time, since when, key)."""
        if not self._left:
            if not self._times or self._times[0] > now:
                return None
            self._due = heapq.heappop(self._times)
            self._left = self._waiting.pop(self._due)
            self._left.sort(reverse=True)
        since, _, key = self._left.pop()
        return self._due, since, key
