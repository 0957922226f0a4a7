"""Which way a tuple goes, where a stream parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.operators.library_operator import LibraryOperator


class FirstOf(LibraryOperator):
    """The place of the first predicate that holds; behind the last if none does."""

    predicates: tuple[Callable[[Any], Any], ...]

    def __call__(self, t: Any) -> int:
        for place, predicate in enumerate(self.predicates):
            if predicate(t):
                return place
        return len(self.predicates)


class Unmarked(LibraryOperator):
    """A tuple, unless it is only a mark."""

    predicate: Callable[[Any], Any]

    def __call__(self, t: Any) -> Any:
        return None if self.predicate(t) else t
