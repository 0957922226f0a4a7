"""From an operator's code to what it does: state, selectivity, forwarding, each with a reason.

The code is read (`read_operator.py`) with abstract values (`values.py`), first as if nothing were state. If it
writes only dicts that are empty now, it is read again with those dicts taken for state of the tuple's key
(case 2), and the indexes it uses are compared. Reading is repeated until the state's contents hold no
surprise. Whatever cannot be followed is a fact of kind UNKNOWN, and one such fact makes the operator
sequential.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any

from anabranch.compiler.models.findings import Inference
from anabranch.compiler.models.forwarding import find_forwarding
from anabranch.compiler.models.key_proof import find_key
from anabranch.compiler.models.selectivity import find_selectivity
from anabranch.compiler.reading.facts import BLOCKING, Facts, Kind
from anabranch.compiler.reading.read_operator import Beside, read
from anabranch.compiler.reading.reading_state import KEYED_TYPES, Reading
from anabranch.compiler.reading.values import ROW_TYPES, TUPLE, NoneType, is_scalar_type
from anabranch.program.elsewhere import held_elsewhere
from anabranch.program.graph import Location, StateField
from anabranch.program.object_parts import class_data, globals_in, is_library
from anabranch.program.object_reach import code_of, reached
from anabranch.program.schema import Schema


def infer(
    target: Any,
    method: str | None,
    schema: Schema | None,
    output: Schema | None = None,
    mode: str = "process",
    fields: tuple[StateField, ...] = (),
    fallback: Location | None = None,
    takes_tuple: bool = True,
    beside: tuple[Beside, ...] = (),
    has_declared_key: bool = False,
) -> Inference:
    """What an operator does, from its code.

    Parameters
    ----------
    target : callable or object
        The function, or the object whose `method` takes the tuple.
    method : str or None
        The method; None if `target` itself is called.
    schema, output : Schema
        The columns of the input and of what it emits.
    mode : {"map", "filter", "flat_map", "process"}
        How the result becomes tuples.
    fields : tuple of StateField
        Attributes that are declared as state of a key (case 1).
    takes_tuple : bool
        False for a function that is called without arguments: what makes an accumulator.
    beside : tuple of Beside
        Other methods, which find in the fields what this one leaves there, and leave there what it finds.
    has_declared_key : bool
        Its key is declared, so nothing is kept but the fields, not even if there are none: no dict is taken for state.
    """
    keyed: dict[int, str] = {}
    only_fields = has_declared_key or bool(fields)
    guessed = {} if only_fields else _own_dicts(target)
    first = _read_with_guess(target, method, schema, guessed, fallback) if guessed else None
    if first is not None:
        keyed = {identity: name for identity, (name, _) in guessed.items()}
    reading = first or read(target, method, schema, fields, dict(keyed), fallback, None, takes_tuple, beside)
    for _ in range(4):
        written = reading.facts.of(Kind.WRITE)
        more = {} if only_fields else _dicts_written(reading.facts, target)
        if not written or set(more) <= set(keyed):
            break
        keyed.update({identity: name for identity, name in more.items() if identity not in keyed})
        known = {identity: reading.facts.objects[identity] for identity in keyed if identity in reading.facts.objects}
        reading = read(target, method, schema, fields, dict(keyed), fallback, known, takes_tuple, beside)
    facts = reading.facts
    for path, place in facts.cached.items() if has_declared_key else ():
        facts.add(Kind.WRITE, f"reads {path}, a cached property: {path} outlives the call", place, path=path)
    found = Inference(facts, facts.of(*BLOCKING, Kind.WRITE), reading=reading)
    if keyed and not facts.of(Kind.WRITE):
        found.dicts = dict(keyed)
        find_key(found)
    elif keyed:
        # Something else stands in the way; what is wrong with the indexes is told, too.
        find_key(dataclasses.replace(found, dicts=dict(keyed)))
        found.blocks = facts.of(*BLOCKING, Kind.WRITE)
    find_selectivity(found, reading, mode)
    find_forwarding(found, reading, schema, output, mode)
    return found


def _own_dicts(target: Any) -> dict[int, tuple[str, Any]]:
    """Empty dicts and sets among the operator's attributes: most likely they are its state."""
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    held = getattr(owner, "__dict__", {}) if not isinstance(owner, (types.FunctionType, type)) else {}
    return {id(found): (name, found) for name, found in held.items() if type(found) in KEYED_TYPES and not len(found)}


def _read_with_guess(
    target: Any,
    method: str | None,
    schema: Schema | None,
    guessed: dict[int, tuple[str, Any]],
    fallback: Location | None,
) -> Reading | None:
    """Read with the guess that these dicts are the state; None if that is not all there is to it.

    A right guess saves the reading that would only have found out what is written.
    """
    keyed = {identity: name for identity, (name, _) in guessed.items()}
    objects = {identity: found for identity, (_, found) in guessed.items()}
    reading = read(target, method, schema, (), keyed, fallback, objects)
    right = reading.facts.stored == set(guessed) and not reading.facts.of(*BLOCKING, Kind.WRITE)
    return reading if right and all(_one_way(reading.facts, each, target) for each in guessed) else None


def _dicts_written(facts: Facts, target: Any) -> dict[int, str]:
    """The dicts and sets the code writes that can be taken apart by key and found again elsewhere."""
    found: dict[int, str] = {}
    taken: set[str] = set()
    for fact in facts.of(Kind.WRITE):
        if not isinstance(fact.identity, int):
            continue  # a variable or attribute is assigned, not a dict changed
        held = facts.objects.get(fact.identity)
        if type(held) not in KEYED_TYPES or not _starts_simple(held):
            continue
        if not _one_way(facts, fact.identity, target):
            continue
        if fact.identity in found:
            continue
        words = fact.path.split(" of ")  # "counts of the default of held" is named by its first word
        name = words[0] if len(words) > 1 and " " not in words[0] else fact.path.rsplit(".", 1)[-1].rsplit(" ", 1)[-1]
        name = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_") or "state"
        while name in taken:
            name += "_"
        taken.add(name)
        found[fact.identity] = name
    return found


def _starts_simple(held: Any) -> bool:
    """Empty now, or with values that cannot change: then each key can start with its own entry."""
    inside = held if isinstance(held, set) else [*held.keys(), *held.values()]
    return all(is_scalar_type(kind) for kind in set(map(type, inside)))


def _one_way(facts: Facts, identity: int, target: Any) -> bool:
    """All the ways to the object lead to one object in another process too.

    What the code's globals and classes hold is found there by name; what hangs on the operator travels with it, in one
    piece: a dict that is reached through a helper object, a bound method, a closure or a container is still one. But an
    object reached both from the operator and from a module would be two there; and so would one that is reached by the
    name of another module (`helpers.count(t.k)`), which no copy of the operator has.
    """
    routes = facts.routes.get(identity)
    if not routes:
        return False
    kinds = {route[0] for route in routes}
    if "module" in kinds:
        return False
    if kinds & {"global", "class"} and identity in held_elsewhere(code_of(target)[1], facts.globals_read):
        return False
    if "elsewhere" not in kinds and not (facts.operator_elsewhere and "operator" in kinds):
        return len({kind == "global" for kind in kinds}) == 1
    if kinds & {"global", "class"} or identity not in reached(target, as_copied=False):
        return False
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    of_modules = _reached_from_modules(target)
    return identity not in of_modules and id(owner) not in of_modules


def _reached_from_modules(target: Any) -> set[int]:
    """All that the globals which the operator's code names, and its classes, lead to."""
    found: set[int] = set()
    for each in reached(target, as_copied=True).values():
        if isinstance(each, types.FunctionType) and not is_library(each.__module__):
            names = [name for name in globals_in(each) if name in each.__globals__]
            held = [each.__globals__[name] for name in names]
        elif isinstance(each, type):
            held = [value for _, value in class_data(each, as_copied=True)]
        else:
            continue
        for value in held:
            if id(value) not in found and not isinstance(value, (types.ModuleType, types.FunctionType, type)):
                found.update(reached(value, as_copied=True))
    return found


def infer_output_schema(
    function: Any, schema: Schema, method: str | None = None, mode: str = "process"
) -> Schema | None:
    """The schema of what a function emits, if every tuple is the input or ``t.but(…)`` of the same types.

    Examples
    --------
    >>> schema = Schema.of("id long, value double")
    >>> infer_output_schema(lambda t: t.but(value=t.value * 2), schema, mode="map")
    id bigint, value double
    """
    found = infer(function, method, schema, schema, mode)
    reading = found.reading
    if reading is None or not found.emissions:
        return None
    rows = 0
    for each in found.emissions:
        value = each.value
        if value.is_nothing or value.types == frozenset({NoneType}):
            continue
        kinds = None if value.types is None else value.types - {NoneType}
        if kinds != ROW_TYPES or each.many:
            return None
        rows += 1
        if value.objects == frozenset({TUPLE}):
            continue
        parts = reading.heap.parts(dataclasses.replace(value, types=kinds))
        if parts is None or tuple(parts) != schema.names:
            return None
        for name, part in parts.items():
            expected = reading.column(str(name)).types
            if part.text is not None and part.text.column == name:
                continue
            if part.types is None or expected is None or not part.types <= expected | _widened(expected):
                return None
    return schema if rows else None


def infer_scalar_type(function: Any, schema: Schema) -> type | None:
    """The one type of all values that a function of a tuple returns, if it is a scalar's; None may be among them.

    Examples
    --------
    >>> infer_scalar_type(lambda t: t.id % 10, Schema.of("id long not null"))
    <class 'int'>
    """
    found = infer(function, None, schema, None, "map")
    if not found.emissions:
        return None
    kinds: set[type] = set()
    for each in found.emissions:
        if each.value.types is None or each.many:
            return None
        kinds |= each.value.types - {NoneType}
    only = kinds.pop() if len(kinds) == 1 else None
    return only if only is not None and is_scalar_type(only) else None


def _widened(expected: frozenset[type]) -> frozenset[type]:
    return frozenset({int}) if float in expected else frozenset()
