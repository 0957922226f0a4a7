"""Models of what the library itself brings: sources, sinks, joints of streams, and its operators with state.

Nothing is inferred about the library's own code: an operator with state carries its model (`Declaration`), and what
is left to find out is what the *user's* functions do that it calls.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from anabranch.compiler.models.blocks import block_of, ordered_blocks, remedy_of
from anabranch.compiler.models.findings import Inference
from anabranch.compiler.models.inference import infer
from anabranch.compiler.models.sharing_members import members_sharing_state
from anabranch.compiler.models.users_functions import users_functions
from anabranch.compiler.reading.facts import Facts
from anabranch.operators.library_operator import LibraryOperator
from anabranch.operators.shared_state import Members
from anabranch.program.graph import (
    DeadLetters,
    Feedback,
    FlatMap,
    Keyed,
    Map,
    Node,
    Port,
    Punctuate,
    Route,
    Source,
    Spread,
    Union,
    Watermark,
)
from anabranch.program.model import (
    Declaration,
    Input,
    Key,
    Model,
    Ordering,
    Output,
    Property,
    Selectivity,
    State,
    declaration_of,
)


def built_in_model(node: Node, read: list[Inference]) -> Model | None:
    """What is known of an operator of the library; None if it is the user's.

    What was read of the user's functions inside it is added to `read`.
    """
    logic = node.logic
    here = node.location
    everything = {name: name for name in node.schema.names}
    if isinstance(logic, Source):
        reason = "the tuples of a source come in one order"
        return _model(node, Property(State.UNKNOWN, reason, here), Selectivity.ANY, {}, remedy=_SOURCE_REMEDY)
    if isinstance(logic, Spread):
        state = Property(State.STATELESS, "it deals tuples out and keeps nothing", here)
        return _model(node, state, Selectivity.ONE, everything)
    if isinstance(logic, (Union, Port, DeadLetters)):
        word = "one of several outputs" if isinstance(logic, Port) else "a union"
        state = Property(State.STATELESS, f"{word} keeps nothing", here)
        passing = _model(node, state, Selectivity.ONE, everything, ordering=Ordering.NEEDED)
        if isinstance(logic, Union) and logic.removes:
            return dataclasses.replace(passing, output=Property(Output.REMOVES, "it takes punctuations away", here))
        return passing
    if isinstance(logic, Watermark):
        reason = "a watermark follows from the tuples before it, wherever they are read"
        selectivity = Selectivity.AT_MOST_ONE if logic.nulls == "drop" else Selectivity.ONE
        return _model(node, Property(State.STATELESS, reason, here), selectivity, everything)
    if isinstance(logic, Punctuate):
        found = infer(logic.function, None, node.schema, node.schema, "filter", (), here)
        read.append(found)
        condition, blocks = _state_of(node, found, "its condition")
        return dataclasses.replace(
            _model(node, condition, Selectivity.ONE, everything, remedy=remedy_of(node, found)),
            blocks=blocks,
            output=Property(Output.GENERATES, "it puts punctuations between tuples", here),
        )
    if isinstance(logic, Feedback):
        state = Property(State.UNKNOWN, "tuples come back in the order they were sent", here)
        return _model(node, state, Selectivity.ANY, {}, remedy="")
    if isinstance(logic, Route) and not _is_library(logic.function):
        found = infer(logic.function, None, node.schema, node.schema, "filter", (), here)
        read.append(found)
        choice, blocks = _state_of(node, found, "its choice")
        return dataclasses.replace(
            _model(node, choice, Selectivity.ONE, everything, remedy=remedy_of(node, found)), blocks=blocks
        )
    if isinstance(logic, Route):
        state = Property(State.STATELESS, "its choice keeps nothing", here)
        return _library_model(node, logic.function, state, read, everything)
    if isinstance(logic, (Map, FlatMap)) and _is_library(logic.function):
        state = Property(State.STATELESS, f"{node.kind} keeps nothing", here)
        return _library_model(node, logic.function, state, read)
    if isinstance(logic, Keyed) and _is_library(logic.prototype):
        return _library_operator(node, logic, read)
    return None


def _is_library(target: Any) -> bool:
    return isinstance(target, LibraryOperator)


_SOURCE_REMEDY = "nothing to do: it is read in pieces, and its tuples are numbered there"


def _library_operator(node: Node, logic: Keyed, read: list[Inference]) -> Model:
    """An operator of the library with state: it has one for each key, or a single one."""
    here = node.location
    if node.key:
        reason = f"{node.kind} keeps its state for each {', '.join(node.key)}"
        state = Property(State.PARTITIONED, reason, here)
    else:
        state = Property(State.UNKNOWN, f"{node.kind} has no key: it keeps one state for the whole stream", here)
    made = _library_model(node, logic.prototype, state, read)
    if isinstance(logic.prototype, Members):
        notes, unfollowed = members_sharing_state(node, logic, logic.prototype, read)
        made = dataclasses.replace(made, notes=(*made.notes, *notes), unfollowed=unfollowed)
    if logic.punctuated:
        inputs = Property((Input.EXPECTING,) * max(1, len(logic.methods)), "its windows end with punctuations", here)
        made = dataclasses.replace(made, inputs=inputs)
    return dataclasses.replace(made, case=1) if made.is_safe else made


def _library_model(
    node: Node, target: Any, state: Property, read: list[Inference], forwarding: dict[str, str] | None = None
) -> Model:
    """The model an object of the library carries, with what the user's functions add to it."""
    declared = declaration_of(target) or Declaration()
    if forwarding is None:
        forwarding = {name: name for name in declared.forwards or () if name in node.schema}
    blocks, notes, unfollowed = users_functions(node, target, read)
    remedy = "name a key, and each key has its own: by=… (for sort: key=…)"
    if blocks:
        state, remedy = blocks[0], "let the function only look at its arguments"
    selectivity = declared.selectivity or (Selectivity.ONE if isinstance(node.logic, Route) else Selectivity.ANY)
    key = Key(node.key) if state.value is State.PARTITIONED else None
    made = _model(node, state, selectivity, forwarding, key=key, remedy=remedy)
    return dataclasses.replace(made, blocks=blocks or made.blocks, notes=notes, unfollowed=unfollowed)


def together(read: list[Inference]) -> Inference | None:
    """What several functions of one operator touch and change, as one reading."""
    if not read:
        return None
    facts = Facts()
    for each in read:
        facts.touched |= each.facts.touched
        facts.objects |= each.facts.objects
        facts.written |= each.facts.written
        facts.globals_read |= each.facts.globals_read
        facts.globals_written |= each.facts.globals_written
    return Inference(facts, [])


def _model(
    node: Node,
    state: Property,
    selectivity: Selectivity,
    forwarding: dict[str, str],
    key: Key | None = None,
    inputs: tuple[Input, ...] | None = None,
    ordering: Ordering | None = None,
    remedy: str = "",
) -> Model:
    here = node.location
    if ordering is None:
        ordering = {
            State.STATELESS: Ordering.TOLERANT,
            State.PARTITIONED: Ordering.PER_KEY,
            State.UNKNOWN: Ordering.NEEDED,
        }[state.value]
    return Model(
        state=state,
        selectivity=Property(selectivity, f"that is what {node.kind} does", here),
        forwarding=Property(forwarding, f"that is what {node.kind} does", here),
        inputs=Property(inputs or (Input.OBLIVIOUS,) * len(node.inputs), "it needs no punctuations", here),
        output=Property(Output.PRESERVES, "it passes punctuations on", here),
        ordering=Property(ordering, ORDERING_REASONS[ordering], here),
        key=key,
        blocks=(state,) if state.value is State.UNKNOWN else (),
        remedy=remedy if state.value is State.UNKNOWN else "",
    )


ORDERING_REASONS = {
    Ordering.TOLERANT: "it treats each tuple by itself",
    Ordering.PER_KEY: "tuples of one key must come in order",
    Ordering.NEEDED: "tuples must come in the order of one thread",
}


def _state_of(node: Node, found: Inference, what: str) -> tuple[Property, tuple[Property, ...]]:
    blocks = tuple(block_of(fact) for fact in ordered_blocks(found))
    if blocks or found.dicts:
        reason = blocks[0] if blocks else Property(State.UNKNOWN, f"{what} keeps state", node.location)
        return reason, blocks or (reason,)
    return Property(State.STATELESS, f"{what} writes nothing that outlives the call", node.location), ()
