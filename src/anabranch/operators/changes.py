"""Updates as changes of a table: what each tuple does to the row of its key, marked.

    updates   a=1     b=5     a=1     a=2            a gone
    changes   insert  insert  -       update         delete

A stream of updates (running aggregates, ranks, a feed of a database) has a key, and each tuple replaces the one before
it of its key. Here the row of each key is kept, so that what comes out says what happened to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.operators.library_operator import Guard, LibraryOperator, UserFunction, configured, fields, guard
from anabranch.operators.running_windows import is_same
from anabranch.program.graph import Keyed
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema

INSERT, UPDATE, DELETE, BEFORE = "insert", "update", "delete", "before"
"""What a change does: a row comes, is another, goes; and what a row was before it is another."""


class Changes(LibraryOperator):
    """The row of one key."""

    held: tuple[Any, ...] | None
    guard: Guard
    is_deleted: Callable[[Any], Any]
    tells_before: bool

    def take(self, t: Any) -> Any:
        if not self.guard.admits(self, t):
            return None
        held = self.held
        if self.is_deleted(t):
            self.held = None
            return None if held is None else (*held, DELETE)
        row = tuple(t)
        if held is not None and is_same(row, held):
            return None  # what was told stays: 0.0, though -0.0 is the same
        self.held = row
        if held is None:
            return (*t, INSERT)
        return [(*held, BEFORE), (*t, UPDATE)] if self.tells_before else (*t, UPDATE)


def _is_never(t: Any) -> bool:
    return False


def changes_logic(
    schema: Schema,
    key: Sequence[str],
    deleted: Callable[[Any], Any] | None,
    column: str,
    before: bool,
    null_key: str,
    ttl_ms: int | None,
    name: str,
) -> tuple[Keyed, Schema]:
    """The operator of `changes`, and the schema of what it emits."""
    prototype = configured(
        Changes,
        name,
        selectivity=Selectivity.ANY if before else Selectivity.AT_MOST_ONE,
        forwards=key,
        functions=[] if deleted is None else [UserFunction("what tells a deletion", deleted)],
        description="what each tuple does to the row of its key",
        guard=guard(schema, key, null_key),
        is_deleted=_is_never if deleted is None else deleted,
        tells_before=before,
    )
    return Keyed(prototype, "take", fields(held=None), ttl_ms), with_change(schema, column)


def with_change(schema: Schema, column: str) -> Schema:
    """The columns of changes; SchemaError if there is one of this name."""
    if not isinstance(column, str) or column in schema:
        raise SchemaError(f"the column of changes cannot be called {column!r}: choose a name that the stream lacks")
    return Schema(pa.schema([*schema.arrow, pa.field(column, pa.string(), nullable=False)]))
