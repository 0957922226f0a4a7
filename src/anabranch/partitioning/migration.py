"""
What must move when one partitioning function follows another.

State is kept per key group, and per hot key on its own. So between two functions three things can happen:
a group changes its channel (with all its keys but the hot ones), a hot key changes its channel, and a key
becomes hot or stops being hot, which takes its state out of its group or puts it back, even on one channel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.function import PartitioningFunction


@dataclass(frozen=True, eq=False)
class Moves:
    """Units of state that change their channel; the three arrays run in parallel."""

    units: NDArray[np.integer]
    """Group numbers, or key hashes."""
    sources: NDArray[np.int32]
    targets: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.units)

    def between(self, source: int, target: int) -> NDArray[np.integer]:
        """Return the units that move from one channel to another."""
        return self.units[(self.sources == source) & (self.targets == target)]


@dataclass(frozen=True, eq=False)
class Migration:
    """The difference between two partitioning functions."""

    groups: Moves
    """Key groups that move, without the keys that are hot before or after."""
    keys: Moves
    """Keys hot before or after, that move."""
    promoted: NDArray[np.uint64]
    """Keys that become hot: their state leaves the store of their group, on the source channel."""
    demoted: NDArray[np.uint64]
    """Keys that stop being hot: their state joins the store of their group, on the target channel."""

    @property
    def empty(self) -> bool:
        """Whether no unit changes its channel and no key its store."""
        return not (len(self.groups) or len(self.keys) or len(self.promoted) or len(self.demoted))


def migration(before: PartitioningFunction, after: PartitioningFunction) -> Migration:
    """Return what moves when `after` takes the place of `before`."""
    if before.group_bits != after.group_bits:
        raise ValueError(
            f"both functions must cut keys into the same groups: found {before.groups} groups before and "
            f"{after.groups} after; the number of groups is fixed when a query first starts"
        )
    old, new = before.group_owners(), after.group_owners()
    groups = np.flatnonzero(old != new)
    keys = np.union1d(before.hot_hashes, after.hot_hashes)
    sources, targets = before.route(keys), after.route(keys)
    moving = sources != targets
    return Migration(
        groups=Moves(groups, old[groups], new[groups]),
        keys=Moves(keys[moving], sources[moving], targets[moving]),
        promoted=np.setdiff1d(after.hot_hashes, before.hot_hashes, assume_unique=True),
        demoted=np.setdiff1d(before.hot_hashes, after.hot_hashes, assume_unique=True),
    )
