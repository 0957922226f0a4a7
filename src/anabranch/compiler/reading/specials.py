"""Built-in functions that reach attributes, classes or the outside: getattr, type, super, print."""

from __future__ import annotations

import ast
import warnings
from typing import Any

from anabranch.compiler.reading.context import static_attribute
from anabranch.compiler.reading.facts import Kind
from anabranch.compiler.reading.frames import Frame
from anabranch.compiler.reading.library_calls import Library
from anabranch.compiler.reading.values import (
    ANYTHING,
    NONE,
    NOTHING,
    Callback,
    Iterator,
    Plain,
    SuperProxy,
    Value,
    combined_text,
    join,
    join_all,
    scalar,
)


class Specials(Library):
    """Calls of built-in functions that need care."""

    def _getattr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) in (2, 3) and isinstance(arguments[1].only, str):
            target, name = arguments[0], arguments[1].only
            if len(arguments) == 3 and target.concrete is not None and not hasattr(type(target.only), name):
                missing = all(name not in getattr(each, "__dict__", {}) for each in target.concrete)
                if missing and target.only is not self.operator:
                    return arguments[2]
            found = self.attribute(target, name, node)
            return found if len(arguments) == 2 else join(found, arguments[2])
        return self.unknown(node, "reads an attribute whose name is not known")

    def _setattr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) == 3 and isinstance(arguments[1].only, str):
            self.assign_attribute(arguments[0], arguments[1].only, arguments[2], node)
            return NONE
        return self.unknown(node, "assigns an attribute whose name is not known")

    def _hasattr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) == 2 and isinstance(arguments[1].only, str):
            value, name = arguments[0], arguments[1].only
            kinds = {type(each) for each in value.concrete or ()} or set(value.types or (object,))
            for kind in kinds:
                if self._intercepts(kind, ("__getattr__", "__getattribute__")) or isinstance(
                    static_attribute(kind, name), property
                ):
                    return self.unknown(node, f"asks for .{name}, which runs code")
            if value.types is None:
                return self.unknown(node, f"asks for .{name} of a value of unknown type")
            return scalar(bool)
        return self.unknown(node, "asks for an attribute whose name is not known")

    def _type(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) != 1:
            return self.unknown(node, "makes a class")
        value = arguments[0]
        self.use(value, node, shallow=True)
        kinds: set[type] = (
            {type(each) for each in value.concrete} if value.concrete is not None else set(value.types or ())
        )
        if value.types is None or not kinds or Plain in kinds or kinds & {Iterator, Callback}:
            return Value(types=None, foreign=True)
        return join_all(self.shared(kind, f"type({value.path or kind.__name__})") for kind in kinds)

    def _super(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if not arguments:
            frame: Frame | None = self.frame
            while frame is not None and "__class__" not in frame.closure:
                frame = frame.parent
            if frame is None or not frame.node.args.args:
                return self.unknown(node, "uses super() where its class is not known")
            owner = frame.closure["__class__"].only
            first = frame.node.args.args[0].arg
            receiver = (
                self.flow.variables.get(first, NOTHING) if frame is self.frame else frame.cells.get(first, ANYTHING)
            )
        elif len(arguments) == 2:
            owner, receiver = arguments[0].only, arguments[1]
        else:
            return self.unknown(node, "uses super() with one argument")
        if not isinstance(owner, type):
            return self.unknown(node, "uses super() where its class is not known")
        return Value(types=None, objects=receiver.objects, concrete=(SuperProxy(owner, receiver),), path="super()")

    def _print(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        for value in arguments:
            self.show(value, node)
        if "file" in keywords:
            self.impure(node, "prints to a file")
        self.facts.add(Kind.NOTE, "prints", self.place(node))
        return NONE

    def _warn(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        self.facts.add(Kind.NOTE, "warns", self.place(node))
        return NONE

    def _iter(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) != 1:
            return self.unknown(node, "calls iter() with a sentinel")
        return self.make(node, frozenset({Iterator}), self.iterate(arguments[0], node), "iter")

    def _repr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        for value in arguments:
            self.show(value, node)
        text = combined_text("{f0}({})", arguments, repr) if len(arguments) == 1 else None
        return scalar(str, text=text)

    def _format(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        for value in arguments:
            self.show(value, node)
        return scalar(str, text=combined_text("{f0}(" + ", ".join(["{}"] * len(arguments)) + ")", arguments, format))

    def _delattr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) == 2 and isinstance(arguments[1].only, str):
            self.assign_attribute(arguments[0], arguments[1].only, NOTHING, node)
            return NONE
        return self.unknown(node, "deletes an attribute whose name is not known")


#: Functions the interpreter handles itself, by identity.
SPECIAL: dict[int, tuple[Any, str]] = {
    id(function): (function, handler)
    for function, handler in (
        (getattr, "_getattr"),
        (setattr, "_setattr"),
        (hasattr, "_hasattr"),
        (delattr, "_delattr"),
        (type, "_type"),
        (super, "_super"),
        (print, "_print"),
        (warnings.warn, "_warn"),
        (iter, "_iter"),
        (repr, "_repr"),
        (format, "_format"),
    )
}
