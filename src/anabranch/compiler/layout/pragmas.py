"""Stages by the user's will (*Safe*, section 3.5): `isolate` is a stage of one's own, `colocate` that of others.

    source ─ map ─┐ shuffle ┌─ process        map.colocate("process"):   source ─┐ shuffle ┌─ map ─ process

What has no state runs where its input is made, and what has state is joined by what follows it, so only one thing must
be forced: an operator without state that comes *before* one with state and must run in its stage. It is then the entry
of that stage: tuples are routed by the key before it, which it must forward. Everything else that is asked for is
either so anyway or cannot be; then the error says what is in the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from anabranch.compiler.layout.chains import PlannedOperator
from anabranch.compiler.layout.runnable import is_single
from anabranch.errors import ProgramError
from anabranch.program.graph import Node, Port, Union
from anabranch.program.model import State

if TYPE_CHECKING:
    from anabranch.compiler.layout.plan_data import PlanData
    from anabranch.compiler.layout.stages import Layout


def isolated(plan: PlanData) -> set[int]:
    """The operators that have a stage of their own; an operator with several outputs and these are one."""
    found: set[int] = set()
    for operator in plan.operators:
        node = operator.node
        if node.isolated and isinstance(node.logic, Union):
            raise ProgramError(
                f"isolate: {node.title} runs in no stage: tuples pass by a union where they are made; isolate an "
                "operator before or behind it"
            )
        if node.isolated:
            found.add(node.inputs[0].id if isinstance(node.logic, Port) else node.id)
    ports = {o.node.id for o in plan.operators if isinstance(o.node.logic, Port) and o.node.inputs[0].id in found}
    return found | ports


def groups(plan: PlanData) -> list[list[PlannedOperator]]:
    """Operators that must run in one stage, in the order of the plan."""
    group_of: dict[str, set[str]] = {}
    for operator in plan.operators:
        for other in operator.node.together:
            names = group_of.get(operator.name, {operator.name}) | group_of.get(str(other), {str(other)})
            group_of.update(dict.fromkeys(names, names))
    found = []
    for names in {id(each): each for each in group_of.values()}.values():
        found.append([operator for operator in plan.operators if operator.name in names])
    return found


def named_together(nodes: Iterable[Node]) -> set[str]:
    """The names of all operators that must run in one stage with others."""
    return {name for node in nodes if node.together for name in (node.name, *map(str, node.together))}


def parted(plan: PlanData, layout: Layout) -> list[list[PlannedOperator]]:
    """The groups that a layout does not keep together."""
    stages = _stages(layout)
    return [
        group
        for group in groups(plan)
        if len({stages.get(each.name, ()) for each in group}) > 1 or len(stages.get(group[0].name, ())) != 1
    ]


def held(plan: PlanData, broken: list[list[PlannedOperator]]) -> dict[int, PlannedOperator]:
    """Operators without state that must be the entry of a stage, with the operator with state whose stage it is."""
    found: dict[int, PlannedOperator] = {}
    for group in broken:
        for operator in group:
            if operator.model.state.value is not State.STATELESS or isinstance(operator.node.logic, Port):
                continue
            followers = [each for each in group if operator.node.id in _above(each.node)]
            target = next((each for each in followers if each.model.state.value is not State.STATELESS), None)
            if target is not None and (is_single(target) or target.chain == operator.chain):
                found[operator.node.id] = target
                break
    return found


def check(plan: PlanData, layout: Layout) -> None:
    """An error if operators that must run in one stage do not."""
    for group in parted(plan, layout):
        stages = _stages(layout)
        first = group[0]
        for other in group:
            if not stages.get(other.name):
                raise ProgramError(
                    f"colocate: {other.node.title} runs in no stage: tuples pass by a union where they are made; "
                    "name an operator before or behind it"
                )
        other = next((each for each in group if stages[each.name] != stages[first.name]), group[-1])
        raise ProgramError(
            f"colocate: {first.node.title} and {other.node.title} cannot run in one stage: "
            f"{_reason(plan, layout, stages, first, other)}. Remove colocate(…), or what is in the way"
        )


def _reason(
    plan: PlanData,
    layout: Layout,
    stages: Mapping[str, tuple[int, ...]],
    first: PlannedOperator,
    other: PlannedOperator,
) -> str:
    for operator in (other, first):
        if len(stages[operator.name]) > 1:
            return f"{operator.name} runs in several stages, because streams are united before it"
    for border in plan.borders:
        if border.before == other.name and other.chain is not None:
            return f"{other.name}: {border.reason}"
    found = [layout.stages[stages[each.name][0]] for each in (other, first)]
    return next((f"{each.name}: {each.reason}" for each in found if each.reason), "they do not follow one another")


def _stages(layout: Layout) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for stage in layout.stages:
        for node in layout.nodes(stage):
            found[node.name] = (*found.get(node.name, ()), stage.number)
    return found


def _above(node: Node) -> set[int]:
    found: set[int] = set()
    waiting = list(node.inputs)
    while waiting:
        at = waiting.pop()
        if at.id not in found:
            found.add(at.id)
            waiting += at.inputs
    return found
