"""How far time comes in an epoch, for operators that compute all keys at once: known before any tuple is looked at."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import numpy as np

from anabranch.program.event_time import LeastWatermark


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Where time advances, and to what.

    Attributes
    ----------
    places : numpy array
        Where it advances.
    values : numpy array
        How far it has come at the beginning, and at each place.
    watermark : LeastWatermark
        As the epoch leaves it.
    """

    places: np.ndarray
    values: np.ndarray
    watermark: LeastWatermark

    @classmethod
    def of(
        cls, watermark: LeastWatermark, events: Sequence[tuple[int, str, int]], clock: int | None = None
    ) -> Timeline:
        """From what happens between the tuples: (position, name of the watermark or "", value).

        Time may be that of a clock instead, which comes as the epoch begins.
        """
        ahead = copy.deepcopy(watermark)
        positions = np.array([position for position, _, _ in events], dtype=np.int64)
        if clock is not None:
            values = np.full(len(events), max(clock, watermark.value))
            ahead.value = max(clock, watermark.value) if events else watermark.value
        else:
            told, values = ahead.take_all([name for _, name, _ in events], [value for _, _, value in events])
            positions, values = positions[told], values[told]
        return cls(positions, np.concatenate([[watermark.value], values]), ahead)

    @property
    def advances(self) -> np.ndarray:
        """The places with the values there."""
        return np.column_stack([self.places, self.values[1:]])

    @property
    def begun(self) -> int:
        """How far it had come before."""
        return int(self.values[0])

    @property
    def last(self) -> int:
        """How far it comes."""
        return self.watermark.value

    def at(self, positions: np.ndarray) -> np.ndarray:
        """How far it has come at positions."""
        return self.values[np.searchsorted(self.places, positions)]
