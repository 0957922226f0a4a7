"""Order only where somebody needs it: which edges carry trails.

    source ── map ──► key k ──► key l ──► output, order none
                   ·         │          ·
                   none      trails     none

A trail is what brings tuples that come from several places into the order of one thread. An edge between stages, or
out of the program, carries trails if

- it leads out, to an output that is in total order (or in that within keys, and the output has several edges);
- punctuations or watermarks travel on it, or its stage begins with an operator that reads several streams or waits:
  these stand between tuples, and only trails say between which;
- the stage it enters must pass trails on, because an edge that leaves it carries them;
- the stage it enters has a step that minds order, and its tuples would not come in order without: they come from the
  channels of another stage, or by several edges.

What comes by one edge straight from a source, or from a stage of one channel, comes in order anyway: packets are
sorted by where their producer stood. So a program of one keyed region whose output need not be in total order sends
no trails at all, and each of its keys still sees its tuples in order. Order within keys (what operators with a key
mind, unless they say more) comes without trails too where each key's tuples come from one channel, as they do behind a
region with the same key. Between regions with other keys it does not: a key's tuples come from several channels, and
nobody else knows which was first.

A stage hands on in order only what it gets in order. So if somebody relies on that, it minds too, whatever its own
steps say.

What is left on the edges is closed under reachability: the least set of edges these rules demand.

The results of an elastic operator leave as they come where nobody minds: no edge that leaves its stage behind it
carries trails, nobody relies on what comes by them being in order anyway, and no step behind it in its stage minds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from anabranch.compiler.layout.stages import Edge, Exit, Layout, Stage, Step
from anabranch.errors import ProgramError
from anabranch.program.elastic import settings_of
from anabranch.program.graph import Filter, FlatMap, Map, Punctuate, Watermark
from anabranch.program.model import Ordering, OutputOrder


def with_needed_order(layout: Layout, outputs: Sequence[OutputOrder] = ()) -> Layout:
    """The layout with trails only where they are needed; `outputs` are the orders of its outputs, total by default."""
    needed = {number for at, each in enumerate(layout.exits) for number in _of_exit(layout, at, each, outputs)}
    minds = _minds(layout, outputs)
    while True:
        found = needed | _demanded(layout, needed, minds)
        if found == needed:
            break
        needed = found
    edges = tuple(
        dataclasses.replace(edge, ordered=edge.number in needed) if _leaves(edge) else edge for edge in layout.edges
    )
    found_layout = dataclasses.replace(layout, edges=edges)
    relied = _relied(layout, minds, outputs)
    steps = tuple(
        dataclasses.replace(step, unordered=not _hindrance(found_layout, step, relied)) if _is_elastic(step) else step
        for step in layout.steps
    )
    return dataclasses.replace(found_layout, steps=steps)


def check_kept_state(layout: Layout, outputs: Sequence[OutputOrder]) -> None:
    """ProgramError if an operator keeps state under a lock of its own, and somebody minds the order of its results."""
    relied = _relied(layout, _minds(layout, outputs), outputs)
    for step in layout.steps:
        settings = settings_of(step.node.logic)
        if settings is not None and settings.keeps_state and not step.unordered:
            raise ProgramError(
                f"{step.node.title}: it keeps state of its own (state='locked'), which its calls change in no certain "
                "order, so the order of its results must be given up, and it is not: "
                f"{_hindrance(layout, step, relied)}. Write the output with option('order', 'none'), and declare "
                "whoever takes its tuples to be tolerant (ordering='tolerant')"
            )


def _is_elastic(step: Step) -> bool:
    """Whether it has calls whose results may leave as they come; accumulators have none."""
    return settings_of(step.node.logic) is not None and isinstance(step.node.logic, (Map, Filter, FlatMap))


def _hindrance(layout: Layout, step: Step, relied: set[int]) -> str:
    """Who minds the order of what a step makes; nothing if nobody does."""
    stage = layout.stages[step.stage]
    if stage.partitions:
        return f"{stage.name} runs piece by piece of a partitioned source"
    if any(layout.edges[number].punctuated or layout.edges[number].watermarks for number in step.inputs):
        return "punctuations or watermarks travel with its tuples"
    waiting = [step]
    while waiting:
        each = waiting.pop()
        for number in each.outputs:
            edge = layout.edges[number]
            if edge.punctuated or edge.watermarks:
                return "punctuations or watermarks travel with its tuples"
            if edge.target < 0:
                if edge.ordered or number in relied:
                    return "an output that it leads to is in order"
                continue
            target = layout.steps[edge.target]
            if edge.crosses:
                if edge.ordered or number in relied or layout.stages[target.stage].partitions:
                    return f"{target.node.title} needs its tuples in order, or somebody behind it does"
            elif target.ordering is not Ordering.TOLERANT or isinstance(target.node.logic, (Punctuate, Watermark)):
                return f"{target.node.title} needs its tuples in order"
            else:
                waiting.append(target)
    return ""


def _relied(layout: Layout, minds: Mapping[int, Ordering], outputs: Sequence[OutputOrder]) -> set[int]:
    """Edges without trails whose tuples somebody relies on to come in order all the same."""
    found: set[int] = set()
    for stage in layout.stages:
        inputs = layout.inputs_of(stage)
        if minds[stage.number] is not Ordering.TOLERANT:
            found.update(edge.number for edge in inputs)
    for at, each in enumerate(layout.exits):
        if not each.loop and at < len(outputs) and outputs[at] is OutputOrder.KEY:
            found.update(each.edges)
    return found


def _leaves(edge: Edge) -> bool:
    return edge.crosses or edge.target < 0


def _of_exit(layout: Layout, at: int, found: Exit, outputs: Sequence[OutputOrder]) -> tuple[int, ...]:
    """The edges of an exit that must carry trails whatever else does."""
    order = outputs[at] if at < len(outputs) else OutputOrder.TOTAL
    if found.loop or order is OutputOrder.NONE:
        return ()
    if order is OutputOrder.KEY:
        stages = [layout.stages[layout.steps[layout.edges[number].source].stage] for number in found.edges]
        for stage in stages:
            if stage.kind not in ("keyed", "single"):
                raise ProgramError(
                    f"option order='key': the tuples of {found.node.title} come from {stage.name!r}, which has no key. "
                    "Choose 'none' (any order) or 'total', or put an operator with a key before the output"
                )
        if len(stages) == 1:
            return ()  # one channel has all tuples of a key, in order
    return found.edges


def _demanded(layout: Layout, needed: set[int], minds: Mapping[int, Ordering]) -> set[int]:
    """The edges that must carry trails if these do."""
    found: set[int] = set()
    for stage in layout.stages:
        entry = layout.steps[stage.steps[0]]
        inputs = layout.inputs_of(stage)
        loses_order = minds[stage.number] is not Ordering.TOLERANT and not _arrives(layout, inputs, minds[stage.number])
        stands_between = entry.takes_arrivals or any(edge.punctuated or edge.watermarks for edge in inputs)
        if loses_order or stands_between or _passes_on(layout, stage, needed):
            found.update(entry.inputs)
    for each in layout.exits:
        # What is fed back is numbered anew, in the order in which it was kept: if somebody minds that, it must be one.
        if each.loop and _observed(layout, each, needed, minds):
            found.update(each.edges)
    return found


def _minds(layout: Layout, outputs: Sequence[OutputOrder]) -> dict[int, Ordering]:
    """Stage → the order that its tuples must come in, for its own steps or for whoever takes what it hands on."""
    found = {each.number: Ordering.TOLERANT for each in layout.stages}

    def mind(stage: Stage, order: Ordering) -> None:
        found[stage.number] = min(order, found[stage.number], key=_STRICTEST.index)

    for at, each in enumerate(layout.exits):
        if not each.loop and at < len(outputs) and outputs[at] is OutputOrder.KEY:
            for number in each.edges:
                mind(layout.stages[layout.steps[layout.edges[number].source].stage], Ordering.PER_KEY)
    for stage in reversed(layout.stages):  # those behind first
        for step in stage.steps:
            mind(stage, layout.steps[step].ordering)
        if stage.kind != "keyed" and found[stage.number] is Ordering.PER_KEY:
            mind(stage, Ordering.NEEDED)  # it has no keys to tell apart
        inputs = layout.inputs_of(stage)
        if found[stage.number] is not Ordering.TOLERANT and _arrives(layout, inputs, found[stage.number]):
            before = layout.stages[layout.steps[inputs[0].source].stage]
            mind(before, Ordering.PER_KEY if before.kind == "keyed" else Ordering.NEEDED)
    return found


_STRICTEST = (Ordering.NEEDED, Ordering.PER_KEY, Ordering.TOLERANT)


def _arrives(layout: Layout, inputs: Sequence[Edge], order: Ordering) -> bool:
    """Whether tuples come in an order without trails, if those before them have theirs."""
    if not inputs:
        return False
    kinds = [layout.stages[layout.steps[edge.source].stage].kind for edge in inputs]
    return kinds in (["source"], ["single"]) or (
        len(inputs) == 1 and inputs[0].keeps_keys and order is Ordering.PER_KEY
    )


def _passes_on(layout: Layout, stage: Stage, needed: set[int]) -> bool:
    return any(number in needed for step in stage.steps for number in layout.steps[step].outputs)


def _observed(layout: Layout, loop: Exit, needed: set[int], minds: Mapping[int, Ordering]) -> bool:
    """Whether somebody behind a feedback edge minds the order of what comes back."""
    stage = next(each for each in layout.stages if each.kind == "source" and each.name == loop.loop)
    for step in stage.steps:
        for number in layout.steps[step].outputs:
            edge = layout.edges[number]
            if number in needed or (edge.crosses and minds[layout.steps[edge.target].stage] is not Ordering.TOLERANT):
                return True
    return False
