"""Reading one operator: its code is followed with one tuple, until nothing new is learned about its state.

Here the handlers of all the files meet. Whatever goes wrong on the way, a fault of our own too, ends as a fact of
kind UNKNOWN.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.compiler.reading import (
    assigning,
    attributes,
    calls,
    comprehensions,
    displays,
    emitting,
    known,
    names,
    operations,
    statements,
    subscripts,
)
from anabranch.compiler.reading.facts import Facts, Kind
from anabranch.compiler.reading.kinds import is_plain_class, is_record, static_attribute
from anabranch.compiler.reading.outliving import look_at_what_outlives
from anabranch.compiler.reading.reading_state import Handlers, Reading, TooLargeError
from anabranch.compiler.reading.values import (
    EMIT,
    ROW_TYPES,
    TUPLE,
    Callback,
    Handle,
    Iterator,
    Kept,
    Shared,
    Site,
    Text,
    Value,
    is_plain_enum,
)
from anabranch.program.graph import Location, StateField
from anabranch.program.object_parts import is_kept_whole, is_library, is_plain_instance
from anabranch.program.object_reach import code_of, reached
from anabranch.program.schema import Schema
from anabranch.program.source_code import NoSource, tree_of

_MOST_PASSES = 8
INTERNAL = "the compiler failed on it"

HANDLERS = Handlers(
    expressions={
        **names.EXPRESSIONS,
        **attributes.EXPRESSIONS,
        **subscripts.EXPRESSIONS,
        **displays.EXPRESSIONS,
        **comprehensions.EXPRESSIONS,
        **operations.EXPRESSIONS,
        **assigning.EXPRESSIONS,
        **calls.EXPRESSIONS,
        **emitting.EXPRESSIONS,
    },
    statements={**assigning.STATEMENTS, **statements.STATEMENTS},
    call=calls.call,
)


def read_until_settled(reading: Reading, fields: tuple[StateField, ...], once: Callable[[], None]) -> None:
    """Read what `once` reads of the user's, again and again, until nothing new is learned."""
    try:
        for _ in range(_MOST_PASSES):
            before = reading.heap.version
            _begin_pass(reading, fields)
            once()
            if before == reading.heap.version or not (reading.lazy or reading.fields or reading.keyed):
                break
        else:
            reading.unknown(None, "its state cannot be followed")
        for location, how in reading.caught_used if reading.makes_odd_errors else ():
            text = f"{how}: an error that was caught may have its own special methods, or hold what has"
            reading.facts.add(Kind.UNKNOWN, text, location)
        _look_for_aliases(reading)
        _look_for_identity_of_kept(reading)
        _look_for_what_is_not_data(reading)
        _look_for_what_others_hold(reading)
        look_at_what_outlives(reading)
    except TooLargeError:
        reading.unknown(None, "it is too large to be followed")
    except RecursionError:
        reading.unknown(None, "it is nested too deeply to be followed")
    except Exception as problem:
        # A fault of ours must not stop the user's program: it runs on one thread. Tests look for it.
        reading.unknown(None, f"{INTERNAL}: {type(problem).__name__}: {problem}")


def _begin_function(reading: Reading) -> None:
    """Nothing is left of the function that was read before."""
    reading.returns.clear()
    reading.outliving.clear()
    reading.active.clear()
    reading.flow.variables.clear()
    reading.flow.least = reading.flow.most = 0
    reading.flow.alive = True


def _begin_pass(reading: Reading, fields: tuple[StateField, ...]) -> None:
    reading.passes += 1
    reading.facts.emissions.clear()
    _begin_function(reading)
    for field in fields:
        _keep_first(reading, field)
    for identity, name in reading.keyed.items():
        held = reading.facts.objects.get(identity)
        if isinstance(held, dict) and held:
            reading.keep(name, Value(types=frozenset(map(type, held.values()))), reading.start)


def _read_once(reading: Reading, target: Any, method: str | None, beside: Sequence[Beside]) -> None:
    """Read one call with one tuple; before it the other methods, for what they may leave in the state."""
    for other in beside:
        _read_beside(reading, other)
    row = Value(types=ROW_TYPES, objects=frozenset({TUPLE}), text=Text("t"))
    path = "self" if not isinstance(target, (types.FunctionType, type)) else target.__name__
    reading.operator_reached = False
    value = reading.shared(target, path)
    if method is not None and not (method == "__call__" and _is_function(target)):
        value = attributes.attribute_of(reading, value, method, reading.start)
    arguments = [row, Value(types=frozenset({Callback}), concrete=(EMIT,))] if reading.takes_emit else [row]
    if not reading.takes_tuple:
        arguments = []
    reading.result = reading.call(value, arguments, {}, reading.start)
    _hand_over_result(reading)


def _keep_first(reading: Reading, field: StateField) -> None:
    if field.factory is not None:
        made = reading.call(reading.shared(field.factory, f"the factory of {field.name}"), [], {}, reading.start)
    else:
        made = reading.shared(field.default, f"the default of {field.name}")
    reading.keep(field.name, made, reading.start)


@dataclasses.dataclass(frozen=True)
class Beside:
    """Another method with the same state, called with a tuple of these columns (or a time), or with nothing."""

    target: Any
    method: str
    schema: Schema | None
    takes_tuple: bool = True


def _read_beside(reading: Reading, other: Beside) -> None:
    """Read what another method may put into the state; what else there is to say is said where it is read itself."""
    facts, schema = reading.facts, reading.schema
    reading.facts, reading.schema = Facts(objects=facts.objects), other.schema
    operator, reading.operator = reading.operator, other.target
    reading.operator_reached = False
    method = attributes.attribute_of(reading, reading.shared(other.target, "self"), other.method, reading.start)
    row = Value(types=ROW_TYPES, objects=frozenset({TUPLE}), text=Text("t"))
    reading.call(method, [row] if other.takes_tuple else [], {}, reading.start)
    reading.facts, reading.schema = facts, schema
    reading.operator = operator
    _begin_function(reading)


def _hand_over_result(reading: Reading) -> None:
    """What the operator returned goes to the runtime; told with the line of each return, where they are known."""
    returned = reading.returns.get(id(reading.tree), [])
    if not returned:
        emitting.hand_over(reading, reading.result, reading.start)
        return
    frame = reading.frame
    for each in returned:
        # `place` takes the file from the frame and the line from the node.
        reading.frame = dataclasses.replace(frame, file=each.location.file)
        emitting.hand_over(reading, each.value, ast.Constant(None, lineno=each.location.line, col_offset=0))
    reading.frame = frame


def _look_for_aliases(reading: Reading) -> None:
    """One object in two dicts of the state would be two objects after a restart; declared fields are kept together."""
    seen: dict[Any, str] = {}
    names = list(reading.keyed.values())
    values = {field: reading.heap.at(Kept(field)).attributes.get("value") for field in names}
    reached = {
        field: reading.heap.reach({Kept(field), *(value.objects if value is not None else ())})
        for field, value in values.items()
    }
    in_state: frozenset[Any] = frozenset().union(*reached.values()) if reached else frozenset()
    for field in names:
        for each in reached[field]:
            if isinstance(each, Kept) and each.field != field:
                value = reading.kept(each.field)
                if not value.is_scalar and not value.is_nothing:
                    _aliased(reading, each.field, field)
            if not isinstance(each, (Site, Kept)):
                continue
            kept = reading.heap.at(each)
            for held in kept.content.objects:
                # What the state holds was put into something that it holds, too.
                if isinstance(held, Kept) and not reading.kept(held.field).is_scalar:
                    _aliased(reading, held.field, field, reading.restored.get(held.field))
            if isinstance(each, Kept) or kept.kinds <= {tuple, frozenset, Iterator}:
                continue
            if seen.setdefault(each, field) != field:
                _aliased(reading, seen[each], field)
            # Places in what is made and gone in one call do not count; but if it is twice in one of those, its elements
            # may have come into the state with the two.
            everywhere = [place for place in kept.stored_at if place[0] != "field"]
            places = {place for place in everywhere if place[4] & in_state or not place[4]}
            passing = collections.Counter(place[4] for place in everywhere if place not in places)
            if any(passing[place[4]] > 1 or place[2] for place in everywhere if place not in places):
                _aliased(reading, field, field)
            fields = {place for place in kept.stored_at if place[0] == "field"}
            if len(places) + bool(fields) > 1 or any(place[2] for place in places):
                _aliased(reading, field, field)


def _look_for_identity_of_kept(reading: Reading) -> None:
    """What state holds is equal after a restart, but another object than what it was compared with by identity."""
    fields = {Kept(field) for field in reading.fields}
    held = reading.heap.reach({*fields, *(each for field in reading.fields for each in reading.kept(field).objects)})
    for objects, location in reading.compared if fields else ():
        if objects & held:
            text = "compares what it keeps by identity: what is kept is equal later, but not the same object"
            reading.facts.add(Kind.CHANCE, text, location)


def _look_for_what_others_hold(reading: Reading) -> None:
    """A list of the class, say, in the state of a key, where not all that is done with it can be followed."""
    if not reading.facts.of(Kind.UNKNOWN):
        return  # then it is known whether it is changed
    for field in reading.fields:
        inside = reading.heap.at(Kept(field)).attributes.get("value")
        for each in reading.heap.reach({Kept(field), *(inside.objects if inside is not None else ())}):
            held = reading.facts.objects.get(each.identity) if isinstance(each, Shared) else None
            if isinstance(each, Shared) and type(held) in known.MUTATORS:
                reading.write(reading.tree, each.identity, each.path, f"keeps {each.path} in {field}")


def _look_for_what_is_not_data(reading: Reading) -> None:
    """State is written down and read again: what only Python can hold cannot be kept for a key."""
    classes: set[type] | None = None
    with_tuples: list[str] = []
    for name, declared in reading.fields.items():
        kind = declared.factory
        base = _more_than(kind)
        if isinstance(kind, type) and base is not None:
            text = f"keeps a {kind.__name__} in {name}, which is derived from {base.__name__} and cannot be kept"
            reading.facts.add(Kind.NOT_DATA, text, reading.place(reading.tree))
    for field in [*reading.fields, *reading.keyed.values()]:
        inside = reading.heap.at(Kept(field)).attributes.get("value")
        if inside is None:
            continue
        top = set(inside.types or ())
        kinds = set(top)
        for each in reading.heap.reach({Kept(field), *inside.objects}):
            if isinstance(each, (Site, Kept)):
                kinds |= reading.heap.at(each).content.types or set()
            elif each == TUPLE and field not in reading.fields:
                with_tuples.append(field)
            elif isinstance(each, Handle):
                reading.whole(each, reading.tree, f"keeps it in {field}")
            elif isinstance(each, Shared) and _leads_to_state(reading, each):
                # Read back it would be a copy, with dicts of its own.
                text = f"keeps {each.path} in {field}, which leads to the operator's own state"
                reading.facts.add(Kind.NOT_DATA, text, reading.place(reading.tree))
        for kind in sorted(kinds - known.KEEPABLE, key=lambda kind: kind.__name__):
            if getattr(kind, "is_managed_state", False) or (kind in _NEVER_DATA and kind in top):
                continue  # told where it is kept
            if field in reading.fields and kind not in _NEVER_DATA and _is_kept_by_fields(kind):
                continue
            if field not in reading.fields and kind not in _NEVER_DATA:
                if classes is None:
                    classes = {*code_of(reading.operator, in_globals=True)[0].values()}
                if is_kept_whole(kind, classes):
                    reading.facts.with_objects.add(field)
                    continue
            text = f"keeps a {kind.__name__} in {field}, which is not data"
            reading.facts.add(Kind.NOT_DATA, text, reading.place(reading.tree))

    if len(with_tuples) > 1 and not all(reading.column(name).is_scalar for name in _columns(reading)):
        # One list of one tuple may be in several of them; nobody changes it, so copies will do.
        reading.facts.with_objects.update(with_tuples)


def _columns(reading: Reading) -> tuple[str, ...]:
    return reading.schema.names if reading.schema is not None else ("?",)


def _leads_to_state(reading: Reading, shared: Shared) -> bool:
    held = reading.facts.objects.get(shared.identity)
    found = reached(held, as_copied=False) if held is not None else {}
    return id(reading.operator) in found or any(identity in found for identity in reading.keyed)


def _more_than(kind: Any) -> type | None:
    """What a class of the user's is derived from, if that keeps its objects out of declared state."""
    if not isinstance(kind, type) or is_library(kind.__module__):
        return None
    is_plain = is_plain_instance(kind) and not issubclass(kind, (list, dict, set))  # see `state/user_objects.py`
    if is_plain or issubclass(kind, enum.Enum) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return None
    below = next(base for base in kind.__mro__ if is_library(base.__module__))
    return None if below is object else below


_NEVER_DATA = (Iterator, Callback, types.FunctionType, types.MethodType)


def _is_kept_by_fields(kind: type) -> bool:
    """Objects of the user's that state may hold (`state/user_objects.py`)."""
    return is_plain_enum(kind) or is_record(kind) or (is_plain_class(kind) and is_plain_instance(kind))


def _aliased(reading: Reading, first: str, second: str, location: Location | None = None) -> None:
    where = f"both {first} and {second}" if first != second else f"two places of {first}"
    text = f"may keep one object in {where}: changing it here would change it there"
    reading.facts.add(Kind.ALIAS, text, location or reading.place(reading.tree))


def _is_function(target: Any) -> bool:
    return isinstance(target, (types.FunctionType, functools.partial, types.MethodType)) or not hasattr(
        type(target), "__dict__"
    )


def top_function(target: Any, method: str | None) -> types.FunctionType | None:
    """The Python function that takes the tuple, if it can be named without running anything."""
    found = target
    if method is not None and not (method == "__call__" and _is_function(target)):
        found = static_attribute(type(target), method)
    for _ in range(8):
        if isinstance(found, functools.partial):
            found = found.func
        elif isinstance(found, types.MethodType):
            found = found.__func__
        elif isinstance(found, functools._lru_cache_wrapper):
            found = found.__wrapped__
        elif isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        elif not isinstance(found, (types.FunctionType, type, types.BuiltinFunctionType)):
            found = static_attribute(type(found), "__call__")
        else:
            break
    return found if isinstance(found, types.FunctionType) else None


def read(
    target: Any,
    method: str | None,
    schema: Schema | None,
    fields: tuple[StateField, ...] = (),
    keyed: dict[int, str] | None = None,
    fallback: Location | None = None,
    objects: dict[int, Any] | None = None,
    takes_tuple: bool = True,
    beside: Sequence[Beside] = (),
) -> Reading:
    """Read an operator, with these dicts taken for state; `beside` are its other methods, which share its fields."""
    reading = Reading(HANDLERS, schema, keyed or {}, {field.name: field for field in fields})
    reading.facts.objects.update(objects or {})
    reading.takes_tuple = takes_tuple
    function = top_function(target, method)
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    reading.operator = owner
    reading.sharing = (owner, *(each.target for each in beside))
    if function is not None:
        reading.frame.file = function.__code__.co_filename
        tree = tree_of(function)
        reading.tree = ast.Constant(None, lineno=function.__code__.co_firstlineno, col_offset=0)
        reading.start = reading.tree
        if not isinstance(tree, NoSource):
            reading.tree = tree
            names = [each.arg for each in (*tree.args.posonlyargs, *tree.args.args)]
            bound = (
                1 if (method is not None and not _is_function(target)) or isinstance(target, types.MethodType) else 0
            )
            reading.takes_emit = len(names) > bound + 1 and names[bound + 1] == "emit"
    elif fallback is not None:
        reading.frame.file = fallback.file
        reading.start = reading.tree = ast.Constant(None, lineno=fallback.line, col_offset=0)
    _refuse_threads(reading, owner)
    read_until_settled(reading, fields, lambda: _read_once(reading, target, method, beside))
    return reading


def _refuse_threads(reading: Reading, owner: Any) -> None:
    """A thread may change anything at any time: an operator that has one is never followed."""
    if isinstance(owner, (types.FunctionType, type, functools.partial)):
        return
    for base in type(owner).__mro__:
        if base is object:
            continue
        for member in vars(base).values():
            if isinstance(member, types.FunctionType):
                for name in member.__code__.co_names:
                    found = member.__globals__.get(name)
                    module = found.__name__ if isinstance(found, types.ModuleType) else getattr(found, "__module__", "")
                    if isinstance(module, str) and module.split(".")[0] in _THREADED:
                        reading.facts.add(
                            Kind.UNKNOWN,
                            f"{type(owner).__name__}.{member.__name__} uses {module}: a "
                            "thread may change its attributes",
                            Location(member.__code__.co_filename, member.__code__.co_firstlineno),
                        )


_THREADED = {"threading", "_thread", "concurrent", "multiprocessing", "asyncio"}
