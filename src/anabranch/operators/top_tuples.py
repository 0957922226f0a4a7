"""The first tuples of each key by some order, as they change: a stream of updates.

    prices of an auction   3      9        5             1
    the first two          3 (1)  9 (1)    5 (2)                 a tuple that enters takes a rank,
                                  3 (2)                          and those behind it the next

With a rank, whatever now stands at a rank replaces what stood there: an update with the key and the rank. Without one,
tuples are emitted as they enter: for one tuple that is an update with the key. With changes, so is what leaves.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.changes import DELETE, INSERT, with_change
from anabranch.operators.library_operator import Guard, LibraryOperator, configured, fields, guard
from anabranch.operators.sorting import Rank, ranked_columns
from anabranch.program.graph import Keyed
from anabranch.program.schema import Schema


class TopTuples(LibraryOperator):
    """The first tuples of one key, in order."""

    held: list[Any]
    count: int
    guard: Guard
    rank: Callable[[Any], tuple[Any, ...]]

    def take(self, t: Any) -> Any:
        place = self._place(t)
        return None if place is None else t

    def take_ranked(self, t: Any) -> Any:
        place = self._place(t)
        if place is None:
            return None
        return [(*held, number) for number, held in enumerate(self.held[place:], start=place + 1)]

    def take_changes(self, t: Any) -> Any:
        last = self.held[-1] if len(self.held) == self.count else None
        if self._place(t) is None:
            return None
        return (*t, INSERT) if last is None else [(*last, DELETE), (*t, INSERT)]

    def _place(self, t: Any) -> int | None:
        """Put a tuple in its place, behind its equals; None if it is none of the first."""
        if not self.guard.admits(self, t):
            return None
        place = bisect.bisect_right(self.held, self.rank(t), key=self.rank)
        if place >= self.count:
            return None
        self.held.insert(place, tuple(t))
        del self.held[self.count :]
        return place


def top_logic(
    schema: Schema,
    count: int,
    columns: Sequence[str],
    key: Sequence[str],
    descending: Any,
    rank: str | None,
    change: str | None,
    null_key: str,
    ttl_ms: int | None,
    name: str,
) -> tuple[Keyed, Schema]:
    """The operator of `top`, and the schema of what it emits."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ProgramError(f"top({count!r}, …): expected how many, 1 or more")
    places, turned = ranked_columns(schema, columns, descending, "order")
    if rank is not None and rank in schema:
        raise SchemaError(f"rank={rank!r}: the stream has a column of this name; choose another")
    if rank is not None and change is not None:
        raise ProgramError("rank and change are two forms of updates; expected one of them")
    order = ", ".join(f"{column}{' descending' if down else ''}" for column, down in zip(columns, turned, strict=True))
    prototype = configured(
        TopTuples,
        name,
        forwards=schema.names if rank is None and change is None else key,
        description=f"the first {count} by {order}",
        guard=guard(schema, key, null_key),
        rank=Rank(places, turned),
        count=count,
    )
    if change is not None:
        return Keyed(prototype, "take_changes", fields(held=list), ttl_ms), with_change(schema, change)
    output = schema if rank is None else Schema(pa.schema([*schema.arrow, pa.field(rank, pa.int64())]))
    return Keyed(prototype, "take" if rank is None else "take_ranked", fields(held=list), ttl_ms), output
