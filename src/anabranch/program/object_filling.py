"""Objects that are there already, filled with what was kept of them: in place, so that whoever holds them sees it."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from anabranch.program.object_parts import attributes_of, class_code, class_data, is_own_class
from anabranch.program.object_pieces import filled_bytes, filled_text, random_of
from anabranch.program.set_tables import SetTable, fill

_NOTHING = object()


def refilled(value: Any, kind: str, contents: Any, value_of: Callable[[Any], Any], made_of: type | None) -> None:
    """Put contents into an object that can be changed in place; others are as they were made."""
    if kind == "list":
        value[:] = [value_of(each) for each in contents]
    elif kind in ("dict", "OrderedDict", "Counter"):
        _fill_dict(value, contents, value_of)
    elif kind == "defaultdict":
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
        if list(value.shape) != contents[1]:
            value.resize(contents[1], refcheck=False)
        if value.flags.writeable:
            value[...] = np.frombuffer(contents[2], np.dtype(contents[0])).reshape(contents[1], order=contents[3])
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
        for name, _ in list(attributes_of(value)):
            object.__delattr__(value, name)
        for name, each in attributes:
            object.__setattr__(value, name, value_of(each))


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
