"""What users write for `by=`: columns, fields of structs, functions; and what that makes of a stream.

A key of columns is only names. Anything else becomes columns of its own, which a step before the operator adds and one
behind it takes away again (`operators/key_columns.py`).
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.api.building import key_of, put
from anabranch.errors import SchemaError
from anabranch.operators.key_columns import AsText, Field, key_columns_logic, without_columns_logic
from anabranch.program.annotated_rows import seeing
from anabranch.program.annotations import arrow_type_of
from anabranch.program.graph import Location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


@dataclasses.dataclass(frozen=True)
class ComputedKey:
    """A part of a key that is computed, with the columns it gives: see `key`."""

    of: str | Callable[[Any], Any]
    columns: str


KeyPart = str | Callable[[Any], Any] | ComputedKey
By = KeyPart | Sequence[KeyPart]
"""A key: columns, fields of structs (``"bid.auction"``), functions of a tuple, `key`; one or several."""


def key(of: str | Callable[[Any], Any], columns: str) -> ComputedKey:
    """A key that is computed, with the names (and types) of its columns in results.

    Parameters
    ----------
    of : str or callable
        A column or a field of a struct, to be called by another name; or a function of a tuple, which returns a value
        or, for several columns, a tuple of values. It must always return the same for the same tuple.
    columns : str
        ``"day date"``, ``"x long, y long"``; the name alone where the type follows from a field or from the code.

    Examples
    --------
    >>> import anabranch as ab
    >>> sales = ab.from_rows([(17, 1), (12, 5), (27, 2)], "id long, amount long")
    >>> by_digit = ab.key(lambda t: t.id % 10, "digit long")
    >>> sales.aggregate(by=by_digit, window=ab.tumbling(2), total=ab.agg.sum("amount")).run_sequential()
    [(digit=7, total=3)]
    """
    return ComputedKey(of, columns)


@dataclasses.dataclass(frozen=True)
class KeyedStream:
    """A stream with the columns of a key: `names` of which `added` were not there before."""

    stream: Stream
    names: tuple[str, ...]
    added: tuple[str, ...]

    def plain(self, result: Stream, location: Location, added: Sequence[str] | None = None) -> Stream:
        """What an operator behind it emits, without the columns that were added."""
        return without(result, self.added if added is None else added, location)


def without(result: Stream, gone: Sequence[str], location: Location) -> Stream:
    """A stream without columns that were added for a key."""
    columns = [name for name in gone if name in result.schema]
    if not columns:
        return result
    called = result._node.name
    return put(
        result,
        "without_key",
        lambda name: without_columns_logic(result.schema, columns, name),
        location,
        None,
        wanted=f"{called}-plain",
        part_of=called,
        on_error="fail",
    )


def keyed_by(
    stream: Stream,
    method: str,
    by: Any,
    location: Location,
    name: str | None = None,
    shown: bool = False,
    typed: bool = False,
) -> KeyedStream:
    """The stream with the columns of a key.

    Parameters
    ----------
    name : str, optional
        The operator that it is for.
    shown : bool
        The columns are in the results, by the names that users expect, so they need a type; `typed`: only the latter.
    """
    parts = _as_parts(by)
    if all(isinstance(part, str) and part in stream.schema for part in parts):
        return KeyedStream(stream, key_of(stream, method, parts, location), ())
    found = [_part(stream, method, part, location, shown or typed) for part in parts]
    return _with_columns(stream, method, found, location, name, shown)


def both_keyed_by(
    left: Stream, right: Stream, method: str, by: Any, location: Location, name: str | None
) -> tuple[KeyedStream, KeyedStream]:
    """Two streams with the columns of the key that their tuples meet by."""
    pairs = pairs_of_key(by, method, location)
    if all(isinstance(one, str) and one in left.schema and other in right.schema for one, other in pairs):
        firsts, seconds = ([pair[side] for pair in pairs] for side in (0, 1))
        one = KeyedStream(left, key_of(left, method, firsts, location), ())
        return one, KeyedStream(right, key_of(right, method, seconds, location), ())
    sides: tuple[list[_Part], list[_Part]] = [], []
    for pair in pairs:
        found = [
            _part(stream, method, part, location, False, where)
            for stream, part, where in zip((left, right), pair, (" on the left", " on the right"), strict=True)
        ]
        if [f.type for f in found[0].fields] != [f.type for f in found[1].fields] and any(p.is_text for p in found):
            found = [part.as_text(stream.schema) for stream, part in zip((left, right), found, strict=True)]
        for side, part in zip(sides, found, strict=True):
            side.append(part)
    one = _with_columns(left, method, sides[0], location, name, False)
    other = _with_columns(right, method, sides[1], location, f"{name or method}-other", False)
    if len(one.names) != len(other.names):
        raise SchemaError(
            f"{method} at {location}: the key has {len(one.names)} columns on the left, {len(other.names)} on the right"
        )
    return one, other


def pairs_of_key(by: Any, method: str, location: Location) -> list[tuple[Any, Any]]:
    """What the key is on the left and on the right."""
    given = [by] if isinstance(by, tuple) else list(_as_parts(by))
    if not given:
        raise SchemaError(f"{method} at {location}: the key is empty; name at least one column: by='…'")
    pairs = [each if isinstance(each, tuple) else (each, each) for each in given]
    for pair in pairs:
        if len(pair) != 2 or not all(isinstance(part, (str, ComputedKey)) or callable(part) for part in pair):
            raise SchemaError(
                f"{method} at {location}: by={by!r}: expected a column, a pair (left, right) of columns, fields or "
                "functions of a tuple, or a list of these"
            )
    return pairs


def _as_parts(by: Any) -> tuple[Any, ...]:
    return (by,) if isinstance(by, (str, ComputedKey)) or callable(by) or not isinstance(by, Iterable) else tuple(by)


def _with_columns(
    stream: Stream, method: str, parts: Sequence[_Part], location: Location, name: str | None, shown: bool
) -> KeyedStream:
    """The stream with the columns that the parts of a key give."""
    names: list[str] = []
    added: list[pa.Field] = []
    for part in parts:
        for field in part.fields:
            if part.function is not None:
                field = field if shown else _free(field, {*stream.columns, *names})
                if field.name in stream.schema:
                    raise SchemaError(
                        f"{method} at {location}: the key has a column {field.name!r}, and so has the stream; give it "
                        "another name: by=ab.key(…, 'other_name')"
                    )
                added.append(field)
            names.append(field.name)
    if not added:
        return KeyedStream(stream, key_of(stream, method, names, location), ())
    if len(set(names)) < len(names):
        raise SchemaError(
            f"{method} at {location}: the key has a column twice: {', '.join(names)}; name them: by=ab.key(…, 'name')"
        )
    columns = Schema(pa.schema([*stream.schema.arrow, *added]))
    computed = [(part.function, len(part.fields)) for part in parts if part.function is not None]
    users = [part.users for part in parts if part.users is not None]
    made = put(
        stream,
        "key",
        lambda called: key_columns_logic(stream.schema, columns, computed, users, called),
        location,
        None,
        wanted=f"{name or method}-key",
        part_of=name or method,
    )
    return KeyedStream(made, key_of(made, method, names, location), tuple(field.name for field in added))


def _free(field: pa.Field, taken: set[str]) -> pa.Field:
    """The column under a name that no column of a user's has."""
    name = f"{field.name}~"
    while name in taken:
        name += "~"
    return field.with_name(name)


@dataclasses.dataclass(frozen=True)
class _Part:
    """A part of a key: its columns, and what computes them if they are not in the stream."""

    fields: tuple[pa.Field, ...]
    function: Callable[[Any], Any] | None = None
    users: Callable[[Any], Any] | None = None
    is_text: bool = False

    def as_text(self, schema: Schema) -> _Part:
        """The same part, compared as text; it is one column."""
        if self.is_text:
            return self
        name = self.fields[0].name
        function = Field(schema.names.index(name), ()) if self.function is None else self.function
        return _Part((pa.field(name, pa.string()),), AsText(function), self.users, True)


def _part(stream: Stream, method: str, part: Any, location: Location, typed: bool, where: str = "") -> _Part:
    of, columns = (part.of, part.columns) if isinstance(part, ComputedKey) else (part, None)
    if isinstance(of, str):
        return _named(stream, method, of, columns, location, where)
    if not callable(of):
        raise SchemaError(
            f"{method} at {location}: the key {of!r} is not a column; expected a column, a field of a struct "
            "('bid.auction'), a function of a tuple, ab.key(…), or a list of these"
        )
    of = seeing(of, stream.schema)
    if columns is not None and " " in columns.strip():
        try:
            return _Part(tuple(Schema.of(columns).arrow), of, of)
        except SchemaError as problem:
            raise SchemaError(f"{method} at {location}: ab.key(…, {columns!r}): {problem}") from None
    kind = type_of_result(of, stream.schema)
    called = columns.strip() if columns else "key"
    if kind is not None:
        return _Part((pa.field(called, kind),), of, of)
    if typed:
        raise SchemaError(
            f"{method} at {location}: the type of the computed key is unknown, and it is needed; "
            f"say it: by=ab.key(lambda t: …, '{called} long')"
        )
    return _Part((pa.field(called, pa.string()),), AsText(of), of, True)


def _named(stream: Stream, method: str, path: str, columns: str | None, location: Location, where: str) -> _Part:
    schema = stream.schema
    if path in schema and columns is None:
        return _Part((schema.arrow.field(path),))
    found = field_of(schema, path, f"{method} at {location}: the key {path!r}", where)
    return _Part((pa.field(columns.strip() if columns else found.name, found.type),), found.function)


@dataclasses.dataclass(frozen=True)
class FoundField:
    """A column, or a field of a struct: its own name, its type, the column's place, the way from there."""

    name: str
    type: pa.DataType
    place: int
    path: tuple[str, ...]

    @property
    def function(self) -> Field:
        """What takes it from a tuple."""
        return Field(self.place, self.path)


def field_of(schema: Schema, path: str, what: str, where: str = "") -> FoundField:
    """The column or field that a text names; SchemaError, which begins with `what`, if there is none."""
    first, *rest = (path,) if path in schema else path.split(".")
    if first not in schema:
        raise SchemaError(f"{what} is not a column{where}; columns: {', '.join(schema.names)}")
    kind = schema.type_of(first)
    for at, name in enumerate(rest):
        here = ".".join([first, *rest[:at]])
        if not pa.types.is_struct(kind):
            raise SchemaError(f"{what}: {here!r} has the type {kind}, and no field {name!r}")
        if kind.get_field_index(name) < 0:
            fields = ", ".join(field.name for field in kind)
            raise SchemaError(f"{what}: {here!r} has no field {name!r}; fields: {fields}")
        kind = kind.field(name).type
    return FoundField((rest or [first])[-1], kind, schema.names.index(first), tuple(rest))


def type_of_result(function: Callable[[Any], Any], schema: Schema) -> pa.DataType | None:
    """The type of a column that holds what a function returns, if its code shows that it is always one."""
    # Workers import this module, and never read code: what does is only loaded where programs are built.
    from anabranch.compiler.models.inference import infer_scalar_type

    found = infer_scalar_type(function, schema)
    # Of decimals the scale is not known, of instants whether they have a zone.
    return None if found not in (bool, int, float, str, bytes, datetime.date) else arrow_type_of(found)
