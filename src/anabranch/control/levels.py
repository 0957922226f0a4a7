"""Rapid scaling (P6): the paper's algorithm walks on levels, and a function maps a level to channels.

The ceiling printed in *Elastic* does not give the series printed beside it; the floor does:
floor(0.5 + 2 ** ((L + 1) / 2)) = 1, 2, 3, 4, 6, 8, 11, 16, 23, 32, ... for L = 0, 1, 2, ...
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from anabranch.control.bounds import Bounds

LevelFunction = Callable[[int], int]


def paper_levels(level: int) -> int:
    """The paper's rapid scaling: a factor of about √2 per level."""
    return max(1, math.floor(0.5 + 2 ** (0.5 * (level + 1))))


def doubling_levels(level: int) -> int:
    """Twice as many per level: 32 channels after 5 periods instead of 9, at coarser steps."""
    return int(2**level)


def single_levels(level: int) -> int:
    """No rapid scaling: one channel at a time."""
    return level + 1


LEVEL_FUNCTIONS: Mapping[str, LevelFunction] = {
    "paper": paper_levels,
    "doubling": doubling_levels,
    "single": single_levels,
}
"""By the names that the option ``levels`` has for them."""


def channels_of_levels(function: LevelFunction, bounds: Bounds) -> tuple[int, ...]:
    """Channels per level within the bounds; both bounds are levels too, to be reachable."""
    channels = {bounds.channels_min, bounds.channels_max}
    level = 0
    while (count := function(level)) <= bounds.channels_max:
        if count >= bounds.channels_min:
            channels.add(count)
        level += 1
        if function(level) < count:
            raise ValueError(
                f"a level function must not fall: level {level - 1} has {count} channels, level {level} has "
                f"{function(level)}"
            )
    return tuple(sorted(channels))


def level_of(channels: int, function: LevelFunction = paper_levels) -> int:
    """The lowest level with at least this many channels; how the SASO measures count overshoot."""
    level = 0
    while function(level) < channels:
        level += 1
    return level
