"""Cutting a chain of operators, as planned, into stages that Spark runs.

    source ─ stage 0 ─┐ shuffle ┌─ stage 1 (key k) ─┐ shuffle ┌─ stage 2 (key l) ─ merge ─ sink
      (stateless)     └─────────┘                   └─────────┘

A region with a key is a stage: the shuffle before it routes by that key. Operators without state run where the
tuples are: those at the front of a region before its shuffle, which then carries less. A sequential operator is
a stage with one channel, fed in order. Stage 0 runs where the source is read.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping

from anabranch.compiler.graph import FlatMap, Keyed, Node, Process, Source, StateField
from anabranch.compiler.plan import Plan, PlannedOperator
from anabranch.errors import ProgramError


@dataclasses.dataclass(frozen=True)
class Stage:
    """Operators that run together.

    Attributes
    ----------
    key : tuple of str
        The columns (of what enters the stage) its channels are partitioned by; empty for stage 0 and for a
        stage with one channel.
    nodes : tuple of Node
        Its operators, as they run.
    prolific : bool
        Whether one tuple may give several.
    routes : mapping
        Keyed operator → the columns of its own key that the stage is partitioned by, by the names they have there.
    """

    key: tuple[str, ...]
    nodes: tuple[Node, ...]
    prolific: bool
    routes: Mapping[str, tuple[str, ...]]


@dataclasses.dataclass
class _Draft:
    key: tuple[str, ...]
    region: int | None
    nodes: list[Node]
    routes: dict[str, tuple[str, ...]]


def stages_of(plan: Plan) -> list[Stage]:
    """The stages of a chain; the first may have no operators."""
    _check_chain(plan)
    drafts = [_Draft((), None, [], {})]
    copies: dict[int, Node] = {}
    # What the columns of the current region's key are called where we are in the chain.
    names: dict[str, str] = {}
    region = None
    for operator in plan.operators:
        if operator.region is not None and operator.region != region:
            names = {column: column for column in plan.regions[operator.region].key}
        region = operator.region
        node = _runnable(plan, operator, copies)
        copies[operator.node.id] = node
        if isinstance(node.logic, Source):
            continue
        if isinstance(node.logic, Keyed) and operator.region is not None and node.key:
            route = tuple(names[column] for column in plan.regions[_region(operator)].key)
            if drafts[-1].region != operator.region:
                drafts.append(_Draft(route, operator.region, [], {}))
            drafts[-1].routes[node.name] = route
        elif isinstance(node.logic, Keyed) or _is_sequential(operator):
            if drafts[-1].region is not None or not _is_single(drafts[-1]):
                drafts.append(_Draft((), None, [], {}))
            drafts[-1].routes[node.name] = ()
        drafts[-1].nodes.append(node)
        forwarding = operator.model.forwarding.value
        kept = {source: name for name, source in forwarding.items()} if isinstance(forwarding, dict) else {}
        names = {column: kept[name] for column, name in names.items() if name in kept}
    return [
        Stage(
            draft.key, tuple(draft.nodes), any(isinstance(n.logic, (FlatMap, Keyed)) for n in draft.nodes), draft.routes
        )
        for draft in drafts
    ]


def _is_single(draft: _Draft) -> bool:
    """Whether a stage has one channel already, because something sequential is in it."""
    return bool(draft.routes) and not draft.key


def _region(operator: PlannedOperator) -> int:
    assert operator.region is not None
    return operator.region


def _is_sequential(operator: PlannedOperator) -> bool:
    return operator.region is None and not isinstance(operator.logic, Source)


def _check_chain(plan: Plan) -> None:
    readers: dict[int, Node] = {}
    for operator in plan.operators:
        node = operator.node
        if len(node.inputs) > 1:
            raise ProgramError(
                f"operator {node.title} reads {len(node.inputs)} streams; a query on Spark must be a chain"
            )
        for source in node.inputs:
            if source.id in readers:
                raise ProgramError(
                    f"the stream of {source.title} is read by {readers[source.id].title} and {node.title}; "
                    "a query on Spark must be a chain"
                )
            readers[source.id] = node


def _runnable(plan: Plan, operator: PlannedOperator, copies: Mapping[int, Node]) -> Node:
    """The operator as it runs: what the compiler made of it, without what a source reads from."""
    node = operator.node
    inputs = tuple(copies[each.id] for each in node.inputs)
    logic, key = operator.logic, node.key
    if isinstance(logic, Source):
        return dataclasses.replace(node, logic=Source(None), inputs=inputs)
    in_region = operator.region is not None and plan.regions[operator.region].key_function is None
    if isinstance(logic, Keyed) and in_region:
        found = operator.model.key
        key = found.columns if found is not None and not node.key else node.key
    elif isinstance(node.logic, Keyed):
        raise ProgramError(_explained(operator, "it has more state than what is kept for its key"))
    elif isinstance(node.logic, Process):
        logic, key = _sequential_state(operator, node.logic), ()
    elif _is_sequential(operator) and not _is_opaque(operator):
        raise ProgramError(_explained(operator, "what it remembers could not be kept from one epoch to the next"))
    return dataclasses.replace(node, logic=logic, key=key, inputs=inputs)


def _is_opaque(operator: PlannedOperator) -> bool:
    """Whether an operator is sequential only because of what it calls, not because of what it is seen to keep.

    The clearest reason comes first and the remedy is about it: a declaration is proposed where nothing is kept.
    """
    return "@ab.model" in operator.remedy


def _sequential_state(operator: PlannedOperator, logic: Process) -> Keyed:
    """A user's object whose state is not partitioned: its attributes are the state of one key, the empty one."""
    outside = [
        block for block in operator.model.blocks if "outlives the call" in block.reason and "self." not in block.reason
    ]
    if outside or not hasattr(logic.operator, "__dict__"):
        raise ProgramError(_explained(operator, "only what is kept in attributes of self can be kept between epochs"))
    held = vars(logic.operator)
    prototype = copy.copy(logic.operator)
    vars(prototype).clear()
    fields = tuple(StateField(name, factory=_Copies(value)) for name, value in held.items())
    return Keyed(prototype, logic.method, fields)


@dataclasses.dataclass(frozen=True)
class _Copies:
    """Makes copies of a first value."""

    value: object

    def __call__(self) -> object:
        return copy.deepcopy(self.value)


def _explained(operator: PlannedOperator, what: str) -> str:
    reasons = "; ".join(dict.fromkeys(block.reason for block in operator.model.blocks)) or operator.blocked
    where = next((f" (line {block.location.line})" for block in operator.model.blocks if block.location), "")
    text = f"operator {operator.node.title}: {what}: {reasons}{where}."
    return text + (f" To change that: {operator.remedy}." if operator.remedy else "")
