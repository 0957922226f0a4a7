"""From an operator's code to what it does: state, selectivity, forwarding, each with a reason.

The code is read (`statements.py`) with abstract values (`values.py`), first as if nothing were state. If it
writes only dicts that are empty now, it is read again with those dicts taken for state of the tuple's key
(case 2), and the indexes it uses are compared. Reading is repeated until the state's contents hold no
surprise. Whatever cannot be followed is a fact of kind UNKNOWN, and one such fact makes the operator
sequential.
"""

from __future__ import annotations

import ast
import dataclasses
import datetime
import decimal
import functools
import types
from typing import Any

from anabranch.compiler.context import KEYED_TYPES, TooLargeError, static_attribute
from anabranch.compiler.facts import Access, Emission, Facts, Kind
from anabranch.compiler.graph import Location, StateField
from anabranch.compiler.model import Key, Selectivity
from anabranch.compiler.source import NoSource, tree_of
from anabranch.compiler.statements import Statements
from anabranch.compiler.values import (
    EMIT,
    NONE,
    ROW_TYPES,
    TUPLE,
    Callback,
    Iterator,
    Kept,
    NoneType,
    Site,
    Text,
    Value,
    column_text,
    is_scalar_type,
)
from anabranch.flow.schema import Row, Schema

_MOST_PASSES = 8
INTERNAL = "the compiler failed on it"
RAISE_INTERNAL = False
_BLOCKING = (Kind.UNKNOWN, Kind.IMPURE, Kind.TUPLE, Kind.WHOLE, Kind.ALIAS)
#: Types whose equality as dict keys is the equality of the values: no NaN, no 1 == 1.0 == True.
_KEY_TYPES = {bool, int, str, bytes, datetime.datetime, datetime.date, decimal.Decimal}


@dataclasses.dataclass
class Inference:
    """What reading an operator found.

    Attributes
    ----------
    facts : Facts
        Everything seen; `blocks` are those that make it sequential.
    key : Key or None
        The partitioning key that was found (case 2 and 3).
    dicts : dict of int to str
        The dicts that are state: identity to field name.
    selectivity : Selectivity
    forwarding : dict of str to str
        Columns of the output that are copies of columns of the input.
    """

    facts: Facts
    blocks: list[Any]
    key: Key | None = None
    key_location: Location | None = None
    dicts: dict[int, str] = dataclasses.field(default_factory=dict)
    #: Index expressions of each dict that is finer than the key: it keeps several entries per key.
    finer: set[int] = dataclasses.field(default_factory=set)
    key_text: Text | None = None
    selectivity: Selectivity = Selectivity.ANY
    selectivity_reason: str = "nothing is known about it"
    selectivity_location: Location | None = None
    forwarding: dict[str, str] = dataclasses.field(default_factory=dict)
    forwarding_reason: str = "no column is proven to be copied"
    emissions: list[Emission] = dataclasses.field(default_factory=list)
    reader: Reader | None = None

    @property
    def writes(self) -> list[Any]:
        return self.facts.of(Kind.WRITE)


class Reader(Statements):
    """Reads one operator."""

    result: Value = NONE
    tree: Any = None

    def read(self, target: Any, method: str | None, fields: tuple[StateField, ...]) -> None:
        """Read the call of `target` (or of its method) with one tuple, until nothing new is learned."""
        try:
            for _ in range(_MOST_PASSES):
                before = self.heap.version
                self._read_once(target, method, fields)
                if before == self.heap.version or not (self.lazy or self.fields or self.keyed):
                    break
            else:
                self.unknown(None, "its state cannot be followed")
            self._look_for_aliases()
        except TooLargeError:
            self.unknown(None, "it is too large to be followed")
        except RecursionError:
            self.unknown(None, "it is nested too deeply to be followed")
        except Exception as problem:
            # A fault of ours must not stop the user's program: it runs on one thread. Tests look for it.
            self.unknown(None, f"{INTERNAL}: {type(problem).__name__}: {problem}")
            if RAISE_INTERNAL:
                raise

    def _read_once(self, target: Any, method: str | None, fields: tuple[StateField, ...]) -> None:
        self.passes += 1
        self.facts.emissions.clear()
        self.returns.clear()
        self.active.clear()
        self.flow.variables.clear()
        self.flow.least = self.flow.most = 0
        self.flow.alive = True
        row = Value(types=ROW_TYPES, objects=frozenset({TUPLE}), text=Text("t"))
        for field in fields:
            if field.factory is not None:
                made = self.call(self.shared(field.factory, f"the factory of {field.name}"), [], {}, self.start)
            else:
                made = self.shared(field.default, f"the default of {field.name}")
            self.keep(field.name, made, self.start)
        for identity, name in self.keyed.items():
            held = self.facts.objects.get(identity)
            if isinstance(held, dict) and held:
                self.keep(name, Value(types=frozenset(map(type, held.values()))), self.start)
        path = "self" if not isinstance(target, (types.FunctionType, type)) else target.__name__
        value = self.shared(target, path)
        if method is not None and not (method == "__call__" and _is_function(target)):
            value = self.attribute(value, method, self.start)
        arguments = [row, Value(types=frozenset({Callback}), concrete=(EMIT,))] if self.takes_emit else [row]
        self.result = self.call(value, arguments, {}, self.start)

    takes_emit = False
    start: Any = ast.Constant(None, lineno=0, col_offset=0)

    def _look_for_aliases(self) -> None:
        """One object in two places of the state would be two objects after a restart."""
        seen: dict[Any, str] = {}
        names = [*self.fields, *self.keyed.values()]
        for field in names:
            inside = self.heap.at(Kept(field)).attributes.get("value")
            start = {Kept(field), *(inside.objects if inside is not None else ())}
            for each in self.heap.reach(start):
                if isinstance(each, Kept) and each.field != field:
                    value = self.kept(each.field)
                    if not value.is_scalar and not value.is_nothing:
                        self._aliased(each.field, field)
                if not isinstance(each, Site):
                    continue
                kept = self.heap.at(each)
                if kept.kinds <= {tuple, frozenset, Iterator}:
                    continue
                if seen.setdefault(each, field) != field:
                    self._aliased(seen[each], field)
                places = {place for place in kept.stored_at if place[0] != "field"}
                fields = {place for place in kept.stored_at if place[0] == "field"}
                if len(places) + bool(fields) > 1 or any(place[2] for place in places):
                    self._aliased(field, field)
            if field in self.restored and inside is not None and not inside.is_scalar:
                self._aliased(field, field, self.restored[field])

    def _aliased(self, first: str, second: str, location: Location | None = None) -> None:
        where = f"both {first} and {second}" if first != second else f"two places of {first}"
        text = f"may keep one object in {where}: changing it here would change it there"
        self.facts.add(Kind.ALIAS, text, location or self.place(self.tree))


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
) -> Reader:
    """Read an operator once, with these dicts taken for state."""
    reader = Reader(schema, keyed or {}, {field.name: field for field in fields})
    reader.facts.objects.update(objects or {})
    function = top_function(target, method)
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    reader.operator = owner
    if function is not None:
        reader.frame.file = function.__code__.co_filename
        tree = tree_of(function)
        reader.tree = ast.Constant(None, lineno=function.__code__.co_firstlineno, col_offset=0)
        reader.start = reader.tree
        if not isinstance(tree, NoSource):
            reader.tree = tree
            names = [each.arg for each in (*tree.args.posonlyargs, *tree.args.args)]
            bound = (
                1 if (method is not None and not _is_function(target)) or isinstance(target, types.MethodType) else 0
            )
            reader.takes_emit = len(names) > bound + 1 and names[bound + 1] == "emit"
    elif fallback is not None:
        reader.frame.file = fallback.file
        reader.start = reader.tree = ast.Constant(None, lineno=fallback.line, col_offset=0)
    _refuse_threads(reader, owner)
    reader.read(target, method, fields)
    return reader


def _refuse_threads(reader: Reader, owner: Any) -> None:
    """A thread may change anything at any time: an operator that has one is never followed."""
    if isinstance(owner, (types.FunctionType, type, functools.partial)):
        return
    for base in type(owner).__mro__:
        if base is object or base.__module__.startswith("anabranch."):
            continue
        for member in vars(base).values():
            if isinstance(member, types.FunctionType):
                for name in member.__code__.co_names:
                    found = member.__globals__.get(name)
                    module = found.__name__ if isinstance(found, types.ModuleType) else getattr(found, "__module__", "")
                    if isinstance(module, str) and module.split(".")[0] in _THREADED:
                        reader.facts.add(
                            Kind.UNKNOWN,
                            f"{type(owner).__name__}.{member.__name__} uses {module}: a "
                            "thread may change its attributes",
                            Location(member.__code__.co_filename, member.__code__.co_firstlineno),
                        )


_THREADED = {"threading", "_thread", "concurrent", "multiprocessing", "asyncio"}


def infer(
    target: Any,
    method: str | None,
    schema: Schema | None,
    output: Schema | None = None,
    mode: str = "process",
    fields: tuple[StateField, ...] = (),
    fallback: Location | None = None,
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
    """
    keyed = _stores(target)
    guessed = {} if fields or keyed else _own_dicts(target)
    first = _read_with_guess(target, method, schema, guessed, fallback) if guessed else None
    if first is not None:
        keyed = {identity: name for identity, (name, _) in guessed.items()}
    reader = first or read(target, method, schema, fields, dict(keyed), fallback)
    for _ in range(4):
        written = reader.facts.of(Kind.WRITE)
        more = _dicts_written(reader.facts, fields)
        if not written or set(more) <= set(keyed):
            break
        keyed.update({identity: name for identity, name in more.items() if identity not in keyed})
        known = {identity: reader.facts.objects[identity] for identity in keyed if identity in reader.facts.objects}
        reader = read(target, method, schema, fields, dict(keyed), fallback, known)
    facts = reader.facts
    found = Inference(facts, facts.of(*_BLOCKING, Kind.WRITE), reader=reader)
    if keyed and not facts.of(Kind.WRITE):
        found.dicts = dict(keyed)
        _find_key(found, reader)
    _count(found, reader, mode)
    _trace(found, reader, schema, output, mode)
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
) -> Reader | None:
    """Read with the guess that these dicts are the state; None if that is not all there is to it.

    A right guess saves the reading that would only have found out what is written.
    """
    keyed = {identity: name for identity, (name, _) in guessed.items()}
    objects = {identity: found for identity, (_, found) in guessed.items()}
    reader = read(target, method, schema, (), keyed, fallback, objects)
    right = reader.facts.stored == set(guessed) and not reader.facts.of(*_BLOCKING, Kind.WRITE)
    return reader if right and all(_one_way(reader.facts.routes.get(each)) for each in guessed) else None


def _stores(target: Any) -> dict[int, str]:
    """State the class declares with ``ab.store()`` (case 3)."""
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    found: dict[int, str] = {}
    for base in reversed(type(owner).__mro__):
        for name, member in vars(base).items():
            if getattr(member, "is_anabranch_store", False):
                found[id(member)] = name
    return found


def _dicts_written(facts: Facts, fields: tuple[StateField, ...]) -> dict[int, str]:
    """The dicts and sets the code writes that can be taken apart by key and found again elsewhere."""
    found: dict[int, str] = {}
    taken: set[str] = {field.name for field in fields}
    for fact in facts.of(Kind.WRITE):
        held = facts.objects.get(fact.identity)
        if (
            fields
            or type(held) not in KEYED_TYPES
            or not _starts_simple(held)
            or not _one_way(facts.routes.get(fact.identity))
        ):
            continue
        if fact.identity in found:
            continue
        name = fact.path.rsplit(".", 1)[-1].rsplit(" ", 1)[-1]
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


def _one_way(routes: list[Any] | None) -> bool:
    """All the ways to the object lead to one object in another process too.

    What belongs to a module is found there by name; what hangs on the operator travels with it. An object
    reached both ways would be two objects there.
    """
    if not routes:
        return False
    return len({route[0] in ("global", "module") for route in routes}) == 1


# -- the key ----------------------------------------------------------------------------------------------


def _find_key(found: Inference, reader: Reader) -> None:
    accesses = sorted(
        found.facts.accesses.values(), key=lambda each: (each.location.file, each.location.line, each.path)
    )
    if not accesses:
        if any(fact.kind is Kind.WHOLE for fact in found.blocks):
            return
        found.dicts = {}
        return
    for access in accesses:
        problem = _problem_with(access)
        if problem is not None:
            found.facts.add(Kind.UNKNOWN, problem, access.location)
            found.blocks = found.facts.of(*_BLOCKING)
            return
    found.key_location = accesses[0].location
    texts = {access.key for access in accesses}
    first = accesses[0].key
    if len(texts) == 1 and first is not None:
        found.key_text = first
        found.key = _as_key(accesses[0])
        return
    common = _common_columns(accesses)
    if not common:
        other = next(access for access in accesses if access.key != first)
        text = (
            f"indexes {accesses[0].path} with {first.source if first else '?'} (line "
            f"{accesses[0].location.line}) and "
            f"{other.path} with {other.key.source if other.key else '?'}: no column is in both"
        )
        found.facts.add(Kind.UNKNOWN, text, other.location)
        found.blocks = found.facts.of(*_BLOCKING)
        return
    if any(
        not getattr(found.facts.objects[i], "is_anabranch_store", False) and found.facts.objects[i] for i in found.dicts
    ):
        found.facts.add(
            Kind.UNKNOWN,
            "its dicts are filled at the start and indexed in different ways",
            accesses[0].location,
        )
        found.blocks = found.facts.of(*_BLOCKING)
        return
    found.key = Key(tuple(common))
    # Entries of one dict under a coarser key: several per key, kept together.
    found.finer = set(found.dicts)
    source = column_text(common[0]) if len(common) == 1 else "(" + ", ".join(map(column_text, common)) + ")"
    found.key_text = Text(source, frozenset(common))


def _problem_with(access: Access) -> str | None:
    if access.key is None:
        return f"indexes {access.path} with something that is not an expression of the tuple's columns"
    if not access.key.columns:
        return f"indexes {access.path} with {access.key.source}: all tuples share that entry"
    for text, kinds in access.parts:
        if text is not None and not text.columns:
            continue
        real = None if kinds is None else kinds - {NoneType}
        if real is None or len(real) != 1 or not real <= _KEY_TYPES:
            name = ", ".join(sorted(kind.__name__ for kind in real)) if real else "an unknown type"
            return f"indexes {access.path} with {access.key.source}, which is {name}: its equality is not that of a key"
    return None


def _columns_of(access: Access) -> list[str] | None:
    columns = []
    for text, _ in access.parts:
        if text is None or text.column is None:
            return None
        columns.append(text.column)
    return columns


def _as_key(access: Access) -> Key | None:
    columns = _columns_of(access)
    if columns is not None:
        return Key(tuple(dict.fromkeys(columns)))
    text = access.key
    assert text is not None
    return Key(tuple(sorted(text.columns)), text.source, expression_function(text))


def _common_columns(accesses: list[Access]) -> list[str]:
    common: list[str] | None = None
    for access in accesses:
        columns = _columns_of(access)
        if columns is None:
            return []
        common = columns if common is None else [name for name in common if name in columns]
    return list(dict.fromkeys(common or []))


def expression_function(text: Text) -> Any:
    """The function of a tuple that computes an expression."""
    space: dict[str, Any] = {**dict(text.names), "__name__": "anabranch_key"}
    # A tuple whose key cannot be computed never reaches the state (its operator would raise, too): any
    # channel may have it.
    body = f"def key(t):\n    try:\n        return {text.source}\n    except Exception:\n        return None\n"
    exec(compile(body, "<anabranch key>", "exec"), space)
    return space["key"]


# -- selectivity ------------------------------------------------------------------------------------------


def _count(found: Inference, reader: Reader, mode: str) -> None:
    if mode in ("map", "filter"):
        found.selectivity = Selectivity.ONE if mode == "map" else Selectivity.AT_MOST_ONE
        found.selectivity_reason = f"a {mode} emits {'one tuple' if mode == 'map' else 'the tuple or nothing'}"
        found.emissions = list(reader.returns.get(id(reader.tree), []))
        return
    least, most, emissions, how = _counted(reader, mode)
    callback = reader.facts.emissions
    found.emissions = [*emissions, *callback]
    if callback:
        least, most = min(2, least + reader.flow.least), min(2, most + reader.flow.most)
        how = f"calls emit {_times(least, most)}"
        if reader.emits_from_generator:
            least, most = 0, 2
    places = [each.location for each in found.emissions]
    found.selectivity_location = places[0] if places else None
    if (least, most) == (1, 1):
        found.selectivity = Selectivity.ONE
    elif most <= 1:
        found.selectivity = Selectivity.AT_MOST_ONE
    found.selectivity_reason = how
    found.facts.emitted = (least, most)


def _times(least: int, most: int) -> str:
    if (least, most) == (1, 1):
        return "once on every path"
    if most <= 1:
        return "at most once on every path"
    return "any number of times"


def _counted(reader: Reader, mode: str) -> tuple[int, int, list[Emission], str]:
    value = reader.result
    if value.types is not None and Iterator in value.types:
        least, most, yielded = reader.counted(value, reader.tree)[0]
        return least, most, yielded, f"yields {_times(least, most)}"
    returned = reader.returns.get(id(reader.tree)) or [Emission(value, reader.place(reader.tree))]
    least, most = 2, 0
    emissions: list[Emission] = []
    for each in returned:
        low, high, inner = _count_returned(reader, each, mode)
        least, most = min(least, low), max(most, high)
        emissions.extend(inner)
    if reader.takes_emit:
        least, most, emissions = 0, 0, []
    return least, most, emissions, f"returns {_times(least, most).replace('once', 'one tuple')}"


def _count_returned(reader: Reader, returned: Emission, mode: str) -> tuple[int, int, list[Emission]]:
    """How many tuples a returned value stands for."""
    value = returned.value
    if value.is_nothing:
        return 2, 0, []
    if value.types == frozenset({NoneType}):
        return 0, 0, []
    if value.types is not None and mode == "process":
        present = value.types - {NoneType}
        absent = NoneType in value.types
        records = present == {Row} or present == {dict} or all(_is_record(reader, kind) for kind in present)
        parts = reader.heap.parts(value)
        flat = present == {tuple} and parts is not None and bool(parts) and all(p.is_scalar for p in parts.values())
        if records or flat:
            return (0 if absent else 1), 1, [returned]
    if value.types == frozenset({list}):
        counts = []
        for each in value.objects:
            one = Value(types=value.types, objects=frozenset({each}))
            counts.extend(reader.counted(one, reader.tree))
        if counts:
            emissions = [dataclasses.replace(e, location=returned.location) for _, _, inner in counts for e in inner]
            return min(low for low, _, _ in counts), max(high for _, high, _ in counts), emissions
    return 0, 2, [dataclasses.replace(returned, many=True)]


def _is_record(reader: Reader, kind: type) -> bool:
    return (
        isinstance(kind, type)
        and kind not in (Callback, Iterator)
        and kind is not Row
        and (reader.is_record(kind) if hasattr(kind, "__mro__") and kind.__module__ != "builtins" else False)
    )


# -- forwarding -------------------------------------------------------------------------------------------


def _trace(found: Inference, reader: Reader, schema: Schema | None, output: Schema | None, mode: str) -> None:
    if schema is None:
        return
    output = output or schema
    if mode == "filter":
        found.forwarding = {name: name for name in schema.names}
        found.forwarding_reason = "a filter passes tuples on unchanged"
        return
    if not found.emissions:
        return
    copied: dict[str, str] | None = None
    for each in found.emissions:
        if each.value.is_nothing or each.value.types == frozenset({NoneType}):
            continue
        here = {} if each.many else _copied(reader, each.value, schema, output)
        copied = (
            here if copied is None else {name: origin for name, origin in copied.items() if here.get(name) == origin}
        )
    found.forwarding = copied or {}
    if copied:
        found.forwarding_reason = "every emitted tuple copies " + ", ".join(sorted(copied))
    else:
        found.forwarding_reason = "no column is copied into every emitted tuple"


def _copied(reader: Reader, value: Value, schema: Schema, output: Schema) -> dict[str, str]:
    if value.types is not None:
        value = dataclasses.replace(value, types=value.types - {NoneType})
    if value.types == ROW_TYPES and value.objects == frozenset({TUPLE}):
        parts: dict[str | int, Value] | None = {name: reader.column(name) for name in schema.names}
    else:
        parts = reader.heap.parts(value)
    if parts is None:
        if len(output.names) == 1 and value.text is not None and value.is_scalar:
            parts = {0: value}
        else:
            return {}
    by_place = all(isinstance(name, int) for name in parts)
    found: dict[str, str] = {}
    for name, part in parts.items():
        if by_place and isinstance(name, int):
            if len(parts) != len(output.names):
                return {}
            target = output.names[name]
        else:
            target = str(name)
        origin = part.text.column if part.text is not None else None
        # A change of type may map two values to one: then it is no copy.
        if origin is None or origin not in schema or target not in output:
            continue
        if schema.type_of(origin) == output.type_of(target):
            found[target] = origin
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
    reader = found.reader
    if reader is None or not found.emissions:
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
        parts = reader.heap.parts(dataclasses.replace(value, types=kinds))
        if parts is None or tuple(parts) != schema.names:
            return None
        for name, part in parts.items():
            expected = reader.column(str(name)).types
            if part.text is not None and part.text.column == name:
                continue
            if part.types is None or expected is None or not part.types <= expected | _widened(expected):
                return None
    return schema if rows else None


def _widened(expected: frozenset[type]) -> frozenset[type]:
    return frozenset({int}) if float in expected else frozenset()
