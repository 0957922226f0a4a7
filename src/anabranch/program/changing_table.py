"""A table that changes while a query runs: who reads it, and what operators make of a version of it.

    reader ── at the start of an epoch ──► version ── recorded with the epoch ──► lookup, in every task

The reader stays with the driver: it may be a function of the user's, with a session or a connection in it. Tasks are
given the version that the epoch was begun with.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.program.not_a_number import one_nan
from anabranch.program.schema import Schema

Lookup = Mapping[tuple[Any, ...], tuple[Any, ...]]
"""Key → the columns that are added."""


@dataclasses.dataclass(frozen=True)
class TableShape:
    """What a version of a table is made of.

    Attributes
    ----------
    number : str
        By which the operator asks for it: unique in the process that built the program.
    schema : Schema
        Its columns.
    keys, added : tuple of int
        Which of them are the key, and which an operator adds.
    """

    number: str
    schema: Schema
    keys: tuple[int, ...]
    added: tuple[int, ...]

    def lookup(self, rows: Sequence[Any]) -> Lookup:
        """The rows by their keys; the last one of a key counts."""
        item = tuple.__getitem__
        return {
            tuple(one_nan(item(row, at)) for at in self.keys): tuple(item(row, at) for at in self.added) for row in rows
        }


class ChangingTable:
    """Reads a table.

    Parameters
    ----------
    shown : str
        How errors call it.
    read : function
        Gives its rows, as tuples of the schema.
    fingerprint : function, optional
        What tells whether it may have changed, for less than reading it; without it, it is read each time.
    refresh_ms : int or None
        How often it is looked at, by the clock of the epochs; None: when a query starts.
    keeps : bool
        If it cannot be read, go on with the last version.
    """

    def __init__(
        self,
        shown: str,
        shape: TableShape,
        read: Callable[[], Sequence[Any]],
        fingerprint: Callable[[], Any] | None,
        refresh_ms: int | None,
        keeps: bool,
    ) -> None:
        self.shown = shown
        self.shape = shape
        self.read = read
        self.fingerprint = fingerprint
        self.refresh_ms = refresh_ms
        self.keeps = keeps

    def __reduce__(self) -> tuple[Any, ...]:
        # On the way to workers: they never read it.
        return ChangingTable, (self.shown, self.shape, _stays_behind, None, None, False)


def _stays_behind() -> Sequence[Any]:
    raise RuntimeError("a table is read by the driver alone")
