"""Late tuples as a stream: an aggregation emits them beside its results, and two operators take them apart again."""

from __future__ import annotations

from typing import Any

from anabranch.operators.aggregation import LATE_COLUMN
from anabranch.operators.library_operator import LibraryOperator, configured
from anabranch.program.graph import FlatMap
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema


class OnlyResults(LibraryOperator):
    """The results, without the column of late tuples."""

    def __call__(self, t: Any) -> Any:
        return None if tuple.__getitem__(t, -1) is not None else tuple(t)[:-1]


class OnlyLate(LibraryOperator):
    """The late tuples as they were."""

    names: tuple[str, ...]

    def __call__(self, t: Any) -> Any:
        late = tuple.__getitem__(t, -1)
        return None if late is None else tuple(late[name] for name in self.names)


def results_logic(schema: Schema, key: tuple[str, ...], name: str) -> tuple[FlatMap, Schema]:
    """The operator that gives the results of an aggregation that emits late tuples as well."""
    columns = Schema(schema.arrow.remove(schema.names.index(LATE_COLUMN)))
    return FlatMap(configured(OnlyResults, name, selectivity=Selectivity.AT_MOST_ONE, forwards=key)), columns


def late_logic(schema: Schema, name: str) -> tuple[FlatMap, Schema]:
    """The operator that gives the late tuples; `schema` is that of the stream that was aggregated."""
    made = configured(OnlyLate, name, selectivity=Selectivity.AT_MOST_ONE, names=schema.names)
    return FlatMap(made), schema
