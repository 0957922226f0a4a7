"""The time a pool lives in: it looks at a clock, waits for chunks that end, and pauses before it calls again.

The machine's own, or a simulated one (`sim/operators`), in which the same pool runs over machines that are not there.
"""

from __future__ import annotations

import queue
import time
from typing import Protocol

from anabranch.engine.pool.work import Chunk


class PoolTime(Protocol):
    def passing_s(self) -> float:
        """Seconds on a clock that only goes forward."""

    def sleep(self, seconds: float) -> None:
        """Wait so long."""

    def ended(self, done: queue.SimpleQueue[Chunk], seconds: float) -> Chunk | None:
        """The next chunk that has ended; None if none does within so many seconds."""


class MachineTime:
    """The time of this machine."""

    passing_s = staticmethod(time.perf_counter)
    sleep = staticmethod(time.sleep)

    def ended(self, done: queue.SimpleQueue[Chunk], seconds: float) -> Chunk | None:
        try:
            return done.get(timeout=seconds)
        except queue.Empty:
            return None


MACHINE_TIME = MachineTime()
