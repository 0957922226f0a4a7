"""What a cached function of the user's gave, noted: the library's own cache cannot be looked into.

All callers are given one object, for as long as the cache has it. Where code that nobody could follow changes it, each
channel would have changed its own; so a worker that watches such code has this below the cache, and asks whether all
that was given is still as it was.
"""

from __future__ import annotations

import functools
from typing import Any

from anabranch.program.belongings import Belongings
from anabranch.program.object_parts import is_atom


class NotedResults:
    """Stands for the function below a cache, and notes what it gives."""

    __slots__ = ("_given", "function_as_written")

    def __init__(self, function: Any) -> None:
        self.function_as_written = function
        self._given: list[Belongings] = []

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        found = self.function_as_written(*arguments, **named)
        if not is_atom(found):
            self._given.append(Belongings([found]))
        return found

    def names(self) -> dict[int, str]:
        """What was given and can change, by identity."""
        return {identity: name for each in self._given for identity, name in each.names().items()}

    def changed(self) -> str | None:
        """The name of what was given and is not as it was; None: all is."""
        return next((name for each in self._given if (name := each.changed()) is not None), None)


def noting_cache(function: Any, maxsize: int | None, typed: bool) -> Any:
    """The function under a cache, with its results noted."""
    made: Any = functools.lru_cache(maxsize, typed)(NotedResults(function))
    below = made.__wrapped__
    functools.update_wrapper(made, function)
    made.__wrapped__ = below
    return made
