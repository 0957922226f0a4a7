"""An operator as it runs: what the compiler made of it, without what a source reads from.

Refused are operators whose memory could not be kept from one epoch to the next; the error says what the
compiler saw and what to change.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Mapping

from anabranch.compiler.layout.chains import PlannedOperator
from anabranch.errors import ProgramError
from anabranch.program.graph import Feedback, FlatMap, Keyed, Node, Process, Source, StateField
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
    elif isinstance(node.logic, Process):
        logic, key = _sequential_state(operator, node.logic), ()
    elif operator.model.state.value is State.UNKNOWN and not _is_opaque(operator):
        raise ProgramError(_explained(operator, "what it remembers could not be kept from one epoch to the next"))
    return dataclasses.replace(node, logic=logic, key=key, inputs=inputs)


def _is_opaque(operator: PlannedOperator) -> bool:
    """Whether an operator is sequential only because of what it calls, not because of what it is seen to keep.

    The clearest reason comes first, and what is seen to be kept is clearer than what could not be followed.
    """
    first = next(iter(operator.model.blocks), None)
    return isinstance(first, Block) and not first.keeps


def _sequential_state(operator: PlannedOperator, logic: Process) -> Keyed:
    """A user's object whose state is not partitioned: its attributes are the state of one key, the empty one."""
    written = [block.written for block in operator.model.blocks if isinstance(block, Block) and block.written]
    outside = [path for path in written if not path.startswith("self.")]
    if outside or not hasattr(logic.operator, "__dict__"):
        raise ProgramError(_explained(operator, "only what is kept in attributes of self can be kept between epochs"))
    if inspect.isroutine(logic.operator):
        # It has no self; a copy of a function is the function itself, and what is attached to it is not state.
        return Keyed(logic.operator, logic.method, ())
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
