"""Looking a function up in the tables, without ever running code of the user's."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any
from urllib import parse

import numpy as np

from anabranch.compiler.reading.known.array_functions import ARRAY_FUNCTIONS
from anabranch.compiler.reading.known.effects import Effect, only
from anabranch.compiler.reading.known.impurities import IMPURE, IMPURE_METHODS, IMPURE_MODULES
from anabranch.compiler.reading.known.library_classes import CLASS_METHODS, TYPES
from anabranch.compiler.reading.known.library_functions import FUNCTIONS
from anabranch.compiler.reading.values import PLAIN

_FUNCTIONS: dict[Any, Effect] = {**FUNCTIONS, **ARRAY_FUNCTIONS}
# Functions of the library that remember their results: of texts, which tell apart all that differs.
_CACHED: dict[Any, Effect] = {
    inspect.unwrap(parse.urlsplit): Effect(only(parse.SplitResult), text=False),
}
#: Kinds of callables whose hash and equality are Python's own: user code never runs in a lookup.
_PYTHON_OWN = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    type(np.mean),
    np.ufunc,
    type,
)


def impurity_of(function: Any) -> str | None:
    """What makes a library function's result depend on more than its arguments, if it is known for that."""
    if isinstance(function, _PYTHON_OWN) and function in IMPURE:
        return IMPURE[function]
    if any("__getattr__" in vars(base) for base in type(function).__mro__):  # asking it for a name runs its code
        return impurity_of_module(type(function).__module__)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type):
        for base in owner.__mro__:
            found = IMPURE_METHODS.get((base, getattr(function, "__name__", "")))
            if found is not None:
                return found
    module = getattr(function, "__module__", None) or type(owner).__module__
    if isinstance(function, type):
        module = function.__module__
    if not isinstance(module, str):
        return None
    return impurity_of_module(module)


@functools.lru_cache(maxsize=4096)
def impurity_of_module(module: str) -> str | None:
    """What the functions of a module do that a tuple's value does not decide."""
    for name, why in IMPURE_MODULES.items():
        if module == name or module == f"_{name}" or module.startswith(name + "."):
            return why
    return IMPURE_MODULES["os"] if module in ("posix", "nt") else None


def effect_of(function: Any) -> Effect | None:
    """What a library function or class does, if it is in the tables."""
    if type(function) in _PYTHON_OWN or isinstance(function, type):
        found = _FUNCTIONS.get(function)
        if found is None and isinstance(function, type):
            found = TYPES.get(function)
        if found is not None:
            return found
    if isinstance(function, functools._lru_cache_wrapper) and function.__wrapped__ in _CACHED:
        return _CACHED[function.__wrapped__]
    if function is str.maketrans:
        return Effect(only(dict), text=False)
    if isinstance(function, np.ufunc):
        return Effect(PLAIN, text=False)
    is_bound = isinstance(function, (types.BuiltinMethodType, types.MethodType))
    owner = function.__self__ if is_bound else None
    if isinstance(owner, type):
        for base in owner.__mro__:
            found = CLASS_METHODS.get((base, function.__name__))
            # A subclass may override what the class method calls.
            if found is not None and base is owner:
                return found
    return None
