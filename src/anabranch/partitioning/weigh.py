"""
Our construction, the default: hot keys placed, and the ring weighed to make up for them.

The paper's constructions leave the ring alone, so every channel has about the same tail (all keys that are
not hot), and the channel that must take the hottest key is overloaded for good: with z = 1 and 10 channels
by 0.0695 on top of a tail of 0.070, against 0.095 elsewhere. That is an imbalance of 1.47 however well the
other hot keys are placed. We know the tail's load per key group, so we can do two more things: see the true
load of every channel, and give a channel with heavy keys fewer replicas on the ring, hence less tail.

Three steps, none of which looks at more than it needs:

1. hot keys    Stay where they are. While some channel could not be brought into the band even without any
               tail (or some resource is not carried by the tail, like quadratic computation), the best move
               or swap of a hot key between the most and the least loaded channel is made.
2. weights     Channels above or below the band get fewer or more replicas, until all are inside. Replicas
               never move, so a channel inside the band keeps nearly all its groups.
3. hot keys    Again, now with the loads that the weighed ring gives, for what the ring's grain leaves over.

The band is the tolerance α narrowed by `narrowing`: inside of it nothing is moved for beauty. That keeps
migration near the ideal, and leaves room until the next change.

Rejected: an explicit owner for every group. It balances and moves a few per cent better still, but makes the
function as large as the number of groups, to be stored with every epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.metrics import channel_loads
from anabranch.partitioning.problem import Placement
from anabranch.partitioning.ring import REPLICAS_DEFAULT, Places, WeighableItems

Loads = NDArray[np.float64]
Weights = NDArray[np.int64]

NARROWING_DEFAULT = 0.4
_WEIGHT_LIMIT = 2 * REPLICAS_DEFAULT
_WEIGHT_ROUNDS = 16
_HOT_STEPS = 64


@dataclass(frozen=True, eq=False)
class WeighProblem:
    """
    Hot keys to be placed and a ring to be weighed. Loads have one column per resource to be balanced.
    """

    channels: int
    weights: tuple[int, ...]
    """Weights of the current ring; its channels may be more or fewer than those wanted."""
    key_loads: Loads
    key_origins: Placement
    """Where every hot key is now; may be a channel that will not exist any more."""
    tail_loads: Loads
    """One row per key group."""
    tolerances: Loads
    """α of every balanced resource."""
    narrowing: float = NARROWING_DEFAULT

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

    def along_tail(self, loads: Loads) -> Loads:
        """
        Return loads as one number: what share of the whole tail would weigh the same on the channel.

        The tail is one lever for several resources; this is its least-squares pull over all of them.
        """
        pull = float(self.carried @ self.carried)
        return (loads / self.totals) @ self.carried / pull if pull > 0 else np.zeros(loads.shape[:-1])


def weigh(problem: WeighProblem) -> tuple[Placement, Weights]:
    """Return the channel of every hot key and the weight of every channel."""
    old_channels = len(problem.weights)
    placement = _first_placement(problem)
    weights = np.zeros(problem.channels, dtype=np.int64)
    kept = min(old_channels, problem.channels)
    weights[:kept] = np.minimum(problem.weights[:kept], _WEIGHT_LIMIT)
    if problem.channels == 1:
        return placement, np.maximum(weights, 1)
    has_tail = bool(problem.carried.max(initial=0.0) > 0)
    if has_tail:
        tail = _Tail(problem)
        placement = _greet(problem, placement)
        placement = _readjust(problem, placement, _Poured.of(problem, tail, weights))
        weights = _weigh_ring(problem, tail, placement, weights)
        placement = _readjust(problem, placement, _Fixed(tail.loads(weights)))
    else:
        weights[weights == 0] = REPLICAS_DEFAULT
        placement = _readjust(problem, placement, _Fixed(np.zeros((problem.channels, len(problem.totals)))))
    return placement, weights


def _first_placement(problem: WeighProblem) -> Placement:
    """Leave keys where they are; those of removed channels go, heaviest first, to the least loaded."""
    placement = problem.key_origins.astype(np.int32).copy()
    homeless = np.flatnonzero(placement >= problem.channels)
    settled = placement < problem.channels
    loads = channel_loads(problem.key_loads[settled], placement[settled], problem.channels) / problem.totals
    shares = problem.key_loads / problem.totals
    for key in homeless[np.argsort(-shares[homeless].max(axis=1, initial=0.0), kind="stable")]:
        target = int((loads + shares[key]).max(axis=1).argmin())
        placement[key] = target
        loads[target] += shares[key]
    return placement


def _greet(problem: WeighProblem, placement: Placement) -> Placement:
    """
    Give new channels their part of the hot keys, from the channels that have most of them.

    A new channel must be filled anyway, so this costs no migration beyond the ideal; without it hot keys
    would stay on the oldest channels, which would lose weight with every channel that joins.
    """
    placement = placement.copy()
    loads = problem.along_tail(problem.key_loads)
    hot = np.bincount(placement, weights=loads, minlength=problem.channels)
    mean = hot.mean()
    for channel in range(len(problem.weights), problem.channels):
        for key in np.argsort(-loads, kind="stable"):
            source = placement[key]
            if hot[channel] + loads[key] <= mean and hot[source] - loads[key] >= mean:
                placement[key] = channel
                hot[source] -= loads[key]
                hot[channel] += loads[key]
    return placement


class _Tail:
    """The tail's load on every channel, as a function of the ring's weights."""

    def __init__(self, problem: WeighProblem) -> None:
        self._problem = problem
        groups = Places.of_items(np.arange(len(problem.tail_loads), dtype=np.uint64))
        self._items = WeighableItems(groups, problem.channels, _WEIGHT_LIMIT)
        self._pulls = problem.along_tail(problem.tail_loads)

    def loads(self, weights: Weights) -> Loads:
        """Return the load of every channel, one column per resource."""
        return channel_loads(self._problem.tail_loads, self._items.owners(weights), self._problem.channels)

    def shares(self, weights: Weights) -> Loads:
        """Return the share of the tail every channel has, as one number; see `along_tail`."""
        owners = self._items.owners(weights)
        shares: Loads = np.bincount(owners, weights=self._pulls, minlength=self._problem.channels)
        return shares


def _water_level(hot: Loads, tail: float) -> Loads:
    """
    Return the level up to which a tail fills channels that already hold hot keys; channels run last.

    A channel that stands above the level gets nothing.
    """
    ascending = np.sort(hot, axis=-1)
    filled = np.cumsum(ascending, axis=-1)
    counts = np.arange(1, hot.shape[-1] + 1)
    levels = (tail + filled) / counts
    # With the m lowest channels filled, the level is right if it does not reach the next one.
    following = np.concatenate([ascending[..., 1:], np.full((*hot.shape[:-1], 1), np.inf)], axis=-1)
    right = (levels <= following).argmax(axis=-1)
    return np.take_along_axis(levels, right[..., None], axis=-1)[..., 0]


def _weigh_ring(problem: WeighProblem, tail: _Tail, placement: Placement, weights: Weights) -> Weights:
    """Return weights that bring all channels into the band, as far as hot keys and the ring's grain allow."""
    hot = problem.along_tail(channel_loads(problem.key_loads, placement, problem.channels))
    level = float(_water_level(hot, 1.0))
    reachable = hot < level
    goal = float(problem.goals.min())
    weights = _admit(weights, hot, level)
    best, best_spread = weights, np.inf
    for _ in range(_WEIGHT_ROUNDS):
        shares = tail.shares(weights)
        filled = (shares + hot)[reachable]
        spread = float(filled.max() / max(filled.min(), 1e-300)) if filled.size else 1.0
        excess = float(shares[~reachable].sum())
        if spread + excess < best_spread:
            best, best_spread = weights, spread + excess
        if spread <= goal and excess == 0:
            break
        targets = _targets(shares, hot, level, goal)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.clip(np.nan_to_num(targets / shares, nan=1.0, posinf=2.0), 0.5, 2.0)
        ratio[~reachable] = 0.0
        stepped = np.rint(weights * ratio).astype(np.int64)
        # Rounding must not stop a small weight from growing.
        stepped = np.where((ratio > 1) & (stepped == weights), weights + 1, stepped)
        weights = np.clip(stepped, 0, _WEIGHT_LIMIT)
        if not weights.any():
            break
    return best


def _admit(weights: Weights, hot: Loads, level: float) -> Weights:
    """Give channels without a weight the one that should bring them to the water level."""
    fresh = weights == 0
    wanted = np.where(fresh, np.maximum(level - hot, 0.0), 0.0)
    share = min(float(wanted.sum()), 0.9)
    if share > 0:
        present = max(int(weights.sum()), 1 if (~fresh).any() else 0)
        total = present * share / (1 - share) if present else REPLICAS_DEFAULT * fresh.sum()
        weights = weights + np.rint(total * wanted / wanted.sum()).astype(np.int64)
    weights = np.minimum(weights, _WEIGHT_LIMIT)
    return weights if weights.any() else np.full_like(weights, REPLICAS_DEFAULT)


def _targets(shares: Loads, hot: Loads, level: float, goal: float) -> Loads:
    """
    Return tail shares that put every channel inside the band around the level, with the least change.

    Outside: to the nearest edge. Then the sum is put right by lowering the highest or raising the lowest.
    """
    # A little inside of the goal, because the ring follows the targets only roughly.
    reach = 1 + 0.8 * (goal - 1)
    low, high = 2 * level / (1 + reach), 2 * level * reach / (1 + reach)
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


@dataclass(frozen=True, eq=False)
class _Fixed:
    """The tail as the weighed ring spreads it."""

    loads: Loads

    def add_to(self, hot: Loads) -> Loads:
        """Return the channels' whole loads, given those of the hot keys."""
        return hot + self.loads


@dataclass(frozen=True, eq=False)
class _Poured:
    """
    The tail before the ring is weighed: a new channel takes what it lacks, from all others in proportion.

    So a hot key that moves to a new channel makes it take less tail: load that has to move anyway moves as
    hot keys from the channels that have many of them, and no channel ends up with an extreme weight.
    """

    problem: WeighProblem
    shares: Loads
    """Tail of every channel under the current weights; nothing for new channels."""
    fresh: NDArray[np.bool_]

    @staticmethod
    def of(problem: WeighProblem, tail: _Tail, weights: Weights) -> _Poured:
        shares = tail.shares(weights) if weights.any() else np.zeros(problem.channels)
        return _Poured(problem, shares, np.arange(problem.channels) >= len(problem.weights))

    def add_to(self, hot: Loads) -> Loads:
        """Return the channels' whole loads; shape (..., channels, resources), as given."""
        problem = self.problem
        along = problem.along_tail(hot)
        level = (1 + along.sum(axis=-1, keepdims=True)) / problem.channels
        taken = np.where(self.fresh, np.maximum(level - along, 0.0), 0.0)
        left = np.maximum(1 - taken.sum(axis=-1, keepdims=True), 0.0)
        poured = np.where(self.fresh, taken, self.shares * left)
        return hot + poured[..., None] * (problem.carried * problem.totals)


def _readjust(problem: WeighProblem, placement: Placement, tail: _Fixed | _Poured) -> Placement:
    """Move and swap hot keys between most and least loaded channels while that improves the balance."""
    placement = placement.copy()
    hot = channel_loads(problem.key_loads, placement, problem.channels)
    for _ in range(_HOT_STEPS):
        loads = tail.add_to(hot)
        now = float(_badness(problem, loads))
        if now <= 0:
            break
        best: tuple[float, int, int, int] | None = None
        for source, target in _pairs(problem, loads):
            step = _best_exchange(problem, placement, hot, tail, source, target)
            if step is not None and (best is None or step[0] < best[0]):
                best = step
        if best is None or best[0] >= now * (1 - 1e-9):
            break
        _, key, partner, target = best
        source = int(placement[key])
        hot[source] -= problem.key_loads[key]
        hot[target] += problem.key_loads[key]
        placement[key] = target
        if partner >= 0:
            hot[target] -= problem.key_loads[partner]
            hot[source] += problem.key_loads[partner]
            placement[partner] = source
    return placement


def _pairs(problem: WeighProblem, loads: Loads) -> set[tuple[int, int]]:
    """Return pairs (most loaded, least loaded) per resource that is outside its band."""
    largest, smallest = loads.argmax(axis=0), loads.argmin(axis=0)
    outside = loads.max(axis=0) > problem.goals * loads.min(axis=0)
    return {(int(largest[k]), int(smallest[k])) for k in np.flatnonzero(outside) if largest[k] != smallest[k]}


def _badness(problem: WeighProblem, loads: Loads) -> Loads:
    """
    Return how far loads are outside the band, 0 inside; shape (..., channels, resources) gives (...).

    The sum over the resources of log(r / goal), where positive. Neighbouring values that only differ in
    channels which are not the largest or smallest are told apart by a small term of the variance.
    """
    floor = problem.totals * 1e-6
    largest, smallest = loads.max(axis=-2), np.maximum(loads.min(axis=-2), floor)
    outside = np.maximum(np.log(np.maximum(largest, floor) / smallest / problem.goals), 0.0).sum(axis=-1)
    spread = (loads / problem.totals).var(axis=-2).sum(axis=-1)
    return np.where(outside > 0, outside + 1e-3 * spread, 0.0)


def _best_exchange(
    problem: WeighProblem,
    placement: Placement,
    hot: Loads,
    tail: _Fixed | _Poured,
    source: int,
    target: int,
) -> tuple[float, int, int, int] | None:
    """Return (badness after, key, partner or -1, target) of the best move or swap from source to target."""
    givers, takers = np.flatnonzero(placement == source), np.flatnonzero(placement == target)
    if not givers.size:
        return None
    # Row 0 of the partners is "nobody": a plain move.
    partners = np.concatenate([[-1], takers])
    partner_loads = np.concatenate([np.zeros((1, problem.key_loads.shape[1])), problem.key_loads[takers]])
    shifted = (problem.key_loads[givers][:, None, :] - partner_loads).reshape(-1, partner_loads.shape[1])
    candidates = np.broadcast_to(hot, (len(shifted), *hot.shape)).copy()
    candidates[:, source] -= shifted
    candidates[:, target] += shifted
    loads = tail.add_to(candidates)
    badness = _badness(problem, loads)
    best = int(badness.argmin())
    giver, partner = divmod(best, len(partners))
    return float(badness[best]), int(givers[giver]), int(partners[partner]), target
