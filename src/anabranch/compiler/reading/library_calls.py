"""Calling library functions whose effect is known: what they change, call, and give back."""

from __future__ import annotations

import ast
import collections
import copy
import dataclasses
import datetime
import enum
import functools
import heapq
import itertools
import json
import math
import operator
import types
from typing import Any

import numpy as np

from anabranch.compiler.reading import known
from anabranch.compiler.reading.displays import (
    go_through_unordered,
    iterate_over,
    make_display,
    make_object,
    tuple_parts,
)
from anabranch.compiler.reading.kinds import is_plain_class, static_attribute
from anabranch.compiler.reading.method_calls import elements_of, is_callable
from anabranch.compiler.reading.reading_state import Extra, Reading
from anabranch.compiler.reading.subscripts import assign_item
from anabranch.compiler.reading.tameness import holds_unordered, plain_use
from anabranch.compiler.reading.values import (
    NONE,
    NOTHING,
    PLAIN_VALUE,
    Iterator,
    Kept,
    NoneType,
    Plain,
    Shared,
    Site,
    Text,
    Value,
    combined_text,
    is_scalar_type,
    join,
    join_all,
    scalar,
)
from anabranch.program.object_parts import attributes_of


def apply_effect(
    reading: Reading,
    effect: known.Effect,
    found: Any,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    starred: bool = False,
) -> Value:
    """Call a library function whose effect is known."""
    everything = [*arguments, *keywords.values()]
    functions = [value for value in everything if is_callable(value)]
    data = [value for value in everything if not is_callable(value)]
    if found in (isinstance, issubclass, callable):
        if found is not callable and not all(_is_checkable(reading, value) for value in everything[1:]):
            reading.unknown(node, f"calls {found.__name__}() with a class that may decide by itself")
        return scalar(bool)
    if isinstance(found, np.ufunc):
        for value in arguments[found.nin :]:
            reading.mutate(value, node, f"calls {qualified(found)} with an output array")
    elif str(getattr(found, "__module__", "")).startswith("numpy"):
        inputs = 3 if getattr(found, "__name__", "") in _THREE_INPUTS else 2
        if starred or len(arguments) > inputs:
            reading.unknown(node, f"calls {qualified(found)} with so many arguments that one may be an output")
    if "out" in keywords:
        reading.mutate(keywords["out"], node, f"calls {qualified(found)} with out=")
    for value in data:
        if any(value is arguments[place] for place in effect.mutates if place < len(arguments)):
            reading.use(value, node, how=f"passes it to {qualified(found)}()")
            if found is operator.setitem or Iterator in (value.types or ()):
                _contained(reading, value, found, node)
            else:
                plain_use(reading, value, node, f"passes it to {qualified(found)}()")
        elif found is copy.copy and _is_copied_plainly(value):
            _contained(reading, value, found, node)
        else:
            plain_use(reading, value, node, f"passes it to {qualified(found)}()")
        if found is not len and (Iterator in (value.types or ()) or _is_shared_iterator(reading, value)):
            iterate_over(reading, value, node)
        is_unordered = effect.iterates and bool(known.UNORDERED & (value.types or frozenset()))
        is_choosing = found in (min, max) and not functions and not starred
        if is_unordered and found not in (any, all) and not (is_choosing and _has_one_order(reading, value)):
            go_through_unordered(reading, value, node)
        if found in (str, ascii, json.dumps) and holds_unordered(reading, value):
            reading.impure(node, "shows a set, whose order differs from process to process")
    elements = join_all(elements_of(reading, value, node) for value in data)
    called = NOTHING
    for function in functions:
        for _ in range(2):
            given = None if starred else _given(reading, found, join(elements, called), data, node)
            if given is not None:
                called = join(called, reading.call(function, given, {}, node))
                continue
            # How many arguments it gets is not known: each parameter may be anything that is around.
            around = join_all([elements, elements_of(reading, elements, node), called, *data]).without_text()
            called = join(called, reading.call(function, [], {}, node, Extra(places=around)))
    for place in effect.mutates:
        if place < len(arguments):
            reading.mutate(arguments[place], node, f"calls {qualified(found)}() on {arguments[place].path or 'it'}")
            if found is operator.setitem and len(arguments) == 3:
                assign_item(reading, arguments[0], arguments[1], arguments[2], node)
                return NONE
            for other in arguments:
                if other is not arguments[place]:
                    reading.put(arguments[place], other, node, f"calls {qualified(found)}()")
    return _result(reading, effect, found, arguments, keywords, elements, called, node, starred)


def _has_one_order(reading: Reading, value: Value) -> bool:
    """Whether all that is in a set is of one type with a total order: its least and greatest are the same any way."""
    inside = NOTHING
    for each in value.objects:
        if not isinstance(each, Site) and not (isinstance(each, Kept) and each.field in reading.keyed.values()):
            return False
        inside = join(inside, reading.heap.at(each).content)
    return inside.types is not None and len(inside.types) == 1 and inside.types <= {str, bytes, datetime.date}


def starred_result(reading: Reading, effect: known.Effect, result: Value, arguments: list[Value]) -> Value:
    """With ``f(*x)`` it is not known which argument is which: the result may be or hold any of them."""
    if not effect.aliases:
        return result.without_text()
    given = join_all(arguments).without_text()
    for each in result.objects:
        if isinstance(each, Site):
            reading.heap.put(each, given)
    return join(result, given).without_text()


def _is_checkable(reading: Reading, value: Value) -> bool:
    """A class, or a tuple of classes, whose instance check is Python's own."""
    parts = tuple_parts(reading, value)
    if value.concrete is None and parts is not None:
        return all(_is_checkable(reading, part) for part in parts)
    kinds: list[Any] = []
    for each in value.concrete or (None,):
        kinds.extend(each if isinstance(each, tuple) else [each])
    return all(
        isinstance(kind, type)
        and (type(kind) in (type, enum.EnumMeta) or kind.__module__ in ("collections.abc", "numbers"))
        for kind in kinds
    )


def _is_copied_plainly(value: Value) -> bool:
    """Python copies it attribute by attribute; no method of the value's class takes part."""
    return value.types is not None and all(
        is_plain_class(kind) and not any(isinstance(static_attribute(kind, name), _CODE) for name in _COPY_METHODS)
        for kind in value.types
    )


_CODE = (types.FunctionType, staticmethod, classmethod, property)
_COPY_METHODS = ("__copy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__")


def _contained(reading: Reading, value: Value, found: Any, node: ast.AST) -> None:
    reading.use(value, node, how=f"passes it to {qualified(found)}()")
    if value.types is None and not value.is_nothing:
        reading.unknown(node, f"passes a value of unknown type to {qualified(found)}()")
    if value.foreign:
        reading.unknown(node, f"passes a value of unknown type to {qualified(found)}()")


def _is_shared_iterator(reading: Reading, value: Value) -> bool:
    return any(
        not isinstance(each, (*known.REITERABLE, type, types.FunctionType, types.ModuleType))
        and hasattr(type(each), "__next__")
        for each in value.concrete or ()
    )


def _given(reading: Reading, found: Any, elements: Value, data: list[Value], node: ast.AST) -> list[Value] | None:
    """The arguments a library function calls a function with; None if their number is not known."""
    if found is map:
        return [elements_of(reading, value, node).without_text() for value in data]
    if found in (functools.reduce, itertools.accumulate):
        # The first is the initial value itself, or what the function returned before.
        return [join(elements, join_all(data)), elements]
    if isinstance(found, type) and found.__name__ == "defaultdict":
        return []
    if getattr(found, "__name__", "") in ("sub", "subn"):
        return [PLAIN_VALUE]
    if found in (min, max):
        return [join(elements, join_all(data))]
    return [elements] if found in _CALL_WITH_ELEMENTS else None


def _result(
    reading: Reading,
    effect: known.Effect,
    found: Any,
    arguments: list[Value],
    keywords: dict[str, Value],
    elements: Value,
    called: Value,
    node: ast.AST,
    starred: bool,
) -> Value:
    kinds = effect.result
    if kinds is None:
        return reading.unknown(node, f"calls {qualified(found)}")
    text = None
    if effect.text and not keywords and arguments:
        text = combined_text("{f0}(" + ", ".join(["{}"] * len(arguments)) + ")", arguments, found)
    if found in (abs, round) and arguments:
        numeric = (arguments[0].types or frozenset()) - {NoneType}
        if numeric and numeric <= {int, float, bool}:
            kinds = frozenset({int if found is round and len(arguments) == 1 else max(numeric, key=_width)})
    if found in (
        min,
        max,
        functools.reduce,
        next,
        heapq.heappop,
        heapq.heapreplace,
        heapq.heappushpop,
        operator.getitem,
    ):
        given = elements
        if len(arguments) > 1 and found in (min, max, next):
            given = join(given, join_all(value for value in arguments if not is_callable(value)))
            if found in (min, max):
                given = join_all(value for value in arguments if not is_callable(value))
        given = join(given, join_all(v for n, v in keywords.items() if n == "default"))
        result = join(given, called if found is functools.reduce else NOTHING)
        return result.with_text(text) if result.is_scalar else result.without_text()
    if all(is_scalar_type(kind) for kind in kinds):
        return Value(types=kinds, text=text)
    if found in (dict,) and not arguments:
        return make_display(reading, node, kinds, dict(keywords), "dict")
    if found in (tuple, list) and len(arguments) == 1:
        parts = tuple_parts(reading, arguments[0])
        if parts is not None:
            return dataclasses.replace(make_display(reading, node, kinds, dict(enumerate(parts)), "seq"), text=text)
    if found is dict and len(arguments) == 1:
        named: dict[Any, Value] | None = reading.heap.parts(arguments[0])
        if named is not None and arguments[0].types == frozenset({dict}):
            return make_display(reading, node, kinds, {**named, **keywords}, "dict")
    content = elements if effect.aliases else NOTHING
    around: frozenset[Any] = frozenset()
    if effect.aliases and found not in _GIVE_ELEMENTS:
        # Pairs, views, values given as they are: anything the arguments lead to may be in the result.
        data = join_all(value for value in (*arguments, *keywords.values()) if not is_callable(value))
        content = join(elements, elements_of(reading, elements, node)).without_text()
        # A new array or dict is no view; but with copy=False an array is the argument itself.
        if found in _NEW and "copy" not in keywords and not starred:
            if found not in known.NEW_ARRAYS or found in (np.full, np.full_like):
                content = join(content, join_all([*arguments[1:], *keywords.values()])).without_text()
        else:
            content, around = join(content, data).without_text(), data.objects
    content = join(content, called)
    if found is enumerate:
        content = make_display(reading, node, frozenset({tuple}), {0: scalar(int), 1: elements}, "pair")
    elif found is zip:
        shape = {place: elements_of(reading, value, node) for place, value in enumerate(arguments)}
        content = make_display(reading, node, frozenset({tuple}), shape, "pair")
    elif getattr(found, "__name__", "") in (
        "product",
        "pairwise",
        "combinations",
        "permutations",
        "zip_longest",
        "groupby",
        "combinations_with_replacement",
    ):
        inner = join(elements, NONE) if found is itertools.zip_longest else elements
        if found is itertools.groupby:
            group = make_object(reading, node, frozenset({Iterator}), elements, "group")
            inner = join(join(called, elements), group)
            content = make_display(reading, node, frozenset({tuple}), {0: join(called, elements), 1: group}, "pair")
        else:
            content = make_object(reading, node, frozenset({tuple}), inner, "pair")
    elif found is itertools.count:
        content = scalar(int, float)
    elif found is map:
        content = called
    elif getattr(found, "__name__", "") == "from_iterable":
        content = elements_of(reading, elements, node)
    elif found is divmod or found is range or not effect.aliases:
        content = PLAIN_VALUE
    if found in (copy.copy, copy.deepcopy) and arguments:
        kinds = arguments[0].types
        if arguments[0].is_scalar:
            return arguments[0]
        content = elements if found is copy.copy else _deep(elements)
    if kinds == frozenset({Plain}) and not effect.aliases and found is not copy.deepcopy:
        return _of_elements(reading, found, arguments, keywords, elements, called, text)
    made = make_object(reading, node, kinds, content, "call")
    for each in made.objects:
        reading.heap.lose_parts(each)
    if found in (copy.copy, copy.deepcopy):
        _copy_attributes(reading, arguments[0], made, found is copy.deepcopy, node)
    # What can be changed is no longer what an expression says once it was.
    if not kinds or not all(kind is tuple or kind is frozenset or is_scalar_type(kind) for kind in kinds):
        text = None
    return dataclasses.replace(made, text=text, objects=made.objects | around)


def _of_elements(
    reading: Reading,
    found: Any,
    arguments: list[Value],
    keywords: dict[str, Value],
    elements: Value,
    called: Value,
    text: Text | None,
) -> Value:
    """What a function computes from its arguments: mostly a number, but the sum of lists holds their elements."""
    given = join(elements, called)
    if found in (sum, math.prod):  # the value to start with may be what comes out
        given = join(given, join_all([*arguments[1:], *keywords.values()]))
    if not given.objects:
        return Value(types=frozenset({Plain}), text=text)
    return Value(
        types=frozenset({Plain}) if given.types is not None else None,
        objects=given.objects | frozenset(reading.heap.reach(given.objects)),
        foreign=given.foreign,
    )


def _deep(value: Value) -> Value:
    """What a deep copy holds: of these types, but none of these objects."""
    return Value(types=(value.types or frozenset()) | {Plain})


def _copy_attributes(reading: Reading, value: Value, made: Value, deep: bool, node: ast.AST) -> None:
    """A copy of an object has its attributes: the same objects, or copies of them."""
    held: dict[str, Value] = {}
    for each in value.objects:
        if isinstance(each, (Site, Kept)):
            for name, inside in reading.heap.at(each).attributes.items():
                held[name] = join(held.get(name, NOTHING), inside)
    for found in value.concrete or ():
        if type(found) not in known.MUTATORS:
            for name, inside in attributes_of(found):
                held[name] = join(held.get(name, NOTHING), reading.shared(inside, f"{value.path}.{name}"))
    plain = all(kind in known.MUTATORS or kind is Plain for kind in value.types or ())
    if value.concrete is None and not plain and any(isinstance(each, Shared) for each in value.objects):
        reading.unknown(node, "copies one of many objects")
    for site in made.objects:
        for name, inside in held.items():
            reading.heap.put_attribute(site, name, _deep(inside) if deep else inside)


def _width(kind: type) -> int:
    return {bool: 0, int: 1, float: 2}[kind]


def name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        text = ast.unparse(node.func)
        return text if len(text) < 60 else text[:57] + "…"
    return "a function"


def qualified(found: Any) -> str:
    name = getattr(found, "__qualname__", None) or getattr(found, "__name__", None) or type(found).__name__
    module = getattr(found, "__module__", None)
    return f"{module}.{name}" if isinstance(module, str) and module not in ("builtins", "__main__") else str(name)


_THREE_INPUTS = {
    "where",
    "interp",
    "clip",
    "linspace",
    "full",
    "arange",
    "polyfit",
    "searchsorted",
    "isclose",
    "allclose",
}

#: What they make holds elements of the arguments, and elements of these, but neither is nor holds the arguments.
_NEW = (dict, collections.Counter, collections.OrderedDict, *known.NEW_ARRAYS)

#: Functions that make a new container of the elements of their argument, or of tuples of them.
_GIVE_ELEMENTS = (
    list,
    tuple,
    set,
    frozenset,
    collections.deque,
    sorted,
    reversed,
    enumerate,
    zip,
    map,
    filter,
    copy.copy,
    itertools.islice,
    itertools.chain,
    itertools.product,
    itertools.pairwise,
    itertools.combinations,
    itertools.permutations,
    itertools.takewhile,
    itertools.dropwhile,
    itertools.filterfalse,
    itertools.groupby,
    itertools.accumulate,
    heapq.nlargest,
    heapq.nsmallest,
)

#: Functions that call a function with the elements of their argument only; max(a, b, key=f) is none of them.
_CALL_WITH_ELEMENTS = (
    sorted,
    filter,
    itertools.filterfalse,
    itertools.takewhile,
    itertools.dropwhile,
    itertools.groupby,
    heapq.nlargest,
    heapq.nsmallest,
)
