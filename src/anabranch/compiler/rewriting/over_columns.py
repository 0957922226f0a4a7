"""A function of a tuple as a function of the columns it reads.

    lambda t: (t.key, t.price * 2, t.bid["auction"])    ──►    columns 0 and 2 pass, and  lambda _c0: _c0 * 2
    lambda t: t.but(price=t.price * 2)                  ──►    all others pass, and  lambda _c0: _c0 * 2

A stateless function that uses its tuple only by column need not be given one: what it does not read is never made into
Python values, what it only passes on stays as it is, and no object is made per tuple. The expression is the user's own,
compiled with its file and lines, with the user's globals and closure.

Only functions where that is sure to mean the same are rewritten: one parameter without a default, used by nothing but
``t.column``, ``t["column"]`` or ``t[0]``, whose body is an expression or ends in returns, with the source that was
compiled at hand. What they return is written out: a tuple, a dict with names that are texts, or ``t.but(…)``.

**Fields of structs** (``t.bid["price"]``) are read as columns of their own where no struct of the batch is null, since
then the subscript cannot raise; and whether a value is null (``t.bid is not None``) is asked of the column. Fields that
are themselves lists or structs are not, since they could be changed in place.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from anabranch.compiler.rewriting.equal_calls import OWN_PREFIX, EqualCalls, equal_calls
from anabranch.compiler.rewriting.inline import FRAME_NAMES, has_private_names, names_bound, shown
from anabranch.program.calling import kept
from anabranch.program.schema import Schema
from anabranch.program.source_code import NoSource, tree_of


@dataclass(frozen=True)
class Read:
    """A column, a field within it, or whether it is null, as a function reads it."""

    column: int
    path: tuple[str, ...] = ()
    is_null: bool = False


@dataclass(frozen=True)
class ColumnCode:
    """A rewritten function.

    Attributes
    ----------
    code : code, optional
        Takes the values of `reads`, gives the values that are not copied: a tuple of them, or the only one. None if
        there is nothing to call.
    reads : tuple of Read
    copied : dict
        Column of the output → what it is a copy of.
    computed : tuple of int
        The columns of the output that the code gives. Of a filter, none: the code gives True or False.
    source : str
        The code, for people.
    equal : EqualCalls, optional
        What must hold for calls with equal values to be made once; its parameters are those of the code.
    """

    code: types.CodeType | None
    reads: tuple[Read, ...]
    copied: dict[int, Read]
    computed: tuple[int, ...]
    source: str = ""
    equal: EqualCalls | None = None

    @property
    def structs(self) -> frozenset[Read]:
        """The structs whose fields are read, so that none of them may be null: columns, and fields within them."""
        reads = [read for read in (*self.reads, *self.copied.values()) if read.path]
        return frozenset(Read(read.column, read.path[:depth]) for read in reads for depth in range(len(read.path)))

    def bound(self, function: Any) -> Callable[..., Any] | None:
        """The code with the globals and the closure of the function that it was made of."""
        if self.code is None:
            return None
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        closure = tuple(cells[name] for name in self.code.co_freevars)
        defaults = (*(function.__defaults__ or ()), StopIteration, StoppedError, kept)
        return types.FunctionType(self.code, function.__globals__, function.__name__, defaults, closure)

    def unit_of(self, at: int) -> int | None:
        """How closely the code looks at a time that it reads, in microseconds; None: at all of it."""
        return None if self.equal is None else self.equal.coarse.get(f"{OWN_PREFIX}c{at}")


_KEPT = f"{OWN_PREFIX}kept"


class StoppedError(Exception):
    """A function raised StopIteration, which would end the loop that calls it; this has it as its cause."""


class _CannotRewriteError(Exception):
    """The function must be called as it is; why."""


@dataclass(frozen=True)
class _Function:
    """A function's code, wherever the function came from: equal where the rewritten code is."""

    code: types.CodeType
    filename: str  # which code objects do not compare
    defaults: int
    function: types.FunctionType = field(compare=False)


def over_columns(
    function: Any, inputs: Schema, outputs: Schema | None, with_fields: bool = True, is_value: bool = False
) -> ColumnCode | None:
    """A function rewritten; None if it must be called as it is.

    `outputs` is what it makes of a tuple; None if it says whether one is kept. With `is_value` it gives no tuple, but
    the value of the only column. With fields, it may be used where no
    value of `ColumnCode.structs` is null; without, everywhere.
    """
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        return None
    if function.__kwdefaults__ or inspect.iscoroutinefunction(function):
        return None
    if inspect.isgeneratorfunction(function):
        return None
    code = _Function(function.__code__, function.__code__.co_filename, len(function.__defaults__ or ()), function)
    return _rewritten(code, inputs.arrow, None if outputs is None else outputs.arrow, with_fields, is_value)


# A task is made for every piece of every epoch, and its functions are the same each time.
@functools.lru_cache(maxsize=512)
def _rewritten(
    function: _Function, inputs: pa.Schema, outputs: pa.Schema | None, with_fields: bool, is_value: bool
) -> ColumnCode | None:
    try:
        return _Rewriter(function.function, inputs, outputs, with_fields, is_value).rewritten()
    except _CannotRewriteError:
        return None


class _Rewriter(ast.NodeTransformer):
    """Replaces what a function reads of its tuple by parameters."""

    def __init__(
        self,
        function: types.FunctionType,
        inputs: pa.Schema,
        outputs: pa.Schema | None,
        with_fields: bool,
        is_value: bool,
    ) -> None:
        self._function = function
        self._inputs = inputs
        self._outputs = outputs
        self._with_fields = with_fields
        self._is_value = is_value
        self._reads: dict[Read, str] = {}
        self._row = ""
        self._further: list[str] = []  # parameters that have defaults
        self._truths: list[ast.IfExp] = []  # what the function answers, if it says whether a tuple is kept
        self._given: tuple[int, ...] = ()  # the columns of the output that are computed, as they come

    def rewritten(self) -> ColumnCode:
        found = tree_of(self._function)
        if isinstance(found, (NoSource, ast.AsyncFunctionDef)):
            raise _CannotRewriteError("its source is not available")
        tree = copy.deepcopy(found)
        arguments = tree.args
        parameters = [each.arg for each in arguments.posonlyargs + arguments.args]
        further = len(self._function.__defaults__ or ())
        if len(parameters) != further + 1 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise _CannotRewriteError("it does not have one parameter that is no default")
        self._row, *self._further = parameters
        if self._function.__name__ != self._function.__code__.co_name:
            raise _CannotRewriteError("it was renamed")
        self._check(tree)
        copied: dict[int, Read] = {}
        if isinstance(tree, ast.Lambda):
            copied, made = self._made(tree.body)
            body: list[ast.stmt] = [] if made is None else [ast.Return(made)]
        else:
            if tree.decorator_list:
                raise _CannotRewriteError("it is decorated")
            statements = tree.body
            if isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
                statements = statements[1:]  # what it says of itself
            if len(statements) == 1 and isinstance(statements[0], ast.Return) and statements[0].value is not None:
                copied, made = self._made(statements[0].value)
                body = [] if made is None else [ast.copy_location(ast.Return(made), statements[0])]
            elif self._outputs is not None and not _ends(statements):
                raise _CannotRewriteError("it may end without a word: the call tells it better")
            else:
                body = [self.visit(each) for each in statements]
        self._check_apart(copied)
        computed = self._computed(copied)
        if not body:
            return ColumnCode(None, (), copied, computed)
        equal = equal_calls(body, self._reads.values())
        for truth in self._truths:
            if _may_be_made_later(truth.test):
                truth.test = ast.copy_location(ast.Call(ast.Name(_KEPT, ast.Load()), [truth.test], []), truth)
        code, source = self._compiled(tree, body)
        return ColumnCode(code, tuple(self._reads), copied, computed, source, equal)

    def _check(self, tree: ast.AST) -> None:
        if has_private_names(tree):
            raise _CannotRewriteError("it has names that its class spells otherwise")
        for node in ast.walk(tree):
            if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.ClassDef)):
                raise _CannotRewriteError(f"it has a {type(node).__name__}")
            if node is not tree and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                raise _CannotRewriteError("it has a function of its own")
            named = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
            if named.startswith(OWN_PREFIX) or named in FRAME_NAMES:
                raise _CannotRewriteError("it may look at its own frame, or has a name of ours")
            if any(name == self._row or name.startswith(OWN_PREFIX) for name in names_bound(node)):
                raise _CannotRewriteError("it binds the name of the tuple, or one of ours, anew")
            if isinstance(node, ast.Name) and node.id == self._row and not isinstance(node.ctx, ast.Load):
                raise _CannotRewriteError("it binds the name of the tuple anew")
        inner = [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
        if inner.count(self._row) > 1:
            raise _CannotRewriteError("a function within it has a parameter of the tuple's name")

    def _check_apart(self, copied: dict[int, Read]) -> None:
        """What is given whole, and can be changed in place, must be nowhere else."""
        whole = {read.column for read in self._reads if not read.path and not read.is_null}
        whole = {at for at in whole if pa.types.is_nested(self._inputs.field(at).type)}
        others = [*copied.values(), *(read for read in self._reads if read.path)]
        if any(read.column in whole for read in others):
            raise _CannotRewriteError("a value that is given whole is passed on or read by field as well")

    def _computed(self, copied: dict[int, Read]) -> tuple[int, ...]:
        if self._outputs is None:
            return ()
        for at in self._given:
            kind = self._outputs.field(at).type
            if pa.types.is_nested(kind) or pa.types.is_binary(kind):
                raise _CannotRewriteError("what it makes can change, and must be copied at once")
        return self._given

    def _made(self, value: ast.expr) -> tuple[dict[int, Read], ast.expr | None]:
        """What is copied, and an expression for the rest."""
        if self._outputs is None:
            return {}, self._truth(self.visit(value))
        fields = self._fields_of(value)
        if fields is not None:
            return fields, None
        copied: dict[int, Read] = {}
        rest: list[tuple[int, ast.expr]] = []
        for at, element in self._elements(value):
            read = self._read_of(element)
            if read is not None and not read.is_null and self._type_of(read) == self._outputs.field(at).type:
                copied[at] = read
            else:
                rest.append((at, self.visit(element)))
        return copied, self._together(rest) if rest else None

    def _together(self, elements: Sequence[tuple[int, ast.expr]]) -> ast.expr:
        """The values of columns, as they are returned: evaluated in the user's order."""
        given = tuple(at for at, _ in elements)
        if self._given not in ((), given):
            raise _CannotRewriteError("it returns columns in one order here, in another there")
        self._given = given
        values = [value for _, value in elements]
        return values[0] if len(values) == 1 else ast.Tuple(values, ast.Load())

    def _fields_of(self, value: ast.expr) -> dict[int, Read] | None:
        """A struct that is given as the tuple: its fields are the columns, by name."""
        assert self._outputs is not None
        read = None if self._is_value or isinstance(value, ast.Tuple) else self._read_of(value)
        if read is None or not self._with_fields:
            return None
        kind = self._type_of(read)
        if not pa.types.is_struct(kind) or {field.name for field in kind} != set(self._outputs.names):
            return None
        if any(kind.field(field.name).type != field.type for field in self._outputs):
            return None
        return {at: Read(read.column, (*read.path, field.name)) for at, field in enumerate(self._outputs)}

    def _elements(self, value: ast.expr | None) -> list[tuple[int, ast.expr]]:
        """The columns of what is returned, in the order in which they are computed."""
        assert self._outputs is not None
        if self._is_value:
            if value is None:
                raise _CannotRewriteError("it gives nothing")
            return [(0, value)]
        names = self._outputs.names
        match value:
            case ast.Tuple(elts=elements) if not any(isinstance(each, ast.Starred) for each in elements):
                if len(elements) != len(names):
                    raise _CannotRewriteError("a tuple of the wrong length: the call tells it better")
                return list(enumerate(elements))
            case ast.Dict(keys=keys, values=values):
                given = [each.value if isinstance(each, ast.Constant) else None for each in keys]
                if sorted(map(str, given)) != sorted(names) or not all(isinstance(each, str) for each in given):
                    raise _CannotRewriteError("a dict with other names: the call tells it better")
                return [(names.index(str(name)), each) for name, each in zip(given, values, strict=True)]
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="but"), args=[]) if name == self._row:
                return self._changed(value)
        raise _CannotRewriteError("it is not seen which columns it gives")

    def _changed(self, call: ast.Call) -> list[tuple[int, ast.expr]]:
        """What ``t.but(…)`` gives: what is named, then the others as they are."""
        assert self._outputs is not None
        names, inputs = self._outputs.names, self._inputs.names
        given = [each.arg for each in call.keywords]
        if sorted(names) != sorted(inputs) or "but" in inputs or any(name not in inputs for name in given):
            raise _CannotRewriteError(
                "it changes columns that are not there, or gives others: the call tells it better"
            )
        found = [(names.index(str(each.arg)), each.value) for each in call.keywords]
        for at, name in enumerate(names):
            if name not in given:
                column = ast.Subscript(ast.Name(self._row, ast.Load()), ast.Constant(inputs.index(name)), ast.Load())
                found.append((at, ast.copy_location(column, call)))
        return found

    def _truth(self, value: ast.expr) -> ast.expr:
        """What `if` makes of a value, asked where the function is called."""
        truth = ast.copy_location(ast.IfExp(value, ast.Constant(True), ast.Constant(False)), value)
        self._truths.append(truth)
        return truth

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self._outputs is None:
            value = self._truth(self.visit(node.value) if node.value is not None else ast.Constant(None))
        else:
            value = self._together([(at, self.visit(each)) for at, each in self._elements(node.value)])
        return ast.copy_location(ast.Return(value), node)

    # -- the tuple ------------------------------------------------------------------------------------------

    def _read_of(self, node: ast.expr) -> Read | None:
        """What of the tuple an expression is, if it is nothing else."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=column) if name == self._row:
                if not isinstance(node.ctx, ast.Load) or column not in self._inputs.names or column.startswith("_"):
                    raise _CannotRewriteError("not the reading of a column")
                return Read(self._inputs.get_field_index(column))
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=given)) if name == self._row:
                if isinstance(node.ctx, ast.Load):
                    if type(given) is str and given in self._inputs.names:
                        return Read(self._inputs.get_field_index(given))
                    if type(given) is int and 0 <= given < len(self._inputs):
                        return Read(given)
                raise _CannotRewriteError("not the reading of a column")
            case ast.Subscript(value=value, slice=ast.Constant(value=str(given)), ctx=ast.Load()) if self._with_fields:
                outer = self._read_of(value)
                if outer is None or outer.is_null:
                    return None
                kind = self._type_of(outer)
                if not pa.types.is_struct(kind) or kind.get_field_index(given) < 0:
                    return None
                return Read(outer.column, (*outer.path, given))
        return None

    def _type_of(self, read: Read) -> pa.DataType:
        kind = self._inputs.field(read.column).type
        for name in read.path:
            kind = kind.field(name).type
        return kind

    def _named(self, read: Read, node: ast.AST) -> ast.AST:
        name = self._reads.setdefault(read, f"{OWN_PREFIX}c{len(self._reads)}")
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def _visit_reading(self, node: ast.expr) -> ast.AST:
        read = self._read_of(node)
        # What is within a list or struct could be changed in place: then all of it is given.
        if read is None or (read.path and pa.types.is_nested(self._type_of(read))):
            return self.generic_visit(node)
        return self._named(read, node)

    visit_Attribute = visit_Subscript = _visit_reading  # noqa: N815

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        match node:
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() as how], comparators=[ast.Constant(value=None)]):
                read = self._read_of(left)
                if read is not None and not read.path and pa.types.is_nested(self._type_of(read)):
                    null = self._named(Read(read.column, is_null=True), node)
                    assert isinstance(null, ast.expr)
                    return null if isinstance(how, ast.Is) else ast.copy_location(ast.UnaryOp(ast.Not(), null), node)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == self._row:
            raise _CannotRewriteError("the tuple is used as a whole")
        return node

    # -- the code -------------------------------------------------------------------------------------------

    def _compiled(self, tree: ast.Lambda | ast.FunctionDef, body: list[ast.stmt]) -> tuple[types.CodeType, str]:
        """The code of a function of what is read, inside one that has the names of the closure; and its source."""
        before = self._function.__code__
        given = [f"{name}=0" for name in (*self._further, f"{OWN_PREFIX}stop", f"{OWN_PREFIX}stopped", _KEPT)]
        module = ast.parse(
            f"def around({', '.join(before.co_freevars)}):\n"
            # Not by their plain names, which the user's globals may give another meaning.
            f"    def inner({', '.join([*self._reads.values(), *given])}):\n"
            f"        try: pass\n"
            f"        except {OWN_PREFIX}stop as {OWN_PREFIX}found: raise {OWN_PREFIX}stopped from {OWN_PREFIX}found\n"
        )
        inner = module.body[0].body[0]  # type: ignore[attr-defined]
        inner.body[0].body = body
        ast.copy_location(inner, tree)
        ast.fix_missing_locations(module)
        code: Any = compile(module, before.co_filename, "exec", dont_inherit=True)
        for name in ("around", "inner"):
            code = next(each for each in code.co_consts if isinstance(each, types.CodeType) and each.co_name == name)
        # Tracebacks name what the user wrote.
        made: types.CodeType = code.replace(co_name=before.co_name, co_qualname=before.co_qualname)
        return made, shown(inner)


def _ends(statements: Sequence[ast.stmt]) -> bool:
    """Whether a body surely ends by a return or an error."""
    match statements[-1]:
        case ast.Return() | ast.Raise():
            return True
        case ast.If(body=body, orelse=other):
            return bool(other) and _ends(body) and _ends(other)
    return False


def _may_be_made_later(value: ast.expr) -> bool:
    """Whether a value may be a coroutine, say, which is no answer."""
    match value:
        case ast.Name(id=name):
            return not name.startswith(OWN_PREFIX)
        case ast.BoolOp(values=values):
            return any(map(_may_be_made_later, values))
        case ast.IfExp(body=one, orelse=other):
            return _may_be_made_later(one) or _may_be_made_later(other)
    return not isinstance(value, (ast.Compare, ast.Constant, ast.UnaryOp, ast.BinOp))
