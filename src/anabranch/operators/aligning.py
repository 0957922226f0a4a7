"""Streams aligned by event time: their tuples in the order of their times, whenever they come.

A tuple is held until the watermark of all streams has passed its time. Then everything that is not late has come that
could stand before it, so the order is a function of the data: it does not depend on how sources were cut into epochs,
nor on which of them was read faster. Of equal times the order is that of the other columns: tuples that agree in all of
them cannot be told apart. A tuple is late by the watermark of *its own* stream, which others have no part in.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.operators.epoch_context import moment
from anabranch.operators.library_operator import LATE, Guard, LibraryOperator, configured, fields, guard
from anabranch.operators.sorting import Rank
from anabranch.program.event_time import TimeScale
from anabranch.program.graph import Keyed
from anabranch.program.model import Load
from anabranch.program.schema import Schema


class Align(LibraryOperator):
    """The tuples of one key that are held, in their order."""

    held: list[tuple[int, Any]]
    timer_due: int | None
    guard: Guard
    place: int
    scale: TimeScale
    rank: Callable[[Any], tuple[Any, ...]]

    def take(self, t: Any, now: int) -> None:
        if not self.guard.admits(self, t):
            return
        at = self.scale.number(tuple.__getitem__(t, self.place))
        if at < now:
            self.note(LATE)
            return
        rank = self.rank
        bisect.insort(self.held, (at, tuple(t)), key=lambda each: (each[0], rank(each[1])))
        # While its stream was idle the others may have passed it: it then goes with the next advance, as a timer does.
        self.timer_due = max(self.held[0][0], moment().reached) + 1

    def fire(self, time: int) -> list[Any]:
        count = bisect.bisect_left(self.held, time, key=lambda each: each[0])
        released = [t for _, t in self.held[:count]]
        del self.held[:count]
        self.timer_due = self.held[0][0] + 1 if self.held else None
        return released


def align_logic(
    schema: Schema, others: Sequence[Schema], on: str, key: Sequence[str], nulls: str, scale: TimeScale, name: str
) -> Keyed:
    """The operator that aligns streams."""
    for other in others:
        if other != schema:
            raise SchemaError(
                f"expected streams with the columns {schema}, found {other}; bring them to one schema with map(…) first"
            )
    if on not in schema:
        raise SchemaError(f"on={on!r}: no such column; columns: {', '.join(schema.names)}")
    own = TimeScale.of(schema.type_of(on), f"on={on!r}")
    if own != scale:
        raise SchemaError(f"on={on!r} is {own.unit}, but the event time of the streams is {scale.unit}")
    compared = [at for at, kind in enumerate(schema.arrow.types) if not pa.types.is_nested(kind)]
    prototype = configured(
        Align,
        name,
        forwards=key,
        load=Load(state="linear"),
        guard=guard(schema, (), attribute=on, nulls=nulls),
        place=schema.names.index(on),
        scale=scale,
        rank=Rank(compared, [False] * len(compared)),
        description=f"by {on}",
    )
    state = fields(held=list, timer_due=None, timer_since=None)
    methods = ("take",) * (1 + len(others))
    return Keyed(prototype, "take", state, methods=methods, timed="fire", takes_time=True, per_input=True)
