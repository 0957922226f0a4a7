"""Columns that are read when somebody asks for them, and what is known of them before.

    source ─► where(t.kind == 7) ─► map ─► …        kind is read; the others, if a tuple of the batch is left behind it

A batch may have such columns in place of Arrow's. Choosing some of its tuples, or a field of a struct, reads nothing,
so what a filter leaves nothing of is never read at all, and no step need know what comes behind it.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ColumnFacts:
    """What is known of the values of a column without reading them.

    Attributes
    ----------
    may_be_null, may_be_there : bool
        Whether some may be null, or one may be none.
    least, most : optional
        Bounds of those that are there and are numbers, as columns hold them (texts: as UTF-8); a NaN is in no bounds.
        None: unknown.
    """

    may_be_null: bool = True
    may_be_there: bool = True
    least: Any = None
    most: Any = None

    def joined(self, other: ColumnFacts) -> ColumnFacts:
        """What is known of the values of both."""
        is_bounded = (self.least is not None or not self.may_be_there) and (
            other.least is not None or not other.may_be_there
        )
        bounds = [each for each in (self, other) if each.least is not None] if is_bounded else []
        return ColumnFacts(
            self.may_be_null or other.may_be_null,
            self.may_be_there or other.may_be_there,
            min((each.least for each in bounds), default=None),
            max((each.most for each in bounds), default=None),
        )


class LateRows(Protocol):
    """Some rows of a file of which columns are read when they are asked for."""

    count: int

    def array(self, column: int, path: Path) -> pa.Array:
        """A column, or a field within structs; null where one of these is."""

    def is_null(self, column: int, path: Path) -> pa.Array:
        """Where it is null, from as few columns as say so."""

    def facts(self, column: int, path: Path) -> ColumnFacts:
        """What is known of it."""


class LateColumn:
    """A column of a batch, or a field within structs, that may not be read yet."""

    __slots__ = ("_array", "_chosen", "_column", "_path", "_rows", "type")

    def __init__(
        self, rows: LateRows, column: int, kind: pa.DataType, path: Path = (), chosen: np.ndarray | None = None
    ) -> None:
        self._rows = rows
        self._column = column
        self._path = path
        self._chosen = chosen
        self._array: pa.Array | None = None
        self.type = kind

    def __len__(self) -> int:
        return self._rows.count if self._chosen is None else len(self._chosen)

    @property
    def facts(self) -> ColumnFacts:
        """What is known of it, and so of any part of it."""
        return self._rows.facts(self._column, self._path)

    @property
    def null_count(self) -> int:
        """How many are null."""
        return int(self.is_null().true_count)

    def array(self) -> pa.Array:
        """The column, read if it must be."""
        if self._array is None:
            if not len(self):
                return pa.array([], self.type)
            self._array = self._part(self._rows.array(self._column, self._path))
        return self._array

    def is_null(self) -> pa.Array:
        """Where it is null."""
        if self._array is not None:
            return self._array.is_null()
        if not len(self) or not self.facts.may_be_null:
            return pa.array(np.zeros(len(self), dtype=bool))
        return self._part(self._rows.is_null(self._column, self._path))

    def field(self, path: Path) -> LateColumn:
        """A field within structs."""
        kind = self.type
        for name in path:
            kind = kind.field(name).type
        return LateColumn(self._rows, self._column, kind, (*self._path, *path), self._chosen) if path else self

    def has(self, path: Path) -> bool:
        """Whether there is such a field in what is read of it."""
        kind = self.type
        for name in path:
            if kind.get_field_index(name) < 0:
                return False
            kind = kind.field(name).type
        return True

    def taken(self, places: np.ndarray) -> LateColumn:
        """Some of it, in their order."""
        return self._with(places if self._chosen is None else self._chosen[places])

    def slice(self, start: int, count: int) -> LateColumn:
        """What stands together in it."""
        chosen = np.arange(len(self)) if self._chosen is None else self._chosen
        return self._with(chosen[start : start + count])

    def _with(self, chosen: np.ndarray) -> LateColumn:
        return LateColumn(self._rows, self._column, self.type, self._path, chosen)

    def _part(self, array: pa.Array) -> pa.Array:
        return array if self._chosen is None else array.take(pa.array(self._chosen))
