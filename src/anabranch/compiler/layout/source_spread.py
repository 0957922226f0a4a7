"""Programs whose sources are dealt out to channels before their operators run.

    source ─ map ─ filter      ─►      source ─ spread ─ map ─ filter

The tuples, their order and all names are the same; what ran where the source is read runs in channels, and there is a
shuffle more. Whether that pays is found out while a query runs (`control/source_spreading.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from anabranch.compiler.layout.pragmas import named_together
from anabranch.program.graph import Feedback, Loop, Node, Source, Spread, upstream


def spread_names(outputs: Sequence[Node]) -> dict[str, str]:
    """Source → what the operator behind it is called that deals its tuples out; only of sources that may be dealt out.

    They may not if they have such an operator, are partitioned by key, or must run in one stage with others.
    """
    nodes = upstream(*outputs)
    taken = {node.name for node in nodes}
    together = named_together(nodes)
    found = {}
    for node in nodes:
        readers = [each for each in nodes if node in each.inputs]
        if not isinstance(node.logic, Source) or node.logic.partitioned_by or node.name in together:
            continue
        if not all(isinstance(each.logic, Spread) for each in readers):
            name = f"{node.name}-spread"
            while name in taken:
                name += "-"
            found[node.name] = name
    return found


def with_spread_sources(outputs: Sequence[Node], sources: Collection[str], names: Mapping[str, str]) -> list[Node]:
    """The program with these sources dealt out."""
    copies: dict[int, Node] = {}
    loops: list[tuple[Loop, int]] = []
    count = 0
    for node in upstream(*outputs):
        logic = node.logic
        if isinstance(logic, Feedback) and isinstance(logic.target, Loop) and logic.target.node is not None:
            loops.append((Loop(), logic.target.node.id))
            logic = Feedback(loops[-1][0])
        inputs = tuple(copies[each.id] for each in node.inputs)
        made = dataclasses.replace(node, id=count, logic=logic, inputs=inputs)
        count += 1
        if node.name in sources:
            made = dataclasses.replace(
                made,
                id=count,
                kind="spread",
                name=names[node.name],
                logic=Spread(),
                inputs=(made,),
                key=(),
                isolated=False,  # what the user said of the source was said of the source alone
                together=(),
            )
            count += 1
        copies[node.id] = made
    for loop, target in loops:
        loop.node = copies[target]
    return [copies[node.id] for node in outputs]
