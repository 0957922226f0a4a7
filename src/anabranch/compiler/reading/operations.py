"""Operators, comparisons, truth: where Python runs special methods of values."""

from __future__ import annotations

import ast
import collections
import dataclasses
import datetime
import decimal
import types
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.context import static_attribute
from anabranch.compiler.reading.displays import Displays
from anabranch.compiler.reading.frames import Flow
from anabranch.compiler.reading.values import (
    NOTHING,
    PLAIN,
    BoundMethod,
    Callback,
    Handle,
    Iterator,
    LocalFunction,
    NoneType,
    Types,
    Value,
    combined_text,
    constant,
    is_scalar_type,
    join,
    scalar,
)
from anabranch.program.schema import Row

_OPERATORS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.MatMult: "@",
}
_COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


class Operators(Displays):
    """Operators on values."""

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        return self.binary(left, right, type(node.op), node)

    def binary(self, left: Value, right: Value, operator: type, node: ast.AST) -> Value:
        if left.is_nothing or right.is_nothing:
            return NOTHING
        symbol = _OPERATORS[operator]
        for side in (left, right):
            self.plain_use(side, node, f"uses it with {symbol}")
        if Iterator in (left.types or frozenset()) | (right.types or frozenset()):
            self.unknown(node, f"uses {symbol} with an iterator")
        if operator is ast.Mod and str in (left.types or ()) and self.holds_unordered(right):
            self.impure(node, "shows a set, whose order differs from process to process")
        kinds = _result_types(left.types, right.types, operator)
        text = combined_text(f"({{}} {symbol} {{}})", [left, right])
        if kinds is not None and all(is_scalar_type(kind) for kind in kinds):
            return Value(types=kinds, text=text)
        if kinds == PLAIN and not left.objects and not right.objects:
            return Value(types=PLAIN, text=text)
        parts = self._concatenated(left, right, operator)
        content = join(self._inside(left, node), self._inside(right, node))
        if parts is not None:
            return self.display(node, kinds, parts).with_text(text)
        made = self.make(node, kinds, content)
        (site,) = made.objects
        self.heap.lose_parts(site)
        return made

    def _inside(self, value: Value, node: ast.AST) -> Value:
        if value.is_scalar:
            return value.without_text()
        return self.content(value, node)

    def _concatenated(self, left: Value, right: Value, operator: type) -> dict[str | int, Value] | None:
        first, second = self.tuple_parts(left), self.tuple_parts(right)
        if operator is ast.Add and first is not None and second is not None:
            return dict(enumerate(first + second))
        if operator is ast.BitOr:
            one, other = self.heap.parts(left), self.heap.parts(right)
            if one is not None and other is not None and left.types == right.types == frozenset({dict}):
                return {**one, **other}
        return None

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            self.truth(value, node)
            return scalar(bool, text=combined_text("(not {})", [value]))
        self.plain_use(value, node, "uses it with a sign")
        symbol = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}[type(node.op)]
        if isinstance(value.only, (int, float)) and not isinstance(value.only, bool) and symbol == "-":
            return constant(-value.only)
        kinds = frozenset(int if kind is bool else kind for kind in value.types or ()) - {NoneType}
        if kinds <= {int, float, decimal.Decimal, datetime.timedelta, complex} and kinds:
            return Value(types=kinds, text=combined_text(f"({symbol}{{}})", [value]))
        return Value(types=PLAIN, text=combined_text(f"({symbol}{{}})", [value]))

    def truth(self, value: Value, node: ast.AST) -> None:
        """The value is tested: its __bool__ or __len__ runs."""
        for each in value.objects:
            if isinstance(each, Handle):
                self.whole(each, node, "tests if it is empty")
        if value.is_nothing or value.concrete is not None:
            for found in value.concrete or ():
                kind = type(found)
                for name in ("__bool__", "__len__"):
                    if isinstance(static_attribute(kind, name), types.FunctionType) and not isinstance(
                        found, (LocalFunction, BoundMethod)
                    ):
                        self.unknown(node, f"tests a {kind.__name__}, which has its own {name}")
            return
        if value.types is None:
            self.unknown(node, "tests a value of unknown type")
            return
        for kind in value.types:
            own = any(isinstance(static_attribute(kind, name), types.FunctionType) for name in ("__bool__", "__len__"))
            if not self.is_tame(kind) and kind is not Callback and (own or not self._is_plain_class(kind)):
                self.unknown(node, f"tests a {kind.__name__}")

    def _boolop(self, node: ast.BoolOp) -> Value:
        first = self.evaluate(node.values[0])
        self.truth(first, node)
        found = first
        flows: list[Flow] = []
        texts = [first]
        for operand in node.values[1:]:
            flows.append(self.flow.copy())
            self.branch_depth += 1
            value = self.evaluate(operand)
            self.branch_depth -= 1
            self.truth(value, operand)
            texts.append(value)
            found = join(found, value)
        for flow in flows:
            self.flow = self.flow.joined(flow)
        symbol = " and " if isinstance(node.op, ast.And) else " or "
        return dataclasses.replace(found, text=combined_text("(" + symbol.join(["{}"] * len(texts)) + ")", texts))

    def _compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        values: list[Value] = [left]
        symbols: list[str | None] = []
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node)
            if isinstance(operator, (ast.Is, ast.IsNot)):
                self._identity(left, right, node)
                symbols.append(None)
            elif isinstance(operator, (ast.In, ast.NotIn)):
                self.contains(right, left, node)
                symbols.append(_COMPARISONS[type(operator)])
            else:
                for side in (left, right):
                    self._comparable(side, node)
                symbols.append(_COMPARISONS[type(operator)])
            values.append(right)
            left = right
        text = None
        if None not in symbols and not any(self.handle_of(value) for value in values):
            template = "({}" + "".join(f" {symbol} {{}}" for symbol in symbols) + ")"
            text = combined_text(template, values)
        return scalar(bool, text=text)

    def _comparable(self, value: Value, node: ast.AST) -> None:
        if value.concrete is not None and all(isinstance(each, type) or each is None for each in value.concrete):
            return
        self.plain_use(value, node, "compares it")

    def contains(self, container: Value, item: Value, node: ast.AST) -> Value:
        """``item in container``."""
        handle = self.handle_of(container)
        if handle is not None:
            self._check_index(item, node)
            for each in self._handles(container, node) or ():
                self.access(each, item, node)
            return scalar(bool)
        if Iterator in (container.types or ()):
            self.mutate(container, node, "searches an iterator")
        self.plain_use(item, node, "searches for it")
        if container.is_nothing:
            return scalar(bool)
        if container.types is None:
            self.unknown(node, "searches a value of unknown type")
        for kind in container.types or ():
            is_enum = isinstance(container.only, type) and issubclass(container.only, known.ENUM)
            if not self.is_tame(kind) and not is_enum:
                self.unknown(node, f"searches a {kind.__name__}")
        if container.foreign:
            self.unknown(node, "searches among values of unknown type")
        return scalar(bool)

    def _identity(self, left: Value, right: Value, node: ast.AST) -> None:
        for side in (left, right):
            if side.concrete is not None and all(_is_singleton(each) for each in side.concrete):
                return
        self.impure(node, "compares objects by identity, which differs from process to process")

    def _ifexp(self, node: ast.IfExp) -> Value:
        self.truth(self.evaluate(node.test), node)
        before = self.flow.copy()
        self.branch_depth += 1
        yes = self.evaluate(node.body)
        after, self.flow = self.flow, before
        no = self.evaluate(node.orelse)
        self.branch_depth -= 1
        self.flow = self.flow.joined(after)
        found = join(yes, no)
        if found.text is None and yes.text is not None and no.text is not None:
            test = self._test_text(node.test)
            if test is not None:
                text = combined_text("({} if {} else {})", [yes, test, no])
                found = found.with_text(text)
        return found

    def _test_text(self, node: ast.expr) -> Value | None:
        value = self.evaluate(node)
        return value if value.text is not None else None

    def _starred(self, node: ast.Starred) -> Value:
        return self.iterate(self.evaluate(node.value), node)


def _is_singleton(found: Any) -> bool:
    if found is None or found is True or found is False or found is ... or found is NotImplemented:
        return True
    return isinstance(found, (type, known.ENUM, types.FunctionType)) or type(found) is object


_NUMBERS = frozenset({bool, int, float})


def _result_types(left: Types, right: Types, operator: type) -> Types:
    """The types of a binary operation on values of these types."""
    if left is None or right is None:
        return None
    left, right = left - {NoneType}, right - {NoneType}  # None raises
    if not left or not right:
        return frozenset()
    if left <= _NUMBERS and right <= _NUMBERS:
        if operator is ast.Div:
            return frozenset({float})
        if operator is ast.Pow:
            return frozenset({int, float, complex}) if left | right <= {int, bool} else frozenset({float, complex})
        if operator in (ast.BitAnd, ast.BitOr, ast.BitXor) and left | right == {bool}:
            return frozenset({bool})
        found: set[type] = set()
        if (left | right) & {float}:
            found.add(float)
        if left & {int, bool} and right & {int, bool}:
            found.add(int)
        return frozenset(found)
    if operator is ast.Add and left == right and len(left) == 1:
        return left
    if operator is ast.Mod and left == {str}:
        return frozenset({str})
    if operator is ast.Mult and (left | right) <= {str, int, bool} and str in left | right:
        return frozenset({str})
    if operator is ast.Add and left <= {tuple, Row} and right <= {tuple, Row}:
        return frozenset({tuple})
    alike = left == right and len(left) == 1 and left <= {set, frozenset, dict, collections.Counter}
    if alike and operator in (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor):
        return left
    if left | right <= {datetime.datetime, datetime.timedelta} and operator in (ast.Add, ast.Sub):
        return frozenset({datetime.datetime, datetime.timedelta})
    if decimal.Decimal in left | right and left | right <= {decimal.Decimal, int, bool}:
        return frozenset({decimal.Decimal})
    if operator is ast.Mult and left | right <= {list, int}:
        return frozenset({list})
    return PLAIN
