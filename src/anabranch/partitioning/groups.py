"""The simplest partitioning function: key groups dealt out to channels in turn."""

from __future__ import annotations

import dataclasses

import numpy as np

from anabranch.partitioning.hashing import GROUP_COUNT, key_groups


@dataclasses.dataclass(frozen=True)
class EvenGroups:
    """Group g belongs to channel g mod N."""

    channels: int

    def route(self, hashes: np.ndarray) -> np.ndarray:
        """The channel of every hash."""
        return key_groups(hashes) % np.int32(self.channels)

    def groups(self, channel: int) -> np.ndarray:
        """Which groups a channel may hold keys of, as a mask over all groups."""
        return np.arange(GROUP_COUNT) % self.channels == channel
