"""Bundles of key groups and hot keys are dealt to channels: few large pieces, each with an owner of its own.

`weigh` makes channels even by moving thousands of key groups a few at a time; a table of bundles has some dozens of
pieces that are copied, fetched and moved as one, so what moves matters more than the last percent:

1. What has no owner (its channel is gone, or it is new) goes, largest first, to the channel with the least load.
2. While the channel with the most load is above the band, it gives away one piece: the one after which the fuller of
   the two channels has the least load, and of such the one with the least state. A piece moves only if the sum of the
   squares of all loads falls, so this ends.

Hot keys are pieces like bundles. Loads of several resources count by the one that is highest over its mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.placing.placement_problem import Placement

Loads = NDArray[np.float64]

_FALLS_BY = 1e-9
# A piece that helps about as much and has less state is rather moved.
_ABOUT = 0.01


@dataclass(frozen=True, eq=False)
class Pieces:
    """What is dealt. Loads have one column per resource to be balanced."""

    loads: Loads
    state: Loads
    """What moves with each piece."""
    owners: Placement
    """Where each is now; a channel that will not exist any more, or a negative number: nowhere."""


def deal(pieces: Pieces, channels: int, goals: Loads) -> Placement:
    """The channel of each piece.

    Parameters
    ----------
    goals
        How many times the mean the most loaded channel may have, per resource.

    Examples
    --------
    >>> even = Pieces(np.ones((6, 1)), np.ones(6), np.array([0, 0, 0, 1, 1, 1], dtype=np.int32))
    >>> deal(even, 3, np.array([1.1])).tolist()
    [2, 0, 0, 2, 1, 1]
    """
    totals = pieces.loads.sum(axis=0)
    shares = pieces.loads / np.where(totals > 0, totals, 1.0) * channels  # 1 is a channel's fair share
    owners = np.where((pieces.owners >= 0) & (pieces.owners < channels), pieces.owners, -1).astype(np.int32)
    held = np.zeros((channels, shares.shape[1]))
    np.add.at(held, owners[owners >= 0], shares[owners >= 0])
    for piece in sorted(np.flatnonzero(owners < 0).tolist(), key=lambda at: (-shares[at].max(initial=0.0), at)):
        owners[piece] = _emptiest(held)
        held[owners[piece]] += shares[piece]
    for _ in range(4 * len(owners)):
        source = int(held.max(axis=1, initial=0.0).argmax())
        if (held[source] <= goals).all():
            break
        found = _best_move(shares, pieces.state, owners, held, source)
        if found is None:
            break
        piece, target = found
        held[source] -= shares[piece]
        held[target] += shares[piece]
        owners[piece] = target
    return owners


def _emptiest(held: Loads) -> int:
    return int(held.max(axis=1, initial=0.0).argmin())


def _best_move(shares: Loads, state: Loads, owners: Placement, held: Loads, source: int) -> tuple[int, int] | None:
    """The piece that the fullest channel gives away, and to whom; None: nothing would help."""
    target = _emptiest(held)
    mine = np.flatnonzero(owners == source)
    if target == source or not len(mine):
        return None
    left, grown = held[source] - shares[mine], held[target] + shares[mine]
    before = float((held[source] ** 2).sum() + (held[target] ** 2).sum())
    falls = before - (left**2).sum(axis=1) - (grown**2).sum(axis=1) > _FALLS_BY
    if not falls.any():
        return None
    fuller = np.maximum(left.max(axis=1), grown.max(axis=1))
    close = falls & (fuller <= fuller[falls].min() + _ABOUT)
    chosen = min(np.flatnonzero(close).tolist(), key=lambda at: (state[mine[at]], fuller[at], at))
    return int(mine[chosen]), target
