"""Programs with operators whose key is computed: a step before each computes it where the stream is split.

What such an operator becomes is in `rewriting/computed_key.py`. Names, outputs and their order are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from anabranch.compiler.layout.analysis import analyse_with_facts
from anabranch.compiler.rewriting.computed_key import with_key_column
from anabranch.compiler.rewriting.managed_state import ManagedDicts
from anabranch.program.graph import Feedback, Keyed, Loop, Map, Node
from anabranch.program.model import Key, Model, State


def with_computed_keys(
    outputs: Sequence[Node], order: Sequence[Node], models: Mapping[int, Model]
) -> tuple[list[Node], list[Node], dict[int, Model]]:
    """The outputs, operators and models of the program with its computed keys as columns."""
    together = {name for node in order if node.together for name in (node.name, *map(str, node.together))}
    # A key that cannot be computed is a call that fails: the operator's policy is for the call, so it computes the key.
    alone = {node.id for node in order if node.name in together or node.on_error != "fail"}
    computed = {node.id for node in order if _is_computed(models[node.id]) and node.id not in alone}
    if not computed:
        return list(outputs), list(order), dict(models)
    taken = {node.name for node in order}
    copies: dict[int, Node] = {}
    loops: list[tuple[Loop, int]] = []
    found: list[Node] = []
    believed: dict[int, Model] = {}

    def add(node: Node, model: Model) -> Node:
        numbered = dataclasses.replace(node, id=len(found))
        found.append(numbered)
        believed[numbered.id] = model
        return numbered

    for node in order:
        logic, model = node.logic, models[node.id]
        if isinstance(logic, Feedback) and isinstance(logic.target, Loop) and logic.target.node is not None:
            loops.append((Loop(), logic.target.node.id))
            logic = Feedback(loops[-1][0])
        inputs = tuple(copies[each.id] for each in node.inputs)
        if node.id in computed:
            assert model.key is not None
            column = _free(model.key.expression, inputs[0].schema.names)
            adding, columns, behind = with_key_column(model.logic, inputs[0].schema, column)
            step = Node(-1, "key", _free(f"{node.name}-key", taken), Map(adding), inputs, columns, node.location)
            taken.add(step.name)
            inputs = (add(step, _told(analyse_with_facts(step)[0], node)),)
            model = dataclasses.replace(model, key=Key((column,)), logic=behind)
        copies[node.id] = add(dataclasses.replace(node, logic=logic, inputs=inputs), model)
    for loop, target in loops:
        loop.node = copies[target]
    return [copies[node.id] for node in outputs], found, believed


def _is_computed(model: Model) -> bool:
    if model.state.value is not State.PARTITIONED or model.key is None or not model.key.expression:
        return False
    return isinstance(model.logic, Keyed) and isinstance(model.logic.prototype, ManagedDicts)


def _told(model: Model, behind: Node) -> Model:
    """The model of a step that adds a key, which is ours: no author declared anything."""
    reason = f"it adds the key of {behind.name} as a column"
    told = {
        name: dataclasses.replace(getattr(model, name), reason=reason)
        for name in ("state", "selectivity", "forwarding", "ordering")
    }
    return dataclasses.replace(model, **told)


def _free(name: str, taken: Sequence[str] | set[str]) -> str:
    while name in taken:
        name += "~"
    return name
