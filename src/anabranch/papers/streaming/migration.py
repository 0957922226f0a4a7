"""What must move when one partitioning function follows another.

State is kept per key group, and per hot key on its own. So between two functions three things can happen:
a group changes its channel (with all its keys but the hot ones), a hot key changes its channel, and a key
becomes hot or stops being hot, which takes its state out of its group or puts it back, even on one channel.

A replacement is judged by how much it moves against how much any replacement would have to. With the loads
b(c) of the channels before and fair shares after, the minimum is what stands above the fair share:

    before      5 5 0                 moved at least, for loads as even as they can be:
    fair share  10/3 each             Σ max(0, b(c) - fair(c)) = 10/3
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
        """The units that move from one channel to another."""
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
    """What moves when `after` takes the place of `before`."""
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


@dataclass(frozen=True, eq=False)
class Holdings:
    """How many keys there are: in every group, and of the hot keys given (which their groups do not count)."""

    groups: NDArray[np.int64]
    hot_hashes: NDArray[np.uint64]
    hot_keys: NDArray[np.int64]

    @staticmethod
    def of(
        hashes: NDArray[np.uint64], before: PartitioningFunction, after: PartitioningFunction | None = None
    ) -> Holdings:
        """The holdings of keys given by the hash they are routed by, for comparing two functions."""
        hot = before.hot_hashes if after is None else np.union1d(before.hot_hashes, after.hot_hashes)
        is_hot = np.isin(hashes, hot) if len(hot) else np.zeros(len(hashes), dtype=bool)
        return Holdings(
            np.bincount(before.group_of(hashes[~is_hot]), minlength=before.groups),
            hot,
            np.bincount(np.searchsorted(hot, hashes[is_hot]), minlength=len(hot)),
        )

    @property
    def keys(self) -> int:
        """All keys."""
        return int(self.groups.sum() + self.hot_keys.sum())

    def on_channels(self, function: PartitioningFunction, channels: int) -> NDArray[np.float64]:
        """How many keys every channel holds."""
        tail = np.bincount(function.group_owners(), weights=self.groups, minlength=channels)
        hot = np.bincount(function.route(self.hot_hashes), weights=self.hot_keys, minlength=channels)
        return (tail + hot).astype(np.float64)


@dataclass(frozen=True)
class MovedKeys:
    """What a replacement moves, in keys."""

    keys: int
    """All there are."""
    moved: int
    """Those whose channel changes."""
    minimum: float
    """The fewest that could, for channels that all hold the same number afterwards."""
    minimum_alike: float
    """The fewest that could, for channels that hold as many afterwards as they do."""

    @property
    def against_minimum(self) -> float:
        """Moved over the minimum for an even result; 1 if nothing had to move and nothing did."""
        if self.minimum:
            return self.moved / self.minimum
        return 1.0 if not self.moved else float("inf")


def moved_keys(before: PartitioningFunction, after: PartitioningFunction, holdings: Holdings) -> MovedKeys:
    """How many keys move between two functions, and how many would have to."""
    moves = migration(before, after)
    hot = np.searchsorted(holdings.hot_hashes, moves.keys.units)
    if not np.array_equal(holdings.hot_hashes, np.union1d(before.hot_hashes, after.hot_hashes)):
        raise ValueError("the holdings were counted for other functions: their hot keys differ")
    moved = int(holdings.groups[moves.groups.units].sum() + holdings.hot_keys[hot].sum())
    channels = max(before.channels, after.channels)
    was, will_be = holdings.on_channels(before, channels), holdings.on_channels(after, channels)
    fair = np.where(np.arange(channels) < after.channels, holdings.keys / after.channels, 0.0)
    return MovedKeys(
        keys=holdings.keys,
        moved=moved,
        minimum=float(np.maximum(was - fair, 0.0).sum()),
        minimum_alike=float(np.maximum(was - will_be, 0.0).sum()),
    )
