"""Assigning: names, attributes, items and whole patterns of them; in place, and deleting."""

from __future__ import annotations

import ast
import copy

from anabranch.compiler.reading.attributes import assign_attribute, attribute_of, has_fields
from anabranch.compiler.reading.displays import iterate_over, make_object, tuple_parts
from anabranch.compiler.reading.names import assign_name, look_up
from anabranch.compiler.reading.operations import METHODS, binary_operation, followed, inside_of, special_method
from anabranch.compiler.reading.reading_state import ExpressionHandlers, Reading, StatementHandlers
from anabranch.compiler.reading.subscripts import assign_item, delete_item, item_of, updates_entries
from anabranch.compiler.reading.values import (
    NOTHING,
    Plain,
    Site,
    Value,
    is_scalar_type,
    join,
)
from anabranch.program.source_code import mangled


def _read_namedexpr(reading: Reading, node: ast.NamedExpr) -> Value:
    value = reading.evaluate(node.value)
    assign_name(reading, node.target.id, value, node)
    return value


def _read_assign(reading: Reading, node: ast.Assign) -> None:
    for target in node.targets:
        if _is_pairwise(target, node.value) and len(node.targets) == 1:
            # Element by element: no tuple is made that would hold the values.
            parts = [reading.evaluate(each) for each in node.value.elts]  # type: ignore[attr-defined]
            sources = node.value.elts  # type: ignore[attr-defined]
            for each, part, source in zip(target.elts, parts, sources, strict=True):  # type: ignore[attr-defined]
                reading.made_by = source
                assign(reading, each, part, node)
            reading.made_by = None
            return
    value = reading.evaluate(node.value)
    reading.made_by = node.value
    for target in node.targets:
        assign(reading, target, value, node)
    reading.made_by = None


def _is_pairwise(target: ast.expr, value: ast.expr) -> bool:
    both = isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List))
    if not both or len(target.elts) != len(value.elts):  # type: ignore[attr-defined]
        return False
    return not any(isinstance(each, ast.Starred) for each in (*target.elts, *value.elts))  # type: ignore[attr-defined]


def _read_annassign(reading: Reading, node: ast.AnnAssign) -> None:
    if node.value is not None:
        value = reading.evaluate(node.value)
        reading.made_by = node.value
        assign(reading, node.target, value, node)
        reading.made_by = None


def assign(reading: Reading, target: ast.expr, value: Value, node: ast.AST) -> None:
    if isinstance(target, ast.Name):
        assign_name(reading, target.id, value, target)
    elif isinstance(target, ast.Attribute):
        name = mangled(target.attr, reading.frame.node)
        assign_attribute(reading, reading.evaluate(target.value), name, value, target)
    elif isinstance(target, ast.Subscript):
        assign_item(reading, reading.evaluate(target.value), reading.evaluate(target.slice), value, target)
    elif isinstance(target, ast.Starred):
        assign(reading, target.value, make_object(reading, target, frozenset({list}), value, "starred"), node)
    elif isinstance(target, (ast.Tuple, ast.List)):
        _unpack(reading, target, value, node)
    else:
        reading.not_followed(target)


def _unpack(reading: Reading, target: ast.Tuple | ast.List, value: Value, node: ast.AST) -> None:
    parts = tuple_parts(reading, value)
    starred = any(isinstance(each, ast.Starred) for each in target.elts)
    if parts is not None and not starred and len(parts) == len(target.elts):
        for each, part in zip(target.elts, parts, strict=True):
            assign(reading, each, part, node)
        return
    inside = iterate_over(reading, value, node).without_text()
    for each in target.elts:
        assign(reading, each, inside, node)


def _read_augassign(reading: Reading, node: ast.AugAssign) -> None:
    target = node.target
    if isinstance(node.op, ast.BitOr) and isinstance(target, (ast.Name, ast.Attribute)):
        before = reading.evaluate(_as_read(target))
        if updates_entries(reading, before, node.value, node):
            return  # the same object is assigned again
    if isinstance(target, ast.Name):
        before = look_up(reading, target.id, target)
        assign_name(reading, target.id, _augmented(reading, before, node), target)
    elif isinstance(target, ast.Attribute):
        owner, name = reading.evaluate(target.value), mangled(target.attr, reading.frame.node)
        before = attribute_of(reading, owner, name, target)
        assign_attribute(reading, owner, name, _augmented(reading, before, node), target, again=before.objects)
    elif isinstance(target, ast.Subscript):
        owner, index = reading.evaluate(target.value), reading.evaluate(target.slice)
        before = item_of(reading, owner, index, target)
        assign_item(reading, owner, index, _augmented(reading, before, node), target, again=before.objects)


def _as_read(target: ast.Name | ast.Attribute) -> ast.expr:
    read = copy.copy(target)
    read.ctx = ast.Load()
    return read


def _augmented(reading: Reading, before: Value, node: ast.AugAssign) -> Value:
    right = reading.evaluate(node.value)
    if before.is_nothing:
        return NOTHING
    own = special_method(before, f"__i{METHODS[type(node.op)]}__")
    if own is not None:
        return followed(reading, own, before, right, "=", node)
    if special_method(before, f"__{METHODS[type(node.op)]}__") is not None:
        return binary_operation(reading, before, right, type(node.op), node)
    after = binary_operation(reading, before, right, type(node.op), node)
    if before.is_scalar:
        return after
    # A list, set, dict or array is changed in place and stays the same object.
    immutable = before.types is not None and all(
        is_scalar_type(kind) or kind in (tuple, frozenset) for kind in before.types
    )
    if immutable:
        return after
    if before.types == frozenset({Plain}) and not before.objects:
        return after
    reading.mutate(before, node, f"changes {before.path or 'it'} in place")
    for each in before.objects:
        if isinstance(each, Site):
            reading.heap.put(each, inside_of(reading, right, node))
    reading.put(before, inside_of(reading, right, node), node, f"changes {before.path or 'it'} in place")
    return join(before, after).without_text()


def _read_delete(reading: Reading, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            if target.id in reading.frame.global_names | reading.frame.nonlocal_names:
                assign_name(reading, target.id, NOTHING, target)
            else:
                reading.flow.variables.pop(target.id, None)
        elif isinstance(target, ast.Subscript):
            delete_item(reading, reading.evaluate(target.value), reading.evaluate(target.slice), target)
        elif isinstance(target, ast.Attribute):
            owner, name = reading.evaluate(target.value), mangled(target.attr, reading.frame.node)
            if name in reading.fields and any(has_fields(reading, found) for found in owner.concrete or ()):
                reading.unknown(target, f"deletes the state {name}: assign a value instead")
            else:
                assign_attribute(reading, owner, name, NOTHING, target, how=f"deletes .{name}")
        else:
            reading.not_followed(target)


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.NamedExpr: _read_namedexpr,
}


#: The statements that are read here.
STATEMENTS: StatementHandlers = {
    ast.Assign: _read_assign,
    ast.AnnAssign: _read_annassign,
    ast.AugAssign: _read_augassign,
    ast.Delete: _read_delete,
}
