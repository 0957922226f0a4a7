"""Reading one operator: its code is followed with one tuple, until nothing new is learned about its state.

Whatever goes wrong on the way, a fault of our own too, ends as a fact of kind UNKNOWN.
"""

from __future__ import annotations

import ast
import functools
import types
from typing import Any

from anabranch.compiler.reading.context import TooLargeError, static_attribute
from anabranch.compiler.reading.facts import Kind
from anabranch.compiler.reading.source_code import NoSource, tree_of
from anabranch.compiler.reading.statements import Statements
from anabranch.compiler.reading.values import EMIT, NONE, ROW_TYPES, TUPLE, Callback, Iterator, Kept, Site, Text, Value
from anabranch.program.graph import Location, StateField
from anabranch.program.schema import Schema

_MOST_PASSES = 8
INTERNAL = "the compiler failed on it"
RAISE_INTERNAL = False


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
