"""From a node of the graph to its model: built-in knowledge, declarations, and what the code shows."""

from __future__ import annotations

import dataclasses
from typing import Any

from anabranch.compiler.facts import TRUSTED, Identity, Kind
from anabranch.compiler.findings import Inference
from anabranch.compiler.graph import (
    Combine,
    Deduplicate,
    Feedback,
    Filter,
    FlatMap,
    Join,
    Keyed,
    Location,
    Map,
    Node,
    Port,
    Process,
    Punctuate,
    Route,
    Sink,
    Sort,
    Source,
    Union,
)
from anabranch.compiler.inference import infer
from anabranch.compiler.model import (
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
from anabranch.compiler.rewrite import rewrite
from anabranch.errors import ProgramError

_MODES = {Map: "map", Filter: "filter", FlatMap: "flat_map", Process: "process", Keyed: "process"}


def analyse(node: Node) -> Model:
    """What is believed of an operator, each property with its reason and its line.

    Raises
    ------
    ProgramError
        If the author's declaration contradicts the code, or a key does not exist.
    """
    return analyse_with_facts(node)[0]


def analyse_with_facts(node: Node) -> tuple[Model, Inference | None]:
    """`analyse`, and what the code was seen to touch."""
    _check_key(node)
    built_in = _built_in(node)
    if built_in is not None:
        return _declare(node, built_in, None, declaration_of(node.declared)), None
    target, method, mode, fields = _code_of(node)
    schema = node.inputs[0].schema if node.inputs else None
    found = infer(target, method, schema, node.schema, mode, fields, node.location)
    model = _from_code(node, found, target, method, mode)
    model = _declare(node, model, found, declaration_of(node.declared, target))
    # What was read with is large; of a large program only what was found is kept.
    found.reader = None
    found.emissions.clear()
    return model, found


def _check_key(node: Node) -> None:
    for name in node.key:
        for source in node.inputs:
            if name not in source.schema:
                raise ProgramError(
                    f"{node.title}: its key names the column {name!r}, which its input does not have; "
                    f"columns: {', '.join(source.schema.names)}"
                )


def _code_of(node: Node) -> tuple[Any, str | None, str, tuple[Any, ...]]:
    logic = node.logic
    if isinstance(logic, Keyed):
        return logic.prototype, logic.method, "process", logic.fields
    if isinstance(logic, Process):
        return logic.operator, None if _is_called(logic) else logic.method, "process", ()
    return logic.function, None, _MODES[type(logic)], ()  # type: ignore[union-attr]


def _is_called(logic: Process) -> bool:
    return logic.method == "__call__" and callable(logic.operator)


# -- operators of the library -----------------------------------------------------------------------------


def _built_in(node: Node) -> Model | None:
    logic = node.logic
    here = node.location
    everything = {name: name for name in node.schema.names}
    inputs = (Input.OBLIVIOUS,) * len(node.inputs)
    if isinstance(logic, Source):
        if logic.partitioned:
            for name in logic.partitioned:
                if name not in node.schema:
                    raise ProgramError(
                        f"{node.title}: the source is partitioned by {name!r}, which is no column of it; "
                        f"columns: {', '.join(node.schema.names)}"
                    )
            state = Property(State.PARTITIONED, "the source is partitioned", here)
            return _model(node, state, Selectivity.ONE, {}, key=Key(logic.partitioned))
        reason = "a source is read as one stream"
        return _model(node, Property(State.UNKNOWN, reason, here), Selectivity.ANY, {}, remedy=_SOURCE_REMEDY)
    if isinstance(logic, Sink):
        if logic.parallel:
            return _model(node, Property(State.STATELESS, "a parallel sink", here), Selectivity.ONE, everything)
        reason = "a sink takes tuples in the order of one thread"
        return _model(node, Property(State.UNKNOWN, reason, here), Selectivity.ONE, everything, remedy=_SINK_REMEDY)
    if isinstance(logic, (Union, Port)):
        word = "a union" if isinstance(logic, Union) else "one of several outputs"
        state = Property(State.STATELESS, f"{word} keeps nothing", here)
        return _model(node, state, Selectivity.ONE, everything, ordering=Ordering.NEEDED)
    if isinstance(logic, (Join, Combine)):
        word = "a join" if isinstance(logic, Join) else "a combination"
        reason = f"{word} keeps tuples of several streams until they meet"
        if isinstance(logic, Join) and node.key:
            state = Property(State.PARTITIONED, f"{reason}, for each {', '.join(node.key)}", here)
            return _model(node, state, Selectivity.ANY, {}, key=Key(node.key), inputs=inputs)
        return _model(node, Property(State.UNKNOWN, reason, here), Selectivity.ANY, {}, inputs=inputs, remedy="")
    if isinstance(logic, Punctuate):
        found = infer(logic.function, None, node.schema, node.schema, "filter", (), here)
        condition, blocks = _state_of(node, found, "its condition")
        return dataclasses.replace(
            _model(node, condition, Selectivity.ONE, everything, remedy=_remedy(node, found)),
            blocks=blocks,
            output=Property(Output.GENERATES, "it puts punctuations between tuples", here),
        )
    if isinstance(logic, Sort):
        if node.key:
            state = Property(State.PARTITIONED, f"sorts a window for each {', '.join(node.key)}", here)
        else:
            state = Property(State.UNKNOWN, "keeps all tuples of a window until it ends", here)
        made = _model(
            node,
            state,
            Selectivity.ANY,
            everything,
            key=Key(node.key) if node.key else None,
            remedy="sort for each key: sort(…, by=…)",
        )
        return dataclasses.replace(made, inputs=Property((Input.EXPECTING,), "a window ends with a punctuation", here))
    if isinstance(logic, Deduplicate):
        if node.key:
            state = Property(State.PARTITIONED, f"remembers each {', '.join(node.key)} it has seen", here)
            return _model(node, state, Selectivity.AT_MOST_ONE, everything, key=Key(node.key))
        return _model(
            node,
            Property(State.UNKNOWN, "remembers every tuple it has seen", here),
            Selectivity.AT_MOST_ONE,
            everything,
            remedy="name the columns that make a tuple a duplicate: deduplicate(by=…)",
        )
    if isinstance(logic, Feedback):
        state = Property(State.UNKNOWN, "tuples come back in the order they were sent", here)
        return _model(node, state, Selectivity.ANY, {}, remedy="")
    if isinstance(logic, Route):
        found = infer(logic.function, None, node.schema, node.schema, "filter", (), here)
        choice, blocks = _state_of(node, found, "its choice")
        return dataclasses.replace(
            _model(node, choice, Selectivity.ONE, everything, remedy=_remedy(node, found)), blocks=blocks
        )
    prototype = getattr(logic, "prototype", None)
    if isinstance(logic, Keyed) and type(prototype).__module__.startswith("anabranch.api"):
        return _library_operator(node, prototype)
    return None


_SOURCE_REMEDY = "nothing to do: its tuples are numbered and split right behind it"
_SINK_REMEDY = "nothing to do: its input is merged right before it"


def _library_operator(node: Node, prototype: Any) -> Model:
    """An operator of the library with state per key: its state is known, its code is ours."""
    declared = declaration_of(prototype) or Declaration()
    state = Property(State.PARTITIONED, f"{node.kind} keeps its state for each {', '.join(node.key)}", node.location)
    forwards = declared.forwards
    copied = {n: n for n in node.schema.names if forwards == "*" or (forwards and n in forwards)}
    # What groups by a key emits that key with every tuple of the group.
    source = node.inputs[0].schema
    if node.kind == "aggregate":
        copied.update({name: name for name in node.key if name in node.schema and name in source})
    return dataclasses.replace(
        _model(node, state, declared.selectivity or Selectivity.ANY, copied, key=Key(node.key)), case=1
    )


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
        ordering=Property(ordering, _ORDERING_REASONS[ordering], here),
        key=key,
        blocks=(state,) if state.value is State.UNKNOWN else (),
        remedy=remedy if state.value is State.UNKNOWN else "",
    )


_ORDERING_REASONS = {
    Ordering.TOLERANT: "it treats each tuple by itself",
    Ordering.PER_KEY: "tuples of one key must come in order",
    Ordering.NEEDED: "tuples must come in the order of one thread",
}


# -- operators of the user --------------------------------------------------------------------------------


def _state_of(node: Node, found: Inference, what: str) -> tuple[Property, tuple[Property, ...]]:
    blocks = tuple(Property(State.UNKNOWN, fact.text, fact.location) for fact in ordered_blocks(found))
    if blocks or found.dicts:
        reason = blocks[0] if blocks else Property(State.UNKNOWN, f"{what} keeps state", node.location)
        return reason, blocks or (reason,)
    return Property(State.STATELESS, f"{what} writes nothing that outlives the call", node.location), ()


_RANK = {Kind.WRITE: 0, Kind.WHOLE: 1, Kind.NOT_DATA: 2, Kind.ALIAS: 3, Kind.TUPLE: 4, Kind.IMPURE: 5, Kind.UNKNOWN: 6}


def ordered_blocks(found: Inference) -> list[Any]:
    """What blocks an operator, the clearest reason first."""
    return sorted(found.blocks, key=lambda fact: _RANK[fact.kind])


def _from_code(node: Node, found: Inference, target: Any, method: str | None, mode: str) -> Model:
    here = node.location
    facts = ordered_blocks(found)
    notes = tuple(Property("note", fact.text, fact.location) for fact in found.facts.of(Kind.NOTE))
    if isinstance(node.logic, Keyed) and node.key:
        # The author declared state and key. What cannot be followed does not speak against that; what is seen to
        # keep more than was declared does.
        notes += tuple(
            Property("note", f"taken on trust, because the key is declared: {fact.text}", fact.location)
            for fact in facts
            if fact.kind in TRUSTED
        )
        facts = [fact for fact in facts if fact.kind not in TRUSTED]
    blocks = tuple(Property(State.UNKNOWN, fact.text, fact.location) for fact in facts)
    logic: Any = None
    key: Key | None = None
    case = 0
    if blocks:
        state = blocks[0]
    elif isinstance(node.logic, Keyed):
        names = ", ".join(field.name for field in node.logic.fields)
        key, case = Key(node.key, function=node.key_function), 1
        state = Property(State.PARTITIONED, f"declared state ({names}) is kept for each {key.text}", here)
        if not node.key and node.key_function is None:
            state = Property(State.UNKNOWN, "it has declared state but no key", here)
            blocks, key = (state,), None
    elif found.dicts and found.key is not None:
        key = found.key
        stores = any(getattr(found.facts.objects[i], "is_anabranch_store", False) for i in found.dicts)
        case = 3 if stores else 2
        names = ", ".join(sorted(found.dicts.values()))
        state = Property(
            State.PARTITIONED, f"{names} is always indexed with {found.key.text}", found.key_location or here
        )
        logic = rewrite(found, target, method, mode)
    else:
        state = Property(State.STATELESS, "it writes nothing that outlives the call", _definition(found, here))
    selectivity = Property(found.selectivity, found.selectivity_reason, found.selectivity_location or here)
    ordering = {
        State.STATELESS: Ordering.TOLERANT,
        State.PARTITIONED: Ordering.PER_KEY,
        State.UNKNOWN: Ordering.NEEDED,
    }[state.value]
    return Model(
        state=state,
        selectivity=selectivity,
        forwarding=Property(found.forwarding, found.forwarding_reason, found.selectivity_location or here),
        inputs=Property((Input.OBLIVIOUS,) * max(1, len(node.inputs)), "it takes tuples only", here),
        output=Property(Output.PRESERVES, "punctuations pass by it", here),
        ordering=Property(ordering, _ORDERING_REASONS[ordering], here),
        key=key,
        blocks=blocks,
        notes=notes,
        remedy=_remedy(node, found) if blocks else "",
        case=case,
        logic=logic,
    )


def _definition(found: Inference, fallback: Location) -> Location:
    reader = found.reader
    if reader is not None and getattr(reader.tree, "lineno", None):
        return Location(reader.frame.file, reader.tree.lineno)
    return fallback


def _remedy(node: Node, found: Inference) -> str:
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
    if first.kind is Kind.IMPURE:
        return "let the tuple carry what it needs, or declare it with @ab.model(state=…) if any value will do"
    if "index" in first.text and "with" in first.text:
        return "index its dicts with the same columns of the tuple everywhere"
    return "declare what it does: @ab.model(state=…, selectivity=…)"


# -- declarations -----------------------------------------------------------------------------------------


def _declare(node: Node, model: Model, found: Inference | None, declared: Declaration | None) -> Model:
    """The model with what the author declared; an error where the code plainly shows the opposite."""
    if declared is None:
        return model
    changes: dict[str, Any] = {}
    if declared.state is not None:
        changes.update(_declared_state(node, model, found, declared))
    if declared.selectivity is not None:
        _check_selectivity(node, model, found, declared.selectivity)
        changes["selectivity"] = Property(declared.selectivity, _SAID, node.location)
    if declared.forwards is not None:
        names = node.schema.names if declared.forwards == "*" else declared.forwards
        source = node.inputs[0].schema if node.inputs else node.schema
        for name in names:
            if name not in node.schema or name not in source:
                raise ProgramError(f"{node.title}: declared to forward {name!r}, which is not in its input and output")
        changes["forwarding"] = Property({name: name for name in names}, _SAID, node.location)
    if declared.inputs is not None:
        wanted = declared.inputs * max(1, len(node.inputs)) if len(declared.inputs) == 1 else declared.inputs
        if len(wanted) != max(1, len(node.inputs)):
            raise ProgramError(
                f"{node.title}: declared {len(wanted)} input ports, but it has {max(1, len(node.inputs))}"
            )
        changes["inputs"] = Property(wanted, _SAID, node.location)
    if declared.output is not None:
        changes["output"] = Property(declared.output, _SAID, node.location)
    if declared.ordering is not None:
        changes["ordering"] = Property(declared.ordering, _SAID, node.location)
    return dataclasses.replace(model, **changes)


_SAID = "its author declared it"


def _declared_state(node: Node, model: Model, found: Inference | None, declared: Declaration) -> dict[str, Any]:
    writes = found.facts.of(Kind.WRITE) if found is not None else []
    kept = found is not None and bool(found.dicts or getattr(node.logic, "fields", None))
    if declared.state is State.STATELESS:
        if writes:
            raise ProgramError(
                f"{node.title}: declared stateless, but it writes {writes[0].path} at {writes[0].location} "
                f"({writes[0].text}); remove the declaration, or declare state='partitioned' with its key"
            )
        if kept:
            raise ProgramError(
                f"{node.title}: declared stateless, but it keeps state ({model.state.reason}, "
                f"{model.state.location}); remove the declaration"
            )
        return {
            "state": Property(State.STATELESS, _SAID, node.location),
            "blocks": (),
            "key": None,
            "remedy": "",
            "ordering": Property(Ordering.TOLERANT, _ORDERING_REASONS[Ordering.TOLERANT], node.location),
        }
    if declared.state is State.UNKNOWN:
        blocked = Property(State.UNKNOWN, _SAID, node.location)
        return {
            "state": blocked,
            "blocks": (blocked,),
            "key": None,
            "logic": None,
            "case": 0,
            "remedy": "remove the declaration",
            "ordering": Property(Ordering.NEEDED, _ORDERING_REASONS[Ordering.NEEDED], node.location),
        }
    columns = node.key or declared.key
    if not columns and model.key is not None:
        columns = model.key.columns
    if not columns and node.key_function is None:
        raise ProgramError(
            f"{node.title}: declared to have partitioned state, but no key is named; give by=… or key=… in the model"
        )
    for name in columns:
        for source in node.inputs:
            if name not in source.schema:
                raise ProgramError(
                    f"{node.title}: its declared key names the column {name!r}, which its "
                    "input does not have; "
                    f"columns: {', '.join(source.schema.names)}"
                )
    if model.key is not None and found is not None and found.dicts and not set(columns) & set(model.key.columns):
        raise ProgramError(
            f"{node.title}: declared to be partitioned by {', '.join(columns)}, but it "
            "indexes its state with "
            f"{model.key.text} at {model.state.location}"
        )
    single = [fact for fact in writes if fact.identity and not _is_mapping(found, fact.identity)]
    if single:
        raise ProgramError(
            f"{node.title}: declared to be partitioned by {', '.join(columns)}, but it writes "
            f"{single[0].path} at "
            f"{single[0].location}, which all keys share ({single[0].text})"
        )
    if model.state.value is State.PARTITIONED:
        return {}
    if model.logic is None and found is not None and not _is_managed(node, found):
        raise ProgramError(
            f"{node.title}: declared to be partitioned by {', '.join(columns)}, but its state "
            "is not managed: "
            f"{model.state.reason} ({model.state.location}); declare the state with ab.state() or ab.store()"
        )
    return {
        "state": Property(State.PARTITIONED, _SAID, node.location),
        "blocks": (),
        "remedy": "",
        "case": 3,
        "key": Key(columns, function=node.key_function),
        "ordering": Property(Ordering.PER_KEY, _ORDERING_REASONS[Ordering.PER_KEY], node.location),
    }


def _is_managed(node: Node, found: Inference) -> bool:
    """All state the operator has is declared with ``ab.state()`` or ``ab.store()``."""
    if isinstance(node.logic, Keyed):
        return True
    stores = [found.facts.objects.get(identity) for identity in found.dicts]
    return bool(stores) and all(getattr(held, "is_anabranch_store", False) for held in stores)


def _is_mapping(found: Inference | None, identity: Identity) -> bool:
    if found is None or not isinstance(identity, int):
        return False
    return isinstance(found.facts.objects.get(identity), (dict, set))


def _check_selectivity(node: Node, model: Model, found: Inference | None, declared: Selectivity) -> None:
    order = list(Selectivity)
    if isinstance(node.logic, Map) and declared is not Selectivity.ONE:
        raise ProgramError(f"{node.title}: declared {declared.value}, but a map emits one tuple for each: use flat_map")
    if found is None or isinstance(node.logic, (Map, Filter)):
        return
    least, most = found.facts.emitted
    shown_many = most == 2 and least == 2
    if order.index(declared) < order.index(Selectivity.ANY) and shown_many:
        raise ProgramError(
            f"{node.title}: declared {declared.value}, but it emits two tuples or more on every path "
            f"({found.selectivity_location}); declare '1:[0,∞)'"
        )
    if declared is Selectivity.ONE and most == 0:
        raise ProgramError(f"{node.title}: declared 1:1, but no path of it emits anything; declare '1:[0,1]'")
    proven = least == 0 and most <= 1
    if declared is Selectivity.ONE and proven and model.selectivity.value is Selectivity.AT_MOST_ONE:
        raise ProgramError(
            f"{node.title}: declared 1:1, but there is a path that emits nothing "
            f"({found.selectivity_reason}, {found.selectivity_location}); declare '1:[0,1]'"
        )
