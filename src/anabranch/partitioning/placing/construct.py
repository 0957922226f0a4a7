"""From the current partitioning function and a period's workload to the next function.

Chooses the hot keys (δ), runs one of the constructions, and says what the result is expected to be like. The
number of channels may grow, shrink or stay. Where key groups are owned in bundles, `weigh` deals bundles and hot keys
(deal.py), and the paper's constructions place hot keys beside a table that is dealt evenly, as else beside a ring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.counting.workload import COMPUTATION, STATE, Workload
from anabranch.partitioning.function import PartitioningFunction, bundle_of_groups
from anabranch.partitioning.placing.deal import Pieces, deal
from anabranch.partitioning.placing.metrics import Imbalance, channel_loads, imbalance, slowdown
from anabranch.partitioning.placing.placement_problem import Placement, PlacementProblem
from anabranch.partitioning.placing.readj import readj
from anabranch.partitioning.placing.redist import redist
from anabranch.partitioning.placing.scan import scan
from anabranch.partitioning.placing.utility import Utility
from anabranch.partitioning.placing.weigh import weigh
from anabranch.partitioning.placing.weigh_problem import KEY_NARROWING, NARROWING_DEFAULT, WeighProblem
from anabranch.partitioning.resources import Resources
from anabranch.partitioning.ring import even_weights
from anabranch.partitioning.threshold import (
    EPSILON_PER_DELTA,
    SIGMA_DEFAULT,
    check_channels,
    deviation,
    refined_threshold,
)

_STICKY = 0.5
"""A hot key stays hot down to this share of δ: one that hovers around δ would go to and fro."""


class Construction(Enum):
    """How a partitioning function is built."""

    CONSISTENT = "consistent"
    SCAN = "scan"
    REDIST = "redist"
    READJ = "readj"
    WEIGH = "weigh"
    """Ours, the default."""


_NARROWING_EVEN = 0.2
"""The band of a function that knows no workload: the busiest channel within 2 % of the mean, at no more moves."""

_PLACEMENTS: Mapping[Construction, Callable[[PlacementProblem], Placement]] = {
    Construction.SCAN: scan,
    Construction.REDIST: redist,
    Construction.READJ: readj,
}


@dataclass(frozen=True)
class ConstructionSettings:
    """Everything that decides about a construction but the workload.

    Parameters
    ----------
    resources
        β and α of state, computation and communication.
    construction
        The algorithm.
    sigma
        σ: the share of the allowed imbalance left to keys that are not hot.
    utility
        U, for scan, redist and readj.
    knows_tail
        Whether scan, redist and readj see the load of the tail; by the paper's text they do not.
    narrowing
        How much of the tolerance the band of `weigh` takes.
    """

    resources: Resources = field(default_factory=Resources)
    construction: Construction = Construction.WEIGH
    sigma: float = SIGMA_DEFAULT
    utility: Utility = Utility.APM
    knows_tail: bool = False
    narrowing: float = NARROWING_DEFAULT


@dataclass(frozen=True, eq=False)
class Expectation:
    """What a function is expected to do with a workload."""

    loads: NDArray[np.float64]
    """Load of every channel (rows), one column per resource."""
    imbalance: Imbalance
    slowdown: float
    """Largest over mean load: how much longer all wait for the busiest channel."""


@dataclass(frozen=True, eq=False)
class Constructed:
    """A new function, and what it is expected to do and to cost."""

    function: PartitioningFunction
    threshold: float
    """δ, after post-processing."""
    expectation: Expectation
    state_moved: float
    """The share of all state that moves."""

    @property
    def relative_migration(self) -> float:
        """m: state that moves, over one channel's fair share."""
        return self.state_moved * self.function.channels


def construct(
    current: PartitioningFunction,
    workload: Workload,
    channels: int,
    settings: ConstructionSettings | None = None,
) -> Constructed:
    """Build the next partitioning function.

    Defined also for little knowledge: without frequencies the result has no hot keys; with one channel it
    has none either; if all keys are hot, the ring keeps its weights and serves keys not seen yet.

    Parameters
    ----------
    current
        The function in use; decides what would have to move.
    workload
        What is known about the keys.
    channels
        How many channels the new function is for, at least 1.
    """
    settings = settings or ConstructionSettings()
    check_channels(channels)
    delta = refined_threshold(
        settings.resources,
        channels,
        workload.frequencies,
        sigma=settings.sigma,
        domain=workload.keys_at_most,
    )
    if settings.construction is Construction.CONSISTENT:
        function = _without_hot(current, channels)
    else:
        hot = _choose_hot(current, workload, channels, delta, settings)
        ours = _dealt if current.bundles else _weighed
        build = ours if settings.construction is Construction.WEIGH else _placed
        function = build(current, workload, hot, channels, settings)
    return Constructed(
        function,
        delta,
        expect(function, workload, settings.resources),
        state_moved(current, function, workload, settings.resources),
    )


@lru_cache(maxsize=16)
def evened(channels: int, bundles: int = 0) -> PartitioningFunction:
    """The function a query begins with: no hot keys, the ring weighed so that groups are dealt evenly.

    With a number of bundles: these dealt in turn. Kept, since every region of every query begins with one.
    """
    if bundles:
        return PartitioningFunction.even(channels).with_bundles(np.arange(bundles) % channels)
    return resized(PartitioningFunction.even(channels), channels)


def resized(
    current: PartitioningFunction, channels: int, construction: Construction = Construction.WEIGH
) -> PartitioningFunction:
    """A function for another number of channels, when nothing is known about the keys."""
    settings = ConstructionSettings(construction=construction, narrowing=_NARROWING_EVEN)
    return construct(current, Workload.empty(), channels, settings).function


def expect(function: PartitioningFunction, workload: Workload, resources: Resources) -> Expectation:
    """The loads that a workload puts on the channels of a function."""
    loads = channel_loads(
        workload.key_loads(resources), function.route(workload.hashes), function.channels
    ) + channel_loads(workload.tail_loads(resources, function.group_bits), function.group_owners(), function.channels)
    balanced = workload.balanced(resources)
    return Expectation(loads, imbalance(loads, resources, balanced=balanced), slowdown(loads[:, list(balanced)]))


def state_moved(
    before: PartitioningFunction, after: PartitioningFunction, workload: Workload, resources: Resources
) -> float:
    """The share of all state that moves between two functions."""
    key_state = workload.key_loads(resources)[:, STATE]
    tail_state = workload.tail_loads(resources, before.group_bits)[:, STATE]
    moving = before.route(workload.hashes) != after.route(workload.hashes)
    moved = key_state[moving].sum() + tail_state[before.group_owners() != after.group_owners()].sum()
    total = key_state.sum() + tail_state.sum()
    return float(moved / total) if total > 0 else 0.0


def state_fetched_whole(
    before: PartitioningFunction, after: PartitioningFunction, workload: Workload, resources: Resources
) -> float:
    """What is fetched where who takes over a key fetches all of its old channel's state, as a share of all state.

    It may be more than all: each channel that takes something from two others fetches the state of both.
    """
    state = expect(before, workload, resources).loads[:, STATE]
    groups = np.stack([before.group_owners(), after.group_owners()])
    keys = np.stack([before.route(workload.hashes), after.route(workload.hashes)])
    pairs = np.unique(np.concatenate([groups, keys], axis=1), axis=1)
    fetched = state[pairs[0, pairs[0] != pairs[1]]].sum()
    return float(fetched / state.sum()) if state.sum() > 0 else 0.0


def _choose_hot(
    current: PartitioningFunction,
    workload: Workload,
    channels: int,
    delta: float,
    settings: ConstructionSettings,
) -> NDArray[np.bool_]:
    """Which known keys are to be mapped explicitly."""
    if channels == 1:
        return np.zeros(len(workload.hashes), dtype=bool)
    # A counter may be short by ε, so a key counted at δ - ε may be one of frequency δ.
    size = workload.frequencies / (delta * (1 - EPSILON_PER_DELTA))
    for column, measured in ((STATE, workload.state), (COMPUTATION, workload.computation)):
        if measured is not None:
            # Equation 16, in measured load.
            allowed = settings.sigma * deviation(settings.resources.tolerances[column], channels) / channels
            size = np.maximum(size, measured.keys / allowed)
    if settings.construction is Construction.WEIGH:
        return size >= np.where(current.is_hot(workload.hashes), _STICKY, 1.0)
    return size >= 1.0


def _weighed(
    current: PartitioningFunction,
    workload: Workload,
    is_hot: NDArray[np.bool_],
    channels: int,
    settings: ConstructionSettings,
) -> PartitioningFunction:
    resources, bits = settings.resources, current.group_bits
    hot = workload.only(is_hot)
    balanced = list(hot.balanced(resources))
    key_loads = hot.key_loads(resources)
    tail_loads = workload.tail_loads_beside(is_hot, resources, bits)
    all_state = max(float(key_loads[:, STATE].sum() + tail_loads[:, STATE].sum()), 1e-300)
    bounded = [resources.tolerances[k] for k in workload.bounded(resources)]
    placement, weights = weigh(
        WeighProblem(
            channels=channels,
            weights=current.weights,
            key_loads=key_loads[:, balanced],
            key_state=key_loads[:, STATE] / all_state,
            key_origins=current.route(hot.hashes),
            tail_loads=tail_loads[:, balanced],
            tolerances=np.asarray(resources.tolerances)[balanced],
            narrowing=settings.narrowing,
            key_ratio=1 + (min(bounded, default=np.inf) - 1) * KEY_NARROWING,
        )
    )
    return _function(tuple(weights.tolist()), hot.hashes, placement, bits)


def _dealt(
    current: PartitioningFunction,
    workload: Workload,
    is_hot: NDArray[np.bool_],
    channels: int,
    settings: ConstructionSettings,
) -> PartitioningFunction:
    resources, bits = settings.resources, current.group_bits
    hot = workload.only(is_hot)
    balanced = list(hot.balanced(resources))
    bundle_of = bundle_of_groups(current.bundles, bits)
    tail = channel_loads(workload.tail_loads_beside(is_hot, resources, bits), bundle_of, current.bundles)
    loads = np.concatenate([tail, hot.key_loads(resources)])
    goals = 1 + (np.asarray(resources.tolerances)[balanced] - 1) * settings.narrowing
    owners = np.concatenate([current.bundle_channels, current.route(hot.hashes)])
    dealt = deal(Pieces(loads[:, balanced], loads[:, STATE], owners), channels, goals)
    function = _function(even_weights(channels), hot.hashes, dealt[current.bundles :], bits)
    return function.with_bundles(dealt[: current.bundles])


def _without_hot(current: PartitioningFunction, channels: int) -> PartitioningFunction:
    """Key groups in equal numbers, whatever their load: the ring's way, or bundles that move as few as they can."""
    ring = PartitioningFunction.even(channels, group_bits=current.group_bits)
    if not current.bundles:
        return ring
    sizes = np.bincount(bundle_of_groups(current.bundles, current.group_bits)).astype(float)
    return ring.with_bundles(deal(Pieces(sizes[:, None], sizes, current.bundle_channels), channels, np.ones(1)))


def _placed(
    current: PartitioningFunction,
    workload: Workload,
    is_hot: NDArray[np.bool_],
    channels: int,
    settings: ConstructionSettings,
) -> PartitioningFunction:
    resources = settings.resources
    hot = workload.only(is_hot)
    balanced = list(hot.balanced(resources))
    ring = _without_hot(current, channels)
    key_loads = hot.key_loads(resources)
    dropped = workload.only(current.is_hot(workload.hashes) & ~is_hot)
    dropped_state = dropped.key_loads(resources)[:, STATE]
    dropped_moves = current.route(dropped.hashes) != ring.route(dropped.hashes)
    tail = None
    if settings.knows_tail:
        tail_loads = workload.tail_loads_beside(is_hot, resources, current.group_bits)
        tail = channel_loads(tail_loads[:, balanced], ring.group_owners(), channels)
    if not len(hot.hashes):
        return ring
    problem = PlacementProblem(
        channels=channels,
        frequencies=hot.frequencies,
        loads=key_loads[:, balanced],
        state=key_loads[:, STATE],
        origins=current.route(hot.hashes),
        fallback=ring.route(hot.hashes),
        deviations=np.array([deviation(resources.tolerances[k], channels) for k in balanced]),
        migration_base=float(dropped_state[dropped_moves].sum()),
        migration_ideal=float(key_loads[:, STATE].sum() + dropped_state.sum()) / channels,
        tail=tail,
        utility=settings.utility,
    )
    placed = _function(ring.weights, hot.hashes, _PLACEMENTS[settings.construction](problem), current.group_bits)
    return placed.with_bundles(ring.bundle_channels)


def _function(
    weights: tuple[int, ...], hashes: NDArray[np.uint64], placement: Placement, group_bits: int
) -> PartitioningFunction:
    order = np.argsort(hashes)
    return PartitioningFunction(weights, hashes[order], placement[order], group_bits)
