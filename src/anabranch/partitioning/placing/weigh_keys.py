"""Placing hot keys when the tail's load is known: moves and swaps towards the band, and no further.

Only steps that can help are looked at. A resource outside its band gets better only if its most loaded
channel gives or its least loaded one takes, so: any key of the most loaded channel to anywhere, any key to
the least loaded, and any swap between the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.placing.metrics import channel_loads
from anabranch.partitioning.placing.placement_problem import Placement
from anabranch.partitioning.placing.weigh_problem import Loads, WeighProblem, Weights
from anabranch.partitioning.placing.weigh_ring import Tail

_STEPS = 64
_MIGRATION_PRICE = 0.1
"""What a fair share of moved state costs, in the unit of `badness`: a tenth of an e-fold of imbalance."""
_SHARPNESS = 60.0
"""Of the soft largest and smallest load: loads that differ by less than a sixtieth of the mean count nearly alike."""
_NOTHING = 1e-6
"""A load, in shares of the mean, below which a channel is as good as idle."""


@dataclass(frozen=True, eq=False)
class FixedTail:
    """The tail as the weighed ring spreads it."""

    loads: Loads

    def add_to(self, hot: Loads) -> Loads:
        """The channels' whole loads, given those of the hot keys."""
        return hot + self.loads


@dataclass(frozen=True, eq=False)
class PouredTail:
    """The tail before the ring is weighed: a new channel takes what it lacks, from all others in proportion.

    So a hot key that moves to a new channel makes it take less tail: load that has to move anyway moves as
    hot keys from the channels that have many of them, and no channel ends up with an extreme weight.
    """

    problem: WeighProblem
    shares: Loads
    """Tail of every channel under the current weights; nothing for new channels."""
    fresh: NDArray[np.bool_]

    @staticmethod
    def of(problem: WeighProblem, tail: Tail, weights: Weights) -> PouredTail:
        shares = tail.shares(weights) if weights.any() else np.zeros(problem.channels)
        return PouredTail(problem, shares, np.arange(problem.channels) >= len(problem.weights))

    def add_to(self, hot: Loads) -> Loads:
        """The channels' whole loads; shape (..., channels, resources), as given."""
        problem = self.problem
        along = problem.along_tail(hot)
        line = (1 + along.sum(axis=-1, keepdims=True)) / problem.channels
        taken = np.where(self.fresh, np.clip(line - along, *problem.share_bounds), 0.0)
        left = np.maximum(1 - taken.sum(axis=-1, keepdims=True), 0.0)
        poured = np.where(self.fresh, taken, self.shares * left)
        return hot + poured[..., None] * (problem.carried * problem.totals)


class _Steps(NamedTuple):
    """Moves and swaps to choose from: key, partner (-1: none), target of the key."""

    keys: NDArray[np.int64]
    partners: NDArray[np.int64]
    targets: NDArray[np.int64]


def readjust(
    problem: WeighProblem, placement: Placement, tail: FixedTail | PouredTail, *, widely: bool = True
) -> Placement:
    """Move and swap hot keys while that brings the loads closer to the band, at a fair price.

    Parameters
    ----------
    widely
        Also try steps in which only one of the two channels is the most or the least loaded one.
    """
    placement = placement.copy()
    if not len(placement):
        return placement
    hot = channel_loads(problem.key_loads, placement, problem.channels)
    for _ in range(_STEPS):
        loads = tail.add_to(hot)
        now = float(badness(problem, loads))
        if now <= 0:
            break
        steps = _steps(problem, placement, loads, widely)
        if not len(steps.keys):
            break
        sources = placement[steps.keys]
        swapped = steps.partners >= 0
        shifted = problem.key_loads[steps.keys]
        shifted = shifted - np.where(swapped[:, None], problem.key_loads[steps.partners], 0.0)
        candidates = np.broadcast_to(hot, (len(shifted), *hot.shape)).copy()
        rows = np.arange(len(shifted))
        candidates[rows, sources] -= shifted
        candidates[rows, steps.targets] += shifted
        moved = _moved(problem, steps.keys, sources, steps.targets)
        moved += np.where(swapped, _moved(problem, steps.partners, steps.targets, sources), 0.0)
        cost = badness(problem, tail.add_to(candidates)) + _MIGRATION_PRICE * moved * problem.channels
        best = int(cost.argmin())
        if cost[best] >= now * (1 - 1e-9):
            break
        hot = candidates[best]
        placement[steps.keys[best]] = steps.targets[best]
        if swapped[best]:
            placement[steps.partners[best]] = sources[best]
    return placement


def _moved(
    problem: WeighProblem,
    keys: NDArray[np.int64],
    sources: NDArray[np.integer],
    targets: NDArray[np.integer],
) -> Loads:
    """How much more state moves: less than nothing for a key that goes back home."""
    origins = problem.key_origins[keys]
    return problem.key_state[keys] * ((origins == sources).astype(np.float64) - (origins == targets))


def _steps(problem: WeighProblem, placement: Placement, loads: Loads, widely: bool) -> _Steps:
    keys: list[NDArray[np.int64]] = []
    partners: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    outside = loads.max(axis=0) > problem.goals * loads.min(axis=0)
    pairs = {(int(loads[:, k].argmax()), int(loads[:, k].argmin())) for k in np.flatnonzero(outside)}
    for most, least in sorted(pairs):
        givers, takers = np.flatnonzero(placement == most), np.flatnonzero(placement == least)
        elsewhere, others = np.array([least]), np.empty(0, dtype=np.int64)
        if widely:
            elsewhere = np.flatnonzero(np.arange(problem.channels) != most)
            others = np.flatnonzero((placement != least) & (placement != most))
        keys += [np.repeat(givers, len(elsewhere)), others, np.repeat(givers, len(takers))]
        targets += [
            np.tile(elsewhere, len(givers)),
            np.full(len(others), least),
            np.full(len(givers) * len(takers), least),
        ]
        alone = np.full(len(givers) * len(elsewhere) + len(others), -1)
        partners += [alone, np.tile(takers, len(givers))]
    if not keys:
        nothing = np.empty(0, dtype=np.int64)
        return _Steps(nothing, nothing, nothing)
    return _Steps(np.concatenate(keys), np.concatenate(partners), np.concatenate(targets))


def badness(problem: WeighProblem, loads: Loads) -> Loads:
    """How far loads are outside the band, 0 inside; shape (..., channels, resources) gives (...).

    The sum over the resources of log(r / goal), where positive, and of the same with a soft largest and smallest load.
    Where several channels are about as low, raising one of them does nothing for the smallest load, and something for
    the soft one: without it the search would stop there.
    """
    loads = loads / problem.totals * problem.channels
    largest, smallest = loads.max(axis=-2), np.maximum(loads.min(axis=-2), _NOTHING)
    outside = np.maximum(np.log(np.maximum(largest, _NOTHING) / smallest / problem.goals), 0.0).sum(axis=-1)
    above, below = (
        np.log(np.exp(-_SHARPNESS * np.abs(loads - extreme[..., None, :])).mean(axis=-2)) / _SHARPNESS
        for extreme in (largest, smallest)
    )
    soft = np.log(np.maximum(largest + above, _NOTHING) / np.maximum(smallest - below, _NOTHING))
    return np.where(outside > 0, outside + np.maximum(soft, 0.0).sum(axis=-1), 0.0)
