"""Which columns of its tuple a method, or a function, reads, where that can be seen.

    def process(self, t):
        if self.best is None or t.price > self.best[1]:        reads seller and price
            self.best = t.seller, t["price"]

The method is called as it is, with a tuple; only what nobody reads of it need not be there. So all that is asked is
that the tuple is never used as a whole: every mention of it is the reading of a column by its name or place.
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.compiler.rewriting.inline import FRAME_NAMES, place_of
from anabranch.program.source_code import tree_of

_OF_FRAMES = {"_getframe", "currentframe", "f_locals"}


def tuple_reads(function: Callable[..., Any], inputs: Sequence[str]) -> frozenset[int] | None:
    """The columns that a method ``(self, t)``, or a function ``(t)``, reads; None: perhaps all."""
    if not isinstance(function, types.FunctionType) or hasattr(function, "__wrapped__"):
        return None
    if function.__defaults__ or function.__kwdefaults__ or function.__name__ != function.__code__.co_name:
        return None
    return _reads(FunctionCode(function), tuple(inputs))


class FunctionCode:
    """A function by its code: a task is made for every channel of every epoch, with the same functions each time."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self._is = function.__code__, function.__code__.co_filename

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionCode) and self._is == other._is

    def __hash__(self) -> int:
        return hash(self._is)


@functools.lru_cache(maxsize=256)
def _reads(method: FunctionCode, inputs: tuple[str, ...]) -> frozenset[int] | None:
    definition = tree_of(method.function)
    if isinstance(definition, ast.FunctionDef):
        if definition.decorator_list:
            return None
    elif not isinstance(definition, ast.Lambda):
        return None
    arguments = definition.args
    named = [each.arg for each in arguments.posonlyargs + arguments.args]
    if not 1 <= len(named) <= 2 or arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return None
    row = named[-1]
    found: set[int] = set()
    seen = used = 0
    for node in ast.walk(definition):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=column) if name == row:
                place = place_of(column, inputs)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=column)) if name == row:
                place = place_of(column, inputs)
            case ast.Name(id=name) if name == row:
                used += 1
                continue
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in FRAME_NAMES | _OF_FRAMES:
                return None
            case _:
                continue
        if place is None or not isinstance(node.ctx, ast.Load):
            return None
        seen += 1
        found.add(place)
    return frozenset(found) if seen == used else None
