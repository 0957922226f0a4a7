"""What objects hold, and what of it has an identity: the ways through an object of the user's."""

from __future__ import annotations

import collections
import datetime
import decimal
import dis
import enum
import fractions
import functools
import gc
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
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
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
    staticmethod,
    classmethod,
    functools.cached_property,
    functools.partialmethod,
    functools.singledispatchmethod,
)


def is_atom(value: Any) -> bool:
    kind = type(value)
    return kind in _ATOMS or (isinstance(value, np.generic) and not value.dtype.hasobject and value.dtype.names is None)


def is_lasting_object(value: Any) -> bool:
    """Whether nothing in an object changes but what `children` finds in it; a subclass of the user's may hold more."""
    return isinstance(value, type) or (isinstance(value, LASTING) and is_library(type(value).__module__))


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
    """Its attributes; no code of its class runs to find them."""
    yield from attribute_dict(value).items()
    for base in type(value).__mro__:
        for name in _declared_names(base):
            member = vars(base).get(name)
            if isinstance(member, types.MemberDescriptorType):
                try:
                    yield name, member.__get__(value)
                except AttributeError:
                    continue  # nothing was ever put there


def attribute_dict(value: Any) -> dict[str, Any]:
    """The dict that holds an object's attributes: the object's own, not a copy; empty if it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def _declared_names(kind: type) -> list[str]:
    names = vars(kind).get("__slots__", ())
    names = [names] if isinstance(names, str) else list(names)
    plain = [name for name in names if name not in ("__dict__", "__weakref__")]
    return [
        f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in plain
    ]


def built_in_base(kind: type) -> Any:
    """The first class below a user's that is not written in Python."""
    return next(base for base in kind.__mro__ if not base.__flags__ & HEAP_TYPE)


HEAP_TYPE = 1 << 9


def is_plain_instance(kind: type) -> bool:
    """Whether an object of a class is its attributes, and what a list, dict or set holds if it is one, and no more."""
    below = [base for base in kind.__mro__ if not base.__flags__ & HEAP_TYPE]
    special = any(
        name in vars(base)
        for base in kind.__mro__
        if base.__flags__ & HEAP_TYPE
        and base.__module__ not in ("typing", "abc", "collections.abc")
        and base is not collections.Counter  # a dict with more methods: what it says of pickling leaves nothing out
        for name in ("__reduce__", "__reduce_ex__")
    )
    is_python = not any(base.__flags__ & HEAP_TYPE and _is_written_in_c(base) for base in kind.__mro__)
    return bool(kind.__flags__ & HEAP_TYPE) and is_python and set(below) <= {object, list, dict, set} and not special


def _is_written_in_c(kind: type) -> bool:
    """Whether a class that was made while Python ran has parts that no attribute shows: a lock, a hash being made."""
    return bool(kind.__flags__ & _NOT_FOR_ALL) or isinstance(vars(kind).get("__new__"), types.BuiltinFunctionType)


_NOT_FOR_ALL = 1 << 7 | 1 << 8  # its objects cannot be made by calling it; it cannot be changed


def is_kept_whole(kind: type, classes: Iterable[type]) -> bool:
    """Whether objects of a class can be kept as data: its attributes are all it is, and the program brings it along."""
    if kind is types.SimpleNamespace:
        return True
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return (named or isinstance(kind, enum.EnumMeta) or is_plain_instance(kind)) and kind in classes


def children(value: Any, as_copied: bool = False) -> Iterator[tuple[Step, Any]]:
    """What an object holds, with the step that leads there. No code of the user's runs on the way.

    Globals and classes are held where they are a copy's own; with `as_copied` as if they were.
    """
    kind = type(value)
    if isinstance(value, types.FunctionType):
        yield from _held_by_function(value, as_copied)
    elif kind is types.CellType:
        if is_filled(value):
            yield ("item", 0), value.cell_contents
    elif kind is types.MethodType:
        yield ("self", None), value.__self__
        yield ("function", None), value.__func__
    elif kind in (types.BuiltinMethodType, types.MethodWrapperType):
        if value.__self__ is not None and not isinstance(value.__self__, (types.ModuleType, type)):
            yield ("self", None), value.__self__
    elif kind is functools.partial:
        for at, each in enumerate((value.func, value.args, value.keywords)):
            yield ("partial", at), each
        yield from ((("attribute", name), each) for name, each in vars(value).items())
    elif kind is functools._lru_cache_wrapper:
        yield ("wrapped", None), below_cache(value)
    elif kind in _DESCRIPTORS:
        for name in _DESCRIPTORS[kind]:
            yield ("part", name), getattr(value, name)
    elif kind in _REFERRING:
        for at, each in enumerate(gc.get_referents(value)):
            yield ("part", at), each
    elif isinstance(value, type):
        if is_own_class(value, as_copied):
            yield from _held_by_class(value, as_copied)
    elif isinstance(value, types.ModuleType):
        return
    elif kind is types.SimpleNamespace:
        yield from ((("attribute", name), each) for name, each in vars(value).items())
    else:
        yield from held_by_container(value)
        if is_plain_instance(kind) and not isinstance(value, enum.Enum):
            for name, each in attributes_of(value):
                yield ("attribute", name), each
            if is_own_class(kind, as_copied):
                yield ("class", None), kind
            if kind.__module__.startswith("anabranch.") and hasattr(kind, "users_code"):
                yield from ((("called", what), each) for what, each in value.users_code())


def below_cache(cached: Any) -> Any:
    """The user's function under a cache of the library."""
    return getattr(cached.__wrapped__, "function_as_written", cached.__wrapped__)


# Of the library's descriptors, what they hold; and small objects that hold what only the interpreter can tell.
_DESCRIPTORS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.singledispatchmethod: ("dispatcher", "func"),
}
#: What shows a dict as it is now, and the method of the dict that makes it; None: its class does.
DICT_VIEWS: dict[type, str | None] = {
    types.MappingProxyType: None,
    **{
        type(getattr(empty, name)()): name
        for empty in (dict[Any, Any](), collections.OrderedDict[Any, Any]())
        for name in ("keys", "values", "items")
    },
}
_REFERRING = (operator.methodcaller, slice, *DICT_VIEWS)


def dict_behind(view: Any) -> Any:
    """What a view of a dict shows: the object itself."""
    (held,) = gc.get_referents(view)
    return held


def view_of_dict(held: Any, method: str | None) -> Any:
    """A view of a dict, made by Python's own method, not by that of a subclass."""
    if method is None:
        return types.MappingProxyType(held)
    return getattr(collections.OrderedDict if isinstance(held, collections.OrderedDict) else dict, method)(held)


def _held_by_function(function: types.FunctionType, as_copied: bool) -> Iterator[tuple[Step, Any]]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield ("closure", name), cell
    for at, each in enumerate(function.__defaults__ or ()):
        yield ("default", at), each
    for name, each in (function.__kwdefaults__ or {}).items():
        yield ("default", name), each
    for name, each in vars(function).items():
        yield ("attribute", name), each
    if has_own_globals(function) or (as_copied and not is_library(function.__module__)):
        for name in sorted(globals_in(function)):
            if name in function.__globals__ and _is_held(function.__globals__[name], as_copied):
                yield ("global", name), function.__globals__[name]


def held_by_container(value: Any) -> Iterator[tuple[Step, Any]]:
    """What is in it as a list, tuple, set or dict; by their own methods, not by those of a subclass."""
    base = next((base for base in (list, tuple, collections.deque) if isinstance(value, base)), None)
    if base is not None:
        for at, each in enumerate(base.__iter__(value)):
            yield ("item", at), each
    elif isinstance(value, (set, frozenset)):
        members: Any = set if isinstance(value, set) else frozenset
        for each in members.__iter__(value):
            yield ("key", None), each
    elif isinstance(value, dict):
        if isinstance(value, collections.defaultdict):
            yield ("factory", None), value.default_factory
        for key, each in entries_of(value):
            yield ("key", None), key
            yield ("entry", key), each


def entries_of(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The entries of a dict, by its own methods, not by those of a subclass."""
    base: Any = collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict
    return list(base.items(value))


def _held_by_class(kind: type, as_copied: bool) -> Iterator[tuple[Step, Any]]:
    """What a class of the user's holds: its data, its descriptors, its methods, its own class."""
    if is_own_class(type(kind), as_copied):
        yield ("metaclass", None), type(kind)
    for at, base in enumerate(kind.__mro__[1:]):
        if is_own_class(base, as_copied):
            yield ("base", at), base
    for name, each in class_data(kind, as_copied):
        yield ("attribute", name), each
    for name, each in class_code(kind):
        yield ("method", name), each


def class_code(kind: type) -> Iterator[tuple[str, Any]]:
    """The methods of a class, and what of the library stands for some: properties, static methods."""
    for name, each in vars(kind).items():
        if isinstance(each, types.FunctionType):
            if not is_library(each.__module__):
                yield name, each
        elif type(each) in _DESCRIPTORS and name not in _OF_PYTHON:
            yield name, each


def class_data(kind: type, as_copied: bool = False) -> Iterator[tuple[str, Any]]:
    """The attributes of a class that are neither code nor Python's own business."""
    for name, each in vars(kind).items():
        if name in _OF_PYTHON or (name.startswith("__dataclass_") and name.endswith("__")):
            continue
        if isinstance(kind, enum.EnumMeta) and name.startswith("_") and name.endswith("_"):
            continue  # its members, and combinations of flags as they are met
        code = _is_interpreters(each) or type(each) in _DESCRIPTORS
        if not code and _is_held(each, as_copied):
            yield name, each


def _is_interpreters(value: Any) -> bool:
    """A descriptor that the interpreter has made: of slots, of the fields of a named tuple, of methods in C."""
    kind = type(value)
    return not kind.__flags__ & HEAP_TYPE and hasattr(kind, "__get__") and kind is not functools._lru_cache_wrapper


# Names in a class that Python and its library put there.
_OF_PYTHON = frozenset(
    {
        "__module__",
        "__qualname__",
        "__name__",
        "__doc__",
        "__dict__",
        "__weakref__",
        "__slots__",
        "__annotations__",
        "__abstractmethods__",
        "__hash__",
        "__orig_bases__",
        "__parameters__",
        "__match_args__",
        "__static_attributes__",
        "__firstlineno__",
        "__type_params__",
        "__classcell__",
        "__protocol_attrs__",
        "__final__",
        "_abc_impl",
        "_is_protocol",
        "_is_runtime_protocol",
        "_fields",
        "_field_defaults",
    }
)


def _is_held(value: Any, as_copied: bool) -> bool:
    """Not a module or a library's class: they are the same for all, and nothing of them is the program's own."""
    if isinstance(value, type):
        return is_own_class(value, as_copied)
    return not isinstance(value, types.ModuleType) and not getattr(type(value), "is_managed_state", False)


def is_own_class(kind: type, as_copied: bool = False) -> bool:
    """Whether a class is a copy that came with the program: what is kept in it is the program's own."""
    if is_library(kind.__module__) or isinstance(kind, enum.EnumMeta) or not kind.__flags__ & HEAP_TYPE:
        return False
    if as_copied:
        return True
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        # Not by getattr: a class may have a class of its own, with a __getattr__.
        found = vars(found).get(name) if isinstance(found, (types.ModuleType, type)) else None
    return found is not kind


def names_in(function: types.FunctionType) -> set[str]:
    """The names of globals and attributes in the code of a function, inner functions included."""
    names: set[str] = set()
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        names.update(code.co_names)
        waiting.extend(each for each in code.co_consts if isinstance(each, types.CodeType))
    return names


def globals_in(function: types.FunctionType) -> frozenset[str]:
    """The names of globals in the code of a function, inner functions included: not those of attributes."""
    return _globals_in(function.__code__)


@functools.lru_cache(maxsize=4096)
def _globals_in(code: types.CodeType) -> frozenset[str]:
    own = {each.argval for each in dis.get_instructions(code) if each.opname in _OF_GLOBALS}
    return frozenset(own).union(*(_globals_in(each) for each in code.co_consts if isinstance(each, types.CodeType)))


def modules_named_in(function: types.FunctionType) -> list[types.ModuleType]:
    """The modules of the user's that a function names: as globals, by imports of its own, or within each other."""
    space = function.__globals__
    waiting = [space.get(name) for name in globals_in(function)]
    waiting += [cell.cell_contents for cell in function.__closure__ or () if is_filled(cell)]
    for level, name in _imported(function.__code__):
        package = space.get("__package__") or ""
        parents = package.rsplit(".", level - 1)[0] + "." if level else ""
        waiting.append(sys.modules.get((parents + name).rstrip(".")))
    names, found = names_in(function), dict[int, types.ModuleType]()
    while waiting:
        module = waiting.pop()
        if isinstance(module, types.ModuleType) and not is_library(module.__name__) and id(module) not in found:
            found[id(module)] = module
            waiting.extend(vars(module)[name] for name in names if name in vars(module))
    return list(found.values())


@functools.lru_cache(maxsize=4096)
def _imported(code: types.CodeType) -> frozenset[tuple[int, str]]:
    """What code imports: how many dots, and the name."""
    steps = list(dis.get_instructions(code))
    own = {
        (steps[at - 2].argval, each.argval)
        for at, each in enumerate(steps)
        if each.opname == "IMPORT_NAME" and at >= 2 and isinstance(steps[at - 2].argval, int)
    }
    return frozenset(own).union(*(_imported(each) for each in code.co_consts if isinstance(each, types.CodeType)))


_OF_GLOBALS = frozenset({"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME"})


def has_own_globals(function: types.FunctionType) -> bool:
    """Whether a function is a copy that brought its globals along: they are not those of a module."""
    module = sys.modules.get(function.__module__ or "")
    return module is None or vars(module) is not function.__globals__


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
    text, before = "self", ""
    for kind, name in path:
        if before == "closure":  # the next step is into the cell
            before = ""
            continue
        before = kind
        if kind in ("attribute", "method"):
            text += f".{name}"
        elif kind in ("item", "entry"):
            text += f"[{name!r}]"
        elif kind == "closure":
            text += f" (closed over as {name})"
        elif kind == "global":
            text = f"the global {name}"
        elif kind == "default":
            text += f" (its default {name})"
        elif kind == "class":
            text = f"type({text})"
        elif kind == "called":
            text = name
        elif kind == "metaclass":
            text += ".__class__"
    return text
