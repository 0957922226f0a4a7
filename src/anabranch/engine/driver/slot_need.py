"""How many slots a query needs, from what its last epoch did."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.control.executor_planner import SlotNeed, side_by_side, slots_used
from anabranch.engine.driver.adaptation import EpochFacts


def need_of(
    facts: EpochFacts, channels: Mapping[str, int], channels_next: Mapping[str, int], keeps_hosts: bool
) -> SlotNeed:
    """What a query needs after an epoch that was committed with some channels, with those of the next epoch."""
    others: dict[int, list[float]] = {}
    for report in facts.reports:
        # Of the source there are as many tasks as Spark likes, and mergers are a fixed number.
        if "seconds" in report and (report["level"] == 0 or "began_s" not in report):
            others.setdefault(report["level"], []).append(report["seconds"])
    used = max((slots_used(seconds, facts.durations_s["total"]) for seconds in others.values()), default=0)
    needed = side_by_side(channels_next, facts.levels)
    return SlotNeed(needed, max(needed, used, side_by_side(channels, facts.levels)), keeps_hosts)
