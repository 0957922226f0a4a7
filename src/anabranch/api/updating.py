"""The method of a stream of updates: what each does to the table that they make."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.api.building import put
from anabranch.api.declarations import to_milliseconds
from anabranch.api.keys import By, keyed_by
from anabranch.errors import ProgramError
from anabranch.operators.changes import changes_logic
from anabranch.program.annotated_rows import seeing
from anabranch.program.graph import Logic, caller_location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


def changes(
    stream: Stream,
    by: By,
    *,
    deleted: Callable[[Any], Any] | None = None,
    column: str = "change",
    before: bool = False,
    ttl: float | datetime.timedelta | None = None,
    null_key: str = "keep",
    name: str | None = None,
) -> Stream:
    """What each tuple of a stream of updates does to the row of its key: insert it, update it, or delete it.

    A tuple replaces the one before it of its key. One that changes nothing is not emitted.

    Parameters
    ----------
    by : str, function, ab.key(…), or sequence of these
        The key of the table.
    deleted : callable, optional
        Whether a tuple says that its row is gone. What is emitted then is the row as it was; nothing if there was none.
    column : str
        The column that says what a tuple does: "insert", "update", "delete".
    before : bool
        Ahead of each update also what the row was, marked "before": for whoever must take it out of a sum.
    ttl : seconds or timedelta, optional
        A row that was not written for so long, by the clock of the epochs, is forgotten: what comes next is an insert.

    Examples
    --------
    >>> import anabranch as ab
    >>> feed = ab.from_rows([("a", 1), ("b", 5), ("a", 1), ("a", 2), ("a", None)], "id string, stock long")
    >>> feed.changes(by="id", deleted=lambda t: t.stock is None).run_sequential()
    [(id='a', stock=1, change='insert'), (id='b', stock=5, change='insert'), (id='a', stock=2, change='update'), \
(id='a', stock=2, change='delete')]
    """
    location = caller_location()
    if deleted is not None and not callable(deleted):
        raise ProgramError(f"changes at {location}: deleted={deleted!r}; expected a function of a tuple")
    keyed = keyed_by(stream, "changes", by, location, name)
    if keyed.added:
        raise ProgramError(
            f"changes at {location}: the key of a table is columns of it; select(…) what is computed first"
        )
    gone = None if deleted is None else seeing(deleted, stream.schema)

    def make(called: str) -> tuple[Logic, Schema]:
        ttl_ms = to_milliseconds(ttl)
        return changes_logic(stream.schema, keyed.names, gone, column, before, null_key, ttl_ms, called)

    return put(keyed.stream, "changes", make, location, name, keyed.names)
