"""How good a partitioning is: imbalance r, relative imbalance b, relative migration m. Equations 2, 11, 12."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.resources import Resources

Loads = NDArray[np.float64]


def channel_loads(loads: Loads, owners: NDArray[np.integer], channels: int) -> Loads:
    """The load of every channel, one column per resource, from the loads and owners of items."""
    sums = [np.bincount(owners, weights=column, minlength=channels) for column in loads.T]
    # bincount answers with integers where there is nothing to count, whatever the weights are.
    return np.stack(sums, axis=1).astype(np.float64) if sums else np.empty((channels, 0))


def imbalances(loads: Loads) -> Loads:
    """R of every resource (column): the largest load of a channel (row) over the smallest.

    Infinite if some channel has nothing to do while another has; 1 if nobody has.
    """
    largest, smallest = loads.max(axis=0), loads.min(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = largest / smallest
    return np.where(largest <= 0, 1.0, np.where(smallest <= 0, np.inf, ratio))


@dataclass(frozen=True)
class Imbalance:
    """The imbalance of a partitioning."""

    ratios: tuple[float, float, float]
    """r of state, computation, communication."""
    relative: tuple[float, float, float]
    """b of each: r over its tolerance. At most 1 is within tolerance."""
    combined: float
    """b, Equation 11: the geometric mean of all three, constant resources included."""
    of_balanced: float
    """The same over the resources that are to be balanced: what the planner looks at. A constant resource would hide
    what goes on: it is even by itself, and always well within its tolerance."""


def imbalance(loads: Loads, resources: Resources, *, balanced: tuple[int, ...] | None = None) -> Imbalance:
    """The imbalance of channels (rows) with the given loads of the three resources (columns).

    Parameters
    ----------
    balanced
        Which resources are to be balanced; by default those that are not constant.
    """
    ratios = imbalances(loads)
    relative = ratios / np.asarray(resources.tolerances)
    chosen = relative[list(resources.balanced if balanced is None else balanced)]
    combined, of_balanced = (float(np.exp(np.log(each).mean())) for each in (relative, chosen))
    first, second, third = (float(ratio) for ratio in ratios)
    state, computation, communication = (float(ratio) for ratio in relative)
    return Imbalance((first, second, third), (state, computation, communication), combined, of_balanced)


def relative_migration(state: Loads, before: NDArray[np.integer], after: NDArray[np.integer], channels: int) -> float:
    """M: the state that moves, over one channel's fair share of all state.

    Parameters
    ----------
    state
        State of every item.
    before, after
        Channel of every item.
    channels
        The number of channels after (the reading of Equation 10 that reproduces the paper).
    """
    total = float(state.sum())
    return float(state[before != after].sum()) * channels / total if total > 0 else 0.0


def slowdown(loads: Loads) -> float:
    """The largest load over the mean load, worst resource: how much longer all wait for the busiest.

    This, not r, is what a region loses: a channel with too little to do costs only what others do for it.
    """
    mean = loads.mean(axis=0)
    used = mean > 0
    return float((loads.max(axis=0)[used] / mean[used]).max()) if used.any() else 1.0
