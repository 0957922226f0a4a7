"""From data to objects: what was kept of an object graph, put together again.

In two rounds, because objects may hold each other: first each is there, the copy's own object in that place or an empty
new one; then each gets its contents, in place, so that whoever holds it sees them. No code of the user's runs, and
none is read: classes and functions are those that the program brought along. A class may have changed since: fields of
a dataclass or a named tuple that are new get their defaults, what cannot be is refused with what to do.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from anabranch.errors import StateError
from anabranch.program.array_types import type_of_text
from anabranch.program.not_a_number import NumberedNans
from anabranch.program.object_parts import (
    Path,
    attributes_of,
    built_in_base,
    class_code,
    class_data,
    is_own_class,
    view_of_dict,
)
from anabranch.program.object_pieces import LIBRARY_CLASSES, RESTORED, filled_bytes, filled_text, random_of
from anabranch.program.schema import restored_row
from anabranch.program.set_tables import SetTable, fill, frozen

_NOTHING = object()
#: The name of code → it, and a function whose globals it has.
Codes = dict[str, tuple[types.CodeType, types.FunctionType]]


class Reference:
    """Stands for the object with a number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"→{self.number}"


class Filling:
    """Nodes on their way to being objects.

    Parameters
    ----------
    nodes : list
        What `Live.flatten` gave.
    classes : mapping
        Name → class, of those that the program brought along.
    anchors : mapping
        Way → object that is there already.
    codes : callable
        Gives the code that the program brought along.
    """

    def __init__(
        self, nodes: list[Any], classes: Mapping[str, type], anchors: Mapping[Path, Any], codes: Callable[[], Codes]
    ) -> None:
        self._nodes = nodes
        self._classes = classes
        self._anchors = anchors
        self._codes = codes
        self._objects: list[Any] = [_NOTHING] * len(nodes)

    def first(self) -> Any:
        """Fill all of them; the first."""
        for number in range(len(self._nodes)):
            self._get(number)
        # Objects before what hashes them: a key of a dict must have its attributes.
        for hashing in (False, True):
            for number, (_, kind, contents) in enumerate(self._nodes):
                if isinstance(self._objects[number], (dict, set)) is hashing:
                    made_of = self._class(contents[0]) if kind == "instance" else None
                    _refilled(self._objects[number], kind, contents, self._value, made_of)
        return self._objects[0]

    def _value(self, each: Any) -> Any:
        return self._get(each.number) if isinstance(each, Reference) else each

    def _get(self, number: int) -> Any:
        found = self._objects[number]
        if found is _NOTHING:
            anchor, kind, contents = self._nodes[number]
            place = None if anchor is None else self._anchors.get(tuple((a, b) for a, b in map(tuple, anchor)))
            if place is not None and kind == "ndarray" and list(place.shape) != contents[1]:
                place.resize(contents[1], refcheck=False)  # before others are made that share its memory
            found = self._objects[number] = place if place is not None else self._made(kind, contents)
        return found

    def _class(self, name: str) -> Any:
        """One that the program brought along, or of Python's own containers."""
        found = self._classes.get(name, LIBRARY_CLASSES.get(name))
        if found is None:
            raise StateError(
                f"the state holds a {name}, a class that the operator's code does not name (any more). Give "
                "the class its old name and module, or start anew with another checkpointLocation."
            )
        return found

    def _made(self, kind: str, contents: Any) -> Any:
        """A new object, empty where it can be filled later."""
        value_of = self._value
        if kind in _EMPTY:
            return _EMPTY[kind]()
        if kind in RESTORED:
            return RESTORED[kind](contents)
        if kind in _MADE:
            return _MADE[kind](contents, value_of)
        if kind == "member":
            return _member(self._class(contents[0]), *contents)
        if kind == "class":
            return self._class(contents)
        if kind == "named":
            return _named(self._class(contents[0]), [value_of(each) for each in contents[1]], *contents[2:])
        if kind == "instance":
            return built_in_base(self._class(contents[0])).__new__(self._class(contents[0]))
        if kind == "managed":
            return self._class(contents[0])()
        if kind == "function":
            return self._function(contents)
        raise StateError(f"the state was written by another version of the program: it has a {kind} that this has not")

    def _function(self, contents: list[Any]) -> types.FunctionType:
        codes = self._codes()
        if contents[0] not in codes:
            raise StateError(f"the state was written by another version of the program: it has no {contents[0]}")
        code, function = codes[contents[0]]
        closure, defaults, named = map(self._value, contents[1:])
        made = types.FunctionType(code, function.__globals__, code.co_name, defaults, closure)
        made.__kwdefaults__ = named
        return made


_EMPTY: dict[str, Callable[[], Any]] = {
    "list": list,
    "dict": dict,
    "set": set,
    "set with a table": set,
    "OrderedDict": collections.OrderedDict,
    "defaultdict": collections.defaultdict,
    "Counter": collections.Counter,
    "namespace": types.SimpleNamespace,
    "cell": types.CellType,
    "object": object,
}
Values = Callable[[Any], Any]


def _array(contents: list[Any], value_of: Values) -> np.ndarray:
    kind, shape, cells, order = contents[:4]
    return np.frombuffer(cells, type_of_text(kind)).reshape(shape, order=order).copy(order="K")


def _part_of_array(contents: list[Any], value_of: Values) -> np.ndarray:
    """An array that shows cells of another."""
    whole, kind, shape, strides, offset = contents[:5]
    cells: np.ndarray = value_of(whole)
    cells = cells if cells.flags.c_contiguous else cells.T
    return np.ndarray(tuple(shape), type_of_text(kind), cells, offset, tuple(strides))


def _partial(contents: list[Any], value_of: Values) -> Any:
    function, arguments, keywords = map(value_of, contents[:3])
    return functools.partial(function, *arguments, **keywords)


# Objects that are made of their parts at once.
_MADE: dict[str, Callable[[Any, Values], Any]] = {
    "tuple": lambda contents, value_of: tuple(value_of(each) for each in contents),
    "frozenset": lambda contents, value_of: frozenset(tuple(value_of(each) for each in contents)),
    "frozenset with a table": lambda contents, value_of: frozen(
        [value_of(each) for each in contents[0]], SetTable(*contents[1:])
    ),
    "deque": lambda contents, value_of: collections.deque(maxlen=contents[0]),
    "view of a dict": lambda contents, value_of: view_of_dict(value_of(contents[1]), contents[0]),
    "view": lambda contents, value_of: memoryview(value_of(contents)),
    "nan": lambda contents, value_of: NumberedNans().nan(contents),
    "ndarray": _array,
    "part of an array": _part_of_array,
    "row": lambda contents, value_of: restored_row(tuple(contents[0]), tuple(value_of(each) for each in contents[1])),
    "method": lambda contents, value_of: getattr(value_of(contents[0]), contents[1]),
    "partial": _partial,
}


# -- classes that may have changed ------------------------------------------------------------------------------


def _member(kind: Any, name: str, value: Any) -> Any:
    """A member of an enumeration: by its name; of flags, which may be combined, by its value."""
    if issubclass(kind, enum.Flag):
        return kind(value)
    try:
        return kind[value]
    except KeyError:
        raise StateError(f"the state holds {name}.{value}, which the enumeration no longer has") from None


def _named(kind: Any, values: list[Any], names: Any = None) -> Any:
    names = kind._fields if names is None else names
    held = dict(zip(names, values, strict=True))
    defaults = getattr(kind, "_field_defaults", {})
    unknown = held.keys() - set(kind._fields)
    missing = [name for name in kind._fields if name not in held and name not in defaults]
    if unknown or missing:
        raise _changed(kind, unknown, missing)
    return tuple.__new__(kind, [held[name] if name in held else defaults[name] for name in kind._fields])


def _new_fields(kind: Any, known: set[str]) -> dict[str, Any]:
    """The fields of a dataclass that it had not when its objects were kept, with their defaults."""
    found: dict[str, Any] = {}
    missing = []
    for field in dataclasses.fields(kind):
        if field.name in known:
            continue
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
        else:
            missing.append(field.name)
    if missing:
        raise _changed(kind, set(), missing)
    return found


def _changed(kind: type, unknown: set[str], missing: list[str]) -> StateError:
    parts = [f"the state has {', '.join(sorted(unknown))}"] if unknown else []
    parts += [f"the class now needs {', '.join(missing)}"] if missing else []
    return StateError(
        f"the fields of {kind.__module__}.{kind.__qualname__} have changed since its objects were kept: "
        f"{'; '.join(parts)}. Give new fields a default, and keep the old ones."
    )


# -- contents ---------------------------------------------------------------------------------------------------


def _refilled(value: Any, kind: str, contents: Any, value_of: Callable[[Any], Any], made_of: type | None) -> None:
    """Put contents into an object that can be changed in place; others are as they were made."""
    if kind == "list":
        value[:] = [value_of(each) for each in contents]
    elif kind in ("dict", "OrderedDict", "Counter"):
        _fill_dict(value, contents, value_of)
    elif kind == "defaultdict":
        value.default_factory = value_of(contents[0])
        _fill_dict(value, contents[1], value_of)
    elif kind == "set":
        fill(value, [value_of(each) for each in contents], None)
    elif kind == "set with a table":
        fill(value, [value_of(each) for each in contents[0]], SetTable(*contents[1:]))
    elif kind == "deque":
        value.clear()
        value.extend(value_of(each) for each in contents[1])
    elif kind == "cell":
        if contents:
            value.cell_contents = value_of(contents[0])
    elif kind == "same":
        _bind_anew(value, contents, value_of)
    elif kind == "namespace":
        vars(value).clear()
        vars(value).update((name, value_of(each)) for name, each in contents)
    elif kind == "bytearray":
        value[:] = contents
    elif kind == "array":
        del value[:]
        value.frombytes(contents[1])
    elif kind == "random":
        value.setstate(random_of(contents).getstate())
    elif kind == "generator":
        value.bit_generator.state = contents
    elif kind == "text":
        filled_text(value, contents)
    elif kind == "bytes being written":
        filled_bytes(value, contents)
    elif kind == "ndarray":
        if value.flags.writeable:
            value[...] = np.frombuffer(contents[2], type_of_text(contents[0])).reshape(contents[1], order=contents[3])
        if contents[4:]:
            value.flags.writeable = False
    elif kind == "instance":
        _, attributes, inner, *_ = contents
        if made_of is not None and type(value) is not made_of:
            object.__setattr__(value, "__class__", made_of)
        if isinstance(value, dict):
            _fill_dict(value, inner, value_of)
        elif isinstance(value, list):
            list.__setitem__(value, slice(None), [value_of(each) for each in inner])
        elif isinstance(value, set):
            members, *table = inner
            fill(value, [value_of(each) for each in members], SetTable(*table) if table else None)
        _fill_attributes(value, attributes, value_of)
    elif kind == "partial":
        named = {name: value_of(each) for name, each in (contents[3] if len(contents) > 3 else ())}
        value.__setstate__((*map(value_of, contents[:3]), named))
    elif kind == "managed":
        value.filled(contents[1], value_of)
    elif kind == "part of an array" and contents[5:]:
        value.flags.writeable = False


def _fill_attributes(value: Any, attributes: list[Any], value_of: Values) -> None:
    """Its attributes: a name without a value is a field of a dataclass that was never set."""
    for name, _ in list(attributes_of(value)):
        object.__delattr__(value, name)
    for name, *each in attributes:
        try:
            if each:
                object.__setattr__(value, name, value_of(each[0]))
        except AttributeError:  # the class has slots, and not this one
            raise _changed(type(value), {name}, []) from None
    if dataclasses.is_dataclass(value):
        for name, default in _new_fields(type(value), {each[0] for each in attributes}).items():
            object.__setattr__(value, name, default)


def _bind_anew(value: Any, contents: list[Any], value_of: Callable[[Any], Any]) -> None:
    """The names that a class or a function holds; what they lead to is filled in its own place."""
    if isinstance(value, type) and is_own_class(value):
        _bind_class(value, {name: value_of(each) for step, name, each in contents if step in ("attribute", "method")})
    elif isinstance(value, types.FunctionType):
        _bind_function(value, [(step, name, value_of(each)) for step, name, each in contents])


def _bind_class(kind: type, held: dict[str, Any]) -> None:
    now = {**dict(class_data(kind)), **dict(class_code(kind))}
    for name in now.keys() - held.keys():
        type.__delattr__(kind, name)
    for name, each in held.items():
        if now.get(name, _NOTHING) is not each:
            type.__setattr__(kind, name, each)


def _bind_function(function: types.FunctionType, contents: list[tuple[str, Any, Any]]) -> None:
    held: dict[str, Any] = {name: each for step, name, each in contents if step == "attribute"}
    vars(function).clear()
    vars(function).update(held)
    defaults = {name: each for step, name, each in contents if step == "default"}
    places = tuple(each for name, each in defaults.items() if isinstance(name, int))
    before = function.__defaults__ or ()
    if len(places) != len(before) or any(one is not other for one, other in zip(places, before, strict=True)):
        function.__defaults__ = places
    named = {name: each for name, each in defaults.items() if isinstance(name, str)}
    if named:
        function.__kwdefaults__ = named
    for step, name, each in contents:
        if step == "global":
            function.__globals__[name] = each


def _fill_dict(value: Any, contents: list[Any], value_of: Callable[[Any], Any]) -> None:
    # Not the methods of a subclass: a Counter's update would count, a user's may do anything.
    base: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    base.clear(value)
    for key, item in contents:
        base.__setitem__(value, value_of(key), value_of(item))
