"""How many channels each region should have: a controller per region, and what the user asks for by hand."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.errors import ProgramError

if TYPE_CHECKING:
    from anabranch.spark.adaptation import EpochFacts


class Scaling:
    """The controllers of all regions.

    Parameters
    ----------
    regions : sequence of str
        The regions that have channels by key; others have one for ever.
    """

    def __init__(self, regions: Sequence[str]) -> None:
        self.regions = tuple(regions)
        self._lock = threading.Lock()
        self._asked: dict[str, int] = {}

    def rescale(self, region: str, channels: int) -> None:
        """Ask for a number of channels by hand, from the next epoch on. May be called from any thread."""
        if region not in self.regions:
            raise ProgramError(f"rescale({region!r}): no such region; regions: {', '.join(self.regions) or 'none'}")
        if isinstance(channels, bool) or not isinstance(channels, int) or not 1 <= channels <= 4096:
            raise ProgramError(f"rescale({region!r}, {channels!r}): expected a whole number from 1 to 4096")
        with self._lock:
            self._asked[region] = channels

    def wanted(self, facts: EpochFacts, channels: Mapping[str, int]) -> dict[str, tuple[int, str]]:
        """For every region how many channels it should have from now on, and why it is another number."""
        with self._lock:
            asked, self._asked = self._asked, {}
        return {
            region: (asked.get(region, count), "asked for by hand" if region in asked else "")
            for region, count in channels.items()
        }

    def to_facts(self) -> dict[str, Any]:
        """What a restarted driver needs to go on."""
        return {}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Go on from an earlier driver's facts."""
