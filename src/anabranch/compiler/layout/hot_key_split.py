"""Programs whose hot keys can be split: aggregations in two steps where that is exact.

    aggregate by k      ─►      salt ─ aggregate by (k, part) ─ aggregate by k

What an aggregation is in two steps, and why nothing changes by it, is in `operators/combining.py`; it costs
a shuffle more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from anabranch.compiler.layout.pragmas import named_together
from anabranch.program.graph import Feedback, Keyed, Loop, Node, named, upstream


def has_parts(outputs: Sequence[Node]) -> bool:
    """Whether a program has an aggregation that can be two steps."""
    ends = named(outputs)
    together = named_together(upstream(*ends))
    return any(_divides(node, together) for node in upstream(*ends))


def _divides(node: Node, together: set[str]) -> bool:
    # What must run in one stage with others stays one step: its two would be in two stages. And a call that fails is
    # undone where it was made: in two steps that would be the first, of which only a part of the key is known.
    if not isinstance(node.logic, Keyed) or node.on_error != "fail":
        return False
    return node.logic.parts is not None and node.name not in together


def with_split_aggregations(outputs: Sequence[Node]) -> list[Node]:
    """The program with every aggregation that allows it in two steps; the second has the name of the whole."""
    nodes = upstream(*outputs)
    taken = {node.name for node in nodes}
    together = named_together(nodes)
    copies: dict[int, Node] = {}
    loops: list[tuple[Loop, int]] = []
    count = 0
    for node in nodes:
        inputs = tuple(copies[each.id] for each in node.inputs)
        logic = node.logic
        if isinstance(logic, Feedback) and isinstance(logic.target, Loop) and logic.target.node is not None:
            loops.append((Loop(), logic.target.node.id))
            logic = Feedback(loops[-1][0])
        if isinstance(logic, Keyed) and logic.parts is not None and _divides(node, together):
            parts = logic.parts
            salt = dataclasses.replace(
                node,
                id=count,
                kind="salt",
                name=_free(f"{node.name}-salt", taken),
                was=(),
                part_of=node.name,
                logic=parts.salt,
                inputs=inputs,
                schema=parts.salted,
                key=(),
                isolated=False,
            )
            first = dataclasses.replace(
                node,
                id=count + 1,
                name=_free(f"{node.name}-parts", taken),
                was=tuple(f"{name}-parts" for name in node.was),
                part_of=node.name,
                logic=parts.first,
                inputs=(salt,),
                schema=parts.handed_over,
                key=(*node.key, parts.salted.names[-1]),
            )
            count += 2
            inputs, logic = (first,), parts.second
        copies[node.id] = dataclasses.replace(node, id=count, logic=logic, inputs=inputs)
        count += 1
    for loop, target in loops:
        loop.node = copies[target]
    return [copies[node.id] for node in outputs]


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "-"
    taken.add(name)
    return name
