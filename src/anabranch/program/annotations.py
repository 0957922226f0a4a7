"""Types of columns from annotations of Python."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import SchemaError
from anabranch.program.ddl import parse_ddl

_PYTHON_TYPES: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us", tz="UTC"),
    datetime.date: pa.date32(),
    decimal.Decimal: pa.decimal128(38, 18),
}


def arrow_type_of(annotation: Any) -> pa.DataType | None:
    """The column type of a Python annotation, or None."""
    if annotation in _PYTHON_TYPES:
        return _PYTHON_TYPES[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return parse_ddl(f"x {arguments[1]}").field(0).type if isinstance(arguments[1], str) else None
    present = [argument for argument in arguments if argument is not types.NoneType]
    if origin is not None and len(present) == 1 and len(arguments) == 2 and types.NoneType in arguments:
        return arrow_type_of(present[0])
    if origin in (list, Sequence) and arguments:
        item = arrow_type_of(arguments[0])
        return None if item is None else pa.list_(item)
    if origin is dict and len(arguments) == 2:
        key, item = arrow_type_of(arguments[0]), arrow_type_of(arguments[1])
        return None if key is None or item is None else pa.map_(key, item)
    fields = annotated_fields(annotation)
    if fields is None:
        return None
    return pa.struct([pa.field(name, kind) for name, kind in fields])


def annotated_fields(annotation: Any) -> list[tuple[str, pa.DataType]] | None:
    """The columns of a record class (NamedTuple, dataclass, TypedDict), or None."""
    if not isinstance(annotation, type) or annotation in _PYTHON_TYPES:
        return None
    is_record = (
        (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
        or dataclasses.is_dataclass(annotation)
        or typing.is_typeddict(annotation)
    )
    if not is_record:
        return None
    fields = []
    for name, kind in typing.get_type_hints(annotation, include_extras=True).items():
        column = arrow_type_of(kind)
        if column is None:
            raise SchemaError(
                f"the field {name!r} of {annotation.__name__} has the type {kind!r}, which no column holds; "
                f"use one of {', '.join(t.__name__ for t in _PYTHON_TYPES)}, list[…], dict[…, …], … | None, "
                "or give the schema as a DDL string"
            )
        fields.append((name, column))
    return fields
