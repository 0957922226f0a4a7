"""redist (Algorithm 3 of the paper): at every step the key and the channel of the best utility per volume."""

from __future__ import annotations

import numpy as np

from anabranch.partitioning.placing.placement_problem import Placement, PlacementProblem
from anabranch.partitioning.placing.scan import extremes_with


def redist(problem: PlacementProblem) -> Placement:
    """Place every key; O(keys² × channels), each step one vectorised pass over keys left × channels."""
    problem = problem.with_distinct_loads()
    channels = problem.channels
    loads = problem.base_loads()
    moved = problem.migration_base
    placement = np.empty(len(problem.frequencies), dtype=np.int32)
    left = np.argsort(-problem.frequencies, kind="stable")
    moves = np.arange(channels)[None, :] != problem.origins[:, None]
    while len(left):
        extra = problem.loads[left]
        mean = (loads.sum(axis=0) + extra) / channels
        largest, smallest = extremes_with(loads, extra)
        balance = problem.balance_penalty(largest, smallest, mean[:, None, :])
        migration = problem.migration_penalty(moved + problem.state[left, None] * moves[left])
        utility = problem.utility.of(balance, migration) / problem.frequencies[left, None]
        at, best = divmod(int(np.argmin(utility)), channels)
        key = left[at]
        placement[key] = best
        loads[best] += problem.loads[key]
        moved += problem.state[key] * moves[key, best]
        left = np.delete(left, at)
    return placement
