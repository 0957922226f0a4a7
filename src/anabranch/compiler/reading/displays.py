"""Making containers: displays and texts; and going through them."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.kinds import is_record
from anabranch.compiler.reading.reading_state import ExpressionHandlers, Reading
from anabranch.compiler.reading.subscripts import check_index, with_views
from anabranch.compiler.reading.tameness import is_tame, show_value
from anabranch.compiler.reading.values import (
    ANYTHING,
    NOTHING,
    PLAIN_VALUE,
    ROW_TYPES,
    TUPLE,
    BoundMethod,
    Iterator,
    LocalFunction,
    Site,
    Types,
    Value,
    combined_text,
    constant,
    is_scalar_type,
    join,
    join_all,
    scalar,
)


def make_object(
    reading: Reading,
    node: ast.AST,
    kinds: Types,
    content: Value,
    role: str = "",
    parts: Mapping[Any, Value] | None = None,
) -> Value:
    """A new object, named by the node that makes it; with parts, what it holds under constant keys or places."""
    site = Site(id(node), role)
    kept = reading.heap.at(site)
    kept.made_in = reading.loops
    kept.kinds |= kinds or {object}
    if kinds is None or Iterator in kinds:
        reading.lazy = True
    if parts is None:
        reading.heap.put(site, content)
        reading.stored(content, node, frozenset({site}))
    else:
        for name, part in parts.items():
            reading.heap.put(site, part, at=name)
            reading.stored(part, node, frozenset({site}), at=name)
    return Value(types=kinds, objects=frozenset({site}))


def make_display(reading: Reading, node: ast.AST, kinds: Types, parts: Mapping[Any, Value], role: str = "") -> Value:
    made = make_object(reading, node, kinds, join_all(parts.values()), role, parts)
    (site,) = made.objects
    kept = reading.heap.at(site)
    if kept.made_pass != reading.passes:
        # Made anew: what was lost was lost on the object of an earlier pass over this code.
        kept.parts, kept.parts_lost, kept.made_pass, kept.made_times = None, False, reading.passes, 0
    kept.made_times += 1
    reading.heap.set_parts(site, parts)
    return made


def _read_tuple(reading: Reading, node: ast.Tuple) -> Value:
    return _sequence(reading, node, node.elts, frozenset({tuple}))


def _read_list(reading: Reading, node: ast.List) -> Value:
    return _sequence(reading, node, node.elts, frozenset({list}))


def _read_set(reading: Reading, node: ast.Set) -> Value:
    value = _sequence(reading, node, node.elts, frozenset({set}))
    for each in value.objects:
        reading.heap.lose_parts(each)
    return value


def _sequence(reading: Reading, node: ast.expr, elements: list[ast.expr], kinds: Types) -> Value:
    parts: dict[str | int, Value] = {}
    starred, extra = False, NOTHING
    for element in elements:
        if isinstance(element, ast.Starred):
            inner = reading.evaluate(element.value)
            shape = tuple_parts(reading, inner)
            if shape is not None and not starred:
                for part in shape:
                    parts[len(parts)] = part
                continue
            starred = True
            extra = join(extra, iterate_over(reading, inner, element))
        else:
            parts[len(parts)] = reading.evaluate(element)
    if starred:
        made = make_object(reading, node, kinds, join(extra, join_all(parts.values())))
        (site,) = made.objects
        reading.heap.lose_parts(site)
        return made
    made = make_display(reading, node, kinds, parts)
    for part in parts.values():
        reading.use(part, node, how="puts it into a display") if kinds and set in kinds else None
    if kinds is not None and tuple in kinds:
        ordered = [parts[place] for place in range(len(parts))]
        template = "(" + ", ".join(["{}"] * len(ordered)) + ("," if len(ordered) == 1 else "") + ")"
        text = combined_text(template, ordered)
        if text is not None:
            made = made.with_text(text)
        if all(part.is_scalar for part in ordered) and ordered:
            return made
    return made


def tuple_parts(reading: Reading, value: Value) -> list[Value] | None:
    """The elements of a tuple or list of known length, in order."""
    if value.objects == frozenset({TUPLE}) and value.types == ROW_TYPES and reading.schema is not None:
        return [reading.column(name) for name in reading.schema.names]
    parts = reading.heap.parts(value)
    if parts is None and value.types is not None and value.types <= {tuple} and len(value.objects) > 1:
        parts = _joined_parts(reading, value)
    if parts is None or value.types is None:
        return None
    if value.types == ROW_TYPES and reading.schema is not None:
        return [parts[name] for name in reading.schema.names if name in parts]
    if value.types <= {tuple, list} and all(isinstance(name, int) for name in parts):
        return [parts[place] for place in range(len(parts))]
    if value.types and all(is_record(kind) for kind in value.types):
        return list(parts.values())
    return None


def _joined_parts(reading: Reading, value: Value) -> dict[str | int, Value] | None:
    """Of one of several tuples of the same length, place by place."""
    joined: dict[str | int, Value] = {}
    for each in value.objects:
        parts = reading.heap.parts(Value(types=value.types, objects=frozenset({each})))
        if parts is None or (joined and parts.keys() != joined.keys()):
            return None
        joined = {place: join(joined.get(place, NOTHING), part) for place, part in parts.items()}
    return joined


def _read_dict(reading: Reading, node: ast.Dict) -> Value:
    parts: dict[str | int, Value] = {}
    exact, extra = True, NOTHING
    for key, item in zip(node.keys, node.values, strict=True):
        value = reading.evaluate(item)
        if key is None:
            shape = reading.heap.parts(value)
            if shape is not None and all(isinstance(name, str) for name in shape):
                parts.update(shape)
            else:
                exact = False
                extra = join(extra, reading.content(value, node))
            continue
        name = reading.evaluate(key)
        check_index(reading, name, node)
        if isinstance(name.only, str):
            parts[name.only] = value
        else:
            exact = False
            extra = join(extra, join(value, name))
    if exact:
        return make_display(reading, node, frozenset({dict}), parts)
    made = make_object(reading, node, frozenset({dict}), join(extra, join_all(parts.values())))
    (site,) = made.objects
    reading.heap.lose_parts(site)
    return made


def _read_joinedstr(reading: Reading, node: ast.JoinedStr) -> Value:
    pieces, template = [], []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            value = reading.evaluate(part.value)
            show_value(reading, value, part)
            template.append("{{{{!s}}}}")
            pieces.append(value)
            if part.format_spec is not None:
                reading.evaluate(part.format_spec)
        elif isinstance(part, ast.Constant):
            pieces.append(constant(part.value))
    simple = all(
        not isinstance(p, ast.FormattedValue) or (p.format_spec is None and p.conversion == -1) for p in node.values
    )
    text = None
    if simple and pieces:
        text = combined_text("''.join((" + " ".join(["format({}),"] * len(pieces)) + "))", pieces)
    return scalar(str, text=text)


def _read_formattedvalue(reading: Reading, node: ast.FormattedValue) -> Value:
    show_value(reading, reading.evaluate(node.value), node)
    return scalar(str)


def iterate_over(reading: Reading, value: Value, node: ast.AST) -> Value:
    """One element of a value that is gone through."""
    if value.is_nothing:
        return NOTHING
    reading.use(value, node, shallow=True, how="goes through it")
    if value.types is None:
        return reading.unknown(node, "goes through a value of unknown type")
    for found in value.concrete or ():
        if isinstance(found, (LocalFunction, BoundMethod)):
            return reading.unknown(node, "goes through a function")
        if not isinstance(found, known.REITERABLE) and not is_record(type(found)):
            if isinstance(found, type) and issubclass(found, known.ENUM):
                return Value(types=frozenset({found}))
            reading.mutate(value, node, "goes through a shared iterator")
            if not isinstance(found, types.GeneratorType) and type(found).__module__ not in (
                "builtins",
                "itertools",
            ):
                return reading.unknown(node, f"goes through a {type(found).__name__}")
    for kind in value.types:
        if kind in known.UNORDERED:
            go_through_unordered(reading, value, node)
        elif not is_tame(reading, kind):
            return reading.unknown(node, f"goes through a {kind.__name__}")
    if Iterator in value.types:
        reading.mutate(value, node, "goes through an iterator")
    found = with_views(value, reading.content(value, node))
    if any(isinstance(kind, type) and issubclass(kind, dict) for kind in value.types):
        found = keys_of(reading, value, found)
    if value.types == ROW_TYPES and reading.schema is not None and value.objects == frozenset({TUPLE}):
        return join_all(reading.column(name) for name in reading.schema.names).without_text()
    return found


def keys_of(reading: Reading, value: Value, found: Value) -> Value:
    parts = reading.heap.parts(value)
    if parts is not None and all(isinstance(name, str) for name in parts):
        return scalar(str)
    if value.concrete is not None and all(isinstance(each, dict) for each in value.concrete):
        kinds = frozenset(type(key) for each in value.concrete for key in each)
        if all(is_scalar_type(kind) for kind in kinds):
            return Value(types=kinds)
    return join(found, PLAIN_VALUE)


def go_through_unordered(reading: Reading, value: Value, node: ast.AST) -> None:
    inside = NOTHING
    for each in value.objects:
        if isinstance(each, Site):
            inside = join(inside, reading.heap.at(each).content)
        else:
            inside = ANYTHING
    numbers = inside.types is not None and inside.types <= {int, float, bool}
    if not numbers:
        reading.impure(node, "goes through a set, whose order differs from process to process")


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.Tuple: _read_tuple,
    ast.List: _read_list,
    ast.Set: _read_set,
    ast.Dict: _read_dict,
    ast.JoinedStr: _read_joinedstr,
    ast.FormattedValue: _read_formattedvalue,
}
