"""Which NaN is which: Python finds a NaN in a list, a dict or a tuple only if it is the same object.

A stream that is read anew has new objects in it, and two tuples with NaN would be equal or not by accident. So all
tuples have one: `math.nan`, in every way of running. A NaN that a program computes by itself is another one, as in
plain Python; kept, it stays the same object wherever it was one, within what is written as one value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

NAN = math.nan
# Everybody's own: they are the same objects in every process. The others are numbered behind them.
_KNOWN: tuple[float, ...] = (math.nan, np.nan)


def one_nan(value: Any) -> Any:
    """The value; if it is a NaN, the one of tuples."""
    return NAN if value != value else value


def may_have_nan(numbers: Sequence[float | None]) -> bool:
    """Whether a NaN may be among them: infinite ones may say so, too."""
    return math.isnan(sum(filter(None, numbers)))


class NanNumbers:
    """Numbers for the NaNs of one value that is written."""

    __slots__ = ("_others",)

    def __init__(self) -> None:
        self._others: dict[int, tuple[int, float]] = {}

    def number_of(self, nan: float) -> int:
        for number, known in enumerate(_KNOWN):
            if nan is known:
                return number
        # It is kept, or else another would get its identity.
        return self._others.setdefault(id(nan), (len(_KNOWN) + len(self._others), nan))[0]


class NumberedNans:
    """The NaNs of one value that is read."""

    __slots__ = ("_others",)

    def __init__(self) -> None:
        self._others: dict[int, float] = {}

    def nan(self, number: int) -> float:
        return _KNOWN[number] if 0 <= number < len(_KNOWN) else self._others.setdefault(number, float("nan"))
