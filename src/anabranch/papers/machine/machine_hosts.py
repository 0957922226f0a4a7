"""Hosts at run time: how long a piece of work takes on a machine that is shared.

A host with more busy channels than free cores shares them out evenly. The share is looked up when a tuple's work
starts and holds until it is done: tuples are short against changes of load, and exact processor sharing
would have to revise every tuple under way whenever a channel starts or stops.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.papers.machine.description import Cluster, Host

_FREE_MIN = 0.05
"""However busy other tenants are, this much of one core is left."""


class HostState:
    """One host."""

    __slots__ = ("_is_plain", "alive", "busy", "host", "number")

    def __init__(self, number: int, host: Host) -> None:
        self.number = number
        self.host = host
        self.busy = 0
        self.alive = True
        self._is_plain = host.tenants == Host.tenants and not host.stalls

    def finish_time(self, now: float, work_s: float) -> float:
        """When work that starts now will be done; the caller is counted in `busy` already."""
        host = self.host
        if self._is_plain and self.busy <= host.cores:
            return now + work_s / host.speed
        free = max(host.cores - host.tenants(now), _FREE_MIN)
        if self.busy > free:
            work_s *= self.busy / free
        end = now + work_s / host.speed
        for stall in host.stalls:  # in the order of time
            if stall.at_s < end and now < stall.at_s + stall.length_s:
                end += stall.at_s + stall.length_s - max(now, stall.at_s)
        return end


def place(cluster: Cluster, hosts: Sequence[HostState], channels: int, taken: int) -> list[HostState]:
    """Hosts for the channels of a region, after so many channels of other regions."""
    alive = [host for host in hosts if host.alive]
    if not cluster.packed:
        return [alive[(taken + i) % len(alive)] for i in range(channels)]
    cores = [host for host in alive for _ in range(host.host.cores)]
    return [cores[(taken + i) % len(cores)] for i in range(channels)]
