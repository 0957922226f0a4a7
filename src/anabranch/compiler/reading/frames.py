"""Where the reading stands: the function being read, its variables, and how many tuples it has emitted."""

from __future__ import annotations

import ast
import dataclasses
import functools
from typing import Any

from anabranch.compiler.reading.facts import Emission
from anabranch.compiler.reading.values import NOTHING, Value, join
from anabranch.program.source_code import children


@dataclasses.dataclass
class ControlFlow:
    """What holds at one point of a function: its variables, and how many tuples were emitted so far."""

    variables: dict[str, Value]
    least: int = 0
    most: int = 0
    alive: bool = True

    def copy(self) -> ControlFlow:
        return ControlFlow(dict(self.variables), self.least, self.most, self.alive)

    def joined(self, other: ControlFlow) -> ControlFlow:
        if not self.alive:
            return other.copy()
        if not other.alive:
            return self.copy()
        names = self.variables.keys() | other.variables.keys()
        variables = {
            name: join(self.variables.get(name, NOTHING), other.variables.get(name, NOTHING)) for name in names
        }
        return ControlFlow(variables, min(self.least, other.least), max(self.most, other.most), True)

    def same_as(self, other: ControlFlow) -> bool:
        return (
            self.alive == other.alive
            and self.least == other.least
            and self.most == other.most
            and self.variables == other.variables
        )

    def emit(self, least: int = 1, most: int = 1) -> None:
        self.least, self.most = min(2, self.least + least), min(2, self.most + most)


@dataclasses.dataclass
class Frame:
    """A function being read."""

    node: Any
    file: str
    globals: dict[str, Any]
    closure: dict[str, Any]
    function: Any = None
    parent: Frame | None = None
    #: Local variables that inner functions use: one joined value each, whoever writes it.
    cells: dict[str, Value] = dataclasses.field(default_factory=dict)
    captured: frozenset[str] = frozenset()
    locals: frozenset[str] = frozenset()
    global_names: frozenset[str] = frozenset()
    nonlocal_names: frozenset[str] = frozenset()
    is_generator: bool = False
    returned: Value = NOTHING
    exits: list[tuple[ControlFlow, Value | None]] = dataclasses.field(default_factory=list)
    breaks: list[list[ControlFlow]] = dataclasses.field(default_factory=list)
    continues: list[list[ControlFlow]] = dataclasses.field(default_factory=list)
    handlers: list[list[ControlFlow]] = dataclasses.field(default_factory=list)
    yields: list[Emission] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class ActiveCall:
    """A function that is being read, for calls that come back to it."""

    arguments: dict[str, Value]
    result: Value = NOTHING
    recursive: bool = False
    grown: bool = False


@dataclasses.dataclass(frozen=True)
class GeneratorMade:
    """A generator that a call made: how many elements it gives, which, and what it returns at its end."""

    least: int
    most: int
    yields: list[Emission]
    returned: Value


@functools.lru_cache(maxsize=4096)
def local_names(node: Any) -> tuple[frozenset[str], frozenset[str], frozenset[str], frozenset[str], bool]:
    """A function's locals, those its inner functions use, its globals, its nonlocals, and if it yields."""
    assigned: set[str] = set()
    global_names: set[str] = set()
    nonlocal_names: set[str] = set()
    inner_used: set[str] = set()
    yields = False
    arguments = node.args
    for each in (
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ):
        if each is not None:
            assigned.add(each.arg)
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    waiting: list[ast.AST] = list(body)
    while waiting:
        at = waiting.pop()
        if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            if not isinstance(at, ast.Lambda):
                assigned.add(at.name)
            for inner in ast.walk(at):
                if isinstance(inner, ast.Name):
                    inner_used.add(inner.id)
                elif isinstance(inner, (ast.Nonlocal, ast.Global)):
                    inner_used.update(inner.names)
            if isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef)):
                waiting.extend(at.decorator_list)
            waiting.extend(getattr(at, "args", ast.arguments([], [], None, [], [], None, [])).defaults)
            continue
        if isinstance(at, ast.Name) and isinstance(at.ctx, (ast.Store, ast.Del)):
            assigned.add(at.id)
        elif isinstance(at, ast.Global):
            global_names.update(at.names)
        elif isinstance(at, ast.Nonlocal):
            nonlocal_names.update(at.names)
        elif isinstance(at, (ast.Import, ast.ImportFrom)):
            assigned.update((alias.asname or alias.name.split(".")[0]) for alias in at.names)
        elif (isinstance(at, ast.ExceptHandler) and at.name) or (
            isinstance(at, (ast.MatchAs, ast.MatchStar)) and at.name
        ):
            assigned.add(at.name)
        elif isinstance(at, ast.MatchMapping) and at.rest:
            assigned.add(at.rest)
        elif isinstance(at, (ast.Yield, ast.YieldFrom)):
            yields = True
        waiting.extend(children(at))
    return (
        frozenset(assigned - global_names - nonlocal_names),
        frozenset(inner_used & assigned - global_names - nonlocal_names),
        frozenset(global_names),
        frozenset(nonlocal_names),
        yields,
    )
