"""The methods of a stream that say what its time is."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from anabranch.api.building import put
from anabranch.api.declarations import to_milliseconds
from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.local_time import local_time_logic
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Feedback, Node, Watermark, caller_location

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


def event_time(
    stream: Stream,
    attribute: str,
    lateness: float | datetime.timedelta = 0,
    *,
    every: float | datetime.timedelta | None = None,
    idle: float | datetime.timedelta | None = None,
    nulls: str = "fail",
    name: str | None = None,
    on_error: str | None = None,
) -> Stream:
    """The same tuples, with a watermark that all keys share: the largest time so far, less the lateness.

    Windows of event time, joins and timers behind this stream follow it. See docs/time.md.

    Parameters
    ----------
    attribute : str
        The column that holds the time of a tuple: a timestamp, a date or a whole number.
    lateness : number or timedelta
        How far behind the largest time a tuple may be and not be late. In the attribute's unit; for timestamps a
        number means seconds, for dates days.
    every : number or timedelta, optional
        The watermark advances to multiples of this; by default of a second, a day, or 1.
    idle : seconds or timedelta, optional
        After so long without a tuple, by the clock of the epochs, this stream does not hold up others that it is
        brought together with. By default it does, however long.
    nulls : "fail" or "drop"
        What a tuple does whose time is null: fail the epoch, or go, counted as ``null_attribute``.

    Examples
    --------
    >>> import anabranch as ab
    >>> rows = [("a", 1), ("b", 2), ("a", 3), ("b", 11)]
    >>> stream = ab.from_rows(rows, "k string, at long").event_time("at")
    >>> stream.aggregate(by="k", window=ab.event_time("at", 10), n=ab.agg.count()).run_sequential()
    [(k='a', n=2), (k='b', n=1)]
    """
    location = caller_location()
    schema = stream.schema
    if not isinstance(attribute, str) or attribute not in schema:
        raise SchemaError(f"event_time at {location}: no column {attribute!r}; columns: {', '.join(schema.names)}")
    if nulls not in ("fail", "drop"):
        raise ProgramError(f"event_time at {location}: nulls={nulls!r}: expected 'fail' or 'drop'")
    scale = TimeScale.of(schema.type_of(attribute), f"event_time at {location}: {attribute!r}")
    late = _span(scale, "lateness", lateness, location)
    step = (1_000_000 if scale.kind.startswith("timestamp") else 1) if every is None else 0
    step = step or _span(scale, "every", every, location, positive=True)
    idle_ms = _idle_ms(idle, location)
    logic = Watermark(attribute, scale.kind, late, step, idle_ms, nulls)
    return put(stream, "event_time", lambda _: (logic, schema), location, name, on_error=on_error)


def _idle_ms(idle: Any, location: Any) -> int | None:
    try:
        return to_milliseconds(idle)
    except ProgramError:
        raise ProgramError(
            f"event_time at {location}: idle={idle!r}: expected a positive number of seconds or a timedelta"
        ) from None


def _span(scale: TimeScale, what: str, size: Any, location: Any, positive: bool = False) -> int:
    try:
        found = scale.span(size)
    except SchemaError as problem:
        raise ProgramError(f"event_time at {location}: {what}={size!r}: {problem}") from None
    if found < (1 if positive else 0):
        raise ProgramError(
            f"event_time at {location}: {what}={size!r}: expected {'more than 0' if positive else '0 or more'}"
        )
    return found


def local_time(stream: Stream, column: str, zone: str | None = None, *, name: str = "local") -> Stream:
    """The same tuples with a column more: what the clocks of a time zone show at the instant in a column.

    It is a timestamp without a zone: ``t.local.hour`` is the hour there, and on ``event_time("local")`` windows of a
    day are those of that zone, 23 hours or 25 where its clocks change. See docs/time.md.

    Parameters
    ----------
    column : str
        The column with the instant, a timestamp.
    zone : str, optional
        The zone, such as "America/New_York"; by default that of the Spark session (spark.sql.session.timeZone), and UTC
        for streams without a session.
    name : str
        What the column is called.

    Examples
    --------
    >>> import anabranch as ab, datetime
    >>> noon = datetime.datetime(2024, 7, 1, 12, tzinfo=datetime.UTC)
    >>> ab.from_rows([(noon,)], "at timestamp").local_time("at", "Asia/Tokyo").run_sequential()[0].local
    datetime.datetime(2024, 7, 1, 21, 0)
    """
    location = caller_location()
    chosen, session = zone, stream._session
    if chosen is None:
        chosen = "UTC" if session is None else session.spark.conf.get("spark.sql.session.timeZone", "UTC")
    return put(
        stream,
        "local_time",
        lambda called: local_time_logic(stream.schema, column, str(chosen), name, called),
        location,
        None,
    )


def scale_of(*nodes: Node) -> TimeScale | None:
    """The kind of time that the watermarks of streams have; None: there is none. ProgramError if there are several."""
    found: dict[str, Node] = {}
    seen: set[int] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node.id in seen:
            continue
        seen.add(node.id)
        if isinstance(node.logic, Watermark):
            found.setdefault(node.logic.kind, node)
        elif not isinstance(node.logic, Feedback):
            waiting += node.inputs
    if len(found) > 1:
        kinds = ", ".join(f"{TimeScale(kind).unit} at {node.location}" for kind, node in found.items())
        raise ProgramError(f"streams with different kinds of event time meet here: {kinds}; bring them to one kind")
    return TimeScale(next(iter(found))) if found else None
