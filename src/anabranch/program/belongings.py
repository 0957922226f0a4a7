"""What user code keeps, wherever it keeps it: taken down, and put back.

A sequential run is plain Python over the user's own objects: a copy would not do, because functions are not copied and
go on changing the original. But it must leave nothing behind, and two runs must not see each other. So whoever runs
user code takes down the contents of everything that the code can reach, and puts them back afterwards:

    mine = Belongings(roots)           what all objects hold before
    …                                  user code runs, and changes them
    mine.put_back()                    every object holds again what it held, in place

Reached are attributes, containers, closures, default values, the globals that the code of the user's functions names,
and the attributes of the user's classes.
"""

from __future__ import annotations

import array
import collections
import functools
import types
from collections.abc import Callable, Iterable
from io import StringIO
from random import Random
from typing import Any

import numpy as np

from anabranch.program.object_parts import attributes_of, children, is_atom, is_filled, is_library, names_in

_MISSING = object()


class Belongings:
    """The contents of all that can change behind some objects."""

    def __init__(self, roots: Iterable[Any]) -> None:
        self._undo: list[Callable[[], None]] = []
        self._keeps: list[Any] = []  # an object that is gone would give its identity to another
        seen: set[int] = set()
        waiting = list(roots)
        while waiting:
            value = waiting.pop()
            if is_atom(value) or id(value) in seen or isinstance(value, types.ModuleType):
                continue
            seen.add(id(value))
            self._keeps.append(value)
            if isinstance(value, type):
                if not is_library(value.__module__):
                    waiting.extend(self._class(value))
                continue
            waiting.append(type(value))
            function = value.__func__ if isinstance(value, (types.MethodType, classmethod, staticmethod)) else value
            function = function.fget if isinstance(function, property) else function
            if isinstance(function, types.FunctionType) and not is_library(function.__module__):
                waiting.append(function)
                if function is value:
                    waiting.extend(self._globals(function))
            undo = self._contents(value)
            if undo is not None:
                self._undo.append(undo)
            waiting.extend(child for _, child in children(value))

    def put_back(self) -> None:
        """Give every object the contents it had."""
        for undo in self._undo:
            undo()

    def _contents(self, value: Any) -> Callable[[], None] | None:
        """What puts an object's present contents back."""
        return _undo_of(value)

    def _class(self, kind: type) -> list[Any]:
        data = {name: value for name, value in vars(kind).items() if is_class_data(name, value)}

        def undo() -> None:
            for name in [name for name, value in vars(kind).items() if is_class_data(name, value) and name not in data]:
                delattr(kind, name)
            for name, value in data.items():
                if vars(kind).get(name, _MISSING) is not value:
                    setattr(kind, name, value)

        self._undo.append(undo)
        code = [each for each in vars(kind).values() if isinstance(each, _CODE)]
        hooks = [each for each in vars(kind).values() if not is_library(type(each).__module__)]  # descriptors, too
        return [*data.values(), *code, *hooks, type(kind), *kind.__mro__[1:]]

    def _globals(self, function: types.FunctionType) -> list[Any]:
        space, names = function.__globals__, names_in(function)
        held = {name: space.get(name, _MISSING) for name in names}

        def undo() -> None:
            for name, value in held.items():
                if space.get(name, _MISSING) is not value:
                    if value is _MISSING:
                        del space[name]
                    else:
                        space[name] = value

        self._undo.append(undo)
        found = [value for value in held.values() if value is not _MISSING]
        modules = [value for value in found if isinstance(value, types.ModuleType) and not is_library(value.__name__)]
        return [*found, *(vars(module)[name] for module in modules for name in names if name in vars(module))]


_CODE = (types.FunctionType, classmethod, staticmethod, property)


def is_class_data(name: str, value: Any) -> bool:
    """Whether an attribute of a class is data, not code."""
    special = name.startswith("__") and name.endswith("__")
    return not special and not isinstance(value, _CODE) and not hasattr(value, "__get__")


def contents_of(value: Any) -> Any:
    """What a container or the like holds now; None for anything else."""
    return next((take(value) for kind, take, _ in _CONTENTS if isinstance(value, kind)), None)


def _undo_of(value: Any) -> Callable[[], None] | None:
    """What puts an object's present contents back; None for one that cannot change, or cannot be put back."""
    undoes: list[Callable[[], None]] = []
    for kind, take, give in _CONTENTS:
        if isinstance(value, kind):
            undoes.append(functools.partial(give, value, take(value)))
            break
    own = not isinstance(value, types.FunctionType) and not is_library(type(value).__module__)
    if own and not isinstance(value, type):
        undoes.append(functools.partial(_give_attributes, value, type(value), list(attributes_of(value))))
    return functools.partial(_all_of, undoes) if undoes else None


def _all_of(undoes: list[Callable[[], None]]) -> None:
    for undo in undoes:
        undo()


def _give_attributes(value: Any, kind: type, attributes: list[tuple[str, Any]]) -> None:
    if type(value) is not kind:
        object.__setattr__(value, "__class__", kind)
    for name, _ in list(attributes_of(value)):
        object.__delattr__(value, name)
    for name, each in attributes:
        object.__setattr__(value, name, each)


def _give_set(value: set[Any], members: set[Any]) -> None:
    set.clear(value)
    set.update(value, members)


def _give_queue(value: collections.deque[Any], items: list[Any]) -> None:
    value.clear()
    value.extend(items)


def _give_bits(value: np.random.Generator, bits: Any) -> None:
    value.bit_generator.state = bits


def _give_cells(value: np.ndarray, cells: np.ndarray) -> None:
    if value.flags.writeable:
        np.copyto(value, cells)


def _give_text(value: StringIO, text: tuple[str, int]) -> None:
    value.seek(0)
    value.truncate()
    value.write(text[0])
    value.seek(text[1])


def _fill(value: Any, entries: list[tuple[Any, Any]]) -> None:
    base: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    base.clear(value)
    for key, item in entries:
        base.__setitem__(value, key, item)


def _fill_cell(cell: types.CellType, held: Any) -> None:
    if held is not _MISSING:
        cell.cell_contents = held
    elif is_filled(cell):
        del cell.cell_contents


# Type, how its contents are taken down, how they are given back.
_CONTENTS: tuple[tuple[type, Callable[[Any], Any], Callable[[Any, Any], None]], ...] = (
    (list, list, lambda value, items: list.__setitem__(value, slice(None), items)),
    (dict, lambda value: list(value.items()), _fill),
    (set, set, _give_set),
    (collections.deque, list, _give_queue),
    (bytearray, bytes, lambda value, content: bytearray.__setitem__(value, slice(None), content)),
    (array.array, lambda value: value[:], lambda value, numbers: value.__setitem__(slice(None), numbers)),
    (np.ndarray, np.ndarray.copy, _give_cells),
    (Random, Random.getstate, lambda value, state: value.setstate(state)),
    (np.random.Generator, lambda value: value.bit_generator.state, _give_bits),
    (StringIO, lambda value: (value.getvalue(), value.tell()), _give_text),
    (types.CellType, lambda value: value.cell_contents if is_filled(value) else _MISSING, _fill_cell),
)
