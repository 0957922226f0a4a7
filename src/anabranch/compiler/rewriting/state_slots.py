"""A keyed operator's method over columns *and* over its state by slot: no instance of any key.

    def process(self, t):                        def process(positions, slots, c1s, c2s, s0, s1, o1):
        self.pv += t.price * t.volume                for position, slot, c1, c2 in zip(positions, slots, c1s, c2s):
        self.v += t.volume                 ──►           s0[slot] += c1 * c2
        yield t.key, self.pv / self.v                    s1[slot] += c2
                                                         o1(s0[slot] / s1[slot])

It starts from what `inline` made of the method, and replaces ``self.field`` by the field's list at the slot of the key.
That means the same only where `self` is used for nothing but its fields, which are plain attributes, and for values of
its configuration; all else is left to instances (None).

The body becomes that of one loop where this is sure to mean the same: where locals are bound before they are read in
every round, where nothing could outlive its round (functions, generators), and where a `return` is not within a loop.
Otherwise it is a function that is called for each tuple. Where the loop's body ends every round with the only `yield`,
there is one tuple for each that came: positions and columns that are passed on are not gathered anew.
"""

from __future__ import annotations

import ast
import copy
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.compiler.rewriting.inline import PREFIX, Body, body_over_columns, names_bound, shown


class _CannotSlotError(Exception):
    """The method needs an instance."""


@dataclass(frozen=True)
class SlotCode:
    """A method over columns and slots.

    Attributes
    ----------
    make : callable
        Takes (appends of the output columns…, append of the position, unpack, the list of each field…, configuration)
        and gives a function of (position, slot, the input columns that are read…).
    loop : callable or None
        A function of (positions, slots, the columns that are read…, and then all that `make` takes).
    reads : tuple of int
        The input columns that are read.
    passed : mapping or None
        Of a loop that gives one tuple for each: which output columns are which input columns. These, and positions, it
        does not append. None: it may give any number.
    source : str
        For people.
    tree : ast.FunctionDef
        The loop, or else the function, as syntax.
    """

    make: Callable[..., Any]
    loop: Callable[..., Any] | None
    reads: tuple[int, ...]
    passed: Mapping[int, int] | None
    source: str
    tree: ast.FunctionDef = field(compare=False)


@dataclass(frozen=True)
class StateNames:
    """What a method may use of `self`: attributes that are state, and such that are the same for all keys."""

    fields: tuple[str, ...]
    configuration: tuple[str, ...]

    @property
    def given(self) -> list[str]:
        """The names under which the rewritten method finds them."""
        return [*(f"s{at}" for at in range(len(self.fields))), "configuration"]


def on_slots(body: Sequence[ast.stmt], instance: str, state: StateNames) -> list[ast.stmt] | None:
    """Statements with lists by slot in place of the fields of an instance; None if they need that."""
    slots = _Slots(instance, state)
    try:
        return [slots.visit(each) for each in body]
    except _CannotSlotError:
        return None


def with_slots(function: Any, inputs: Sequence[str], outputs: Sequence[str], state: StateNames) -> SlotCode | None:
    """A generator method ``(self, t)`` over slots; None if it needs an instance, or yields in ways not seen through."""
    if not isinstance(function, types.FunctionType):
        return None
    method = _Method(function.__code__, function.__code__.co_filename, function)
    found = _rewritten(method, tuple(inputs), tuple(outputs), state)
    if found is None:
        return None
    make, loop, body, passed, source, tree = found
    errors = (StopIteration, RuntimeError)
    return SlotCode(
        types.FunctionType(make, function.__globals__, argdefs=errors),
        None if loop is None else types.FunctionType(loop, function.__globals__, argdefs=(*errors, zip)),
        body.reads,
        passed,
        source,
        tree,
    )


@dataclass(frozen=True)
class _Method:
    code: types.CodeType
    filename: str  # which code objects do not compare
    function: types.FunctionType = field(compare=False)


# A task is made for every channel of every epoch, and its methods are the same each time.
@functools.lru_cache(maxsize=256)
def _rewritten(method: _Method, inputs: tuple[str, ...], outputs: tuple[str, ...], state: StateNames) -> Any:
    body = body_over_columns(method.function, inputs, outputs)
    if body is None or len(body.names) != 2:
        return None
    statements = on_slots(body.statements, body.names[0], state)
    if statements is None:
        return None
    try:
        return _compiled(method.function, body, statements, len(outputs), state)
    except SystemError:  # as in `inline`
        return None


def _compiled(
    function: types.FunctionType, body: Body, statements: list[ast.stmt], outputs: int, state: StateNames
) -> tuple[Any, ...]:
    given = [*(f"o{at}" for at in range(outputs)), "place", "unpack", *state.given]
    writer = _Writer(function, body, [PREFIX + name for name in given])
    looped = _looped(statements)
    make, tree = writer.maker(statements)
    if looped is None:
        return make, None, body, None, shown(tree), tree
    statements, passed = _one_to_one(looped, outputs)
    loop, tree = writer.loop(statements)
    return make, loop, body, passed, shown(tree), tree


class _Slots(ast.NodeTransformer):
    """Replaces fields of the instance by their lists at the slot."""

    def __init__(self, instance: str, state: StateNames) -> None:
        self._instance = instance
        self._fields = state.fields
        self._configuration = state.configuration

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if not (isinstance(node.value, ast.Name) and node.value.id == self._instance):
            return self.generic_visit(node)
        if node.attr in self._fields and not isinstance(node.ctx, ast.Del):
            values = ast.Name(f"{PREFIX}s{self._fields.index(node.attr)}", ast.Load())
            return ast.copy_location(ast.Subscript(values, ast.Name(PREFIX + "slot", ast.Load()), node.ctx), node)
        if node.attr in self._configuration and isinstance(node.ctx, ast.Load):
            held = ast.Name(PREFIX + "configuration", ast.Load())
            return ast.copy_location(ast.Attribute(held, node.attr, ast.Load()), node)
        raise _CannotSlotError(f"self.{node.attr}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == self._instance:
            raise _CannotSlotError("self is used as a whole")
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        if node.arg == self._instance:
            raise _CannotSlotError("a function within has a parameter of that name")
        return node


# -- one loop --------------------------------------------------------------------------------------------------------


def _looped(statements: Sequence[ast.stmt]) -> list[ast.stmt] | None:
    """The body of a function as that of a loop; None if it may mean something else."""
    inner = _inside(statements)
    module = ast.Module(list(statements), [])
    bound: set[str] = set()
    for node in ast.walk(module):
        if isinstance(node, (ast.Lambda, ast.GeneratorExp, ast.Delete, ast.Import, ast.ImportFrom, ast.TryStar)):
            return None
        if isinstance(node, ast.ExceptHandler) and node.name == PREFIX + "stop":
            continue
        if names_bound(node):
            return None
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
    if not _are_bound_first(inner, {name for name in bound if not name.startswith(PREFIX)}):
        return None
    try:
        returns = _Returns()
        return [returns.visit(copy.deepcopy(each)) for each in statements]
    except _CannotSlotError:
        return None


def _inside(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements of the method within what turns a StopIteration into an error."""
    (guard,) = statements
    assert isinstance(guard, ast.Try)
    return guard.body


def _are_bound_first(statements: Sequence[ast.stmt], names: set[str]) -> bool:
    """Whether each name is bound by a statement that every round executes, before anything reads it."""
    waiting = set(names)
    for statement in statements:
        if not waiting:
            return True
        binds: set[str] = set()
        read: list[ast.AST] = [statement]
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                binds, read = {name}, [value]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value, annotation=annotation):
                binds, read = {name}, [value, annotation]
        met = {node.id for each in read for node in ast.walk(each) if isinstance(node, ast.Name)}
        if met & waiting:
            return False
        waiting -= binds
    return not waiting


class _Returns(ast.NodeTransformer):
    """A return of a round is its end."""

    def visit_Return(self, node: ast.Return) -> ast.AST:
        return ast.copy_location(ast.Continue(), node)

    def _within_loop(self, node: ast.AST) -> ast.AST:
        if any(isinstance(each, ast.Return) for each in ast.walk(node)):
            raise _CannotSlotError("a return within a loop")
        return node

    visit_For = visit_While = _within_loop  # noqa: N815


def _one_to_one(statements: list[ast.stmt], outputs: int) -> tuple[list[ast.stmt], dict[int, int] | None]:
    """Without what need not be gathered, where each round surely ends with one tuple; which columns are passed on."""
    inner = _inside(statements)
    places = [node for node in ast.walk(ast.Module(statements, [])) if _is_append(node, "place")]
    at = next((at for at, each in enumerate(inner) if _is_append(each, "place")), None)
    leaves = any(isinstance(each, ast.Continue) and not _is_of_inner_loop(each, inner) for each in _walked(inner))
    if len(places) != 1 or at is None or leaves:
        return statements, None
    appends = inner[at - outputs : at]
    values = [each.value.args[0] for each in appends]  # type: ignore[attr-defined]
    before = inner[: at - outputs]
    if before and isinstance(before[-1], ast.Assign) and isinstance(before[-1].targets[0], ast.Tuple):
        names = [each.id for each in before[-1].targets[0].elts if isinstance(each, ast.Name)]
        if names == [f"{PREFIX}v{each}" for each in range(outputs)] and isinstance(before[-1].value, ast.Tuple):
            values = before.pop().value.elts  # type: ignore[attr-defined]
    passed = {
        number: int(value.id.removeprefix(PREFIX + "c"))
        for number, value in enumerate(values)
        if isinstance(value, ast.Name) and value.id.startswith(PREFIX + "c")
    }
    rest = [number for number in range(outputs) if number not in passed]
    made: list[ast.stmt] = []
    if len(rest) > 1:  # all values first: one that raises must leave no half tuple behind
        target = ast.Tuple([ast.Name(f"{PREFIX}v{number}", ast.Store()) for number in rest], ast.Store())
        made.append(ast.Assign([target], ast.Tuple([values[number] for number in rest], ast.Load())))
    for number in rest:
        value = values[number] if len(rest) == 1 else ast.Name(f"{PREFIX}v{number}", ast.Load())
        made.append(ast.Expr(ast.Call(ast.Name(f"{PREFIX}o{number}", ast.Load()), [value], [])))
    (guard,) = statements
    assert isinstance(guard, ast.Try)
    guard.body = [*before, *(ast.copy_location(each, inner[at]) for each in made), *inner[at + 1 :]] or [ast.Pass()]
    return statements, passed


def _is_append(node: ast.AST, name: str) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=found))):
            return found == PREFIX + name
    return False


def _walked(statements: Sequence[ast.stmt]) -> list[ast.AST]:
    return list(ast.walk(ast.Module(list(statements), [])))


def _is_of_inner_loop(wanted: ast.AST, statements: Sequence[ast.stmt]) -> bool:
    loops = [node for node in _walked(statements) if isinstance(node, (ast.For, ast.While))]
    return any(node is wanted for loop in loops for each in loop.body for node in ast.walk(each))


# -- the code --------------------------------------------------------------------------------------------------------


class _Writer:
    """Compiles bodies with the user's file, lines and name."""

    def __init__(self, function: types.FunctionType, body: Body, given: list[str]) -> None:
        self._function = function
        self._body = body
        # Not by their plain names, which the user's globals may give another meaning.
        self._given = [*given, f"{PREFIX}StopIteration", f"{PREFIX}RuntimeError"]
        self._columns = [f"{PREFIX}c{at}" for at in body.reads]

    def maker(self, statements: list[ast.stmt]) -> tuple[types.CodeType, ast.FunctionDef]:
        """A function that is called for each tuple, in one that gives it the rest."""
        name = self._body.definition.name
        parameters = ", ".join([f"{PREFIX}position", f"{PREFIX}slot", *self._columns])
        module = ast.parse(
            f"def make({', '.join(self._given)}):\n    def {name}({parameters}): pass\n    return {name}\n"
        )
        made: ast.FunctionDef = module.body[0].body[0]  # type: ignore[attr-defined]
        made.body = statements
        return self._compiled(module, made), made

    def loop(self, statements: list[ast.stmt]) -> tuple[types.CodeType, ast.FunctionDef]:
        """A function of whole columns."""
        each = [f"{PREFIX}position", f"{PREFIX}slot", *self._columns]
        several = [f"{name}s" for name in each]
        module = ast.parse(
            f"def {self._body.definition.name}({', '.join([*several, *self._given])}):\n"
            f"    for {', '.join(each)} in {PREFIX}zip({', '.join(several)}): pass\n"
        )
        made = module.body[0]
        assert isinstance(made, ast.FunctionDef)
        made.args.args.append(ast.arg(f"{PREFIX}zip"))
        loop = made.body[0]
        assert isinstance(loop, ast.For)
        loop.body = statements
        return self._compiled(module, made), made

    def _compiled(self, module: ast.Module, made: ast.FunctionDef) -> types.CodeType:
        ast.copy_location(made, self._body.definition)
        ast.fix_missing_locations(module)
        code = compile(module, self._function.__code__.co_filename, "exec", dont_inherit=True)
        return next(each for each in code.co_consts if isinstance(each, types.CodeType))
