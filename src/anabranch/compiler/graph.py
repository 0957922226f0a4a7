"""The program as frozen data: operators and the streams between them. Building it runs nothing.

    source ──► filter ──► process(by=…) ──► map ──► sink

A node is an operator invocation; its `logic` says what it does with a tuple. Everything that executes a
program — the sequential run, the channels on Spark — reads these nodes; everything that decides about it
— the compiler — reads them too and never changes them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

from anabranch.flow.schema import Schema

_PACKAGE = __file__.removesuffix("compiler/graph.py").removesuffix("compiler\\graph.py")


@dataclasses.dataclass(frozen=True)
class Location:
    """Where in the user's source an operator was put into the program."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def caller_location() -> Location:
    """The first line on the call stack that is not ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return Location(frame.f_code.co_filename, frame.f_lineno)


# -- what an operator does --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Source:
    """Where tuples come from. `origin` is opaque here: the Spark layer knows what to read."""

    origin: Any


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
    """

    prototype: Any
    method: str
    fields: tuple[StateField, ...]
    time_to_live_ms: int | None = None
    transient: bool = False


@dataclasses.dataclass(frozen=True)
class StateField:
    """An attribute of a keyed operator that is kept per key."""

    name: str
    default: Any = None
    factory: Callable[[], Any] | None = None

    def initial(self) -> Any:
        return self.factory() if self.factory is not None else self.default


Logic = Source | Map | Filter | FlatMap | Keyed


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
        The columns (of its input) its state is partitioned by; empty if it has none.
    forwards : frozenset of str
        Columns that every output tuple has unchanged from the tuple it came from.
    """

    id: int
    kind: str
    name: str
    logic: Logic
    inputs: tuple[Node, ...]
    schema: Schema
    location: Location
    key: tuple[str, ...] = ()
    forwards: frozenset[str] = frozenset()
    details: str = ""

    @property
    def title(self) -> str:
        """How errors and plans call it."""
        return f"{self.name} ({self.location})"


def upstream(node: Node) -> list[Node]:
    """The node and everything it depends on, sources first, each once."""
    seen: dict[int, Node] = {}

    def visit(at: Node) -> None:
        if at.id not in seen:
            for each in at.inputs:
                visit(each)
            seen[at.id] = at

    visit(node)
    return list(seen.values())


def detached(output: Node) -> Node:
    """The same program without what its sources read from: a DataFrame cannot and need not travel to tasks."""
    copies: dict[int, Node] = {}
    for node in upstream(output):
        logic = Source(None) if isinstance(node.logic, Source) else node.logic
        copies[node.id] = dataclasses.replace(node, logic=logic, inputs=tuple(copies[i.id] for i in node.inputs))
    return copies[output.id]
