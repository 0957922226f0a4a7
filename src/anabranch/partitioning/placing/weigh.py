"""Our construction, the default: hot keys placed, and the ring weighed to make up for them.

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

import numpy as np

from anabranch.partitioning.placing.metrics import channel_loads
from anabranch.partitioning.placing.placement_problem import Placement
from anabranch.partitioning.placing.weigh_keys import FixedTail, PouredTail, readjust
from anabranch.partitioning.placing.weigh_problem import WeighProblem, Weights
from anabranch.partitioning.placing.weigh_ring import WEIGHT_LIMIT, Tail, weigh_ring
from anabranch.partitioning.ring import REPLICAS_DEFAULT


def weigh(problem: WeighProblem) -> tuple[Placement, Weights]:
    """The channel of every hot key and the weight of every channel."""
    weights = np.zeros(problem.channels, dtype=np.int64)
    kept = min(len(problem.weights), problem.channels)
    weights[:kept] = np.minimum(problem.weights[:kept], WEIGHT_LIMIT)
    if problem.channels == 1:
        return np.zeros(len(problem.key_loads), dtype=np.int32), np.maximum(weights, 1)
    if problem.carried.max(initial=0.0) <= 0:
        # Nothing but hot keys: the ring serves only keys not seen yet.
        weights[kept:] = REPLICAS_DEFAULT
        if not weights.any():
            weights[:] = REPLICAS_DEFAULT
        nothing = FixedTail(np.zeros((problem.channels, len(problem.totals))))
        return readjust(problem, _settle(problem, nothing), nothing), weights
    tail = Tail(problem)
    poured = PouredTail.of(problem, tail, weights)
    placement = _greet(problem, _settle(problem, poured))
    placement = readjust(problem, placement, poured, widely=False)
    weights = weigh_ring(problem, tail, placement, weights)
    return readjust(problem, placement, FixedTail(tail.loads(weights))), weights


def _settle(problem: WeighProblem, tail: FixedTail | PouredTail) -> Placement:
    """Leave keys where they are; those of removed channels go, heaviest first, to the least loaded."""
    placement = problem.key_origins.astype(np.int32)
    homeless = np.flatnonzero(placement >= problem.channels)
    settled = placement < problem.channels
    hot = channel_loads(problem.key_loads[settled], placement[settled], problem.channels)
    shares = problem.key_loads / problem.totals
    for key in homeless[np.argsort(-shares[homeless].max(axis=1, initial=0.0), kind="stable")]:
        loads = tail.add_to(hot) / problem.totals
        target = int((loads + shares[key]).max(axis=1).argmin())
        placement[key] = target
        hot[target] += problem.key_loads[key]
    return placement


def _greet(problem: WeighProblem, placement: Placement) -> Placement:
    """Give new channels their part of the hot keys, from channels that have more than the mean of them.

    A new channel must be filled anyway, so this costs no migration beyond the ideal; without it hot keys
    would stay on the oldest channels, which would lose weight with every channel that joins.
    """
    placement = placement.copy()
    loads = problem.along_tail(problem.key_loads)
    hot = channel_loads(loads[:, None], placement, problem.channels)[:, 0]
    mean = hot.mean()
    for channel in range(len(problem.weights), problem.channels):
        for key in np.argsort(-loads, kind="stable"):
            source, load = placement[key], loads[key]
            if hot[channel] + load <= mean <= hot[source] - load:
                placement[key] = channel
                hot[[source, channel]] += (-load, load)
    return placement
