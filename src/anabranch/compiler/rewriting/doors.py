"""Ways out of what an operator holds: code that reaches objects which nothing in it names.

An operator that cannot be followed is taken over whole: everything that its object, its classes and the globals its
code names lead to. What it reaches beside that would be another thing in every process, and forgotten between epochs.
So functions and names that lead to anything in the process are looked for in all its code; nothing here is ever called.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from anabranch.program.graph import Location
from anabranch.program.object_parts import globals_in, is_library, names_in
from anabranch.program.object_reach import code_of

_FUNCTIONS = (builtins.globals, builtins.eval, builtins.exec, builtins.__import__)
_MODULES: dict[str, frozenset[str] | None] = {  # of these modules only some names; None: all
    "sys": frozenset({"modules", "_getframe", "_current_frames"}),
    "importlib": None,
    "gc": frozenset({"get_objects", "get_referrers", "get_referents"}),
    "inspect": frozenset({"currentframe", "stack", "trace", "getouterframes"}),
    "ctypes": None,
}
_ATTRIBUTES = frozenset(
    {"__globals__", "f_globals", "f_locals", "f_back", "gi_frame", "tb_frame", "__subclasses__", "__builtins__"}
)


def door_of(target: Any) -> tuple[str, Location] | None:
    """What in the code of an operator leads out of it, and where; None if nothing does."""
    classes, functions = code_of(target, in_globals=True)
    for function in functions:
        found = _door_in(function, names_in(function))
        if found is not None:
            return found, Location(function.__code__.co_filename, function.__code__.co_firstlineno)
    for kind in classes.values():
        if not is_library(kind.__module__) and any(
            "__getattribute__" in vars(base) for base in kind.__mro__ if not is_library(base.__module__)
        ):
            made = vars(kind).get("__getattribute__") or kind.__getattribute__
            code = getattr(made, "__code__", None)
            where = Location(code.co_filename, code.co_firstlineno) if code else Location(kind.__module__, 0)
            return f"{kind.__qualname__}.__getattribute__ (it runs whenever somebody looks at the object)", where
    return None


def _door_in(function: types.FunctionType, names: set[str]) -> str | None:
    for name in globals_in(function):
        value = function.__globals__.get(name, getattr(builtins, name, None))
        if any(value is each for each in _FUNCTIONS):
            return f"{name}()"
        if isinstance(value, types.ModuleType) and value.__name__ in _MODULES:
            inner = _MODULES[value.__name__]
            used = sorted(names & inner) if inner is not None else ["…"]
            if used:
                return f"{name}.{used[0]}"
        elif isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) and value.__module__ in _MODULES:
            inner = _MODULES[value.__module__]
            if inner is None or value.__name__ in inner:
                return f"{name}()"
    return next((f".{name}" for name in sorted(names & _ATTRIBUTES)), None)
