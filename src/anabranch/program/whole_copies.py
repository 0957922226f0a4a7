"""Copies of user code with all it needs: its globals and classes are its own, wherever it is read."""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import pickle
import sys
import types
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import cloudpickle

from anabranch.errors import StateError
from anabranch.program.context_variables import default_of, made_variable
from anabranch.program.kept_cache import kept_cache
from anabranch.program.not_a_number import NanNumbers, NumberedNans
from anabranch.program.noted_results import noting_cache
from anabranch.program.object_parts import (
    DICT_VIEWS,
    Path,
    attributes_of,
    below_cache,
    built_in_base,
    children,
    dict_behind,
    entries_of,
    held_by_container,
    is_atom,
    is_filled,
    is_library,
    is_plain_instance,
    shown_path,
    view_of_dict,
)
from anabranch.program.object_pieces import ISO_CALENDAR, iso_calendar_of, whole_of_view
from anabranch.program.object_reach import code_of, modules_of
from anabranch.program.set_tables import SetTable, fill, frozen, table_of


class NoCopyError(StateError):
    """No copy of an object can be made for workers; says of which part of it, and what to do."""


def pickled_whole(
    value: Any, target: Any, keeps_caches: bool = False, notes_results: bool = False
) -> tuple[bytes, bool]:
    """Pickled so that each copy has classes and globals of its own: what user code keeps there is its own, too.

    `target` is what of the value is the user's. Where a global cannot be pickled they all stay those of their modules:
    the second result says whether they came along. With `keeps_caches` the caches of functions can be kept, too; with
    `notes_results` the copies tell whether what they gave was changed.
    """
    classes, functions = code_of(target)
    names = modules_of(classes.values(), functions) - {"__main__"}
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    try:
        for each in modules:
            cloudpickle.register_pickle_by_value(each)
        found = _pickled(value, keeps_caches, notes_results)
        loaded(found)  # not all that can be written can be read
        return found, True
    except Exception:  # said below, if it is no matter of the globals
        pass
    finally:
        for each in modules:
            cloudpickle.unregister_pickle_by_value(each)
    try:
        found = _pickled(value, keeps_caches, notes_results)
        loaded(found)
        return found, not modules
    except StateError:
        raise
    except Exception as problem:
        raise NoCopyError(_told(target, problem)) from problem


def _told(target: Any, problem: Exception) -> str:
    """Which part of an object no copy can be made of, and what to do."""
    way, kind = _without_copy(target) or ((), None)
    if kind is None:
        return (
            f"no copy of it can be sent to workers ({type(problem).__name__}: {problem}). Keep plain values in its "
            "attributes, closures and globals, and make the rest from them where it is used."
        )
    what = f"{shown_path(way)} holds a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
    if "lock" in kind.__name__.lower():
        return (
            f"{what}, of which no copy can be sent to workers. Leave it out: calls of an operator never overlap. Those "
            "of an elastic one do: make it in open()."
        )
    return (
        f"{what}, of which no copy can be sent to workers. Keep what it is made from (a path, a URL, a position), and "
        "make it in the worker: in open() of an elastic operator, or in the call that uses it."
    )


def _without_copy(target: Any) -> tuple[Path, type] | None:
    """The shortest way to something that cannot be pickled by itself, and its type."""
    seen: set[int] = set()
    waiting: list[tuple[Path, Any]] = [((), target)]
    for way, value in waiting:  # grows as it is walked
        if is_atom(value) or id(value) in seen or isinstance(value, types.ModuleType):
            continue
        seen.add(id(value))
        held = list(children(value, as_copied=True))
        if not held and not isinstance(value, (type, types.FunctionType)):
            try:
                cloudpickle.dumps(value)
            except Exception:  # whatever it raises, that is the one
                return way, type(value)
        waiting.extend(((*way, step), child) for step, child in held)
    return None


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
        _Pickler(into, others={id(held): number for number, (held, _) in enumerate(others)}).dump_whole(value)
    finally:
        for each in modules:
            cloudpickle.unregister_pickle_by_value(each)
    return loaded(into.getvalue(), [other for _, other in others])


def loaded(data: bytes, others: Sequence[Any] = ()) -> Any:
    """A copy of what was pickled; `others` stand where `copied_with` puts them."""
    value, lying = _Unpickler(BytesIO(data), others).load()
    for each, members, table in lying:
        fill(each, members, table and SetTable(*table))
    return value


class _Pickler(cloudpickle.Pickler):
    """Gives every copy classes of its own, and keeps what pickle does not.

    Otherwise reading a class in the process that wrote it finds the original, and gives that the methods of the copy.
    Sets keep their order: those that do not lie as pickle would make them are noted while the value is written, and
    come behind it. Frozen sets, and NaNs, are made when they are met, once each.
    """

    def __init__(
        self,
        into: BytesIO,
        keeps_caches: bool = False,
        notes_results: bool = False,
        others: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(into)
        self._keeps_caches = keeps_caches
        self._notes_results = notes_results
        self._others = others or {}
        self._nans = NanNumbers()
        self._met: dict[int, tuple[int, Any]] = {}
        self._lying: list[tuple[Any, ...]] = []

    def dump_whole(self, value: Any) -> None:
        self.dump((value, self._lying))

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) is float:
            return None if obj == obj else ("nan", self._nans.number_of(obj))
        if id(obj) in self._others:
            return "other", self._others[id(obj)]
        if not isinstance(obj, (set, frozenset)):
            return None
        if id(obj) in self._met:
            return ("again", self._met[id(obj)][0]) if type(obj) is frozenset else None
        table = table_of(obj)
        if table is not None and type(obj) is frozenset:
            number, _ = self._met[id(obj)] = len(self._met), obj
            return "frozenset", number, list(obj), tuple(table)
        if isinstance(obj, set) and (table is not None or type(obj).__iter__ is not set.__iter__):
            self._met[id(obj)] = len(self._met), obj
            self._lying.append((obj, list(set.__iter__(obj)), table and tuple(table)))
        return None

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind is functools.cached_property:  # it holds a lock
            return _cached_property, (obj.func, obj.attrname)
        if kind is types.FunctionType and obj.__code__ is _DISPATCH:  # it holds a cache of weak references
            attributes = {name: each for name, each in vars(obj).items() if name not in _OF_DISPATCH}
            (name,) = [cell.cell_contents for cell in obj.__closure__ or () if isinstance(cell.cell_contents, str)]
            return _blank_dispatch, (name,), ([*obj.registry.items()], attributes), None, None, _fill_dispatch
        if kind is memoryview:  # cloudpickle would make bytes of it, and a tuple of a calendar date
            return _view_of, (whole_of_view(obj),)
        if (
            kind is collections.defaultdict
        ):  # its factory may be a method of its own: `ids.default_factory = ids.__len__`
            return kind, (), obj.default_factory, None, iter(entries_of(obj)), _set_factory
        if kind in DICT_VIEWS:  # cloudpickle would make another dict for it
            return view_of_dict, (dict_behind(obj), DICT_VIEWS[kind])
        if kind is contextvars.ContextVar:  # made anew: its value is a matter of the thread
            return made_variable, (obj.name, default_of(obj))
        if kind is ISO_CALENDAR:
            return iso_calendar_of, (tuple(obj),)
        if kind is functools._lru_cache_wrapper and self._keeps_caches:
            return kept_cache(obj)
        if kind is functools._lru_cache_wrapper and not is_library(obj.__module__):  # by its name nobody may find it
            parameters = obj.cache_parameters()
            made = noting_cache if self._notes_results else _cached
            return made, (below_cache(obj), parameters["maxsize"], parameters["typed"])
        if _is_copied_plainly(kind):
            state = dict(attributes_of(obj)), [child for _, child in held_by_container(obj)]
            return _blank, (kind,), state, None, None, _fill_blank
        if kind is types.CellType and is_filled(obj):
            return types.CellType, (), [obj.cell_contents], None, None, _fill_cell
        if kind is types.FunctionType and obj.__module__ is None:  # made by exec, as ours are for aggregates
            reduced = self._dynamic_function_reduce(obj)  # cloudpickle would look for it in every module, first
        else:
            reduced = super().reducer_override(obj)
        if kind is types.FunctionType and obj.__closure__ and isinstance(reduced, tuple):
            make, (*described, _cells), *others = reduced  # cloudpickle gives each function cells of its own
            return (make, (*described, obj.__closure__), *others)
        if isinstance(obj, type) and isinstance(reduced, tuple) and len(reduced) == 6:
            make, arguments, *others = reduced
            *described, _tracked, extra = arguments
            if isinstance(described[-1], dict):  # a class within a function would lose the longer half of its name
                described[-1] = {**described[-1], "__qualname__": obj.__qualname__}
            if not isinstance(obj, enum.EnumMeta):
                return (_made_quietly, (make, *described, None, extra), *others)
            return (make, (*described, None, extra), *others)
        return reduced


def _made_quietly(make: Any, metaclass: Any, name: str, bases: tuple[Any, ...], *others: Any) -> Any:
    """A class, without calling `__init_subclass__` of its bases: what that did when the class was made comes along."""
    owners = {
        owner: vars(owner)["__init_subclass__"]
        for base in types.resolve_bases(bases)
        for owner in base.__mro__
        if "__init_subclass__" in vars(owner) and not is_library(owner.__module__)
    }
    for owner in owners:
        type.__setattr__(owner, "__init_subclass__", classmethod(_do_nothing))
    try:
        return make(metaclass, name, bases, *others)
    finally:
        for owner, hook in owners.items():
            type.__setattr__(owner, "__init_subclass__", hook)


def _do_nothing(_: type, **__: Any) -> None:
    """Stands in for a hook."""


def _set_factory(made: collections.defaultdict[Any, Any], factory: Any) -> None:
    made.default_factory = factory


def _fill_cell(cell: types.CellType, held: list[Any]) -> None:
    (cell.cell_contents,) = held


def _cached(function: Any, maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


_DISPATCH = functools.singledispatch(abs).__code__  # type: ignore[attr-defined]
_OF_DISPATCH = ("register", "dispatch", "registry", "_clear_cache")


def _blank_dispatch(name: str) -> Any:
    """It remembers the name of its first implementation, for its errors."""
    code = _without_implementation.__code__
    return functools.singledispatch(types.FunctionType(code, {}, name))


def _without_implementation(_: Any) -> None:
    """Stands in a function that goes by the class of its argument until it has its implementations."""


def _fill_dispatch(made: Any, state: tuple[list[tuple[type, Any]], dict[str, Any]]) -> None:
    implementations, attributes = state
    for kind, each in implementations:
        made.register(kind, each)
    vars(made).update(attributes)
    functools.update_wrapper(made, implementations[0][1], updated=())


def _view_of(whole: bytes | bytearray) -> memoryview:
    return memoryview(whole)


def _cached_property(function: Any, name: str | None) -> Any:
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made


class _Unpickler(pickle.Unpickler):
    def __init__(self, source: BytesIO, others: Sequence[Any]) -> None:
        super().__init__(source)
        self._others = others
        self._nans = NumberedNans()
        self._made: dict[int, Any] = {}

    def persistent_load(self, known: tuple[Any, ...]) -> Any:
        kind, number, *held = known
        if kind == "nan":
            return self._nans.nan(number)
        if kind == "other":
            return self._others[number]
        if kind == "frozenset":
            members, table = held
            self._made[number] = frozen(members, SetTable(*table))
        return self._made[number]


def _pickled(value: Any, keeps_caches: bool, notes_results: bool) -> bytes:
    into = BytesIO()
    _Pickler(into, keeps_caches, notes_results).dump_whole(value)
    return into.getvalue()


def _is_copied_plainly(kind: type) -> bool:
    """Whether objects of a class of the user's are their attributes and contents, and it says nothing of copies.

    They are copied without running any of its code: reading an attribute may be what it counts.
    """
    if is_library(kind.__module__) or not is_plain_instance(kind) or issubclass(kind, (enum.Enum, type)):
        return False
    return not any(name in vars(base) for base in kind.__mro__[:-1] for name in _OF_COPIES)


_OF_COPIES = ("__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


def _blank(kind: Any) -> Any:
    return built_in_base(kind).__new__(kind)


def _fill_blank(made: Any, state: tuple[dict[str, Any], list[Any]]) -> None:
    attributes, held = state
    for name, each in attributes.items():
        object.__setattr__(made, name, each)
    if isinstance(made, list):
        list.extend(made, held)
    elif isinstance(made, set):
        set.update(made, held)
    elif isinstance(made, dict):
        if isinstance(made, collections.defaultdict):
            made.default_factory = held.pop(0)
        base: Any = collections.OrderedDict if isinstance(made, collections.OrderedDict) else dict
        for key, each in zip(held[::2], held[1::2], strict=True):
            base.__setitem__(made, key, each)
