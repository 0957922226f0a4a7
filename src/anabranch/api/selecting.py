"""`select`: which columns a stream has."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.api.building import put
from anabranch.api.keys import field_of, type_of_result
from anabranch.errors import SchemaError
from anabranch.operators.chosen_columns import select_logic
from anabranch.program.annotated_rows import seeing
from anabranch.program.ddl import parse_ddl
from anabranch.program.graph import Location, caller_location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream

Column = str | Callable[[Any], Any] | tuple[Callable[[Any], Any], str]


def select(stream: Stream, *columns: str, **named: Column) -> Stream:
    """The chosen columns of each tuple, and columns that are computed.

    Parameters
    ----------
    *columns : str
        Columns, ``"*"`` for all, or fields of structs, ``"bid.price"``, which are then called by their own names.
    **named
        More columns, by their names: a column or field under another name; a function of the tuple; or a function and
        the type of its result, ``(function, "decimal(23, 3)")``, where the code does not show it.

    Examples
    --------
    >>> import anabranch as ab
    >>> bids = ab.from_rows([(7, {"price": 20})], "id long, bid struct<price:long>")
    >>> bids.select("id", euros="bid.price", third=(lambda t: t.bid["price"] / 3, "double")).run_sequential()
    [(id=7, euros=20, third=6.666666666666667)]
    """
    location = caller_location()
    schema = stream.schema
    fields: list[pa.Field] = []
    chosen: list[int | Callable[[Any], Any]] = []
    functions: list[Callable[[Any], Any]] = []

    def add(name: str, kind: pa.DataType, how: int | Callable[[Any], Any]) -> None:
        if any(field.name == name for field in fields):
            raise SchemaError(f"select at {location}: two columns have the name {name!r}; name one of them anew: new=…")
        plain = isinstance(how, int) and schema.arrow.field(how).nullable is False
        fields.append(pa.field(name, kind, nullable=not plain))
        chosen.append(how)

    for column in columns:
        for name in schema.names if column == "*" else (column,):
            found = field_of(schema, _text(name, location), f"select at {location}: {name!r}")
            add(found.name, found.type, found.place if not found.path else found.function)
    for name, what in named.items():
        if isinstance(what, str):
            found = field_of(schema, what, f"select at {location}: {name}={what!r}")
            add(name, found.type, found.place if not found.path else found.function)
            continue
        function, said = what if isinstance(what, tuple) and len(what) == 2 else (what, None)
        if not callable(function):
            raise SchemaError(
                f"select at {location}: {name}={what!r}: expected a column, a function of a tuple, or a function and "
                "the type of its result"
            )
        function = seeing(function, schema)
        add(name, _type(name, function, said, schema, location), function)
        functions.append(function)
    if not fields:
        raise SchemaError(f"select at {location}: nothing is chosen; name at least one column")
    output = Schema(pa.schema(fields))
    return put(stream, "select", lambda called: select_logic(schema, output, chosen, functions, called), location, None)


def _text(name: Any, location: Location) -> str:
    if isinstance(name, str):
        return name
    raise SchemaError(f"select at {location}: {name!r} is no name; what is computed needs one: new=lambda t: …")


def _type(name: str, function: Callable[[Any], Any], said: Any, schema: Schema, location: Location) -> pa.DataType:
    if said is None:
        found = type_of_result(function, schema)
        if found is None:
            raise SchemaError(
                f"select at {location}: the type of {name!r} is unknown; say it: {name}=(lambda t: …, 'double')"
            )
        return found
    try:
        return parse_ddl(f"x {said}").field(0).type
    except (SchemaError, AttributeError, TypeError) as problem:
        raise SchemaError(f"select at {location}: {name}=(…, {said!r}): expected a type: {problem}") from None
