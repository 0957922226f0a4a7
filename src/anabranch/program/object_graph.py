"""An object of the user's with everything it holds, kept as data and put together again.

An operator that runs in one channel is taken over whole: its attributes, what they hold, who shares what with whom,
bound methods and closures included. Between epochs that is one value of its state:

    prototype (pickled with the program) ── fresh() ──► live object ── calls of user code ──► flatten() ──► parts
                                              ▲                                                        │
                                              └────────────── filled(parts): the same places, anew ◄──┘

`flatten` lists every object that has an identity, each once, and refers to it by its number, so that what was one
object stays one and circles are fine. An object that the prototype has, too, is an *anchor*: it is known by the way
that leads to it, and `filled` puts the contents into the fresh copy's object in that place. So functions, compiled
patterns or loggers need not be written at all, and a closure over `self` goes on seeing `self`. Everything else must
be data: containers, numbers, arrays, generators of random numbers, and instances of the operator's own classes. No
code is ever read from the parts: classes are looked up among those that the program brought along.

What cannot be kept is refused, if it can be by `check` before anything starts, with the way that leads to it.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from anabranch.errors import StateError
from anabranch.program.array_parts import refuse_overlaps, tie_arrays
from anabranch.program.array_types import is_kept_type, type_text
from anabranch.program.belongings import Belongings
from anabranch.program.elsewhere import Elsewhere, named_elsewhere
from anabranch.program.likeness import unlike
from anabranch.program.not_a_number import NanNumbers
from anabranch.program.object_filling import Codes, Filling, Reference
from anabranch.program.object_parts import (
    DICT_VIEWS,
    Path,
    attribute_dict,
    attributes_of,
    children,
    dict_behind,
    entries_of,
    is_atom,
    is_filled,
    is_lasting,
    is_lasting_object,
    is_plain_instance,
    shown_path,
)
from anabranch.program.object_pieces import FUNCTION_NAMES, LIBRARY_CLASSES, PIECES, code_name
from anabranch.program.object_reach import code_of
from anabranch.program.schema import Row
from anabranch.program.set_tables import table_of
from anabranch.program.whole_copies import loaded, pickled_whole


class Prototype:
    """What every live object begins as: pickled once, with the classes its objects may have.

    Parameters
    ----------
    target : object
        The user's object. It is not touched.
    """

    def __init__(self, target: Any) -> None:
        self.name = target.__name__ if isinstance(target, _NAMED) else type(target).__name__
        classes, functions = code_of(target, in_globals=True)
        elsewhere = named_elsewhere(functions)
        refuse_overlaps([each for each in Live(target, classes).objects() if isinstance(each, np.ndarray)])
        before = Belongings([target])
        self._pickled, self.has_own_globals = pickled_whole((target, classes, elsewhere), target, keeps_caches=True)
        before.put_back()  # pickling looks at attributes of classes, and a descriptor may count that
        way = unlike(target, self.fresh().target, self.has_own_globals)
        if way is not None:
            raise StateError(
                f"{shown_path(way)} is another thing in a copy of the operator than in the operator itself, so that it "
                "cannot be taken over whole. Keep what it remembers in plain attributes of self: not in a dict of "
                "attributes that objects share, nor behind hooks that run when a class or an object is made or copied."
            )

    def __repr__(self) -> str:
        return f"Prototype({self.name})"

    def fresh(self) -> Live:
        """A copy of its own."""
        target, classes, elsewhere = loaded(self._pickled)
        return Live(target, classes, elsewhere=Elsewhere(elsewhere) if elsewhere else None)

    def check(self) -> None:
        """StateError if something the object holds now could not be kept."""
        self.fresh().flatten()


class ObjectGraph:
    """The value of the state: a live object while an epoch runs, parts between epochs."""

    __slots__ = ("_live", "_parts")

    def __init__(self, parts: list[Any] | None = None) -> None:
        self._parts = parts
        self._live: Live | None = None

    def live(self, prototype: Prototype) -> Any:
        """The object, put together when it is first asked for."""
        if self._live is None:
            self._live = prototype.fresh()
            if self._parts is not None:
                self._live.fill(self._parts)
        return self._live.target

    @staticmethod
    def of_value(value: Any, classes: dict[str, type]) -> ObjectGraph:
        """One value of the user's, with all that it holds: it begins with nothing that a prototype has."""
        found = ObjectGraph()
        found._live = Live(value, classes, is_anchored=False)
        return found

    def value(self, classes: dict[str, type]) -> Any:
        """The value that `of_value` was given, of the classes that the program brought along."""
        if self._live is None:
            assert self._parts is not None, "nothing was ever asked of it"
            live = Live(None, classes, is_anchored=False)
            live.target = live.fill(self._parts)
            self._live = live
        return self._live.target

    def to_parts(self) -> list[Any]:
        """As plain data."""
        if self._live is not None:
            return self._live.flatten()
        assert self._parts is not None, "nothing was ever asked of it"
        return self._parts

    def view(self) -> Any:
        """As plain values, for people."""
        return _shown(self.to_parts())

    def __deepcopy__(self, memo: Any) -> ObjectGraph:
        return ObjectGraph(copy.deepcopy(self.to_parts(), memo))

    def __repr__(self) -> str:
        return repr(self.view())


class Live:
    """A copy of a prototype, with where its objects were at first; or a value that has no such beginning."""

    def __init__(
        self, target: Any, classes: dict[str, type], is_anchored: bool = True, elsewhere: Elsewhere | None = None
    ) -> None:
        self._elsewhere = elsewhere
        self.target = target
        self._classes = classes
        self._anchors: dict[int, Path] = {}
        self._by_path: dict[Path, Any] = {}
        if is_anchored:
            self._anchor(target)
        self._nans = NanNumbers()
        self._codes: Codes | None = None

    def _anchor(self, target: Any) -> None:
        waiting: list[tuple[Path, Any]] = [((), target)]
        while waiting:
            path, value = waiting.pop()
            if _is_without_identity(value) or id(value) in self._anchors:
                continue
            self._anchors[id(value)] = path
            self._by_path[path] = value  # also keeps it alive, so that its id stays its own
            waiting.extend(((*path, step), child) for step, child in children(value) if is_lasting(step))

    def objects(self) -> Iterable[Any]:
        """Those it began with that have a lasting place."""
        return self._by_path.values()

    # -- to data --------------------------------------------------------------------------------------------

    def flatten(self) -> list[Any]:
        """Everything the object holds now: [[way of the anchor or None, kind, contents], …], the object first."""
        numbers: dict[int, int] = {}
        keeps: list[Any] = []  # new objects that were made on the way must not give their id to others
        nodes: list[list[Any]] = []
        waiting: list[tuple[Path, Any, int]] = []

        def place(value: Any, path: Path) -> Any:
            if _is_without_identity(value):
                return value
            number = numbers.get(id(value))
            if number is None:
                number = numbers[id(value)] = len(nodes)
                keeps.append(value)
                nodes.append([])
                waiting.append((path, value, number))
            return Reference(number)

        lost = self._elsewhere.changed() if self._elsewhere is not None else None
        if lost is not None:
            raise StateError(
                f"{lost} was changed, which belongs to another module and is not kept from one epoch to the next; keep "
                "it in an attribute of self"
            )
        place(self.target, ())
        while waiting:
            path, value, number = waiting.pop()
            # What cannot be set back in its place is made anew, for all that hold it.
            anchor = None if _is_made_anew(value) else self._anchors.get(id(value))
            kind, contents = self._node(value, path, anchor, place)
            nodes[number] = [None if anchor is None else [list(step) for step in anchor], kind, contents]
        tie_arrays(nodes, keeps)
        _refuse_shared_attributes(keeps)
        return nodes

    def _node(self, value: Any, path: Path, anchor: Path | None, place: Callable[[Any, Path], Any]) -> tuple[str, Any]:
        def all_of(items: Any) -> list[Any]:
            return [place(item, (*path, ("item", at))) for at, item in enumerate(items)]

        def pairs(items: Any) -> list[Any]:
            return [
                [place(key, (*path, ("key", key))), place(item, (*path, ("entry", key)))]
                for key, item in entries_of(items)
            ]

        kind = type(value)
        if kind is float:
            return "nan", self._nans.number_of(value)
        if kind in _SEQUENCES:
            return _SEQUENCES[kind], all_of(value)
        if kind in (set, frozenset):
            table = table_of(value)
            return (kind.__name__, all_of(value)) if table is None else (_LYING[kind], [all_of(value), *table])
        if kind is dict or kind is collections.OrderedDict or kind is collections.Counter:
            return kind.__name__, pairs(value)
        if kind is collections.defaultdict:
            return "defaultdict", [place(value.default_factory, (*path, ("factory", None))), pairs(value)]
        if kind is collections.deque:
            return "deque", [value.maxlen, all_of(value)]
        if kind is memoryview and type(value.obj) is bytearray and value.format == "B" and len(value) == len(value.obj):
            return "view", place(value.obj, path)
        if kind in PIECES:
            return PIECES[kind][0], PIECES[kind][1](value)
        if kind is np.ndarray and is_kept_type(value.dtype):
            order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
            fixed = [] if value.flags.writeable else ["fixed"]
            return "ndarray", [type_text(value.dtype), list(value.shape), value.tobytes(order=order), order, *fixed]
        if isinstance(value, Row):
            return "row", [list(value._fields), all_of(tuple.__iter__(value))]
        if isinstance(value, enum.Enum):
            return "member", [self._class(kind, path), value.value if isinstance(value, enum.Flag) else value.name]
        if kind is types.CellType:
            return "cell", all_of([value.cell_contents]) if is_filled(value) else []
        if kind is types.MethodType and anchor is not None:
            return "same", [[*step, place(child, (*path, step))] for step, child in children(value)]
        if kind is types.MethodType and getattr(value.__self__, value.__name__, None) == value:
            return "method", [place(value.__self__, (*path, ("self", None))), value.__name__]
        if kind is functools.partial:
            held = [value.func, value.args, value.keywords]
            named = [[name, place(each, (*path, ("attribute", name)))] for name, each in vars(value).items()]
            return "partial", [*(place(each, (*path, ("partial", at))) for at, each in enumerate(held)), named]
        if anchor is not None and (is_lasting_object(value) or kind.__module__ == "logging"):
            # Names may have been bound anew: in the class, or among the globals of a function.
            return "same", [[*step, place(child, (*path, step))] for step, child in children(value)]
        if kind is types.FunctionType and self._code(value.__code__) is not None:
            held = [value.__closure__, value.__defaults__, value.__kwdefaults__]
            return "function", [
                self._code(value.__code__),
                *(place(each, (*path, ("function", at))) for at, each in enumerate(held)),
            ]
        if kind is types.BuiltinFunctionType and id(value) in FUNCTION_NAMES:
            return "built-in function", FUNCTION_NAMES[id(value)]
        if kind in DICT_VIEWS:
            return "view of a dict", [DICT_VIEWS[kind], place(dict_behind(value), path)]
        if kind in _BOUND and not isinstance(value.__self__, (types.ModuleType, type, types.NoneType)):
            return "method", [place(value.__self__, (*path, ("self", None))), value.__name__]
        if kind is object:  # it says nothing but that it is itself
            return "object", None
        if getattr(kind, "is_managed_state", False):
            return "managed", [self._class(kind, path), value.placed(lambda each: place(each, path))]
        if kind is types.SimpleNamespace:
            return "namespace", [
                [name, place(item, (*path, ("attribute", name)))] for name, item in vars(value).items()
            ]
        if isinstance(value, type):
            return "class", self._class(value, path)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return "named", [self._class(kind, path), all_of(tuple.__iter__(value)), list(kind._fields)]
        if is_plain_instance(kind):
            attributes = [[name, place(item, (*path, ("attribute", name)))] for name, item in attributes_of(value)]
            if dataclasses.is_dataclass(kind):
                there = {name for name, *_ in attributes}
                attributes += [[each.name] for each in dataclasses.fields(kind) if each.name not in there]
            inherited = next((base for base in (list, dict, set) if isinstance(value, base)), None)
            inner: Any = None
            if inherited is dict:
                inner = pairs(value)
            elif inherited is set:
                inner = [all_of(set.__iter__(value)), *(table_of(value) or ())]
            elif inherited is not None:
                inner = all_of(inherited.__iter__(value))
            held = [place(kind, (*path, ("class", None)))] if id(kind) in self._anchors else []
            return "instance", [self._class(kind, path), attributes, inner, *held]
        raise StateError(
            f"{shown_path(path)} holds a {kind.__module__}.{kind.__qualname__}, which cannot be kept from one epoch to "
            "the next. Keep its parts as plain values (numbers, texts, lists, dicts, objects of your own classes), "
            "and make it anew from them."
        )

    def _code(self, code: types.CodeType) -> str | None:
        """The name of code that the program brought along, inner functions included; None for any other."""
        name, codes = code_name(code), self._all_codes()
        return name if name in codes and codes[name][0] is code else None

    def _all_codes(self) -> Codes:
        if self._codes is None:
            self._codes = {}
            waiting = [(each.__code__, each) for each in self.objects() if isinstance(each, types.FunctionType)]
            while waiting:
                inner, function = waiting.pop()
                self._codes.setdefault(code_name(inner), (inner, function))
                waiting.extend((each, function) for each in inner.co_consts if isinstance(each, types.CodeType))
        return self._codes

    def _class(self, kind: type, path: Path) -> str:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if self._classes.get(name, LIBRARY_CLASSES.get(name)) is not kind:
            raise StateError(
                f"{shown_path(path)} is of the class {name}, which the operator's code does not name where it can be "
                "found again: use it by its own name in a method of the operator, or at the top of its module."
            )
        return name

    # -- from data ------------------------------------------------------------------------------------------

    def fill(self, nodes: list[Any]) -> Any:
        """Give the object what `flatten` found, in this copy's own objects where it has them; the first of them."""
        return Filling(nodes, self._classes, self._by_path, self._all_codes).first()


_NAMED = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type)


def _is_without_identity(value: Any) -> bool:
    """Nobody can tell two of them apart; a NaN is found in a list, or as a key, only if it is the same."""
    return is_atom(value) and not (type(value) is float and value != value)


_MADE_ANEW = (itertools.count, memoryview, types.MethodWrapperType, *DICT_VIEWS)


def _is_made_anew(value: Any) -> bool:
    """What cannot be set back in its place, and tuples of such: they hold for good what they were made of."""
    if isinstance(value, tuple):
        return any(map(_is_made_anew, tuple.__iter__(value)))
    return isinstance(value, _MADE_ANEW)


_BOUND = (types.MethodWrapperType, types.BuiltinMethodType)
_SEQUENCES: dict[type, str] = {list: "list", tuple: "tuple"}
_LYING: dict[type, str] = {set: "set with a table", frozenset: "frozenset with a table"}


def _refuse_shared_attributes(objects: list[Any]) -> None:
    """Objects that have one dict of attributes, or whose dict is held elsewhere, would have their own, once read."""
    owners = {id(each) for each in objects if isinstance(each, dict)}
    for each in objects:
        held = attribute_dict(each) if is_plain_instance(type(each)) else None
        if held and id(held) in owners:
            raise StateError(
                f"the attributes of a {type(each).__qualname__} are in a dict that others hold, too (its __dict__); "
                "read back they would not be. Keep what is shared in one object that all of them have as an attribute."
            )
        if held:
            owners.add(id(held))


def _shown(nodes: list[Any]) -> Any:
    """The parts as plain values, for people: what is shared is shown where it is first met."""
    met: set[int] = set()

    def plain(each: Any) -> Any:
        if not isinstance(each, Reference) or each.number in met:
            return each
        met.add(each.number)
        _, kind, contents = nodes[each.number]
        if kind in ("list", "tuple", "set", "frozenset", "cell"):
            return [plain(item) for item in contents]
        if kind in _LYING.values():
            return [plain(item) for item in contents[0]]
        if kind in ("dict", "OrderedDict", "Counter", "defaultdict"):
            pairs = contents[1] if kind == "defaultdict" else contents
            return {repr(plain(key)) if isinstance(key, Reference) else key: plain(item) for key, item in pairs}
        if kind == "deque":
            return [plain(item) for item in contents[1]]
        if kind in ("instance", "namespace"):
            pairs = contents[1] if kind == "instance" else contents
            return {name: plain(item) for name, *items in pairs for item in items}
        return kind if kind in ("same", "class") else [kind, contents]

    return plain(Reference(0))
