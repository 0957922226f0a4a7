"""What can be told of a class or an object by looking at it, without running anything of it."""

from __future__ import annotations

import abc
import collections
import dataclasses
import inspect
import reprlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from anabranch.compiler.reading import known
from anabranch.compiler.reading.values import is_scalar_type
from anabranch.program.object_parts import DICT_VIEWS, dict_behind
from anabranch.program.schema import Row

_MOST_ELEMENTS = 200_000
_GENERATORS = frozenset({collections.__file__, dataclasses.__file__, reprlib.__file__})
#: Special methods of a record that run only where the interpreter follows them.
_HARMLESS = {"__init__", "__post_init__", "__class_getitem__", "__getnewargs__", "__replace__"}


def static_attribute(kind: type, name: str) -> Any:
    """A class's attribute without running descriptors; `inspect.Parameter.empty` if there is none."""
    for owner in kind.__mro__:
        if name in vars(owner):
            return vars(owner)[name]
    return inspect.Parameter.empty


def is_generated(code: types.CodeType) -> bool:
    """The code was written by `dataclass` or `namedtuple`.

    Code of a notebook or of `exec` has a file name in angle brackets, too: what counts is the function that made it.
    """
    if code.co_filename in _GENERATORS:
        return True
    return code.co_filename == "<string>" and (
        code.co_qualname.startswith("__create_fn__.<locals>.") or code.co_qualname == "<lambda>"
    )


def is_record(kind: type) -> bool:
    """A named tuple or dataclass whose special methods are the generated ones."""
    if issubclass(kind, Row):
        return True
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if not named and not dataclasses.is_dataclass(kind):
        return False
    for owner in kind.__mro__:
        if owner in (object, tuple) or owner.__module__ == "typing":
            continue
        for name, member in vars(owner).items():
            special = name.startswith("__") and name not in _HARMLESS
            if special and isinstance(member, (types.FunctionType, classmethod, staticmethod, property)):
                code = getattr(getattr(member, "__wrapped__", member), "__code__", None)
                if code is not None and not is_generated(code):
                    return False
    return True


def objects_inside(found: Any) -> Iterator[Any]:
    """Everything a container of Python's own holds that could change, however deep."""
    seen: set[int] = set()
    waiting = [found]
    while waiting:
        at = waiting.pop()
        if id(at) in seen or is_scalar_type(type(at)):
            continue
        seen.add(id(at))
        if at is not found:
            yield at
        if type(at) in DICT_VIEWS:
            waiting.append(dict_behind(at))
        elif isinstance(at, known.CONTAINERS):
            waiting.extend([*at.keys(), *at.values()] if isinstance(at, dict) else at)


def is_plain_data(found: Any) -> bool:
    """Plain data through and through, so that its operators and methods are Python's own."""
    seen: set[int] = set()
    waiting = [found]
    while waiting:
        at = waiting.pop()
        kind = type(at)
        if is_scalar_type(kind):
            continue
        if kind not in known.MUTATORS or kind is collections.defaultdict:
            return False
        if id(at) in seen:
            continue
        seen.add(id(at))
        if len(seen) > _MOST_ELEMENTS:
            return False
        if isinstance(at, np.ndarray) and at.dtype.hasobject:
            return False
        if isinstance(at, known.CONTAINERS):
            inner = [*at.keys(), *at.values()] if isinstance(at, (dict, types.MappingProxyType)) else at
            if not all(is_scalar_type(each) for each in set(map(type, inner))):
                waiting.extend(inner)
    return True


def interceptor_of(kind: type, names: tuple[str, ...]) -> str | None:
    for name in names:
        member = static_attribute(kind, name)
        if isinstance(member, types.FunctionType) and not issubclass(kind, Row):
            return name
    return None


def is_plain_class(kind: type) -> bool:
    """A user class without special methods that would run behind the code's back."""
    if not isinstance(kind, type) or kind.__flags__ & (1 << 9) == 0:  # not a class made by a class statement
        return False
    for owner in kind.__mro__:
        if owner is object or owner is abc.ABC:
            continue
        if owner.__module__ == "builtins" or owner.__flags__ & (1 << 9) == 0:
            return False
        for name, member in vars(owner).items():
            if name in _HIDDEN and isinstance(member, (types.FunctionType, staticmethod, classmethod)):
                return False  # `__new__` is a static method, `__init_subclass__` one of the class
    return type(kind) in (type, abc.ABCMeta)


_HIDDEN = {
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "__delattr__",
    "__del__",
    "__new__",
    "__init_subclass__",
    "__class_getitem__",
}
