"""Keys that are no columns of a stream, but computed from its tuples: columns that exist around one operator only.

    by=("shop", "bid.auction", lambda t: t.at.date())

    … ─► t ↦ (*t, auction, key) ─► the operator, by shop, auction, key ─► what it emits, without them

The key is computed where the stream is split, as any map without state is. The columns are typed where the type is
known: by the field, by the author (`ab.key`), or by what the code shows. Else a key is its text (`text_of_key`), which
tells apart what a dict tells apart.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.operators.library_operator import LibraryOperator, UserFunction, configured
from anabranch.program.graph import Keyed, Map
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema


class Field:
    """Takes a field of a struct, however deep; null where one on the way is null."""

    def __init__(self, place: int, path: Sequence[str]) -> None:
        self.place = place
        self.path = tuple(path)

    def __call__(self, t: Any) -> Any:
        value = tuple.__getitem__(t, self.place)
        for name in self.path:
            if value is None:
                return None
            value = value[name]
        return value


class AsText:
    """Gives the text of what a function gives."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, t: Any) -> str | None:
        return text_of_key(self.function(t))


class KeyColumns(LibraryOperator):
    """Adds what is computed from a tuple to it; `parts` are functions, with how many columns each gives."""

    parts: tuple[tuple[Callable[[Any], Any], int], ...]

    def __call__(self, t: Any) -> Any:
        added: list[Any] = []
        for function, columns in self.parts:
            value = function(t)
            if columns == 1:
                added.append(value)
                continue
            if not isinstance(value, (tuple, list)) or len(value) != columns:
                raise TypeError(f"the key has {columns} columns; its function returned {value!r}")
            added += value
        return (*t, *added)


class WithoutColumns(LibraryOperator):
    """Takes some columns away."""

    places: tuple[int, ...]

    def __call__(self, t: Any) -> Any:
        return tuple(tuple.__getitem__(t, place) for place in self.places)


def key_columns_logic(
    schema: Schema,
    output: Schema,
    parts: Sequence[tuple[Callable[[Any], Any], int]],
    functions: Sequence[Callable[[Any], Any]],
    name: str,
) -> tuple[Map, Schema]:
    """The operator that adds the columns of a key; `functions` are those of the user among them."""
    read = [UserFunction("the function of its key", function) for function in functions]
    made = configured(
        KeyColumns, name, selectivity=Selectivity.ONE, forwards=schema.names, functions=read, parts=tuple(parts)
    )
    return Map(made), output


def without_columns_logic(schema: Schema, gone: Sequence[str], name: str) -> tuple[Map, Schema]:
    """The operator that takes columns away."""
    kept = [column for column in schema.names if column not in gone]
    places = tuple(schema.names.index(column) for column in kept)
    made = configured(WithoutColumns, name, selectivity=Selectivity.ONE, forwards=kept, places=places)
    return Map(made), Schema(pa.schema([schema.arrow.field(column) for column in kept]))


def behind_key_columns(logic: Keyed, schema: Schema) -> Keyed:
    """A user's operator that meets tuples as they were: of `schema`, without the columns behind it."""
    kind = type(logic.prototype)
    made = type(kind.__name__, (_Behind, kind), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    prototype: Any = object.__new__(made)
    prototype.__dict__.update(logic.prototype.__dict__)
    made.schema_as_written = schema  # type: ignore[attr-defined]
    made.kind_as_written = kind  # type: ignore[attr-defined]
    return dataclasses.replace(logic, prototype=prototype)


class _Behind:
    """Before a class of the user's in the order of its bases."""

    schema_as_written: Schema
    kind_as_written: type

    def process(self, t: Any) -> Any:
        """Take one tuple; emit what the author's operator emits."""
        return super().process(self.as_written(t))  # type: ignore[misc]

    def as_written(self, t: Any) -> Any:
        """The tuple as the author's code sees it."""
        row_class = self.schema_as_written.row_class
        return t if type(t) is row_class else row_class(tuple.__getitem__(t, slice(len(self.schema_as_written.names))))

    def operator_as_written(self) -> Any:
        """The author's own object, for whoever reads its code."""
        made: Any = object.__new__(self.kind_as_written)
        made.__dict__.update(self.__dict__)
        return made


def text_of_key(key: Any) -> str | None:
    """A text for a key of any kind; null for None. Two keys have one text if and only if they are equal.

    Examples
    --------
    >>> text_of_key(1) == text_of_key(1.0) == text_of_key(decimal.Decimal("1.00"))
    True
    >>> text_of_key(("a", 1)) == text_of_key(("a", "1"))
    False
    """
    return None if key is None else repr(_canonical(key))


def _canonical(key: Any) -> Any:
    if isinstance(key, enum.Enum) and not isinstance(key, (int, str)):  # those are equal to their values
        return "enum", type(key).__qualname__, key.name
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, (bool, int, float, decimal.Decimal)):
        return _number(key)
    if isinstance(key, tuple):
        return "tuple", tuple(map(_canonical, key))
    if isinstance(key, datetime.datetime):
        # Aware ones are equal if they are the same instant, naive ones if they read the same, whatever their fold.
        zoned = key.utcoffset() is not None
        return "instant" if zoned else "time", (key.astimezone(datetime.UTC) if zoned else key).replace(
            fold=0, tzinfo=None
        ).isoformat()
    if isinstance(key, datetime.date):
        return "date", key.isoformat()
    if isinstance(key, datetime.timedelta):
        return "span", hex(key // datetime.timedelta(microseconds=1))
    if hasattr(key, "item") and type(key).__module__ == "numpy":
        return _canonical(key.item())
    raise TypeError(
        f"a key cannot be {key!r}; expected a number, text, bytes, a date, a time, a member of an enumeration, None, "
        "or a tuple of these"
    )


def _number(key: bool | int | float | decimal.Decimal) -> Any:
    if isinstance(key, int):
        return "number", hex(key), "0x1"  # not `str`: whole numbers of many thousand digits would be refused
    if key != key:
        return "number", "nan"
    if key in (float("inf"), float("-inf")):
        return "number", "inf" if key > 0 else "-inf"
    over, under = key.as_integer_ratio()
    return "number", hex(over), hex(under)
