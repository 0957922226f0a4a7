"""What one program of this collection consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anabranch as ab


@dataclass(frozen=True)
class Expected:
    """What a reader says about one operator: "stateless", or "keyed" with the columns of the key."""

    kind: str
    key: tuple[str, ...] = ()


STATELESS = Expected("stateless")


def keyed(*columns: str) -> Expected:
    return Expected("keyed", columns)


@dataclass(frozen=True)
class Data:
    """Rows of one domain, the same each time."""

    schema: str
    rows: Callable[[], list[tuple[Any, ...]]]


@dataclass(frozen=True)
class Entry:
    """A program: `make` puts its operators, made anew, behind a stream of the data's rows.

    `expected` has one item for each operator, in the order in which they are declared.
    """

    name: str
    data: Data
    make: Callable[[ab.Stream], ab.Stream]
    expected: tuple[Expected, ...]

    @property
    def kind(self) -> str:
        kinds = {each.kind for each in self.expected}
        return kinds.pop() if len(kinds) == 1 else "mixed"

    def build(self, rows_per_epoch: int | None = None) -> ab.Stream:
        return self.make(ab.from_rows(self.data.rows(), self.data.schema, rows_per_epoch=rows_per_epoch))


def stateless(name: str, data: Data, make: Callable[[ab.Stream], ab.Stream]) -> Entry:
    """A program of one operator without state."""
    return Entry(name, data, make, (STATELESS,))


def per_key(name: str, data: Data, make: Callable[[ab.Stream], ab.Stream], *key: str) -> Entry:
    """A program of one operator whose state is per key."""
    return Entry(name, data, make, (keyed(*key),))
