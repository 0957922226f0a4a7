"""An operator as it runs: what the compiler made of it, without what a source reads from.

Refused are operators whose memory could not be kept from one epoch to the next; the error says what the
compiler saw and what to change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from anabranch.compiler.layout.chains import PlannedOperator
from anabranch.compiler.reading.settings_calls import CHANGES
from anabranch.compiler.rewriting.doors import door_of
from anabranch.compiler.rewriting.whole_object import whole
from anabranch.errors import ProgramError, StateError
from anabranch.operators.guarding import Guarding, guarded
from anabranch.operators.library_operator import LibraryOperator
from anabranch.program.graph import Feedback, Filter, FlatMap, Keyed, Logic, Map, Node, Process, Source
from anabranch.program.model import Block, State
from anabranch.program.object_reach import changes_in_globals
from anabranch.program.whole_copies import NoCopyError


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
        return dataclasses.replace(node, logic=dataclasses.replace(logic, origin=None), inputs=inputs)
    if isinstance(logic, Feedback):
        return dataclasses.replace(node, logic=Feedback(logic.name), inputs=inputs)
    _refuse_what_is_not_kept(operator)
    _refuse_what_functions_keep(operator)
    single = is_single(operator)
    if isinstance(logic, Keyed) and not single:
        assert operator.model.key is not None
        key = node.key or operator.model.key.columns
    elif isinstance(node.logic, Keyed):
        if node.key:
            raise _more_is_kept(operator, "it has more state than what is kept for its key")
    elif isinstance(node.logic, Process) and not single:
        logic = FlatMap(getattr(node.logic.operator, node.logic.method))
    elif operator.model.state.value is not State.STATELESS:
        logic, key = _taken_over(operator), ()
    if operator.model.unfollowed:
        _refuse_doors(operator, _watched_code(logic))
    made = dataclasses.replace(node, logic=logic, key=key, inputs=inputs, unfollowed=operator.model.unfollowed)
    if node.on_error == "fail":
        return made
    return dataclasses.replace(made, logic=guarded(logic, Guarding.of(made, node.columns)))


def _watched_code(logic: Logic) -> Any:
    """The user's part of an operator: functions that the library calls, or all of it."""
    target = logic.prototype if isinstance(logic, Keyed) else getattr(logic, "function", logic)
    return [each for _, each in target.users_code()] if isinstance(target, LibraryOperator) else target


def _refuse_doors(operator: PlannedOperator, target: Any) -> None:
    door = door_of(target)
    if door is not None:
        what, where = door
        why = operator.model.unfollowed or _reasons(operator)
        raise ProgramError(
            f"operator {operator.node.title}: {what} at {where} leads to what is not the operator's own, and what it "
            "remembers there could not be kept from one epoch to the next. Name what you need: globals by their names, "
            "attributes by theirs; and keep what is to be remembered in attributes of self. Or, if it remembers "
            f"nothing, declare it: @ab.model(state=…). (It cannot be followed: {why}.)"
        )


def _refuse_what_is_not_kept(operator: PlannedOperator) -> None:
    left = "; ".join(operator.model.not_kept)
    if left and all(each.startswith(CHANGES) for each in operator.model.not_kept):
        raise ProgramError(
            f"operator {operator.node.title}: {left}: later calls would work by it, and which those are depends on "
            "where they run. To change that: set it within the call only and put it back, or in the thread that starts "
            "the query, since what holds there holds wherever operators run."
        )
    if left:
        raise ProgramError(
            f"operator {operator.node.title}: {left}, which cannot be kept from one epoch to the next. "
            "Keep what it is made of as plain values (numbers, texts, lists, dicts, objects of your own classes), and "
            "make it anew from them for each tuple, in a local variable."
        )


def _refuse_what_functions_keep(operator: PlannedOperator) -> None:
    """Refuse an operator of the library if functions that it calls keep something: nobody keeps that for them."""
    target = getattr(operator.node.logic, "prototype", getattr(operator.node.logic, "function", None))
    if isinstance(target, LibraryOperator) and any(isinstance(block, Block) for block in operator.model.blocks):
        raise _more_is_kept(operator, "a function that it calls keeps something")


def _more_is_kept(operator: PlannedOperator, what: str) -> ProgramError:
    keeps = any(not isinstance(block, Block) or block.keeps for block in operator.model.blocks)
    return ProgramError(_explained(operator, what if keeps else "another run would give something else"))


def _taken_over(operator: PlannedOperator) -> Keyed:
    """An operator of the user's whose state is not partitioned, or not known to be: kept whole, in one channel.

    Whatever its object holds is kept, and nothing else: so what is seen to be kept elsewhere is refused.
    """
    node, blocks = operator.node, operator.model.blocks
    if any(isinstance(block, Block) and block.shared for block in blocks):
        raise ProgramError(_explained(operator, "what operators share could not be kept from one epoch to the next"))
    logic, model = node.logic, operator.model
    if isinstance(logic, Process):
        target, method, mode = logic.operator, logic.method, "process"
    elif isinstance(logic, (Map, Filter, FlatMap)):
        target, method, mode = logic.function, None, type(logic).__name__.lower()
    else:
        raise ProgramError(_explained(operator, "what it remembers could not be kept from one epoch to the next"))
    method = None if method == "__call__" and not isinstance(target, type) else method
    if model.out_of_reach:
        kept = ", ".join(model.out_of_reach)
        raise ProgramError(
            _explained(
                operator,
                f"{kept} could not be kept from one epoch to the next, because no copy of the operator leads to it; "
                "import what it uses of another module at the top, by its own name (from helpers import count), or "
                "keep it in an attribute of self",
            )
        )
    _refuse_doors(operator, target)
    if model.by_identity:
        raise ProgramError(
            f"operator {node.title}: it {'; it '.join(model.by_identity)}, and keeps something from one epoch to the "
            "next: what is kept is equal then, but not the same object at the same address. Compare with ==, and give "
            "objects a number or a name of their own. Or declare what it does: @ab.model(state=…, selectivity=…)."
        )
    try:
        logic = whole(target, method, mode)
    except StateError as problem:
        is_about_copies = isinstance(problem, NoCopyError)
        remedy = f" Or {operator.remedy}." if operator.remedy and not is_about_copies else ""
        raise ProgramError(f"operator {node.title}: {problem}{remedy}") from None
    if logic.prototype.prototype.has_own_globals:
        return logic
    unfollowed = any(isinstance(block, Block) and not block.keeps for block in blocks)
    if model.in_globals or (unfollowed and changes_in_globals(target)):
        kept = ", ".join(model.in_globals) or "what it may keep in globals"
        raise ProgramError(
            _explained(
                operator,
                f"{kept} could not be kept from one epoch to the next, because a global that the code names cannot be "
                "copied; keep it in an attribute of self",
            )
        )
    return logic


def _reasons(operator: PlannedOperator) -> str:
    return "; ".join(dict.fromkeys(block.reason for block in operator.model.blocks)) or operator.blocked


def _explained(operator: PlannedOperator, what: str) -> str:
    reasons = _reasons(operator)
    where = next((f" (line {block.location.line})" for block in operator.model.blocks if block.location), "")
    text = f"operator {operator.node.title}: {what}: {reasons}{where}."
    return text + (f" To change that: {operator.remedy}." if operator.remedy else "")
