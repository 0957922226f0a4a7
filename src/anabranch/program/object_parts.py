"""What objects hold, and what of it has an identity: the ways through an object of the user's."""

from __future__ import annotations

import collections
import datetime
import decimal
import dis
import enum
import fractions
import functools
import operator
import re
import struct
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import numpy as np

Step = tuple[str, Any]
Path = tuple[Step, ...]

# Without an identity that anybody could rely on, and without anything in them that could change: the codec keeps
# them as they are.
_ATOMS = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
        complex,
        decimal.Decimal,
        fractions.Fraction,
        UUID,
        datetime.date,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
    }
)
# They need not be written where the prototype has them: nothing in them changes but what they close over.
LASTING = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.MappingProxyType,
    type,
    re.Pattern,
    operator.itemgetter,
    operator.attrgetter,
    operator.methodcaller,
    struct.Struct,
    datetime.tzinfo,
    np.ufunc,
    np.dtype,
    range,
    slice,
    property,
)


def is_atom(value: Any) -> bool:
    kind = type(value)
    return kind in _ATOMS or (isinstance(value, np.generic) and not value.dtype.hasobject and value.dtype.names is None)


def is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises if there is nothing
    except ValueError:
        return False
    return True


def is_lasting(step: Step) -> bool:
    """Whether a way leads to the same object in every copy."""
    kind, name = step
    return kind != "key" and (name is None or type(name) in (str, int, bool, bytes))


def attributes_of(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for base in type(value).__mro__:
        for name in _slots(base):
            if hasattr(value, name):
                yield name, getattr(value, name)


def _slots(kind: type) -> list[str]:
    names = vars(kind).get("__slots__", ())
    names = [names] if isinstance(names, str) else list(names)
    plain = [name for name in names if name not in ("__dict__", "__weakref__")]
    return [
        f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in plain
    ]


def built_in_base(kind: type) -> Any:
    """The first class below a user's that is not written in Python."""
    return next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)


_HEAP_TYPE = 1 << 9


def is_plain_instance(kind: type) -> bool:
    """Whether an object of a class is its attributes, and what a list, dict or set holds if it is one, and no more."""
    below = [base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE]
    special = any(
        name in vars(base)
        for base in kind.__mro__
        if base.__flags__ & _HEAP_TYPE and base.__module__ not in ("typing", "abc", "collections.abc")
        for name in ("__reduce__", "__reduce_ex__")
    )
    return bool(kind.__flags__ & _HEAP_TYPE) and set(below) <= {object, list, dict, set} and not special


def is_kept_whole(kind: type, classes: Iterable[type]) -> bool:
    """Whether objects of a class can be kept as data: its attributes are all it is, and the program brings it along."""
    if kind is types.SimpleNamespace:
        return True
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return (named or isinstance(kind, enum.EnumMeta) or is_plain_instance(kind)) and kind in classes


def children(value: Any, as_copied: bool = False) -> Iterator[tuple[Step, Any]]:
    """What an object holds, with the step that leads there.

    Globals and classes are held where they are a copy's own; with `as_copied` as if they were.
    """
    kind = type(value)
    if isinstance(value, types.FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield ("closure", name), cell
        for at, each in enumerate(value.__defaults__ or ()):
            yield ("default", at), each
        for name, each in (value.__kwdefaults__ or {}).items():
            yield ("default", name), each
        for name, each in vars(value).items():
            yield ("attribute", name), each
        if has_own_globals(value) or (as_copied and not is_library(value.__module__)):
            for name in sorted(names_in(value)):
                if name in value.__globals__ and _is_held(value.__globals__[name], as_copied):
                    yield ("global", name), value.__globals__[name]
    elif kind is types.CellType:
        if is_filled(value):
            yield ("item", 0), value.cell_contents
    elif kind is types.MethodType:
        yield ("self", None), value.__self__
        yield ("function", None), value.__func__
    elif kind is functools.partial:
        for at, each in enumerate((value.func, value.args, value.keywords)):
            yield ("partial", at), each
    elif isinstance(value, type):
        if is_own_class(value, as_copied):
            yield from _held_by_class(value, as_copied)
    elif isinstance(value, types.ModuleType):
        return
    else:
        if isinstance(value, (list, tuple, collections.deque)):
            for at, each in enumerate(value):
                yield ("item", at), each
        elif isinstance(value, (set, frozenset)):
            for each in value:
                yield ("key", None), each
        elif isinstance(value, dict):
            if isinstance(value, collections.defaultdict):
                yield ("factory", None), value.default_factory
            for key, each in value.items():
                yield ("key", None), key
                yield ("entry", key), each
        if is_plain_instance(kind) and not isinstance(value, enum.Enum):
            for name, each in attributes_of(value):
                yield ("attribute", name), each
            if is_own_class(kind, as_copied):
                yield ("class", None), kind


def _held_by_class(kind: type, as_copied: bool) -> Iterator[tuple[Step, Any]]:
    """What a class of the user's holds: its data, and what its methods close over, name and have for defaults."""
    for at, base in enumerate(kind.__mro__[1:]):
        if is_own_class(base, as_copied):
            yield ("base", at), base
    for name, each in class_data(kind, as_copied):
        yield ("attribute", name), each
    for name, each in vars(kind).items():
        if isinstance(each, (staticmethod, classmethod)):
            each = each.__func__
        if isinstance(each, property):
            for step, function in (("getter", each.fget), ("setter", each.fset)):
                if isinstance(function, types.FunctionType) and not is_library(function.__module__):
                    yield (step, name), function
        elif isinstance(each, types.FunctionType) and not is_library(each.__module__):
            yield ("method", name), each


def class_data(kind: type, as_copied: bool = False) -> Iterator[tuple[str, Any]]:
    """The attributes of a class that are neither code nor Python's own business."""
    for name, each in vars(kind).items():
        ours = name.startswith("__") or name in ("_abc_impl", "_is_protocol", "_fields", "_field_defaults")
        if not ours and not hasattr(type(each), "__get__") and _is_held(each, as_copied):
            yield name, each


def _is_held(value: Any, as_copied: bool) -> bool:
    """Not a module or a library's class: they are the same for all, and nothing of them is the program's own."""
    if isinstance(value, type):
        return is_own_class(value, as_copied)
    return not isinstance(value, types.ModuleType) and not getattr(type(value), "is_managed_state", False)


def is_own_class(kind: type, as_copied: bool = False) -> bool:
    """Whether a class is a copy that came with the program: what is kept in it is the program's own."""
    if is_library(kind.__module__) or isinstance(kind, enum.EnumMeta) or not kind.__flags__ & _HEAP_TYPE:
        return False
    if as_copied:
        return True
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not kind


def reached(target: Any, as_copied: bool) -> dict[int, Any]:
    """All that an object holds and leads to, by identity; for functions of the user's, their globals too."""
    found: dict[int, Any] = {}
    waiting = [target]
    while waiting:
        value = waiting.pop()
        if is_atom(value) or id(value) in found:
            continue
        found[id(value)] = value
        if as_copied and isinstance(value, types.FunctionType) and not is_library(value.__module__):
            found[id(value.__globals__)] = value.__globals__
        waiting.extend(child for _, child in children(value, as_copied))
    return found


def changes_in_globals(target: Any) -> bool:
    """Whether something that can change is held by the globals which the user's code names, or by its classes."""
    fixed = (*LASTING, tuple, frozenset, enum.Enum)
    own, found = reached(target, as_copied=False), reached(target, as_copied=True)
    functions = [value for value in found.values() if isinstance(value, types.FunctionType)]
    spaces = {id(value.__globals__) for value in functions}
    if any(_STORE_GLOBAL in value.__code__.co_code[::2] for value in functions):
        return True
    others = (value for identity, value in found.items() if identity not in own and identity not in spaces)
    return any(not isinstance(value, fixed) for value in others)


_STORE_GLOBAL = dis.opmap["STORE_GLOBAL"]


def path_to(target: Any, identity: int) -> Path:
    """The shortest way from an object to another that it leads to."""
    seen = {id(target)}
    waiting: list[tuple[Path, Any]] = [((), target)]
    for path, value in waiting:
        if id(value) == identity:
            return path
        for step, child in children(value):
            if not is_atom(child) and id(child) not in seen:
                seen.add(id(child))
                waiting.append(((*path, step), child))
    raise LookupError("there is no way to the object")


def at_path(target: Any, path: Path) -> Any:
    """What a way leads to."""
    for wanted in path:
        target = next(child for step, child in children(target) if step == wanted)
    return target


def code_of(target: Any, in_globals: bool = False) -> tuple[dict[str, type], list[types.FunctionType]]:
    """The classes that an object's parts have and that its code names, by module and name; the user's functions.

    With `in_globals` also those of what the code's globals and classes hold.
    """
    found: dict[str, type] = {}
    functions: list[types.FunctionType] = []
    seen: set[int] = set()
    keeps: list[Any] = []
    waiting: list[Any] = [target]
    while waiting:
        value = waiting.pop()
        if is_atom(value) or id(value) in seen:
            continue
        seen.add(id(value))
        keeps.append(value)
        if isinstance(value, type):
            if not value.__flags__ & _HEAP_TYPE:
                continue
            found.setdefault(f"{value.__module__}.{value.__qualname__}", value)
            if is_library(value.__module__):
                continue
            waiting.extend(value.__mro__[1:])
            waiting.extend(each for each in vars(value).values() if isinstance(each, _CODE))
            if in_globals:
                waiting.extend(each for _, each in class_data(value, as_copied=True))
            continue
        waiting.append(type(value))
        function = _function_of(value)
        if function is not None:
            functions.append(function)
            waiting.extend(_named_in(function))
        waiting.extend(child for _, child in children(value, as_copied=in_globals))
    return found, functions


_CODE = (types.FunctionType, classmethod, staticmethod, property, type)


def _function_of(value: Any) -> types.FunctionType | None:
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, types.MethodType):
        value = value.__func__
    return value if isinstance(value, types.FunctionType) and not is_library(value.__module__) else None


def names_in(function: types.FunctionType) -> set[str]:
    """The names of globals and attributes in the code of a function, inner functions included."""
    names: set[str] = set()
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        waiting.extend(each for each in code.co_consts if isinstance(each, types.CodeType))
    return names


def has_own_globals(function: types.FunctionType) -> bool:
    """Whether a function is a copy that brought its globals along: they are not those of a module."""
    module = sys.modules.get(function.__module__ or "")
    return module is None or vars(module) is not function.__globals__


def modules_of(classes: Iterable[type], functions: Iterable[types.FunctionType]) -> set[str]:
    """The user's own modules among those that define these."""
    return {each.__module__ for each in (*classes, *functions) if not is_library(each.__module__)}


def _named_in(function: types.FunctionType) -> Iterator[Any]:
    """The classes, and functions of the user's, that the code of a function names."""
    names = names_in(function)
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            yield from (each for each in (vars(value).get(inner) for inner in names) if isinstance(each, type))
        elif isinstance(value, (type, types.FunctionType)):
            yield value


def is_library(module: str | None) -> bool:
    """Whether a module came with Python or was installed: not the user's own."""
    # The simulator's random programs are written as a user would.
    if module is not None and (module == "__main__" or module.startswith("anabranch.sim.")):
        return False
    if module is None or module.split(".")[0] in _LIBRARIES:
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


_LIBRARIES = frozenset({*sys.stdlib_module_names} | {"builtins", "numpy", "pyarrow", "pandas", "pyspark", "anabranch"})


def shown_path(path: Path) -> str:
    """A way through an object, as Python would write it."""
    text = "self"
    for kind, name in path:
        if kind == "attribute":
            text += f".{name}"
        elif kind in ("item", "entry"):
            text += f"[{name!r}]"
        elif kind == "closure":
            text += f" (closed over as {name})"
    return text
