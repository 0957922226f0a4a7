"""Functions the interpreter handles itself: getattr, type, super, print, which reach further; and what timers ask."""

from __future__ import annotations

import ast
import decimal
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.compiler.reading.attributes import assign_attribute, attribute_of
from anabranch.compiler.reading.displays import iterate_over, make_object
from anabranch.compiler.reading.facts import Kind
from anabranch.compiler.reading.frames import Frame
from anabranch.compiler.reading.kinds import interceptor_of, static_attribute
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.settings_calls import decimal_context
from anabranch.compiler.reading.tameness import show_value
from anabranch.compiler.reading.values import (
    ANYTHING,
    NONE,
    NOTHING,
    Callback,
    Iterator,
    NoneType,
    Plain,
    SuperProxy,
    Value,
    combined_text,
    join,
    join_all,
    scalar,
)
from anabranch.operators.epoch_context import Moment, moment


def _call_getattr(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if len(arguments) in (2, 3) and isinstance(arguments[1].only, str):
        target, name = arguments[0], arguments[1].only
        if len(arguments) == 3 and target.concrete is not None and not hasattr(type(target.only), name):
            missing = all(name not in getattr(each, "__dict__", {}) for each in target.concrete)
            if missing and target.only is not reading.operator:
                return arguments[2]
        found = attribute_of(reading, target, name, node)
        return found if len(arguments) == 2 else join(found, arguments[2])
    return reading.unknown(node, "reads an attribute whose name is not known")


def _call_setattr(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if len(arguments) == 3 and isinstance(arguments[1].only, str):
        assign_attribute(reading, arguments[0], arguments[1].only, arguments[2], node)
        return NONE
    return reading.unknown(node, "assigns an attribute whose name is not known")


def _call_hasattr(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if len(arguments) == 2 and isinstance(arguments[1].only, str):
        value, name = arguments[0], arguments[1].only
        kinds = {type(each) for each in value.concrete or ()} or set(value.types or (object,))
        for kind in kinds:
            if interceptor_of(kind, ("__getattr__", "__getattribute__")) or isinstance(
                static_attribute(kind, name), property
            ):
                return reading.unknown(node, f"asks for .{name}, which runs code")
        if value.types is None:
            return reading.unknown(node, f"asks for .{name} of a value of unknown type")
        return scalar(bool)
    return reading.unknown(node, "asks for an attribute whose name is not known")


def _call_type(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if len(arguments) != 1:
        return reading.unknown(node, "makes a class")
    value = arguments[0]
    reading.use(value, node, shallow=True)
    kinds: set[type] = {type(each) for each in value.concrete} if value.concrete is not None else set(value.types or ())
    if value.types is None or not kinds or Plain in kinds or kinds & {Iterator, Callback}:
        return Value(types=None, foreign=True)
    return join_all(reading.shared(kind, f"type({value.path or kind.__name__})") for kind in kinds)


def _call_super(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if not arguments:
        frame: Frame | None = reading.frame
        while frame is not None and "__class__" not in frame.closure:
            frame = frame.parent
        if frame is None or not frame.node.args.args:
            return reading.unknown(node, "uses super() where its class is not known")
        owner = frame.closure["__class__"].only
        first = frame.node.args.args[0].arg
        receiver = (
            reading.flow.variables.get(first, NOTHING) if frame is reading.frame else frame.cells.get(first, ANYTHING)
        )
    elif len(arguments) == 2:
        owner, receiver = arguments[0].only, arguments[1]
    else:
        return reading.unknown(node, "uses super() with one argument")
    if not isinstance(owner, type):
        return reading.unknown(node, "uses super() where its class is not known")
    return Value(types=None, objects=receiver.objects, concrete=(SuperProxy(owner, receiver),), path="super()")


def _call_print(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    for value in arguments:
        show_value(reading, value, node)
    if "file" in keywords:
        reading.impure(node, "prints to a file")
    reading.facts.add(Kind.NOTE, "prints", reading.place(node))
    return NONE


def _call_warn(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    reading.facts.add(Kind.NOTE, "warns", reading.place(node))
    return NONE


def _call_iter(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if len(arguments) != 1:
        return reading.unknown(node, "calls iter() with a sentinel")
    return make_object(reading, node, frozenset({Iterator}), iterate_over(reading, arguments[0], node), "iter")


def _call_repr(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    for value in arguments:
        show_value(reading, value, node)
    text = combined_text("{f0}({})", arguments, repr) if len(arguments) == 1 else None
    return scalar(str, text=text)


def _call_format(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    for value in arguments:
        show_value(reading, value, node)
    return scalar(str, text=combined_text("{f0}(" + ", ".join(["{}"] * len(arguments)) + ")", arguments, format))


def _call_delattr(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    if len(arguments) == 2 and isinstance(arguments[1].only, str):
        assign_attribute(reading, arguments[0], arguments[1].only, NOTHING, node)
        return NONE
    return reading.unknown(node, "deletes an attribute whose name is not known")


def _call_moment(reading: Reading, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
    """What timers ask how far time has come: whoever calls the operator sets it, the same on one thread and many."""
    made = make_object(reading, node, frozenset({Moment}), NOTHING, "moment")
    kinds = {"reached": frozenset({int}), "fired": frozenset({int, NoneType}), "asked": frozenset({int})}
    for name, types in kinds.items():
        assign_attribute(reading, made, name, Value(types=types), node)
    return made


_Special = Callable[[Reading, list[Value], dict[str, Value], ast.AST], Value]
#: Functions the interpreter handles itself, by identity.
SPECIAL: Mapping[int, tuple[Any, _Special]] = {
    id(function): (function, handler)
    for function, handler in (
        (getattr, _call_getattr),
        (setattr, _call_setattr),
        (hasattr, _call_hasattr),
        (delattr, _call_delattr),
        (type, _call_type),
        (super, _call_super),
        (print, _call_print),
        (warnings.warn, _call_warn),
        (decimal.getcontext, decimal_context),
        (iter, _call_iter),
        (repr, _call_repr),
        (format, _call_format),
        (moment, _call_moment),
    )
}
