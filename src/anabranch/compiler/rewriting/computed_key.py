"""An operator whose key is computed from the tuple (`t.id % 10`): the key becomes a column that tuples are routed by.

    … ─► counts[t.id % 10]      ─►      … ─ t ↦ (*t, text of t.id % 10) ─► counts, by that column, without it

The column exists between these two only; the author's code sees the tuple as it was.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from anabranch.compiler.models.key_proof import expression_function
from anabranch.compiler.reading.values import Text
from anabranch.compiler.rewriting.managed_state import ManagedDicts
from anabranch.program.graph import Keyed
from anabranch.program.key_text import key_text
from anabranch.program.model import DECLARATION, Declaration, Selectivity, State
from anabranch.program.schema import Schema


class KeyColumn:
    """Adds the key of a tuple as its last column; it declares itself, as a user's operator may (`ab.model`)."""

    def __init__(self, expression: Text, columns: tuple[str, ...]) -> None:
        self._expression = expression
        self._columns = columns
        self._function = expression_function(expression)
        setattr(self, DECLARATION, Declaration(State.STATELESS, selectivity=Selectivity.ONE, forwards=columns))

    def __reduce__(self) -> Any:
        return KeyColumn, (self._expression, self._columns)

    def __repr__(self) -> str:
        return f"KeyColumn({self._expression.source})"

    def __call__(self, t: Any) -> Any:
        return (*t, key_text(self._function(t)))


class BehindKeyColumn(ManagedDicts):
    """Runs the author's operator on tuples whose last column is their key."""

    schema: Schema

    @classmethod
    def of(cls, prototype: ManagedDicts, schema: Schema) -> BehindKeyColumn:
        """The same operator; `schema` is that of the tuples its code sees."""
        made = cls.__new__(cls)
        made.__dict__.update(prototype.__dict__)
        made.schema = schema
        return made

    def process(self, t: Any) -> Any:
        """Take one tuple; emit what the author's operator emits."""
        return super().process(self.as_written(t))

    def watched(self, t: Any) -> Any:
        """The same; what the proof says does not happen is refused."""
        return super().watched(self.as_written(t))

    def as_written(self, t: Any) -> Any:
        """The tuple as the author's code sees it."""
        return self.schema.row_class(tuple.__getitem__(t, slice(-1)))


def with_key_column(logic: Keyed, before: Schema, name: str) -> tuple[KeyColumn, Schema, Keyed]:
    """What adds the key, the columns then, and the operator behind it."""
    prototype: ManagedDicts = logic.prototype
    columns = Schema(pa.schema([*before.arrow, pa.field(name, pa.string())]))
    behind = dataclasses.replace(logic, prototype=BehindKeyColumn.of(prototype, before))
    return KeyColumn(prototype.index_source, before.names), columns, behind
