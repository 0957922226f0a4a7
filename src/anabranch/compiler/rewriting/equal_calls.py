"""Functions whose calls with equal values may be made once: they only compute, and what they give cannot change.

    lambda t: f"{t.at:%Y-%m-%d}"     calls of one minute give one text       lambda t: t.url.split("/")[3]

Within a batch nothing else runs between two calls, so it is enough that the function itself changes nothing but its own
variables, and that all it meets are values of Python's own types: no method of the user's may be called. What is not
seen to be so is called for each tuple. Where the function asks only for the parts of a time down to the minute, or to
the second, times that agree in these are equal for it.
"""

from __future__ import annotations

import ast
import builtins
import datetime
import decimal
import math
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

OWN_PREFIX = "_anabranch_"
"""Of names that rewriting adds."""

MINUTE, SECOND = 60_000_000, 1_000_000
"""In microseconds: what of a time a function asks for."""

_NODES = (
    *(ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Constant, ast.JoinedStr, ast.FormattedValue),
    *(ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.Starred, ast.NamedExpr, ast.keyword),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension),
    *(ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop),
    *(ast.Return, ast.If, ast.Pass, ast.Raise, ast.Assert, ast.For, ast.Break, ast.Continue, ast.Expr, ast.Assign),
)
_ATOMS = (type(None), bool, int, float, str, bytes, decimal.Decimal, datetime.date, datetime.datetime)
_ATOM_TYPES = frozenset({*_ATOMS, datetime.timedelta, datetime.time, re.Pattern, range, type(Ellipsis)})
_ENTRIES_MAX = 1000  # of a table that a function looks things up in: all are looked at before each batch

_FUNCTIONS: tuple[Any, ...] = (
    *(abs, all, any, bool, bytes, chr, dict, divmod, enumerate, float, frozenset, int, isinstance, len, list, max, min),
    *(ord, pow, range, reversed, round, set, sorted, str, sum, tuple, zip, bin, hex, oct, ascii, repr, format),
    *(re.search, re.match, re.fullmatch, re.findall, re.split, re.sub, re.escape),
    *(datetime.date, datetime.datetime, datetime.timedelta, datetime.time, decimal.Decimal),
    *(datetime.datetime.fromisoformat, datetime.date.fromisoformat, datetime.datetime.strptime),
    *(each for name, each in vars(math).items() if callable(each) and not name.startswith("_")),
    *(each for each in vars(builtins).values() if isinstance(each, type) and issubclass(each, Exception)),
)
# By these names no type of Python's own has a method that does more than compute from its value.
_METHODS = frozenset(
    {
        *(name for kind in (str, bytes, int, float, decimal.Decimal) for name in dir(kind) if not name.startswith("_")),
        *(name for kind in (re.Pattern, re.Match, tuple, frozenset) for name in dir(kind) if not name.startswith("_")),
        *(
            "date",
            "time",
            "weekday",
            "isoweekday",
            "isocalendar",
            "isoformat",
            "strftime",
            "total_seconds",
            "timestamp",
        ),
        *("toordinal", "timetz", "utcoffset", "tzname", "get", "keys", "values", "items", "append", "extend", "sort"),
    }
)
_PARTS = {"year", "month", "day", "hour", "minute"}
_DATA = frozenset({*_PARTS, "second", "microsecond", "tzinfo", "days", "seconds", "microseconds", "real", "imag"})
_OF_THE_MINUTE = frozenset("YmdHMjaAbByIpuwUWGV%")
_LOOKUPS = frozenset({"get", "keys", "values", "items"})


@dataclass(frozen=True)
class EqualCalls:
    """What must be so of what a function finds around it, and how closely it looks at times.

    Attributes
    ----------
    called, looked_up, used : frozenset of str
        Names, with dots: of functions; of tables; of values.
    coarse : dict
        Parameter → the microseconds below which it does not matter.
    """

    called: frozenset[str]
    looked_up: frozenset[str]
    used: frozenset[str]
    coarse: Mapping[str, int]

    def holds(self, function: Any) -> bool:
        """Whether it is so now, of the code with what is around it."""
        names = _Surroundings(function)
        return (
            all(map(_is_value, names.defaults.values()))
            and all(_is_function(names.found(name)) for name in self.called)
            and all(_is_table(names.found(name)) for name in self.looked_up)
            and all(_is_value(names.found(name)) for name in self.used)
        )


def equal_calls(body: Iterable[ast.stmt], parameters: Iterable[str]) -> EqualCalls | None:
    """What must hold for a function with this body, of values that cannot change; None: it must always be called."""
    reader = _Reader(set(parameters))
    statements = list(body)
    reader.bind(statements)
    if not all(map(reader.reads, statements)):
        return None
    coarse = {name: unit for name, unit in reader.units.items() if unit is not None}
    return EqualCalls(frozenset(reader.called), frozenset(reader.looked_up), frozenset(reader.used), coarse)


class _Reader:
    """Walks through the body of a function."""

    def __init__(self, parameters: set[str]) -> None:
        self._parameters = parameters
        self._own: set[str] = set(parameters)
        self.called: set[str] = set()
        self.looked_up: set[str] = set()
        self.used: set[str] = set()
        self.units: dict[str, int | None] = {}
        """Parameter → what is asked of it; None: all of it."""

    def bind(self, statements: Iterable[ast.stmt]) -> None:
        """Take down the names that are the function's own."""
        for statement in statements:
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                    self._own.add(node.id)
                    self.units[node.id] = None

    def reads(self, node: ast.AST) -> bool:
        """Whether all of this only computes."""
        coarse = self._coarse(node)
        if coarse is not None:
            name, unit = coarse
            before = self.units.get(name, MINUTE)
            self.units[name] = None if before is None else min(before, unit)
            return True
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                if name in self._own:
                    self.units[name] = None
                else:
                    self.used.add(name)
                return True
            case ast.Name():
                return True
            case ast.Call():
                return self._calls(node)
            case ast.Attribute(value=value, attr=attr, ctx=ast.Load()):
                dotted = self._dotted(node)
                if dotted is not None:
                    self.used.add(dotted)
                    return True
                return attr in _DATA and self.reads(value)
            case ast.Subscript(value=value, slice=place, ctx=ast.Load()):
                return self._of_table(value) and self.reads(place)
            case ast.Compare(left=left, ops=ops, comparators=others):
                tables = [isinstance(how, (ast.In, ast.NotIn)) for how in ops]
                parts = zip(others, tables, strict=True)
                return self.reads(left) and all(self._of_table(x) if table else self.reads(x) for x, table in parts)
            case ast.Assign(targets=targets, value=value):
                return all(isinstance(each, (ast.Name, ast.Tuple)) for each in targets) and self.reads(value)
            case ast.Constant(value=value):
                return type(value) in _ATOM_TYPES or type(value) in (tuple, frozenset)
        return isinstance(node, _NODES) and all(map(self.reads, ast.iter_child_nodes(node)))

    def _calls(self, node: ast.Call) -> bool:
        match node.func:
            case ast.Name(id=name) if name not in self._own:
                self.called.add(name)
            case ast.Attribute(value=value, attr=attr):
                dotted = self._dotted(node.func)
                if dotted is not None and not self._is_method(attr, dotted):
                    self.called.add(dotted)
                elif attr not in _METHODS or not (self._of_table(value) if attr in _LOOKUPS else self.reads(value)):
                    return False
            case _:
                return False
        return all(map(self.reads, [*node.args, *node.keywords]))

    def _is_method(self, attr: str, dotted: str) -> bool:
        # `TABLE.get(…)` looks something up; `re.search(…)` calls a function of a module.
        return attr in _LOOKUPS and dotted.count(".") == 1

    def _of_table(self, node: ast.expr) -> bool:
        """The same of what something is looked up in, which may be a table from around the function."""
        name = node.id if isinstance(node, ast.Name) else self._dotted(node)
        if name is None or name in self._own:
            return self.reads(node)
        self.looked_up.add(name)
        return True

    def _dotted(self, node: ast.expr) -> str | None:
        """A name of something around the function, with dots."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name not in self._own:
                return f"{name}.{attr}"
            case ast.Attribute(value=ast.Attribute() as inner, attr=attr):
                before = self._dotted(inner)
                return None if before is None else f"{before}.{attr}"
        return None

    def _coarse(self, node: ast.AST) -> tuple[str, int] | None:
        """A parameter that is asked only for parts of it as a time, and to what microseconds."""
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attr, ctx=ast.Load()) if name in self._parameters:
                unit = MINUTE if attr in _PARTS else SECOND if attr == "second" else None
                return None if unit is None else (name, unit)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=[], keywords=[]):
                is_date = attr in ("date", "weekday", "isoweekday", "isocalendar", "toordinal")
                return (name, MINUTE) if is_date and name in self._parameters else None
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="strftime"),
                args=[ast.Constant(value=str(form))],
                keywords=[],
            ):
                unit = _unit_of(form)
                return (name, unit) if unit is not None and name in self._parameters else None
            case ast.FormattedValue(
                value=ast.Name(id=name),
                conversion=-1,
                format_spec=ast.JoinedStr(values=[ast.Constant(value=str(form))]),
            ):
                unit = _unit_of(form)
                return (name, unit) if unit is not None and name in self._parameters else None
        return None


def _unit_of(form: str) -> int | None:
    """To what microseconds a format of times looks; None: not known."""
    signs = set(re.findall("%(.)", form, re.DOTALL))
    if not signs:
        return None
    if signs <= _OF_THE_MINUTE:
        return MINUTE
    return SECOND if signs <= _OF_THE_MINUTE | {"S"} else None


class _Surroundings:
    """What names mean to a function."""

    def __init__(self, function: Any) -> None:
        code = function.__code__
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        count = code.co_argcount
        defaults = function.__defaults__ or ()
        parameters = zip(code.co_varnames[count - len(defaults) : count], defaults, strict=True)
        self.defaults = {name: value for name, value in parameters if not name.startswith(OWN_PREFIX)}
        self._cells = cells
        self._globals = function.__globals__

    def found(self, dotted: str) -> Any:
        """What a name means; nothing that can be used, if it means nothing."""
        first, *others = dotted.split(".")
        if first in self.defaults:
            value = self.defaults[first]
        elif first in self._cells:
            try:
                value = self._cells[first].cell_contents
            except ValueError:
                return _NOTHING
        else:
            value = self._globals.get(first, vars(builtins).get(first, _NOTHING))
        for name in others:
            if not isinstance(value, (types.ModuleType, type)):
                return _NOTHING
            value = getattr(value, name, _NOTHING)
        return value


_NOTHING = object()


def _is_function(value: Any) -> bool:
    return any(value is each for each in _FUNCTIONS) or (
        isinstance(value, types.BuiltinMethodType) and any(value == each for each in _FUNCTIONS)
    )


def _is_value(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return len(value) <= _ENTRIES_MAX and all(map(_is_value, value))
    return type(value) in _ATOM_TYPES or _is_function(value)


def _is_table(value: Any) -> bool:
    """Whether things may be looked up in it: a list, set or dict of values that cannot change."""
    if type(value) in (list, set):
        return len(value) <= _ENTRIES_MAX and all(map(_is_value, value))
    if type(value) is dict:
        return len(value) <= _ENTRIES_MAX and all(map(_is_value, value)) and all(map(_is_value, value.values()))
    return _is_value(value)
