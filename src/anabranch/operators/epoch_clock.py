"""The time an epoch has. It is recorded with the epoch, so that running it again sees the same.

User code and state ask for the time here, never the machine: whoever runs an epoch sets it first.
"""

from __future__ import annotations

_epoch_ms = 0


def set_epoch_time(clock_ms: int) -> None:
    """Say what time the epoch has that is about to run."""
    global _epoch_ms
    _epoch_ms = clock_ms


def epoch_time() -> int:
    """The time of the epoch that is running, in milliseconds since 1970; 0 in a sequential run without a clock."""
    return _epoch_ms
