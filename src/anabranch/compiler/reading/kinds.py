"""What can be told of a class or an object by looking at it, without running anything of it."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import types
from typing import Any

import numpy as np

from anabranch.compiler.reading import known
from anabranch.compiler.reading.values import is_scalar_type
from anabranch.program.schema import Row

_MOST_ELEMENTS = 200_000
_GENERATORS = ("collections/__init__.py", "dataclasses.py", "reprlib.py")
#: Special methods of a record that run only where the interpreter follows them.
_HARMLESS = {"__init__", "__post_init__", "__class_getitem__", "__getnewargs__", "__replace__"}


def static_attribute(kind: type, name: str) -> Any:
    """A class's attribute without running descriptors; `inspect.Parameter.empty` if there is none."""
    for owner in kind.__mro__:
        if name in vars(owner):
            return vars(owner)[name]
    return inspect.Parameter.empty


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
                made_by = code.co_filename if code is not None else ""
                # Notebook cells have names like <ipython-input-…>: only the generators' own name counts.
                if made_by not in ("<string>", "<lambda>") and not made_by.endswith(_GENERATORS):
                    return False
    return True


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
