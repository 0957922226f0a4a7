"""The clocks that an epoch looks at: the driver and its tasks ask here, never the machine.

What runs epochs in virtual time puts a clock of its own in this place; everything else has the machine's.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time of day, and how long things take."""

    def now_s(self) -> float:
        """Seconds since 1970, as the host has them."""

    def passing_s(self) -> float:
        """Seconds on a clock that only goes forward: differences of it are durations."""

    def processor_s(self) -> float:
        """Processor seconds of this process so far."""


class MachineClock:
    """The clocks of this machine."""

    def now_s(self) -> float:
        return time.time()

    def passing_s(self) -> float:
        return time.perf_counter()

    def processor_s(self) -> float:
        return time.process_time()


MACHINE_CLOCK = MachineClock()
