"""How long operators work for a tuple: calls of user code, timed one by one.

Which keys are expensive decides where they are placed (`key_costs.py`), never what is computed. A channel
runs whole batches, so a batch as a whole can only say what its keys cost together. The beginning of a batch therefore
runs by itself, with a clock around every call of user code:

    batch   ├─ timed ─┤──────────── as ever ────────────┤      1/64 of the tuples; all of them if a call takes long
            └ seconds of every tuple, over all steps of the stage that the tuple and what came of it went through

One batch in four, the first among them, begins so. That costs 2 % of such a batch where a tuple takes a microsecond,
and below 1 % of an epoch of several.

What is timed is the user's code and nothing of ours: for one tuple, ours is a part of what is done for all at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

TIMED_PART = 64
"""One tuple of so many is timed: a clock around a call that takes a microsecond costs a third of it."""
TIMED_MIN = 16
TIMED_BATCHES = 4
"""Of so many batches one is timed."""
LONG_CALL_SECONDS = 20e-6
"""Where a tuple takes longer than this, the clock is below 2 % of it, and all are timed."""


def timed_rows(count: int) -> int:
    """How many tuples at the beginning of a batch are timed, at least."""
    return min(count, max(TIMED_MIN, -(-count // TIMED_PART)))


class Stopwatch:
    """Times calls.

    Parameters
    ----------
    clock : callable
        Seconds, on a clock that only goes forward.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._spent: list[float] = []

    def take(self) -> np.ndarray:
        """The seconds of every call since they were last taken, in their order."""
        taken = np.array(self._spent)
        self._spent.clear()
        return taken

    def share(self, seconds: float, tuples: int) -> None:
        """What was computed for several tuples at once took so long: each has its share."""
        self._spent += [seconds / tuples] * tuples

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed. What it returns is passed on as it is."""
        clock, note = self.clock, self._spent.append

        def timed(*arguments: Any) -> Any:
            begun = clock()
            result = function(*arguments)
            note(clock() - begun)
            return result

        return timed

    def around_emitting(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, timed; if it returns an iterator, the work may be done while that is asked for more."""
        timed, spent = self.around(function), self._spent

        def emitting(*arguments: Any) -> Any:
            result = timed(*arguments)
            return self._resumed(result, len(spent) - 1) if isinstance(result, Iterator) else result

        return emitting

    def _resumed(self, outputs: Iterator[Any], at: int) -> Iterator[Any]:
        clock, spent = self.clock, self._spent
        while True:
            begun = clock()
            try:
                output = next(outputs)
            except StopIteration:
                return
            finally:
                spent[at] += clock() - begun
            yield output
