"""scan (Algorithm 2 of the paper): keys in the order of decreasing frequency, each to its best channel."""

from __future__ import annotations

import numpy as np

from anabranch.partitioning.placing.placement_problem import Placement, PlacementProblem


def scan(problem: PlacementProblem) -> Placement:
    """Place every key; O(keys × channels) with a vector of channels per key."""
    problem = problem.with_distinct_loads()
    channels = problem.channels
    loads = problem.base_loads()
    moved = problem.migration_base
    placement = np.empty(len(problem.frequencies), dtype=np.int32)
    everywhere = np.arange(channels)
    for key in np.argsort(-problem.frequencies, kind="stable"):
        load, state, origin = problem.loads[key], problem.state[key], problem.origins[key]
        mean = (loads.sum(axis=0) + load) / channels
        largest, smallest = extremes_with(loads, load[None, :])
        balance = problem.balance_penalty(largest[0], smallest[0], mean)
        migration = problem.migration_penalty(moved + state * (everywhere != origin))
        best = int(np.argmin(problem.utility.of(balance, migration)))
        placement[key] = best
        loads[best] += load
        moved += state * (best != origin)
    return placement


def extremes_with(loads: np.ndarray, extra: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the smallest load of all channels, if one channel got more.

    Parameters
    ----------
    loads
        Shape (channels, resources).
    extra
        What would be added, shape (keys, resources).

    Returns
    -------
    largest, smallest
        Shape (keys, channels, resources): for every key and every channel it could go to.
    """
    raised = loads[None, :, :] + extra[:, None, :]
    largest = np.maximum(raised, loads.max(axis=0))
    if len(loads) == 1:
        return largest, raised
    # The smallest of the other channels: the overall smallest, but for the smallest itself the runner-up.
    order = np.partition(loads, 1, axis=0)
    others = np.where(loads == order[0], order[1], order[0])
    return largest, np.minimum(raised, others)
