"""The merger of a joint: one interface, one class per ordering strategy.

`docs/ordering.md` tells which strategy is used when, and why each releases as early as it can in bounded
memory. The classes stand in merger_round_robin, merger_numbered and merger_indexed.
"""

from __future__ import annotations

from anabranch.papers.merging.merger_base import Merger, MergerStatistics
from anabranch.papers.merging.merger_indexed import IndexedMerger
from anabranch.papers.merging.merger_numbered import RelaxedMerger, SequenceMerger, StrictMerger
from anabranch.papers.merging.merger_round_robin import RoundRobinMerger
from anabranch.papers.merging.ordering import Strategy

__all__ = ["Merger", "MergerStatistics", "make_merger"]

_CLASSES: dict[Strategy, type[Merger]] = {
    Strategy.ROUND_ROBIN: RoundRobinMerger,
    Strategy.SEQUENCE: SequenceMerger,
    Strategy.STRICT: StrictMerger,
    Strategy.RELAXED: RelaxedMerger,
}


def make_merger(
    strategy: Strategy,
    channels: int,
    *,
    in_shuffle: bool = False,
    depth: int = 0,
    capacity: int | None = None,
) -> Merger:
    """The merger for a joint; see `Merger` for the parameters and `IndexedMerger` for depth.

    Examples
    --------
    >>> from anabranch.papers.merging.ordering import Numbered
    >>> merger = make_merger(Strategy.SEQUENCE, 2)
    >>> merger.push(1, Numbered(1, "b"))
    []
    >>> merger.push(0, Numbered(0, "a"))
    ['a', 'b']
    """
    if (depth > 0) != (strategy is Strategy.INDEXED):
        raise ValueError(f"depth={depth} with {strategy}: INDEXED needs a depth ≥ 1, the others have none")
    if strategy is Strategy.INDEXED:
        return IndexedMerger(channels, depth=depth, in_shuffle=in_shuffle, capacity=capacity)
    return _CLASSES[strategy](channels, in_shuffle=in_shuffle, capacity=capacity)
