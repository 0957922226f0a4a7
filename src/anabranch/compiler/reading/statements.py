"""Reading statements: the walk along the paths of a function.

Both branches of an `if` are read and joined; a loop is read again and again until nothing new is learned;
a handler starts from everything that may hold anywhere in its `try`. The number of emitted tuples is
part of what is carried along, so its least and most over all paths fall out of the same joins.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import json
import sys
from typing import Any

from anabranch.compiler.reading.assigning import assign
from anabranch.compiler.reading.attributes import attribute_of
from anabranch.compiler.reading.displays import iterate_over
from anabranch.compiler.reading.emitting import leave
from anabranch.compiler.reading.frames import ControlFlow
from anabranch.compiler.reading.kinds import is_plain_class
from anabranch.compiler.reading.match_patterns import read_pattern
from anabranch.compiler.reading.names import assign_name, local_function
from anabranch.compiler.reading.reading_state import Reading, StatementHandlers
from anabranch.compiler.reading.tameness import test_truth
from anabranch.compiler.reading.values import (
    NONE,
    PLAIN_VALUE,
    Value,
    combined_text,
    join,
)

_MOST_ROUNDS = 14


def _read_expr(reading: Reading, node: ast.Expr) -> None:
    reading.evaluate(node.value)


def _read_pass(reading: Reading, node: ast.Pass) -> None:
    pass


def _read_global(reading: Reading, node: ast.Global) -> None:
    pass


def _read_nonlocal(reading: Reading, node: ast.Nonlocal) -> None:
    pass


def _read_return(reading: Reading, node: ast.Return) -> None:
    value = reading.evaluate(node.value) if node.value is not None else NONE
    leave(reading, value, node)


def _read_raise(reading: Reading, node: ast.Raise) -> None:
    for part in (node.exc, node.cause):
        if part is not None:
            reading.evaluate(part)
    reading.flow.alive = False


def _read_assert(reading: Reading, node: ast.Assert) -> None:
    test_truth(reading, reading.evaluate(node.test), node)
    if node.msg is not None:
        reading.evaluate(node.msg)


def _read_break(reading: Reading, node: ast.Break) -> None:
    reading.frame.breaks[-1].append(reading.flow.copy())
    reading.flow.alive = False


def _read_continue(reading: Reading, node: ast.Continue) -> None:
    reading.frame.continues[-1].append(reading.flow.copy())
    reading.flow.alive = False


def _read_import(reading: Reading, node: ast.Import) -> None:
    for alias in node.names:
        module = sys.modules.get(alias.name)
        if module is None:
            reading.unknown(node, f"imports {alias.name}, which is not loaded yet")
            assign_name(reading, alias.asname or alias.name.split(".")[0], PLAIN_VALUE, node)
            continue
        bound = module if alias.asname else sys.modules[alias.name.split(".")[0]]
        name = alias.asname or alias.name.split(".")[0]
        assign_name(reading, name, reading.shared(bound, name), node)


def _read_importfrom(reading: Reading, node: ast.ImportFrom) -> None:
    package = reading.frame.globals.get("__package__") or ""
    wanted = _absolute_name(node.module or "", package, node.level)
    module = sys.modules.get(wanted)
    for alias in node.names:
        if module is None or not hasattr(module, alias.name):
            reading.unknown(node, f"imports {wanted}.{alias.name}, which is not loaded yet")
            continue
        reading.facts.globals_read.add((module.__name__, alias.name))
        assign_name(reading, alias.asname or alias.name, reading.shared(getattr(module, alias.name), alias.name), node)


def _read_functiondef(reading: Reading, node: ast.FunctionDef) -> None:
    value = local_function(reading, node)
    for decorator in reversed(node.decorator_list):
        value = reading.call(reading.evaluate(decorator), [value], {}, node)
    assign_name(reading, node.name, value, node)


def _read_classdef(reading: Reading, node: ast.ClassDef) -> None:
    assign_name(reading, node.name, reading.unknown(node, f"defines the class {node.name} for every tuple"), node)


def _read_if(reading: Reading, node: ast.If) -> None:
    test = reading.evaluate(node.test)
    test_truth(reading, test, node.test)
    before = reading.flow.copy()
    reading.branch_depth += 1
    reading.run(node.body)
    after, reading.flow = reading.flow, before
    reading.run(node.orelse)
    reading.branch_depth -= 1
    other, reading.flow = reading.flow, after.joined(reading.flow)
    if test.text is not None and after.alive and other.alive:
        _choose_texts(reading, test, after, other)


def _choose_texts(reading: Reading, test: Value, yes: ControlFlow, no: ControlFlow) -> None:
    """A variable that is one expression in one branch and another in the other is still an expression."""
    for name, joined in reading.flow.variables.items():
        first, second = yes.variables.get(name), no.variables.get(name)
        if joined.text is None and first is not None and second is not None and joined.is_scalar:
            text = combined_text("({} if {} else {})", [first, test, second])
            if text is not None:
                reading.flow.variables[name] = joined.with_text(text)


def _read_match(reading: Reading, node: ast.Match) -> None:
    subject = reading.evaluate(node.subject)
    ends: list[ControlFlow] = []
    reading.branch_depth += 1
    certain = False
    for case in node.cases:
        before = reading.flow.copy()
        read_pattern(reading, case.pattern, subject)
        if case.guard is not None:
            test_truth(reading, reading.evaluate(case.guard), case.guard)
        reading.run(case.body)
        ends.append(reading.flow)
        reading.flow = before
        always = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
        if always and case.guard is None:
            certain = True
            break
    reading.branch_depth -= 1
    if certain:
        reading.flow.alive = False
    for end in ends:
        reading.flow = reading.flow.joined(end)


def _read_for(reading: Reading, node: ast.For) -> None:
    element = iterate_over(reading, reading.evaluate(node.iter), node.iter)
    _loop(reading, node, lambda: assign(reading, node.target, element.without_text(), node), None)


def _read_while(reading: Reading, node: ast.While) -> None:
    _loop(reading, node, None, node.test)


def _loop(reading: Reading, node: Any, begin: Any, test: ast.expr | None) -> None:
    frame = reading.frame
    outer = reading.loops
    reading.loops = (*outer, id(node))
    exits: list[ControlFlow] = []
    for _ in range(_MOST_ROUNDS):
        version, start = reading.heap.version, reading.flow.copy()
        frame.breaks.append([])
        frame.continues.append([])
        ends_by_test = True
        if test is not None:
            value = reading.evaluate(test)
            test_truth(reading, value, test)
            ends_by_test = not (value.concrete is not None and bool(value.only is True or value.only == 1))
        after_test = reading.flow.copy()
        if begin is not None:
            begin()
        reading.run(node.body)
        for flow in frame.continues.pop():
            reading.flow = reading.flow.joined(flow)
        exits = frame.breaks.pop()
        reading.flow = reading.flow.joined(start) if reading.flow.alive else start.copy()
        if reading.flow.same_as(start) and version == reading.heap.version:
            break
    else:
        reading.unknown(node, "a loop cannot be followed")
    reading.loops = outer
    end = after_test if ends_by_test else dataclasses.replace(after_test.copy(), alive=False)
    reading.flow = end
    if node.orelse and reading.flow.alive:
        reading.run(node.orelse)
    for flow in exits:
        reading.flow = reading.flow.joined(flow)


def _read_asyncfor(reading: Reading, node: ast.AsyncFor) -> None:
    value = join(reading.evaluate(node.iter), reading.not_followed(node))
    _loop(reading, node, lambda: assign(reading, node.target, value, node), None)


def _read_asyncwith(reading: Reading, node: ast.AsyncWith) -> None:
    for item in node.items:
        value = join(reading.evaluate(item.context_expr), reading.not_followed(node))
        if item.optional_vars is not None:
            assign(reading, item.optional_vars, value, node)
    before = reading.flow.copy()
    reading.run(node.body)
    reading.flow = reading.flow.joined(before)  # what it raises may be taken


def _read_try(reading: Reading, node: ast.Try) -> None:
    reading.branch_depth += 1
    frame = reading.frame
    frame.handlers.append([reading.flow.copy()])
    reading.run(node.body)
    raised = frame.handlers.pop()
    ended = reading.flow
    reading.flow = ended
    if ended.alive:
        reading.run(node.orelse)
        ended = reading.flow
    entry = dataclasses.replace(raised[0].copy(), alive=True)
    for flow in raised[1:]:
        entry = entry.joined(flow)
    ends = [ended]
    for handler in node.handlers:
        reading.flow = entry.copy()
        named = reading.evaluate(handler.type) if handler.type is not None else None
        if handler.name is not None:
            one = named.only if named is not None else None
            caught = Value(types=frozenset({one if one is json.JSONDecodeError else Exception}))
            assign_name(reading, handler.name, caught, handler)
        reading.run(handler.body)
        ends.append(reading.flow)
    joined = ends[0]
    for end in ends[1:]:
        joined = joined.joined(end)
    reading.flow = joined
    if node.finalbody:
        alive = reading.flow.alive
        if not alive:
            reading.flow = entry.copy()
        exits = len(frame.exits)
        before_most = reading.flow.most
        reading.run(node.finalbody)
        if reading.flow.most > before_most or len(frame.exits) > exits:
            # Emitting or returning on the way out: every path of the try may do it.
            for flow, _ in frame.exits:
                flow.most = 2
                flow.least = 0
            reading.flow.most = 2
        if not alive:
            reading.flow.alive = False
    reading.branch_depth -= 1


def _read_with(reading: Reading, node: ast.With) -> None:
    suppressing = False
    for item in node.items:
        value = reading.evaluate(item.context_expr)
        entered = value
        if value.types == frozenset({contextlib.suppress}):
            suppressing = True
        elif value.concrete is not None or value.types is None or not all(is_plain_class(kind) for kind in value.types):
            entered = reading.unknown(node, f"enters {ast.unparse(item.context_expr)[:60]}, which is not known")
        else:
            entered = reading.call(attribute_of(reading, value, "__enter__", node), [], {}, node)
            reading.call(attribute_of(reading, value, "__exit__", node), [NONE, NONE, NONE], {}, node)
            suppressing = True  # __exit__ may swallow the exception
        if item.optional_vars is not None:
            assign(reading, item.optional_vars, entered, node)
    if not suppressing:
        reading.run(node.body)
        return
    reading.branch_depth += 1
    frame = reading.frame
    frame.handlers.append([reading.flow.copy()])
    reading.run(node.body)
    for flow in frame.handlers.pop():
        reading.flow = reading.flow.joined(flow)
    reading.branch_depth -= 1


def _absolute_name(module: str, package: str, dots: int) -> str:
    """The module that an import with so many leading `dots` means in a package; as written if there is no such."""
    if not dots or not package:
        return module
    parents = package.split(".")
    if dots > len(parents):
        return module
    base = ".".join(parents[: len(parents) - dots + 1])
    return f"{base}.{module}" if module else base


#: The statements that are read here.
STATEMENTS: StatementHandlers = {
    ast.Expr: _read_expr,
    ast.Pass: _read_pass,
    ast.Global: _read_global,
    ast.Nonlocal: _read_nonlocal,
    ast.Return: _read_return,
    ast.Raise: _read_raise,
    ast.Assert: _read_assert,
    ast.Break: _read_break,
    ast.Continue: _read_continue,
    ast.Import: _read_import,
    ast.ImportFrom: _read_importfrom,
    ast.FunctionDef: _read_functiondef,
    ast.ClassDef: _read_classdef,
    ast.If: _read_if,
    ast.Match: _read_match,
    ast.For: _read_for,
    ast.While: _read_while,
    ast.AsyncFor: _read_asyncfor,
    ast.Try: _read_try,
    ast.TryStar: _read_try,
    ast.With: _read_with,
    ast.AsyncWith: _read_asyncwith,
}
