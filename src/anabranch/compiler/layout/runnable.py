"""An operator as it runs: what the compiler made of it, without what a source reads from.

Refused are operators whose memory could not be kept from one epoch to the next; the error says what the
compiler saw and what to change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from anabranch.compiler.layout.chains import PlannedOperator
from anabranch.compiler.rewriting.whole_object import whole
from anabranch.errors import ProgramError, StateError
from anabranch.program.graph import Feedback, Filter, FlatMap, Keyed, Map, Node, Process, Source
from anabranch.program.model import Block, State


def is_single(operator: PlannedOperator) -> bool:
    """Whether an operator must run in one channel, in the order of one thread."""
    node, model = operator.node, operator.model
    if model.state.value is State.STATELESS:
        return False
    if model.state.value is State.UNKNOWN or model.key is None:
        return True
    # A key that is computed from a tuple has no columns to route by.
    return bool(model.key.expression) or not (node.key or model.key.columns)


def runnable(operator: PlannedOperator, copies: Mapping[int, Node]) -> Node:
    """The operator as it runs; `copies` are those it reads."""
    node = operator.node
    inputs = tuple(copies[each.id] for each in node.inputs)
    logic, key = operator.logic, node.key
    if isinstance(logic, Source):
        return dataclasses.replace(node, logic=Source(None), inputs=inputs)
    if isinstance(logic, Feedback):
        return dataclasses.replace(node, logic=Feedback(logic.name), inputs=inputs)
    single = is_single(operator)
    if isinstance(logic, Keyed) and not single:
        assert operator.model.key is not None
        key = node.key or operator.model.key.columns
    elif isinstance(node.logic, Keyed):
        if node.key:
            raise ProgramError(_explained(operator, "it has more state than what is kept for its key"))
    elif isinstance(node.logic, Process) and not single:
        logic = FlatMap(getattr(node.logic.operator, node.logic.method))
    elif operator.model.state.value is not State.STATELESS:
        logic, key = _taken_over(operator), ()
    return dataclasses.replace(node, logic=logic, key=key, inputs=inputs)


def _taken_over(operator: PlannedOperator) -> Keyed:
    """An operator of the user's whose state is not partitioned, or not known to be: kept whole, in one channel.

    Whatever its object holds is kept, and nothing else: so what is seen to be kept elsewhere is refused.
    """
    node, blocks = operator.node, operator.model.blocks
    if any(isinstance(block, Block) and block.shared for block in blocks):
        raise ProgramError(_explained(operator, "what operators share could not be kept from one epoch to the next"))
    logic = node.logic
    if isinstance(logic, Process):
        target, method, mode = logic.operator, logic.method, "process"
    elif isinstance(logic, (Map, Filter, FlatMap)) and not _is_seen_to_keep(operator):
        target, method, mode = logic.function, None, type(logic).__name__.lower()
    else:
        raise ProgramError(_explained(operator, "what it remembers could not be kept from one epoch to the next"))
    method = None if method == "__call__" and not isinstance(target, type) else method
    outside = [
        block for block in blocks if isinstance(block, Block) and block.written and not _is_inside(block.written)
    ]
    if outside:
        raise ProgramError(_explained(operator, "only what is kept in attributes of self can be kept between epochs"))
    try:
        logic = whole(target, method, mode)
    except StateError as problem:
        remedy = f" Or {operator.remedy}." if operator.remedy else ""
        raise ProgramError(f"operator {node.title}: {str(problem).rstrip('.')}.{remedy}") from None
    routes = [each.route[0] for each in getattr(getattr(operator.logic, "prototype", None), "dicts", ())]
    own = {"operator", "closure", "default"} | ({"global"} if logic.prototype.prototype.has_own_globals else set())
    if not own.issuperset(routes):
        raise ProgramError(_explained(operator, "its key is computed, and its state is kept outside of its object"))
    return logic


def _is_seen_to_keep(operator: PlannedOperator) -> bool:
    """Whether an operator is sequential because of what it is seen to keep, not only because of what it calls.

    The clearest reason comes first, and what is seen to be kept is clearer than what could not be followed.
    """
    first = next(iter(operator.model.blocks), None)
    return first is not None and (not isinstance(first, Block) or first.keeps)


def _is_inside(written: str) -> bool:
    """Whether what the code writes is part of the operator's own object."""
    return written.startswith(("self.", "its object."))


def _explained(operator: PlannedOperator, what: str) -> str:
    reasons = "; ".join(dict.fromkeys(block.reason for block in operator.model.blocks)) or operator.blocked
    where = next((f" (line {block.location.line})" for block in operator.model.blocks if block.location), "")
    text = f"operator {operator.node.title}: {what}: {reasons}{where}."
    return text + (f" To change that: {operator.remedy}." if operator.remedy else "")
