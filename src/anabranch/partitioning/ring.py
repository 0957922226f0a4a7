"""A consistent hash of items (keys, or key groups) to channels, with a weight per channel.

Every channel stands at some points of a ring of 2**128 places; an item belongs to the channel of the first
point at or after the item's own place. A channel's weight is its number of points ("replicas"): point r of
channel c never moves, so a channel that goes from 1000 to 900 points gives up exactly the arcs of its last
100 points, and a channel that joins only takes.

    places      0 ─────────────────────────────────────────────── 2**128
    points        c1.7   c0.3      c2.0  c1.2        c0.9   c2.5
    buckets     |      |      |      |      |      |      |      |       top bits of the place
    first       0      1      2      2      4      4      5      6       first point of or after the bucket

A look-up reads `first` at the item's bucket and walks on while points lie before the item. There are several
buckets per point, so the expected walk is below one step: O(1), and vectorised over whole columns.

numpy has no 128-bit integers: a place is a pair (high, low) of uint64, compared in that order.

The places of points and of items are part of the serial form of a partitioning function (function.py): they
are recomputed from the numbers of channels and replicas when it is read, so they may never change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

REPLICAS_DEFAULT = 1000
"""Points of a channel of normal weight; the paper's number."""

_BUCKETS_PER_POINT = 4
_POINT_HIGH, _POINT_LOW = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
_ITEM_HIGH, _ITEM_LOW = 0x8CB92BA72F3D8DD7, 0xABC98388FB8FAC03

Unsigned = NDArray[np.uint64]
Channels = NDArray[np.int32]
Replicas = NDArray[np.int64]


def _mix(values: Unsigned, salt: int) -> Unsigned:
    """Splitmix64's finaliser of salted values: a bijection whose bits all look random."""
    mixed = values + np.uint64(salt)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


@dataclass(frozen=True, eq=False)
class RingHashes:
    """Places on the ring, high and low 64 bits apart."""

    high: Unsigned
    low: Unsigned

    @staticmethod
    def of_items(hashes: Unsigned) -> RingHashes:
        """The places of items known by a 64-bit hash (or any distinct number, such as a group's)."""
        hashes = np.asarray(hashes, dtype=np.uint64)
        return RingHashes(_mix(hashes, _ITEM_HIGH), _mix(hashes, _ITEM_LOW))

    @staticmethod
    def of_points(channels: NDArray[np.integer], replicas: NDArray[np.integer]) -> RingHashes:
        """The places of the given replicas of the given channels."""
        numbers = (channels.astype(np.uint64) << np.uint64(32)) | replicas.astype(np.uint64)
        return RingHashes(_mix(_mix(numbers, _POINT_HIGH), 0), _mix(_mix(numbers, _POINT_LOW), 0))

    def __len__(self) -> int:
        return len(self.high)

    def take(self, order: NDArray[np.integer]) -> RingHashes:
        """The places at the given indices."""
        return RingHashes(self.high[order], self.low[order])


@dataclass(frozen=True, eq=False)
class Points:
    """The sorted points of a ring: the place, the channel and the replica number of each.

    Parameters
    ----------
    weights
        How many points each channel has. Zero is allowed (the channel then owns no item), but not for all.
    """

    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("a ring needs at least 1 channel, found 0")
        if min(self.weights) < 0 or max(self.weights) >= 1 << 32:
            raise ValueError(f"a channel has between 0 and 2**32 - 1 replicas, found {self.weights}")
        if max(self.weights) == 0:
            raise ValueError("a ring needs at least one channel with at least 1 replica, found only zeros")

    @cached_property
    def _sorted(self) -> tuple[RingHashes, Channels, Replicas]:
        counts = np.asarray(self.weights, dtype=np.int64)
        channels = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        replicas = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        places = RingHashes.of_points(channels, replicas)
        order = np.argsort(places.high)
        ascending = places.high[order]
        if (ascending[1:] == ascending[:-1]).any():  # once in 2**37 rings of 10,000 points
            order = np.lexsort((places.low, places.high))
        return places.take(order), channels[order], replicas[order]

    @property
    def places(self) -> RingHashes:
        """The points' places, ascending."""
        return self._sorted[0]

    @property
    def channels(self) -> Channels:
        """The channel of every point, in the order of `places`."""
        return self._sorted[1]

    @property
    def replicas(self) -> Replicas:
        """The replica number of every point, in the order of `places`."""
        return self._sorted[2]

    @cached_property
    def _buckets(self) -> tuple[np.uint64, NDArray[np.int64], Unsigned, Unsigned]:
        points = self.places
        bits = max(1, (len(points) * _BUCKETS_PER_POINT - 1).bit_length())
        shift = np.uint64(64 - bits)
        occupancy = np.bincount((points.high >> shift).astype(np.int64), minlength=1 << bits)
        first = np.cumsum(occupancy) - occupancy
        # A last point that lies before no item ends every walk without a bounds check.
        end = np.array([0xFFFFFFFFFFFFFFFF], dtype=np.uint64)
        return shift, first, np.concatenate([points.high, end]), np.concatenate([points.low, end])

    def successors(self, items: RingHashes) -> NDArray[np.int64]:
        """For every item the index of the first point at or after it.

        The index equals the number of points for an item after the last point; that one wraps to point 0.
        """
        shift, first, high, low = self._buckets
        found = first[items.high >> shift]
        walking: NDArray[np.int64] | None = None
        while True:
            at = found if walking is None else found[walking]
            item_high = items.high if walking is None else items.high[walking]
            item_low = items.low if walking is None else items.low[walking]
            point_high = high[at]
            before = point_high < item_high
            before |= (point_high == item_high) & (low[at] < item_low)
            walking = np.flatnonzero(before) if walking is None else walking[before]
            if not walking.size:
                return found
            found[walking] += 1


@dataclass(frozen=True)
class Ring:
    """A consistent hash with a weight per channel.

    Parameters
    ----------
    weights
        Replicas per channel; the number of channels is their number.

    Examples
    --------
    >>> before, after = Ring.of(3), Ring.of(4)
    >>> items = RingHashes.of_items(np.arange(1000, dtype=np.uint64))
    >>> moved = before.lookup(items) != after.lookup(items)
    >>> set(after.lookup(items)[moved].tolist())
    {3}
    """

    weights: tuple[int, ...]

    @staticmethod
    def of(channels: int, replicas: int = REPLICAS_DEFAULT) -> Ring:
        """The ring of channels of equal weight."""
        if channels < 1:
            raise ValueError(f"a ring needs at least 1 channel, found {channels}")
        return Ring((replicas,) * channels)

    @cached_property
    def points(self) -> Points:
        """The sorted points."""
        return Points(self.weights)

    def lookup(self, items: RingHashes) -> Channels:
        """The channel of every item."""
        owners = self.points.channels
        return np.append(owners, owners[:1])[self.points.successors(items)]


class WeighableItems:
    """A fixed set of items, whose owners can be asked again and again under changing weights.

    A search over weights asks for the owners of the same items dozens of times. The successor of every item
    among all points a channel may ever have is found once; after that a question costs one pass over the
    points, without hashing, sorting or look-ups.
    """

    def __init__(self, items: RingHashes, channels: int, weight_limit: int) -> None:
        self._points = Points((weight_limit,) * channels)
        self._weight_limit = weight_limit
        self._successors = self._points.successors(items)

    def owners(self, weights: Sequence[int] | NDArray[np.integer]) -> Channels:
        """The channel of every item, exactly as `Ring(weights).lookup(items)` would."""
        limits = np.asarray(weights, dtype=np.int64)
        if limits.max() < 1 or limits.min() < 0 or limits.max() > self._weight_limit:
            raise ValueError(f"weights lie in 0..{self._weight_limit} and are not all 0, found {limits}")
        channels = self._points.channels
        standing = np.flatnonzero(self._points.replicas < limits[channels])
        # following[i]: which of the standing points is the first at or after point i, the last one wrapping.
        following = np.zeros(len(channels) + 1, dtype=np.int64)
        following[standing + 1] = 1
        following = np.cumsum(following)
        return channels[np.append(standing, standing[0])][following[self._successors]]


def even_weights(channels: int, replicas: int = REPLICAS_DEFAULT) -> tuple[int, ...]:
    """Equal weights; refuses fewer than one channel."""
    return Ring.of(channels, replicas).weights
