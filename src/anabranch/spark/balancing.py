"""Which channel should own which keys: frequencies from the splitters, a planner per region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.partitioning.construct import resized
from anabranch.partitioning.function import PartitioningFunction


class Balancing:
    """The planners of all regions."""

    def observe(
        self, epoch: int, reports: Sequence[Mapping[str, Any]], functions: Mapping[str, PartitioningFunction]
    ) -> None:
        """Take in what splitters and channels reported of an epoch."""

    def function(
        self, region: str, current: PartitioningFunction, channels: int
    ) -> tuple[PartitioningFunction, str] | None:
        """The function a region should have from now on, and why; None: the one it has."""
        if channels == current.channels:
            return None
        return resized(current, channels), f"the number of channels changes from {current.channels} to {channels}"

    def to_facts(self) -> dict[str, Any]:
        """What a restarted driver needs to go on."""
        return {}

    def restore(self, facts: Mapping[str, Any]) -> None:
        """Go on from an earlier driver's facts."""
