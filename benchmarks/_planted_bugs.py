"""Bugs as they happen, to be planted into the product and found by the simulator's swarm.

Each is a change of one function, a line or two; the code itself is not touched. `planted` puts a bug in place for the
length of a with block. They sit where an epoch is committed, where owners of keys are kept and changed, where state is
written, read and merged, where order is made, and where the driver decides.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np

from anabranch.control.bounds import Bounds
from anabranch.control.decision import Proposal
from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.epoch_size import EpochSize
from anabranch.control.policy_memory import PolicyMemory
from anabranch.engine.driver import committer as commit
from anabranch.engine.driver.balancing import Balancing
from anabranch.engine.driver.feedback import FeedbackStore
from anabranch.engine.worker import packets, stage, tasks, trails
from anabranch.engine.worker.exchange import Outbox
from anabranch.engine.worker.packets import Positions
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import resized
from anabranch.state import store, table
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.key_owners import KeyOwners, RegionOwners
from anabranch.state.rescale_requests import RescaleRequests


@dataclass(frozen=True)
class Bug:
    """One bug: what it is, and what to replace where."""

    component: str
    what: str
    targets: tuple[tuple[Any, str], ...]
    replacement: Callable[..., Any]


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have this bug in the code."""
    with ExitStack() as stack:
        for target, name in bug.targets:
            stack.enter_context(mock.patch.object(target, name, bug.replacement))
        yield


# -- commit --------------------------------------------------------------------------------

_manifests = Checkpoint._manifests


def _without_the_newest(self: Checkpoint) -> list[str]:
    return _manifests(self)[:-1]


def _never_recorded(self: Checkpoint, epoch: int) -> None:
    """What an epoch that runs again should see: what was recorded when it first began."""
    return None


def _cleans_nothing(self: Checkpoint) -> int:
    return 0


_commit = Checkpoint.commit


def _removes_at_once(self: Checkpoint, manifest: Any) -> None:
    """What a manifest stopped naming goes with it, though older manifests are kept."""
    _commit(self, manifest)
    for name in self._retired.pop(manifest.epoch, ()):
        self.files.delete(f"state/{name}")


# -- owners --------------------------------------------------------------------------------

_shares = RegionOwners.shares


def _new_channels_inherit_nothing(self: RegionOwners, record: Any, channel: int, route: Any) -> bool:
    earlier = [function.channels for at, function in self.earlier.items() if at < self.generation]
    return _shares(self, record, channel, route) and channel < max(earlier, default=channel + 1)


def _same_generation(self: KeyOwners, region: str, function: PartitioningFunction) -> KeyOwners:
    functions = {**self.functions, self.regions[region].generation: function}
    return dataclasses.replace(self, functions=functions)


_started = KeyOwners.started


def _a_restart_evens_out(self: KeyOwners, routes: Any, channels: Any) -> KeyOwners:
    """The functions of regions are made anew, under the numbers they had."""
    owners = _started(self, routes, channels)
    functions = dict(owners.functions)
    for region in owners.regions.values():
        known = functions[region.generation]
        functions[region.generation] = PartitioningFunction.even(known.channels, group_bits=known.group_bits)
    return dataclasses.replace(owners, functions=functions)


_route = PartitioningFunction.route


def _routes_by_the_next_group(self: PartitioningFunction, hashes: Any) -> Any:
    shifted = np.roll(self.group_owners(), -1)[self.group_of(hashes)]
    return np.where(self.is_hot(hashes), _route(self, hashes), shifted).astype(np.int32)


# -- state --------------------------------------------------------------------------------

_visible = store.visible
_compacted_segments = store.compacted_segments
_after_compaction = commit.after_compaction
_large_compactions = commit.large_compactions


def _oldest_first(*arguments: Any) -> Any:
    return _visible(*arguments)[::-1]


def _oldest_value_stays(segments: Any, *arguments: Any, **options: Any) -> Any:
    return _compacted_segments(list(segments)[::-1], *arguments, **options)


def _adopts_others_keys(segments: Any, *arguments: Any, **options: Any) -> Any:
    return _compacted_segments(segments, *arguments, **{**options, "keeps": None})


def _drops_what_came_since(records: Any, merged: Any) -> Any:
    """A merge made beside the epochs takes the place of what was written meanwhile, too."""
    found = _after_compaction(records, merged)
    return [record for record in found if record is merged or record.last <= merged.last]


def _leaves_out_the_newest(*arguments: Any, **options: Any) -> Any:
    """A channel that adopts what others wrote must take all it sees, or it hides what is newer."""
    found = []
    for operator, channel, records in _large_compactions(*arguments, **options):
        newest = max((r for r in records if r.channel != channel), key=lambda r: r.last, default=None)
        kept = [record for record in records if record is not newest]
        found.append((operator, channel, kept if kept else records))
    return found


def _always_unchanged(value: Any) -> bool:
    return True


# -- feedback --------------------------------------------------------------------------------

_keep = FeedbackStore.keep


def _keeps_all_but_one(self: FeedbackStore, epoch: int, tables: Any) -> Any:
    return _keep(self, epoch, [each.slice(0, max(each.num_rows - 1, 0)) for each in tables])


# -- order --------------------------------------------------------------------------------

_header = Outbox.header


def _forgets_the_last_piece(self: Outbox, pieces: Any) -> Any:
    return _header(self, list(pieces)[:-1] if len(pieces) > 1 else pieces)


def _in_the_order_of_arrival(self: Positions, piece: bytes) -> int:
    """Pieces are counted as their headers came, not as the source orders them."""
    total = 0
    for each, count in self._counts.items():
        if each == piece:
            return total
        total += count
    return total


_emission_index = trails.emission_index


def _by_the_first_number(numbers: Any) -> Any:
    return np.argsort(numbers[0], kind="stable")


def _counted_backwards(positions: Any) -> Any:
    return -_emission_index(positions)


# -- decisions --------------------------------------------------------------------------------


def _blind(self: PolicyMemory, congestion: float, options: Any) -> bool:
    return False


def _gives_nothing_back(self: DefaultPolicy, observation: Any, calm: str, branch: str = "hold") -> Proposal:
    return self._hold(observation, branch, calm)


def _not_clamped(self: Bounds, channels: int) -> int:
    return channels + 1


def _not_written(self: RescaleRequests, requests: Any) -> None:
    """What was asked for by hand is only in the driver's memory."""


_function = Balancing.function


def _one_channel_short(self: Balancing, region: str, current: Any, channels: int) -> Any:
    found = _function(self, region, current, channels)
    if found is None or found[0].channels == 1:
        return found
    return resized(found[0], found[0].channels - 1), found[1]


def _never_smaller(self: EpochSize, epoch: Any, budget: float) -> dict[str, float]:
    return {source: 2.0 * limit for source, limit in self.limits.items()}


BUGS = (
    Bug("commit", "a restart forgets the last commit", ((Checkpoint, "_manifests"),), _without_the_newest),
    Bug("commit", "an epoch that runs again has another time", ((Checkpoint, "begun"),), _never_recorded),
    Bug("commit", "what a crash leaves is never removed", ((Checkpoint, "clean"),), _cleans_nothing),
    Bug("commit", "segments go before the manifests that name them", ((Checkpoint, "commit"),), _removes_at_once),
    Bug("owners", "new channels inherit nothing", ((RegionOwners, "shares"),), _new_channels_inherit_nothing),
    Bug("owners", "another function under the same number", ((KeyOwners, "replaced"),), _same_generation),
    Bug("owners", "a restart makes functions anew", ((KeyOwners, "started"),), _a_restart_evens_out),
    Bug("owners", "tuples go where the next group is", ((PartitioningFunction, "route"),), _routes_by_the_next_group),
    Bug("state", "the oldest segment is asked first", ((store, "visible"),), _oldest_first),
    Bug("state", "a merge keeps the oldest value", ((store, "compacted_segments"),), _oldest_value_stays),
    Bug("state", "a merge keeps keys of others", ((store, "compacted_segments"),), _adopts_others_keys),
    Bug("state", "changes in place are not seen", ((table, "_is_unchanged"),), _always_unchanged),
    Bug("compaction", "a merge hides what came since", ((commit, "after_compaction"),), _drops_what_came_since),
    Bug("compaction", "a compaction leaves out the newest it inherited", ((commit, "large_compactions"),),
        _leaves_out_the_newest),
    Bug("feedback", "the last tuple sent back is lost", ((FeedbackStore, "keep"),), _keeps_all_but_one),
    Bug("order", "a header lacks a piece", ((Outbox, "header"),), _forgets_the_last_piece),
    Bug("order", "pieces are counted as they arrive", ((Positions, "base"),), _in_the_order_of_arrival),
    Bug("order", "only positions are compared", ((packets, "order_of"), (tasks, "order_of"), (trails, "order_of")),
        _by_the_first_number),
    Bug("order", "what one tuple made is counted backwards", ((stage, "emission_index"), (trails, "emission_index")),
        _counted_backwards),
    Bug("scaling", "congestion is never seen", ((PolicyMemory, "weigh_congestion"),), _blind),
    Bug("scaling", "no channel is given back", ((DefaultPolicy, "_contract"),), _gives_nothing_back),
    Bug("scaling", "bounds are not kept", ((Bounds, "clamp"),), _not_clamped),
    Bug("scaling", "what is asked by hand dies with the driver", ((RescaleRequests, "_write"),), _not_written),
    Bug("balancing", "a function for one channel fewer", ((Balancing, "function"),), _one_channel_short),
    Bug("sizing", "epochs only grow", ((EpochSize, "_wanted"),), _never_smaller),
)  # fmt: skip
