"""`select` as an operator without state: columns, fields of structs and what functions give, as a new tuple."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.operators.library_operator import LibraryOperator, UserFunction, configured
from anabranch.program.graph import Map
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema


class Select(LibraryOperator):
    """Makes a tuple of what is chosen: the place of a column, or a function of the tuple."""

    chosen: tuple[int | Callable[[Any], Any], ...]

    def __call__(self, t: Any) -> Any:
        return tuple([tuple.__getitem__(t, each) if isinstance(each, int) else each(t) for each in self.chosen])


class SelectColumns(Select):
    """The same where all are columns."""

    places: tuple[int, ...]

    def __call__(self, t: Any) -> Any:
        values = tuple(t)
        return tuple([values[place] for place in self.places])


def select_logic(
    schema: Schema,
    output: Schema,
    chosen: Sequence[int | Callable[[Any], Any]],
    functions: Sequence[Callable[[Any], Any]],
    name: str,
) -> tuple[Map, Schema]:
    """The operator of a selection; `functions` are the user's among what is chosen."""
    forwards = [
        column
        for column, each in zip(output.names, chosen, strict=True)
        if isinstance(each, int) and schema.names[each] == column
    ]
    places = [each for each in chosen if isinstance(each, int)]
    kind, more = (SelectColumns, {"places": tuple(places)}) if len(places) == len(chosen) else (Select, {})
    made = configured(
        kind,
        name,
        selectivity=Selectivity.ONE,
        forwards=forwards,
        functions=[UserFunction("a function of its columns", function) for function in functions],
        chosen=tuple(chosen),
        **more,
    )
    return Map(made), output
