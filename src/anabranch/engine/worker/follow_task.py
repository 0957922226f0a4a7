"""The task that has a host follow the state of bundles that are elsewhere: takes a moment, what it starts goes on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from anabranch.state.following import Copy, Following, Order
from anabranch.state.host_cache import HostCache
from anabranch.state.store import StateVersion

_FOLLOWING = Following()

Followed = tuple[str, int, int | None]
"""A region, the number of a channel in it, and one of its bundles; None: the channel is its bundle."""
Bundle = tuple[str, int]
"""A region, and the number of a bundle in it, or of a channel."""


@dataclasses.dataclass(frozen=True)
class FollowTask:
    """Says what a host lacks of the state of bundles, and has it fetched in the background.

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

    def __call__(self, bundles: Sequence[Followed], following: Following = _FOLLOWING) -> dict[Bundle, int]:
        """What of each bundle's state this host does not have, in bytes."""
        store = self.state.store
        assert store is not None, "there is nothing to follow where every process has a path to the checkpoint"
        cache = HostCache(self.state.root, self.state.cache)
        missing: dict[Bundle, int] = {}
        wanted: dict[str, Copy] = {}
        for region, number, bundle in bundles:
            absent: dict[str, Copy] = {}
            for operator in self.operators.get(region, ()):
                channel = self._channel(operator, number, bundle)
                if channel is None:
                    break  # it was wanted for what there was before the owners changed
                task = self.state(channel)
                for record in task.visible(operator):
                    if not record.transient:
                        slices = task.needed(record, None if bundle is None else {bundle})
                        copies = Copy.of(record, slices)
                        absent |= {each.kept: each for each in copies if not cache.has(each.kept)}
            else:
                missing[region, number if bundle is None else bundle] = sum(each.bytes for each in absent.values())
                wanted |= absent
        following.order(Order(cache, store, list(wanted.values()), self.bytes_per_s))
        return missing

    def _channel(self, operator: str, number: int, bundle: int | None) -> int | None:
        """Who has a bundle by now, or the channel itself; None: there is no such one any more."""
        function = self.state.owners[operator].function
        if bundle is not None:
            return int(function.bundle_channels[bundle]) if bundle < function.bundles else None
        return number if number < function.channels else None
