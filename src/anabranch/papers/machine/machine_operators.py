"""The programs that simulated channels run: small functions whose result shows every mistake.

A tuple is ⟨position, first key, second key, payload⟩. What is emitted depends on the payload and, in a partitioned
region, on all tuples of the key before it and on their order; so a tuple lost, doubled, out of order
or given to the wrong channel changes everything behind it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from anabranch.papers.machine.description import MachineRegion
from anabranch.program.model import Selectivity

Value = tuple[int, int, int, int]
Emit = Callable[[Value, int], list[Value]]
"""From a tuple and the number computed for it to the tuples emitted."""

MODULUS = 1_000_003
_GOLDEN = 0.6180339887498949  # multiples of it spread evenly over [0, 1)


def step(state: int, payload: int) -> int:
    """The next state of a key."""
    return (state * 31 + payload + 7) % MODULUS


def result_of(payload: int, state: int) -> int:
    """The number computed for a tuple, from its payload and the state of its key after it."""
    return (payload * 17 + state * 3 + 5) % MODULUS


def emitter(region: MachineRegion, keys: int) -> Emit:
    """What a region emits."""
    selectivity = region.selectivity
    declared = region.declared
    if declared is Selectivity.ONE:
        return lambda value, result: [(value[0], value[1], value[2], result)]
    if declared is Selectivity.AT_MOST_ONE:
        return lambda value, result: (
            [(value[0], value[1], value[2], result)] if result * _GOLDEN % 1.0 < selectivity else []
        )
    # Evenly 0 to `most`, and so often nothing at all that the mean is right.
    most = max(1, math.ceil(2 * selectivity))
    share = 2 * selectivity / most

    def any_number(value: Value, result: int) -> list[Value]:
        position, first, second, _ = value
        drawn = result * _GOLDEN % 1.0
        count = int(drawn / share * (most + 1)) if drawn < share else 0
        # Copies get other keys, so that a shuffle parts them.
        return [(position, (first + i) % keys, (second + 3 * i) % keys, (result + i) % MODULUS) for i in range(count)]

    return any_number
