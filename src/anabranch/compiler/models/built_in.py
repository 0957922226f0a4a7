"""Models of what the library itself brings: sources, sinks, joints of streams, and its operators with state.

Nothing is inferred about the library's own code: an operator with state carries its model (`Declaration`), and what
is left to find out is what the *user's* functions do that it calls.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.compiler.models.findings import Inference
from anabranch.compiler.models.inference import infer
from anabranch.compiler.reading.facts import KEEPING, TRUSTED, Fact, Facts, Kind
from anabranch.errors import ProgramError
from anabranch.operators.accumulation import Accumulate, accumulation_of
from anabranch.operators.library_operator import LibraryOperator
from anabranch.operators.shared_state import Members
from anabranch.operators.timers import TIMER_FIELDS, TimedOperator
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
    StateField,
    Union,
    Watermark,
)
from anabranch.program.model import (
    Block,
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
        _read_members(node, logic, logic.prototype, read)
    accumulation = accumulation_of(logic)
    if accumulation is not None:
        made = dataclasses.replace(made, notes=(*made.notes, *_accumulating(node, accumulation, read)))
    if logic.punctuated:
        inputs = Property((Input.EXPECTING,) * max(1, len(logic.methods)), "its windows end with punctuations", here)
        made = dataclasses.replace(made, inputs=inputs)
    return dataclasses.replace(made, case=1) if made.is_safe else made


def _read_members(node: Node, logic: Keyed, found: Members, read: list[Inference]) -> None:
    """Read operators that share state; ProgramError if one keeps anything beside what it declared."""
    for target, member in zip(found.operators_within(), found.members, strict=True):
        declared = tuple(field for field in logic.fields if field.name in member.fields)
        declared += tuple(StateField(name) for name in TIMER_FIELDS if member.timed)
        for method in ("process", "on_timer", "on_end"):
            if getattr(member.kind, method) is getattr(TimedOperator, method, None):
                continue
            takes = member.takes if method == "process" else None
            seen = infer(
                target, method, takes, member.gives, "process", declared, node.location, takes_tuple=method != "on_end"
            )
            read.append(seen)
            writes = seen.facts.of(Kind.WRITE)
            if writes or seen.dicts:
                what = f"{writes[0].text} ({writes[0].location})" if writes else ", ".join(sorted(seen.dicts.values()))
                raise ProgramError(
                    f"{node.title}: {member.kind.__name__}.{method}() keeps something beside the state it declared: "
                    f"{what}. Declare it: ab.state(…)"
                )


def _accumulating(node: Node, found: Accumulate, read: list[Inference]) -> tuple[Property, ...]:
    """What is to be said of an operator with accumulators; ProgramError if it keeps anything else."""
    notes = []
    declared = tuple(StateField(name, factory=first) for name, first in zip(found.names, found.firsts, strict=True))
    for method in ("process", "result"):
        seen = infer(
            found.user,
            method,
            node.inputs[0].schema,
            node.schema,
            "process",
            declared,
            node.location,
            method == "process",
        )
        read.append(seen)
        chance = seen.facts.of(Kind.CHANCE)
        if chance and not is_declared(found.user):
            raise ProgramError(
                f"{node.title}: {method}() {chance[0].text} ({chance[0].location}): no two runs need give the same. "
                "Let the tuple carry what it needs; or, if any value will do, declare it: @ab.model(state=…)"
            )
        writes = seen.facts.of(Kind.WRITE)
        if writes or seen.dicts:
            what = f"{writes[0].text} ({writes[0].location})" if writes else ", ".join(sorted(seen.dicts.values()))
            raise ProgramError(
                f"{node.title}: {method}() keeps something beside its accumulators: {what}. Each block has copies of "
                "accumulators only, so it would be lost, or changed in no certain order. Make it an accumulator, with "
                "the merge of two; or keep it in an operator of its own"
            )
        notes += [
            Property("note", f"taken on trust: {method}(): {fact.text}", fact.location)
            for fact in ordered_blocks(seen)
            if fact.kind in TRUSTED
        ]
    if found.commutative:
        text = "declared commutative: blocks are merged as they are done, which may differ from one thread's order"
        notes.append(Property("note", text, node.location))
    return tuple(notes)


def _library_model(
    node: Node, target: Any, state: Property, read: list[Inference], forwarding: dict[str, str] | None = None
) -> Model:
    """The model an object of the library carries, with what the user's functions add to it."""
    declared = declaration_of(target) or Declaration()
    if forwarding is None:
        forwarding = {name: name for name in declared.forwards or () if name in node.schema}
    blocks, notes, unfollowed = _user_functions(node, target, read)
    remedy = "name a key, and each key has its own: by=… (for sort: key=…)"
    if blocks:
        state, remedy = blocks[0], "let the function only look at its arguments"
    selectivity = declared.selectivity or (Selectivity.ONE if isinstance(node.logic, Route) else Selectivity.ANY)
    key = Key(node.key) if state.value is State.PARTITIONED else None
    made = _model(node, state, selectivity, forwarding, key=key, remedy=remedy)
    return dataclasses.replace(made, blocks=blocks or made.blocks, notes=notes, unfollowed=unfollowed)


def _user_functions(
    node: Node, target: Any, read: list[Inference]
) -> tuple[tuple[Property, ...], tuple[Property, ...], str]:
    """What the user's functions do beside what they return: writes, which block; notes; what is watched.

    A function of several arguments gets a tuple for the last and nothing for the others, so some of it cannot be
    followed. That does not speak against it: it is a function of what it is given, by the contract of the operator.
    """
    blocks: list[Property] = []
    notes: list[Property] = []
    unfollowed = ""
    schema = node.inputs[0].schema if getattr(target, "takes_tuples", True) else None
    for what, function in getattr(target, "functions", ()):
        one, takes_tuple = _with_one_argument(function)
        found = infer(one, None, schema, None, "filter", (), node.location, takes_tuple)
        read.append(found)
        for fact in ordered_blocks(found):
            if fact.kind in (Kind.WRITE, Kind.WHOLE) or (fact.kind is Kind.CHANCE and not is_declared(function)):
                blocks.append(block_of(fact, f"{what}: "))
            elif fact.kind in TRUSTED:
                watched = told_unfollowed([fact], function)
                unfollowed = unfollowed or watched
                how = "watched where it runs" if watched else "taken on trust"
                notes.append(Property("note", f"{how}: {what}: {fact.text}", fact.location))
        if found.dicts and not blocks:
            names = ", ".join(sorted(found.dicts.values()))
            blocks.append(Property(State.UNKNOWN, f"{what} keeps state of its own: {names}", node.location))
    return tuple(blocks), tuple(notes), unfollowed


def told_unfollowed(facts: Sequence[Fact], target: Any) -> str:
    """What of an operator's code could not be followed, and where; empty if its author declared what it does."""
    found = next((fact for fact in facts if fact.kind in (Kind.UNKNOWN, Kind.IMPURE)), None)
    return "" if found is None or is_declared(target) else f"{found.text} ({found.location})"


def is_declared(target: Any) -> bool:
    """Whether its author said what it keeps."""
    declared = declaration_of(target)
    return declared is not None and declared.state is not None


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


def _with_one_argument(function: Callable[..., Any]) -> tuple[Callable[..., Any], bool]:
    """The function of the last of its arguments; and if it has any."""
    try:
        parameters = [
            each
            for each in inspect.signature(function).parameters.values()
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
        ]
    except (TypeError, ValueError):
        return function, True
    if len(parameters) > 1:
        return functools.partial(function, *[None] * (len(parameters) - 1)), True
    return function, bool(parameters)


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


_CLEAREST_FIRST = (
    *(Kind.WRITE, Kind.WHOLE, Kind.NOT_DATA, Kind.ALIAS, Kind.TUPLE, Kind.INDEX),
    *(Kind.CHANCE, Kind.IMPURE, Kind.UNKNOWN),
)


def ordered_blocks(found: Inference) -> list[Any]:
    """What blocks an operator, the clearest reason first."""
    return sorted(found.blocks, key=lambda fact: _CLEAREST_FIRST.index(fact.kind))


def block_of(fact: Fact, before: str = "") -> Block:
    """A fact that keeps an operator sequential, as its model tells it."""
    written = fact.path if fact.kind is Kind.WRITE else ""
    return Block(State.UNKNOWN, before + fact.text, fact.location, keeps=fact.kind in KEEPING, written=written)


def remedy_of(node: Node, found: Inference) -> str:
    """The smallest change that would free a sequential operator."""
    blocks = ordered_blocks(found)
    if not blocks:
        return ""
    first = blocks[0]
    if first.kind is Kind.WRITE:
        name = first.path or "it"
        return f"keep {name} for each key: declare it with ab.state(…) in an ab.Operator and name the key with by=…"
    if first.kind is Kind.WHOLE:
        return f"use {first.path} only as {first.path}[key], with the same key of the tuple everywhere"
    if first.kind is Kind.NOT_DATA:
        return "keep data only: numbers, strings and containers of them"
    if first.kind is Kind.ALIAS:
        return "keep each object in one place only, or a copy of it in the other"
    if first.kind is Kind.TUPLE:
        return "make a changed copy: t.but(column=…)"
    if first.kind in (Kind.CHANCE, Kind.IMPURE):
        return "let the tuple carry what it needs, or declare it with @ab.model(state=…) if any value will do"
    if first.kind is Kind.INDEX:
        return "index its dicts with the same columns of the tuple everywhere"
    return "declare what it does: @ab.model(state=…, selectivity=…)"
