"""A method that returns tuples as one that yields them: only for what is compiled of it, which is no generator.

    return t.k, self.n        ──►   yield t.k, self.n         a last return
    return [(t.k, self.n)]    ──►   yield t.k, self.n; return
    return None, return []    ──►   return

What is returned must be written out, as a tuple or dict, as the tuple that came, or as a list of one of these; several
would be made before the first is looked at. Within `try` and `with` another return may follow, or an error.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence


class _CannotYieldError(Exception):
    """It is not seen what is returned."""


def yielding(body: Sequence[ast.stmt], row: str) -> list[ast.stmt] | None:
    """The body of a method with yields in place of returns, given the name of the tuple; None if it cannot be told."""
    for node in ast.walk(ast.Module(list(body), [])):
        if isinstance(node, (ast.Try, ast.TryStar, ast.With)) and any(map(_is_return, ast.walk(node))):
            return None
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return None
    try:
        made = _Yields(row).block(body)
    except _CannotYieldError:
        return None
    return made[:-1] if len(made) > 1 and _is_return(made[-1]) else made


def _is_return(node: ast.AST) -> bool:
    return isinstance(node, ast.Return)


class _Yields(ast.NodeTransformer):
    def __init__(self, row: str) -> None:
        self._row = row

    def block(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in statements:
            found = self.visit(statement)
            made += found if isinstance(found, list) else [found]
        return made

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        value = node.value
        if isinstance(value, ast.List) and len(value.elts) <= 1:
            value = value.elts[0] if value.elts else None
            if isinstance(value, ast.Constant):
                raise _CannotYieldError("a list of what is no tuple")
        end = ast.copy_location(ast.Return(None), node)
        match value:
            case None | ast.Constant(value=None):
                return [end]
            case ast.Tuple() | ast.Dict():
                pass
            case ast.Name(id=name) if name == self._row:
                pass
            case _:
                raise _CannotYieldError("it is not written out")
        made = ast.copy_location(ast.Expr(ast.copy_location(ast.Yield(value), node)), node)
        return [made, end]

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return node
