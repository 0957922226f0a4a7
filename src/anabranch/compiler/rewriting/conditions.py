"""A filter's function as a condition: comparisons of columns, whose meaning is Python's whoever asks them.

    lambda t: t.bid is not None and t.bid["price"] >= LIMIT and t.state in ("OR", "ID")
    ──►  AllOf(Not(IsNull(bid)), Compared(bid.price, ">=", 100), Among(state, {"OR", "ID"}))

For a tuple a condition is true, false, or *fails*, as the function would raise: where it orders a null, or reads a
field of one. Each test says for itself which of the three; `combined` puts them together as Python does, which does not
look at the second part of ``a and b`` where the first is false. So columns of a batch, and what a file tells of its
rows (both in `engine/worker/condition_columns`), can be asked the same, and no tuple is passed over for which the
function would have raised.

What is read: ``t.column``, ``t["column"]``, fields of structs by ``["field"]``; constants, and names around the
function that stand for one; ``and``, ``or``, ``not``, ``is None``, ``in`` a collection that is written out or named;
whole numbers, and these modulo a positive one; floats, texts, booleans, times and dates. Anything else is a reason to
call the function.
"""

from __future__ import annotations

import ast
import datetime
import functools
import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from anabranch.compiler.rewriting.over_columns import Read
from anabranch.program.schema import Schema
from anabranch.program.source_code import NoSource, tree_of

_VALUES_MAX = 1000  # of a collection that something is looked for in
_INTS = 2**63
_HOW: dict[type, str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


@dataclass(frozen=True)
class ReadValue:
    """A column or a field, as a function reads it; of a whole number perhaps the remainder by a positive one."""

    read: Read
    kind: pa.DataType
    by: int = 0


@dataclass(frozen=True)
class IsNull:
    """Whether a column or field is None."""

    value: ReadValue


@dataclass(frozen=True)
class IsTrue:
    """Whether a column of booleans is True: None is not."""

    value: ReadValue


@dataclass(frozen=True)
class Among:
    """Whether a value equals one of some constants, or is None if that is among them."""

    value: ReadValue
    constants: tuple[Any, ...]
    has_null: bool = False


@dataclass(frozen=True)
class Compared:
    """How a value compares with another or with a constant, of the same kind.

    Constants are as columns hold them: times as microseconds, dates as days.
    """

    left: ReadValue
    how: str
    right: Any


@dataclass(frozen=True)
class Not:
    """The contrary."""

    part: Condition


@dataclass(frozen=True)
class AllOf:
    """Whether all hold; asked from the left until one does not."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class AnyOf:
    """Whether one holds; asked from the left until one does."""

    parts: tuple[Condition, ...]


Test = IsNull | IsTrue | Among | Compared
Condition = Test | Not | AllOf | AnyOf
Answer = TypeVar("Answer")
Outcome = tuple[Answer, Answer, Answer]
"""For which tuples something is true, is false, and fails."""


def combined(condition: Condition, asked: Callable[[Test], Outcome[Any]], some: Callable[[Any], bool]) -> Outcome[Any]:
    """What a condition gives, by what each of its tests does; `some` says whether there are any such tuples."""
    if isinstance(condition, Not):
        true, false, fails = combined(condition.part, asked, some)
        return false, true, fails
    if not isinstance(condition, (AllOf, AnyOf)):
        return asked(condition)
    first, *others = condition.parts
    true, false, fails = combined(first, asked, some)
    for part in others:
        goes_on = true if isinstance(condition, AllOf) else false
        if not some(goes_on):
            break
        next_true, next_false, next_fails = combined(part, asked, some)
        fails = fails | (goes_on & next_fails)
        if isinstance(condition, AllOf):
            true, false = goes_on & next_true, false | (goes_on & next_false)
        else:
            true, false = true | (goes_on & next_true), goes_on & next_false
    return true, false, fails


def tests_of(condition: Condition) -> Iterator[Test]:
    """The tests of a condition, from the left."""
    if isinstance(condition, Not):
        yield from tests_of(condition.part)
    elif isinstance(condition, (AllOf, AnyOf)):
        for part in condition.parts:
            yield from tests_of(part)
    else:
        yield condition


def reads_of(condition: Condition) -> frozenset[Read]:
    """What a condition reads."""
    found: set[Read] = set()
    for test in tests_of(condition):
        if isinstance(test, Compared):
            found |= {side.read for side in (test.left, test.right) if isinstance(side, ReadValue)}
        elif isinstance(test, IsNull) and pa.types.is_nested(test.value.kind):
            found.add(Read(test.value.read.column, test.value.read.path, is_null=True))
        else:
            found.add(test.value.read)
    return frozenset(found)


# -- reading ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Function:
    """A function's code, wherever the function came from: equal where its tree is."""

    code: types.CodeType
    filename: str  # which code objects do not compare
    function: types.FunctionType = field(compare=False)


@dataclass(frozen=True)
class _Body:
    """What a function gives of its tuple, and the names that it reads around itself."""

    row: str
    value: ast.expr = field(compare=False)
    names: tuple[str, ...]


class _NoConditionError(Exception):
    """The function must be called; why."""


def condition_of(function: Any, schema: Schema) -> Condition | str:
    """A filter's function as a condition, as the names around it are now; a text says why it is none."""
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__") or function.__kwdefaults__:
        return "it is no plain function"
    code = _Function(function.__code__, function.__code__.co_filename, function)
    body = _body(code)
    if isinstance(body, str):
        return body
    around: list[tuple[str, Any]] = []
    if body.names:
        found = _around(function)
        for name in body.names:
            constant = _frozen(found.get(name, _NOTHING))
            if constant is None:
                return f"{name} is no constant"
            around.append((name, constant))
    return _condition(code, schema.arrow, tuple(around))


@functools.lru_cache(maxsize=512)
def _body(code: _Function) -> _Body | str:
    tree = tree_of(code.function)
    if isinstance(tree, (NoSource, ast.AsyncFunctionDef)):
        return "its source is not available"
    if code.function.__name__ != code.code.co_name:
        return "it was renamed"
    arguments = tree.args
    parameters = arguments.posonlyargs + arguments.args
    further = len(code.function.__defaults__ or ())
    if len(parameters) != further + 1 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return "it does not have one parameter that is no default"
    if isinstance(tree, ast.Lambda):
        value = tree.body
    else:
        statements = tree.body
        if isinstance(statements[0], ast.Expr) and isinstance(statements[0].value, ast.Constant):
            statements = statements[1:]  # what it says of itself
        if tree.decorator_list or len(statements) != 1 or not isinstance(statements[0], ast.Return):
            return "it is more than one expression"
        if statements[0].value is None:
            return "it returns nothing"
        value = statements[0].value
    row = parameters[0].arg
    names = [node.id for node in ast.walk(value) if isinstance(node, ast.Name) and node.id != row]
    return _Body(row, value, tuple(dict.fromkeys(names)))


_NOTHING = object()


def _around(function: types.FunctionType) -> dict[str, Any]:
    """What the names around a function stand for."""
    code = function.__code__
    found = dict(function.__globals__)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            found.pop(name, None)
    defaults = function.__defaults__ or ()
    found.update(zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True))
    return found


@dataclass(frozen=True)
class _Typed:
    """A constant that equals no constant of another type, as 1 does 1.0 and True."""

    value: Any
    kind: type


def _frozen(value: Any) -> _Typed | tuple[_Typed, ...] | None:
    """A constant, or the constants of a collection; None if it is something else."""
    if type(value) in (tuple, list, set, frozenset):
        if len(value) > _VALUES_MAX:
            return None
        parts = [_frozen(each) for each in value]
        return tuple(parts) if all(isinstance(each, _Typed) for each in parts) else None  # type: ignore[arg-type]
    is_atom = value is None or type(value) in (bool, int, float, str, datetime.datetime, datetime.date)
    # Two times of one moment are equal, in whatever zones they are.
    return _Typed(value, type(value)) if is_atom and _is_plain(value) else None


def _is_plain(value: Any) -> bool:
    if type(value) is datetime.datetime:
        return value.tzinfo is None or type(value.tzinfo) is datetime.timezone
    if type(value) is str:
        return value.isascii() or _is_text(value)
    return type(value) is not float or math.isfinite(value)


def _is_text(value: str) -> bool:
    """Whether it has no lone surrogate."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@functools.lru_cache(maxsize=512)
def _condition(code: _Function, schema: pa.Schema, around: tuple[tuple[str, Any], ...]) -> Condition | str:
    body = _body(code)
    assert isinstance(body, _Body)
    try:
        return _Reader(body.row, schema, dict(around)).condition(body.value)
    except _NoConditionError as reason:
        return str(reason)


class _Reader:
    """Makes a condition of an expression."""

    def __init__(self, row: str, schema: pa.Schema, around: Mapping[str, Any]) -> None:
        self._row = row
        self._schema = schema
        self._around = around

    def condition(self, node: ast.expr) -> Condition:
        """What an expression is as a truth."""
        match node:
            case ast.BoolOp(op=op, values=values):
                parts = tuple(map(self.condition, values))
                return AllOf(parts) if isinstance(op, ast.And) else AnyOf(parts)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Not(self.condition(operand))
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                found = tuple(map(self._compared, sides, ops, sides[1:]))
                return found[0] if len(found) == 1 else AllOf(found)
        value = self._value(node)
        if value is not None and pa.types.is_boolean(value.kind):
            return IsTrue(value)
        raise _NoConditionError(f"{_shown(node)} is no comparison")

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Condition:
        shown = f"{_shown(left)} … {_shown(right)}"
        if isinstance(op, (ast.Is, ast.IsNot)):
            value = self._value(left)
            if value is None or value.by or not isinstance(right, ast.Constant) or right.value is not None:
                raise _NoConditionError(f"{shown} asks for more than None")
            return IsNull(value) if isinstance(op, ast.Is) else Not(IsNull(value))
        if isinstance(op, (ast.In, ast.NotIn)):
            found = self._among(left, right)
            return found if isinstance(op, ast.In) else Not(found)
        how = _HOW[type(op)]
        first, second = self._value(left), self._value(right)
        if first is None and second is not None:
            left, right, first, second = right, left, second, None
            how = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(how, how)
        if first is None:
            raise _NoConditionError(f"{shown} has no column")
        if second is not None:
            if _family(first.kind) is None or _family(first.kind) != _family(second.kind):
                raise _NoConditionError(f"{shown} are of different kinds")
            if pa.types.is_boolean(first.kind) and how not in ("==", "!="):
                raise _NoConditionError(f"{shown} orders booleans")
            return Compared(first, how, second)
        constant = self._constant(right)
        if not isinstance(constant, _Typed):
            raise _NoConditionError(f"{_shown(right)} is no constant")
        if constant.value is None:
            raise _NoConditionError(f"{shown} compares with None")
        if pa.types.is_boolean(first.kind) and how not in ("==", "!="):
            raise _NoConditionError(f"{shown} orders booleans")
        return Compared(first, how, _held(constant, first))

    def _among(self, left: ast.expr, right: ast.expr) -> Among:
        value, constants = self._value(left), self._constant(right)
        if value is None or not isinstance(constants, tuple):
            raise _NoConditionError(f"{_shown(right)} is no collection of constants")
        held = [_held(each, value) for each in constants if each.value is not None]
        return Among(value, tuple(dict.fromkeys(held)), len(held) < len(constants))

    def _constant(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return _frozen(value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return _frozen(-value)
            case ast.Name(id=name) if name != self._row:
                return self._around[name]
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                found = [self._constant(each) for each in parts]
                return tuple(found) if all(isinstance(each, _Typed) for each in found) else None
        return None

    def _value(self, node: ast.expr) -> ReadValue | None:
        """A column, a field, or a remainder; None if it is something else."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=column) if name == self._row:
                if column not in self._schema.names or column.startswith("_"):
                    raise _NoConditionError(f"{_shown(node)} is no column")
                return self._of(Read(self._schema.get_field_index(column)))
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=given)) if name == self._row:
                if type(given) is str and given in self._schema.names:
                    return self._of(Read(self._schema.get_field_index(given)))
                if type(given) is int and 0 <= given < len(self._schema):
                    return self._of(Read(given))
                raise _NoConditionError(f"{_shown(node)} is no column")
            case ast.Subscript(value=value, slice=ast.Constant(value=str(given))):
                outer = self._value(value)
                if outer is None or outer.by or not pa.types.is_struct(outer.kind):
                    return None
                if outer.kind.get_field_index(given) < 0:
                    return None
                return self._of(Read(outer.read.column, (*outer.read.path, given)))
            case ast.BinOp(left=left, op=ast.Mod(), right=ast.Constant(value=by)):
                number = self._value(left)
                if number is None or number.by or type(by) is not int or not 0 < by < 2**31:
                    return None
                return ReadValue(number.read, number.kind, by) if pa.types.is_signed_integer(number.kind) else None
        return None

    def _of(self, read: Read) -> ReadValue:
        kind = self._schema.field(read.column).type
        for name in read.path:
            kind = kind.field(name).type
        return ReadValue(read, kind)


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 40 else f"{text[:39]}…"


def _family(kind: pa.DataType) -> str | None:
    """Values of one family compare as their columns do."""
    if pa.types.is_signed_integer(kind):
        return "int"
    if pa.types.is_timestamp(kind):
        return str(kind) if kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")) else None
    return {pa.float64(): "float", pa.float32(): "float", pa.bool_(): "bool", pa.string(): "text"}.get(
        kind, "date" if pa.types.is_date32(kind) else None
    )


_EPOCHS = {None: datetime.datetime(1970, 1, 1), datetime.UTC: datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)}
_MICROSECOND = datetime.timedelta(microseconds=1)


def _held(constant: _Typed, value: ReadValue) -> Any:
    """A constant as the column of a value holds it."""
    given, kind, family = constant.value, constant.kind, _family(value.kind)
    if family == "int" and kind is int and -_INTS <= given < _INTS:
        return given
    if family == "float" and kind in (int, float) and (kind is float or abs(given) <= 2**53):
        return float(given)
    if (kind is str and family == "text") or (kind is bool and family == "bool"):
        return given
    if family == "date" and kind is datetime.date:
        return given.toordinal() - datetime.date(1970, 1, 1).toordinal()
    is_time = kind is datetime.datetime and pa.types.is_timestamp(value.kind) and family is not None
    if is_time and (given.tzinfo is None) == (value.kind.tz is None):
        return (given - _EPOCHS[None if given.tzinfo is None else datetime.UTC]) // _MICROSECOND
    raise _NoConditionError(f"{given!r} is of another kind than {value.kind}")
