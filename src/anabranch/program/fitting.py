"""What a column holds of a Python value: the exact value of its type, or an error.

Only conversions that lose nothing are made: int → double, numpy scalars, naive datetimes as UTC. What a type asks of a
value is worked out once for the type (`fitting`) and not for every value: rows of structs are fitted field by field.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import functools
from collections.abc import Callable
from datetime import UTC
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.program.not_a_number import one_nan

Fit = Callable[[Any], Any]


def fit_value(value: Any, kind: pa.DataType) -> Any:
    """The exact Python value that a column of this type holds for `value`; TypeError or ValueError if none."""
    return fitting(kind)(value)


@functools.cache
def fitting(kind: pa.DataType) -> Fit:
    """`fit_value` for one type."""
    fit = _fitting(kind)

    def fitted(value: Any) -> Any:
        if value is None:
            return None
        return fit(value.item() if isinstance(value, np.generic) else value)

    return fitted


def _fitting(kind: pa.DataType) -> Fit:
    """The same for what is neither null nor of numpy."""
    if pa.types.is_boolean(kind):
        return _bool
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_floating(kind):
        return _floating(kind)
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_binary(kind):
        return _binary
    if pa.types.is_timestamp(kind):
        return _instant if kind.tz else _local_time
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_list(kind):
        return _list(fitting(kind.value_type))
    if pa.types.is_map(kind):
        return _map(fitting(kind.key_type), fitting(kind.item_type))
    if pa.types.is_struct(kind):
        return _struct(kind)

    def unsupported(_: Any) -> Any:
        raise TypeError(f"values of the Arrow type {kind} are not supported")

    return unsupported


def _bool(value: Any) -> bool:
    if type(value) is bool:
        return value
    raise TypeError("expected a bool")


def _integer(kind: pa.DataType) -> Fit:
    signed = pa.types.is_signed_integer(kind)
    lowest = -(2 ** (kind.bit_width - 1)) if signed else 0
    highest = 2 ** (kind.bit_width - signed) - 1

    def integer(value: Any) -> Any:
        if type(value) is int and lowest <= value <= highest:
            return value
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError("expected an int")
        return pa.scalar(int(value), kind).as_py()  # raises what says that it is out of range

    return integer


def _floating(kind: pa.DataType) -> Fit:
    is_double = kind == pa.float64()

    def floating(value: Any) -> Any:
        if is_double and type(value) is float:
            return one_nan(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError("expected a float")
        return one_nan(pa.scalar(float(value), kind).as_py())

    return floating


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a str")
    if not str.isascii(value):
        value.encode()  # a lone surrogate fits no column
    return str(value)


def _binary(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError("expected bytes")
    return bytes(value)


def _instant(value: Any) -> datetime.datetime:
    if type(value) is datetime.datetime and value.tzinfo is UTC and not value.fold:
        return value
    if not isinstance(value, datetime.datetime):
        raise TypeError("expected a datetime")
    return _plain(value.astimezone(UTC) if value.tzinfo else value, UTC)


def _local_time(value: Any) -> datetime.datetime:
    if not isinstance(value, datetime.datetime):
        raise TypeError("expected a datetime")
    if value.tzinfo is not None:
        raise TypeError("expected a datetime without a time zone")
    return _plain(value, None)


def _plain(at: datetime.datetime, zone: datetime.tzinfo | None) -> datetime.datetime:
    """What a column holds of it: no fold, no subclass (pandas has one)."""
    return datetime.datetime(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, zone)


def _date(value: Any) -> datetime.date:
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
        raise TypeError("expected a date")
    return datetime.date(value.year, value.month, value.day)


def _decimal(kind: pa.DataType) -> Fit:
    def fit(value: Any) -> Any:
        if not isinstance(value, (decimal.Decimal, int)) or isinstance(value, bool):
            raise TypeError("expected a Decimal")
        return pa.scalar(decimal.Decimal(value), kind).as_py()

    return fit


def _list(item: Fit) -> Fit:
    def fit(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple)):
            raise TypeError("expected a list")
        return [item(each) for each in value]

    return fit


def _map(key: Fit, item: Fit) -> Fit:
    def fit(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise TypeError("expected a dict")
        return {key(k): item(v) for k, v in value.items()}

    return fit


def _struct(kind: pa.DataType) -> Fit:
    fields = [(field.name, fitting(field.type)) for field in kind]
    known = frozenset(name for name, _ in fields if kind.get_field_index(name) >= 0)

    def fit(value: Any) -> dict[str, Any]:
        if isinstance(value, tuple) and hasattr(value, "_asdict"):
            value = value._asdict()
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if not isinstance(value, dict):
            raise TypeError("expected a dict")
        if value.keys() != known:
            unknown = [name for name in value if str(name) not in known]
            if unknown:
                raise ValueError(f"no field {unknown[0]!r}")
        return {name: each(value.get(name)) for name, each in fields}

    return fit
