"""Copies of user code with all it needs: its globals and classes are its own, wherever it is read."""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import cloudpickle

from anabranch.errors import StateError
from anabranch.program.object_parts import code_of, modules_of


def pickled_whole(value: Any, target: Any) -> tuple[bytes, bool]:
    """Pickled so that each copy has classes and globals of its own: what user code keeps there is its own, too.

    `target` is what of the value is the user's. Where a global cannot be pickled they all stay those of their modules:
    the second result says whether they came along.
    """
    classes, functions = code_of(target)
    names = modules_of(classes.values(), functions) - {"__main__"}
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    try:
        for each in modules:
            cloudpickle.register_pickle_by_value(each)
        found = _pickled(value)
        cloudpickle.loads(found)  # not all that can be written can be read
        return found, True
    except Exception:  # said below, if it is no matter of the globals
        pass
    finally:
        for each in modules:
            cloudpickle.unregister_pickle_by_value(each)
    try:
        found = _pickled(value)
        cloudpickle.loads(found)
        return found, not modules
    except Exception as problem:
        raise StateError(f"it cannot be sent to workers: {type(problem).__name__}: {problem}") from problem


def copied_with(value: Any, target: Any, others: Sequence[tuple[Any, Any]]) -> Any:
    """A copy of its own in which some objects are others: (the object, what stands in its place).

    Wherever the object is reached, the other one is. Whatever cannot be copied raises what pickle raises.
    """
    classes, functions = code_of(target)
    names = modules_of(classes.values(), functions) - {"__main__"}
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    into = BytesIO()
    try:
        for each in modules:
            cloudpickle.register_pickle_by_value(each)
        _ReplacingPickler(into, {id(held): number for number, (held, _) in enumerate(others)}).dump(value)
    finally:
        for each in modules:
            cloudpickle.unregister_pickle_by_value(each)
    into.seek(0)
    return _ReplacingUnpickler(into, [other for _, other in others]).load()


class _Pickler(cloudpickle.Pickler):
    """Gives every copy classes of its own.

    Otherwise reading a class in the process that wrote it finds the original, and gives that the methods of the copy.
    """

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is functools.cached_property:  # it holds a lock
            return _cached_property, (obj.func, obj.attrname)
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
            make, arguments, *others = reduced
            *described, _tracked, extra = arguments
            return (make, (*described, None, extra), *others)
        return reduced


def _cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made


class _ReplacingPickler(_Pickler):
    def __init__(self, into: BytesIO, numbers: Mapping[int, int]) -> None:
        super().__init__(into)
        self._numbers = numbers

    def persistent_id(self, obj: Any) -> int | None:
        return self._numbers.get(id(obj))


class _ReplacingUnpickler(pickle.Unpickler):
    def __init__(self, source: BytesIO, others: Sequence[Any]) -> None:
        super().__init__(source)
        self._others = others

    def persistent_load(self, number: int) -> Any:
        return self._others[number]


def _pickled(value: Any) -> bytes:
    into = BytesIO()
    _Pickler(into).dump(value)
    return into.getvalue()
