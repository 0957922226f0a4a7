"""How the load of a key grows with its frequency: β of the paper, for state, computation and communication.

The paper's letters name the three in this order: LCL is linear state, constant computation, linear
communication. Its Equation 3 multiplies β of computation by f, but its figures only come out with the plain
sum of β for all three resources, so that is the reading here. Communication is always linear.

A constant resource balances itself: most keys are in the tail, which the ring spreads evenly. It is part of the
metric b (Equation 11), but not of what constructions balance: as in the paper's penalty (Section 4.4) it leaves the
product, and the root is over the resources that remain. Ours keeps it within a bound instead (`weigh_problem`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from anabranch.program.options import IMBALANCE_TOLERANCE

TOLERANCE_DEFAULT = IMBALANCE_TOLERANCE

Loads = NDArray[np.float64]


class Growth(Enum):
    """How a load grows with the frequency x of its key."""

    CONSTANT = "C"
    LINEAR = "L"
    QUADRATIC = "Q"

    def loads(self, frequencies: Loads) -> Loads:
        """Β of every frequency."""
        if self is Growth.CONSTANT:
            return np.ones_like(frequencies)
        return frequencies if self is Growth.LINEAR else frequencies * frequencies

    @property
    def order(self) -> int:
        """The power of x: 0, 1 or 2."""
        return "CLQ".index(self.value)


GROWTHS: Mapping[str, Growth] = {growth.name.lower(): growth for growth in Growth}
"""Growths by the words of `program.model.Load`."""


class Behaviour(Enum):
    """What an operator keeps and does per key, as (state, computation)."""

    COUNT_WINDOW = (Growth.CONSTANT, Growth.CONSTANT)
    """Keeps a fixed number of tuples, or one value; a step of work per tuple."""
    TIME_WINDOW = (Growth.LINEAR, Growth.CONSTANT)
    """Keeps the tuples of a time span, aggregated incrementally."""
    TIME_WINDOW_SCANNED = (Growth.LINEAR, Growth.LINEAR)
    """Keeps the tuples of a time span; its work is proportional to them."""
    JOIN = (Growth.LINEAR, Growth.QUADRATIC)
    """Compares every tuple with those kept over a time span."""


@dataclass(frozen=True)
class Resources:
    """The resource functions of a parallel region, and the imbalance each may have.

    Parameters
    ----------
    state, computation, communication
        β of each.
    tolerances
        α of each, at least 1: how many times the least loaded channel's load the most loaded one may have.

    Examples
    --------
    >>> Resources.of("LQL").computation
    <Growth.QUADRATIC: 'Q'>
    >>> Resources.of_operators([Behaviour.COUNT_WINDOW, Behaviour.TIME_WINDOW]).letters
    'LCL'
    """

    state: Growth = Growth.LINEAR
    computation: Growth = Growth.LINEAR
    communication: Growth = Growth.LINEAR
    tolerances: tuple[float, float, float] = (TOLERANCE_DEFAULT,) * 3

    def __post_init__(self) -> None:
        if len(self.tolerances) != 3 or min(self.tolerances) < 1:
            raise ValueError(f"three tolerances of at least 1 are needed, found {self.tolerances}")
        if self.communication is not Growth.LINEAR:
            raise ValueError("communication is linear in the frequency: every tuple is sent once")

    def tolerating(self, tolerances: tuple[float, float, float]) -> Resources:
        """The same resources with other tolerances."""
        return replace(self, tolerances=tolerances)

    @staticmethod
    def of(letters: str, tolerance: float = TOLERANCE_DEFAULT) -> Resources:
        """The resources named by the paper's three letters, such as LCL."""
        try:
            state, computation, communication = (Growth(letter) for letter in letters)
        except ValueError as problem:
            raise ValueError(f"three letters of C, L, Q are needed, found {letters!r}") from problem
        return Resources(state, computation, communication, (tolerance,) * 3)

    @staticmethod
    def of_operators(operators: Iterable[Behaviour | tuple[Growth, Growth]]) -> Resources:
        """The resources of a region from its operators: the steepest of them decides, per resource.

        An operator may also declare its own pair (state, computation). No operators: CCL.
        """
        state, computation = Growth.CONSTANT, Growth.CONSTANT
        for operator in operators:
            growth = operator.value if isinstance(operator, Behaviour) else operator
            state = max(state, growth[0], key=lambda one: one.order)
            computation = max(computation, growth[1], key=lambda one: one.order)
        return Resources(state, computation, Growth.LINEAR)

    @property
    def growths(self) -> tuple[Growth, Growth, Growth]:
        """β of state, computation, communication."""
        return self.state, self.computation, self.communication

    @property
    def letters(self) -> str:
        """The paper's name, such as LCL."""
        return "".join(growth.value for growth in self.growths)

    @property
    def balanced(self) -> tuple[int, ...]:
        """Which of the three resources count for balance: those that are not constant."""
        return tuple(i for i, growth in enumerate(self.growths) if growth is not Growth.CONSTANT)

    def loads(self, frequencies: Loads) -> Loads:
        """Β of every frequency, one column per resource."""
        return np.stack([growth.loads(frequencies) for growth in self.growths], axis=1)
