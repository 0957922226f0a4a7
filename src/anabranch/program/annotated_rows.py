"""Tuples that are what an annotation says: ``def f(t: Bid)`` is called with a `Bid`.

A function that only reads columns, or hands its tuple on, cannot see what the tuple is; it is called as ever, and
rewritten to columns where that pays. Where it can see it (a method, a property, ``_replace``, the tuple as an
argument or kept in state, a nested class), it is put into a function that makes the object first:

    def seen(t):
        return function(Bid(t.auction, t.price))

That is written out as source, which the compiler reads like any other: what methods of the class do is found.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import linecache
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from anabranch.program.schema import Schema
from anabranch.program.source_code import NoSource, tree_of

_ROW_ONLY = frozenset({"but", "asDict"})
"""What our rows have, and classes of the user's do not: who uses it means a row, whatever he annotates."""


def is_record(kind: Any) -> bool:
    """Whether a class is one that tuples can be instances of: a NamedTuple or a dataclass."""
    if not isinstance(kind, type):
        return False
    return (issubclass(kind, tuple) and hasattr(kind, "_fields")) or dataclasses.is_dataclass(kind)


def fields_of(kind: Any) -> tuple[str, ...]:
    """The fields of such a class, as its constructor takes them."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind) if field.init)
    return tuple(kind._fields)


def seen_class(function: Any, schema: Schema, place: int = 0) -> type | None:
    """The class that a function's tuples are instances of, by its annotation; None: they are rows.

    It must have the columns as its fields, whatever their order. `place` is that of the parameter.
    """
    kind = _annotated(function, place)
    return kind if kind is not None and set(fields_of(kind)) == set(schema.names) else None


def _annotated(function: Any, place: int) -> type | None:
    if not isinstance(function, types.FunctionType) or not function.__annotations__:
        return None
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    if place >= len(names) or names[place] not in function.__annotations__:
        return None
    try:
        found = typing.get_type_hints(function).get(names[place])
    except Exception:  # a name that is only imported for type checkers
        return None
    arguments = [each for each in typing.get_args(found) if each is not types.NoneType]
    if typing.get_origin(found) in (typing.Union, types.UnionType) and len(arguments) == 1:
        found = arguments[0]  # None is what an outer join has where there is no tuple
    return found if is_record(found) else None


def shows_class(function: types.FunctionType, kind: type, schema: Schema, place: int = 0) -> bool:
    """Whether a function could tell an instance of its class from a row."""
    tree = tree_of(function)
    if isinstance(tree, NoSource):
        return True
    parameters = [*tree.args.posonlyargs, *tree.args.args]
    name = parameters[place].arg
    nested = {column for column, _ in _nested(kind)}
    plain: set[int] = set()  # uses of the tuple that show nothing
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=found) as use, attr=attribute) if found == name:
                if attribute in _ROW_ONLY:
                    return False
                if attribute in schema.names and attribute not in nested and isinstance(node.ctx, ast.Load):
                    plain.add(id(use))
            case ast.Subscript(value=ast.Name(id=found), slice=ast.Constant(value=str())) if found == name:
                return False
            case ast.Yield(value=ast.Name(id=found) as use) | ast.Return(value=ast.Name(id=found) as use):
                if found == name:
                    plain.add(id(use))
            case ast.Lambda(body=ast.Name(id=found) as use) if found == name and node is tree:
                plain.add(id(use))
    return any(isinstance(node, ast.Name) and node.id == name and id(node) not in plain for node in ast.walk(tree))


def _nested(kind: Any) -> list[tuple[str, Any]]:
    """The fields of a class that hold objects of such classes, with their annotations."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception:
        return []
    return [(name, hint) for name, hint in hints.items() if name in fields_of(kind) and _holds_record(hint)]


def _holds_record(hint: Any) -> bool:
    return is_record(hint) or any(_holds_record(each) for each in typing.get_args(hint))


def classes_within(hint: Any) -> set[Any]:
    """The classes of the user's that an annotation names, with those of their fields."""
    found = {each for argument in typing.get_args(hint) for each in classes_within(argument)}
    if is_record(hint):
        found |= {hint} | {each for _, nested in _nested(hint) for each in classes_within(nested)}
    return found


def seeing(function: Any, *schemas: Schema | None, nulls: bool = False) -> Any:
    """A function of tuples as the program calls it: itself, or with tuples made what its annotation says.

    `schemas` are the columns of what it is called with, None for what is no tuple; with `nulls` a tuple may be None.
    """
    taken: list[tuple[type, Schema] | None] = []
    for place, schema in enumerate(schemas):
        kind = None if schema is None else seen_class(function, schema, place)
        is_seen = kind is not None and schema is not None and shows_class(function, kind, schema, place)
        taken.append((kind, schema) if is_seen and kind is not None and schema is not None else None)
    return _written(function, taken, nulls) if any(taken) else function


def seeing_methods(prototype: Any, schemas: dict[str, Schema]) -> Any:
    """An operator whose methods (by name, with the columns of what each takes) get what they are annotated with."""
    was = type(prototype)
    made: dict[str, Any] = {}
    kinds: set[Any] = set()
    for name, schema in schemas.items():
        method = inspect.getattr_static(was, name, None)
        kind = seen_class(method, schema, place=1)
        if kind is not None and shows_class(method, kind, schema, place=1):
            made[name] = _written(method, [None, (kind, schema)])
            kinds.update(classes_within(kind))
    if not made:
        return prototype
    members = {**made, "__module__": was.__module__, "__qualname__": was.__qualname__, "annotated_classes": kinds}
    like = type(was.__name__, (was,), members)
    other: Any = object.__new__(like)
    other.__dict__.update(prototype.__dict__)
    return other


def _written(function: Any, taken: Sequence[tuple[type, Schema] | None], nulls: bool = False) -> Callable[..., Any]:
    """The function with tuples made of a class, for each of its parameters that takes such."""
    kinds: dict[str, Any] = {"function": function}
    names = [f"t{place}" for place in range(len(taken))]
    arguments = []
    for name, each in zip(names, taken, strict=True):
        made = name if each is None else _made(name, *each, kinds)
        arguments.append(f"(None if {name} is None else {made})" if nulls and each is not None else made)
    is_async, many = inspect.iscoroutinefunction(function), inspect.isgeneratorfunction(function)
    call = f"function({', '.join(arguments)})"
    body = f"    yield from {call}\n" if many else f"    return await {call}\n" if is_async else f"    return {call}\n"
    called = function.__name__ if function.__name__.isidentifier() else "seen"
    source = (
        f"def around({', '.join(kinds)}):\n"
        f"    {'async ' if is_async else ''}def {called}({', '.join(names)}):\n    {body}"
        f"    return {called}\n"
    )
    # A name that is the same in every process: what is rewritten and kept is found by it.
    shown = ", ".join(f"{each[0].__module__}.{each[0].__qualname__}" for each in taken if each is not None)
    file = f"<anabranch seen as {shown}: {source}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"__name__": __name__}
    exec(compile(source, file, "exec", dont_inherit=True), namespace)
    found: Callable[..., Any] = namespace["around"](**kinds)
    found.__doc__ = function.__doc__
    return found


def _made(value: str, kind: Any, schema: Schema, kinds: dict[str, Any]) -> str:
    """An expression for an instance of a class, of a row."""
    hints = dict(_nested(kind))
    parts = []
    for name in fields_of(kind):
        column = f"{value}.{name}"
        if name in hints:
            column = _made_of(column, hints[name], schema.type_of(name), kinds)
        parts.append(f"{name}={column}" if dataclasses.is_dataclass(kind) else column)
    return f"{_named(kind, kinds)}({', '.join(parts)})"


def _made_of(value: str, hint: Any, column: pa.DataType, kinds: dict[str, Any]) -> str:
    """An expression for what a value of a column is, by its annotation: structs are dicts there."""
    arguments = [each for each in typing.get_args(hint) if each is not types.NoneType]
    origin = typing.get_origin(hint)
    if is_record(hint) and pa.types.is_struct(column) and set(fields_of(hint)) == {f.name for f in column}:
        hints = dict(_nested(hint))
        parts = []
        for name in fields_of(hint):
            part = f"{value}[{name!r}]"
            parts.append(
                f"{name}={_made_of(part, hints[name], column.field(name).type, kinds)}"
                if name in hints
                else f"{name}={part}"
            )
        return f"(None if {value} is None else {_named(hint, kinds)}({', '.join(parts)}))"
    if origin in (typing.Union, types.UnionType) and len(arguments) == 1:
        return _made_of(value, arguments[0], column, kinds)
    if origin is list and len(arguments) == 1 and pa.types.is_list(column):
        item = f"each{len(kinds)}_{value.count('each')}"
        inner = _made_of(item, arguments[0], column.value_type, kinds)
        return f"(None if {value} is None else [{inner} for {item} in {value}])"
    return value


def _named(kind: Any, kinds: dict[str, Any]) -> str:
    """A name for a class in what is written."""
    for name, held in kinds.items():
        if held is kind:
            return name
    name = f"{kind.__name__}_{len(kinds)}" if kind.__name__.isidentifier() else f"kind_{len(kinds)}"
    kinds[name] = kind
    return name
