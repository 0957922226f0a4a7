"""How much else the machine did while a benchmark ran: a figure from a busy machine must say so.

Wall times stretch with whatever runs beside, processor times a little (caches, hyper-threads, frequencies). So every
benchmark prints the load at its start and at its end, and what share of the processors was used by others in between,
or taken by the host that this machine is a guest of (steal).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks._spark import processor_time

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Moment:
    """Seconds so far: of the clock, of all processors, of those stolen, and of this process and its descendants."""

    clock_s: float
    busy_s: float
    stolen_s: float
    own_s: float

    @classmethod
    def now(cls) -> Moment:
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are in user already.
        times = [int(each) / _TICKS_PER_SECOND for each in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
        busy = sum(times[:3]) + sum(times[5:7])
        return cls(time.monotonic(), busy, times[7], processor_time().total_s)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def beginning() -> tuple[Moment | None, str]:
    """When a benchmark begins: to be kept, and to be printed."""
    if not _STAT.exists():
        return None, ""
    return Moment.now(), f"machine at the start: load average {os.getloadavg()[0]:.1f} on {cores()} cores"


def ending(begun: Moment | None) -> str:
    """When it ends: what others did meanwhile, as shares of all processors."""
    if begun is None:
        return ""
    now = Moment.now()
    all_s = max(1e-9, (now.clock_s - begun.clock_s) * (os.cpu_count() or 1))
    others_s = max(0.0, now.busy_s - begun.busy_s - (now.own_s - begun.own_s))
    return (
        f"machine at the end: load average {os.getloadavg()[0]:.1f}; others used {others_s / all_s:.0%} of its "
        f"processors meanwhile, {max(0.0, now.stolen_s - begun.stolen_s) / all_s:.0%} were stolen; "
        f"took {now.clock_s - begun.clock_s:.0f} s"
    )
