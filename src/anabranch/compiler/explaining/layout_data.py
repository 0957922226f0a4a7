"""The layout as plain data: stages, what enters each, what leaves the program.

Text, JSON and drawings are made of it, so that they say the same.
"""

from __future__ import annotations

import enum
from typing import Any

from anabranch.compiler.explaining.running import RunningQuery
from anabranch.compiler.layout.plan_data import PlanData
from anabranch.compiler.layout.stages import Edge, Exit, Layout, Stage
from anabranch.program.graph import Union


class Merged(enum.StrEnum):
    """Who puts an output in order, in the words of the explanation."""

    IN_DRIVER = "in the driver"
    BY_MERGERS = "by mergers"
    BY_READERS = "by those who read its source"
    NOT_AT_ALL = "not at all"
    WRITTEN_WHERE_MADE = "not at all: written where it is made"


def layout_data(plan: PlanData, running: RunningQuery | None = None) -> dict[str, Any] | None:
    """What runs; None if nothing can.

    Returns
    -------
    dict
        ``stages``: each with number, depth, kind, the name of its region, its operators, why it begins where it begins,
        its channels (None: decided at the start), the edges it is entered by, whether these are shuffled, and the
        columns that its source is partitioned by, if that spares the shuffle. ``depths``: what runs side by side as
        one stage of Spark, with its tasks. ``outputs`` and ``loops``: what leaves, and who puts it in order.
        ``shuffles``: of an epoch; ``shuffled_because``: why the last had one that a partitioned source should have
        spared. ``no_steps``: operators that run nowhere.
    """
    layout = running.layout if running is not None else plan.laid_out
    if layout is None:
        return None
    stages = [_stage(layout, stage, running) for stage in layout.stages]
    exits = [_exit(layout, number, each, running) for number, each in enumerate(layout.exits)]
    merging = any(each["merged"] is Merged.BY_MERGERS for each in exits)
    return {
        "shuffles": layout.depth + merging,
        "shuffled_because": "" if running is None else running.shuffled_because,
        "depths": [_depth(stages, depth, running) for depth in range(layout.depth + 1)],
        "stages": stages,
        "outputs": [each for each in exits if not each["loop"]],
        "loops": [each for each in exits if each["loop"]],
        "mergers": running.mergers if running is not None and merging else 0,
        "no_steps": [each.name for each in plan.operators if isinstance(each.node.logic, Union)],
    }


def channels_of(stage: Stage, running: RunningQuery | None) -> int | None:
    """How many channels a stage has; None while nobody has decided, or where the source decides."""
    if stage.kind == "single" or stage.partitions:
        return stage.partitions or 1
    return running.channels.get(stage.name) if running is not None else None


def _stage(layout: Layout, stage: Stage, running: RunningQuery | None) -> dict[str, Any]:
    return {
        "number": stage.number,
        "depth": stage.depth,
        "kind": stage.kind,
        "region": stage.name if stage.is_region else None,
        "operators": [node.name for node in layout.nodes(stage)],
        "channels": channels_of(stage, running),
        "reason": stage.reason,
        "shuffled": bool(layout.inputs_of(stage)) and not stage.local,
        "partitioned_by": list(stage.partitioned_by),
        "inputs": [_edge(layout, edge) for edge in layout.inputs_of(stage)],
    }


def _edge(layout: Layout, edge: Edge) -> dict[str, Any]:
    source = layout.steps[edge.source]
    return {
        "from": source.stage,
        "operator": source.node.name,
        "key": list(edge.key),
        "ordered": edge.ordered,
        "trail": edge.width,
        "punctuated": edge.punctuated,
        "watermarks": list(edge.watermarks),
    }


def _depth(stages: list[dict[str, Any]], depth: int, running: RunningQuery | None) -> dict[str, Any]:
    here = [stage for stage in stages if stage["depth"] == depth]
    channels = [stage["channels"] for stage in here]
    tasks = sum(channels) if depth and None not in channels else None
    if not depth and running is not None:
        tasks = running.source_tasks
    return {"depth": depth, "stages": [stage["number"] for stage in here], "tasks": tasks}


def _exit(layout: Layout, number: int, found: Exit, running: RunningQuery | None) -> dict[str, Any]:
    edges = [layout.edges[each] for each in found.edges]
    merged = Merged.IN_DRIVER
    if not all(edge.ordered for edge in edges):
        merged = Merged.NOT_AT_ALL
        if running is not None and number in running.direct:
            merged = Merged.WRITTEN_WHERE_MADE
    elif running is not None and number in running.merged:
        merged = Merged.BY_MERGERS
    elif running is not None and number in running.by_readers:
        merged = Merged.BY_READERS
    return {
        "operator": found.node.name,
        "loop": found.loop,
        "from": [layout.steps[edge.source].stage for edge in edges],
        "trails": [edge.width for edge in edges],
        "merged": merged,
        "through_driver": "" if running is None else running.through_driver.get(number, ""),
    }
