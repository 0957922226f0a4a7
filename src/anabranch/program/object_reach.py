"""What an object of the user's leads to: ways, the classes and functions of its code, what may change behind it."""

from __future__ import annotations

import dis
import enum
import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from anabranch.program.object_parts import (
    HEAP_TYPE,
    Path,
    children,
    class_code,
    class_data,
    globals_in,
    is_atom,
    is_lasting_object,
    is_library,
    names_in,
)


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
    fixed = (tuple, frozenset, enum.Enum)
    own, found = reached(target, as_copied=False), reached(target, as_copied=True)
    functions = [value for value in found.values() if isinstance(value, types.FunctionType)]
    spaces = {id(value.__globals__) for value in functions}
    if any(_STORE_GLOBAL in value.__code__.co_code[::2] for value in functions):
        return True
    others = (value for identity, value in found.items() if identity not in own and identity not in spaces)
    return any(not isinstance(value, fixed) and not is_lasting_object(value) for value in others)


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
            if not value.__flags__ & HEAP_TYPE:
                continue
            found.setdefault(f"{value.__module__}.{value.__qualname__}", value)
            if is_library(value.__module__):
                continue
            waiting.extend(value.__mro__[1:])
            waiting.append(type(value))
            waiting.extend(each for _, each in class_code(value))
            waiting.extend(each for each in vars(value).values() if isinstance(each, type))
            held = (each for _, each in class_data(value, as_copied=True))
            waiting.extend(each for each in held if in_globals or _is_descriptor(each))
            continue
        waiting.append(type(value))
        function = _function_of(value)
        if function is not None:
            functions.append(function)
            waiting.extend(_named_in(function))
        waiting.extend(child for _, child in children(value, as_copied=in_globals))
    return found, functions


def _is_descriptor(value: Any) -> bool:
    return any(name in vars(base) for base in type(value).__mro__ for name in ("__get__", "__set__"))


def _function_of(value: Any) -> types.FunctionType | None:
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, types.MethodType):
        value = value.__func__
    return value if isinstance(value, types.FunctionType) and not is_library(value.__module__) else None


def modules_of(classes: Iterable[type], functions: Iterable[types.FunctionType]) -> set[str]:
    """The user's own modules among those that define these."""
    return {each.__module__ for each in (*classes, *functions) if not is_library(each.__module__)}


def _named_in(function: types.FunctionType) -> Iterator[Any]:
    """The classes, and functions of the user's, that the code of a function names."""
    names = names_in(function)
    for name in globals_in(function):
        value = function.__globals__.get(name)
        if isinstance(value, types.ModuleType):
            yield from (each for each in (vars(value).get(inner) for inner in names) if isinstance(each, type))
        elif isinstance(value, (type, types.FunctionType, functools._lru_cache_wrapper)):
            yield value
