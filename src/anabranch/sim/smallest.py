"""From a world that fails to a small one that fails in the same way.

Greedy: try one simplification after the other, keep each that still fails, until none does. "In the same way" is: one
of the same checkers complains; else a shrunk world could end up showing something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

TRIALS_MAX = 400

World = TypeVar("World")


def smallest(
    world: World,
    fails: Callable[[World], list[str]],
    simpler: Callable[[World], Iterable[World]],
    trials_max: int = TRIALS_MAX,
) -> tuple[World, list[str]]:
    """The smallest world found, and what is wrong with it.

    Parameters
    ----------
    fails
        What is wrong with a world; each complaint begins with what was violated, and a colon.
    simpler
        Worlds that are one step simpler, the boldest first.
    """
    complaints = fails(world)
    kinds = set(map(kind_of, complaints))
    trials = 0
    shrunk = True
    while shrunk and complaints:
        shrunk = False
        for candidate in simpler(world):
            if trials >= trials_max:
                return world, complaints
            trials += 1
            found = fails(candidate)
            if kinds & set(map(kind_of, found)):
                world, complaints, shrunk = candidate, found, True
                break
    return world, complaints


def kind_of(complaint: str) -> str:
    """What was violated, without the numbers."""
    return complaint.split(":", 1)[0]
