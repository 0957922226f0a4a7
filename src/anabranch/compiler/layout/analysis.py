"""From a node of the graph to its model: built-in knowledge, declarations, and what the code shows."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from typing import Any

from anabranch.compiler.models.blocks import block_of, ordered_blocks, remedy_of, told_unfollowed
from anabranch.compiler.models.built_in import ORDERING_REASONS, built_in_model, together
from anabranch.compiler.models.elastic_models import elastic_model, is_elastic
from anabranch.compiler.models.findings import Inference
from anabranch.compiler.models.inference import infer
from anabranch.compiler.reading.facts import TRUSTED, Identity, Kind
from anabranch.compiler.reading.kinds import static_attribute
from anabranch.compiler.reading.read_operator import Beside
from anabranch.compiler.rewriting.managed_state import rewrite
from anabranch.errors import ProgramError
from anabranch.program.elastic import user_function
from anabranch.program.elsewhere import held_elsewhere
from anabranch.program.graph import (
    Filter,
    FlatMap,
    Keyed,
    Location,
    Map,
    Node,
    Process,
    StateField,
    is_ours,
)
from anabranch.program.model import (
    Cause,
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
from anabranch.program.object_reach import code_of, reached

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
    read: list[Inference] = []
    built_in = built_in_model(node, read)
    if built_in is not None:
        return built_in, together(read)
    target, method, mode, fields = _code_of(node)
    _check_method(node, target, method)
    schema = node.inputs[0].schema if node.inputs else None
    schema = getattr(getattr(node.logic, "prototype", None), "schema_as_written", schema)
    beside = _methods_beside(node, target)
    keyed = isinstance(node.logic, Keyed)
    found = infer(target, method, schema, node.schema, mode, fields, node.location, True, beside, keyed)
    model = _from_code(node, found, target, method, mode)
    if beside:
        beside = (Beside(target, str(method), schema), *beside)
    others = _called_between(node, target, fields, beside)
    model = _told_to_all(node, model, target, others, beside)
    if isinstance(node.logic, Keyed) and (node.logic.timed or node.logic.punctuated):
        model = _emitting_between(node, model, others)
    model = _declare(node, model, found, declaration_of(target))
    if is_elastic(node):
        model = elastic_model(node, model, found)
    for other in others:
        found.facts.written |= other.facts.written
        found.facts.touched |= other.facts.touched
        found.facts.globals_read |= other.facts.globals_read
        found.facts.globals_written |= other.facts.globals_written
    # What was read with is large; of a large program only what was found is kept.
    found.reading = None
    found.emissions.clear()
    return model, found


def _check_key(node: Node) -> None:
    for place, source in enumerate(node.inputs):
        for name in node.key_of(place):
            if name not in source.schema:
                raise ProgramError(
                    f"{node.title}: its key names the column {name!r}, which its input does not have; "
                    f"columns: {', '.join(source.schema.names)}"
                )


def _check_method(node: Node, target: Any, method: str | None) -> None:
    """What takes the tuples must be a method of the class: that is what runs, for each key with another self."""
    if isinstance(node.logic, Process) and node.logic.method == "__call__" and not inspect.isroutine(target):
        method = "__call__"
    if method is None or inspect.isroutine(target) or isinstance(target, (type, functools.partial)):
        return
    if method in getattr(target, "__dict__", {}):
        raise ProgramError(
            f"{node.title}: {method}() was replaced on the object itself, which its copies for each key do not see; "
            f"define it in the class, or let {method}() call what you keep in an attribute"
        )
    member = static_attribute(type(target), method)
    if isinstance(node.logic, Keyed) and not isinstance(member, types.FunctionType):
        raise ProgramError(
            f"{node.title}: {method} is a {type(member).__name__}, not a method that takes self and a tuple; "
            f"write it as a plain method: def {method}(self, t)"
        )


def _code_of(node: Node) -> tuple[Any, str | None, str, tuple[Any, ...]]:
    logic = node.logic
    if isinstance(logic, Keyed):
        # What takes the tuples of an operator that waits is ours, and calls the user's.
        method = logic.method if logic.method not in _TAKING else "process"
        as_written = getattr(logic.prototype, "operator_as_written", None)  # behind the columns of a computed key
        target = logic.prototype if as_written is None else as_written()
        return target, method, "process", (*logic.fields, *_broadcast_fields(logic))
    if isinstance(logic, Process):
        return logic.operator, None if _is_called(logic) else logic.method, "process", ()
    return user_function(logic.function), None, _MODES[type(logic)], ()  # type: ignore[union-attr]


_TAKING = ("take_until_end", "take_until_punctuation")
_BETWEEN = ("on_timer", "on_end", "on_punctuation")


def _methods_beside(node: Node, target: Any) -> tuple[Beside, ...]:
    """The methods beside the one that takes tuples, which change the same state."""
    logic = node.logic
    if not isinstance(logic, Keyed):
        return ()
    found = [Beside(target, logic.broadcast.method, node.inputs[-1].schema)] if logic.broadcast is not None else []
    if logic.timed or logic.punctuated:
        defined = [name for name in _BETWEEN if not is_ours(_file_of(static_attribute(type(target), name)))]
        found += [Beside(target, name, None, name == "on_timer") for name in defined]
    return tuple(found)


def _called_between(node: Node, target: Any, fields: tuple[Any, ...], methods: tuple[Beside, ...]) -> list[Inference]:
    """What was read of the methods that are called between tuples: when a time has come, at punctuations."""
    return [
        infer(
            target,
            each.method,
            None,
            node.schema,
            "process",
            fields,
            node.location,
            each.takes_tuple,
            _without(methods, each),
            has_declared_key=True,
        )
        for each in methods
        if each.method in _BETWEEN
    ]


def _without(methods: tuple[Beside, ...], one: Beside) -> tuple[Beside, ...]:
    return tuple(each for each in methods if each is not one)


def _broadcast_fields(logic: Keyed) -> tuple[StateField, ...]:
    fields = logic.broadcast.fields if logic.broadcast is not None else ()
    return tuple(StateField(field.name, field.default, field.factory) for field in fields)


def _told_to_all(node: Node, model: Model, target: Any, others: list[Inference], methods: tuple[Beside, ...]) -> Model:
    """The model of an operator that takes a broadcast stream, too; what was read of that is added to `others`."""
    if not isinstance(node.logic, Keyed) or node.logic.broadcast is None:
        return model
    method, fields = node.logic.broadcast.method, _broadcast_fields(node.logic)
    beside = tuple(each for each in methods if each.method != method)
    schema = node.inputs[-1].schema
    found = infer(target, method, schema, node.schema, "process", fields, node.location, True, beside, True)
    others.append(found)
    facts = ordered_blocks(found)
    blocks = model.blocks + tuple(block_of(fact, f"{method}: ") for fact in facts if fact.kind not in TRUSTED)
    if blocks and not model.blocks:
        model = dataclasses.replace(model, state=blocks[0], key=None, case=0)
    trusted = told_unfollowed([fact for fact in facts if fact.kind in TRUSTED], node.logic.prototype)
    return dataclasses.replace(model, blocks=blocks, unfollowed=model.unfollowed or trusted)


def _file_of(member: Any) -> str:
    """Where a method was written; what is none counts as ours."""
    return member.__code__.co_filename if isinstance(member, types.FunctionType) else __file__


def _emitting_between(node: Node, model: Model, others: list[Inference]) -> Model:
    """The model of an operator that also emits between tuples: it has no tuple then whose columns it could copy."""
    assert isinstance(node.logic, Keyed)
    here = node.location
    facts = [fact for found in others for fact in ordered_blocks(found)]
    blocks = model.blocks + tuple(block_of(fact) for fact in facts if fact.kind not in TRUSTED)
    trusted = [fact for fact in facts if fact.kind in TRUSTED]
    when = "at punctuations" if node.logic.punctuated else "when a time has come"
    inputs = model.inputs
    if node.logic.punctuated:
        kinds = (Input.OBLIVIOUS if node.is_broadcast(at) else Input.EXPECTING for at in range(len(node.inputs)))
        inputs = Property(tuple(kinds), "it is called at punctuations", here)
    if blocks and not model.blocks:
        model = dataclasses.replace(model, state=blocks[0], key=None, case=0)
    return dataclasses.replace(
        model,
        blocks=blocks,
        inputs=inputs,
        unfollowed=model.unfollowed or told_unfollowed(trusted, node.logic.prototype),
        # What our timers do is not the user's code.
        notes=tuple(note for note in model.notes if note.location is None or not is_ours(note.location.file)),
        selectivity=Property(Selectivity.ANY, f"it may emit {when}", here),
        forwarding=Property({}, f"what it emits {when} comes from no tuple", here),
    )


def _is_called(logic: Process) -> bool:
    return logic.method == "__call__" and callable(logic.operator)


# -- operators of the user --------------------------------------------------------------------------------


def _from_code(node: Node, found: Inference, target: Any, method: str | None, mode: str) -> Model:
    here = node.location
    facts = ordered_blocks(found)
    notes = tuple(Property("note", fact.text, fact.location) for fact in found.facts.of(Kind.NOTE))
    unfollowed = ""
    if isinstance(node.logic, Keyed) and node.key:
        # The author declared state and key. What cannot be followed does not speak against that, but is watched where
        # it runs; what is seen to keep more than was declared does.
        trusted = [fact for fact in facts if fact.kind in TRUSTED]
        unfollowed = told_unfollowed(trusted, target)
        how = "watched where it runs" if unfollowed else "taken on trust"
        notes += tuple(
            Property("note", f"{how}, because the key is declared: {fact.text}", fact.location) for fact in trusted
        )
        facts = [fact for fact in facts if fact.kind not in TRUSTED]
    blocks: tuple[Property, ...] = tuple(block_of(fact) for fact in facts)
    logic: Any = None
    key: Key | None = None
    case = 0
    if blocks:
        state = blocks[0]
    elif isinstance(node.logic, Keyed):
        names = ", ".join(field.name for field in node.logic.fields)
        key, case = Key(node.key), 1
        state = Property(State.PARTITIONED, f"declared state ({names}) is kept for each {key.text}", here)
        if not node.key:
            state = Property(State.UNKNOWN, "it has declared state but no key", here)
            blocks, key = (state,), None
    elif found.dicts and found.key is not None:
        key = found.key
        case = 2
        names = ", ".join(sorted(found.dicts.values()))
        state = Property(
            State.PARTITIONED, f"{names} is always indexed with {found.key.text}", found.key_location or here
        )
        logic = rewrite(found, target, method, mode)
        kept = sorted(found.facts.with_objects & {*found.dicts.values()})
        if kept:
            text = f"{', '.join(kept)} is not watched where it runs: it holds objects of your classes"
            notes += (Property("note", text, found.key_location or here),)
    else:
        state = Property(State.STATELESS, "it writes nothing that outlives the call", _definition(found, here))
    selectivity = Property(found.selectivity, found.selectivity_reason, found.selectivity_location or here)
    ordering = {
        State.STATELESS: Ordering.TOLERANT,
        State.PARTITIONED: Ordering.PER_KEY,
        State.UNKNOWN: Ordering.NEEDED,
    }[state.value]
    alone = state.value is State.UNKNOWN or (key is not None and bool(key.expression))
    in_globals, out_of_reach = _written_outside(found, target) if alone and found.facts.written else ((), ())
    not_kept = tuple(f"{text} (line {place.line})" for text, place in found.facts.not_kept.items())
    asked = found.facts.by_identity if found.facts.written else {}
    by_identity = tuple(f"{text} (line {place.line})" for text, place in asked.items())
    if alone and not isinstance(node.logic, Keyed):
        unseen = f"what {{}} gets is not seen in the code: if it is no data, the {_STOPS}"
        notes += tuple(Property("note", unseen.format(path), at) for path, at in found.facts.unseen.items())
    return Model(
        in_globals=in_globals,
        out_of_reach=out_of_reach,
        not_kept=not_kept,
        by_identity=by_identity,
        unfollowed=unfollowed,
        state=state,
        selectivity=selectivity,
        forwarding=Property(found.forwarding, found.forwarding_reason, found.selectivity_location or here),
        inputs=Property((Input.OBLIVIOUS,) * max(1, len(node.inputs)), "it takes tuples only", here),
        output=Property(Output.PRESERVES, "punctuations pass by it", here),
        ordering=Property(ordering, ORDERING_REASONS[ordering], here),
        key=key,
        blocks=blocks,
        notes=notes,
        remedy=remedy_of(node, found) if blocks else "",
        case=case,
        logic=logic,
    )


_STOPS = "query stops at the end of its first epoch with what to change"


def _written_outside(found: Inference, target: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is written outside of the operator's object: where only a copy's own globals lead; where nothing does."""
    own, copied = reached(target, as_copied=False), reached(target, as_copied=True)
    in_globals, out_of_reach = [], []
    elsewhere = held_elsewhere(code_of(target)[1], found.facts.globals_read)
    for identity, path in found.facts.written.items():
        owner = identity if isinstance(identity, int) else identity[0]
        is_module = isinstance(found.facts.objects.get(owner), types.ModuleType)  # no copy has one of its own
        if is_module or owner not in copied or (owner in elsewhere and owner not in own):
            out_of_reach.append(path)
        elif owner not in own:
            in_globals.append(path)
    return tuple(dict.fromkeys(in_globals)), tuple(dict.fromkeys(out_of_reach))


def _definition(found: Inference, fallback: Location) -> Location:
    reading = found.reading
    if reading is not None and getattr(reading.tree, "lineno", None) and not is_ours(reading.frame.file):
        return Location(reading.frame.file, reading.tree.lineno)
    return fallback


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
        changes["selectivity"] = _said(declared.selectivity, node)
    if declared.forwards is not None:
        names = node.schema.names if declared.forwards == "*" else declared.forwards
        source = node.inputs[0].schema if node.inputs else node.schema
        for name in names:
            if name not in node.schema or name not in source:
                raise ProgramError(f"{node.title}: declared to forward {name!r}, which is not in its input and output")
            if found is not None and name in found.replaced:
                text, where = found.replaced[name]
                raise ProgramError(
                    f"{node.title}: declared to forward {name!r}, but it emits {text} for it at {where}; "
                    "name in forwards only the columns that are copied"
                )
        changes["forwarding"] = _said({name: name for name in names}, node)
    if declared.inputs is not None:
        wanted = declared.inputs * max(1, len(node.inputs)) if len(declared.inputs) == 1 else declared.inputs
        if len(wanted) != max(1, len(node.inputs)):
            raise ProgramError(
                f"{node.title}: declared {len(wanted)} input ports, but it has {max(1, len(node.inputs))}"
            )
        changes["inputs"] = _said(wanted, node)
    if declared.output is not None:
        changes["output"] = _said(declared.output, node)
    if declared.ordering is not None:
        changes["ordering"] = _said(declared.ordering, node)
    return dataclasses.replace(model, **changes)


def _said(value: Any, node: Node) -> Property:
    return Property(value, "its author declared it", node.location, Cause.DECLARED)


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
            "state": _said(State.STATELESS, node),
            "blocks": (),
            "key": None,
            "remedy": "",
            "ordering": Property(Ordering.TOLERANT, ORDERING_REASONS[Ordering.TOLERANT], node.location),
        }
    if declared.state is State.UNKNOWN:
        blocked = _said(State.UNKNOWN, node)
        return {
            "state": blocked,
            "blocks": (blocked,),
            "key": None,
            "logic": None,
            "case": 0,
            "remedy": "remove the declaration",
            "ordering": Property(Ordering.NEEDED, ORDERING_REASONS[Ordering.NEEDED], node.location),
        }
    columns = node.key or declared.key
    if not columns and model.key is not None:
        columns = model.key.columns
    if not columns:
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
    if model.logic is None and found is not None and not isinstance(node.logic, Keyed):
        raise ProgramError(
            f"{node.title}: declared to be partitioned by {', '.join(columns)}, but its state "
            "is not managed: "
            f"{model.state.reason} ({model.state.location}); declare the state with ab.state() or ab.store()"
        )
    return {
        "state": _said(State.PARTITIONED, node),
        "blocks": (),
        "remedy": "",
        "case": 3,
        "key": Key(columns),
        "ordering": Property(Ordering.PER_KEY, ORDERING_REASONS[Ordering.PER_KEY], node.location),
    }


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
