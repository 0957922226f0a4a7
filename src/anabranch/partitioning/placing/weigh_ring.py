"""Weighing the ring: how many replicas every channel gets, so that its tail makes up for its hot keys.

Pour the tail over channels of different heights (their hot keys) and it comes to one line: that is what
every channel should have in all, and one that stands higher gets no tail. Channels within the band around
the line are left alone; those outside are brought to its edge. The ring follows roughly, because replicas
given up by one channel go to whoever stands next on the ring, so this is repeated a few times.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.placing.metrics import channel_loads
from anabranch.partitioning.placing.placement_problem import Placement
from anabranch.partitioning.placing.weigh_problem import KEYS_EVEN, Loads, WeighProblem, Weights
from anabranch.partitioning.ring import REPLICAS_DEFAULT, RingHashes, WeighableItems

WEIGHT_LIMIT = 2 * REPLICAS_DEFAULT
_ROUNDS = 64
_ROUNDS_FRESH = 3
"""Rounds in which only new channels are filled: that moves nothing between old ones."""
_MODESTY = 0.4
"""How far into the lower half of the band a new channel is filled, from the line to the edge."""


class Tail:
    """The tail's load on every channel, as a function of the ring's weights."""

    def __init__(self, problem: WeighProblem) -> None:
        self._problem = problem
        groups = RingHashes.of_items(np.arange(len(problem.tail_loads), dtype=np.uint64))
        self._items = WeighableItems(groups, problem.channels, WEIGHT_LIMIT)
        # Where numbers of keys are bounded the tail is dealt out by them: as far as anybody knows, groups have equally
        # many. What that leaves uneven is for hot keys to put right.
        evenly = np.full(len(problem.tail_loads), 1 / len(problem.tail_loads))
        self._pulls = evenly if problem.bounds_keys else problem.along_tail(problem.tail_loads)

    def loads(self, weights: Weights) -> Loads:
        """The load of every channel, one column per resource."""
        return channel_loads(self._problem.tail_loads, self._items.owners(weights), self._problem.channels)

    def shares(self, weights: Weights) -> Loads:
        """The share of the tail every channel has, as one number: of its loads (`along_tail`), or of its keys."""
        owners = self._items.owners(weights)
        return channel_loads(self._pulls[:, None], owners, self._problem.channels)[:, 0]


def waterline(hot: Loads, tail: float) -> Loads:
    """The line up to which a tail fills channels that already hold hot keys; channels run last.

    A channel that stands above the line gets nothing.
    """
    ascending = np.sort(hot, axis=-1)
    filled = np.cumsum(ascending, axis=-1)
    counts = np.arange(1, hot.shape[-1] + 1)
    lines = (tail + filled) / counts
    # With the m lowest channels filled, the line is right if it does not reach the next one.
    following = np.concatenate([ascending[..., 1:], np.full((*hot.shape[:-1], 1), np.inf)], axis=-1)
    right = (lines <= following).argmax(axis=-1)
    return np.take_along_axis(lines, right[..., None], axis=-1)[..., 0]


def weigh_ring(problem: WeighProblem, tail: Tail, placement: Placement, weights: Weights) -> Weights:
    """Weights that bring all channels into the band, as far as hot keys, numbers of keys and the ring's grain allow."""
    hot = problem.along_tail(channel_loads(problem.key_loads, placement, problem.channels))
    goal = float(problem.goals.min())
    if problem.bounds_keys:
        hot, goal = _made_up_for(hot, *problem.share_bounds), min(problem.key_ratio, KEYS_EVEN)
    line = float(waterline(hot, 1.0))
    reachable = hot < line
    fresh = weights == 0
    # A new channel is filled to a little below the line, and moves less for it.
    lowest = line * 2 / (1 + goal)
    wanted = np.where(fresh, np.maximum(line + _MODESTY * (lowest - line) - hot, 0.0), 0.0)
    weights = _admit(weights, wanted)
    best, best_spread = weights, np.inf
    for turn in range(_ROUNDS):
        shares = tail.shares(weights)
        filled = (shares + hot)[reachable]
        spread = float(filled.max() / max(filled.min(), 1e-300)) if filled.size else 1.0
        excess = float(shares[~reachable].sum())
        if spread + excess < best_spread:
            best, best_spread = weights, spread + excess
        filling = turn < _ROUNDS_FRESH and fresh.any()
        if not filling and spread <= goal and excess == 0:
            break
        stepped = _stepped(weights, shares, wanted if filling else _targets(shares, hot, line, goal), reachable)
        if filling:
            chosen = fresh
        else:
            # One channel at a time: what it gives or takes may already put its neighbours on the ring right.
            strain = np.abs(np.log(np.maximum(shares + hot, 1e-300) / line))
            strain[stepped == weights] = -1.0
            chosen = np.arange(problem.channels) == np.where(reachable | (weights == 0), strain, np.inf).argmax()
        weights = np.where(chosen, stepped, weights)
        if not weights.any():
            break
    return best


def _stepped(weights: Weights, shares: Loads, targets: Loads, reachable: NDArray[np.bool_]) -> Weights:
    """Weights with which every channel alone should come to its target."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.clip(np.nan_to_num(targets / shares, nan=1.0, posinf=2.0), 0.5, 2.0)
    ratio[~reachable] = 0.0
    stepped = np.rint(weights * ratio).astype(np.int64)
    # Rounding must not stop a small weight from growing.
    stepped = np.where((ratio > 1) & (stepped == weights), weights + 1, stepped)
    return np.clip(stepped, 0, WEIGHT_LIMIT)


def _made_up_for(hot: Loads, least: float, most: float) -> Loads:
    """Hot loads cut to what a tail between `least` and `most` of every channel can make up for."""
    lower, upper = 0.0, float(hot.max()) + most
    for _ in range(50):
        line = (lower + upper) / 2
        over = np.clip(line - hot, least, most).sum() > 1
        lower, upper = (lower, line) if over else (line, upper)
    shares = np.clip(upper - hot, least, most)
    return shares.max() - shares


def _admit(weights: Weights, wanted: Loads) -> Weights:
    """Give channels without a weight the one that should bring them the tail they want."""
    fresh = weights == 0
    share = min(float(wanted.sum()), 0.9)
    if share > 0:
        present = max(int(weights.sum()), 1 if (~fresh).any() else 0)
        total = present * share / (1 - share) if present else REPLICAS_DEFAULT * fresh.sum()
        weights = weights + np.rint(total * wanted / wanted.sum()).astype(np.int64)
    weights = np.minimum(weights, WEIGHT_LIMIT)
    return weights if weights.any() else np.full_like(weights, REPLICAS_DEFAULT)


def _targets(shares: Loads, hot: Loads, line: float, goal: float) -> Loads:
    """Tail shares that put every channel inside the band around the line, with the least change.

    Outside: to the nearest edge. Then the sum is put right by lowering the highest or raising the lowest.
    """
    # A little inside of the goal, because the ring follows the targets only roughly.
    reach = 1 + 0.8 * (goal - 1)
    low, high = 2 * line / (1 + reach), 2 * line * reach / (1 + reach)
    targets = np.maximum(np.clip(shares + hot, low, high) - hot, 0.0)
    if targets.sum() > 1:
        lower, upper = 0.0, high
        for _ in range(40):
            middle = (lower + upper) / 2
            over = np.minimum(targets, np.maximum(middle - hot, 0.0)).sum() > 1
            lower, upper = (lower, middle) if over else (middle, upper)
        return np.minimum(targets, np.maximum(upper - hot, 0.0))
    lower, upper = low, float((hot + 1).max())
    for _ in range(40):
        middle = (lower + upper) / 2
        over = np.maximum(targets, middle - hot).sum() > 1
        lower, upper = (lower, middle) if over else (middle, upper)
    return np.maximum(targets, lower - hot)
