"""Three allocations of *Resources*: baseline, even, and the correlated one, its Algorithm 3.

`correlated` is the algorithm as printed, in its order and with its updates. Where the print leaves it open:

- A checkpoint's hosts are ordered by value, best first, the forbidden ones included (lines 3 to 6 ask for all). Its
  *sort value* is the difference between the host at its index and the next, as the text says; line 36 would store the
  value itself. Who has no next host is the most sensitive of all.
- The i-th best hosts (line 32) are all that have the value of the i-th. Among them the one with the least load behind
  its standbys goes first.
- A checkpoint that was refused everywhere goes to its best host that constraint 1 allows (lines 11 to 14), so that
  constraint 2 may be broken, and leaves the queue, which the print forgets. One that constraint 1 allows nowhere goes
  without.

A checkpoint is placed once and never again: where constraint 2 binds, others do better (`improve.py`).
"""

from __future__ import annotations

import math
from bisect import insort_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Generic

from anabranch.partitioning.allocating.allocation_problem import Allocation, AllocationProblem, Group, Host


def baseline(problem: AllocationProblem[Group, Host], chance: Random) -> dict[Group, tuple[Host, ...]]:
    """Hosts by chance; only constraint 1 is kept."""
    return {
        group: tuple(chance.sample([h for h in problem.hosts if problem.may_hold(group, h)], problem.copies(group)))
        for group in problem.owners
    }


def even(problem: AllocationProblem[Group, Host], chance: Random) -> dict[Group, tuple[Host, ...]]:
    """Hosts by chance, but none has more than ⌈standbys / hosts⌉ of them.

    Where all that have room are forbidden, others make room by moving on. If even that does not help (all groups run
    on one host, say), the host with the fewest standbys takes one more: constraint 1 goes before.
    """
    held: dict[Host, set[Group]] = {host: set() for host in problem.hosts}
    most = -(-problem.copies_total // max(1, len(problem.hosts)))
    wanted = [group for group in problem.owners for _ in range(problem.copies(group))]
    chance.shuffle(wanted)

    def allowed(group: Group) -> list[Host]:
        return [host for host in problem.hosts if problem.may_hold(group, host) and group not in held[host]]

    def place(group: Group, asked: set[Host]) -> bool:
        hosts = allowed(group)
        chance.shuffle(hosts)
        for host in hosts:
            if len(held[host]) < most:
                held[host].add(group)
                return True
        for host in hosts:
            if host not in asked:
                asked.add(host)
                for other in [each for each in wanted if each in held[host]]:
                    held[host].discard(other)
                    held[host].add(group)
                    if place(other, asked):
                        return True
                    held[host].discard(group)
                    held[host].add(other)
        return False

    for group in wanted:
        if not place(group, set()):
            held[min(allowed(group), key=lambda host: len(held[host]))].add(group)
    return {group: tuple(host for host in problem.hosts if group in held[host]) for group in problem.owners}


@dataclass
class _Checkpoint(Generic[Group, Host]):
    """One standby that is to be placed: its hosts, best first, and how many of them have refused it."""

    group: Group
    hosts: list[Host]
    values: list[float]
    index: int = 0
    sort_value: float = field(init=False)

    def __post_init__(self) -> None:
        self._weigh()

    def next_index(self) -> None:
        self.index += 1
        self._weigh()

    def _weigh(self) -> None:
        following = self.index + 1
        self.sort_value = self.values[following] - self.values[self.index] if following < len(self.values) else math.inf


def correlated(
    problem: AllocationProblem[Group, Host], kept: Allocation[Group, Host] | None = None
) -> dict[Group, tuple[Host, ...]]:
    """Algorithm 3: the most sensitive checkpoint first, each to the best host that both constraints allow.

    Parameters
    ----------
    kept
        Standbys that stay where they are; only what is missing is placed.
    """
    allocation: dict[Group, list[Host]] = {group: list((kept or {}).get(group, ())) for group in problem.owners}
    loads = problem.standby_loads({group: tuple(held_by) for group, held_by in allocation.items()})
    queue: list[_Checkpoint[Group, Host]] = []
    for group in problem.owners:
        costs = problem.costs[group]
        hosts = sorted(problem.hosts, key=costs.__getitem__)
        for _ in range(problem.copies(group) - len(allocation[group])):
            queue.append(_Checkpoint(group, hosts, [costs[host] for host in hosts]))
    queue.sort(key=lambda checkpoint: -checkpoint.sort_value)

    def safe(group: Group, hosts: Iterable[Host]) -> list[Host]:
        return [host for host in hosts if problem.may_hold(group, host, allocation[group])]

    while queue:
        checkpoint = queue.pop(0)
        group = checkpoint.group
        target: Host | None = None
        if checkpoint.index >= len(checkpoint.hosts):
            costs = problem.costs[group]
            target = min(safe(group, problem.hosts), key=lambda host: (costs[host], loads[host]))
        else:
            best = checkpoint.values[checkpoint.index]
            equal = [h for h, value in zip(checkpoint.hosts, checkpoint.values, strict=True) if value == best]
            for host in sorted(safe(group, equal), key=loads.__getitem__):
                if loads[host] + problem.loads[group] <= problem.load_max:
                    target = host
                    break
        if target is None:
            checkpoint.next_index()
            # What has the same sort value as others stays before them, as it does in a list that is sorted anew.
            insort_left(queue, checkpoint, key=lambda each: -each.sort_value)
        else:
            allocation[group].append(target)
            loads[target] += problem.loads[group]
    return {group: tuple(held_by) for group, held_by in allocation.items()}
