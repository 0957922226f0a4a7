"""The problem that `weigh` solves: hot keys and key groups with loads, and a band of loads to reach.

The tail is one lever for several resources: a channel gets more or less of it, and with it more or less of
each. `along_tail` turns loads of several resources into one number, the share of the whole tail that would
weigh the same, so that weighing the ring has one quantity to work on.

A resource that is constant per key is not made even by weighing, it is upset by it: a channel with less tail has
fewer keys. `key_ratio` bounds that: how many times the keys of the channel with the fewest another one may have.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.placing.placement_problem import Placement

Loads = NDArray[np.float64]
Weights = NDArray[np.int64]

NARROWING_DEFAULT = 0.4
KEY_NARROWING = 0.6
"""The part of the tolerance of a constant resource that weighing keeps to. The ring's own unevenness takes most of it:
with less, old channels would have to give keys to each other at every change of their number."""
KEYS_EVEN = 1.12
"""The ratio within which a ring is evened by numbers of keys; what a bound allows beyond makes up for hot keys."""
_LEVER = 0.9
"""A resource is put right by weighing if the tail carries nearly as much of it as of any other."""


@dataclass(frozen=True, eq=False)
class WeighProblem:
    """Hot keys to be placed and a ring to be weighed. Loads have one column per resource to be balanced."""

    channels: int
    weights: tuple[int, ...]
    """Weights of the current ring; its channels may be more or fewer than those wanted."""
    key_loads: Loads
    key_state: Loads
    """Share of all state that moves with every hot key."""
    key_origins: Placement
    """Where every hot key is now; may be a channel that will not exist any more."""
    tail_loads: Loads
    """One row per key group."""
    tolerances: Loads
    """α of every balanced resource."""
    narrowing: float = NARROWING_DEFAULT
    key_ratio: float = np.inf
    """The largest ratio between the channels' numbers of keys that weighing may bring about; infinite: any."""

    @cached_property
    def totals(self) -> Loads:
        """All load, per resource."""
        totals = self.key_loads.sum(axis=0) + self.tail_loads.sum(axis=0)
        return np.where(totals > 0, totals, 1.0)

    @cached_property
    def carried(self) -> Loads:
        """The share of every resource that the tail carries: how much weighing the ring can do for it."""
        return self.tail_loads.sum(axis=0) / self.totals

    @cached_property
    def goals(self) -> Loads:
        """The imbalance r to reach, per resource: the tolerance, narrowed."""
        return 1 + (self.tolerances - 1) * self.narrowing

    @cached_property
    def bounds_keys(self) -> bool:
        """Whether the channels' numbers of keys are bounded."""
        return bool(np.isfinite(self.key_ratio))

    @cached_property
    def share_bounds(self) -> tuple[float, float]:
        """The least and the most of the tail that a channel should have; hot keys add little to numbers of keys."""
        if not self.bounds_keys:
            return 0.0, np.inf
        reach = float(np.sqrt(max(self.key_ratio / KEYS_EVEN, 1.0)))
        return 1 / reach / self.channels, reach / self.channels

    def along_tail(self, loads: Loads) -> Loads:
        """Loads as one number: what share of the whole tail would weigh the same on the channel.

        The tail is one lever for several resources; this is its least-squares pull over those it carries
        best. One that hangs on hot keys (quadratic computation) is left to placing those: pulled along, it
        would upset the resources that the tail can put right.
        """
        lever = np.where(self.carried >= _LEVER * self.carried.max(initial=0.0), self.carried, 0.0)
        pull = float(lever @ lever)
        return (loads / self.totals) @ lever / pull if pull > 0 else np.zeros(loads.shape[:-1])
