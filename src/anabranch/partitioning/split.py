"""
Which keys are too hot for one channel, and over how many channels to split them.

No placement can balance a key with more than a fair share of the load: at z = 1 over 10⁶ keys the hottest
has 0.0695 of all rows, more than a channel's share from 15 channels on. Where the partial results of an
aggregation combine exactly, such a key can be worked on by several channels, and this says by how many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from anabranch.partitioning.threshold import check_channels
from anabranch.partitioning.workload import Workload


@dataclass(frozen=True)
class Split:
    """A key to be split."""

    hash: int
    share: float
    """Its share of the load, of the resource of which it takes most."""
    ways: int
    """Over how many channels, at least 2."""


def plan_splits(workload: Workload, channels: int) -> tuple[Split, ...]:
    """
    Return the keys that exceed a fair share, most loaded first, each with as few ways as bring it below one.

    Splitting makes work (partial results must be combined), so a key of just a fair share is left whole: the
    ring can keep all other keys off its channel. A load measured, or linear, splits in proportion; that of
    a quadratic resource does not split by sharing out rows, so only measured computation counts for it.
    """
    check_channels(channels)
    if channels == 1:
        return ()
    shares = workload.frequencies
    for measured in (workload.state, workload.computation):
        if measured is not None:
            shares = shares.clip(min=measured.keys)
    # A hair's breadth above the fair share is rounding.
    wide = [(i, float(share)) for i, share in enumerate(shares) if share * channels > 1 + 1e-9]
    wide.sort(key=lambda one: -one[1])
    return tuple(
        Split(int(workload.hashes[i]), share, min(channels, math.ceil(share * channels - 1e-9))) for i, share in wide
    )
