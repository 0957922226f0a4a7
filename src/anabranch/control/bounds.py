"""How few and how many channels a region may have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """The user's ``minChannels`` and ``maxChannels``, both included."""

    channels_min: int = 1
    channels_max: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.channels_min <= self.channels_max:
            raise ValueError(
                f"a region needs 1 <= minChannels <= maxChannels; got minChannels={self.channels_min}, "
                f"maxChannels={self.channels_max}"
            )

    def clamp(self, channels: int) -> int:
        return max(self.channels_min, min(self.channels_max, channels))
