"""What reading an operator's code brought to light, each with the line that shows it."""

from __future__ import annotations

import dataclasses
import enum
import types
from typing import Any

from anabranch.compiler.reading.values import Callback, Iterator, Text, Types, Value
from anabranch.program.graph import Location


class Kind(enum.Enum):
    """What a fact is about."""

    WRITE = "writes something that outlives the call"
    TUPLE = "changes the tuple it was given"
    UNKNOWN = "does something that cannot be followed"
    INDEX = "indexes its state in ways that give no key"
    IMPURE = "depends on more than the tuple"
    CHANCE = "asks the clock, chance or the process it runs in: another run gives something else"
    WHOLE = "uses a whole dict of state, not the entry of one key"
    NOT_DATA = "keeps what cannot be kept: a function or an iterator"
    ALIAS = "keeps one object in two places of its state"
    NOTE = "has an effect that no tuple shows"


#: Facts of these kinds make an operator sequential.
BLOCKING = (Kind.UNKNOWN, Kind.INDEX, Kind.IMPURE, Kind.CHANCE, Kind.TUPLE, Kind.WHOLE, Kind.NOT_DATA, Kind.ALIAS)
# What a declared key is believed against.
TRUSTED = frozenset({Kind.ALIAS, Kind.INDEX, Kind.IMPURE, Kind.UNKNOWN})
# What says that something is kept, though not for how long or for whom; the others only could not be followed.
KEEPING = frozenset({Kind.WRITE, Kind.WHOLE, Kind.NOT_DATA, Kind.ALIAS, Kind.TUPLE, Kind.INDEX})
#: What is no data, for people.
KEPT_NAMES = {Iterator: "an iterator", Callback: "a function", types.FunctionType: "a function"}
#: An object, by its `id`; or a variable or attribute: the `id` of what holds it, and its name.
Identity = int | tuple[int, str]


@dataclasses.dataclass(frozen=True)
class Fact:
    kind: Kind
    text: str
    location: Location
    #: The identity of what is written, and how the code reaches it.
    identity: Identity = 0
    path: str = ""


@dataclasses.dataclass(frozen=True)
class Access:
    """One use of one entry of a dict that is state."""

    identity: int
    path: str
    key: Text | None
    location: Location
    #: The texts and types of the parts, where the key is a tuple; else of the key itself.
    parts: tuple[tuple[Text | None, Types], ...]


@dataclasses.dataclass(frozen=True)
class Emission:
    """One place that emits a tuple."""

    value: Value
    location: Location
    many: bool = False


@dataclasses.dataclass
class Facts:
    """Everything found in one reading."""

    found: dict[tuple[Any, ...], Fact] = dataclasses.field(default_factory=dict)
    accesses: dict[tuple[Any, ...], Access] = dataclasses.field(default_factory=dict)
    emissions: list[Emission] = dataclasses.field(default_factory=list)
    #: How many tuples a call emits: (least, most), most = 2 meaning "any number".
    emitted: tuple[int, int] = (0, 2)
    #: Persistent objects the code reads or writes, by identity, with their paths.
    touched: dict[int, str] = dataclasses.field(default_factory=dict)
    #: The objects themselves, so that an identity stays theirs.
    objects: dict[int, Any] = dataclasses.field(default_factory=dict)
    #: How to find each again in another process: see `compiler/rewriting/managed_state.py`.
    routes: dict[int, list[Any]] = dataclasses.field(default_factory=dict)
    #: Objects whose attributes or contents the code changes, and those attributes, by identity.
    written: dict[Identity, str] = dataclasses.field(default_factory=dict)
    #: The operator's own object is also reached in another way than as the self of its method.
    operator_elsewhere: bool = False
    #: Dicts of state, by name, whose values are more than plain data: objects of the user's classes.
    with_objects: set[str] = dataclasses.field(default_factory=set)
    #: Dicts taken for state that the code does change.
    stored: set[int] = dataclasses.field(default_factory=set)
    #: What is left behind by a call that could not be kept; and places of which it is not seen what is left there.
    not_kept: dict[str, Location] = dataclasses.field(default_factory=dict)
    unseen: dict[str, Location] = dataclasses.field(default_factory=dict)
    #: What the code does that shows which object a value is: equal values are kept, not the objects that they were.
    by_identity: dict[str, Location] = dataclasses.field(default_factory=dict)
    #: Cached properties of the operator that are read: their values are left in attributes of it.
    cached: dict[str, Location] = dataclasses.field(default_factory=dict)
    #: Global variables read and written: (module, name).
    globals_read: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    globals_written: set[tuple[str, str]] = dataclasses.field(default_factory=set)

    def add(self, kind: Kind, text: str, location: Location, identity: Identity = 0, path: str = "") -> None:
        self.found.setdefault((kind, text, location, identity), Fact(kind, text, location, identity, path))

    def of(self, *kinds: Kind) -> list[Fact]:
        """The facts of these kinds, in the order of the source."""
        found = [fact for fact in self.found.values() if fact.kind in kinds]
        return sorted(found, key=lambda fact: (fact.location.file, fact.location.line, fact.text))
