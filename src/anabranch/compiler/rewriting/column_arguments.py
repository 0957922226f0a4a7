"""A function that takes a tuple as one that takes the columns it reads.

    def process(self, t):                         def process(self, _c0, _c1):
        if t.price > self.best:           ──►         if _c0 > self.best:
            self.best = t.price                           self.best = _c0
            return [(t["key"], self.best)]                return [(_c1, self.best)]

What it does and what it gives is its own business: it is called for each tuple as ever, a generator stays one. Only the
tuple is not made, and reading a column is reading a local variable. So all that is asked is that the tuple is never
used as a whole (`tuple_reads`), and that nothing else has its name. The body is the user's own, compiled with its file
and lines, and runs with the user's globals and closure, so errors point where they should.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.compiler.rewriting.equal_calls import OWN_PREFIX
from anabranch.compiler.rewriting.inline import has_private_names, names_bound, place_of, shown
from anabranch.compiler.rewriting.state_slots import StateNames, on_slots
from anabranch.compiler.rewriting.tuple_reads import FunctionCode, tuple_reads
from anabranch.program.source_code import tree_of


@dataclass(frozen=True)
class ColumnArguments:
    """A rewritten function.

    Attributes
    ----------
    function : callable
        Takes what stood before the tuple, then the columns in `reads`.
    reads : tuple of int
    source : str
        The code, for people.
    """

    function: Callable[..., Any]
    reads: tuple[int, ...]
    source: str


def with_column_arguments(
    function: Any,
    inputs: Sequence[str],
    state: StateNames | None = None,
    given: Mapping[str, Any] | None = None,
) -> ColumnArguments | None:
    """A method ``(self, t)``, or a function ``(t)``, rewritten; None if it must be called as it is.

    With the names of its `state` it takes the slot of its key in place of ``self``, and `given` are what it then reads
    under names of ours: see `state_slots`.
    """
    reads = tuple_reads(function, inputs)
    if reads is None or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return None
    found = _rewritten(FunctionCode(function), tuple(inputs), tuple(sorted(reads)), state)
    if found is None:
        return None
    code, source = found
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cells |= {OWN_PREFIX + name: types.CellType(value) for name, value in (given or {}).items()}
    closure = tuple(cells[name] if name in cells else types.CellType() for name in code.co_freevars)
    made = types.FunctionType(code, function.__globals__, function.__name__, None, closure)
    return ColumnArguments(made, tuple(sorted(reads)), source)


# A task is made for every channel of every epoch, and its methods are the same each time.
@functools.lru_cache(maxsize=256)
def _rewritten(
    function: FunctionCode, inputs: tuple[str, ...], reads: tuple[int, ...], state: StateNames | None
) -> tuple[types.CodeType, str] | None:
    tree = tree_of(function.function)
    if not isinstance(tree, (ast.FunctionDef, ast.Lambda)) or has_private_names(tree):
        return None
    *before, row = [each.arg for each in tree.args.posonlyargs + tree.args.args]
    for node in ast.walk(tree):
        named = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
        bound = names_bound(node)
        if row in bound or any(name.startswith(OWN_PREFIX) for name in (named, *bound)):
            return None
    if [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)].count(row) > 1:
        return None  # a function within it has a parameter of that name
    tree = copy.deepcopy(tree)
    body = [ast.Return(tree.body)] if isinstance(tree, ast.Lambda) else tree.body
    arguments = _Arguments(row, inputs)
    original = function.function.__code__
    body = [arguments.visit(each) for each in body]
    around = list(original.co_freevars)
    if state is not None:
        slotted = on_slots(body, before[0], state) if len(before) == 1 else None
        if slotted is None:
            return None
        body, before = slotted, [f"{OWN_PREFIX}slot"]
        around += [OWN_PREFIX + name for name in state.given]
    module = ast.parse(
        f"def around({', '.join(around)}):\n"
        f"    def inner({', '.join([*before, *(f'{OWN_PREFIX}c{at}' for at in reads)])}): pass\n"
    )
    inner = module.body[0].body[0]  # type: ignore[attr-defined]
    inner.body = body
    ast.copy_location(inner, tree)
    ast.fix_missing_locations(module)
    code: Any = compile(module, original.co_filename, "exec", dont_inherit=True)
    for name in ("around", "inner"):
        code = next(each for each in code.co_consts if isinstance(each, types.CodeType) and each.co_name == name)
    # Tracebacks name what the user wrote.
    made: types.CodeType = code.replace(co_name=original.co_name, co_qualname=original.co_qualname)
    return made, shown(inner).replace("def inner(", f"def {original.co_name.strip('<>')}(")


class _Arguments(ast.NodeTransformer):
    """Replaces the reading of columns by parameters."""

    def __init__(self, row: str, inputs: Sequence[str]) -> None:
        self._row = row
        self._inputs = tuple(inputs)

    def _visit_reading(self, node: ast.expr) -> ast.AST:
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=column) if name == self._row:
                place = place_of(column, self._inputs)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=column)) if name == self._row:
                place = place_of(column, self._inputs)
            case _:
                return self.generic_visit(node)
        return ast.copy_location(ast.Name(f"{OWN_PREFIX}c{place}", ast.Load()), node)

    visit_Attribute = visit_Subscript = _visit_reading  # noqa: N815
