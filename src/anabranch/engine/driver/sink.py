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
from anabranch.errors import CheckpointError
from anabranch.state.checkpoint import Checkpoint


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
    is_again : callable
        Whether an epoch may have been begun before, by another driver, so that some of its output may be there.
    is_committed : callable
        Whether an epoch is committed, by whomever.
    """

    checkpoint: str
    query: str | None
    token: int = 0
    check: Callable[[], None] = lambda: None
    is_again: Callable[[int], bool] = lambda epoch: True
    is_committed: Callable[[int], bool] = lambda epoch: False

    @classmethod
    def of(cls, checkpoint: str, held: Checkpoint) -> Holder:
        """The owner of a checkpoint."""
        return cls(checkpoint, held.query, held.owner.token, held.owner.check, held.is_again, held.is_committed)

    @property
    def is_owner(self) -> bool:
        """Whether no other driver has taken over."""
        try:
            self.check()
        except CheckpointError:
            return False
        return True


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
