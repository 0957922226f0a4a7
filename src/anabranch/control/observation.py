"""What a controller is told about one region after one adaptation period."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Observation:
    """One adaptation period of one region, as measured.

    ``channels`` is what the region really ran with. It may differ from what its controller last asked for
    (a rescale by hand, a migration that was put off), and then the controller goes on from what is real.
    """

    period: int
    """Number of the adaptation period, growing."""
    channels: int
    """Channels the region had during the period."""
    throughput: float
    """Tuples per second that passed the region, over the whole period."""
    congestion: float
    """Share of the period in which tuples stood ready and had to wait for this region, in [0, 1]."""
    busy_share: float
    """How much of the time it could have had the region worked, in [0, 1]; 1 is saturated."""
    remote: bool = False
    """Whether tuples waited for something downstream of the region, so that its channels are not to blame."""
    valid: bool = True
    """False for a period that says nothing: no tuples, warm-up, too few epochs."""
    offered: float | None = None
    """Tuples per second that arrived, handled or not; None where the source cannot tell."""
    busy_throughput: float | None = None
    """Tuples per second of the time in which the region itself worked. It does not depend on neighbours.
    None: derived as throughput / busy_share."""
    relative_error: float = 0.0
    """Standard error of the rates above, relative; signals.py measures it from the spread of the epochs."""

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("channels", self.channels, 1, math.inf),
            ("throughput", self.throughput, 0, math.inf),
            ("congestion", self.congestion, 0, 1),
            ("busy_share", self.busy_share, 0, 1),
            ("relative_error", self.relative_error, 0, math.inf),
        ):
            if not low <= value <= high:  # also refuses NaN
                raise ValueError(f"{name} of an observation must be in [{low}, {high}], got {value}")

    @property
    def capacity(self) -> float | None:
        """Throughput if the region were never idle: a property of its channels, not of the load."""
        if self.busy_throughput is not None:
            return self.busy_throughput
        return self.throughput / self.busy_share if self.busy_share > 0 else None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
