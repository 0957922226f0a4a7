"""Case 2: an operator's own dicts become state that the runtime keeps, without the author's doing anything.

The proof (`inference.py`) says that for one tuple the code touches, of each of its dicts, only the entry of
that tuple's key. So a dict with that one entry (or none) cannot be told from the full one:

    before the call    dict := {key: value} if present else {}
    the call           the author's code, untouched
    after the call     present, value := what the dict holds now; dict := {}

The code itself is not changed; what it sees is. That makes the semantics those of the original by
construction — a KeyError for a missing key, a defaultdict that creates on reading, `setdefault`, `del`,
aliases, helpers — where rewriting each access would have to imitate them one by one.

Two fields per dict hold what is kept for a key: ``<name>_present`` (a bool) and ``<name>_value``; a set has
only the first. Where a dict is not empty at the start, ``<name>_present`` is None until the key is first
seen, and its entry then comes from the dict as it was. Where the dicts are indexed with more columns than
the key that was found (one by (a, b), another by a), a field ``<name>_entries`` holds a list of
[index, value] instead.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import types
from collections.abc import Iterator
from typing import Any

from anabranch.compiler.models.findings import Inference
from anabranch.compiler.models.key_proof import expression_function
from anabranch.compiler.reading.values import Text
from anabranch.compiler.rewriting.watched_dicts import ANY_INDEX, Watch, empty_like, unwatch, watch
from anabranch.program.calling import kept
from anabranch.program.graph import Keyed, StateField
from anabranch.program.object_graph import ObjectGraph
from anabranch.program.object_parts import is_atom, is_plain_instance
from anabranch.program.object_reach import at_path, code_of, path_to
from anabranch.program.whole_copies import copied_with, loaded, pickled_whole


@dataclasses.dataclass(frozen=True)
class _Dict:
    """One dict of the author's: how to find it, and where its entry is kept."""

    name: str
    route: tuple[Any, ...]
    is_set: bool
    is_finer: bool
    #: Its values are objects of the user's classes, or hold such: they are kept as `ObjectGraph`.
    has_objects: bool
    #: What the dict holds at the start.
    initial: Any = ()
    #: Where an entry is kept, or all of them: names of fields, which every call needs.
    present: str = ""
    value: str = ""
    entries: str = ""

    def __post_init__(self) -> None:
        for part in ("present", "value", "entries"):
            object.__setattr__(self, part, f"{self.name}_{part}")

    @property
    def fields(self) -> tuple[StateField, ...]:
        if self.is_finer:
            return (StateField(self.entries, (), None),)
        present = StateField(self.present, None if self.initial else False)
        return (present,) if self.is_set else (present, StateField(self.value, None))


class ManagedDicts:
    """Runs the author's operator with dicts that hold the entry of the tuple's key only.

    A prototype of `Keyed` logic: its state fields are attributes, set before `process` is called and read
    after it.
    """

    def __init__(
        self, target: Any, method: str | None, mode: str, dicts: tuple[_Dict, ...], index: Text, finer: bool
    ) -> None:
        self.target = target
        self.method = method
        self.mode = mode
        self.dicts = dicts
        self.index_source = index
        self.finer = finer
        # Shared by all copies of the prototype; found anew in every process.
        self.bound: dict[str, Any] = {}
        # The author's own dicts, in the process that compiled the program: what else runs it begins from them.
        self.written: list[Any] = []
        for each in dicts:
            for field in each.fields:
                setattr(self, field.name, field.default)

    def __getstate__(self) -> dict[str, Any]:
        held = dict(self.__dict__)
        held["bound"], held["written"] = {}, []
        return held

    def __repr__(self) -> str:
        return f"ManagedDicts({getattr(self.target, '__name__', type(self.target).__name__)})"

    def _bind(self) -> None:
        call = self.target if self.method is None else getattr(self.target, self.method)
        self.bound.update(
            call=call,
            index=expression_function(self.index_source),
            classes=code_of(call, in_globals=True)[0] if any(each.has_objects for each in self.dicts) else {},
            held=[(each, find_object(each.route, self.target)) for each in self.dicts],
        )

    def process(self, t: Any) -> Any:
        """Take one tuple; emit what the author's operator emits."""
        if not self.bound:
            self._bind()
        index = None if self.finer else self.bound["index"](t)
        held = self.bound["held"]
        self._fill(held, index)
        try:
            found = self.bound["call"](t)
            if hasattr(found, "__next__") and self.mode not in ("filter", "map"):
                return self._read_on(found, held, index)
        except BaseException:
            self._take_back(held, index)
            raise
        self._take_back(held, index)
        return self._emitted(found, t)

    def watched(self, t: Any) -> Any:
        """The same; what the proof says does not happen is refused."""
        if not self.bound:
            self._bind()
        if "watched" not in self.bound:
            self.bound["watched"] = self._watched_copy()
        if self.bound["watched"] is None:
            return ManagedDicts.process(self, t)  # not what a subclass makes of it: `t` is as the author's code sees it
        call, held = self.bound["watched"]
        index = self.bound["index"](t)
        self._fill(held, index)
        watches = []
        for each, found in held:
            watches.append(Watch(each.name, ANY_INDEX if each.is_finer else index, self.index_source.source))
            watch(found, watches[-1])

        try:
            found = call(t)
            if hasattr(found, "__next__") and self.mode not in ("filter", "map"):
                return self._read_on(found, held, index, watches)
        except BaseException:
            self._look_at(watches, held)
            self._take_back(held, index)
            raise
        self._look_at(watches, held)
        self._take_back(held, index)
        return self._emitted(found, t)

    def _look_at(self, watches: list[Watch], held: list[tuple[_Dict, Any]]) -> None:
        """The dicts are not watched any more; if one was used with another key, that is told, also if it was caught."""
        for _, found in held:
            unwatch(found)
        strayed = next((each.strayed for each in watches if each.strayed is not None), None)
        if strayed is not None:
            raise strayed

    def _watched_copy(self) -> tuple[Any, list[tuple[_Dict, Any]]] | None:
        """The author's object once more, with dicts that can be watched; None if no copy can be made of it."""
        if any(each.has_objects for each in self.dicts):
            return None  # a copy has classes of its own, of which the objects that are kept are not
        others = [(held, empty_like(held)) for _, held in self.bound["held"]]
        try:
            call = copied_with(self.bound["call"], self.target, others)
        except Exception:  # whatever pickle meets: the call is not watched, then
            return None
        return call, [(each, other) for each, (_, other) in zip(self.dicts, others, strict=True)]

    def _fill(self, dicts: list[tuple[_Dict, Any]], index: Any) -> None:
        for each, held in dicts:
            held.clear()
            if each.is_finer:
                if each.is_set:
                    held.update(entry[0] for entry in getattr(self, each.entries))
                else:
                    # Not held.update: a Counter's would count the entries.
                    entries = getattr(self, each.entries)
                    dict.update(held, ((entry[0], self._taken_out(entry[1])) for entry in entries))
                continue
            present = getattr(self, each.present)
            if present is None and index in each.initial:
                if each.is_set:
                    held.add(index)
                else:
                    held[index] = each.initial[index]
            elif present:
                if each.is_set:
                    held.add(index)
                else:
                    held[index] = self._taken_out(getattr(self, each.value))

    def _read_on(
        self, outputs: Any, held: list[tuple[_Dict, Any]], index: Any, watches: list[Watch] | None = None
    ) -> Iterator[Any]:
        """What an iterator gives, one by one: its code runs while it is read, and may change what it gave before.

        Whoever called reads it to its end before the next call. If not, the call has failed, perhaps long ago, and what
        the dicts hold now belongs to another.
        """
        try:
            yield from outputs
        except GeneratorExit:
            for _, found in held if watches is not None else ():
                unwatch(found)
            raise
        except BaseException:
            self._look_at(watches or [], held if watches is not None else [])
            self._take_back(held, index)
            raise
        if watches is not None:
            self._look_at(watches, held)
        self._take_back(held, index)

    def _emitted(self, found: Any, t: Any) -> Any:
        if self.mode == "filter":
            return [t] if kept(found) else []
        return [found] if self.mode == "map" else found

    def _take_back(self, dicts: list[tuple[_Dict, Any]], index: Any) -> None:
        for each, held in dicts:
            if each.is_finer:
                values = () if each.is_set else held.items()
                entries = [[key] for key in held] if each.is_set else [[k, self._put_in(each, v)] for k, v in values]
                setattr(self, each.entries, entries)
            else:
                present = index in held
                setattr(self, each.present, present)
                if not each.is_set:
                    value = self._put_in(each, dict.__getitem__(held, index)) if present else None
                    setattr(self, each.value, value)
            held.clear()

    def _put_in(self, of: _Dict, value: Any) -> Any:
        return ObjectGraph.of_value(value, self.bound["classes"]) if of.has_objects and not is_atom(value) else value

    def _taken_out(self, value: Any) -> Any:
        return value.value(self.bound["classes"]) if isinstance(value, ObjectGraph) else value


def rewrite(found: Inference, target: Any, method: str | None, mode: str) -> Keyed | None:
    """The keyed logic of an operator whose own dicts were proven to be partitioned; None if it has none."""
    if not found.dicts or found.key is None or found.key_text is None or found.blocks:
        return None
    dicts = []
    for identity, name in found.dicts.items():
        held = found.facts.objects[identity]
        route = _route_of(found.facts.routes[identity], target, identity)
        has_objects = name in found.facts.with_objects
        is_finer = identity in found.finer
        dicts.append(_Dict(name, route, isinstance(held, set), is_finer, has_objects, _copied(held)))
    target, dicts = _with_own_dicts(target, dicts)
    prototype = ManagedDicts(
        target,
        method if not _is_plain_call(target, method) else None,
        mode,
        tuple(dicts),
        found.key_text,
        bool(found.finer),
    )
    prototype.written = [found.facts.objects[identity] for identity in found.dicts]
    return Keyed(prototype, "process", tuple(field for each in dicts for field in each.fields))


def _route_of(routes: list[Any], target: Any, identity: int) -> tuple[Any, ...]:
    """How to find a dict again: by name if it has one, else by the way through what the operator holds."""
    for route in routes:
        if route[0] != "elsewhere":
            return tuple(route)
    return ("path", path_to(target, identity))


def _copied(held: Any) -> Any:
    return frozenset(held) if isinstance(held, set) else dict(held)


def _is_plain_call(target: Any, method: str | None) -> bool:
    return method is None or (method == "__call__" and callable(target))


def _with_own_dicts(target: Any, dicts: list[_Dict]) -> tuple[Any, list[_Dict]]:
    """A copy of the user's operator with dicts of its own, so that the original is never touched.

    All that it holds is copied with it: a dict that is also reached through a bound method, a helper or a closure is
    still one object.
    """
    # What is kept for keys must be of the classes of the copy that runs, so they must be in it.
    plain = None if any(each.has_objects for each in dicts) else _plain_copy(target, dicts)
    if plain is not None:
        return plain, dicts
    pickled, _ = pickled_whole((target, dicts), target)
    target, dicts = loaded(pickled)
    for each in dicts:
        find_object(each.route, target).clear()
    return target, dicts


def _plain_copy(target: Any, dicts: list[_Dict]) -> Any:
    """A copy of an object that holds its dicts and beside them only plain values; None for any other.

    The most usual one, and a hundred times cheaper than the general one.
    """
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    own = {each.route[1] for each in dicts if each.route[0] == "operator"}
    held = getattr(owner, "__dict__", None)
    is_function = isinstance(owner, (types.FunctionType, type)) or not is_plain_instance(type(owner))
    if len(own) < len(dicts) or held is None or is_function or not own <= held.keys():
        return None
    if not all(is_atom(value) for name, value in held.items() if name not in own):
        return None
    if len({id(held[name]) for name in own}) < len(own) or not all(_is_plain(held[name]) for name in own):
        return None
    copied = copy.copy(owner)
    for name in own:
        setattr(copied, name, _empty_like(held[name]))
    return getattr(copied, target.__name__) if isinstance(target, types.MethodType) else copied


def _is_plain(held: Any) -> bool:
    """Whether a dict or set leads nowhere."""
    factory = getattr(held, "default_factory", None)
    values = held.values() if isinstance(held, dict) else ()
    return (factory is None or isinstance(factory, type)) and all(map(is_atom, values)) and all(map(is_atom, held))


def _empty_like(held: Any) -> Any:
    if isinstance(held, collections.defaultdict):
        return collections.defaultdict(held.default_factory)
    return type(held)()


def find_object(route: tuple[Any, ...], target: Any) -> Any:
    """The object a route leads to, in this process."""
    kind = route[0]
    if kind == "operator":
        return getattr(target.__self__ if isinstance(target, types.MethodType) else target, route[1])
    if kind == "global":
        return route[1].__globals__[route[2]]
    if kind == "closure":
        function = route[1]
        return function.__closure__[function.__code__.co_freevars.index(route[2])].cell_contents
    if kind == "default":
        return _default_of(route[1], route[2])
    if kind == "class":
        return getattr(route[1], route[2])
    if kind == "path":
        return at_path(target, route[1])
    raise ValueError(f"unknown route {route!r}")


def _default_of(function: types.FunctionType, name: str) -> Any:
    if function.__kwdefaults__ and name in function.__kwdefaults__:
        return function.__kwdefaults__[name]
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]
    values = function.__defaults__ or ()
    return values[names.index(name) - (len(names) - len(values))]
