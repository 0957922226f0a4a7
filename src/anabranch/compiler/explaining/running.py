"""What is known of a layout only while a query runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from anabranch.compiler.layout.stages import Layout


@dataclasses.dataclass(frozen=True)
class RunningQuery:
    """What a query has decided so far.

    Attributes
    ----------
    layout : Layout
        What it runs: the plan's, as its options have it.
    channels : mapping
        Region → its channels, from the next epoch on.
    source_tasks : int or None
        How many tasks read the sources in the last epoch.
    mergers : int
        How many tasks put outputs in order.
    merged : frozenset of int
        The outputs that they do it for, by number; the driver does it for the others.
    direct : frozenset of int
        The outputs that whoever makes their tuples writes, because they need no order.
    by_readers : frozenset of int
        The outputs that whoever read the source wrote in the last epoch.
    through_driver : mapping
        The outputs that pass through the driver → why.
    shuffled_because : str
        Why the last epoch had a shuffle that its partitioned source should have spared; empty: it had none of the kind.
    """

    layout: Layout
    channels: Mapping[str, int]
    source_tasks: int | None = None
    mergers: int = 0
    merged: frozenset[int] = frozenset()
    direct: frozenset[int] = frozenset()
    shuffled_because: str = ""
    by_readers: frozenset[int] = frozenset()
    through_driver: Mapping[int, str] = dataclasses.field(default_factory=dict)
