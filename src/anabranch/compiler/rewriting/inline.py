"""A keyed operator's method, or a generator function, over columns: no object per tuple, no generator per call.

    def process(self, t):                        def process(_position, self, _c0, _c1, _c2):
        self.pv += t.price * t.volume                self.pv += _c1 * _c2
        self.v += t.volume                 ──►       self.v += _c2
        yield t.key, self.pv / self.v                _o0(_c0); _o1(self.pv / self.v); _place(_position)

The body is the user's own, statement by statement, with two things replaced: ``t.column`` by a parameter, and
what is yielded by appends to output columns. It is compiled with the user's file name and line numbers and runs
with the user's globals, so errors point where they should.

Only methods where this is sure to mean the same are rewritten; everything else is called as it is. The rewrite
is refused when the tuple is used other than by column, when something yields in a way that appends cannot
replace (``yield from``, the value of a yield, inside a nested function), when the method has a closure, a
decorator or defaults, when it looks at its own frame, or when its source cannot be found.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from anabranch.compiler.rewriting.returned_tuples import yielding

PREFIX = "_anabranch_"


class _CannotInlineError(Exception):
    """The method must be called as it is; why."""


@dataclass(frozen=True)
class Inlined:
    """A rewritten method.

    Attributes
    ----------
    make : callable
        Takes (appends of the output columns…, append of the position, unpack) and gives a function of (position,
        instance if there is one, the input columns that are read…) that returns nothing. ``unpack`` makes the values
        of a tuple from whatever a ``yield`` gives that is not seen through here.
    reads : tuple of int
        The input columns that are read.
    source : str
        The rewritten method, for people.
    """

    make: Callable[..., Any]
    reads: tuple[int, ...]
    source: str


def inlined(function: Callable[..., Any], inputs: Sequence[str], outputs: Sequence[str]) -> Inlined | None:
    """The rewritten method ``(self, t)``, or function ``(t)``, or None if it must be called as it is."""
    if not _is_plain(function) or not inspect.isgeneratorfunction(function):
        return None
    found = _rewritten(_Code(function.__code__, function.__code__.co_filename, function), tuple(inputs), tuple(outputs))
    if found is None:
        return None
    code, reads, source = found
    return Inlined(types.FunctionType(code, function.__globals__, argdefs=(StopIteration, RuntimeError)), reads, source)


def _is_plain(function: Any) -> TypeGuard[types.FunctionType]:
    """Whether a function is what its source says, and has no more than its parameters and globals."""
    if not isinstance(function, types.FunctionType) or function.__closure__ or hasattr(function, "__wrapped__"):
        return False
    return not function.__defaults__ and not function.__kwdefaults__ and function.__name__ == function.__code__.co_name


@dataclass(frozen=True)
class _Code:
    """A function's code, wherever the function came from: equal where the rewritten code is."""

    code: types.CodeType
    filename: str  # which code objects do not compare
    function: types.FunctionType = field(compare=False)


# A task is made for every channel of every epoch, and its methods are the same each time.
@functools.lru_cache(maxsize=256)
def _rewritten(
    method: _Code, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> tuple[types.CodeType, tuple[int, ...], str] | None:
    """The maker of a rewritten method, what it reads, its source; None if the method must be called as it is."""
    try:
        return _build(method.function, inputs, outputs)
    except _CannotInlineError:
        return None


@dataclass(frozen=True)
class Body:
    """The rewritten body of a method.

    Attributes
    ----------
    definition : ast.FunctionDef
        The user's.
    names : list of str
        Of its parameters; the last is the tuple.
    statements : list of ast.stmt
    reads : tuple of int
    """

    definition: ast.FunctionDef
    names: list[str]
    statements: list[ast.stmt]
    reads: tuple[int, ...]


def body_over_columns(function: Any, inputs: Sequence[str], outputs: Sequence[str]) -> Body | None:
    """What `inlined` compiles, and the same of a method that returns tuples; None if it cannot be told."""
    if not _is_plain(function) or function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return None
    try:
        return _body(function, inputs, outputs)
    except _CannotInlineError:
        return None


def _body(function: types.FunctionType, inputs: Sequence[str], outputs: Sequence[str]) -> Body:
    definition = _definition(function)
    arguments = definition.args
    names = [argument.arg for argument in arguments.args]
    if not 1 <= len(names) <= 2 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise _CannotInlineError("its parameters are not (self, t), or (t)")
    if definition.decorator_list:
        raise _CannotInlineError("it is decorated")
    for node in ast.walk(definition):
        taken = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        if taken.startswith(PREFIX) or taken in FRAME_NAMES or isinstance(node, (ast.Global, ast.Nonlocal)):
            raise _CannotInlineError("it may look at its own frame, or has a name of ours")
        if any(name in names or name.startswith(PREFIX) for name in names_bound(node)):
            raise _CannotInlineError("it binds the name of the tuple, of self, or one of ours anew")
    rewriter = _Rewriter("".join(names[:-1]), names[-1], list(inputs), list(outputs))
    if inspect.isgeneratorfunction(function):
        body = _without_stop(rewriter.body(definition.body), _STOPPED)
    else:
        yields = yielding(definition.body, names[-1])
        if yields is None:
            raise _CannotInlineError("it is not seen what it returns")
        body = _without_stop(rewriter.body(yields), "raise")
    return Body(definition, names, body, tuple(sorted(rewriter.reads)))


_STOPPED = f"raise {PREFIX}RuntimeError('generator raised StopIteration') from {PREFIX}stop"


def _build(
    function: types.FunctionType, inputs: Sequence[str], outputs: Sequence[str]
) -> tuple[types.CodeType, tuple[int, ...], str]:
    found = _body(function, inputs, outputs)
    definition, reads = found.definition, found.reads
    parameters = [PREFIX + "position", *found.names[:-1], *(f"{PREFIX}c{at}" for at in reads)]
    appends = [*(f"{PREFIX}o{at}" for at in range(len(outputs))), PREFIX + "place", PREFIX + "unpack"]
    # Not by their plain names, which the user's globals may give another meaning.
    errors = [f"{PREFIX}StopIteration", f"{PREFIX}RuntimeError"]
    module = ast.parse(
        f"def make({', '.join([*appends, *errors])}):\n"
        f"    def {definition.name}({', '.join(parameters)}): pass\n"
        f"    return {definition.name}\n"
    )
    made = module.body[0].body[0]  # type: ignore[attr-defined]
    made.body = found.statements
    ast.copy_location(made, definition)
    ast.fix_missing_locations(module)
    code = compile(module, function.__code__.co_filename, "exec")
    return next(each for each in code.co_consts if isinstance(each, types.CodeType)), reads, shown(made)


def shown(made: ast.AST) -> str:
    """Generated code as people read it."""
    return ast.unparse(made).replace(PREFIX, "")


def names_bound(node: ast.AST) -> list[str]:
    """The names that a piece of syntax binds without a `Name` that says so."""
    match node:
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.alias(name=name, asname=given):
            return [given or name.split(".")[0]]
    return []


def place_of(column: object, inputs: tuple[str, ...]) -> int | None:
    """The place of what is read by name or place; None: it is no column, or what a tuple has beside its columns."""
    if isinstance(column, str):
        return inputs.index(column) if column in inputs and not column.startswith("_") else None
    return column if type(column) is int and 0 <= column < len(inputs) else None


def has_private_names(tree: ast.AST) -> bool:
    """Whether there are names that Python spells otherwise within a class: code taken out of it would miss them."""
    for node in ast.walk(tree):
        own = [getattr(node, field, None) for field in ("id", "attr", "arg", "name")]
        names = [name for name in own if isinstance(name, str)] + names_bound(node)
        if any(name.startswith("__") and not name.endswith("__") for name in names):
            return True
    return False


def _without_stop(body: list[ast.stmt], then: str) -> list[ast.stmt]:
    """The body with what Python does to a StopIteration that leaves a generator: it must not end the loop around."""
    guard = ast.parse(f"try: pass\nexcept {PREFIX}StopIteration as {PREFIX}stop:\n    {then}\n").body[0]
    assert isinstance(guard, ast.Try)
    guard.body = body
    return [guard]


FRAME_NAMES = {"locals", "vars", "eval", "exec", "super", "globals", "__class__", "dir"}


def _definition(function: types.FunctionType) -> ast.FunctionDef:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, IndentationError, SystemError):
        # SystemError: Python 3.11 miscounts its depth where garbage is collected while it parses.
        raise _CannotInlineError("its source is not available") from None
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.name != function.__name__:
        raise _CannotInlineError("its source is not a def")
    ast.increment_lineno(definition, first - 1)
    # The file may have changed since it was imported: then what we read is not what would run.
    compiled = compile(ast.Module([definition], []), function.__code__.co_filename, "exec")
    inner = next((each for each in compiled.co_consts if isinstance(each, types.CodeType)), None)
    if inner is None or not _is_same_code(inner, function.__code__):
        raise _CannotInlineError("its source is not what was compiled")
    return definition


def _is_same_code(one: types.CodeType, other: types.CodeType) -> bool:
    """Whether two pieces of code do the same, wherever they stand."""
    if one.co_code != other.co_code or one.co_names != other.co_names or one.co_varnames != other.co_varnames:
        return False
    if len(one.co_consts) != len(other.co_consts):
        return False
    for mine, theirs in zip(one.co_consts, other.co_consts, strict=True):
        if isinstance(mine, types.CodeType) and isinstance(theirs, types.CodeType):
            if not _is_same_code(mine, theirs):
                return False
        elif type(mine) is not type(theirs) or repr(mine) != repr(theirs):
            return False
    return True


def _cannot_raise(value: ast.expr) -> bool:
    """A constant or a column; a local of the user's may be unbound."""
    return isinstance(value, ast.Constant) or (isinstance(value, ast.Name) and value.id.startswith(PREFIX))


class _Rewriter(ast.NodeTransformer):
    """Replaces columns, yields and returns in the body of a method."""

    def __init__(self, instance: str, row: str, inputs: list[str], outputs: list[str]) -> None:
        self.instance = instance
        self.row = row
        self.inputs = inputs
        self.names = outputs
        self.outputs = len(outputs)
        self.reads: set[int] = set()
        self._guarded = 0  # how many `try` and `with` are around

    def body(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for statement in statements:
            made = self.visit(statement)
            result.extend(made if isinstance(made, list) else [made])
        return result or [ast.Pass()]

    # -- the tuple ------------------------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == self.row:
            if not isinstance(node.ctx, ast.Load) or node.attr not in self.inputs:
                raise _CannotInlineError(f"{self.row}.{node.attr} is not the reading of a column")
            return ast.copy_location(self._column(self.inputs.index(node.attr)), node)
        return self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=given), ctx=ast.Load()):
                place = place_of(given, tuple(self.inputs)) if name == self.row else None
                if place is not None:
                    return ast.copy_location(self._column(place), node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == self.row or (node.id == self.instance and not isinstance(node.ctx, ast.Load)):
            raise _CannotInlineError("the tuple is used as a whole, or self is assigned")
        return node

    def _column(self, at: int) -> ast.Name:
        self.reads.add(at)
        return ast.Name(f"{PREFIX}c{at}", ast.Load())

    # -- what leaves ----------------------------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.stmt]:
        if not isinstance(node.value, ast.Yield):
            return self.generic_visit(node)
        values = self._values(node.value.value)
        if values is None:
            if node.value.value is None:
                raise _CannotInlineError("it yields nothing")
            if self._guarded:
                raise _CannotInlineError("what it yields may not fit, which its own try must not see")
            whole = self.visit(node.value.value)
            names = [f"{PREFIX}v{at}" for at in range(self.outputs)]
            unpacked = ast.Call(ast.Name(f"{PREFIX}unpack", ast.Load()), [whole], [])
            target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
            statements: list[ast.stmt] = [ast.Assign([target], unpacked)]
            values = [ast.Name(name, ast.Load()) for name in names]
        else:
            # All values first, as the yield would have it: one that raises must leave no half tuple behind.
            names = [f"{PREFIX}v{at}" for at in range(self.outputs)]
            simple = all(_cannot_raise(value) for value in values)
            statements = []
            if not simple:
                target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
                statements = [ast.Assign([target], ast.Tuple(values, ast.Load()))]
                values = [ast.Name(name, ast.Load()) for name in names]
        for at, value in enumerate(values):
            statements.append(self._append(f"{PREFIX}o{at}", value))
        statements.append(self._append(f"{PREFIX}place", ast.Name(f"{PREFIX}position", ast.Load())))
        return [ast.copy_location(statement, node) for statement in statements]

    def _append(self, name: str, value: ast.expr) -> ast.stmt:
        return ast.Expr(ast.Call(ast.Name(name, ast.Load()), [value], []))

    def _values(self, given: ast.expr | None) -> list[ast.expr] | None:
        """The columns of what is yielded, if they can be seen: the tuple itself, or a tuple written out."""
        if isinstance(given, ast.Name) and given.id == self.row:
            if self.names != self.inputs:
                raise _CannotInlineError("it yields its input, which has other columns than its output")
            return [self._column(at) for at in range(self.outputs)]
        if isinstance(given, ast.Tuple) and not any(isinstance(each, ast.Starred) for each in given.elts):
            if len(given.elts) != self.outputs:
                raise _CannotInlineError("a tuple of the wrong length: the call tells it better")
            return [self.visit(each) for each in given.elts]
        return None

    def _visit_guarded(self, node: ast.AST) -> ast.AST:
        self._guarded += 1
        try:
            return self.generic_visit(node)
        finally:
            self._guarded -= 1

    visit_Try = visit_TryStar = visit_With = _visit_guarded  # noqa: N815

    def visit_Yield(self, node: ast.Yield) -> ast.AST:
        raise _CannotInlineError("the value of a yield is used")

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        raise _CannotInlineError("it delegates to another generator")

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            raise _CannotInlineError("a generator that returns a value")
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        if node.arg in (self.row, self.instance):
            raise _CannotInlineError("an inner function has a parameter of the tuple's name")
        return node

    def _refuse(self, node: ast.AST) -> ast.AST:
        raise _CannotInlineError(f"it has a {type(node).__name__}")

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = visit_Await = _refuse  # noqa: N815
