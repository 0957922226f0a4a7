"""Loops over slots that only add up: their rounds need not be taken one after the other.

    s0[slot] += c1 * c2            Added(0, c1 * c2)      each field is a running sum, by key, of what the columns of
    s1[slot] += c2           ──►   Added(1, c2)           a tuple alone say; what is given is computed of columns and
    o1(s0[slot] / s1[slot])        Given(1, s0 / s1)      of these sums

Found are bodies of plain additions, once for each field, and of arithmetic with ``+ - * /`` on columns, locals, numbers
and fields that were added to before. That values are numbers for which whole columns give what Python gives, whoever
computes looks at (`engine/worker/slot_sums`).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from anabranch.compiler.rewriting.inline import PREFIX
from anabranch.compiler.rewriting.state_slots import SlotCode


@dataclass(frozen=True)
class Added:
    """What a tuple adds to a field of its key."""

    field: int
    value: ast.expr
    is_taken_off: bool


@dataclass(frozen=True)
class Local:
    """A local of the method."""

    name: str
    value: ast.expr


@dataclass(frozen=True)
class Given:
    """A column of the output that is computed."""

    output: int
    value: ast.expr


SlotFold = Sequence[Added | Local | Given]
"""What a body does, in its order."""


def fold_of(code: SlotCode) -> SlotFold | None:
    """A loop as sums; None if it does something else."""
    if code.loop is None or code.passed is None:
        return None
    loop = code.tree.body[0]
    assert isinstance(loop, ast.For)
    guard = loop.body[0]
    assert isinstance(guard, ast.Try)
    steps: list[Added | Local | Given] = []
    for statement in guard.body:
        made = _step(statement)
        if made is None:
            return None
        steps += made
    return steps if _is_sound(steps) else None


def _step(statement: ast.stmt) -> list[Added | Local | Given] | None:
    match statement:
        case ast.Pass() | ast.Expr(value=ast.Constant()):
            return []
        case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value) if field_of(target) is not None:
            return [Added(field_of(target) or 0, value, isinstance(op, ast.Sub))]
        case ast.Assign(targets=[ast.Subscript() as target], value=ast.BinOp(left=left, op=op, right=right)):
            at = field_of(target)
            if at is not None and field_of(left) == at and isinstance(op, (ast.Add, ast.Sub)):
                return [Added(at, right, isinstance(op, ast.Sub))]
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [Local(name, value)]
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
            pairs = zip(names, values, strict=True)
            own = [Local(name.id, value) for name, value in pairs if isinstance(name, ast.Name)]
            # Only ours: what is computed for the output, of which none reads another.
            return list(own) if all(each.name.startswith(PREFIX + "v") for each in own) and own else None
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=[value], keywords=[])):
            if name.startswith(PREFIX + "o") and name[len(PREFIX) + 1 :].isdigit():
                return [Given(int(name[len(PREFIX) + 1 :]), value)]
    return None


def _is_sound(steps: Sequence[Added | Local | Given]) -> bool:
    """Whether each field is added to once, and read behind that only; whether all is arithmetic."""
    added = [each.field for each in steps if isinstance(each, Added)]
    if len(set(added)) < len(added) or not added:
        return False
    waiting, known = set(added), set[str]()
    for each in steps:
        for node in ast.walk(each.value):
            at = field_of(node)
            if at is not None and at in waiting:
                return False
        if not _is_arithmetic(each.value, known):
            return False
        if isinstance(each, Added):
            waiting.discard(each.field)
        elif isinstance(each, Local):
            known.add(each.name)
    return True


def _is_arithmetic(value: ast.expr, known: set[str]) -> bool:
    match value:
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            return _is_arithmetic(left, known) and _is_arithmetic(right, known)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_arithmetic(operand, known)
        case ast.Constant(value=number):
            return type(number) in (int, float) and isinstance(number, (int, float)) and abs(number) < 2**31
        case ast.Name(id=name):
            return name in known or column_of(value) is not None
    return field_of(value) is not None


def field_of(node: ast.AST) -> int | None:
    """The field that an expression is, at the slot of the tuple."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Name(id=at)) if at == PREFIX + "slot":
            return int(name.removeprefix(PREFIX + "s"))
    return None


def column_of(node: ast.AST) -> int | None:
    """The input column that an expression is."""
    if isinstance(node, ast.Name) and node.id.startswith(PREFIX + "c") and node.id[len(PREFIX) + 1 :].isdigit():
        return int(node.id[len(PREFIX) + 1 :])
    return None
