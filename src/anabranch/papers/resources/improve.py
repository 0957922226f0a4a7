"""Ours, not the paper's: a local improvement of any allocation; and the optimum of small cases, to compare with.

Algorithm 3 places each checkpoint once. While constraint 2 does not bind that is optimal, as each then gets the best
host that constraint 1 allows. Where it binds, an early one takes the room that a later one needs more (as printed it
can be 40 % off, and can break the constraint although it could be kept). Three kinds of steps mend that:

    shift     a standby goes to another host
    exchange  two standbys change hosts
    push      a standby goes to a host from which another goes on to a third

The best step is taken until there is none. What is made smaller is first what there is too much of by constraint 2,
then the score. A step of Algorithm 3's order is cheap; here one costs (standbys)² · hosts at worst, so `improved` is
for some hundreds of standbys, and where the factor is infinite it has nothing to do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from random import Random
from typing import Generic

from anabranch.partitioning.allocating.allocate import correlated, even
from anabranch.partitioning.allocating.allocation_problem import Allocation, AllocationProblem, Group, Host, score

COMBINATIONS_MAX = 20_000_000
"""What `optimum` is asked for at most, before it cuts branches off."""
EVEN_STARTS = 24
"""Other beginnings, where constraint 2 can bind: from a single one the search ends where no step helps. So many for up
to `EVEN_STARTS_STANDBYS` standbys, fewer for more: there one is as good as another."""
EVEN_STARTS_STANDBYS = 20
_SMALLEST_GAIN = 1e-12


def improved(
    problem: AllocationProblem[Group, Host], starts: Iterable[Allocation[Group, Host]] = ()
) -> dict[Group, tuple[Host, ...]]:
    """The best of what local improvement makes of Algorithm 3's allocation, of `starts`, and of some even allocations.

    It is never worse than any of them: neither by what there is too much of, nor, if that is equal, by the score.
    """
    found: list[tuple[float, float, int, dict[Group, tuple[Host, ...]]]] = []
    more = EVEN_STARTS * EVEN_STARTS_STANDBYS // max(EVEN_STARTS_STANDBYS, problem.copies_total)
    scattered = () if math.isinf(problem.load_max) else (even(problem, Random(seed)) for seed in range(more))
    for start in (correlated(problem), *starts, *scattered):
        if problem.breaches(start):
            raise ValueError(f"no allocation to start from: {problem.breaches(start)[0]}")
        search = _Search(problem, start)
        while search.step():
            pass
        result = {group: tuple(held_by) for group, held_by in search.allocation.items()}
        found.append((round(problem.excess(result), 9), score(problem, result), len(found), result))
    return min(found)[-1]


_Change = tuple[Group, int, Host]
"""The standby of that number of the group goes to the host."""


class _Search(Generic[Group, Host]):
    """An allocation under improvement."""

    def __init__(self, problem: AllocationProblem[Group, Host], start: Allocation[Group, Host]) -> None:
        self._problem = problem
        self.allocation = {group: list(held_by) for group, held_by in start.items()}
        self._loads = problem.standby_loads(start)

    def step(self) -> bool:
        """Take the best step there is."""
        best: tuple[float, float] = (-_SMALLEST_GAIN, -_SMALLEST_GAIN)
        chosen: tuple[_Change[Group, Host], ...] = ()
        for changes in self._steps():
            worth = self._worth(changes)
            if worth < best and (worth[0] < -_SMALLEST_GAIN or worth[1] < -_SMALLEST_GAIN):
                best, chosen = worth, changes
        for group, number, target in chosen:
            self._loads[self.allocation[group][number]] -= self._problem.loads[group]
            self._loads[target] += self._problem.loads[group]
            self.allocation[group][number] = target
        return bool(chosen)

    def _worth(self, changes: tuple[_Change[Group, Host], ...]) -> tuple[float, float]:
        """What changes: the excess, then the score; (0, 0) where constraint 1 forbids it."""
        problem, shifted, gain = self._problem, dict[Host, float](), 0.0
        for group, number, target in changes:
            held_by = self.allocation[group]
            if not problem.may_hold(group, target, held_by):
                return 0.0, 0.0
            source = held_by[number]
            gain += problem.costs[group][target] - problem.costs[group][source]
            shifted[source] = shifted.get(source, 0.0) - problem.loads[group]
            shifted[target] = shifted.get(target, 0.0) + problem.loads[group]
        excess = 0.0
        if not math.isinf(problem.load_max):
            for host, change in shifted.items():
                load = self._loads[host]
                excess += max(0.0, load + change - problem.load_max) - max(0.0, load - problem.load_max)
        return (0.0 if abs(excess) < problem.load_max * 1e-9 else excess), gain

    def _steps(self) -> Iterator[tuple[_Change[Group, Host], ...]]:
        """Shifts, and pushes; an exchange is a push to where the first came from.

        The first of a push must be better off, or leave a host that has too much: otherwise the second alone would do.
        """
        problem = self._problem
        held: dict[Host, list[tuple[Group, int]]] = {host: [] for host in problem.hosts}
        for group, held_by in self.allocation.items():
            for number, host in enumerate(held_by):
                held[host].append((group, number))
        for source, standbys in held.items():
            crowded = self._loads[source] > problem.load_max
            for (group, number), target in itertools.product(standbys, problem.hosts):
                if not problem.may_hold(group, target, self.allocation[group]):
                    continue
                first = (group, number, target)
                yield (first,)
                better = problem.costs[group][target] < problem.costs[group][source]
                if math.isinf(problem.load_max) or not (better or crowded):
                    continue  # without constraint 2 a push is no better than its parts
                for (other, of_other), onward in itertools.product(held[target], problem.hosts):
                    if other != group and onward != target:
                        yield first, (other, of_other, onward)


def optimum(problem: AllocationProblem[Group, Host]) -> dict[Group, tuple[Host, ...]] | None:
    """The best allocation of all that keep both constraints; none if there is none.

    By trying all, but for branches that cannot become better: for small cases (the paper gave up 20 hosts and 7
    checkpoints after an hour and a half).
    """
    choices: list[list[tuple[float, tuple[Host, ...]]]] = []
    groups = sorted(problem.owners, key=lambda group: -problem.loads[group])
    for group in groups:
        hosts = [host for host in problem.hosts if problem.may_hold(group, host)]
        sets = itertools.combinations(hosts, problem.copies(group))
        costs = problem.costs[group]
        choices.append(sorted(((math.fsum(costs[h] for h in each), each) for each in sets), key=lambda found: found[0]))
    if math.prod(map(len, choices)) > COMBINATIONS_MAX:
        raise ValueError(f"{len(groups)} groups on {len(problem.hosts)} hosts are too many to try all allocations")
    # What the groups from each on cost at least.
    at_least = [0.0]
    for each in reversed(choices):
        at_least.append(at_least[-1] + each[0][0])
    at_least.reverse()
    best: tuple[float, list[tuple[Host, ...]] | None] = (math.inf, None)
    loads = dict.fromkeys(problem.hosts, 0.0)
    chosen: list[tuple[Host, ...]] = []

    def search(at: int, cost: float) -> None:
        nonlocal best
        if at == len(groups):
            best = (cost, list(chosen))
            return
        load = problem.loads[groups[at]]
        for more, hosts in choices[at]:
            if cost + more + at_least[at + 1] >= best[0] - _SMALLEST_GAIN:
                break
            if all(loads[host] + load <= problem.load_max for host in hosts):
                for host in hosts:
                    loads[host] += load
                chosen.append(hosts)
                search(at + 1, cost + more)
                chosen.pop()
                for host in hosts:
                    loads[host] -= load

    search(0, 0.0)
    if best[1] is None:
        return None
    found = dict(zip(groups, best[1], strict=True))
    return {group: found[group] for group in problem.owners}
