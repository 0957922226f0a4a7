"""What is moved when an allocation has grown worse: a few standbys, one by one, never all.

Owners change with every migration, loads and their correlations with time, hosts come and go. *Resources*: if the score
is worse than that of Algorithm 3 by more than ε, those standbys are moved that improve it most, until it is not. Only
the score of the new allocation is taken, never the allocation: most of it may be as good as what is there, and a
standby that is built anew costs its whole state in bandwidth and is useless meanwhile.

Before that comes what is not a matter of score: a standby on a host that is gone, or that now runs the group, is none;
one too many is given up, the worst first; what is missing is placed as Algorithm 3 places it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

from anabranch.partitioning.allocating.allocate import correlated
from anabranch.partitioning.allocating.allocation_problem import Allocation, AllocationProblem, Group, Host, score


@dataclass(frozen=True)
class StandbyMove(Generic[Group, Host]):
    """One standby that goes from one host to another."""

    group: Group
    source: Host | None
    """Who gives it up; none: it was missing."""
    target: Host | None
    """Who builds it; none: it is one too many, or no standby any more."""
    gain: float
    """By how much the score falls."""


@dataclass(frozen=True)
class Repair(Generic[Group, Host]):
    """What is to be done, in this order, and what then is."""

    moves: tuple[StandbyMove[Group, Host], ...]
    allocation: dict[Group, tuple[Host, ...]]
    score_before: float
    """With what was missing already placed."""
    score_goal: float
    """Of Algorithm 3."""
    score_after: float


def handed_over(
    allocation: Allocation[Group, Host], group: Group, *, old: Host, new: Host
) -> dict[Group, tuple[Host, ...]]:
    """The allocation after a migration that a standby assisted: what the old owner had is the standby now."""
    changed = dict(allocation)
    changed[group] = tuple(old if host == new else host for host in allocation.get(group, ()))
    return changed


def repaired(
    problem: AllocationProblem[Group, Host], current: Allocation[Group, Host], epsilon: float
) -> Repair[Group, Host]:
    """Move the standbys that improve the score most, until it is within `epsilon` of Algorithm 3's.

    Constraint 2 is asked of every move, so it can end before: swaps are none of the paper's.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon is a difference of scores from 0 on, not {epsilon}")
    moves: list[StandbyMove[Group, Host]] = []
    kept = _valid(problem, current, moves)
    allocation = {group: list(held_by) for group, held_by in correlated(problem, kept).items()}
    for group, held_by in allocation.items():
        for host in held_by[len(kept[group]) :]:
            moves.append(StandbyMove(group, None, host, -problem.costs[group][host]))
    loads = problem.standby_loads({group: tuple(held_by) for group, held_by in allocation.items()})

    def improving() -> Iterator[tuple[float, Group, int, Host]]:
        for group, held_by in allocation.items():
            costs = problem.costs[group]
            for number, source in enumerate(held_by):
                for target in problem.hosts:
                    gain = costs[source] - costs[target]
                    fits = loads[target] + problem.loads[group] <= problem.load_max
                    if gain > 0 and fits and problem.may_hold(group, target, held_by):
                        yield gain, group, number, target

    before = now = score(problem, {group: tuple(held_by) for group, held_by in allocation.items()})
    goal = score(problem, correlated(problem))
    while now - goal > epsilon:
        best = max(improving(), key=lambda found: found[0], default=None)
        if best is None:
            break
        gain, group, number, target = best
        source = allocation[group][number]
        moves.append(StandbyMove(group, source, target, gain))
        allocation[group][number] = target
        loads[source] -= problem.loads[group]
        loads[target] += problem.loads[group]
        now -= gain
    after = {group: tuple(held_by) for group, held_by in allocation.items()}
    return Repair(tuple(moves), after, before, goal, score(problem, after))


def _valid(
    problem: AllocationProblem[Group, Host],
    current: Allocation[Group, Host],
    moves: list[StandbyMove[Group, Host]],
) -> dict[Group, tuple[Host, ...]]:
    """Those standbys that still are some; the others are told as moves to nowhere."""
    found: dict[Group, tuple[Host, ...]] = {}
    for group in problem.owners:
        costs = problem.costs[group]
        good: list[Host] = []
        for host in current.get(group, ()):
            if host in costs and problem.may_hold(group, host, good):
                good.append(host)
            elif host not in good:
                moves.append(StandbyMove(group, host, None, 0.0))
        good.sort(key=costs.__getitem__)
        copies = problem.copies(group)
        moves.extend(StandbyMove(group, host, None, costs[host]) for host in good[copies:])
        found[group] = tuple(good[:copies])
    return found
