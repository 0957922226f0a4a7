"""How many slots a query needs, from what its last epoch did."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.control.executor_planner import SlotNeed, side_by_side, slots_used
from anabranch.engine.driver.adaptation import EpochFacts
from anabranch.engine.reports import MergerReport, SplitReport


def need_of(
    facts: EpochFacts, channels: Mapping[str, int], channels_next: Mapping[str, int], keeps_hosts: bool
) -> SlotNeed:
    """What a query needs after an epoch that was committed with some channels, with those of the next epoch."""
    # Of the source there are as many tasks as Spark likes, and mergers are a fixed number.
    split = [report.seconds for report in facts.reports if isinstance(report, SplitReport)]
    merging = [report.seconds for report in facts.reports if isinstance(report, MergerReport)]
    used = max(slots_used(seconds, facts.durations_s.total) if seconds else 0 for seconds in (split, merging))
    needed = side_by_side(channels_next, facts.depths)
    return SlotNeed(needed, max(needed, used, side_by_side(channels, facts.depths)), keeps_hosts)
