"""The partitioning function: an explicit map of hot keys; for all others a consistent hash of key groups, or a table.

    64-bit key hash ──┬─ is a hot key? ──────────────────────────────► its own channel
                      └─ else: top bits = key group ─► group table ──► the group's channel

The group table is the ring (ring.py) asked once for every group. It is derived: only the ring's weights and
the hot keys are kept and stored, so a function of 10 channels and 40 hot keys takes about half a kilobyte.

Or key groups are owned in *bundles*: ranges of neighbouring groups, each with its owner in a table. Then the group
table is that of the bundles, and the ring has nothing to say; its weights are only as many as there are channels.

Serial form, little endian, version 1; version 2 has a table of bundles:

    bytes 0–1   b"AP"            bytes 8–11   number of channels N        then N × uint32   weights
    byte  2     version          bytes 12–15  number of hot keys K             K × uint64   hashes, ascending
    byte  3     group bits       bytes 4–7    CRC-32 of all that follows       K × uint32   channels
                                                                     version 2: uint32      number of bundles B
                                                                                B × uint32   their channels
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.ring import REPLICAS_DEFAULT, Ring, RingHashes, even_weights
from anabranch.program.hashing import GROUP_BITS, key_groups

GROUP_BITS_MAX = 20

_MAGIC = b"AP"
_VERSION, _VERSION_WITH_BUNDLES = 1, 2
_HEADER = struct.Struct("<2sBBIII")
# For fewer the routing table, which has up to two megabytes, is not made: in small epochs, and of functions that are
# only asked where a few keys were.
_FEW_ROWS = 1024
# How many a process keeps with their tables: those of the regions that it works for.
_FUNCTIONS_KEPT = 8
_BLOCK_ROWS = 1 << 15  # the scratch arrays of one block stay in the second-level cache
_CELL_BITS_MIN, _CELL_BITS_MAX = 16, 20


@dataclass(frozen=True, eq=False)
class PartitioningFunction:
    """Which channel owns which key.

    Parameters
    ----------
    weights
        Replicas on the ring per channel; the number of channels is their number.
    hot_hashes
        The 64-bit hashes of the explicitly mapped keys, ascending and distinct.
    hot_channels
        Their channels.
    group_bits
        A key's group is this many top bits of its hash.
    bundle_channels
        The channel of each bundle of key groups; empty: the ring says whose a group is.

    Examples
    --------
    >>> function = PartitioningFunction.even(4).with_hot({7: 2})
    >>> function.route(np.array([7], dtype=np.uint64)).tolist()
    [2]
    >>> PartitioningFunction.from_bytes(function.to_bytes()) == function
    True
    """

    weights: tuple[int, ...]
    hot_hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))
    hot_channels: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    group_bits: int = GROUP_BITS
    bundle_channels: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, dtype=np.int32))

    def __post_init__(self) -> None:
        if not 1 <= self.group_bits <= GROUP_BITS_MAX:
            raise ValueError(f"group_bits lies in 1..{GROUP_BITS_MAX}, found {self.group_bits}")
        if len(self.weights) < 1:
            raise ValueError("a partitioning function needs at least 1 channel, found 0")
        if max(self.weights) < 1 or min(self.weights) < 0:
            raise ValueError(f"weights are not negative and not all 0, found {self.weights}")
        hashes = np.ascontiguousarray(self.hot_hashes, dtype=np.uint64)
        channels = np.ascontiguousarray(self.hot_channels, dtype=np.int32)
        if hashes.shape != channels.shape or hashes.ndim != 1:
            raise ValueError(f"every hot key needs one channel: {hashes.shape} keys, {channels.shape} channels")
        if len(hashes) and not (hashes[1:] > hashes[:-1]).all():
            raise ValueError("hot_hashes must be ascending and distinct; use with_hot() for any order")
        if len(hashes) and not 0 <= channels.min() <= channels.max() < len(self.weights):
            raise ValueError(
                f"hot keys must go to channels 0..{len(self.weights) - 1}, found {channels.min()}..{channels.max()}"
            )
        table = np.ascontiguousarray(self.bundle_channels, dtype=np.int32)
        if table.ndim != 1 or len(table) > self.groups:
            raise ValueError(f"{self.groups} key groups make at most as many bundles, found {table.shape}")
        if len(table) and not 0 <= table.min() <= table.max() < len(self.weights):
            raise ValueError(
                f"bundles must go to channels 0..{len(self.weights) - 1}, found {table.min()}..{table.max()}"
            )
        for name, array in (("hot_hashes", hashes), ("hot_channels", channels), ("bundle_channels", table)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "weights", tuple(int(weight) for weight in self.weights))

    @staticmethod
    def even(channels: int, *, replicas: int = REPLICAS_DEFAULT, group_bits: int = GROUP_BITS) -> PartitioningFunction:
        """Plain consistent hashing: no hot keys, channels of equal weight."""
        return PartitioningFunction(even_weights(channels, replicas), group_bits=group_bits)

    def with_hot(self, hot: Mapping[int, int]) -> PartitioningFunction:
        """This function with exactly the given hot keys: hash → channel."""
        hashes = np.fromiter(hot.keys(), dtype=np.uint64, count=len(hot))
        channels = np.fromiter(hot.values(), dtype=np.int32, count=len(hot))
        order = np.argsort(hashes)
        return PartitioningFunction(self.weights, hashes[order], channels[order], self.group_bits, self.bundle_channels)

    def with_bundles(self, channels: Sequence[int] | NDArray[np.integer]) -> PartitioningFunction:
        """This function with exactly this table: the channel of each bundle."""
        table = np.asarray(channels, dtype=np.int32)
        return PartitioningFunction(self.weights, self.hot_hashes, self.hot_channels, self.group_bits, table)

    @property
    def bundles(self) -> int:
        """How many bundles the key groups are owned in; 0: each by itself, by the ring."""
        return len(self.bundle_channels)

    @property
    def channels(self) -> int:
        """The number of channels."""
        return len(self.weights)

    @property
    def groups(self) -> int:
        """The number of key groups."""
        return 1 << self.group_bits

    def group_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The key group of every hash, whether the key is hot or not."""
        return key_groups(np.asarray(hashes, dtype=np.uint64), self.group_bits)

    def group_owners(self) -> NDArray[np.int32]:
        """The channel of every key group; a view that may not be written."""
        return self._owners

    def held_groups(self, channel: int) -> NDArray[np.bool_]:
        """The groups a channel may hold keys of, as a mask: those it owns, and those of its hot keys."""
        mask = self._owners == channel
        mask[self.group_of(self.hot_hashes[self.hot_channels == channel])] = True
        return mask

    @cached_property
    def _owners(self) -> NDArray[np.int32]:
        if self.bundles:
            owners = self.bundle_channels[bundle_of_groups(self.bundles, self.group_bits)]
        else:
            owners = Ring(self.weights).lookup(RingHashes.of_items(np.arange(self.groups, dtype=np.uint64)))
        owners.setflags(write=False)
        return owners

    @cached_property
    def _cells(self) -> tuple[np.uint64, NDArray[np.signedinteger], NDArray[np.uint64], NDArray[np.int32]]:
        """The routing table: the group table, cut finer, with a code for every cell, and what the codes mean.

        A code below the number of channels is the channel of the cell's keys. One above stands for a hot key: its
        hash and its channel are at that place of two small arrays. A cell is small enough that a tail key seldom
        shares one with a hot key, so the one random read per row usually settles it. Two hot keys in one cell are
        legal: `route` finds the other by search.
        """
        wanted = 2 * len(self.hot_hashes).bit_length() + 4
        bits = max(self.group_bits, min(max(wanted, _CELL_BITS_MIN), _CELL_BITS_MAX))
        shift = np.uint64(64 - bits)
        codes = self.channels + len(self.hot_hashes)
        # The table is read at random, so it should be small; without hot keys a code is what is returned.
        kind = np.int16 if len(self.hot_hashes) and codes < 1 << 15 else np.int32
        cells = np.repeat(self._owners.astype(kind), 1 << (bits - self.group_bits))
        cells[(self.hot_hashes >> shift).astype(np.int64)] = np.arange(self.channels, codes, dtype=kind)
        expected = np.concatenate([np.zeros(self.channels, dtype=np.uint64), self.hot_hashes])
        channels = np.concatenate([np.arange(self.channels, dtype=np.int32), self.hot_channels])
        return shift, cells, expected, channels

    def route(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The channel of every key hash."""
        hashes = np.ascontiguousarray(hashes, dtype=np.uint64)
        if len(hashes) <= _FEW_ROWS and "_cells" not in self.__dict__:
            return self._search(hashes)
        shift, cells, expected, channels = self._cells
        routed = np.empty(len(hashes), dtype=np.int32)
        for start in range(0, len(hashes), _BLOCK_ROWS):
            block = hashes[start : start + _BLOCK_ROWS]
            out = routed[start : start + _BLOCK_ROWS]
            # mode="clip" skips the bounds check; a shifted hash is always inside.
            if not len(self.hot_hashes):
                cells.take((block >> shift).view(np.int64), mode="clip", out=out)
                continue
            # Every row is compared with the hash of its code, also those of no hot key: rows are cheaper passed over
            # all together than picked out.
            codes = cells.take((block >> shift).view(np.int64), mode="clip")
            others = expected.take(codes, mode="clip") != block
            others &= codes >= self.channels
            channels.take(codes, mode="clip", out=out)
            if others.any():
                out[others] = self._search(block[others])
        return routed

    def _search(self, hashes: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Route by binary search among the hot keys: a few, or those in a cell of another hot key."""
        if not len(self.hot_hashes):
            return self._owners[self.group_of(hashes)]
        found = np.minimum(np.searchsorted(self.hot_hashes, hashes), len(self.hot_hashes) - 1)
        hot = self.hot_hashes[found] == hashes
        return np.where(hot, self.hot_channels[found], self._owners[self.group_of(hashes)])

    def is_hot(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of the hashes are explicitly mapped."""
        return np.isin(np.asarray(hashes, dtype=np.uint64), self.hot_hashes)

    def to_bytes(self) -> bytes:
        """The serial form; see the top of this file."""
        body = b"".join(
            (
                np.asarray(self.weights, dtype="<u4").tobytes(),
                self.hot_hashes.astype("<u8").tobytes(),
                self.hot_channels.astype("<u4").tobytes(),
                np.array([self.bundles, *self.bundle_channels], dtype="<u4").tobytes() if self.bundles else b"",
            )
        )
        counts = (self.channels, len(self.hot_hashes))
        checksum = zlib.crc32(struct.pack("<BII", self.group_bits, *counts) + body)
        version = _VERSION_WITH_BUNDLES if self.bundles else _VERSION
        return _HEADER.pack(_MAGIC, version, self.group_bits, checksum, *counts) + body

    @staticmethod
    def from_bytes(data: bytes) -> PartitioningFunction:
        """Read the serial form; raises ValueError for anything that `to_bytes` did not write."""
        return _from_bytes(bytes(data))

    @staticmethod
    def _parsed(data: bytes) -> PartitioningFunction:
        if len(data) < _HEADER.size:
            raise ValueError(f"a partitioning function has at least {_HEADER.size} bytes, found {len(data)}")
        magic, version, group_bits, checksum, channels, hot = _HEADER.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError(f"a partitioning function starts with {_MAGIC!r}, found {magic!r}")
        if version not in (_VERSION, _VERSION_WITH_BUNDLES):
            raise ValueError(
                f"this release reads partitioning functions of versions {_VERSION} and {_VERSION_WITH_BUNDLES}, "
                f"found {version}"
            )
        body = data[_HEADER.size :]
        expected = 4 * channels + 12 * hot
        table = np.frombuffer(body[expected:], dtype="<u4") if len(body) % 4 == 0 else np.empty(0, dtype="<u4")
        is_whole = len(body) == expected if version == _VERSION else len(table) > 1 and table[0] == len(table) - 1
        if not is_whole:
            raise ValueError(
                f"{channels} channels and {hot} hot keys take {expected} bytes and what the table of bundles takes, "
                f"found {len(body)}"
            )
        if zlib.crc32(struct.pack("<BII", group_bits, channels, hot) + body) != checksum:
            raise ValueError("the partitioning function is damaged: its checksum does not fit its content")
        weights = np.frombuffer(body, dtype="<u4", count=channels)
        hashes = np.frombuffer(body, dtype="<u8", count=hot, offset=4 * channels)
        targets = np.frombuffer(body, dtype="<u4", count=hot, offset=4 * channels + 8 * hot)
        return PartitioningFunction(
            tuple(weights.tolist()),
            hashes.astype(np.uint64),
            targets.astype(np.int32),
            group_bits,
            table[1:].astype(np.int32),
        )

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        # The tables are a quarter of a megabyte; a task is sent the few bytes they are derived from.
        return _from_bytes, (self.to_bytes(),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitioningFunction):
            return NotImplemented
        return self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        return (
            f"PartitioningFunction({self.channels} channels, {len(self.hot_hashes)} hot keys, "
            f"{self.groups} groups, " + (f"{self.bundles} bundles)" if self.bundles else f"weights {self.weights})")
        )


@lru_cache(maxsize=_FUNCTIONS_KEPT)
def bundle_of_groups(bundles: int, group_bits: int = GROUP_BITS) -> NDArray[np.int64]:
    """The bundle of each key group: as many ranges of neighbours, as equal as they can be; may not be written."""
    found = np.arange(1 << group_bits, dtype=np.int64) * bundles >> group_bits
    found.setflags(write=False)
    return found


@lru_cache(maxsize=_FUNCTIONS_KEPT)
def _from_bytes(data: bytes) -> PartitioningFunction:
    """A function from its serial form. Kept, so that the tasks of a process derive its tables once."""
    return PartitioningFunction._parsed(data)


def sharing(before: PartitioningFunction, after: PartitioningFunction) -> NDArray[np.bool_]:
    """Which old channels (rows) may hold keys that a new channel (columns) owns.

    Where a new owner has to look for the state of its keys. Exact for hot keys: to get one, a channel need not look at
    all that held keys of its group.
    """
    return _sharing(before.to_bytes(), after.to_bytes())


@lru_cache(maxsize=256)
def _sharing(one: bytes, other: bytes) -> NDArray[np.bool_]:
    # By serial forms: kept by the functions themselves, each answer would keep two of them, with all their tables.
    before, after = _from_bytes(one), _from_bytes(other)
    shared = np.zeros((before.channels, after.channels), dtype=bool)
    shared[before.group_owners(), after.group_owners()] = True
    hot = np.union1d(before.hot_hashes, after.hot_hashes)
    if len(hot):
        shared[before.route(hot), after.route(hot)] = True
    shared.setflags(write=False)
    return shared
