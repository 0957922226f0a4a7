"""Courses of load, fixed before anything was measured with them; *Resources* does not print its own.

A period is 30 s; a run has 96 of them, 48 minutes, the first 15 minutes for statistics. Loads are shares of a node.

Three families of 20 nodes, whose groups stand on them in turn; every group has a weight of its own (0.7 to 1.3), 5 %
noise, and rises and falls by 45 % of its mean in 20 minutes; the mean load of a node is 0.62, the threshold 0.8:

    anti-correlated   groups of odd nodes rise while those of even ones fall
    random phase      every group has a phase of its own
    uncorrelated      no group has to do with another: noise that is remembered for some periods

`airline_job` is that of Figures 7 to 9: three operators that follow the input on 16 nodes, and a fourth on 4 nodes that
takes a sample by the clock, so that its load is always the same. `simple_job`: two operators between which the data
are shifted, at a correlation of −1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anabranch.papers.resources.adapting import LoadCourse

PERIODS = 96
CYCLE = 40
"""Periods from one peak to the next: 20 minutes."""
NODES = 20
SWING = 0.45
NOISE = 0.05
MEAN_LOAD = 0.62
AIRLINE_LOAD = 0.55
"""Of the 16 nodes that follow the input; 0.62 at first, with which all nodes together had no room at the peak."""
FAMILIES = ("anti-correlated", "random phase", "uncorrelated")


def family_course(family: str, groups: int, seed: int) -> LoadCourse:
    """A course of one of the three families, with so many groups in all."""
    chance = np.random.default_rng(seed)
    homes = tuple(group % NODES for group in range(groups))
    time = 2 * np.pi * np.arange(PERIODS) / CYCLE
    shift = chance.uniform(0, 2 * np.pi)
    if family == "anti-correlated":
        swing = np.sin(time + shift + np.pi * (np.array(homes)[:, None] % 2))
    elif family == "random phase":
        swing = np.sin(time + chance.uniform(0, 2 * np.pi, (groups, 1)))
    elif family == "uncorrelated":
        swing = _remembered(chance, groups)
    else:
        raise ValueError(f"a family is one of {', '.join(FAMILIES)}, not {family!r}")
    return LoadCourse(_loads(chance, swing, homes, np.full(NODES, MEAN_LOAD)), homes, NODES)


def airline_job(groups: int, seed: int) -> LoadCourse:
    """Four operators with so many groups each."""
    chance = np.random.default_rng(seed)
    followers = [group % 16 for group in range(3 * groups)]
    homes = (*followers, *(16 + group % 4 for group in range(groups)))
    rate = np.sin(2 * np.pi * np.arange(PERIODS) / CYCLE + chance.uniform(0, 2 * np.pi))
    swing = np.concatenate([np.tile(rate, (3 * groups, 1)), np.zeros((groups, PERIODS))])
    means = np.array([AIRLINE_LOAD] * 16 + [0.3] * 4)
    return LoadCourse(_loads(chance, swing, homes, means), homes, NODES)


def simple_job() -> LoadCourse:
    """One second is a period; data go from operator 1 on node 1 to operator 2 on node 2, a hundredth each second."""
    share = np.clip(np.arange(130) - 30, 0, 100) / 100
    loads = np.concatenate([np.tile(0.06 * (1 - share), (10, 1)), np.tile(0.06 * share, (10, 1))])
    return LoadCourse(loads, (1,) * 10 + (2,) * 10, 3, external=(0.7, 0.0, 0.7))


def _loads(
    chance: np.random.Generator, swing: NDArray[np.float64], homes: tuple[int, ...], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Groups of one node share its mean load by their weights; then each follows its swing, and noise."""
    weights = chance.uniform(0.7, 1.3, len(homes))
    at = np.array(homes)
    # The mean holds over all nodes: one that has one group more than another has more load.
    each = np.array([means[node] for node in homes]) / np.array([_groups_per_node(at, means, node) for node in homes])
    noise = 1 + NOISE * chance.standard_normal(swing.shape)
    return np.maximum(0.0, (weights * each)[:, None] * (1 + SWING * swing) * noise)


def _groups_per_node(at: NDArray[np.int_], means: NDArray[np.float64], node: int) -> float:
    alike = np.flatnonzero(means == means[node])
    return float(np.isin(at, alike).sum() / len(alike))


def _remembered(chance: np.random.Generator, groups: int) -> NDArray[np.float64]:
    """As large as a sine, and as slow: what is remembered of the noise fades within a quarter of a cycle."""
    keep = float(np.exp(-4 / CYCLE))
    found = np.zeros((groups, PERIODS))
    found[:, 0] = chance.standard_normal(groups)
    for period in range(1, PERIODS):
        fresh = chance.standard_normal(groups)
        found[:, period] = keep * found[:, period - 1] + np.sqrt(1 - keep**2) * fresh
    return np.clip(found / np.sqrt(2), -1.0, 1.0)
