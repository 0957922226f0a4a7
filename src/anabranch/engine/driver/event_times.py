"""Watermarks, and broadcast state, between epochs: what the manifest keeps, and what tasks of the next epoch are told.

manifest ─► EventTimes ─► tasks ─► reports: how far each came, and whether it was heard of ─► manifest
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from anabranch.compiler.layout.stages import Layout
from anabranch.engine.reports import ChannelReport, MergerReport, Report, SplitReport
from anabranch.engine.worker.advances import EventTimes
from anabranch.program.event_time import idle_watermarks
from anabranch.program.graph import Watermark
from anabranch.state.manifest_facts import ManifestFacts, WatermarkFacts


def times_at_start(layout: Layout, facts: ManifestFacts, clock_ms: int, ending: bool) -> EventTimes:
    """What the tasks of an epoch are told; a stream that was not heard of for its limit is idle.

    So is every watermark that is made of idle ones only, for all who hear of it: what wakes it need not raise it.
    """
    before = facts.watermarks
    limits = {
        step.node.name: step.node.logic.idle_ms for step in layout.steps if isinstance(step.node.logic, Watermark)
    }
    idle = {
        name
        for name, limit_ms in limits.items()
        if limit_ms is not None and clock_ms - before.heard_ms.get(name, clock_ms) >= limit_ms
    }
    broadcasts = {name: base64.b64decode(data) for name, data in facts.broadcasts.items()}
    return EventTimes(dict(before.values), idle_watermarks(layout.watermarks_made(), idle), ending, broadcasts)


def broadcasts_after(before: Mapping[str, str], reports: Iterable[Report]) -> dict[str, str]:
    """What is kept of broadcast state when an epoch is over."""
    found = dict(before)
    for report in reports:
        for name, data in report.broadcasts.items() if isinstance(report, ChannelReport) else ():
            found[name] = base64.b64encode(data).decode()
    return found


def times_after(
    layout: Layout, before: WatermarkFacts, clock_ms: int, reports: Iterable[Report], ending: bool
) -> WatermarkFacts:
    """What is kept of watermarks when an epoch is over."""
    values, heard_ms = dict(before.values), dict(before.heard_ms)
    for report in reports:
        assert isinstance(report, (SplitReport, ChannelReport, MergerReport))
        for name, value in () if isinstance(report, MergerReport) else report.watermarks.items():
            values[name] = max(value, values.get(name, value))
            heard_ms[name] = clock_ms
    made = {step.node.name for step in layout.steps if isinstance(step.node.logic, Watermark)}
    heard = {name: heard_ms.get(name, clock_ms) for name in made}
    return WatermarkFacts(values, heard, before.ended or ending)
