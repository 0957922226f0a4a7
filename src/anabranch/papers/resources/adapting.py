"""Nodes and key groups as loads, period by period: which migrations a checkpoint assists (section 7.2 of *Resources*).

There are no tuples here. A group has a course of load and is on a node; a node above the threshold is *overloaded*, and
a simple adaptation, once a period, takes groups off it until it is not:

    balance     the largest group that some node has room for. It goes, assisted, to the node that has its checkpoint if
                that has room, else to the node with the least load, directly
    scale out   if no node has room: a spare one, by direct migration
    scale in    if without the least loaded node all would be well below the threshold: its groups go elsewhere

An adaptation that *looks for checkpoints* chooses only among groups that can be assisted, if there are some. The paper
does not say which its own is.

After a migration the old owner's state is the checkpoint. *Lazy move*, for full checkpoints: where a migration would
not be assisted, the checkpoint goes to the target first, which takes a period, and then the group.

In the first periods nothing moves: loads are measured. Then checkpoints are allocated, and from there on everything is
counted. The correlated allocation is repaired every so many periods, by what was measured in as many periods as at the
beginning; the two others only place what a freed node had.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.allocating.allocate import baseline, correlated, even
from anabranch.partitioning.allocating.allocation_problem import CHANCE_STANDARD_ERRORS, AllocationProblem, score
from anabranch.partitioning.allocating.repair import handed_over, repaired

CORRELATED = ("correlated", "every digit")
"""Algorithm 3 where correlations that may be chance are 0, and with all that was measured."""
POLICIES = ("baseline", "even", *CORRELATED, "lazy move")


@dataclass(frozen=True, eq=False)
class LoadCourse:
    """A job: the load of every group in every period, as a share of a node, and where groups are at first."""

    loads: NDArray[np.float64]
    homes: tuple[int, ...]
    nodes: int
    external: tuple[float, ...] = ()
    """What others use of each node."""


@dataclass(frozen=True)
class Adapting:
    """How the adaptation works."""

    threshold: float = 0.8
    """Above this load a node is overloaded."""
    low: float = 0.5
    """Below this mean load, of those that would stay, a node is freed."""
    spare: int = 4
    nodes_min: int = 16
    measured: int = 30
    """Periods for statistics."""
    every: int = 10
    """Periods from one repair to the next."""
    load_factor: float = math.inf
    """Constraint 2 of the correlated allocation; infinite in the paper."""
    looks_for_checkpoints: bool = False
    epsilon: float = 0.1
    """When to repair: so much of the goal's score."""


@dataclass
class AdaptationCounts:
    """What was counted once checkpoints were allocated."""

    migrations: int = 0
    assisted: int = 0
    asked: int = 0
    """Groups on overloaded nodes, over all periods, before anything was moved."""
    usable: int = 0
    """… whose checkpoint's node could have taken them without being overloaded."""
    overloaded: int = 0
    """Nodes that were still overloaded at the end of a period."""
    standby_moves: int = 0
    """Checkpoints that were built elsewhere, by a repair or a lazy move."""
    nodes_most: int = 0

    @property
    def assisted_share(self) -> float:
        return self.assisted / self.migrations if self.migrations else math.nan

    @property
    def usable_share(self) -> float:
        return self.usable / self.asked if self.asked else math.nan


def adapt(course: LoadCourse, policy: str, settings: Adapting, seed: int, *, moving: bool = True) -> AdaptationCounts:
    """Run the course; without `moving` groups stay, and only usable checkpoints are counted."""
    if policy not in POLICIES:
        raise ValueError(f"a policy is one of {', '.join(POLICIES)}, not {policy!r}")
    run = _Run(course, policy, settings, seed)
    for period in range(settings.measured, course.loads.shape[1]):
        run.begin(period)
        if moving:
            run.balance()
            run.scale_in()
        run.end()
    return run.counted


class _Run:
    def __init__(self, course: LoadCourse, policy: str, settings: Adapting, seed: int) -> None:
        self._course, self._policy, self._settings = course, policy, settings
        self._chance = Random(seed)
        self._owners = dict(enumerate(course.homes))
        self._active = list(range(course.nodes))
        self._spare = list(range(course.nodes, course.nodes + settings.spare))
        self._external = [*course.external, *[0.0] * (course.nodes + settings.spare - len(course.external))]
        self._period = settings.measured
        self._standbys: dict[int, tuple[int, ...]] = {}
        self._lazy: dict[int, int] = {}
        """Checkpoints on their way: group to target."""
        self._loads = course.loads[:, 0]
        self.counted = AdaptationCounts(nodes_most=course.nodes)

    # ---- checkpoints ----

    def _problem(self) -> AllocationProblem[int, int]:
        since = max(0, self._period - self._settings.measured)
        series: dict[int, Any] = dict(enumerate(self._course.loads[:, since : self._period]))
        errors = 0.0 if self._policy == "every digit" else CHANCE_STANDARD_ERRORS
        return AllocationProblem.measured(
            series, self._owners, self._active, load_factor=self._settings.load_factor, standard_errors=errors
        )

    def _allocate(self) -> None:
        problem = self._problem()
        if not self._standbys:
            if self._policy in CORRELATED:
                self._standbys = correlated(problem)
            else:
                self._standbys = (baseline if self._policy == "baseline" else even)(problem, self._chance)
        elif self._policy in CORRELATED:
            epsilon = self._settings.epsilon * abs(score(problem, correlated(problem)))
            found = repaired(problem, self._standbys, epsilon)
            self._standbys = found.allocation
            self.counted.standby_moves += sum(move.target is not None for move in found.moves)

    def _replace_lost(self) -> None:
        """Checkpoints of a freed node go elsewhere: by chance, to the emptiest, or as Algorithm 3 says."""
        lost = [group for group, held_by in self._standbys.items() if held_by[0] not in self._active]
        if self._policy in CORRELATED:
            kept = {group: held_by for group, held_by in self._standbys.items() if group not in lost}
            self._standbys = correlated(self._problem(), kept)
        else:
            for group in lost:
                nodes = [node for node in self._active if node != self._owners[group]]
                held = [held_by[0] for held_by in self._standbys.values()]
                fewest = min(held.count(node) for node in nodes)
                if self._policy != "baseline":
                    nodes = [node for node in nodes if held.count(node) == fewest]
                self._standbys[group] = (self._chance.choice(nodes),)
        self.counted.standby_moves += len(lost)

    # ---- a period ----

    def begin(self, period: int) -> None:
        self._period = period
        self._loads = self._course.loads[:, period]
        if (period - self._settings.measured) % self._settings.every == 0:
            self._allocate()
        for group, target in self._lazy.items():
            if target != self._owners[group] and target in self._active:
                self._standbys[group] = (target,)
                self.counted.standby_moves += 1
        self._lazy.clear()
        self._node_loads = self._external.copy()
        for group, node in self._owners.items():
            self._node_loads[node] += self._loads[group]
        for group, node in self._owners.items():
            if self._node_loads[node] > self._settings.threshold:
                self.counted.asked += 1
                self.counted.usable += self._has_room(self._standbys[group][0], group)

    def end(self) -> None:
        self.counted.overloaded += sum(bool(self._node_loads[n] > self._settings.threshold) for n in self._active)
        self.counted.nodes_most = max(self.counted.nodes_most, len(self._active))

    def balance(self) -> None:
        crowded = [node for node in self._active if self._node_loads[node] > self._settings.threshold]
        for node in sorted(crowded, key=lambda each: -self._node_loads[each]):
            while self._node_loads[node] > self._settings.threshold and self._take_one_off(node):
                pass

    def _take_one_off(self, node: int) -> bool:
        """Move one group away from the node; false if none can go, or what goes must wait for its checkpoint."""
        groups = [group for group, owner in self._owners.items() if owner == node and group not in self._lazy]
        assisted = {group for group in groups if self._has_room(self._standbys[group][0], group)}
        others = sorted((each for each in self._active if each != node), key=self._node_loads.__getitem__)
        movable = [group for group in groups if group in assisted or (others and self._has_room(others[0], group))]
        if assisted and self._settings.looks_for_checkpoints:
            movable = list(assisted)
        if movable:
            group = max(movable, key=self._loads.__getitem__)
            if group in assisted:
                self._migrate(group, self._standbys[group][0])
                return True
            if self._policy == "lazy move":
                self._lazy[group] = others[0]
                return False
            self._migrate(group, others[0])
            return True
        if self._spare and groups:
            self._active.append(self._spare.pop(0))
            self._migrate(max(groups, key=self._loads.__getitem__), self._active[-1])
            return True
        return False

    def _has_room(self, node: int, group: int) -> bool:
        return node in self._active and bool(self._node_loads[node] + self._loads[group] <= self._settings.threshold)

    def _migrate(self, group: int, target: int) -> None:
        source = self._owners[group]
        assisted = self._standbys[group] == (target,)
        self.counted.migrations += 1
        self.counted.assisted += assisted
        self._standbys = handed_over(self._standbys | {group: (target,)}, group, old=source, new=target)
        self._owners[group] = target
        self._node_loads[source] -= self._loads[group]
        self._node_loads[target] += self._loads[group]

    def scale_in(self) -> None:
        if len(self._active) <= self._settings.nodes_min:
            return
        total = sum(self._node_loads[node] for node in self._active)
        node = min(self._active, key=self._node_loads.__getitem__)
        if total / (len(self._active) - 1) >= self._settings.low:
            return
        for group in [group for group, owner in self._owners.items() if owner == node]:
            target = self._standbys[group][0]
            if not self._has_room(target, group):
                others = [each for each in self._active if each != node]
                target = min(others, key=self._node_loads.__getitem__)
                if not self._has_room(target, group):
                    return
            self._migrate(group, target)
        self._active.remove(node)
        self._spare.insert(0, node)
        self._replace_lost()
