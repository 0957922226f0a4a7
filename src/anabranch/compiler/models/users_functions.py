"""What the user's functions do that an operator of the library calls: writes, which block; notes; what is watched.

Such a function is one of what it is given, by the contract of the operator. That is believed where the code cannot be
followed, and watched where it runs; what is seen to keep more is refused.
"""

from __future__ import annotations

from anabranch.compiler.models.blocks import block_of, is_declared, told_unfollowed
from anabranch.compiler.models.findings import Inference
from anabranch.compiler.reading.facts import TRUSTED, Fact, Kind
from anabranch.compiler.reading.read_functions import Called, read_functions
from anabranch.errors import ProgramError
from anabranch.operators.accumulation import Accumulate
from anabranch.operators.library_operator import LibraryOperator, UserFunction
from anabranch.program.graph import Node, StateField
from anabranch.program.model import Property

_KEPT = (Kind.WRITE, Kind.WHOLE, Kind.NOT_DATA)


def users_functions(
    node: Node, target: LibraryOperator, read: list[Inference]
) -> tuple[tuple[Property, ...], tuple[Property, ...], str]:
    """The blocks and notes of all of them, and what is watched; ProgramError if accumulators are not all that is kept.

    What was read is added to `read`.
    """
    calls = [Called(each) for each in getattr(target, "functions", ())]
    fields: tuple[StateField, ...] = ()
    if isinstance(target, Accumulate):
        fields = tuple(StateField(name, factory=first) for name, first in zip(target.names, target.firsts, strict=True))
        calls.insert(0, Called(UserFunction("process()", target.user), "process"))
        calls.append(Called(UserFunction("result()", target.user, ()), "result"))
    if not calls:
        return (), (), ""
    schema = node.inputs[0].schema if getattr(target, "takes_tuples", True) else None
    if any(each.schema.arrow != node.inputs[0].schema.arrow for each in node.inputs):
        schema = None  # of two kinds of tuples
    reading, facts = read_functions(calls, schema, fields, node.location)
    read.append(Inference(reading.facts, []))
    blocks: list[Property] = []
    notes: list[Property] = []
    unfollowed = ""
    for each, fact in facts:
        what, function = each.how.what, each.how.function
        if fact.kind in _KEPT or (fact.kind is Kind.CHANCE and not is_declared(function)):
            if isinstance(target, Accumulate):
                raise _more_than_accumulators(node, what, fact)
            blocks.append(block_of(fact, f"{what}: "))
        elif fact.kind in TRUSTED:
            watched = told_unfollowed([fact], function)
            unfollowed = unfollowed or watched
            how = "watched where it runs" if watched else "taken on trust"
            notes.append(Property("note", f"{how}: {what}: {fact.text}", fact.location))
    if isinstance(target, Accumulate) and target.commutative:
        text = "declared commutative: blocks are merged as they are done, which may differ from one thread's order"
        notes.append(Property("note", text, node.location))
    return tuple(blocks), tuple(notes), unfollowed


def _more_than_accumulators(node: Node, what: str, fact: Fact) -> ProgramError:
    if fact.kind is Kind.CHANCE:
        return ProgramError(
            f"{node.title}: {what} {fact.text} ({fact.location}): no two runs need give the same. "
            "Let the tuple carry what it needs; or, if any value will do, declare it: @ab.model(state=…)"
        )
    return ProgramError(
        f"{node.title}: {what} keeps something beside its accumulators: {fact.text} ({fact.location}). Each block has "
        "copies of accumulators only, so it would be lost, or changed in no certain order. Make it an accumulator, "
        "with the merge of two; or keep it in an operator of its own"
    )
