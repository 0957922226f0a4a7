"""The state of one reading, and the few ways to do something that matters.

    reading.evaluate(node)           a value for an expression          ┐ by the tables of handlers,
    reading.run(statements)          the walk along a path              │ one entry for each type of
    reading.call(function, …)        what a call gives                  ┘ syntax node
    mutate, write, put, keep         something is changed
    use, access, whole               something is looked at that may be state
    unknown, impure                  something cannot be followed, or depends on more than the tuple

Everything that could make an operator unsafe goes through these, so that a construct which is forgotten elsewhere
ends as "unknown", not as "safe". The handlers are functions of a reading and a node, in the files around this one;
reader.py puts them together.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from anabranch.compiler.reading import known
from anabranch.compiler.reading.facts import KEPT_NAMES, Access, Emission, Facts, Identity, Kind
from anabranch.compiler.reading.frames import ActiveCall, ControlFlow, Frame, GeneratorMade
from anabranch.compiler.reading.heap import Heap
from anabranch.compiler.reading.kinds import is_plain_data, is_record, objects_inside
from anabranch.compiler.reading.values import (
    ANYTHING,
    LOST,
    NONE,
    NOTHING,
    PLAIN_VALUE,
    TUPLE,
    Callback,
    Handle,
    Iterator,
    Kept,
    LocalFunction,
    Object,
    Plain,
    Shared,
    Site,
    Text,
    TupleObject,
    Value,
    column_text,
    constant_text,
    is_scalar_type,
    join,
    join_all,
    types_of_column,
)
from anabranch.program.graph import Location, StateField
from anabranch.program.object_parts import DICT_VIEWS, dict_behind
from anabranch.program.schema import Row, Schema

_MOST_STEPS = 60_000
#: What can be taken apart into one entry per key.
KEYED_TYPES = (dict, collections.defaultdict, collections.Counter, collections.OrderedDict, set)


class TooLargeError(Exception):
    """The code is larger than the interpreter is willing to follow."""


Objects = frozenset[Object]
Element = str | int | None
ReadExpression = Callable[["Reading", Any], Value]
ReadStatement = Callable[["Reading", Any], None]
ExpressionHandlers = Mapping[type[ast.expr], ReadExpression]
StatementHandlers = Mapping[type[ast.stmt], ReadStatement]


@dataclasses.dataclass
class Extra:
    """Arguments given with stars whose number or names are not known."""

    places: Value | None = None
    names: Value | None = None


class ReadCall(Protocol):
    """Reads a call of a value with values."""

    def __call__(
        self,
        reading: Reading,
        function: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra,
    ) -> Value: ...


@dataclasses.dataclass(frozen=True)
class Handlers:
    """How each type of syntax node is read, and how a call is."""

    expressions: ExpressionHandlers
    statements: StatementHandlers
    call: ReadCall


class Reading:
    """One operator being read."""

    def __init__(
        self, handlers: Handlers, schema: Schema | None, keyed: dict[int, str], fields: dict[str, StateField]
    ) -> None:
        self.handlers = handlers
        self.schema = schema
        #: Dicts that are taken for state of the tuple's key in this reading: identity to name.
        self.keyed = keyed
        #: Declared state of the operator (case 1), by the attribute that holds it.
        self.fields = fields
        self.facts = Facts()
        self.heap = Heap()
        self.flow = ControlFlow({})
        self.frame: Frame = Frame(None, "?", {}, {})
        self.loops: tuple[int, ...] = ()
        #: The calls that led here, and the state that was put into some other object, by line.
        self.path: tuple[int, ...] = ()
        self.restored: dict[str, Location] = {}
        self.steps = 0
        self.passes = 0
        #: Something was made whose code runs later than it is read: another pass must see what came between.
        self.lazy = False
        #: The object that is the operator; where its code starts, and its tree if there is one.
        self.operator: Any = None
        self.sharing: tuple[Any, ...] = ()  # it, and others that have the same state
        self.operator_reached = False
        self.start: Any = ast.Constant(None, lineno=0, col_offset=0)
        self.tree: Any = None
        self.takes_emit = False
        self.takes_tuple = True
        #: What the call of the operator gave.
        self.result: Value = NONE
        #: The functions that are being read, by their trees; what each returned; what its inner functions use.
        self.active: dict[int, ActiveCall] = {}
        self.returns: dict[int, list[Emission]] = {}
        self.cells: dict[int, dict[str, Value]] = {}
        self.local_functions: dict[tuple[int, int], LocalFunction] = {}
        #: How many branches are open: what happens inside one does not always happen.
        self.branch_depth = 0
        self.emits_from_generator = False
        self.generators: dict[Site, GeneratorMade] = {}
        self.compared: list[tuple[Objects, Location]] = []  # by identity
        #: Where errors that were caught are used; whether one is made that is more than a text.
        self.caught_used: list[tuple[Location, str]] = []
        self.makes_odd_errors = False
        #: What is put where it outlives the call: value, path, line, and the expression that made it.
        self.outliving: list[tuple[Value, str, Location, ast.AST | None]] = []
        self.made_by: ast.AST | None = None
        self.settings: list[tuple[str, Location, str]] = []  # that calls change, or put back: `settings_calls.py`
        self.called: dict[int, Any] = {}  # functions and classes, by the expression that calls them
        #: What is sent into generators, all of them taken together.
        self.sent: Value = NOTHING
        self._element_cache: dict[int, Value] = {}
        self._plain: dict[int, bool] = {}
        self._columns: dict[tuple[int, str], Value] = {}

    # -- reporting ----------------------------------------------------------------------------------------

    def place(self, node: Any) -> Location:
        return Location(self.frame.file, getattr(node, "lineno", getattr(self.frame.node, "lineno", 0)))

    def unknown(self, node: Any, text: str) -> Value:
        self.facts.add(Kind.UNKNOWN, text, self.place(node))
        return ANYTHING

    def impure(self, node: Any, text: str, is_chance: bool = False) -> None:
        self.facts.add(Kind.CHANCE if is_chance else Kind.IMPURE, text, self.place(node))

    def step(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise TooLargeError

    # -- following the code ---------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr) -> Value:
        self.steps += 1  # as `step`, without the call
        if self.steps > _MOST_STEPS:
            raise TooLargeError
        handler = self.handlers.expressions.get(type(node))
        return self.not_followed(node) if handler is None else handler(self, node)

    def run(self, statements: list[ast.stmt]) -> None:
        """Read statements one after the other, as far as the path goes on."""
        for statement in statements:
            if not self.flow.alive:
                return
            self._run_one(statement)

    def _run_one(self, node: ast.stmt) -> None:
        self.step()
        waiting = self.frame.handlers
        for flows in waiting:
            flows.append(self.flow.copy())
        handler = self.handlers.statements.get(type(node))
        if handler is None:
            self.not_followed(node)
        else:
            handler(self, node)
        if self.flow.alive:
            for flows in waiting:
                flows.append(self.flow.copy())

    def call(
        self,
        function: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra | None = None,
    ) -> Value:
        return self.handlers.call(self, function, arguments, keywords, node, extra or Extra())

    def not_followed(self, node: ast.AST) -> Value:
        return self.unknown(node, f"uses {type(node).__name__}, which is not followed")

    def send(self, value: Value) -> None:
        """The value is sent into some generator."""
        joined = join(self.sent, value.without_text())
        if joined != self.sent:
            self.sent = joined
            self.heap.version += 1

    # -- values that outlive the call -----------------------------------------------------------------------

    def shared(self, found: Any, path: str, route: Any = None) -> Value:
        """The abstract value of an object that was there before the call."""
        kind = type(found)
        if is_scalar_type(kind):
            text = constant_text(found)
            if text is None:
                # The name holds the value's place, not its address: it must not differ between processes.
                text = Text(f"_{path.replace('.', '_')}", names=((f"_{path.replace('.', '_')}", found),))
                if not text.source.isidentifier():
                    text = None
            return Value(types=frozenset({kind}), concrete=(found,), text=text, path=path)
        if kind in DICT_VIEWS and id(dict_behind(found)) in self.keyed:  # it shows all of a dict of state
            return Value(None, self.shared(dict_behind(found), path).objects, path=path, foreign=True)
        identity = id(found)
        self.facts.objects[identity] = found
        if route is None and isinstance(found, KEYED_TYPES):
            route = ("elsewhere", path)
        elif found is self.operator:
            # Where its method is called it is reached once. Again: through a bound method, a child, a container; a copy
            # of the operator would leave that way as it is.
            self.facts.operator_elsewhere |= self.operator_reached
            self.operator_reached = True
        if route is not None:
            known_routes = self.facts.routes.setdefault(identity, [])
            if route not in known_routes:
                known_routes.append(route)
        if identity in self.keyed:
            self.facts.written.setdefault(identity, path)
            return Value(
                types=frozenset({kind}),
                objects=frozenset({Handle(identity, path)}),
                concrete=(found,),
                path=path,
            )
        if not isinstance(found, (types.ModuleType, type, types.BuiltinFunctionType)):
            self.facts.touched.setdefault(identity, path)
        objects: Objects = frozenset({Shared(identity, path)})
        return Value(frozenset({kind}), objects, (found,), path=path, foreign=not self.is_plain(found))

    def is_plain(self, found: Any) -> bool:
        """Plain data through and through, so that its operators and methods are Python's own."""
        kept = self._plain.get(id(found))
        if kept is None:
            self.facts.objects[id(found)] = found
            kept = self._plain[id(found)] = is_plain_data(found)
        return kept

    def elements_of_shared(self, found: Any, path: str) -> Value:
        kept = self._element_cache.get(id(found))
        if kept is None:
            self.facts.objects[id(found)] = found
            kept = self._element_cache[id(found)] = self._elements_of(found, path)
        return kept

    def _elements_of(self, found: Any, path: str) -> Value:
        if isinstance(found, np.ndarray) and self.is_plain(found):
            if found.ndim == 1 and found.dtype.names is None:
                return PLAIN_VALUE
            # A row of an array, or a record in it, is no copy: what changes it changes the array.
            return Value(types=frozenset({Plain}), objects=frozenset({Shared(id(found), path)}), path=path)
        if not isinstance(found, known.CONTAINERS):
            return PLAIN_VALUE if self.is_plain(found) else ANYTHING
        values = list(found.values()) if isinstance(found, (dict, types.MappingProxyType)) else list(found)
        kinds = frozenset(map(type, values))
        if isinstance(found, collections.defaultdict):
            return ANYTHING
        if all(is_scalar_type(kind) for kind in kinds):
            return Value(types=kinds)
        if len(values) <= 24:
            return join_all(self.shared(value, f"{path}[…]") for value in values).without_text()
        # Too many to be told apart: one object stands for all of them, but for dicts that are state.
        inside: set[Object] = {Shared(id(found), path)}
        for each in objects_inside(found):
            if id(each) in self.keyed:
                inside.add(Handle(id(each), f"{path}[…]"))
            self.facts.objects[id(each)] = each
            self.facts.touched.setdefault(id(each), f"{path}[…]")
        if self.is_plain(found):
            return Value(types=kinds, objects=frozenset(inside), path=path)
        return Value(types=None, objects=frozenset(inside), path=path, foreign=True)

    # -- reading ------------------------------------------------------------------------------------------

    def column(self, name: str) -> Value:
        """A column of the input tuple."""
        kept = self._columns.get((id(self.schema), name))
        if kept is None:
            kept = self._columns[id(self.schema), name] = self._column(name)
        return kept

    def _column(self, name: str) -> Value:
        if self.schema is not None and name in self.schema:
            kinds = types_of_column(self.schema.type_of(name))
        else:
            kinds = frozenset({Plain})
        text = Text(column_text(name), frozenset({name}))
        found = Value(types=kinds, text=text)
        return found if found.is_scalar else Value(types=kinds, objects=frozenset({TUPLE}), text=text)

    def content(self, value: Value, node: Any) -> Value:
        """What may come out of a value when it is gone through or indexed."""
        if value.is_nothing:
            return NOTHING
        self.use(value, node, shallow=True)
        found = NOTHING
        for each in value.objects:
            if isinstance(each, TupleObject):
                found = join(found, self._inside_column(value))
            elif isinstance(each, (Site, Kept)):
                found = join(found, self.heap.at(each).content)
            elif isinstance(each, Shared):
                if each.identity in self.facts.objects:
                    found = join(found, self.elements_of_shared(self.facts.objects[each.identity], each.path))
                else:
                    kinds = None if value.foreign else frozenset({Plain})
                    found = join(found, Value(types=kinds, objects=frozenset({each}), foreign=value.foreign))
        if value.types is None:
            return join(found, ANYTHING)
        for kind in value.types:
            if kind is str:
                found = join(found, Value(types=frozenset({str})))
            elif kind in (bytes, range, bytearray):
                found = join(found, Value(types=frozenset({int})))
            elif kind is Plain:
                found = join(found, PLAIN_VALUE if not value.objects else NOTHING)
                if LOST in self.heap.objects:
                    found = join(found, self.heap.at(LOST).content)
            elif (kind not in known.MUTATORS and kind is not Iterator and kind is not Row) and not is_record(kind):
                found = join(found, ANYTHING)
        return found.without_text()

    def _inside_column(self, value: Value) -> Value:
        name = value.text.column if value.text is not None else None
        if name is not None and self.schema is not None and name in self.schema:
            kind = self.schema.type_of(name)
            if pa.types.is_list(kind) or pa.types.is_map(kind):
                inside = Value(types=types_of_column(kind.value_type if pa.types.is_list(kind) else kind.item_type))
                if inside.is_scalar:
                    return inside
        return Value(types=frozenset({Plain}), objects=frozenset({TUPLE}))

    # -- changing -----------------------------------------------------------------------------------------

    def mutate(self, value: Value, node: Any, how: str, moves: bool = True) -> None:
        """Something is about to change the value in place; `moves` if what is in it may change places."""
        if value.is_nothing or value.is_scalar:
            return
        if value.types is None and not value.objects:
            self.unknown(node, f"{how}: what it changes is not known")
        for each in value.objects:
            if moves and isinstance(each, (Site, Kept)):
                self.heap.mix(each)
            if isinstance(each, Shared):
                self.write(node, each.identity, each.path, how)
            elif isinstance(each, TupleObject):
                self.facts.add(Kind.TUPLE, f"{how}: the tuple is shared with other operators", self.place(node))
            elif isinstance(each, Handle):
                self.whole(each, node, how)
            elif isinstance(each, Site):
                self.heap.lose_parts(each)
                if value.types is None and value.foreign:
                    self.unknown(node, f"{how}: what it changes is not known")

    def write(self, node: Any, identity: Identity, path: str, how: str) -> None:
        self.facts.written.setdefault(identity, path)
        self.facts.add(Kind.WRITE, f"{how}: {path} outlives the call", self.place(node), identity, path)

    def outlives(self, value: Value, path: str, node: Any) -> None:
        """The value is left where it is there after the call."""
        if not value.is_scalar:
            self.outliving.append((value, path, self.place(node), self.made_by))

    def put(
        self, container: Value, value: Value, node: Any, how: str, at: Element = None, again: Objects = frozenset()
    ) -> None:
        """`value` is put into `container`, under a constant key or place; `again` are objects that were there."""
        self.mutate(container, node, how, moves=at is None)
        for each in container.objects:
            if isinstance(each, (Site, Kept)):
                self.heap.put(each, value, at)
            elif isinstance(each, (Shared, Handle)):
                self.outlives(value, each.path, node)
        if value.objects and container.types is not None and Plain in container.types:
            self.lazy = True
            self.use(value, node, how="puts it where it is not followed")
            self.heap.put(LOST, value)
        self.stored(value, node, container.objects, again=again)

    def stored(self, value: Value, node: Any, into: Objects, at: Element = None, again: Objects = frozenset()) -> None:
        """Remember that objects made in this call were put into others; `at` tells places of one display apart."""
        for each in value.objects - again:
            if isinstance(each, Site):
                kept = self.heap.at(each)
                kept.stored_at.add((id(node), self.path, len(self.loops) > len(kept.made_in), at, into))
        if value.is_scalar:
            return
        for each in value.objects:
            if isinstance(each, Kept):
                self.restored.setdefault(each.field, self.place(node))

    def whole(self, handle: Handle, node: Any, how: str) -> None:
        self.facts.add(
            Kind.WHOLE,
            f"{how}: all keys of {handle.path} at once",
            self.place(node),
            handle.identity,
            handle.path,
        )

    def use(self, value: Value, node: Any, shallow: bool = False, how: str = "uses it as a whole") -> None:
        """The value is looked at as a whole: a dict of state must not be."""
        if not value.objects:
            return
        reached = value.objects if shallow else self.heap.reach(value.objects)
        for each in reached:
            if isinstance(each, Handle):
                self.whole(each, node, how)

    def escape(self, value: Value, node: ast.AST) -> None:
        """The value is given to code that is not known."""
        self.use(value, node, how="passes it to unknown code")

    def access(self, handle: Handle, key: Value, node: Any) -> None:
        """One entry of a dict of state is used."""
        shape = self.heap.parts(key)
        is_tuple = shape is not None and key.types == frozenset({tuple}) and all(isinstance(n, int) for n in shape)
        if shape is not None and is_tuple:
            parts = tuple((part.text, part.types) for part in shape.values())
        else:
            parts = ((key.text, key.types),)
        found = Access(handle.identity, handle.path, key.text, self.place(node), parts)
        self.facts.accesses.setdefault((handle.identity, key.text, parts, found.location), found)

    def handle_of(self, value: Value) -> Handle | None:
        """The dict of state a value may be."""
        for each in value.objects:
            if isinstance(each, Handle):
                return each
        return None

    # -- state --------------------------------------------------------------------------------------------

    def kept(self, field: str) -> Value:
        """What the key's state holds under a name."""
        inside = self.heap.at(Kept(field)).attributes.get("value", NOTHING)
        if inside.is_nothing or inside.is_scalar:
            return Value(inside.types, inside.objects, None, None, inside.path, inside.foreign)
        return Value(inside.types, inside.objects | {Kept(field)}, inside.concrete, None, inside.path, inside.foreign)

    def keep(self, field: str, value: Value, node: Any) -> None:
        """The key's state gets a value under a name."""
        self.use(value, node, how="keeps it")
        self.outlives(value, f"self.{field}" if field in self.fields else field, node)
        self.heap.put_attribute(Kept(field), "value", value.without_text())
        for each in value.objects:
            if isinstance(each, Site):
                # One slot per key and field: putting an object there again does not double it.
                self.heap.at(each).stored_at.add(("field", field))
        if value.types is None and not value.is_nothing:
            self.unknown(node, f"keeps a value of unknown type in {field}")
        for kind in value.types or ():
            if kind in (Iterator, Callback, types.FunctionType, types.MethodType):
                text = f"keeps {KEPT_NAMES.get(kind, kind.__name__)} in {field}, which is not data"
                self.facts.add(Kind.NOT_DATA, text, self.place(node))
