"""Calling methods of plain values: lists, dicts, strings, the tuple itself, and dicts that are state."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

import numpy as np

from anabranch.compiler.reading import known
from anabranch.compiler.reading.displays import go_through_unordered, iterate_over, keys_of, make_display, make_object
from anabranch.compiler.reading.operations import test_contains
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.settings_calls import look_at_variable
from anabranch.compiler.reading.subscripts import (
    assign_item,
    delete_item,
    item_of,
    read_entry,
    store_entry,
    updates_entries,
)
from anabranch.compiler.reading.tameness import holds_unordered, plain_use
from anabranch.compiler.reading.values import (
    NONE,
    NOTHING,
    PLAIN,
    PLAIN_VALUE,
    ROW_TYPES,
    TUPLE,
    BoundMethod,
    Callback,
    Handle,
    Iterator,
    LocalFunction,
    NoneType,
    Plain,
    Site,
    Types,
    Value,
    combined_text,
    is_scalar_type,
    join,
    join_all,
    scalar,
)
from anabranch.program.schema import Row

_GIVES_CONTENT = {"pop", "popleft", "popitem", "setdefault", "get", "__getitem__"}

_GIVES_SELF_LIKE = {"copy", "union", "intersection", "difference", "symmetric_difference", "__add__"}

_ORDERED_READERS = {"join", "extend", "extendleft", "writelines"}

#: Methods of arrays whose second argument is an array to write to.
_WITH_OUTPUT = {"dot", "argmax", "argmin", "any", "all", "max", "min", "round"}

#: Methods that move elements about without looking at them.
_LEAVE_ELEMENTS_ALONE = {
    "append",
    "appendleft",
    "clear",
    "close",
    "copy",
    "extend",
    "extendleft",
    "get",
    "insert",
    "items",
    "keys",
    "move_to_end",
    "pop",
    "popitem",
    "popleft",
    "reverse",
    "rotate",
    "send",
    "setdefault",
    "throw",
    "update",
    "values",
    "__getitem__",
    "__iter__",
    "__len__",
    "__next__",
    "__setitem__",
}
#: Methods that put an argument away or hand it back without looking at it.
_KEEPERS = {"get", "setdefault", "append", "appendleft", "insert", "pop", "put"}


def call_method(
    reading: Reading,
    receiver: Value,
    name: str,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    starred: bool = False,
) -> Value:
    """Call a method of Python's own; `starred` if which argument is which is not known (``*x``, ``**x``)."""
    if receiver.is_nothing:
        return NOTHING
    look_at_variable(reading, receiver, name, node)
    handle = reading.handle_of(receiver)
    if starred:
        if handle is not None:
            reading.whole(handle, node, f"calls .{name}() with arguments that are not known")
            return PLAIN_VALUE
        if Row in (receiver.types or ()):
            return _starred_method_of_row(reading, receiver, name, arguments, keywords, node)
        may_be_array = receiver.types is None or bool(receiver.types & {np.ndarray, Plain})
        if may_be_array or name in known.SUBSCRIPT_METHODS:
            return reading.unknown(node, f"calls .{name}() with arguments that are not known")
    if handle is not None:
        return _method_of_state(reading, receiver, handle, name, arguments, keywords, node)
    if receiver.types == ROW_TYPES:
        return _method_of_row(reading, receiver, name, arguments, keywords, node)
    if receiver.types is None:
        return reading.unknown(node, f"calls .{name}() of a value of unknown type")
    if name in known.SUBSCRIPT_METHODS:
        return _subscript_method(reading, receiver, name, arguments, node)
    everything = [*arguments, *keywords.values()]
    positional = 0 if starred else len(arguments)
    if "out" in keywords:
        reading.mutate(keywords["out"], node, f"calls .{name}() with out=")
    most = 2 if name not in _WITH_OUTPUT else 1
    if (np.ndarray in receiver.types and len(arguments) > 1) or (Plain in receiver.types and len(arguments) > most):
        reading.unknown(node, f"calls .{name}() with so many arguments that one may be an output")
    _arguments(reading, receiver, name, everything, node)
    found = NOTHING
    for kind in receiver.types:
        found = join(found, _method_of_type(reading, receiver, kind, name, everything, node, positional))
    if starred:
        # Any argument may be the one that is kept or handed back.
        given = join_all(arguments)
        for each in (*receiver.objects, *found.objects):
            if isinstance(each, Site):
                reading.heap.put(each, given)
        return found.without_text() if found.is_scalar else join(found, given).without_text()
    if receiver.text is not None and found.is_scalar and not keywords and name not in known.ALL_MUTATORS:
        dot = "({})." if receiver.text.source.isdigit() else "{}."  # 5.bit_length is no attribute of 5
        template = dot + name + "(" + ", ".join(["{}"] * len(arguments)) + ")"
        found = found.with_text(combined_text(template, [receiver, *arguments]))
    return found


def _arguments(reading: Reading, receiver: Value, name: str, values: list[Value], node: ast.AST) -> None:
    if not receiver.is_scalar and name not in _LEAVE_ELEMENTS_ALONE:
        # Elements are compared, hashed or shown: searching, sorting, counting, uniting sets.
        plain_use(reading, receiver, node, f"calls .{name}() on it")
    for value in values:
        if is_callable(value):
            if name in known.METHOD_CALLBACKS:
                inside = reading.content(receiver, node) if not receiver.is_scalar else PLAIN_VALUE
                reading.call(value, [inside], {}, node)
            elif name not in _KEEPERS:
                reading.unknown(node, f"passes a function to .{name}()")
            continue
        if name in ("append", "add", "appendleft", "insert", "setdefault", "update", "put"):
            # Kept as it is; only hashing or nothing at all runs on it.
            reading.use(value, node, how=f"passes it to .{name}()")
            if name in ("add", "update"):
                plain_use(reading, value, node, f"passes it to .{name}()")
        else:
            plain_use(reading, value, node, f"passes it to .{name}()")
        if Iterator in (value.types or ()):
            iterate_over(reading, value, node)
        if name in _ORDERED_READERS and known.UNORDERED & (value.types or frozenset()):
            go_through_unordered(reading, value, node)
        if name in ("format", "format_map") and holds_unordered(reading, value):
            reading.impure(node, "shows a set, whose order differs from process to process")


def _method_of_type(
    reading: Reading, receiver: Value, kind: type, name: str, arguments: list[Value], node: ast.AST, positional: int
) -> Value:
    if kind is Row:
        return _method_of_row(reading, dataclasses.replace(receiver, types=ROW_TYPES), name, arguments, {}, node)
    if kind is Plain:
        if name in known.ALL_MUTATORS:
            return _mutating(reading, receiver, kind, name, arguments, node, positional)
        if not any(hasattr(each, name) for each in known.DATA_TYPES) or name.startswith("__"):
            return reading.unknown(node, f"calls .{name}(), which is not known")
        return _reading(reading, receiver, kind, name, arguments, node)
    if kind not in known.MUTATORS and not is_scalar_type(kind):
        return reading.unknown(node, f"calls .{name}() of a {kind.__name__}")
    if name in known.MUTATORS.get(kind, ()):
        return _mutating(reading, receiver, kind, name, arguments, node, positional)
    if kind is Iterator:
        return reading.unknown(node, f"calls .{name}() of an iterator")
    if not hasattr(kind, name):
        return NOTHING  # raises
    if name.startswith("__") and name not in ("__len__", "__iter__", "__eq__", "__add__"):
        return reading.unknown(node, f"calls .{name}()")
    if name == "astimezone" and not arguments:
        reading.impure(node, known.IMPURE_VALUE_METHODS[name])
    return _reading(reading, receiver, kind, name, arguments, node)


def _mutating(
    reading: Reading, receiver: Value, kind: type, name: str, arguments: list[Value], node: ast.AST, positional: int
) -> Value:
    subject = receiver.path or "it"
    reading.mutate(receiver, node, f"calls .{name}() on {subject}")
    if name in ("pop",) and kind is set:
        reading.impure(node, "takes an element of a set, whose order differs from process to process")
    for place, value in enumerate(arguments):
        if is_callable(value) and name in known.METHOD_CALLBACKS:
            continue
        if place < _STORED_FROM.get(name, 0):
            continue  # an index or a key
        if name in ("extend", "extendleft", "update", "fromlist", "symmetric_difference_update"):
            inside = elements_of(reading, value, node)
            if name == "update":  # pairs, or values given by keyword
                inside = join(inside, elements_of(reading, inside, node)).without_text()
                inside = join(inside, value) if place >= positional else inside
            value = join(value if value.is_scalar else NOTHING, inside)
        reading.put(receiver, value, node, f"calls .{name}() on {subject}")
    if name in _GIVES_CONTENT:
        found = join(reading.content(receiver, node), join_all(arguments[1:]))
        if name == "setdefault" and len(arguments) == 1:
            found = join(found, NONE)
        if name == "popitem":
            return make_display(reading, node, frozenset({tuple}), {0: join(found, PLAIN_VALUE), 1: found}, "item")
        return found.without_text()
    kinds = known.mutating_result(kind, name)
    if kinds is not None:
        return _of_mutator(reading, name, kinds, arguments, node)
    if name == "send":
        reading.send(join_all(arguments))
    if name in ("__next__", "send"):
        return reading.content(receiver, node)
    return NONE if kind is not Plain else Value(types=PLAIN)


#: The first argument that is stored; where none is, a large number.
_STORED_FROM = {"insert": 1, "setdefault": 1, "pop": 9, "remove": 9, "discard": 9, "rotate": 9, "popitem": 9}


def _of_mutator(reading: Reading, name: str, kinds: Types, arguments: list[Value], node: ast.AST) -> Value:
    """What a method gives that changes its object by the way: a generator of random numbers, a text being read."""
    if name == "shuffle":
        for value in arguments:
            reading.mutate(value, node, "shuffles it")
        return NONE
    if name in ("choice", "choices", "sample"):
        inside = join_all(elements_of(reading, value, node) for value in arguments[:1]).without_text()
        return inside if name == "choice" else make_object(reading, node, frozenset({list}), inside, name)
    return Value(types=kinds)


def elements_of(reading: Reading, value: Value, node: ast.AST) -> Value:
    if value.is_scalar:
        return value.without_text()
    found = reading.content(value, node)
    if any(isinstance(kind, type) and issubclass(kind, dict) for kind in value.types or ()):
        return join(found, keys_of(reading, value, found))
    return found


def _reading(reading: Reading, receiver: Value, kind: type, name: str, arguments: list[Value], node: ast.AST) -> Value:
    kinds = known.method_result(kind, name)
    if is_scalar_type(kind):
        if kinds is not None and all(is_scalar_type(each) for each in kinds):
            return Value(types=kinds)
        content = scalar(kind) if kind in (str, bytes) else PLAIN_VALUE
        return make_object(reading, node, kinds, content, name)
    content = reading.content(receiver, node)
    # Objects of the user's may be keys, too; lists and dicts may not.
    may_be_keys = content.types is None or any(
        kind not in known.MUTATORS and not is_scalar_type(kind) and kind is not Plain for kind in content.types
    )
    of_keys = content if may_be_keys else NOTHING
    if name == "items":
        keys = keys_of(reading, receiver, of_keys)
        pair = make_display(reading, node, frozenset({tuple}), {0: keys, 1: content}, "pair")
        return make_object(reading, node, frozenset({list}), pair, name)
    if name == "keys":
        return make_object(reading, node, frozenset({list}), keys_of(reading, receiver, of_keys), name)
    if name == "values":
        return make_object(reading, node, frozenset({list}), content, name)
    if name == "get":
        defaults = arguments[1:] or [NONE]
        return join_all([content, *defaults]).without_text()
    if name in ("most_common", "elements"):
        pair = make_display(reading, node, frozenset({tuple}), {0: join(content, PLAIN_VALUE), 1: scalar(int)}, "pair")
        return make_object(reading, node, frozenset({list}), pair if name == "most_common" else PLAIN_VALUE, name)
    if name in _GIVES_SELF_LIKE:
        extra = join_all(elements_of(reading, value, node) for value in arguments)
        made = make_object(reading, node, frozenset({kind}), join(content, extra), name)
        for each in made.objects:
            reading.heap.lose_parts(each)
        return made
    if kinds is not None and all(is_scalar_type(each) for each in kinds):
        return Value(types=kinds)
    return Value(types=kinds, objects=receiver.objects | join_all(arguments).objects)


def _subscript_method(reading: Reading, receiver: Value, name: str, arguments: list[Value], node: ast.AST) -> Value:
    if name == "__getitem__" and len(arguments) == 1:
        return item_of(reading, receiver, arguments[0], node)
    if name == "__contains__" and len(arguments) == 1:
        return test_contains(reading, receiver, arguments[0], node)
    if name == "__setitem__" and len(arguments) == 2:
        assign_item(reading, receiver, arguments[0], arguments[1], node)
        return NONE
    if name == "__delitem__" and len(arguments) == 1:
        delete_item(reading, receiver, arguments[0], node)
        return NONE
    return reading.unknown(node, f"calls .{name}()")


def _method_of_state(
    reading: Reading,
    receiver: Value,
    handle: Handle,
    name: str,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
) -> Value:
    if name in known.ALL_MUTATORS:
        reading.facts.stored.update(each.identity for each in receiver.objects if isinstance(each, Handle))
    if keywords:
        reading.whole(handle, node, f"calls .{name}() with keywords")
        return PLAIN_VALUE
    count = len(arguments)
    if isinstance(receiver.only, set):
        if name in ("add", "discard", "remove", "__contains__") and count == 1:
            test_contains(reading, receiver, arguments[0], node)
            return scalar(bool) if name == "__contains__" else NONE
        reading.whole(handle, node, f"calls .{name}() on {handle.path}")
        return PLAIN_VALUE
    if name == "get" and count in (1, 2):
        return read_entry(
            reading,
            receiver,
            arguments[0],
            node,
            create=False,
            default=arguments[1] if count == 2 else NONE,
        )
    if name == "setdefault" and count in (1, 2):
        store_entry(reading, receiver, arguments[0], arguments[1] if count == 2 else NONE, node)
        return read_entry(reading, receiver, arguments[0], node, create=False)
    if name == "pop" and count in (1, 2):
        return read_entry(
            reading,
            receiver,
            arguments[0],
            node,
            create=False,
            default=arguments[1] if count == 2 else None,
        )
    if name == "__getitem__" and count == 1:
        return read_entry(reading, receiver, arguments[0], node, create=True)
    if name == "__setitem__" and count == 2:
        store_entry(reading, receiver, arguments[0], arguments[1], node)
        return NONE
    if name == "__contains__" and count == 1:
        return test_contains(reading, receiver, arguments[0], node)
    if name == "__delitem__" and count == 1:
        delete_item(reading, receiver, arguments[0], node)
        return NONE
    if name == "update" and count == 1:
        return _update_entry(reading, receiver, handle, node)
    reading.whole(handle, node, f"calls .{name}() on {handle.path}")
    return PLAIN_VALUE


def _update_entry(reading: Reading, receiver: Value, handle: Handle, node: ast.AST) -> Value:
    """``d.update({key: value})`` with a display is an assignment of each entry."""
    argument = node.args[0] if isinstance(node, ast.Call) and len(node.args) == 1 else None
    if argument is None or not updates_entries(reading, receiver, argument, node):
        reading.whole(handle, node, f"calls .update() on {handle.path}")
    return NONE


def _starred_method_of_row(
    reading: Reading, receiver: Value, name: str, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    """``t.but(**changes)`` where the names are not known: every column may be changed."""
    if name not in ("but", "_replace"):
        return reading.unknown(node, f"calls .{name}() of the tuple with arguments that are not known")
    given = join_all([*arguments, *keywords.values()])
    reading.use(given, node, how="passes it to .but()")
    made = make_object(reading, node, ROW_TYPES, join(reading.content(receiver, node), given), "but")
    for each in made.objects:
        reading.heap.lose_parts(each)
    return made


def _method_of_row(
    reading: Reading, receiver: Value, name: str, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    names = reading.schema.names if reading.schema is not None else None
    before: dict[Any, Value] | None = reading.heap.parts(receiver)
    if receiver.objects == frozenset({TUPLE}) and names is not None:
        before = {each: reading.column(each) for each in names}
    for value in (*arguments, *keywords.values()):
        reading.use(value, node, how=f"passes it to .{name}()")
    if name in ("but", "_replace") and not arguments:
        if before is None:
            made = make_object(
                reading, node, ROW_TYPES, join(reading.content(receiver, node), join_all(keywords.values()))
            )
            return made
        return make_display(reading, node, ROW_TYPES, {**before, **keywords}, "but")
    if name in ("asDict", "_asdict") and not arguments:
        if before is None:
            return make_object(reading, node, frozenset({dict}), reading.content(receiver, node), "asDict")
        return make_display(reading, node, frozenset({dict}), before, "asDict")
    if name in ("count", "index", "__getitem__"):
        return Value(types=PLAIN, objects=receiver.objects)
    return reading.unknown(node, f"calls .{name}() of the tuple")


def is_callable(value: Value) -> bool:
    """The value is (or may be) a function that a library function would call."""
    if value.types is not None and Callback in value.types:
        return True
    if value.concrete is None:
        return False
    return any(
        isinstance(each, (LocalFunction, BoundMethod))
        or (callable(each) and not isinstance(each, (int, float, str, NoneType)))
        for each in value.concrete
    )
