"""The program as frozen data: operators and the streams between them. Building it runs nothing.

    source ──► filter ──► process(by=…) ──► map ──► output

A node is an operator invocation; its `logic` says what it does with a tuple. Everything that executes a
program — the sequential run, the channels on Spark — reads these nodes; everything that decides about it
— the compiler — reads them too and never changes them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from anabranch.errors import ProgramError
from anabranch.program.broadcasting import Broadcast
from anabranch.program.schema import Schema
from anabranch.program.state_fields import FIRST_VERSION, StateHistory
from anabranch.program.state_fields import StateField as StateField

# Up to and with the separator: a neighbour whose name begins like ours is not ours.
_PACKAGE = __file__.removesuffix("program/graph.py").removesuffix("program\\graph.py")


@dataclasses.dataclass(frozen=True)
class Location:
    """Where in the user's source an operator was put into the program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def is_ours(file: str) -> bool:
    """Whether a source file belongs to this library; code that it generated does as well."""
    return file.startswith((_PACKAGE, "<anabranch"))


def caller_location() -> Location:
    """The first line on the call stack that is not ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


# -- what an operator does --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Source:
    """Where tuples come from. `origin` is opaque here: the Spark layer knows what to read.

    Rows with different values in `partitioned_by` come in `partitions` parts that are read apart from each other.
    """

    origin: Any
    partitioned_by: tuple[str, ...] = ()
    partitions: int = 0


@dataclasses.dataclass(frozen=True)
class Map:
    """One tuple out for each in."""

    function: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Filter:
    """The same tuple, or none."""

    function: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class FlatMap:
    """Any number of tuples out for each in, no state."""

    function: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Keyed:
    """State per key: one instance of the operator for each key, its state fields kept between tuples.

    Attributes
    ----------
    prototype : object
        Instances are copies of it; what it holds beside the state fields is configuration.
    method : str
        The method that takes a tuple.
    fields : tuple of StateField
        The attributes that are state.
    time_to_live_ms : int or None
        A key's state is forgotten when it was not written for so long.
    transient : bool
        The state is not kept in the checkpoint: after a restart, or when a host is lost, it begins anew.
    methods : tuple of str
        For an operator that reads several streams: the method that takes the tuples of each; empty for one stream.
    waiting : str
        The state field that is true while a key waits for a punctuation or for time to pass (an open window, say).
    punctuated : str
        The method that is called, without arguments, at each window punctuation for every key that waits, in the
        order of the tuples since which they wait; it emits like the others. Empty for none.
    ticked : str
        The same at the start of each epoch; the method takes the epoch's time in milliseconds.
    timed : str
        The method that is called, with a time, when time has reached what a key waits for: its state field
        ``timer_due``, a whole number or None. Empty for none. See docs/time.md.
    by_clock : bool
        That time is the clock of the epochs, in milliseconds; else it is the watermark of the streams.
    takes_time : bool
        The methods that take tuples also take the time that is reached.
    per_input : bool
        That is the watermark of the input that the tuple comes from, not of all.
    parts : Parts or None
        The same operator in two steps, where that is exactly the same.
    broadcast : Broadcast or None
        What it does with the tuples of its last input, if all channels get all of these.
    history : StateHistory or None
        Which version of its state it has, and how to make that of earlier ones; None: the first.
    """

    prototype: Any
    method: str
    fields: tuple[StateField, ...]
    time_to_live_ms: int | None = None
    transient: bool = False
    methods: tuple[str, ...] = ()
    waiting: str = ""
    punctuated: str = ""
    ticked: str = ""
    timed: str = ""
    by_clock: bool = False
    takes_time: bool = False
    per_input: bool = False
    parts: Parts | None = None
    broadcast: Broadcast | None = None
    history: StateHistory | None = None

    @property
    def version(self) -> int:
        """Which version of its state it has."""
        return FIRST_VERSION if self.history is None else self.history.version

    @property
    def by_watermark(self) -> bool:
        """Whether its keys wait for a watermark."""
        return bool(self.timed) and not self.by_clock

    def method_of(self, place: int) -> str:
        """The method that takes the tuples of an input."""
        return self.methods[place] if self.methods else self.method


@dataclasses.dataclass(frozen=True)
class Parts:
    """A keyed operator in two steps, so that several channels can work on one key.

    Attributes
    ----------
    salt : Map
        Adds the part of its key that a tuple belongs to, as the last column of `salted`.
    first : Keyed
        Works on the parts of keys, and emits `handed_over`.
    second : Keyed
        Works on keys, and emits what the operator emits.
    """

    salt: Map
    salted: Schema
    first: Keyed
    handed_over: Schema
    second: Keyed


@dataclasses.dataclass(frozen=True)
class Process:
    """A user's operator with whatever state it keeps itself; `operator` takes a tuple and emits any number.

    The compiler finds out if that state is partitioned (then it runs as `Keyed`); else it runs on one thread.
    """

    operator: Any
    method: str = "__call__"


@dataclasses.dataclass(frozen=True)
class Union:
    """All tuples of several streams: at equal numbers, those of the first stream first."""

    removes: bool = False
    """It has no punctuations, whatever its streams have."""


@dataclasses.dataclass(frozen=True)
class Spread:
    """The same tuples, dealt out to channels in turn: what follows without state runs there."""


@dataclasses.dataclass(frozen=True)
class Route:
    """Each tuple goes to one of `ways` outputs, read through `Port` nodes; the function says which."""

    function: Callable[[Any], Any]
    ways: int = 2


@dataclasses.dataclass(frozen=True)
class Port:
    """One output of an operator that has several."""

    index: int


@dataclasses.dataclass(frozen=True)
class Punctuate:
    """The same tuples, with a window punctuation after each for which the function is true."""

    function: Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Watermark:
    """The same tuples, with the watermark that follows from them: its advances travel between tuples.

    Attributes
    ----------
    attribute : str
        The column that holds event time.
    kind : str
        What that is: see `program.event_time.TimeScale`. All that follow are whole numbers in its unit.
    lateness : int
        How far the watermark stays behind the largest time.
    every : int
        It is a multiple of this: it advances in such steps.
    idle_ms : int or None
        After so long without a tuple, by the clock of the epochs, it holds nobody up.
    nulls : str
        What a tuple without a time does: "fail" the epoch, or "drop".
    """

    attribute: str
    kind: str
    lateness: int
    every: int
    idle_ms: int | None = None
    nulls: str = "fail"

    def after(self, time: int) -> int:
        """The watermark behind a tuple, if it is the first."""
        return (time - self.lateness) // self.every * self.every


@dataclasses.dataclass(eq=False)
class Loop:
    """The end of a feedback edge while the program is written: known only when the loop is closed."""

    node: Node | None = None


@dataclasses.dataclass(frozen=True)
class Feedback:
    """Tuples that the operator named `target` emitted, fed back at the start of the next epoch."""

    target: str | Loop

    @property
    def name(self) -> str:
        """The operator that the tuples come from."""
        if isinstance(self.target, str):
            return self.target
        return self.target.node.name if self.target.node is not None else ""


@dataclasses.dataclass(frozen=True)
class DeadLetters:
    """A letter for each call that failed of the operators that it reads: of none of their tuples."""


_Plain = Source | Map | Filter | FlatMap | Union | Spread | Route | Port | Punctuate | Watermark
Logic = _Plain | Keyed | Process | Feedback | DeadLetters


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """One operator of the program.

    Attributes
    ----------
    id : int
        Its number; operators are numbered in the order of declaration.
    kind : str
        How the user called it: source, map, filter, flat_map, process, aggregate.
    name : str
        Unique in the program; names its state in the checkpoint.
    logic : Logic
        What it does.
    inputs : tuple of Node
        The streams it reads.
    schema : Schema
        The columns of what it emits.
    key : tuple of str
        The columns (of its first input) its state is partitioned by; empty if it has none.
    keys : tuple of tuple of str
        For an operator that reads several streams: the key's columns in each; empty if they have the same names.
    isolated : bool
        It has a stage of its own.
    together : tuple of str or int
        Operators that must run in its stage: by name or, before `named`, by number.
    part_of : str
        The operator of the user's that it is one of several steps of; empty if it is the whole.
    unfollowed : str
        What of its code the compiler could not follow, and where: it must keep nothing beside its state, which is
        watched. Empty if there is nothing.
    on_error : str
        What a call that fails does: "fail" the epoch, "skip" the tuple, or make a "dead_letter" of it.
    columns : Schema or None
        The columns of its tuples, where letters are emitted beside them, in one more.
    was : tuple of str
        What it was called in earlier versions of the program, latest first.
    table : ChangingTable or None
        The table it looks into, which is read anew while a query runs.
    """

    id: int
    kind: str
    name: str
    logic: Logic
    inputs: tuple[Node, ...]
    schema: Schema
    location: Location
    key: tuple[str, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    isolated: bool = False
    together: tuple[str | int, ...] = ()
    part_of: str = ""
    unfollowed: str = ""
    on_error: str = "fail"
    columns: Schema | None = None
    was: tuple[str, ...] = ()
    table: Any = None

    def key_of(self, place: int) -> tuple[str, ...]:
        """The columns of an input that hold the key."""
        return self.keys[place] if self.keys else self.key

    def is_broadcast(self, place: int) -> bool:
        """Whether all channels get all tuples of an input."""
        return place > 0 and isinstance(self.logic, Keyed) and self.logic.broadcast is not None

    @property
    def title(self) -> str:
        """How plans call it."""
        return f"{self.name} ({self.location})"

    @property
    def written_as(self) -> str:
        """How errors call it: the operator that the user wrote."""
        return f"{self.part_of or self.name} ({self.location})"


def upstream(*outputs: Node) -> list[Node]:
    """The nodes and everything they depend on, feedback edges included, in the order of declaration."""
    seen: dict[int, Node] = {}
    waiting = list(outputs)
    while waiting:
        at = waiting.pop()
        if at.id not in seen:
            seen[at.id] = at
            waiting += at.inputs
            loop = _loop_of(at)
            if loop is not None:
                if loop.node is None:
                    raise ProgramError(
                        f"the feedback {at.title} is not closed: say where its tuples come from, close(…)"
                    )
                waiting.append(loop.node)
    return sorted(seen.values(), key=lambda node: node.id)


def _loop_of(node: Node) -> Loop | None:
    target = node.logic.target if isinstance(node.logic, Feedback) else None
    return target if isinstance(target, Loop) else None


def named(outputs: Sequence[Node]) -> list[Node]:
    """The outputs of the program, its operators with unique names.

    Streams of several sources were named without knowing of each other. The first to be declared keeps a name,
    the others get a number behind it, as within one stream. What was said of an operator on any of its streams
    (`isolated`, `together`) holds for the operator.
    """
    nodes = upstream(*outputs)
    taken: set[str] = set()
    names: dict[int, str] = {}
    for node in nodes:
        name, number = node.name, 2
        while name in taken:
            name, number = f"{node.name}-{number}", number + 1
        taken.add(name)
        names[node.id] = name
    variants = _variants(outputs)
    said = any(len(each) > 1 or each[0].together for each in variants.values())
    if not said and all(names[node.id] == node.name for node in nodes):
        return list(outputs)
    copies: dict[int, Node] = {}
    loops: list[tuple[Loop, int]] = []
    for node in nodes:
        inputs = tuple(copies[each.id] for each in node.inputs)
        logic, loop = node.logic, _loop_of(node)
        if loop is not None and loop.node is not None:
            loops.append((Loop(), loop.node.id))
            logic = Feedback(loops[-1][0])
        if names[node.id] != node.name and isinstance(logic, Keyed):
            logic = dataclasses.replace(logic, prototype=_renamed(logic.prototype, names[node.id]))
        copies[node.id] = dataclasses.replace(
            node,
            name=names[node.id],
            inputs=inputs,
            logic=logic,
            isolated=any(each.isolated for each in variants[node.id]),
            together=_together(variants[node.id], names),
            was=tuple(dict.fromkeys(name for each in variants[node.id] for name in each.was)),
        )
    for loop, target in loops:
        loop.node = copies[target]
    return [copies[node.id] for node in outputs]


def _variants(outputs: Sequence[Node]) -> dict[int, list[Node]]:
    """Number → the operator as each stream has it: saying something of it makes another node of the same number."""
    found: dict[int, list[Node]] = {}
    seen: set[int] = set()
    waiting = list(outputs)
    while waiting:
        at = waiting.pop()
        if id(at) not in seen:
            seen.add(id(at))
            found.setdefault(at.id, []).append(at)
            waiting += at.inputs
            loop = _loop_of(at)
            if loop is not None and loop.node is not None:
                waiting.append(loop.node)
    return found


def _together(variants: Sequence[Node], names: Mapping[int, str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for node in variants:
        for other in node.together:
            name = names.get(other, "") if isinstance(other, int) else other
            if name not in names.values():
                raise ProgramError(
                    f"{node.title}: colocate({other if isinstance(other, str) else '…'!s}): the program has no such "
                    f"operator; operators: {', '.join(names.values())}"
                )
            found[name] = None
    return tuple(found)


def _renamed(prototype: Any, name: str) -> Any:
    """An operator of the library knows its name, to count under it; others do not care."""
    if not hasattr(type(prototype), "operator_name"):
        return prototype
    was = type(prototype)
    # Still a class of the module it is from: by that the compiler knows operators of the library.
    kind = type(was.__name__, (was,), {"operator_name": name, "__module__": was.__module__})
    other: Any = object.__new__(kind)
    other.__dict__.update(prototype.__dict__)
    return other


def fed_back(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    """Operator → the feedback edges that its tuples go back through."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        if isinstance(node.logic, Feedback):
            found.setdefault(node.logic.name, []).append(node)
    return found
