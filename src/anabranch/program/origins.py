"""Sources that need no Spark to be described."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from anabranch.errors import ProgramError
from anabranch.program.graph import Node, Source


@dataclasses.dataclass(frozen=True)
class RowsOrigin:
    """Rows in memory, cut into epochs."""

    epochs: Sequence[Sequence[Any]]


def held_epochs(node: Node) -> Sequence[Sequence[Any]]:
    """The rows that a source holds, epoch by epoch; ProgramError if it holds none."""
    assert isinstance(node.logic, Source)
    found: Sequence[Sequence[Any]] | None = getattr(node.logic.origin, "epochs", None)
    if found is None:
        raise ProgramError(f"run_sequential: the source {node.title} holds no rows; give them: run_sequential(rows)")
    return found
