"""What is told of an epoch when it has ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(frozen=True)
class EpochProgress:
    """What happened in an epoch.

    Attributes
    ----------
    epoch : int
        Its number.
    rows_in, rows_out : int
        Tuples read from the source and given to the sink.
    channels : dict
        How many channels each region had; a region is named after the operator at its entry.
    duration_ms : dict
        Where the time went, as the driver saw it: begin, job, merge, sink, commit, total.
    stages : list of dict
        What the splitters did (level 0), and per stage and channel: rows in and out, seconds in all, seconds in
        operators, seconds in state.
    state_rows, state_bytes : int
        What was written to the checkpoint for this epoch.
    in_flight : int
        Tuples that were fed back and wait for the next epoch.
    met : dict
        What operators met and did not like, by operator: tuples that came too late, nulls where a key or a time
        should be, steps backwards.
    changes : list of dict
        Regions that have another partitioning function from the next epoch on: channels before and after, and why.
    hot_keys : str
        Why aggregations run in two steps, so that hot keys can be split; empty: they run as written.
    epoch_files : dict
        For every source whose files per epoch are adapted: how many it took, its limit, and that of the next epoch.
    epoch_size : str
        Why the next epoch may take so many; or, where an adapted size had to be given up, why.
    executors : dict
        With ``maxExecutors`` on a cluster: how many are present, how many Spark was asked for in all (target), and
        the identities of those given back since the epoch before.
    skipped : bool
        The epoch had been committed before and was not run again.
    """

    epoch: int
    rows_in: int
    rows_out: int
    channels: dict[str, int]
    duration_ms: dict[str, int]
    stages: list[dict[str, Any]]
    state_rows: int
    state_bytes: int
    in_flight: int = 0
    met: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    changes: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    hot_keys: str = ""
    epoch_files: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    epoch_size: str = ""
    executors: dict[str, Any] = dataclasses.field(default_factory=dict)
    skipped: bool = False


def met_in(reports: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """What operators counted, over all channels."""
    found: dict[str, dict[str, int]] = {}
    for report in reports:
        for operator, what, number in report.get("met", ()):
            counts = found.setdefault(operator, {})
            counts[what] = counts.get(what, 0) + number
    return found
