"""Operators and comparisons: where Python runs special methods of values."""

from __future__ import annotations

import ast
import collections
import dataclasses
import datetime
import decimal
import types
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.displays import iterate_over, make_display, make_object, tuple_parts
from anabranch.compiler.reading.frames import ControlFlow
from anabranch.compiler.reading.kinds import is_plain_class, static_attribute
from anabranch.compiler.reading.reading_state import ExpressionHandlers, Reading
from anabranch.compiler.reading.subscripts import check_index, handles_of
from anabranch.compiler.reading.tameness import holds_unordered, is_tame, plain_use, test_truth
from anabranch.compiler.reading.values import (
    NOTHING,
    PLAIN,
    SCALARS,
    Iterator,
    NoneType,
    Types,
    Value,
    combined_text,
    constant,
    is_plain_enum,
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

METHODS: dict[type, str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.BitAnd: "and",
    ast.MatMult: "matmul",
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


def _read_binop(reading: Reading, node: ast.BinOp) -> Value:
    left, right = reading.evaluate(node.left), reading.evaluate(node.right)
    return binary_operation(reading, left, right, type(node.op), node)


def binary_operation(reading: Reading, left: Value, right: Value, operator: type, node: ast.AST) -> Value:
    if left.is_nothing or right.is_nothing:
        return NOTHING
    symbol = _OPERATORS[operator]
    own = special_method(left, f"__{METHODS[operator]}__")
    if own is not None:
        return followed(reading, own, left, right, symbol, node)
    for side in (left, right):
        plain_use(reading, side, node, f"uses it with {symbol}")
    if Iterator in (left.types or frozenset()) | (right.types or frozenset()):
        reading.unknown(node, f"uses {symbol} with an iterator")
    if operator is ast.Mod and str in (left.types or ()) and holds_unordered(reading, right):
        reading.impure(node, "shows a set, whose order differs from process to process")
    kinds = _result_types(left.types, right.types, operator)
    text = combined_text(f"({{}} {symbol} {{}})", [left, right])
    if kinds is not None and all(is_scalar_type(kind) for kind in kinds):
        return Value(types=kinds, text=text)
    if kinds == PLAIN and not left.objects and not right.objects:
        return Value(types=PLAIN, text=text)
    parts = _concatenated(reading, left, right, operator)
    content = join(inside_of(reading, left, node), inside_of(reading, right, node))
    if parts is not None:
        return make_display(reading, node, kinds, parts).with_text(text)
    made = make_object(reading, node, kinds, content)
    (site,) = made.objects
    reading.heap.lose_parts(site)
    # What is on both sides, or is repeated, is there twice.
    both = inside_of(reading, left, node).objects & inside_of(reading, right, node).objects
    twice = content.objects if operator is ast.Mult else both
    reading.stored(Value(types=content.types, objects=twice), node, made.objects, at="again")
    return made


def special_method(value: Value, name: str) -> types.FunctionType | None:
    """The method of a class of the user's that Python calls for an operator; None if it is no such class."""
    kinds = (value.types or frozenset()) - {NoneType}
    if len(kinds) != 1:
        return None
    (kind,) = kinds
    member = static_attribute(kind, name)
    return member if isinstance(member, types.FunctionType) and is_plain_class(kind) else None


def followed(
    reading: Reading, method: types.FunctionType, left: Value, right: Value, symbol: str, node: ast.AST
) -> Value:
    """What the user's own method makes of two values."""
    found = reading.call(reading.shared(method, method.__qualname__), [left, right], {}, node)
    if found.concrete is not None and any(each is NotImplemented for each in found.concrete):
        return reading.unknown(node, f"uses {symbol}, which {method.__qualname__} may leave to the other side")
    return found.without_text()


def inside_of(reading: Reading, value: Value, node: ast.AST) -> Value:
    if value.is_scalar:
        return value.without_text()
    return reading.content(value, node)


def _concatenated(reading: Reading, left: Value, right: Value, operator: type) -> dict[str | int, Value] | None:
    first, second = tuple_parts(reading, left), tuple_parts(reading, right)
    if operator is ast.Add and first is not None and second is not None:
        return dict(enumerate(first + second))
    if operator is ast.BitOr:
        one, other = reading.heap.parts(left), reading.heap.parts(right)
        if one is not None and other is not None and left.types == right.types == frozenset({dict}):
            return {**one, **other}
    return None


def _read_unaryop(reading: Reading, node: ast.UnaryOp) -> Value:
    value = reading.evaluate(node.operand)
    if isinstance(node.op, ast.Not):
        test_truth(reading, value, node)
        return scalar(bool, text=combined_text("(not {})", [value]))
    plain_use(reading, value, node, "uses it with a sign")
    symbol = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}[type(node.op)]
    if isinstance(value.only, (int, float)) and not isinstance(value.only, bool) and symbol == "-":
        return constant(-value.only)
    kinds = frozenset(int if kind is bool else kind for kind in value.types or ()) - {NoneType}
    if kinds <= {int, float, decimal.Decimal, datetime.timedelta, complex} and kinds:
        return Value(types=kinds, text=combined_text(f"({symbol}{{}})", [value]))
    return Value(types=PLAIN, text=combined_text(f"({symbol}{{}})", [value]))


def _read_boolop(reading: Reading, node: ast.BoolOp) -> Value:
    first = reading.evaluate(node.values[0])
    test_truth(reading, first, node)
    found = first
    flows: list[ControlFlow] = []
    texts = [first]
    for operand in node.values[1:]:
        flows.append(reading.flow.copy())
        reading.branch_depth += 1
        value = reading.evaluate(operand)
        reading.branch_depth -= 1
        test_truth(reading, value, operand)
        texts.append(value)
        found = join(found, value)
    for flow in flows:
        reading.flow = reading.flow.joined(flow)
    symbol = " and " if isinstance(node.op, ast.And) else " or "
    return dataclasses.replace(found, text=combined_text("(" + symbol.join(["{}"] * len(texts)) + ")", texts))


def _read_compare(reading: Reading, node: ast.Compare) -> Value:
    left = reading.evaluate(node.left)
    values: list[Value] = [left]
    symbols: list[str | None] = []
    for operator, right_node in zip(node.ops, node.comparators, strict=True):
        right = reading.evaluate(right_node)
        if isinstance(operator, (ast.Is, ast.IsNot)):
            _identity(reading, left, right, node)
            symbols.append(None)
        elif isinstance(operator, (ast.In, ast.NotIn)):
            test_contains(reading, right, left, node)
            symbols.append(_COMPARISONS[type(operator)])
        else:
            for side in (left, right):
                compare_plainly(reading, side, node)
            symbols.append(_COMPARISONS[type(operator)])
        values.append(right)
        left = right
    text = None
    if None not in symbols and not any(reading.handle_of(value) for value in values):
        template = "({}" + "".join(f" {symbol} {{}}" for symbol in symbols) + ")"
        text = combined_text(template, values)
    return scalar(bool, text=text)


def compare_plainly(reading: Reading, value: Value, node: ast.AST) -> None:
    if value.concrete is not None and all(isinstance(each, type) or each is None for each in value.concrete):
        return
    plain_use(reading, value, node, "compares it")


def test_contains(reading: Reading, container: Value, item: Value, node: ast.AST) -> Value:
    """``item in container``."""
    handle = reading.handle_of(container)
    if handle is not None:
        check_index(reading, item, node)
        for each in handles_of(reading, container, node) or ():
            reading.access(each, item, node)
        return scalar(bool)
    if Iterator in (container.types or ()):
        reading.mutate(container, node, "searches an iterator")
    plain_use(reading, item, node, "searches for it")
    if container.is_nothing:
        return scalar(bool)
    if container.types is None:
        reading.unknown(node, "searches a value of unknown type")
    for kind in container.types or ():
        is_enum = isinstance(container.only, type) and issubclass(container.only, known.ENUM)
        if not is_tame(reading, kind) and not is_enum:
            reading.unknown(node, f"searches a {kind.__name__}")
    if container.foreign:
        reading.unknown(node, "searches among values of unknown type")
    elif container.types is not None and container.concrete is None:
        plain_use(reading, container, node, "searches it")
    return scalar(bool)


def _identity(reading: Reading, left: Value, right: Value, node: ast.AST) -> None:
    for side in (left, right):
        if side.concrete is not None and all(_is_singleton(each) for each in side.concrete):
            return
        if side.types is not None and all(kind in (NoneType, bool) or is_plain_enum(kind) for kind in side.types):
            return  # there is one object for each of these values
    reading.impure(node, "compares objects by identity, which differs from process to process")
    reading.compared.append((left.objects | right.objects, reading.place(node)))
    if all(side.types is not None and side.types & SCALARS - {NoneType, bool} for side in (left, right)):
        reading.facts.by_identity.setdefault("compares numbers or texts with `is`", reading.place(node))


def _read_ifexp(reading: Reading, node: ast.IfExp) -> Value:
    test_truth(reading, reading.evaluate(node.test), node)
    before = reading.flow.copy()
    reading.branch_depth += 1
    yes = reading.evaluate(node.body)
    after, reading.flow = reading.flow, before
    no = reading.evaluate(node.orelse)
    reading.branch_depth -= 1
    reading.flow = reading.flow.joined(after)
    found = join(yes, no)
    if found.text is None and yes.text is not None and no.text is not None:
        test = _test_text(reading, node.test)
        if test is not None:
            text = combined_text("({} if {} else {})", [yes, test, no])
            found = found.with_text(text)
    return found


def _test_text(reading: Reading, node: ast.expr) -> Value | None:
    value = reading.evaluate(node)
    return value if value.text is not None else None


def _read_starred(reading: Reading, node: ast.Starred) -> Value:
    return iterate_over(reading, reading.evaluate(node.value), node)


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


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.BinOp: _read_binop,
    ast.UnaryOp: _read_unaryop,
    ast.BoolOp: _read_boolop,
    ast.Compare: _read_compare,
    ast.IfExp: _read_ifexp,
    ast.Starred: _read_starred,
}
