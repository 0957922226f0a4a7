"""Hot keys in parts: which part of its key a tuple belongs to.

A key with more than a channel's share of the tuples can be worked on by several channels where partial results
combine exactly. Its tuples are dealt out to parts 0, 1, …; all other keys have one part, 0. Which tuple goes to which
part does not matter for the result, so the driver may change its mind between any two epochs: like the time of an
epoch, what it decided is in the context of the epoch that runs (`epoch_context`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class HotKeyParts:
    """The hot keys of an operator, by hash, and in how many parts each is.

    `everything`: all keys are in so many parts; for tests.
    """

    hashes: np.ndarray
    ways: np.ndarray
    everything: int = 1

    @staticmethod
    def of(ways: Mapping[int, int], everything: int = 1) -> HotKeyParts:
        """From hash → parts."""
        hashes = sorted(ways)
        return HotKeyParts(
            np.array(hashes, dtype=np.uint64), np.array([ways[h] for h in hashes], dtype=np.int64), everything
        )

    def parts(self, hashes: np.ndarray) -> np.ndarray:
        """The part of each tuple of a batch, given by the hash of its key: dealt out in turn."""
        turn = np.arange(len(hashes))
        if self.everything > 1:
            return turn % self.everything
        if not len(self.hashes):
            return np.zeros(len(hashes), dtype=np.int64)
        at = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        return np.where(self.hashes[at] == hashes, turn % self.ways[at], 0)


NO_PARTS = HotKeyParts.of({})
