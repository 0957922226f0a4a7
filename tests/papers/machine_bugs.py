"""Bugs as they happen, to be planted into the merger, the controller, migration and partitioning, and found.

Each is a change of one method, a line or two; the code itself is not touched. `planted` puts a bug in place for the
length of a with block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from anabranch.control.decision import Proposal
from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.policy_memory import PolicyMemory
from anabranch.papers.machine import flows
from anabranch.papers.merging.merger_indexed import IndexedMerger
from anabranch.papers.merging.merger_numbered import NumberedMerger, RelaxedMerger, StrictMerger
from anabranch.papers.merging.merger_round_robin import RoundRobinMerger
from anabranch.papers.streaming import migration as migration_module
from anabranch.papers.streaming.migration import Migration, Moves
from anabranch.partitioning.function import PartitioningFunction


@dataclass(frozen=True)
class Bug:
    """One bug: what it is, and what to replace where."""

    component: str
    what: str
    target: Any
    name: str
    replacement: Callable[..., Any]


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have this bug in the code."""
    with mock.patch.object(bug.target, bug.name, bug.replacement):
        yield


# -- merger ----------------------------------------------------------------------------------------------------

_raise_floor = NumberedMerger._raise_floor


def _floor_one_too_high(self: NumberedMerger) -> int:
    floor = _raise_floor(self)
    self._floor = floor + 1
    return self._floor


def _relaxed_without_duplicates(self: RelaxedMerger, channel: int, item: Any) -> list[Any]:
    """Takes the duplicates of a number to be over with its first tuple."""
    released = _relaxed_push(self, channel, item)
    self._frontier[channel] = max(self._frontier[channel], item[0] + 1)
    return released


_relaxed_push = RelaxedMerger.push


def _backwards(self: StrictMerger) -> list[Any]:
    return _drain(self)[::-1]


_drain = StrictMerger._drain


def _copies_use_up_the_turn(self: RoundRobinMerger, channel: int, item: Any) -> None:
    self._turn = (self._turn + 1) % self.channels
    _drop_copy(self, channel, item)


_drop_copy = RoundRobinMerger._drop_copy


def _every_first_tuple_is_next(self: IndexedMerger, key: Any, value: Any) -> bool:
    return key[0] == self._last[0] + 1 or _is_next(self, key, value)


_is_next = IndexedMerger._is_next

# -- controller ------------------------------------------------------------------------------------------------


def _blind(self: PolicyMemory, congestion: float, options: Any) -> bool:
    return False


def _never_contracts(self: DefaultPolicy, observation: Any, calm: str, branch: str = "hold") -> Proposal:
    return self._hold(observation, branch, calm)


def _expands_fourfold(self: DefaultPolicy, observation: Any) -> Proposal:
    return Proposal(4 * observation.channels + 3, "expand", "congested")


def _has_no_patience(self: DefaultPolicy, observation: Any, calm: str, branch: str = "hold") -> Proposal:
    return Proposal(max(1, observation.channels - 1), "contract", calm)


# -- migration -------------------------------------------------------------------------------------------------

_migration = migration_module.migration


def _cut(moves: Moves, kept: Any) -> Moves:
    return Moves(moves.units[kept], moves.sources[kept], moves.targets[kept])


def _forgets_a_group(before: PartitioningFunction, after: PartitioningFunction) -> Migration:
    plan = _migration(before, after)
    return Migration(_cut(plan.groups, slice(1, None)), plan.keys, plan.promoted, plan.demoted)


def _sends_groups_elsewhere(before: PartitioningFunction, after: PartitioningFunction) -> Migration:
    plan = _migration(before, after)
    groups = Moves(plan.groups.units, plan.groups.sources, (plan.groups.targets + 1) % after.channels)
    return Migration(groups, plan.keys, plan.promoted, plan.demoted)


def _forgets_new_hot_keys(before: PartitioningFunction, after: PartitioningFunction) -> Migration:
    plan = _migration(before, after)
    return Migration(plan.groups, plan.keys, plan.promoted[:0], plan.demoted)


def _forgets_old_hot_keys(before: PartitioningFunction, after: PartitioningFunction) -> Migration:
    plan = _migration(before, after)
    return Migration(plan.groups, plan.keys, plan.promoted, plan.demoted[:0])


# -- partitioning ----------------------------------------------------------------------------------------------

_route = PartitioningFunction.route
_group_owners = PartitioningFunction.group_owners


def _last_group_wraps(self: PartitioningFunction, hashes: Any) -> Any:
    """Reads the group table one place too far."""
    routed = _route(self, hashes)
    shifted = np.roll(_group_owners(self), -1)[self.group_of(hashes)]
    return np.where(self.is_hot(hashes), routed, shifted).astype(np.int32)


def _owners_without_the_last_channel(self: PartitioningFunction) -> Any:
    """The ring of one channel fewer: an index that was not brought up to date."""
    if self.channels == 1:
        return _group_owners(self)
    return _group_owners(PartitioningFunction(self.weights[:-1], group_bits=self.group_bits))


def _new_keys_by_position(self: PartitioningFunction, hashes: Any) -> Any:
    """Keys of odd hash are dealt by where they stand in the batch."""
    routed = _route(self, hashes).copy()
    odd = np.flatnonzero(np.asarray(hashes) % np.uint64(2) == 1)
    routed[odd] = odd % self.channels
    return routed


BUGS = (
    Bug("merger", "the floor is one too high", NumberedMerger, "_raise_floor", _floor_one_too_high),
    Bug("merger", "duplicates of a number are taken to be over", RelaxedMerger, "push", _relaxed_without_duplicates),
    Bug("merger", "a copy of a punctuation uses up a turn", RoundRobinMerger, "_drop_copy", _copies_use_up_the_turn),
    Bug("merger", "a number's first tuple never waits", IndexedMerger, "_is_next", _every_first_tuple_is_next),
    Bug("merger", "what leaves together leaves backwards", StrictMerger, "_drain", _backwards),
    Bug("controller", "never sees congestion", PolicyMemory, "weigh_congestion", _blind),
    Bug("controller", "gives no channel back", DefaultPolicy, "_contract", _never_contracts),
    Bug("controller", "adds four times as many", DefaultPolicy, "_expand", _expands_fourfold),
    Bug("controller", "gives channels back without patience", DefaultPolicy, "_contract", _has_no_patience),
    Bug("migration", "one group that moves is forgotten", flows, "migration", _forgets_a_group),
    Bug("migration", "groups are sent to the next channel", flows, "migration", _sends_groups_elsewhere),
    Bug("migration", "keys that become hot stay in their group", flows, "migration", _forgets_new_hot_keys),
    Bug("migration", "keys that are no longer hot stay on their own", flows, "migration", _forgets_old_hot_keys),
    Bug("partitioning", "routes by the next group's entry", PartitioningFunction, "route", _last_group_wraps),
    Bug("partitioning", "group owners lag behind the ring", PartitioningFunction, "group_owners",
        _owners_without_the_last_channel),
    Bug("partitioning", "the route depends on the batch", PartitioningFunction, "route", _new_keys_by_position),
)  # fmt: skip
