"""What the code of an operator names in other modules of the user's: not the operator's own, so it must not change.

A copy of an operator brings along the globals of the modules that its code is written in. What it reaches by another
module's name (`settings.TABLE`, `helpers.count()`) is that of the process it runs in, and nobody keeps it. Mostly it is
only read. So it is watched: what it holds when an epoch begins it must hold at its end.
"""

from __future__ import annotations

import types
from collections.abc import Container, Iterable
from typing import Any

from anabranch.program.belongings import Belongings
from anabranch.program.object_parts import modules_named_in, names_in
from anabranch.program.object_reach import reached


def named_elsewhere(functions: Iterable[types.FunctionType]) -> list[tuple[types.ModuleType, str]]:
    """The names that functions use of other modules of the user's: (module, name)."""
    found: dict[tuple[str, str], types.ModuleType] = {}
    for function in functions:
        for module in modules_named_in(function):
            if module.__name__ != function.__module__:
                found.update(((module.__name__, each), module) for each in names_in(function) & vars(module).keys())
    return [(module, name) for (_, name), module in sorted(found.items(), key=lambda each: each[0])]


def held_elsewhere(functions: Iterable[types.FunctionType], read: Container[tuple[str, str]]) -> set[int]:
    """The identities of all that functions lead to by the names of other modules, however many modules that takes.

    `read` are the names that their code is seen to use: (module, name). What only an `__init__` names is long done.
    """
    found: dict[int, Any] = {}
    waiting = list(functions)
    while waiting:
        names = [each for each in named_elsewhere(waiting) if (each[0].__name__, each[1]) in read]
        more = reached([getattr(module, name, None) for module, name in names], as_copied=True)
        waiting = [each for key, each in more.items() if key not in found and isinstance(each, types.FunctionType)]
        found |= more
    return set(found)


class Elsewhere:
    """What these names lead to, as it is now."""

    def __init__(self, names: Iterable[tuple[types.ModuleType, str]]) -> None:
        self._bound = [(module, name, getattr(module, name, None)) for module, name in names]
        called = [f"{module.__name__}.{name}" for module, name, _ in self._bound]
        self._belongings = Belongings([held for _, _, held in self._bound], called)

    def changed(self) -> str | None:
        """The name of what is something else now; None: nothing is."""
        for module, name, held in self._bound:
            if getattr(module, name, None) is not held:
                return f"{module.__name__}.{name}"
        return self._belongings.changed()
