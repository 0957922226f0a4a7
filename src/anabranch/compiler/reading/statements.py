"""Reading statements: the walk along the paths of a function.

Both branches of an `if` are read and joined; a loop is read again and again until nothing new is learned;
a handler starts from everything that may hold anywhere in its `try`. The number of emitted tuples is
part of what is carried along, so its least and most over all paths fall out of the same joins.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import sys
from typing import Any

from anabranch.compiler.reading.facts import Emission
from anabranch.compiler.reading.frames import Flow
from anabranch.compiler.reading.match_patterns import Patterns
from anabranch.compiler.reading.source_code import mangled
from anabranch.compiler.reading.values import (
    NONE,
    NOTHING,
    PLAIN_VALUE,
    Plain,
    Site,
    Value,
    combined_text,
    is_scalar_type,
    join,
)

_MOST_ROUNDS = 14


class Statements(Patterns):
    """Executes statements over abstract values."""

    def run_body(self, tree: Any) -> None:
        frame = self.frame
        if isinstance(tree, ast.Lambda):
            value = self.evaluate(tree.body)
            self._leave(value, tree.body)
            return
        self.block(tree.body)
        if self.flow.alive:
            frame.returned = join(frame.returned, NONE)
            frame.exits.append((self.flow.copy(), None))
            self.returns.setdefault(id(tree), []).append(Emission(NONE, self.place(tree.body[-1])))

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            if not self.flow.alive:
                return
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        self.step()
        handlers = self.frame.handlers
        for waiting in handlers:
            waiting.append(self.flow.copy())
        handler = getattr(self, "_do_" + type(node).__name__.lower(), None)
        if handler is None:
            self._unsupported(node)
        else:
            handler(node)
        if self.flow.alive:
            for waiting in handlers:
                waiting.append(self.flow.copy())

    # -- simple statements --------------------------------------------------------------------------------

    def _do_expr(self, node: ast.Expr) -> None:
        self.evaluate(node.value)

    def _do_pass(self, node: ast.Pass) -> None:
        pass

    def _do_global(self, node: ast.Global) -> None:
        pass

    def _do_nonlocal(self, node: ast.Nonlocal) -> None:
        pass

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.assign(target, value, node)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value), node)

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value, target)
        elif isinstance(target, ast.Attribute):
            name = mangled(target.attr, self.frame.node)
            self.assign_attribute(self.evaluate(target.value), name, value, target)
        elif isinstance(target, ast.Subscript):
            self.assign_item(self.evaluate(target.value), self.evaluate(target.slice), value, target)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, self.make(target, frozenset({list}), value, "starred"), node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, node)
        else:
            self._unsupported(target)

    def _unpack(self, target: ast.Tuple | ast.List, value: Value, node: ast.AST) -> None:
        parts = self.tuple_parts(value)
        starred = any(isinstance(each, ast.Starred) for each in target.elts)
        if parts is not None and not starred and len(parts) == len(target.elts):
            for each, part in zip(target.elts, parts, strict=True):
                self.assign(each, part, node)
            return
        inside = self.iterate(value, node).without_text()
        for each in target.elts:
            self.assign(each, inside, node)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            before = self.lookup(target.id, target)
            self.assign_name(target.id, self._augmented(before, node), target)
        elif isinstance(target, ast.Attribute):
            owner, name = self.evaluate(target.value), mangled(target.attr, self.frame.node)
            before = self.attribute(owner, name, target)
            self.assign_attribute(owner, name, self._augmented(before, node), target)
        elif isinstance(target, ast.Subscript):
            owner, index = self.evaluate(target.value), self.evaluate(target.slice)
            before = self.subscript(owner, index, target)
            self.assign_item(owner, index, self._augmented(before, node), target)

    def _augmented(self, before: Value, node: ast.AugAssign) -> Value:
        right = self.evaluate(node.value)
        if before.is_nothing:
            return NOTHING
        after = self.binary(before, right, type(node.op), node)
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
        self.mutate(before, node, f"changes {before.path or 'it'} in place")
        for each in before.objects:
            if isinstance(each, Site):
                self.heap.put(each, self._inside(right, node))
        self.put(before, self._inside(right, node), node, f"changes {before.path or 'it'} in place")
        return join(before, after).without_text()

    def _do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                if target.id in self.frame.global_names | self.frame.nonlocal_names:
                    self.assign_name(target.id, NOTHING, target)
                else:
                    self.flow.variables.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                self.delete_item(self.evaluate(target.value), self.evaluate(target.slice), target)
            elif isinstance(target, ast.Attribute):
                owner, name = self.evaluate(target.value), mangled(target.attr, self.frame.node)
                if any(found is self.operator and name in self.fields for found in owner.concrete or ()):
                    self.unknown(target, f"deletes the state {name}: assign a value instead")
                else:
                    self.assign_attribute(owner, name, NOTHING, target, how=f"deletes .{name}")
            else:
                self._unsupported(target)

    def _do_return(self, node: ast.Return) -> None:
        value = self.evaluate(node.value) if node.value is not None else NONE
        self._leave(value, node)

    def _do_raise(self, node: ast.Raise) -> None:
        for part in (node.exc, node.cause):
            if part is not None:
                self.evaluate(part)
        self.flow.alive = False

    def _do_assert(self, node: ast.Assert) -> None:
        self.truth(self.evaluate(node.test), node)
        if node.msg is not None:
            self.evaluate(node.msg)

    def _do_break(self, node: ast.Break) -> None:
        self.frame.breaks[-1].append(self.flow.copy())
        self.flow.alive = False

    def _do_continue(self, node: ast.Continue) -> None:
        self.frame.continues[-1].append(self.flow.copy())
        self.flow.alive = False

    def _do_import(self, node: ast.Import) -> None:
        for alias in node.names:
            module = sys.modules.get(alias.name)
            if module is None:
                self.unknown(node, f"imports {alias.name}, which is not loaded yet")
                self.assign_name(alias.asname or alias.name.split(".")[0], PLAIN_VALUE, node)
                continue
            bound = module if alias.asname else sys.modules[alias.name.split(".")[0]]
            name = alias.asname or alias.name.split(".")[0]
            self.assign_name(name, self.shared(bound, name), node)

    def _do_importfrom(self, node: ast.ImportFrom) -> None:
        package = self.frame.globals.get("__package__") or ""
        wanted = _absolute_name(node.module or "", package, node.level)
        module = sys.modules.get(wanted)
        for alias in node.names:
            if module is None or not hasattr(module, alias.name):
                self.unknown(node, f"imports {wanted}.{alias.name}, which is not loaded yet")
                continue
            self.assign_name(alias.asname or alias.name, self.shared(getattr(module, alias.name), alias.name), node)

    def _do_functiondef(self, node: ast.FunctionDef) -> None:
        value = self.local_function(node)
        for decorator in reversed(node.decorator_list):
            value = self.call(self.evaluate(decorator), [value], {}, node)
        self.assign_name(node.name, value, node)

    def _do_classdef(self, node: ast.ClassDef) -> None:
        self.assign_name(node.name, self.unknown(node, f"defines the class {node.name} for every tuple"), node)

    # -- branches -----------------------------------------------------------------------------------------

    def _do_if(self, node: ast.If) -> None:
        test = self.evaluate(node.test)
        self.truth(test, node.test)
        before = self.flow.copy()
        self.branch_depth += 1
        self.block(node.body)
        after, self.flow = self.flow, before
        self.block(node.orelse)
        self.branch_depth -= 1
        other, self.flow = self.flow, after.joined(self.flow)
        if test.text is not None and after.alive and other.alive:
            self._choose_texts(test, after, other)

    def _choose_texts(self, test: Value, yes: Flow, no: Flow) -> None:
        """A variable that is one expression in one branch and another in the other is still an expression."""
        for name, joined in self.flow.variables.items():
            first, second = yes.variables.get(name), no.variables.get(name)
            if joined.text is None and first is not None and second is not None and joined.is_scalar:
                text = combined_text("({} if {} else {})", [first, test, second])
                if text is not None:
                    self.flow.variables[name] = joined.with_text(text)

    def _do_match(self, node: ast.Match) -> None:
        subject = self.evaluate(node.subject)
        ends: list[Flow] = []
        self.branch_depth += 1
        certain = False
        for case in node.cases:
            before = self.flow.copy()
            self._pattern(case.pattern, subject)
            if case.guard is not None:
                self.truth(self.evaluate(case.guard), case.guard)
            self.block(case.body)
            ends.append(self.flow)
            self.flow = before
            always = isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            if always and case.guard is None:
                certain = True
                break
        self.branch_depth -= 1
        if certain:
            self.flow.alive = False
        for end in ends:
            self.flow = self.flow.joined(end)

    # -- loops --------------------------------------------------------------------------------------------

    def _do_for(self, node: ast.For) -> None:
        element = self.iterate(self.evaluate(node.iter), node.iter)
        self._loop(node, lambda: self.assign(node.target, element.without_text(), node), None)

    def _do_while(self, node: ast.While) -> None:
        self._loop(node, None, node.test)

    def _loop(self, node: Any, begin: Any, test: ast.expr | None) -> None:
        frame = self.frame
        outer = self.loops
        self.loops = (*outer, id(node))
        exits: list[Flow] = []
        for _ in range(_MOST_ROUNDS):
            version, start = self.heap.version, self.flow.copy()
            frame.breaks.append([])
            frame.continues.append([])
            ends_by_test = True
            if test is not None:
                value = self.evaluate(test)
                self.truth(value, test)
                ends_by_test = not (value.concrete is not None and bool(value.only is True or value.only == 1))
            after_test = self.flow.copy()
            if begin is not None:
                begin()
            self.block(node.body)
            for flow in frame.continues.pop():
                self.flow = self.flow.joined(flow)
            exits = frame.breaks.pop()
            self.flow = self.flow.joined(start) if self.flow.alive else start.copy()
            if self.flow.same_as(start) and version == self.heap.version:
                break
        else:
            self.unknown(node, "a loop cannot be followed")
        self.loops = outer
        end = after_test if ends_by_test else dataclasses.replace(after_test.copy(), alive=False)
        self.flow = end
        if node.orelse and self.flow.alive:
            self.block(node.orelse)
        for flow in exits:
            self.flow = self.flow.joined(flow)

    def _do_asyncfor(self, node: ast.AsyncFor) -> None:
        self._unsupported(node)

    # -- exceptions and contexts --------------------------------------------------------------------------

    def _do_try(self, node: ast.Try) -> None:
        self.branch_depth += 1
        frame = self.frame
        frame.handlers.append([self.flow.copy()])
        self.block(node.body)
        raised = frame.handlers.pop()
        ended = self.flow
        self.flow = ended
        if ended.alive:
            self.block(node.orelse)
            ended = self.flow
        entry = dataclasses.replace(raised[0].copy(), alive=True)
        for flow in raised[1:]:
            entry = entry.joined(flow)
        ends = [ended]
        for handler in node.handlers:
            self.flow = entry.copy()
            if handler.type is not None:
                self.evaluate(handler.type)
            if handler.name is not None:
                caught = Value(types=frozenset({Exception}))
                self.assign_name(handler.name, caught, handler)
            self.block(handler.body)
            ends.append(self.flow)
        joined = ends[0]
        for end in ends[1:]:
            joined = joined.joined(end)
        self.flow = joined
        if node.finalbody:
            alive = self.flow.alive
            if not alive:
                self.flow = entry.copy()
            exits = len(frame.exits)
            before_most = self.flow.most
            self.block(node.finalbody)
            if self.flow.most > before_most or len(frame.exits) > exits:
                # Emitting or returning on the way out: every path of the try may do it.
                for flow, _ in frame.exits:
                    flow.most = 2
                    flow.least = 0
                self.flow.most = 2
            if not alive:
                self.flow.alive = False
        self.branch_depth -= 1

    _do_trystar = _do_try

    def _do_with(self, node: ast.With) -> None:
        suppressing = False
        for item in node.items:
            value = self.evaluate(item.context_expr)
            entered = value
            if value.types == frozenset({contextlib.suppress}):
                suppressing = True
            elif (
                value.concrete is not None
                or value.types is None
                or not all(self._is_plain_class(kind) for kind in value.types)
            ):
                entered = self.unknown(node, f"enters {ast.unparse(item.context_expr)[:60]}, which is not known")
            else:
                entered = self.call(self.attribute(value, "__enter__", node), [], {}, node)
                self.call(self.attribute(value, "__exit__", node), [NONE, NONE, NONE], {}, node)
                suppressing = True  # __exit__ may swallow the exception
            if item.optional_vars is not None:
                self.assign(item.optional_vars, entered, node)
        if not suppressing:
            self.block(node.body)
            return
        self.branch_depth += 1
        frame = self.frame
        frame.handlers.append([self.flow.copy()])
        self.block(node.body)
        for flow in frame.handlers.pop():
            self.flow = self.flow.joined(flow)
        self.branch_depth -= 1


def _absolute_name(module: str, package: str, level: int) -> str:
    """The module that an import with `level` leading dots means in a package; as written if there is no such."""
    if not level or not package:
        return module
    parents = package.split(".")
    if level > len(parents):
        return module
    base = ".".join(parents[: len(parents) - level + 1])
    return f"{base}.{module}" if module else base
