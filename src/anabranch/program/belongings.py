"""What user code keeps, wherever it keeps it: taken down, and put back.

A sequential run is plain Python over the user's own objects: a copy would not do, because functions are not copied and
go on changing the original. But it must leave nothing behind, and two runs must not see each other. So whoever runs
user code takes down the contents of everything that the code can reach, and puts them back afterwards:

    mine = Belongings(roots)           what all objects hold before
    …                                  user code runs, and changes them
    mine.changed()                     what user code keeps, though nobody knows of it
    mine.put_back()                    every object holds again what it held, in place

Reached are attributes, containers, closures, default values, the globals that the code of the user's functions names,
and the attributes of the user's classes.
"""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import enum
import functools
import itertools
import operator
import types
from collections import ChainMap, UserDict, UserList
from collections.abc import Callable, Container, Iterable, Mapping
from io import StringIO
from random import Random
from typing import Any, NamedTuple

import numpy as np

from anabranch.program.object_parts import (
    LASTING,
    attributes_of,
    children,
    class_code,
    class_data,
    entries_of,
    globals_in,
    is_atom,
    is_filled,
    is_library,
    modules_named_in,
    names_in,
)
from anabranch.program.set_tables import SetTable, fill, table_of

_MISSING = object()


@dataclasses.dataclass(frozen=True)
class _Kept:
    """What an object held: how it is taken down, how it is given back."""

    name: str
    owner: int
    take: Callable[[], Any]
    give: Callable[[Any], None]
    held: Any


class Belongings:
    """The contents of all that can change behind some objects."""

    def __init__(self, roots: Iterable[Any], names: Iterable[str] = itertools.repeat("self")) -> None:
        self._kept: list[_Kept] = []
        self._keeps: list[Any] = []  # an object that is gone would give its identity to another
        self._noted: list[Any] = []  # caches of which the results are noted
        self._iterators: dict[int, Any] = {}  # where they stood: they cannot be set back, so a copy takes their place
        seen: set[int] = set()
        waiting = list(zip(names, roots, strict=False))
        while waiting:
            name, value = waiting.pop()
            if is_atom(value) or id(value) in seen or isinstance(value, types.ModuleType):
                continue
            seen.add(id(value))
            self._keeps.append(value)
            if isinstance(value, type):
                if not is_library(value.__module__):
                    waiting.extend(self._class(value))
                continue
            waiting.append((type(value).__name__, type(value)))
            function = value.__func__ if isinstance(value, types.MethodType) else value
            if isinstance(function, types.FunctionType) and not is_library(function.__module__):
                waiting.append((function.__name__, function))
                if function is value:
                    self._function(function)
                    waiting.extend(self._globals(function))
            self._contents(name, value)
            waiting.extend((_named(name, step), child) for step, child in children(value))

    def put_back(self) -> None:
        """Give every object the contents it had."""
        # One for each: what leads to one iterator leads to one afterwards.
        made = {identity: copy.copy(each) for identity, each in self._iterators.items()}
        for each in self._kept:
            each.give(_as_it_stood(each.held, made, True) if made else each.held)

    def changed(self, without: Container[int] = ()) -> str | None:
        """The name of an object that holds something else than it held; None: there is none.

        `without` are identities of objects that may.
        """
        return next((k.name for k in self._kept if k.owner not in without and not _is_same(k.take(), k.held)), None)

    def names(self) -> dict[int, str]:
        """What can change, by identity."""
        return {each.owner: each.name for each in self._kept}

    def changing(self) -> dict[int, str]:
        """The same, with what caches gave to all callers."""
        names = self.names()
        for noted in self._noted:
            names |= noted.names()
        return names

    def held_by(self, value: Any, names: Mapping[int, str]) -> str | None:
        """The name of the first object in a value that is one of these (`changing`); None: there is none."""
        if is_atom(value):
            return None
        seen: set[int] = set()
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if is_atom(each) or id(each) in seen or isinstance(each, (type, *LASTING, enum.Enum)):
                continue
            seen.add(id(each))
            if id(each) in names and not _is_frozen(each):
                return names[id(each)]
            if type(each) in (tuple, list, set, frozenset):  # most are, and what is in them says itself
                waiting.extend(each)
            else:
                waiting.extend(child for _, child in children(each))
        return None

    def _keep(self, name: str, value: Any, take: Callable[[], Any], give: Callable[[Any], None]) -> Any:
        held = take()
        self._kept.append(_Kept(name, id(value), take, give, held))
        return held

    def _contents(self, name: str, value: Any) -> None:
        for kind, take, give in _CONTENTS:
            if isinstance(value, kind):
                self._keep(name, value, functools.partial(take, value), functools.partial(give, value))
                break
        if isinstance(value, functools._lru_cache_wrapper):
            was_empty = not value.cache_info().currsize
            self._keep(name, value, lambda: was_empty, lambda empty: value.cache_clear() if empty else None)
            below: Any = value.__wrapped__
            if hasattr(below, "function_as_written"):
                self._noted.append(below)
                given = f"what the cache of {value.__qualname__} gives to all callers"
                self._keep(given, value, below.changed, lambda _: None)
        if isinstance(value, (functools.partial, types.SimpleNamespace, UserDict, UserList, ChainMap)):
            self._keep(name, value, lambda: dict(vars(value)), functools.partial(_give_names, vars(value)))
        if isinstance(value, functools.partial):
            self._keep(name, value, lambda: list(value.args), functools.partial(_give_arguments, value))
        if isinstance(value, collections.defaultdict):
            factory = functools.partial(_give_factory, value)
            self._keep(name, value, lambda: [value.default_factory], factory)
        if type(value) in _ITERATORS:
            self._iterators[id(value)] = copy.copy(value)
            self._keep(name, value, lambda: repr(value.__reduce__()), lambda _: None)
        own = not isinstance(value, types.FunctionType) and not is_library(type(value).__module__)
        if own:
            self._keep(name, value, lambda: list(attributes_of(value)), functools.partial(_give_attributes, value))
            self._keep(name, value, lambda: [type(value)], functools.partial(_give_class, value))

    def _function(self, function: types.FunctionType) -> None:
        def take_named() -> dict[str, Any] | None:
            return None if function.__kwdefaults__ is None else dict(function.__kwdefaults__)

        def give_defaults(held: list[Any]) -> None:
            function.__defaults__ = held[0]

        def give_named(held: Any) -> None:
            function.__kwdefaults__ = held

        name, space = function.__qualname__, vars(function)
        self._keep(name, function, lambda: [function.__defaults__], give_defaults)
        self._keep(name, function, take_named, give_named)
        self._keep(name, function, lambda: dict(space), functools.partial(_give_names, space))

    def _class(self, kind: type) -> list[tuple[str, Any]]:
        def take() -> dict[str, Any]:
            return {**dict(class_data(kind, as_copied=True)), **dict(class_code(kind))}

        def give(data: dict[str, Any]) -> None:
            for name in [name for name in take() if name not in data]:
                type.__delattr__(kind, name)
            for name, value in data.items():
                if vars(kind).get(name, _MISSING) is not value:
                    type.__setattr__(kind, name, value)

        data = self._keep(f"the class {kind.__qualname__}", kind, take, give)
        held = [(f"{kind.__qualname__}.{name}", value) for name, value in data.items()]
        return [*held, (type(kind).__name__, type(kind)), *((base.__name__, base) for base in kind.__mro__[1:])]

    def _globals(self, function: types.FunctionType) -> list[tuple[str, Any]]:
        held = self._names(
            f"a global that {function.__qualname__} names", function, function.__globals__, globals_in(function)
        )
        found = [(f"the global {name}", value) for name, value in held.items() if value is not _MISSING]
        used = names_in(function)
        for module in modules_named_in(function):
            named = self._names(f"the module {module.__name__}", module, vars(module), used & vars(module).keys())
            found += [(f"the global {name}", value) for name, value in named.items()]
        return found

    def _names(self, called: str, owner: Any, space: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """What names are bound to where they are looked up."""
        wanted = sorted(names)

        def take() -> dict[str, Any]:
            return {name: space.get(name, _MISSING) for name in wanted}

        def give(held: dict[str, Any]) -> None:
            for name, value in held.items():
                if space.get(name, _MISSING) is not value:
                    if value is _MISSING:
                        del space[name]
                    else:
                        space[name] = value

        found: dict[str, Any] = self._keep(called, owner, take, give)
        return found


def _is_frozen(value: Any) -> bool:
    """Whether an object of Python or of a dataclass says that it does not change."""
    declared = getattr(type(value), "__dataclass_params__", None)
    return isinstance(value, (tuple, frozenset)) or (declared is not None and declared.frozen)


def _as_it_stood(held: Any, made: dict[int, Any], is_ours: bool = False) -> Any:
    """Contents with the iterators in them where they stood.

    With `is_ours` it is the list or dict that contents were taken down in. Any other is an object by itself, which
    stays where it is.
    """
    if id(held) in made:
        return made[id(held)]
    if isinstance(held, types.MethodWrapperType) and id(held.__self__) in made:  # `numbers.__next__`
        return getattr(made[id(held.__self__)], held.__name__)
    if type(held) is tuple or (isinstance(held, tuple) and hasattr(held, "_fields")):
        found = tuple(_as_it_stood(each, made) for each in tuple.__iter__(held))
        if all(map(operator.is_, found, tuple.__iter__(held))):
            return held
        made[id(held)] = tuple.__new__(type(held), found)  # one, too, wherever it is
        return made[id(held)]
    if is_ours and type(held) is list:
        return [_as_it_stood(each, made) for each in held]
    if is_ours and type(held) is dict:
        return {name: _as_it_stood(each, made) for name, each in held.items()}
    return held


def _named(name: str, step: tuple[str, Any]) -> str:
    kind, what = step
    if kind == "attribute":
        return f"{name}.{what}"
    if kind == "closure":
        return f"{what}, which a function closes over"
    if kind == "global":
        return f"the global {what}"
    return f"{name}[{what!r}]" if kind == "entry" else name


def _is_same(now: Any, held: Any) -> bool:
    """Whether contents are what they were: the same objects, or equal values of types that cannot change."""
    if now is held:
        return True
    if type(now) is not type(held):
        return False
    if is_atom(now):
        return bool(now == held or now != now)
    if isinstance(now, np.ndarray):
        return now.shape == held.shape and now.dtype == held.dtype and now.tobytes() == held.tobytes()
    if isinstance(now, _HeldSet):
        return set(now.members) == set(held.members)
    if isinstance(now, (list, tuple)):
        return len(now) == len(held) and all(map(_is_same, now, held))
    if type(now) is dict:
        return now.keys() == held.keys() and all(_is_same(value, held[name]) for name, value in now.items())
    return isinstance(now, (frozenset, array.array)) and bool(now == held)


def _give_attributes(value: Any, attributes: list[tuple[str, Any]]) -> None:
    for name, _ in list(attributes_of(value)):
        object.__delattr__(value, name)
    for name, each in attributes:
        object.__setattr__(value, name, each)


def _give_names(space: dict[str, Any], held: dict[str, Any]) -> None:
    space.clear()
    space.update(held)


def _give_arguments(value: functools.partial[Any], arguments: list[Any]) -> None:
    if not all(map(operator.is_, value.args, arguments)):
        value.__setstate__((value.func, tuple(arguments), value.keywords, vars(value)))  # type: ignore[attr-defined]


def _give_factory(value: collections.defaultdict[Any, Any], factory: list[Any]) -> None:
    value.default_factory = factory[0]


def _give_class(value: Any, kinds: list[type]) -> None:
    if type(value) is not kinds[0]:
        object.__setattr__(value, "__class__", kinds[0])


class _HeldSet(NamedTuple):
    members: list[Any]
    table: SetTable | None


def _take_set(value: set[Any]) -> _HeldSet:
    return _HeldSet(list(set.__iter__(value)), table_of(value))


def _give_set(value: set[Any], held: _HeldSet) -> None:
    fill(value, held.members, held.table)


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


def _give_cell(cell: types.CellType, held: list[Any]) -> None:
    if held:
        cell.cell_contents = held[0]
    elif is_filled(cell):
        del cell.cell_contents


# Type, how its contents are taken down, how they are given back.
_CONTENTS: tuple[tuple[type, Callable[[Any], Any], Callable[[Any, Any], None]], ...] = (
    (list, lambda value: list(list.__iter__(value)), lambda value, items: list.__setitem__(value, slice(None), items)),
    (dict, entries_of, _fill),
    (set, _take_set, _give_set),
    (collections.deque, list, _give_queue),
    (bytearray, bytes, lambda value, content: bytearray.__setitem__(value, slice(None), content)),
    (array.array, lambda value: value[:], lambda value, numbers: value.__setitem__(slice(None), numbers)),
    (np.ndarray, np.ndarray.copy, _give_cells),
    (Random, Random.getstate, lambda value, state: value.setstate(state)),
    (np.random.Generator, lambda value: value.bit_generator.state, _give_bits),
    (StringIO, lambda value: (value.getvalue(), value.tell()), _give_text),
    (types.CellType, lambda value: [value.cell_contents] if is_filled(value) else [], _give_cell),
)
# Of these a copy goes on where the original stood.
_ITERATORS = (itertools.count, *(type(iter(each)) for each in ("", b"", range(0))), type(iter([])), type(iter(())))
