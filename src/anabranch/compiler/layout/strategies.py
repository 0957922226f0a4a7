"""How a region is entered and left: joints, routing, ordering (*Safe*, Table 1 and section 4.4).

    selectivity   stateless            partitioned
    1:1           round-robin          sequence numbers
    1:[0,1]       strict sequence numbers and pulses
    1:[0,∞)       relaxed sequence numbers and pulses

Regions that a shuffle connects are one flow of numbered tuples: gaps and duplicates made in the first are
still there at the merger of the last, so the selectivity that counts is that of the whole flow so far, and
round-robin, which numbers nothing, is not enough.
"""

from __future__ import annotations

import enum

from anabranch.program.model import Selectivity


class Joint(enum.Enum):
    """The entry or exit of a region."""

    PARALLEL_SOURCE = "parallel source"
    SPLIT = "split"
    SHUFFLE = "shuffle"
    MERGE = "merge"
    PARALLEL_SINK = "parallel sink"


class Routing(enum.Enum):
    """How a splitter chooses the channel of a tuple."""

    ROUND_ROBIN = "round-robin"
    HASH = "hash of the key"
    ONE = "one channel"


class Order(enum.Enum):
    """How a merger restores the order of one thread."""

    ROUND_ROBIN = "round-robin"
    SEQUENCE = "sequence numbers"
    STRICT = "strict sequence numbers and pulses"
    RELAXED = "relaxed sequence numbers and pulses"
    NONE = "none needed"


def ordering_strategy(stateless: bool, selectivity: Selectivity, numbered: bool = False) -> Order:
    """The row of Table 1 that applies; `numbered` if a shuffle or a parallel source needs numbers anyway."""
    if selectivity is Selectivity.ANY:
        return Order.RELAXED
    if selectivity is Selectivity.AT_MOST_ONE:
        return Order.STRICT
    return Order.ROUND_ROBIN if stateless and not numbered else Order.SEQUENCE


def may_shuffle(selectivity_so_far: Selectivity, emission_index: bool) -> bool:
    """No shuffle after a prolific region: equal sequence numbers from one channel would lose their order.

    Packets that carry the place of a tuple among those with its number lift that ban.
    """
    return emission_index or selectivity_so_far is not Selectivity.ANY
