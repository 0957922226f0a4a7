"""Where output goes, in order, once: what the driver asks of a sink.

A sink gets the merged output of an epoch as one table, or files that tasks wrote. Writing the same epoch again must
leave what writing it once leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from anabranch.engine.worker.output_files import Target


class Sink(Protocol):
    """Takes the output of epochs."""

    def check(self, owner: str) -> None:
        """Make sure that output may go here; writes nothing. `owner` names the checkpoint."""

    def prepare(self, owner: str) -> None:
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
