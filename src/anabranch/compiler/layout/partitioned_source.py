"""Sources that are partitioned by key already: the first shuffle is spared (*Safe* calls it a parallel source).

    source ─ map ─┐ shuffle ┌─ process by k ─┐ shuffle …      read(df):                       depths 0, 1, …
    source ─ map ─── process by k ───────────┐ shuffle …      read(df, partitioned_by="k"):   depth 0

The stage of an operator with a key that begins right behind such a source is a stage as ever, with channels that own
keys and their state; but its tuples are there already, so it runs in the tasks that read them. Its key must hold the
columns that the source is partitioned by, unchanged, and nothing else may come to it: no other stream, no punctuation,
no passing of time, since only a channel that all of an epoch comes to knows where these stand.

That the data is as declared is checked for every key. How Spark cuts it is not in our hands: where one channel's tuples
come in several tasks, or not in their order, the epoch is run with the shuffle (`with_shuffle`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.compiler.layout.stages import Layout
from anabranch.program.graph import Keyed, Node, Source

Names = tuple[frozenset[str], ...]
"""For each column that a source is partitioned by, what copies of it are called here."""


def declared(node: Node) -> Names:
    """The columns a source is partitioned by, where it is read."""
    return tuple(frozenset({name}) for name in node.logic.partitioned_by) if isinstance(node.logic, Source) else ()


def forwarded(names: Names, forwarding: Any) -> Names:
    """The same behind an operator; a column that it does not forward is lost."""
    copies: Mapping[str, str] = forwarding if isinstance(forwarding, dict) else {}
    return tuple(frozenset(out for out, of in copies.items() if of in each) for each in names)


def matched(source: Node, node: Node, names: Names, route: Sequence[str]) -> tuple[tuple[int, ...], str]:
    """Where in an operator's route the columns are, in the order in which the source declares them; or why not all are.

    Parameters
    ----------
    source, node : Node
        What is partitioned, and the operator.
    names : Names
        What the columns are called where the operator reads.
    route : sequence of str
        The columns that its tuples would be routed by.
    """
    assert isinstance(source.logic, Source)
    places = []
    for column, copies in zip(source.logic.partitioned_by, names, strict=True):
        at = next((at for at, name in enumerate(route) if name in copies), None)
        if not copies:
            return (), f"{column} is not forwarded"
        if at is None:
            return (), f"its key is not made of these columns: {', '.join(route) or 'it has none'}"
        there, here = source.schema.type_of(column), node.inputs[0].schema.type_of(route[at])
        if there != here and not (pa.types.is_integer(there) and pa.types.is_integer(here)):
            return (), f"{column} is {there} there and {here} here, which have different hashes"
        places.append(at)
    return tuple(places), ""


def obstacle(node: Node, streams: int, punctuated: bool, timed: bool, isolated: bool) -> str:
    """Why a stage cannot run where its source is read, whatever its key is; empty if it can."""
    logic = node.logic
    if isinstance(logic, Keyed) and (logic.punctuated or logic.ticked or logic.timed):
        return "it waits for punctuations or for time"
    if streams > 1:
        return f"it brings {streams} streams together"
    if punctuated:
        return "punctuations come with the tuples"
    if timed:
        return "a watermark comes with the tuples"
    if isolated:
        return "isolate()"
    if isinstance(logic, Keyed) and getattr(logic.prototype, "salted", None):
        return "its keys are in parts"
    return ""


def has_spared_shuffle(layout: Layout) -> bool:
    """Whether some stage runs where its source is read, because that is partitioned by its key."""
    return any(stage.local for stage in layout.stages)


def with_shuffle(layout: Layout) -> Layout:
    """The layout with a shuffle before every stage that has channels: steps, edges and stages keep their numbers."""
    depths: dict[int, int] = {}
    stages = []
    for stage in layout.stages:
        before = [layout.steps[edge.source].stage for edge in layout.inputs_of(stage)]
        depths[stage.number] = 1 + max((depths[each] for each in before), default=-1)
        stages.append(dataclasses.replace(stage, depth=depths[stage.number], local=False))
    return dataclasses.replace(layout, stages=tuple(stages))
