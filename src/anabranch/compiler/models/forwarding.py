"""Forwarding: which columns of what an operator emits are copies of columns of its input."""

from __future__ import annotations

import ast
import dataclasses

from anabranch.compiler.models.findings import Inference
from anabranch.compiler.reading.facts import Emission
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.values import ROW_TYPES, TUPLE, NoneType, Value, column_text
from anabranch.program.schema import Schema


def find_forwarding(
    found: Inference, reading: Reading, schema: Schema | None, output: Schema | None, mode: str
) -> None:
    """Follow the columns into every emitted tuple."""
    if schema is None:
        return
    output = output or schema
    if mode == "filter":
        found.forwarding = {name: name for name in schema.names}
        found.forwarding_reason = "a filter passes tuples on unchanged"
        return
    if not found.emissions:
        return
    copied: dict[str, str] | None = None
    for each in found.emissions:
        if each.value.is_nothing or each.value.types == frozenset({NoneType}):
            continue
        here = {} if each.many else _copied(reading, each.value, schema, output)
        if not each.many:
            _note_replaced(found, reading, each, schema, output)
        copied = (
            here if copied is None else {name: origin for name, origin in copied.items() if here.get(name) == origin}
        )
    found.forwarding = copied or {}
    if copied:
        found.forwarding_reason = "every emitted tuple copies " + ", ".join(sorted(copied))
    else:
        found.forwarding_reason = "no column is copied into every emitted tuple"


def _note_replaced(found: Inference, reading: Reading, emission: Emission, schema: Schema, output: Schema) -> None:
    """Which columns get something else here: an expression that is not the column, nor may be it."""
    parts = reading.heap.parts(emission.value)
    if parts is None:
        return
    names = dict(zip(range(len(output.names)), output.names, strict=True))
    if all(isinstance(name, int) for name in parts) and len(parts) != len(names):
        return
    for place, part in parts.items():
        name = names[place] if isinstance(place, int) else place
        text = part.text
        if name not in schema or text is None or text.column == name:
            continue
        if column_text(name) not in _choices(ast.parse(text.source, mode="eval").body):
            found.replaced.setdefault(name, (text.source, emission.location))


def _choices(expression: ast.expr) -> set[str]:
    """What an expression may be, where it only chooses: of `a if c else b`, a and b."""
    match expression:
        case ast.IfExp(body=first, orelse=second):
            parts = [first, second]
        case ast.BoolOp(values=values):
            parts = values
        case _:
            return {ast.unparse(expression)}
    return set().union(*map(_choices, parts))


def _copied(reading: Reading, value: Value, schema: Schema, output: Schema) -> dict[str, str]:
    if value.types is not None:
        value = dataclasses.replace(value, types=value.types - {NoneType})
    if value.types == ROW_TYPES and value.objects == frozenset({TUPLE}):
        parts: dict[str | int, Value] | None = {name: reading.column(name) for name in schema.names}
    else:
        parts = reading.heap.parts(value)
    if parts is None:
        if len(output.names) == 1 and value.text is not None and value.is_scalar:
            parts = {0: value}
        else:
            return {}
    by_place = all(isinstance(name, int) for name in parts)
    found: dict[str, str] = {}
    for name, part in parts.items():
        if by_place and isinstance(name, int):
            if len(parts) != len(output.names):
                return {}
            target = output.names[name]
        else:
            target = str(name)
        origin = part.text.column if part.text is not None else None
        # A change of type may map two values to one: then it is no copy.
        if origin is None or origin not in schema or target not in output:
            continue
        if schema.type_of(origin) == output.type_of(target):
            found[target] = origin
    return found
