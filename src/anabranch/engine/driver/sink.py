"""Where output goes, in order, once: what the driver asks of a sink.

A sink gets the merged output of an epoch as one table, or files that tasks wrote. Writing the same epoch again must
leave what writing it once leaves.

The driver looks whether it still owns the checkpoint before it writes, and a sink that needs long looks once more
right before it shows anything. A driver that is frozen after that look and wakes up hours later shows the output of an
epoch that its successor has run as well, from the same state and input and at the same time: the same output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from anabranch.engine.worker.output_files import Target


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who writes.

    Attributes
    ----------
    checkpoint : str
        The query's checkpoint location.
    query : str or None
        Its id; None if it is new.
    token : int
        Which owner of the checkpoint writes.
    check : callable
        Raises if another driver has taken over.
    """

    checkpoint: str
    query: str | None
    token: int = 0
    check: Callable[[], None] = lambda: None


class Sink(Protocol):
    """Takes the output of epochs."""

    def check(self, holder: Holder) -> None:
        """Make sure that output may go here; writes nothing."""

    def prepare(self, holder: Holder) -> None:
        """Make the place ready, before the first epoch."""

    def write(self, table: pa.Table, epoch: int) -> None:
        """Put an epoch's output there; again, if it is there already."""

    def target(self) -> Target | None:
        """Where tasks may write files for this sink; None if it takes tables only."""

    def publish(self, files: Sequence[str], epoch: int) -> None:
        """Make files that tasks wrote an epoch's output."""


class TableSink:
    """A sink that takes tables only."""

    def target(self) -> Target | None:
        """Tasks cannot write here."""
        return None

    def publish(self, files: Sequence[str], epoch: int) -> None:
        """Never asked for."""
        raise AssertionError("this sink takes no files")
