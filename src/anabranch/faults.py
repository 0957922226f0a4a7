"""Crash points: places where a test may make the program die.

The code says `reach("sink written")` where a crash would be interesting; nothing happens unless a test has
installed a handler. A handler raises, kills the process, or fills the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

POINTS = (
    "epoch begun",  # the clock is recorded, nothing has run
    "segment written",  # in a task: its state is on disk, its result is not yet with the driver
    "job done",  # all tasks have answered
    "sink checked",  # the driver was still the owner; the output is not there yet
    "files checked",  # as that, right before the names of files of output appear
    "sink written",  # the output is there
    "feedback kept",  # the tuples that were fed back are in a file that no manifest names
    "commit checked",  # the driver was still the owner; its manifest is not there yet
    "manifest created",  # its manifest is there, if nobody was quicker; whether it is still the owner is not known
    "manifest written",  # the epoch is committed, Spark does not know it yet
    "program replaced",  # the checkpoint is tied to another form of the program, which has run no epoch yet
    "function replaced",  # a region has another function from the next epoch on; no manifest says so yet
)

_handler: Callable[[str, dict[str, Any]], None] | None = None


def install(handler: Callable[[str, dict[str, Any]], None] | None) -> None:
    """Call `handler(point, facts)` whenever a point is reached; None takes it away again."""
    global _handler
    _handler = handler


def reach(point: str, **facts: Any) -> None:
    """Say that a crash point is reached."""
    if _handler is not None:
        assert point in POINTS, f"unknown crash point {point!r}"
        _handler(point, facts)
