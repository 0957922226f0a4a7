"""What a region can do at each number of channels it has been saturated at.

The paper remembers the throughput of a level, which depends on the load, and so must guess when the load
has changed and forget. We remember the *capacity*, throughput / busy share, measured only while the region
was saturated: a property of the region alone. Neither a change of load nor a neighbour's rescaling makes it
wrong, only a change of the region itself (costlier tuples, a noisy machine, new executors), and that is
noticed where it happens: at the current number of channels, several periods in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

SAMPLES_MAX = 6  # beyond so many samples old ones fade: a running mean that follows slow change
CHANGE_SHARE = 0.2  # a capacity so far from the remembered one…
CHANGE_PERIODS = 3  # …so many periods in a row is a changed region, not noise


@dataclass(frozen=True, slots=True)
class Capacity:
    """Capacity at one number of channels: running mean, samples behind it, when last measured."""

    channels: int
    throughput: float
    samples: int
    period: int


class CapacityMemory:
    """Capacities by number of channels; one not measured for `age_max` periods is forgotten."""

    def __init__(self, age_max: int) -> None:
        self._age_max = age_max
        self._capacities: dict[int, Capacity] = {}
        self._deviating = 0

    def get(self, channels: int) -> Capacity | None:
        return self._capacities.get(channels)

    def fresh(self, period: int) -> list[Capacity]:
        """What was measured lately: older capacities are of a region that may be another by now."""
        return [known for known in self._capacities.values() if period - known.period <= self._age_max]

    def forget(self, channels: int) -> None:
        """Forget what so many channels were said to do."""
        self._capacities.pop(channels, None)

    def forget_above(self, channels: int) -> None:
        """Forget what more channels than this could do."""
        self._capacities = {n: known for n, known in self._capacities.items() if n <= channels}

    def record(self, channels: int, throughput: float, period: int) -> bool:
        """Add a measurement; True if it shows that the region is no longer the one that is remembered."""
        self._capacities = {n: known for n, known in self._capacities.items() if period - known.period <= self._age_max}
        known = self._capacities.get(channels)
        if known is None:
            self._deviating = 0
            self._capacities[channels] = Capacity(channels, throughput, 1, period)
            return False
        if known.samples == 1 and throughput > (1 + CHANGE_SHARE) * known.throughput:
            # The first period after a rescale can be slow for its own reasons: workers start, state is merged.
            self._capacities[channels] = Capacity(channels, throughput, 1, period)
            return False
        if abs(throughput - known.throughput) > CHANGE_SHARE * known.throughput:
            self._deviating += 1
            if self._deviating >= CHANGE_PERIODS:
                self._deviating = 0
                self._capacities = {channels: Capacity(channels, throughput, 1, period)}
                return True
            # An outlier, or the first sign of a change: in neither case does it belong in the mean.
            self._capacities[channels] = replace(known, period=period)
            return False
        self._deviating = 0
        samples = min(known.samples + 1, SAMPLES_MAX)
        mean = known.throughput + (throughput - known.throughput) / samples
        self._capacities[channels] = Capacity(channels, mean, samples, period)
        return False

    def to_dict(self) -> dict[str, Any]:
        capacities = [
            {"channels": n, "throughput": known.throughput, "samples": known.samples, "period": known.period}
            for n, known in sorted(self._capacities.items())
        ]
        return {"deviating": self._deviating, "capacities": capacities}

    def restore(self, state: dict[str, Any]) -> None:
        self._deviating = state["deviating"]
        self._capacities = {known["channels"]: Capacity(**known) for known in state["capacities"]}
