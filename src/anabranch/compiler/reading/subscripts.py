"""Indexing: of the tuple, of containers, and of dicts that are state."""

from __future__ import annotations

import ast
import collections
import dataclasses
import types
from typing import Any

import numpy as np

from anabranch.compiler.reading import known
from anabranch.compiler.reading.attributes import column_of
from anabranch.compiler.reading.kinds import is_record
from anabranch.compiler.reading.reading_state import ExpressionHandlers, Reading
from anabranch.compiler.reading.tameness import plain_use
from anabranch.compiler.reading.values import (
    ANYTHING,
    NOTHING,
    PLAIN,
    PLAIN_VALUE,
    ROW_TYPES,
    TUPLE,
    UNKNOWN,
    Handle,
    Iterator,
    NoneType,
    Object,
    Plain,
    Shared,
    Site,
    Types,
    Value,
    combined_text,
    is_scalar_type,
    join,
    scalar,
)
from anabranch.program.schema import Row


def _read_subscript(reading: Reading, node: ast.Subscript) -> Value:
    return item_of(reading, reading.evaluate(node.value), reading.evaluate(node.slice), node)


def _read_slice(reading: Reading, node: ast.Slice) -> Value:
    parts = [reading.evaluate(each) if each is not None else None for each in (node.lower, node.upper, node.step)]
    for part in parts:
        if part is not None and not part.is_scalar and part.types is None:
            reading.unknown(node, "slices with a value of unknown type")
    texts = [part for part in parts if part is not None]
    template = ":".join("{}" if part is not None else "" for part in parts)
    return Value(types=frozenset({slice}), text=combined_text(template.rstrip(":") or ":", texts))


def item_of(reading: Reading, value: Value, index: Value, node: ast.AST) -> Value:
    """``value[index]``."""
    if value.is_nothing:
        return NOTHING
    handle = reading.handle_of(value)
    if handle is not None:
        return read_entry(reading, value, index, node, create=True)
    check_index(reading, index, node)
    if value.types == ROW_TYPES:
        return _row_item(reading, value, index, node)
    if value.types is None:
        return reading.unknown(node, "indexes a value of unknown type")
    for kind in value.types:
        plain = kind in known.MUTATORS or kind is Plain or is_scalar_type(kind)
        if not plain and not is_record(kind) and kind is not types.GenericAlias:
            return reading.unknown(node, f"indexes a {kind.__name__}")
        if kind is collections.defaultdict:
            found = _default_entry(reading, value, node)
            if found is not None:
                return found
    parts = reading.heap.parts(value)
    key = index.only
    if parts is not None and isinstance(key, (str, int)) and key in parts:
        found = parts[key]
        return found
    if slice in (index.types or ()):
        kinds = frozenset(k for k in value.types if k in (list, tuple, str, bytes, Plain, bytearray)) or PLAIN
        found = Value(types=kinds, objects=value.objects)
        if value.types - {NoneType} <= {list, tuple, str, bytes, bytearray} and not value.is_scalar:
            # A slice of these is a new object; of an array it is a view.
            found = _sliced(reading, value, kinds, node)
    else:
        found = with_views(value, reading.content(value, node))
        place = _constant_place(value, index)
        if place is not None and value.concrete is None:
            found = reading.heap.item(value, place) or found
        held: Any = value.only
        known_place = isinstance(held, known.CONTAINERS) and key is not UNKNOWN
        if value.concrete is not None and known_place:
            try:
                found = reading.shared(held[key], f"{value.path}[{key!r}]")
            except Exception:
                found = NOTHING if not isinstance(value.only, collections.defaultdict) else found
    text = combined_text("{}[{}]", [value, index]) if value.is_scalar or TUPLE in value.objects else None
    return found.with_text(text) if text is not None else found


def _sliced(reading: Reading, value: Value, kinds: Types, node: ast.AST) -> Value:
    site = Site(id(node), "slice")
    kept = reading.heap.at(site)
    kept.made_in = reading.loops
    kept.kinds |= kinds or {object}
    content = reading.content(value, node)
    reading.heap.put(site, content)
    reading.stored(content, node, frozenset({site}))
    reading.heap.lose_parts(site)
    return Value(types=kinds, objects=frozenset({site}))


def _constant_place(value: Value, index: Value) -> str | int | None:
    """The key or place that an index names in a dict, list or tuple, if it is always the same."""
    place = index.only
    if value.types is None or not value.types <= _PLACED:
        return None
    if type(place) is str and value.types <= {dict}:
        return place
    return place if type(place) is int and place >= 0 and value.types <= {list, tuple} else None


_PLACED = frozenset({dict, list, tuple})


def with_views(value: Value, inside: Value) -> Value:
    """What comes out of a value that may be an array may be a view of it: it leads to the same objects."""
    may_be_array = value.types is not None and bool(value.types & {Plain, np.ndarray})
    if not may_be_array or inside.is_nothing or not value.objects:
        return inside
    outside = {each for each in value.objects if not isinstance(each, Shared)}
    return dataclasses.replace(inside, objects=inside.objects | outside) if outside else inside


def check_index(reading: Reading, index: Value, node: ast.AST) -> None:
    # The key's __hash__ and __eq__ run: they must be Python's own.
    if index.types is not None and not index.is_scalar:
        plain_use(reading, index, node, "indexes with it")
    if index.types is None and not index.is_nothing:
        reading.unknown(node, "indexes with a value of unknown type")
        return
    for kind in index.types or ():
        plain = is_scalar_type(kind) or kind in known.MUTATORS or kind in (Plain, slice, Row, Iterator)
        if not plain and not is_record(kind):
            reading.unknown(node, f"indexes with a {kind.__name__}")
    reading.use(index, node)


def _default_entry(reading: Reading, value: Value, node: ast.AST) -> Value | None:
    """Reading a defaultdict may create the entry."""
    made = NOTHING
    for found in value.concrete or ():
        if isinstance(found, collections.defaultdict):
            if found.default_factory is None:
                continue
            reading.mutate(value, node, "reads a defaultdict, which creates missing entries")
            made = join(made, reading.call(reading.shared(found.default_factory, "its factory"), [], {}, node))
    if value.concrete is None:
        reading.mutate(value, node, "reads a defaultdict, which creates missing entries")
        return None
    return join(made, reading.content(value, node)) if not made.is_nothing else None


def handles_of(reading: Reading, value: Value, node: ast.AST) -> list[Handle] | None:
    """The dicts of state a value may be; None if it may be something else, too."""
    handles = [each for each in value.objects if isinstance(each, Handle)]
    if len(handles) != len(value.objects):
        reading.unknown(node, f"cannot tell {handles[0].path} from other values")
        return None
    return handles


def read_entry(
    reading: Reading, value: Value, index: Value, node: ast.AST, create: bool, default: Value | None = None
) -> Value:
    """One entry of a dict of state is read."""
    handles = handles_of(reading, value, node)
    if handles is None:
        return ANYTHING
    check_index(reading, index, node)
    result = NOTHING
    for handle in handles:
        reading.access(handle, index, node)
        name = reading.keyed[handle.identity]
        found = reading.facts.objects[handle.identity]
        if create and isinstance(found, collections.defaultdict) and found.default_factory is not None:
            reading.facts.stored.add(handle.identity)
            factory = reading.shared(found.default_factory, f"the factory of {handle.path}")
            reading.keep(name, reading.call(factory, [], {}, node), node)
        result = join(result, reading.kept(name))
        if create and isinstance(found, collections.Counter):
            result = join(result, scalar(int))
    return result if default is None else join(result, default).without_text()


def store_entry(reading: Reading, value: Value, index: Value, new: Value, node: ast.AST) -> None:
    """One entry of a dict of state is written."""
    handles = handles_of(reading, value, node)
    if handles is None:
        return
    check_index(reading, index, node)
    for handle in handles:
        reading.access(handle, index, node)
        reading.facts.stored.add(handle.identity)
        reading.keep(reading.keyed[handle.identity], new, node)


def updates_entries(reading: Reading, value: Value, new: ast.expr, node: ast.AST) -> bool:
    """``d |= {k: v}``, ``d.update([(k, v)])``: entries of a dict of state are written; False if it is not that."""
    if reading.handle_of(value) is None or type(value.only) not in _UPDATED:
        return False
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    if isinstance(new, ast.Dict):
        pairs = list(zip(new.keys, new.values, strict=True))
    elif isinstance(new, (ast.List, ast.Tuple)):
        for each in new.elts:
            if not isinstance(each, (ast.Tuple, ast.List)) or len(each.elts) != 2:
                return False
            pairs.append((each.elts[0], each.elts[1]))
    if not pairs or any(key is None or isinstance(key, ast.Starred) for key, _ in pairs):
        return False
    for key, item in pairs:
        assert key is not None
        store_entry(reading, value, reading.evaluate(key), reading.evaluate(item), node)
    return True


#: Dicts whose update() and |= replace entries; a Counter's adds to them.
_UPDATED = (dict, collections.defaultdict, collections.OrderedDict)


def assign_item(
    reading: Reading,
    value: Value,
    index: Value,
    new: Value,
    node: ast.AST,
    again: frozenset[Object] = frozenset(),
) -> None:
    """``value[index] = new``; `again` are objects that were there before."""
    if value.is_nothing:
        return
    handle = reading.handle_of(value)
    if handle is not None:
        store_entry(reading, value, index, new, node)
        return
    check_index(reading, index, node)
    if value.types is None:
        reading.unknown(node, "assigns an item of a value of unknown type")
    for kind in value.types or ():
        if kind not in known.MUTATORS and kind is not Plain and not is_scalar_type(kind) and kind is not Row:
            reading.unknown(node, f"assigns an item of a {kind.__name__}")
    parts = reading.heap.parts(value)
    key = index.only
    update = parts is not None and isinstance(key, (str, int)) and all(isinstance(e, Site) for e in value.objects)
    (only,) = value.objects if update else (None,)
    before = dict(parts) if update and parts is not None else {}
    place = _constant_place(value, index)
    how = f"assigns an item of {value.path or 'it'}"
    if index.types == frozenset({slice}):
        reading.put(value, reading.content(new, node) if not new.is_scalar else new, node, how)
        return
    reading.put(value, new, node, how, at=place, again=again)
    if slice in (index.types or ()):
        reading.put(value, reading.content(new, node), node, "assigns a slice")
    elif update and only is not None and isinstance(key, str) and isinstance(only, Site):
        # A dict that is filled key by key is still a display.
        _filled(reading, only, before, key, new)


def _filled(reading: Reading, site: Site, before: dict[str | int, Value], key: str, new: Value) -> None:
    kept = reading.heap.at(site)
    if not (reading.branch_depth or reading.loops or kept.made_times != 1 or kept.made_in):
        # One object under this name, and the assignment always happens: the part is replaced.
        kept.parts_lost, kept.parts = False, {**before, key: new}
    elif key in before:
        kept.parts_lost, kept.parts = False, {**before, key: join(before[key], new)}


def _row_item(reading: Reading, value: Value, index: Value, node: ast.AST) -> Value:
    key = index.only
    names = reading.schema.names if reading.schema is not None else None
    original = value.objects == frozenset({TUPLE})
    if isinstance(key, str):
        return column_of(reading, value, key, node) if original or reading.heap.parts(value) else PLAIN_VALUE
    if isinstance(key, int) and names is not None and -len(names) <= key < len(names):
        if original:
            return reading.column(names[key])
        parts = reading.heap.parts(value)
        if parts is not None and names[key] in parts:
            return parts[names[key]]
    kinds = frozenset({tuple}) if slice in (index.types or ()) else PLAIN
    return Value(types=kinds, objects=value.objects, text=combined_text("{}[{}]", [value, index]))


def delete_item(reading: Reading, value: Value, index: Value, node: ast.AST) -> None:
    """``del value[index]``."""
    handle = reading.handle_of(value)
    if handle is not None:
        reading.facts.stored.update(each.identity for each in value.objects if isinstance(each, Handle))
        read_entry(reading, value, index, node, create=False)
        return
    check_index(reading, index, node)
    if value.types is None:
        reading.unknown(node, "deletes an item of a value of unknown type")
    for kind in value.types or ():
        if kind not in known.MUTATORS and kind is not Plain and not is_scalar_type(kind):
            reading.unknown(node, f"deletes an item of a {kind.__name__}")
    reading.mutate(value, node, f"deletes an item of {value.path or 'it'}")


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.Subscript: _read_subscript,
    ast.Slice: _read_slice,
}
