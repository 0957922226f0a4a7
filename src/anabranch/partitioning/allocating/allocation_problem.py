"""What an allocation of standbys is made from, what it costs, and what it may do.

The objective of *Resources*, to be made as small as possible: over all hosts h, standbys s on h and groups g that run
on h, the sum of

    correlation(load of the group of s, load of g) · load of the group of s

It is a sum over standbys: where one of them is does not change what another costs (`AllocationProblem.costs`). What
binds them together is only

    constraint 1   a standby is never on the host that runs its group, nor where its like is
    constraint 2   the load behind the standbys of one host is at most `load_factor` times the fair share, which is the
                   load behind all standbys over the number of hosts

The paper's own experiments have an infinite factor; the first constraint goes before the second. Where there are too
few hosts for all copies a group has fewer (`AllocationProblem.copies`), which is no error: who asks compares.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

Group = TypeVar("Group", bound=Hashable)
"""What moves as one: a group of keys, or a bundle of them."""
Host = TypeVar("Host", bound=Hashable)

Allocation = Mapping[Group, tuple[Host, ...]]
"""The hosts that hold a standby of each group."""

CHANCE_STANDARD_ERRORS = 2.0
"""Measured correlations of fewer standard errors are chance."""
ROUNDING = 1e-9
"""A part of the fair share that is no excess."""


@dataclass(frozen=True)
class AllocationProblem(Generic[Group, Host]):
    """What is known when standbys are allocated.

    Examples
    --------
    >>> problem = AllocationProblem(("x", "y", "z"), {"a": "x", "b": "y"}, {"a": 2.0, "b": 1.0}, {"a": {"b": -1.0}})
    >>> problem.costs["a"]
    {'x': 2.0, 'y': -2.0, 'z': 0.0}
    >>> problem.may_hold("a", "x"), problem.may_hold("a", "y")
    (False, True)
    """

    hosts: tuple[Host, ...]
    """Those that may hold standbys; among equals the first is taken."""
    owners: Mapping[Group, Host]
    """Who runs each group; it need not be one of `hosts` (a host that is to be freed, say)."""
    loads: Mapping[Group, float]
    """Of each group of `owners`, in any unit."""
    correlations: Mapping[Group, Mapping[Group, float]]
    """Of loads, −1 to 1; given for one order of a pair or for both. What is not there is 0, a group with itself 1."""
    standbys: int = 1
    """Copies of each group."""
    load_factor: float = math.inf
    """Constraint 2: how much more than its fair share a host may hold; at least 1."""

    def __post_init__(self) -> None:
        if len(set(self.hosts)) != len(self.hosts):
            raise ValueError(f"a host stands twice among the hosts: {list(self.hosts)}")
        if self.standbys < 0:
            raise ValueError(f"standbys is a number of copies from 0 on, not {self.standbys}")
        if not self.load_factor >= 1:
            raise ValueError(f"load_factor is at least 1 (all hosts hold the same), not {self.load_factor}")
        for group in self.owners:
            load = self.loads.get(group)
            if load is None or not 0 <= load < math.inf:
                raise ValueError(f"the load of group {group!r} is a finite number from 0 on, not {load}")

    @staticmethod
    def measured(
        series: Mapping[Group, Sequence[float]],
        owners: Mapping[Group, Host],
        hosts: Sequence[Host],
        *,
        standbys: int = 1,
        load_factor: float = math.inf,
        standard_errors: float = CHANCE_STANDARD_ERRORS,
    ) -> AllocationProblem[Group, Host]:
        """Loads and correlations from the load of every group in the same periods, oldest first.

        A group that was not measured, or always had the same load, is correlated with none; the load is the mean.
        A correlation of fewer than `standard_errors` (1 / √periods each) is chance, and counts as 0. *Resources* has
        hosts of equal value "often, when there is no correlation", among which the load behind standbys decides: but
        no measured correlation is ever just 0, and groups that are alike would all go to one host by the same noise.
        """
        return AllocationProblem(
            tuple(hosts),
            owners,
            {group: float(np.mean(series[group])) if len(series.get(group, ())) else 0.0 for group in owners},
            correlations_of({group: series[group] for group in owners if group in series}, standard_errors),
            standbys,
            load_factor,
        )

    @cached_property
    def costs(self) -> dict[Group, dict[Host, float]]:
        """What a standby of the group adds to the objective on each host."""
        running: dict[Host, list[Group]] = {host: [] for host in self.hosts}
        for group, owner in self.owners.items():
            if owner in running:
                running[owner].append(group)
        return {
            group: {
                host: self.loads[group] * math.fsum(self._correlation(group, other) for other in running[host])
                for host in self.hosts
            }
            for group in self.owners
        }

    def _correlation(self, group: Group, other: Group) -> float:
        if group == other:
            return 1.0
        nothing: Mapping[Group, float] = {}
        given = self.correlations.get(group, nothing).get(other)
        return given if given is not None else self.correlations.get(other, nothing).get(group, 0.0)

    def copies(self, group: Group) -> int:
        """How many standbys the group can have: fewer than wanted where there are too few hosts."""
        return min(self.standbys, len(self.hosts) - (self.owners[group] in self.hosts))

    @cached_property
    def copies_total(self) -> int:
        """How many standbys there can be of all groups."""
        return sum(map(self.copies, self.owners))

    @cached_property
    def load_max(self) -> float:
        """Constraint 2: the most load there may be behind the standbys of one host."""
        if math.isinf(self.load_factor) or not self.hosts:
            return math.inf
        total = math.fsum(self.loads[group] * self.copies(group) for group in self.owners)
        return self.load_factor * total / len(self.hosts) * (1 + ROUNDING)

    def may_hold(self, group: Group, host: Host, others: Sequence[Host] = ()) -> bool:
        """Constraint 1, for a host of `hosts`; `others` already hold standbys of the group."""
        return host != self.owners[group] and host not in others

    def standby_loads(self, allocation: Allocation[Group, Host]) -> dict[Host, float]:
        """The load behind the standbys of every host."""
        found = dict.fromkeys(self.hosts, 0.0)
        for group, held_by in allocation.items():
            for host in held_by:
                found[host] += self.loads[group]
        return found

    def excess(self, allocation: Allocation[Group, Host]) -> float:
        """By how much constraint 2 is broken, over all hosts; 0 where it is kept."""
        return math.fsum(max(0.0, load - self.load_max) for load in self.standby_loads(allocation).values())

    def breaches(self, allocation: Allocation[Group, Host]) -> list[str]:
        """What is wrong with an allocation by constraint 1, and which groups have not all the copies they can have."""
        found = []
        for group in self.owners:
            held_by = allocation.get(group, ())
            if len(held_by) != self.copies(group):
                found.append(f"{group!r} has {len(held_by)} standbys instead of {self.copies(group)}")
            for number, host in enumerate(held_by):
                if host not in self.hosts or not self.may_hold(group, host, held_by[:number]):
                    found.append(f"{group!r} may not have a standby on {host!r}")
        return found


def score(problem: AllocationProblem[Group, Host], allocation: Allocation[Group, Host]) -> float:
    """The objective of an allocation: the lower the better."""
    return math.fsum(problem.costs[group][host] for group, held_by in allocation.items() for host in held_by)


def correlations_of(
    series: Mapping[Group, Sequence[float]], standard_errors: float = 0.0
) -> dict[Group, dict[Group, float]]:
    """Pearson's correlation of every pair of series; of one that never changes it is 0, and so is what may be chance.

    Examples
    --------
    >>> correlations_of({"a": [1, 2, 3], "b": [6, 4, 2], "c": [5, 5, 5]})
    {'a': {'b': -1.0, 'c': 0.0}, 'b': {'c': 0.0}, 'c': {}}
    """
    groups = list(series)
    lengths = {len(series[group]) for group in groups}
    if len(lengths) > 1:
        raise ValueError(f"loads of different numbers of periods cannot be compared: {sorted(lengths)}")
    if not groups:
        return {}
    rows = np.array([series[group] for group in groups], dtype=float)
    if not np.isfinite(rows).all():
        raise ValueError("a load is a finite number")
    centred = rows - rows.mean(axis=1, keepdims=True) if rows.size else rows
    lengths_of_rows = np.linalg.norm(centred, axis=1, keepdims=True)
    # What rounding leaves of a constant series is no change.
    changing = lengths_of_rows > 1e-12 * np.abs(rows).sum(axis=1, keepdims=True)
    unit = np.divide(centred, lengths_of_rows, out=np.zeros_like(centred), where=changing)
    matrix = np.clip(unit @ unit.T, -1.0, 1.0).round(12) + 0.0
    matrix[np.abs(matrix) * math.sqrt(rows.shape[1]) < min(standard_errors, 0.9 * math.sqrt(rows.shape[1]))] = 0.0
    return {
        group: {groups[j]: float(matrix[i, j]) for j in range(i + 1, len(groups))} for i, group in enumerate(groups)
    }
