"""The placement problem that scan, redist and readj solve, with the paper's two penalties.

γ (Equation 18) is the state that moves, among the keys tracked before or after, over a fair share of theirs.
ρ (Equations 19 and 20) is, per resource, the distance between the most and the least loaded channel over the
distance allowed, θ L̄; then the geometric mean over the resources that are not constant.

Both are about keys placed so far. By the text, loads are those of the tracked keys alone. Given the load
that the tail (all other keys) puts on every channel, they are the channels' whole loads.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.placing.utility import Utility

Loads = NDArray[np.float64]
Placement = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Hot keys to be placed on channels.

    All arrays about keys run in parallel, most frequent key first.
    """

    channels: int
    frequencies: Loads
    loads: Loads
    """Load of every key, one column per balanced resource."""
    state: Loads
    """State of every key: what moving it costs."""
    origins: Placement
    """Where every key is now; may be a channel that will not exist any more."""
    fallback: Placement
    """Where the new ring would put every key."""
    deviations: Loads
    """θ of every balanced resource."""
    migration_base: float = 0.0
    """State that moves because keys are not tracked any more."""
    migration_ideal: float = 1.0
    """A fair share of the state of all keys tracked before or after."""
    tail: Loads | None = None
    """Load of the tail on every channel, one column per balanced resource; None: not known."""
    utility: Utility = Utility.APM
    exponents: Loads = field(default_factory=lambda: np.ones(1))
    """How much every resource counts in the geometric mean; set by `with_distinct_loads`."""

    def __post_init__(self) -> None:
        resources = self.loads.shape[1]
        if len(self.exponents) != resources:
            object.__setattr__(self, "exponents", np.full(resources, 1 / resources))

    def with_distinct_loads(self) -> PlacementProblem:
        """The same problem with resources of equal loads and tolerances put together.

        For LLL that is one column instead of three, and a third of the work.
        """
        tail = np.zeros((0, self.loads.shape[1])) if self.tail is None else self.tail
        columns = np.concatenate([self.deviations[None, :], self.loads, tail])
        _, first, members = np.unique(columns, axis=1, return_index=True, return_inverse=True)
        return replace(
            self,
            loads=self.loads[:, first],
            deviations=self.deviations[first],
            tail=None if self.tail is None else self.tail[:, first],
            exponents=np.array([self.exponents[members.ravel() == k].sum() for k in range(len(first))]),
        )

    def base_loads(self) -> Loads:
        """The channels' loads before any key is placed."""
        if self.tail is not None:
            return self.tail.copy()
        return np.zeros((self.channels, self.loads.shape[1]))

    def channel_loads(self, placement: Placement) -> Loads:
        """The channels' loads under a placement of all keys."""
        loads = self.base_loads()
        np.add.at(loads, placement, self.loads)
        return loads

    def balance_penalty(self, largest: Loads, smallest: Loads, mean: Loads) -> Loads:
        """Ρ from the loads of the most and the least loaded channel and the mean, resources last.

        A resource without any load, or that must be even to the last bit (θ = 0) and is, has no penalty.
        """
        spread, allowed = largest - smallest, mean * self.deviations
        with np.errstate(divide="ignore", invalid="ignore"):
            penalties = np.where(spread <= 0, 0.0, spread / allowed)
        if penalties.shape[-1] == 1:
            return penalties[..., 0]
        return (penalties**self.exponents).prod(axis=-1)

    def penalty_of_loads(self, loads: Loads) -> Loads:
        """Ρ of channels' loads: shape (..., channels, resources) gives shape (...)."""
        return self.balance_penalty(loads.max(axis=-2), loads.min(axis=-2), loads.mean(axis=-2))

    def migration_penalty(self, moved_state: Loads | float) -> Loads:
        """Γ of an amount of moved state, which includes `migration_base`."""
        return np.asarray(moved_state) / self.migration_ideal if self.migration_ideal > 0 else np.zeros(())

    def moved_state(self, placement: Placement) -> float:
        """The state that moves under a placement of all keys."""
        return self.migration_base + float(self.state[placement != self.origins].sum())
