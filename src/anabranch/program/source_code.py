"""The syntax tree of a function object, or why there is none.

The tree must be that of the code that will run. A file can be edited after it was imported, a module can
be built by `exec`, two lambdas can stand on one line; so the file is compiled again and the function's
code object must be found in the result, equal in every instruction and position. Only then is the tree
at those positions trusted.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import linecache
import types
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclasses.dataclass(frozen=True)
class NoSource:
    """There is no trustworthy source."""

    reason: str


@dataclasses.dataclass
class _File:
    """A source file: its functions by first line, and every code object it compiles to."""

    functions: dict[int, list[Function]]
    codes: set[types.CodeType]


def tree_of(function: types.FunctionType) -> Function | NoSource:
    """The definition or lambda a function object was made from."""
    code = function.__code__
    file = _file(code.co_filename, function.__globals__)
    if file is None:
        return NoSource(f"the source of {function.__qualname__} is not available")
    if code not in file.codes:
        return NoSource(f"the source of {function.__qualname__} has changed since it was loaded")
    found = [node for node in file.functions.get(code.co_firstlineno, []) if _is(node, code)]
    found = _narrowest(found)
    if len(found) != 1:
        return NoSource(f"{function.__qualname__} cannot be told from others on its line")
    return found[0]


@dataclasses.dataclass(frozen=True, eq=False)
class _Lines:
    """The lines of a file as they are now: `linecache` gives the same list again until the file changes."""

    name: str
    lines: list[str]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Lines) or self.name != other.name:
            return NotImplemented
        return self.lines is other.lines or self.lines == other.lines

    def __hash__(self) -> int:
        return hash(self.name)


def _file(name: str, module_globals: dict[str, Any]) -> _File | None:
    lines = linecache.getlines(name, module_globals)
    return _parsed(_Lines(name, lines)) if lines else None


@functools.lru_cache(maxsize=512)
def _parsed(source: _Lines) -> _File | None:
    text = "".join(source.lines)
    try:
        tree = ast.parse(text)
        codes = _all_codes(compile(tree, source.name, "exec", dont_inherit=True))
    except (SyntaxError, ValueError):
        return None
    functions: dict[int, list[Function]] = {}
    _collect(tree, "", functions, "lambda" in text)
    return _File(functions, codes)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_LEAVES = (ast.Load, ast.Store, ast.Del, ast.Constant, ast.operator, ast.cmpop, ast.unaryop, ast.boolop)


def children(node: ast.AST) -> list[ast.AST]:
    """The parts of a node that have parts; much faster than `ast.iter_child_nodes`."""
    found: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if type(value) is list:
            found.extend(each for each in value if isinstance(each, ast.AST) and not isinstance(each, _LEAVES))
        elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
            found.append(value)
    return found


def _collect(node: ast.AST, enclosing: str, functions: dict[int, list[Function]], lambdas: bool) -> None:
    for child in children(node):
        if not lambdas and isinstance(child, ast.expr):
            continue  # only a lambda is a function inside an expression
        if isinstance(child, _FUNCTIONS):
            child.enclosing_class = enclosing  # type: ignore[union-attr]
            functions.setdefault(_first_line(child), []).append(child)
        _collect(child, child.name if isinstance(child, ast.ClassDef) else enclosing, functions, lambdas)


def mangled(name: str, function: Function) -> str:
    """A private name as Python stores it: ``__x`` inside ``class A`` is ``_A__x``."""
    owner = getattr(function, "enclosing_class", "").lstrip("_")
    if owner and name.startswith("__") and not name.endswith("__"):
        return f"_{owner}{name}"
    return name


def _all_codes(code: types.CodeType) -> set[types.CodeType]:
    found, waiting = set(), [code]
    while waiting:
        each = waiting.pop()
        found.add(each)
        waiting.extend(inner for inner in each.co_consts if isinstance(inner, types.CodeType))
    return found


def _first_line(node: Function) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _is(node: Function, code: types.CodeType) -> bool:
    name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
    if name != code.co_name or _parameters(node) != code.co_varnames[: _parameter_count(code)]:
        return False
    if not isinstance(node, ast.Lambda):
        return True
    start = (node.body.lineno, node.body.col_offset)
    end = (node.body.end_lineno or 0, node.body.end_col_offset or 0)
    places = [
        (line, column, last_line, last_column)
        for line, last_line, column, last_column in code.co_positions()
        if line is not None and last_line is not None and column is not None and last_column is not None
        if (column, last_column) != (0, 0)
    ]
    return bool(places) and all(start <= place[:2] and place[2:] <= end for place in places)


def _narrowest(found: list[Function]) -> list[Function]:
    """A lambda inside a lambda fits both: the inner one is meant, since the outer one's code goes further."""
    if len(found) < 2 or not all(isinstance(node, ast.Lambda) for node in found):
        return found
    inner = max(found, key=lambda node: (node.lineno, node.col_offset))
    start, end = (inner.lineno, inner.col_offset), (inner.end_lineno or 0, inner.end_col_offset or 0)
    for node in found:
        if not ((node.lineno, node.col_offset) <= start and end <= (node.end_lineno or 0, node.end_col_offset or 0)):
            return found  # side by side: they cannot both fit
    return [inner]


def _parameter_count(code: types.CodeType) -> int:
    variable = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_argcount + code.co_kwonlyargcount + variable


def _parameters(node: Function) -> tuple[str, ...]:
    arguments = node.args
    names = [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [each.arg for each in (arguments.vararg, arguments.kwarg) if each is not None]
    return tuple(names)
