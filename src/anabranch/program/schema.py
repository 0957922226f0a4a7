"""Schemas, and the tuples user code sees.

A schema is an Arrow schema with three abilities: it makes the named-tuple class of its rows, it turns
Arrow columns into lists of exact Python values and back, and it checks what an operator returned.
Both the sequential run and the channels go through these, so that a value means the same in both:
what leaves an operator has the exact Python type of its column (an int put into a double column is a
float from there on), and an instant is an aware datetime in UTC.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import datetime
import decimal
import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import InputError, SchemaError
from anabranch.program.annotations import annotated_fields
from anabranch.program.ddl import parse_ddl, to_ddl, type_name
from anabranch.program.fitting import Fit, fitting
from anabranch.program.misfits import MisfitError, ShapeError, short
from anabranch.program.not_a_number import NAN, may_have_nan, one_nan

UTC = datetime.UTC


class Row(tuple):
    """A tuple of the stream: its columns by name (``t.value``, ``t["value"]``) or place (``t[0]``)."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()

    def __getitem__(self, item: Any) -> Any:
        if isinstance(item, str):
            try:
                return tuple.__getitem__(self, self._fields.index(item))
            except ValueError:
                raise KeyError(f"no column {item!r}; columns: {', '.join(self._fields)}") from None
        return tuple.__getitem__(self, item)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no column {name!r}; columns: {', '.join(self._fields)}")

    def asDict(self) -> dict[str, Any]:
        """The columns as a dict, as on Spark's Row."""
        return dict(zip(self._fields, self, strict=True))

    def but(self, **changes: Any) -> Row:
        """The same tuple with some columns changed."""
        unknown = [name for name in changes if name not in self._fields]
        if unknown:
            raise AttributeError(f"no column {unknown[0]!r}; columns: {', '.join(self._fields)}")
        return type(self)(changes.get(name, value) for name, value in zip(self._fields, self, strict=True))

    # As on the named tuple that a type checker takes it for.
    _replace = but
    _asdict = asDict

    def __repr__(self) -> str:
        return "(" + ", ".join(f"{n}={v!r}" for n, v in zip(self._fields, self, strict=True)) + ")"

    def __reduce__(self) -> tuple[Any, ...]:
        return restored_row, (self._fields, tuple(self))


def restored_row(fields: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return _row_class(fields)(values)


@functools.cache
def _row_class(fields: tuple[str, ...]) -> type[Row]:
    """One class for all tuples with these names."""
    members: dict[str, Any] = {"__slots__": (), "_fields": fields}
    # The getters of a named tuple read a slot in C; a property or __getitem__ would be Python per access.
    getters: Any = collections.namedtuple("getters", fields, rename=True)  # type: ignore[misc]
    for at, name in enumerate(fields):
        if name.isidentifier() and not name.startswith("__") and name not in members:
            members[name] = vars(getters)[getters._fields[at]]
    return type("Row", (Row,), members)


class Schema:
    """Names and types of a stream's columns.

    Parameters
    ----------
    arrow : pyarrow.Schema
        The columns. Types that Spark and Arrow spell differently are brought to one form.
    """

    def __init__(self, arrow: pa.Schema) -> None:
        self.arrow = pa.schema([pa.field(f.name, _normal_type(f.type), f.nullable) for f in arrow])

    @classmethod
    def of(cls, given: Any) -> Schema:
        """A schema from a DDL string, an Arrow schema, a NamedTuple, dataclass or TypedDict class."""
        if isinstance(given, Schema):
            return given
        if isinstance(given, str):
            return cls(parse_ddl(given))
        if isinstance(given, pa.Schema):
            made = cls(given)
            parse_ddl(str(made))  # says so now if Spark has no such type, or a name is there twice
            return made
        if hasattr(given, "simpleString") and hasattr(given, "fields"):  # Spark's StructType, without pyspark
            return cls(parse_ddl(", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in given.fields)))
        found = schema_of_annotation(given)
        if found is None:
            raise SchemaError(
                f"cannot make a schema from {given!r}; give a DDL string such as 'id long, value double', "
                "an Arrow schema, or a class with annotated fields (NamedTuple, dataclass, TypedDict)"
            )
        return found

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.arrow.names)

    @cached_property
    def row_class(self) -> type[Row]:
        """The class of this schema's tuples."""
        return _row_class(self.names)

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self.arrow}

    def type_of(self, name: str) -> pa.DataType:
        return self._types[name]

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and to_ddl(self.arrow) == to_ddl(other.arrow)

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        return to_ddl(self.arrow)

    def __reduce__(self) -> tuple[Any, ...]:
        return Schema, (self.arrow,)

    # -- values ---------------------------------------------------------------------------------

    def rows(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[Row]:
        """Tuples from Arrow columns."""
        return list(map(self.row_class, zip(*[to_values(column) for column in columns], strict=True)))

    def exact_columns(self, rows: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """Columns of exact Python values from what operators returned; `MisfitError` if one does not fit.

        Checking costs one pass in C per column (the set of its types); only a column with a
        surprise in it is looked at value by value.
        """
        if not rows:
            return [[] for _ in self.names]
        return self.exact(list(zip(*rows, strict=True)))

    def exact(self, columns: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
        """The same for columns."""
        return [self.exact_column(place, column) for place, column in enumerate(columns)]

    def exact_column(self, place: int, column: Sequence[Any]) -> Sequence[Any]:
        """The same for one of them."""
        field = self.arrow.field(place)
        exact = _EXACT.get(field.type)
        found = set(map(type, column))
        nulls = NoneType in found
        if pa.types.is_decimal(field.type) and found <= {decimal.Decimal, NoneType} and (field.nullable or not nulls):
            with contextlib.suppress(pa.ArrowException):  # then it is looked for which of them does not fit
                return pa.array(column, field.type).to_pylist()
        is_stamp = pa.types.is_timestamp(field.type) and found <= {datetime.datetime, NoneType}
        if is_stamp and (field.nullable or not nulls):
            zone = UTC if field.type.tz else None
            if all(value is None or (value.tzinfo is zone and not value.fold) for value in column):
                return column
        if (nulls and not field.nullable) or (
            exact is None or not found <= exact.types or (exact.check is not None and exact.check in found)
        ):
            return [self._fit(place, value, at) for at, value in enumerate(column)]
        if exact.range is not None:
            return self._in_range(place, column, exact.range, nulls)
        if field.type == pa.string() and not _is_text(column, nulls):
            return [self._fit(place, value, at) for at, value in enumerate(column)]
        if field.type == pa.float64() and may_have_nan(column):
            return list(map(one_nan, column))
        return column

    def _in_range(self, place: int, column: Sequence[Any], limits: tuple[int, int], nulls: bool) -> Sequence[Any]:
        present = [value for value in column if value is not None] if nulls else column
        if present and (min(present) < limits[0] or max(present) > limits[1]):
            return [self._fit(place, value, at) for at, value in enumerate(column)]
        return column

    def _fit(self, place: int, value: Any, at: int = 0) -> Any:
        if value is None and self.arrow.field(place).nullable:
            return None
        try:
            if value is not None:
                return self._fits[place](value)
            problem: Exception = ValueError("it must have a value")
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as found:
            problem = found
        field = self.arrow.field(place)
        expected = type_name(field.type) + ("" if value is not None else " not null")
        raise MisfitError(at, field.name, expected, value, str(problem)) from None

    @cached_property
    def _fits(self) -> list[Fit]:
        return [fitting(field.type) for field in self.arrow]

    def exact_row(self, values: Sequence[Any]) -> Row:
        """One tuple of exact Python values; `MisfitError` if one does not fit."""
        found = []
        plain: Sequence[tuple[Any, Any]] = self._plain_types
        for place, (value, (kind, limits)) in enumerate(zip(values, plain, strict=True)):
            is_plain = type(value) is kind and (limits is None or limits[0] <= value <= limits[1]) and value == value
            # Only a text of plain letters surely has no lone surrogate; a NaN must be the one of tuples.
            found.append(value if is_plain and (kind is not str or value.isascii()) else self._fit(place, value))
        return self.row_class(found)

    @cached_property
    def has_changeable(self) -> bool:
        """Whether tuples have lists, maps or structs, which whoever is given them could change in place."""
        return any(pa.types.is_nested(field.type) for field in self.arrow)

    @cached_property
    def _plain_types(self) -> list[tuple[type | None, tuple[int, int] | None]]:
        """Of each column, the Python type whose values are exact as they are, but for limits; None: look closer."""
        kinds = {bool, int, float, str, bytes}
        found: list[tuple[type | None, tuple[int, int] | None]] = []
        for field in self.arrow:
            exact = _EXACT.get(field.type)
            if exact is None or exact.check is not None:
                found.append((None, None))
            else:
                found.append((next(iter(exact.types & kinds), None), exact.range))
        return found

    def arrays(self, columns: Sequence[Sequence[Any]]) -> list[pa.Array]:
        """Arrow columns from exact Python values."""
        return [pa.array(column, field.type) for column, field in zip(columns, self.arrow, strict=True)]

    def unpack(self, value: Any) -> Sequence[Any]:
        """The values of one tuple in column order, from whatever form user code returned."""
        if isinstance(value, tuple):
            fields = getattr(value, "_fields", None)
            if fields is not None and fields != self.names:
                return self._by_name(value, dict(zip(fields, value, strict=True)))
            if len(value) == len(self.names):
                return value
        elif isinstance(value, dict):
            return self._by_name(value, value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._by_name(value, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)})
        elif isinstance(value, list) and len(value) == len(self.names):
            return value
        elif len(self.names) == 1 and not isinstance(value, list):
            return (value,)
        raise ShapeError(f"expected a tuple, dict, dataclass or row with the columns {self}; found {short(value)}")

    def _by_name(self, value: Any, values: dict[str, Any]) -> Sequence[Any]:
        if values.keys() != set(self.names):
            missing = [name for name in self.names if name not in values]
            extra = [str(name) for name in values if name not in self.names]
            parts = [f"missing {', '.join(missing)}"] if missing else []
            parts += [f"not in the schema: {', '.join(extra)}"] if extra else []
            raise ShapeError(f"expected the columns {self}; found {short(value)} ({'; '.join(parts)})")
        return [values[name] for name in self.names]


def _is_text(column: Sequence[Any], nulls: bool) -> bool:
    """Whether all of these can be written: a lone surrogate fits no column."""
    text = "".join(filter(None, column) if nulls else column)
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _normal_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC" if kind.tz else None)
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_normal_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_normal_type(kind.key_type), _normal_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _normal_type(f.type)) for f in kind])
    return kind


def to_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Exact Python values of an Arrow column; InputError where Python has no such value."""
    try:
        return _to_values(column)
    except (OverflowError, ValueError) as problem:
        raise InputError(
            f"a column of the type {type_name(column.type)} holds what Python has no value for ({problem}): texts "
            "must be UTF-8, dates and times of the years 1 to 9999. Leave such rows out, or make them null, beforehand"
        ) from problem


def _to_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The fast way where it gives the same values."""
    if column.null_count == len(column):  # what nobody reads
        return [None] * len(column)
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or kind in (pa.float64(), pa.bool_())):
        numbers = column.to_numpy(zero_copy_only=False)
        if numbers.dtype.kind == "f" and np.isnan(numbers).any():
            return list(map(one_nan, numbers.tolist()))
        return numbers.tolist()
    if kind == _INSTANT:
        return _instants(column)
    correct = _correction(kind)
    values = column.to_pylist()
    return values if correct is None else [None if value is None else correct(value) for value in values]


_INSTANT = pa.timestamp("us", tz="UTC")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


def _instants(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Instants, several times as fast as Arrow makes them."""
    after, since = datetime.timedelta, _EPOCH
    numbers = column.cast(pa.int64()).to_pylist() if column.null_count else column.cast(pa.int64()).to_numpy().tolist()
    return [None if number is None else since + after(0, 0, number) for number in numbers]


def _correction(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What must be done to the values Arrow gives for a type, at any depth, to make them those of `fitting`."""
    if pa.types.is_timestamp(kind) and kind.tz:
        return lambda value: value.replace(tzinfo=UTC)  # Arrow's own is another object for the same zone
    if pa.types.is_floating(kind):
        return one_nan
    if pa.types.is_list(kind) and pa.types.is_floating(kind.value_type):
        return lambda value: [NAN if v != v else v for v in value] if may_have_nan(value) else value
    if pa.types.is_list(kind):
        each = _correction(kind.value_type) or _same
        return None if each is _same else lambda value: [None if v is None else each(v) for v in value]
    if pa.types.is_map(kind):  # Arrow gives lists of pairs
        key, item = _correction(kind.key_type) or _same, _correction(kind.item_type) or _same
        return lambda value: {key(k): None if v is None else item(v) for k, v in value}
    if pa.types.is_struct(kind):
        parts = [(field.name, _correction(field.type) or _same) for field in kind]
        if all(part is _same for _, part in parts):
            return None
        return lambda value: {n: None if value[n] is None else part(value[n]) for n, part in parts}
    return None


def _same(value: Any) -> Any:
    return value


NoneType = type(None)


@dataclasses.dataclass(frozen=True)
class _Exact:
    """The Python types that are exact for a column; a range for integers; a type to look at closer."""

    types: frozenset[type]
    range: tuple[int, int] | None = None
    check: type | None = None


def _exact(*types: type, limits: tuple[int, int] | None = None, check: type | None = None) -> _Exact:
    return _Exact(frozenset({*types, NoneType}), limits, check)


_EXACT: dict[pa.DataType, _Exact] = {
    pa.bool_(): _exact(bool),
    pa.int8(): _exact(int, limits=(-(2**7), 2**7 - 1)),
    pa.int16(): _exact(int, limits=(-(2**15), 2**15 - 1)),
    pa.int32(): _exact(int, limits=(-(2**31), 2**31 - 1)),
    pa.int64(): _exact(int, limits=(-(2**63), 2**63 - 1)),
    pa.float64(): _exact(float),
    # A Python float holds more than 32 bits: it is rounded at once, not when it happens to be shuffled.
    pa.float32(): _exact(float, check=float),
    pa.string(): _exact(str, check=None),
    pa.binary(): _exact(bytes),
    pa.timestamp("us"): _exact(datetime.datetime, check=datetime.datetime),
    pa.timestamp("us", tz="UTC"): _exact(datetime.datetime, check=datetime.datetime),
    pa.date32(): _exact(datetime.date),
}


def schema_of_annotation(annotation: Any) -> Schema | None:
    """The schema of a record class (NamedTuple, dataclass, TypedDict), or None."""
    fields = annotated_fields(annotation)
    return None if not fields else Schema(pa.schema(fields))


def schema_of_return(function: Callable[..., Any], many: bool) -> Schema | None:
    """The schema a function's return annotation gives, or None.

    With `many`, the annotation may be ``Iterator[Record]``, ``list[Record]``, ``Record | None`` and so on.
    """
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = getattr(type(function), "__call__", function)  # noqa: B004 - an object: what is annotated is its method
    try:
        annotation = typing.get_type_hints(function, include_extras=True).get("return")
    except Exception:  # a name that is only imported for type checkers
        return None
    if many:
        arguments = [a for a in typing.get_args(annotation) if a is not NoneType]
        if typing.get_origin(annotation) is not None and arguments:
            annotation = arguments[0]
    return schema_of_annotation(annotation)
