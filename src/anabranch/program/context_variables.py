"""Context variables that user code names: which they are, and how they travel to workers.

One that code reaches as an object (a global, an attribute, a closure) is copied like everything that code reaches, and
its copy is told the value. One that is named by way of another module (`settings.TENANT`) is that of the worker's own
import, and is found there by its name.
"""

from __future__ import annotations

import contextvars
import dataclasses
import sys
import types
from collections.abc import Iterator
from typing import Any

from anabranch.program.object_parts import is_library, names_in
from anabranch.program.object_reach import reached


@dataclasses.dataclass(frozen=True)
class NamedVariable:
    """The variable that a module holds."""

    module: str
    name: str

    def set(self, value: Any) -> None:
        """Tell it a value."""
        holder = sys.modules.get(self.module)
        variable = getattr(holder, self.name, None)
        if isinstance(variable, contextvars.ContextVar):
            variable.set(value)


def variables_named(target: Any) -> Iterator[tuple[Any, contextvars.ContextVar[Any]]]:
    """What is told a value in a worker, and the variable here."""
    waiting = [target]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        is_copied = value is target
        for found in reached(value, as_copied=True).values():
            if isinstance(found, contextvars.ContextVar) and is_copied:
                yield found, found
            if not isinstance(found, types.FunctionType) or is_library(found.__module__) or id(found) in seen:
                continue
            seen.add(id(found))
            names, held = names_in(found), found.__globals__
            if not is_copied:
                yield from _held_by(found.__module__, held, names)
            for module in [held[name] for name in names if isinstance(held.get(name), types.ModuleType)]:
                if not is_library(module.__name__):
                    yield from _held_by(module.__name__, vars(module), names)
                    waiting += [vars(module)[name] for name in names & vars(module).keys()]


def _held_by(module: str, held: dict[str, Any], names: set[str]) -> Iterator[tuple[Any, contextvars.ContextVar[Any]]]:
    for name in names & held.keys():
        if isinstance(held[name], contextvars.ContextVar):
            yield NamedVariable(module, name), held[name]


def default_of(variable: contextvars.ContextVar[Any]) -> tuple[Any, ...]:
    """The default that a variable was made with, if it was."""
    try:
        return (contextvars.Context().run(variable.get),)
    except LookupError:
        return ()


def made_variable(name: str, default: tuple[Any, ...]) -> contextvars.ContextVar[Any]:
    """A variable as another one was made."""
    # Not of a module, as they should be: it lives as long as the code that was copied with it.
    if default:
        return contextvars.ContextVar(name, default=default[0])
    return contextvars.ContextVar(name)
