"""Sources that need no Spark to be described."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class RowsOrigin:
    """Rows in memory, cut into epochs."""

    epochs: Sequence[Sequence[Any]]
