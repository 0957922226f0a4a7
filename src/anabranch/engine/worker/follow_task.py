"""The task that has a host follow the state of channels that run elsewhere: takes a moment, what it starts goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from anabranch.state.following import Following, Order
from anabranch.state.host_cache import HostCache
from anabranch.state.store import StateVersion

_FOLLOWING = Following()

Followed = tuple[str, int]
"""A region, and the number of a channel in it."""


@dataclasses.dataclass(frozen=True)
class FollowTask:
    """Says what a host lacks of the state of channels, and has it fetched in the background.

    Attributes
    ----------
    state : StateVersion
        The state that was committed.
    operators : mapping
        Region → its operators with state.
    bytes_per_s : int
        How much a host may fetch so.
    """

    state: StateVersion
    operators: Mapping[str, Sequence[str]]
    bytes_per_s: int

    def __call__(self, channels: Sequence[Followed], following: Following = _FOLLOWING) -> dict[Followed, int]:
        """What of each channel's state this host does not have, in bytes."""
        store = self.state.store
        assert store is not None, "there is nothing to follow where every process has a path to the checkpoint"
        cache = HostCache(self.state.root, self.state.cache)
        missing: dict[Followed, int] = {}
        wanted = []
        for region, number in channels:
            task = self.state(number)
            records = [
                record
                for operator in self.operators.get(region, ())
                for record in task.visible(operator)
                if not record.transient
            ]
            absent = [record for record in records if not cache.has(record.name)]
            missing[region, number] = sum(record.bytes for record in absent)
            wanted += absent
        following.order(Order(cache, store, wanted, self.bytes_per_s))
        return missing
