"""Cutting a chain of operators into stages that Spark runs.

    source ─ stage 0 ─┐ shuffle ┌─ stage 1 (key k) ─┐ shuffle ┌─ stage 2 (key l) ─ merge ─ sink
      (stateless)     └─────────┘                   └─────────┘

Stage 0 runs where the source is read. A keyed operator whose key the stage before does not provide
begins a new stage, and the shuffle before it routes by that key. An operator stays in a stage as long as
the stage's key is part of the operator's own key and still has the value it had at the shuffle.
"""

from __future__ import annotations

import dataclasses

from anabranch.compiler.graph import Filter, FlatMap, Keyed, Map, Node, Source, upstream
from anabranch.errors import ProgramError


@dataclasses.dataclass(frozen=True)
class Stage:
    """Operators that run together, and the key their channels are partitioned by (stage 0 has none)."""

    key: tuple[str, ...]
    nodes: tuple[Node, ...]
    prolific: bool


def chain_of(output: Node) -> list[Node]:
    """The operators from source to output."""
    nodes = upstream(output)
    for node in nodes:
        if len(node.inputs) > 1:
            raise ProgramError(f"operator {node.title} reads {len(node.inputs)} streams; this program must be a chain")
    return nodes


def stages_of(output: Node) -> list[Stage]:
    """The stages of the chain that ends in `output`; the first may have no operators."""
    chain = [node for node in chain_of(output) if not isinstance(node.logic, Source)]
    stages: list[tuple[tuple[str, ...], list[Node]]] = [((), [])]
    # Where each column of the stage's key is now; None once an operator may have changed it.
    kept: dict[str, str] = {}
    for node in chain:
        if isinstance(node.logic, Keyed):
            region_key = stages[-1][0]
            shared = tuple(column for column in region_key if kept.get(column) in node.key)
            if not region_key or len(shared) < len(region_key):
                stages.append((node.key, []))
                kept = {column: column for column in node.key}
        stages[-1][1].append(node)
        if not isinstance(node.logic, Filter):
            kept = {column: name for column, name in kept.items() if name in node.forwards}
    return [Stage(key, tuple(nodes), any(_is_prolific(n) for n in nodes)) for key, nodes in stages]


def _is_prolific(node: Node) -> bool:
    """Whether one tuple may give several."""
    return isinstance(node.logic, (FlatMap, Keyed)) and not isinstance(node.logic, (Map, Filter))
