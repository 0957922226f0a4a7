"""Spark's DDL strings (``"id long, tags array<string>"``) to Arrow schemas, without a JVM.

The sequential run and the pure tests need schemas and have no Spark, so the parser is ours. It knows
the types that Arrow and Spark share, and says which names it knows when it meets another.
"""

from __future__ import annotations

import re

import pyarrow as pa

from anabranch.errors import SchemaError

PRIMITIVES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    # Instants are kept in UTC, whatever the session's time zone: results must not depend on it.
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<sign>[<>(),:]))")


class _Tokens:
    def __init__(self, text: str) -> None:
        self.text = text
        self.items: list[str] = []
        self.at = 0
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            if match is None:
                raise SchemaError(f"cannot read the schema {text!r} at {stripped[position:]!r}")
            self.items.append(match.group(match.lastgroup or 0))
            position = match.end()

    def peek(self) -> str:
        return self.items[self.at] if self.at < len(self.items) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def expect(self, sign: str) -> None:
        found = self.next()
        if found != sign:
            raise SchemaError(f"cannot read the schema {self.text!r}: expected {sign!r}, found {found or 'its end'!r}")

    def number(self) -> int:
        found = self.next()
        if not found.isdecimal():
            raise SchemaError(f"cannot read the schema {self.text!r}: expected a number, found {found or 'its end'!r}")
        return int(found)


def parse_ddl(text: str) -> pa.Schema:
    """The Arrow schema of a DDL string.

    Examples
    --------
    >>> parse_ddl("id long, tags array<string>").names
    ['id', 'tags']
    """
    tokens = _Tokens(text)
    fields = _fields(tokens, end="", colon=False)
    if not fields:
        raise SchemaError(f"the schema {text!r} has no columns; write for example 'id long, value double'")
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"the schema {text!r} has the column {name!r} twice")
    return pa.schema(fields)


def _fields(tokens: _Tokens, end: str, colon: bool) -> list[pa.Field]:
    fields: list[pa.Field] = []
    while tokens.peek() != end:
        name = tokens.next()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not name.isidentifier() and not name.isalnum():
            raise SchemaError(f"cannot read the schema {tokens.text!r}: {name or 'its end'!r} is no column name")
        if tokens.peek() == ":" or colon:
            tokens.expect(":")
        kind = _type(tokens)
        nullable = True
        if tokens.peek().upper() == "NOT":
            tokens.next()
            tokens.expect(tokens.peek() if tokens.peek().upper() == "NULL" else "NULL")
            nullable = False
        fields.append(pa.field(name, kind, nullable))
        if tokens.peek() == ",":
            tokens.next()
        elif tokens.peek() != end:
            raise SchemaError(
                f"cannot read the schema {tokens.text!r}: expected ',' before {tokens.peek() or 'its end'!r}"
            )
    return fields


def _type(tokens: _Tokens) -> pa.DataType:
    name = tokens.next().lower()
    if name in PRIMITIVES:
        return PRIMITIVES[name]
    if name in ("decimal", "dec", "numeric"):
        precision, scale = 10, 0
        if tokens.peek() == "(":
            tokens.next()
            precision = tokens.number()
            if tokens.peek() == ",":
                tokens.next()
                scale = tokens.number()
            tokens.expect(")")
        if not (1 <= precision <= 38 and scale <= precision):
            raise SchemaError(
                f"cannot read the schema {tokens.text!r}: decimal({precision},{scale}) does not exist; "
                "a precision is 1 to 38, a scale 0 to the precision"
            )
        return pa.decimal128(precision, scale)
    if name == "array":
        tokens.expect("<")
        item = _type(tokens)
        tokens.expect(">")
        return pa.list_(item)
    if name == "map":
        tokens.expect("<")
        key = _type(tokens)
        tokens.expect(",")
        item = _type(tokens)
        tokens.expect(">")
        return pa.map_(key, item)
    if name == "struct":
        tokens.expect("<")
        fields = _fields(tokens, end=">", colon=True)
        tokens.expect(">")
        return pa.struct(fields)
    known = ", ".join([*PRIMITIVES, "decimal(p,s)", "array<…>", "map<…,…>", "struct<name:type,…>"])
    raise SchemaError(f"cannot read the schema {tokens.text!r}: unknown type {name or 'at its end'!r}; known: {known}")


def to_ddl(schema: pa.Schema) -> str:
    """The DDL string of an Arrow schema; `parse_ddl` gives the schema back."""
    return ", ".join(f"{_name(field.name)} {type_name(field.type)}" for field in schema)


def _name(name: str) -> str:
    return name if name.isidentifier() else "`" + name.replace("`", "``") + "`"


_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


def type_name(kind: pa.DataType) -> str:
    """The DDL name of an Arrow type."""
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"array<{type_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{type_name(kind.key_type)},{type_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return "struct<" + ",".join(f"{_name(field.name)}:{type_name(field.type)}" for field in kind) + ">"
    raise SchemaError(f"the Arrow type {kind} has no counterpart in Spark's DDL")
