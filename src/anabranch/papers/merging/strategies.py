"""Which strategy keeps the order of what several workers do (*Safe*, Table 1 and section 4.4).

    selectivity   stateless            partitioned
    1:1           round-robin          sequence numbers
    1:[0,1]       strict sequence numbers and pulses
    1:[0,∞)       relaxed sequence numbers and pulses

Where a shuffle connects two groups of workers they are one flow of numbered tuples: gaps and duplicates made in the
first are still there at the merger of the last, so the selectivity that counts is that of the whole flow so far, and
round-robin, which numbers nothing, is not enough.
"""

from __future__ import annotations

from anabranch.papers.merging.ordering import Strategy
from anabranch.program.model import Selectivity


def ordering_strategy(stateless: bool, selectivity: Selectivity, numbered: bool = False) -> Strategy:
    """The row of Table 1 that applies; `numbered` if a shuffle or a parallel source needs numbers anyway."""
    if selectivity is Selectivity.ANY:
        return Strategy.RELAXED
    if selectivity is Selectivity.AT_MOST_ONE:
        return Strategy.STRICT
    return Strategy.ROUND_ROBIN if stateless and not numbered else Strategy.SEQUENCE
