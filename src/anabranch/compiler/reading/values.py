"""What the interpreter knows about a value: abstract values and the abstract heap.

    Value ── types     the Python types it may have (None: could be anything)
          ── objects   the objects it may be, or may lead to: the tuple, something that outlives the
                       call, the state of the tuple's key, something made during the call
          ── concrete  the very objects, where they are known: functions, classes, modules, configuration
          ── text      an expression over the tuple's columns that always gives this value

An object made during the call (`Site`) is named by the place in the source that makes it; what is put into
it is joined into its content, so two names for one list see the same content. Joining only ever loses
knowledge: fewer texts, more types, more objects.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import types
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pyarrow as pa

from anabranch.program.schema import Row

# -- types ------------------------------------------------------------------------------------------------


class Plain:
    """Stands for "some value of the built-in or well-known library types"."""


class Iterator:
    """Stands for generators and iterators: reading one changes it."""


class Callback:
    """Stands for functions made during the call, bound methods and the like."""


NoneType = type(None)
#: Values of these types never change and hold nothing that does.
SCALARS: frozenset[type] = frozenset(
    {
        NoneType,
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        range,
        type(...),
        datetime.datetime,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        datetime.timezone,
        decimal.Decimal,
        fractions.Fraction,
        UUID,
        zoneinfo.ZoneInfo,
    }
)
Types = frozenset[type] | None
PLAIN: Types = frozenset({Plain})


# -- objects ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TupleObject:
    """The input tuple and whatever its columns hold."""


@dataclasses.dataclass(frozen=True)
class Shared:
    """Something that outlives the call: an attribute, a global, a closure's variable, a default."""

    identity: int
    path: str = dataclasses.field(compare=False)

    def __hash__(self) -> int:  # as all of these: the one made by `dataclass` takes four times as long
        return self.identity


@dataclasses.dataclass(frozen=True)
class Kept:
    """What the state of the tuple's key holds under a name."""

    field: str

    def __hash__(self) -> int:
        return hash(self.field)


@dataclasses.dataclass(frozen=True)
class Handle:
    """A whole dict or store that is state: only single entries of it belong to the tuple's key."""

    identity: int
    path: str = dataclasses.field(compare=False)

    def __hash__(self) -> int:  # as all of these: the one made by `dataclass` takes four times as long
        return self.identity


@dataclasses.dataclass(frozen=True)
class Site:
    """An object made during the call, named by the syntax node that makes it."""

    node: int
    role: str = ""

    def __hash__(self) -> int:
        return self.node


Object = TupleObject | Shared | Kept | Handle | Site
TUPLE = TupleObject()
#: What was put into plain values of which no object is known (from ``json.loads``): it may come out of any of them.
LOST = Site(0, "lost")


# -- expressions ------------------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False, slots=True)
class Text:
    """An expression over the tuple `t`, and the objects its other names stand for."""

    source: str
    columns: frozenset[str] = frozenset()
    names: tuple[tuple[str, Any], ...] = ()

    def __eq__(self, other: object) -> bool:
        # Two functions of one name are two functions: names are compared by what they stand for.
        if not isinstance(other, Text):
            return NotImplemented
        if self.names is other.names or not (self.names or other.names):
            return self.source == other.source
        return self.source == other.source and [(name, id(found)) for name, found in self.names] == [
            (name, id(found)) for name, found in other.names
        ]

    def __hash__(self) -> int:
        return hash(self.source)

    @property
    def column(self) -> str | None:
        """The column's name, if the expression is nothing but a column."""
        if len(self.columns) == 1 and self.source == column_text(next(iter(self.columns))):
            return next(iter(self.columns))
        return None


def column_text(name: str) -> str:
    return f"t.{name}" if name.isidentifier() and not name.startswith("_") else f"t[{name!r}]"


def combined_text(template: str, parts: Iterable[Value], *functions: Any) -> Text | None:
    """The text of an operation on values, or None if one of them has none.

    `{}` in the template takes the parts in turn, `{f0}` a function called by name.
    """
    sources: list[str] = []
    columns: frozenset[str] = frozenset()
    names: dict[str, Any] = {}
    for part in parts:
        if part.text is None:
            return None
        sources.append(part.text.source)
        columns |= part.text.columns
        names.update(part.text.names)
    called = {}
    for place, function in enumerate(functions):
        name = f"_{getattr(function, '__name__', 'f')}_{len(names)}"
        for known, value in names.items():
            if value is function:
                name = known
        names[name] = function
        called[f"f{place}"] = name
    source = template.format(*sources, **called)
    if len(source) > 300:
        return None
    return Text(source, columns, tuple(sorted(names.items(), key=lambda item: item[0])))


# -- values -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False, slots=True)  # never changed; `frozen` would make creating one three times slower
class Value:
    types: Types = None
    objects: frozenset[Object] = frozenset()
    concrete: tuple[Any, ...] | None = None
    text: Text | None = None
    path: str = ""
    #: Types of the elements or attributes are not known to be plain: what comes out of it is anything.
    foreign: bool = False

    def __eq__(self, other: object) -> bool:
        # Concrete objects are compared by identity: their own == is user code, or an array.
        if not isinstance(other, Value):
            return NotImplemented
        return (
            (self.types is other.types or self.types == other.types)
            and self.objects == other.objects
            and (self.text is other.text or self.text == other.text)
            and self.foreign == other.foreign
            and _same_objects(self.concrete, other.concrete)
        )

    def __hash__(self) -> int:
        return hash((self.types, self.objects))

    @property
    def is_scalar(self) -> bool:
        if self.types is None:
            return False
        return self.types <= SCALARS or all(is_scalar_type(kind) for kind in self.types)

    @property
    def is_nothing(self) -> bool:
        """No value reaches here (the bottom of the lattice)."""
        return self.types is not None and not self.types and not self.objects

    @property
    def only(self) -> Any:
        """The one object this is, or `UNKNOWN`."""
        return self.concrete[0] if self.concrete is not None and len(self.concrete) == 1 else UNKNOWN

    def without_text(self) -> Value:
        if self.text is None:
            return self
        return Value(self.types, self.objects, self.concrete, None, self.path, self.foreign)

    def with_text(self, text: Text | None) -> Value:
        return Value(self.types, self.objects, self.concrete, text, self.path, self.foreign)


def _same_objects(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> bool:
    if first is None or second is None:
        return first is second
    return len(first) == len(second) and all(_is_same(a, b) for a, b in zip(first, second, strict=True))


def _is_same(first: Any, second: Any) -> bool:
    """The same object; a method that is taken from an object again is the same as before."""
    if first is second:
        return True
    if type(first) is not BoundMethod or type(second) is not BoundMethod:
        return False
    return first.name == second.name and first.function is second.function and first.receiver == second.receiver


class _Unknown(enum.Enum):
    UNKNOWN = "unknown"


UNKNOWN = _Unknown.UNKNOWN
NOTHING = Value(types=frozenset())
ANYTHING = Value(foreign=True)
PLAIN_VALUE = Value(types=PLAIN)
NONE = Value(types=frozenset({NoneType}), concrete=(None,), text=Text("None"))


def is_scalar_type(kind: type) -> bool:
    return kind in SCALARS or is_plain_enum(kind)


@functools.lru_cache(maxsize=1024)
def is_plain_enum(kind: type) -> bool:
    """An enumeration whose special methods are Python's own."""
    if not isinstance(kind, enum.EnumMeta):
        return False
    for owner in kind.__mro__:
        if owner.__module__ in ("enum", "builtins"):
            continue
        for name, member in vars(owner).items():
            own = isinstance(member, (types.FunctionType, classmethod)) and name.startswith("_")
            if own and getattr(member, "__module__", "") != "enum" and name != "_generate_next_value_":
                return False
    return type(kind) is enum.EnumMeta


def scalar(*kinds: type, text: Text | None = None) -> Value:
    return Value(types=frozenset(kinds), text=text)


def attribute_path(path: str, name: str) -> str:
    """How the code reaches an attribute, for people; a path in words ("the default of held") has it before it."""
    return f"{name} of {path}" if " " in path else f"{path}.{name}"


def constant(value: Any) -> Value:
    """A literal."""
    return Value(types=frozenset({type(value)}), concrete=(value,), text=constant_text(value))


def constant_text(value: Any) -> Text | None:
    simple = value is None or type(value) in (bool, int, float, str, bytes)
    if not simple or value != value or value in _INFINITE:
        return None
    # What is negative may come to stand before a power, where it would mean something else.
    return Text(f"({value!r})" if repr(value).startswith("-") else repr(value))


_INFINITE = (float("inf"), float("-inf"))
_MOST_CONCRETE = 24


def join(first: Value, second: Value) -> Value:
    """What is known of a value that is one or the other."""
    # Called more often than anything else: nothing is the most frequent, and comparing the dearest.
    if first is second or (second.types is not None and not second.types and not second.objects):
        return first
    if first.types is not None and not first.types and not first.objects:
        return second
    if first == second:
        return first
    types = None if first.types is None or second.types is None else first.types | second.types
    concrete: tuple[Any, ...] | None = None
    if first.concrete is not None and second.concrete is not None:
        concrete = first.concrete + tuple(
            each for each in second.concrete if not any(_is_same(each, known) for known in first.concrete)
        )
        if len(concrete) > _MOST_CONCRETE:
            concrete = None
    return Value(
        types=types,
        objects=first.objects | second.objects,
        concrete=concrete,
        text=first.text if first.text == second.text else None,
        path=first.path or second.path,
        foreign=first.foreign or second.foreign,
    )


def join_all(values: Iterable[Value]) -> Value:
    found = NOTHING
    for value in values:
        found = join(found, value)
    return found


# -- things that only exist during the analysis -----------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class LocalFunction:
    """A function or lambda made during the call, with the frame it was made in."""

    node: Any
    frame: Any
    defaults: tuple[tuple[str, Value], ...] = ()

    @property
    def __name__(self) -> str:
        return getattr(self.node, "name", "<lambda>")


@dataclasses.dataclass(frozen=True, eq=False)
class BoundMethod:
    """A method taken from a value: a function of a class, or a method of a built-in type by name."""

    receiver: Value
    name: str
    function: Any = None


@dataclasses.dataclass(frozen=True, eq=False)
class SuperProxy:
    """``super()``: look the attribute up after `owner` in the order of the receiver's class."""

    owner: type
    receiver: Value


class Emit:
    """The callback an operator emits tuples with, where it takes one."""


EMIT = Emit()


@functools.lru_cache(maxsize=512)
def types_of_column(kind: pa.DataType) -> Types:
    """The exact Python types a column of this Arrow type holds, null included."""
    tests: list[tuple[Callable[[Any], bool], type]] = [
        (pa.types.is_boolean, bool),
        (pa.types.is_integer, int),
        (pa.types.is_floating, float),
        (pa.types.is_string, str),
        (pa.types.is_binary, bytes),
        (pa.types.is_timestamp, datetime.datetime),
        (pa.types.is_date, datetime.date),
        (pa.types.is_decimal, decimal.Decimal),
        (pa.types.is_list, list),
        (pa.types.is_map, dict),
        (pa.types.is_struct, dict),
    ]
    for test, found in tests:
        if test(kind):
            return frozenset({found, NoneType})
    return PLAIN


ROW_TYPES: Types = frozenset({Row})
