"""The simplest partitioning function: key groups dealt out to channels in turn.

Checkpoints of the first format were written under it. It balances perfectly and moves nearly everything when
the number of channels changes, so queries now begin with `evened` (construct.py).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from anabranch.program.hashing import GROUP_COUNT, key_groups


@dataclasses.dataclass(frozen=True)
class EvenGroups:
    """Group g belongs to channel g mod N."""

    channels: int

    def route(self, hashes: np.ndarray) -> np.ndarray:
        """The channel of every hash."""
        return key_groups(hashes) % np.int32(self.channels)

    @property
    def hot_hashes(self) -> np.ndarray:
        """No key has a channel of its own."""
        return np.empty(0, dtype=np.uint64)

    def group_owners(self) -> np.ndarray:
        """The channel of every key group."""
        return (np.arange(GROUP_COUNT) % self.channels).astype(np.int32)

    def groups(self, channel: int) -> np.ndarray:
        """Which groups a channel may hold keys of, as a mask over all groups."""
        return np.arange(GROUP_COUNT) % self.channels == channel
