"""Operators that share state: one key, one owner. Several operators of the user's as one, which has the state of all.

    logins ─ tagged ─┐                                   ┌─ what Logins emits
                     ├─ union ─► process, by key: calls ─┤
    clicks ─ tagged ─┘           the tuple's operator    └─ what Clicks emits

A tuple goes on its way with the number of its operator, its key, and itself as a struct; so do the tuples that come
out. In between there is one operator with a key, whose state is that of all members: a field that two of them declare
is there once. Timers are a member's own; the key waits for the first of all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, StateError
from anabranch.operators.library_operator import LibraryOperator, configured
from anabranch.operators.timers import TIMER_FIELDS
from anabranch.program.calling import emitted
from anabranch.program.graph import FlatMap, Keyed, Map
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema
from anabranch.program.state_fields import StateField

MEMBER = "member"


class Tagged(LibraryOperator):
    """A tuple as the struct of one member, beside its key."""

    number: int
    count: int
    key: tuple[int, ...]
    names: tuple[str, ...]

    def __call__(self, t: Any) -> Any:
        values = tuple(t)
        structs: list[Any] = [None] * self.count
        structs[self.number] = dict(zip(self.names, values, strict=False))  # behind them may be columns of a key
        return (self.number, *[values[place] for place in self.key], *structs)


@dataclasses.dataclass(frozen=True)
class Member:
    """One of the operators.

    Attributes
    ----------
    kind, configuration : type, dict
        Its class, and what it was made with.
    fields : tuple of str
        Its state.
    method, timed : str
        What takes a tuple, and what is called when a time has come; the latter is empty if it has no timers.
    takes, gives : Schema
        The columns of what it takes and of what it emits.
    """

    kind: type
    configuration: dict[str, Any]
    fields: tuple[str, ...]
    method: str
    timed: str
    takes: Schema
    gives: Schema


class Members(LibraryOperator):
    """The operators of one key, with the state of all."""

    members: tuple[Member, ...]

    def operators_within(self) -> list[Any]:
        """The operators as their authors wrote them."""
        found: list[Any] = []
        for member in self.members:
            found.append(object.__new__(member.kind))
            found[-1].__dict__.update(member.configuration)
        return found

    def users_code(self) -> list[tuple[str, Any]]:
        return [(type(each).__name__, each) for each in self.operators_within()]

    def process(self, t: Any) -> Any:
        number = tuple.__getitem__(t, 0)
        member = self.members[number]
        held = tuple.__getitem__(t, number - len(self.members))
        row = member.takes.row_class([held[name] for name in member.takes.names])
        return self._called(number, member.method, row)

    def _called(self, number: int, method: str, argument: Any) -> list[Any]:
        """What a member emits when a method is called, with the state of this key."""
        member = self.members[number]
        kind, configuration = member.kind, member.configuration
        called: Any = object.__new__(kind)
        attributes = called.__dict__
        attributes.update(configuration)
        mine = self.__dict__
        for name in member.fields:
            attributes[name] = mine[name]
        times = f"timer_times_{number}"
        if member.timed:
            attributes["timer_times"] = mine[times]
            attributes["timer_due"] = mine[times][0][0] if mine[times] else None
        output = member.gives
        made = [
            dict(zip(output.names, output.unpack(each), strict=True))
            for each in emitted(getattr(called, method)(argument))
        ]
        for name in member.fields:
            mine[name] = attributes.pop(name)
        if member.timed:
            mine[times] = attributes.pop("timer_times")
            del attributes["timer_due"]
            self._wait()
        for name, value in attributes.items():
            if name not in configuration or configuration[name] is not value:
                raise StateError(
                    f"{kind.__name__}.process() changed self.{name}, which is not declared as state, so its value "
                    f"would be lost. Declare it in the class: {name} = ab.state(default=…)"
                )
        before, behind = [None] * number, [None] * (len(self.members) - number - 1)
        return [(number, *before, each, *behind) for each in made]

    def _wait(self) -> None:
        held = [self.__dict__[f"timer_times_{at}"] for at, member in enumerate(self.members) if member.timed]
        self.timer_due = min((times[0][0] for times in held if times), default=None)

    def _waiting_for(self, due: int) -> list[int]:
        """The members that have a timer then, in their order."""
        numbers = [number for number, member in enumerate(self.members) if member.timed]
        return [number for number in numbers if any(when == due for when, _ in self.__dict__[f"timer_times_{number}"])]


class TimedMembers(Members):
    """The same, of which some have timers."""

    def fire(self, due: int) -> Any:
        """Call the first member that has a timer then, for the first of those."""
        number = self._waiting_for(due)[0]
        yield from self._called(number, self.members[number].timed, due)

    def give_up(self, due: int) -> None:
        """A call for a time has failed and changed nothing: it is not made again."""
        self._called(self._waiting_for(due)[0], "give_up", due)


class Picked(LibraryOperator):
    """What one member emitted, as a tuple of its own."""

    number: int
    names: tuple[str, ...]

    def __call__(self, t: Any) -> Any:
        if tuple.__getitem__(t, 0) != self.number:
            return None
        struct = tuple.__getitem__(t, 1 + self.number)
        return tuple([struct[name] for name in self.names])


def tagged_schema(schemas: Sequence[Schema], kinds: Sequence[pa.DataType]) -> tuple[Schema, tuple[str, ...]]:
    """The columns in which the tuples of all members travel, and those of them that are the key, of these types."""
    names = tuple(f"key_{at}" for at in range(len(kinds)))
    return _with_structs(schemas, [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]), names


def emitted_schema(schemas: Sequence[Schema]) -> Schema:
    """The columns in which what members emit travels."""
    return _with_structs(schemas, [])


def _with_structs(schemas: Sequence[Schema], between: Sequence[pa.Field]) -> Schema:
    structs = [pa.field(f"tuple_{at}", pa.struct(list(schema.arrow))) for at, schema in enumerate(schemas)]
    return Schema(pa.schema([pa.field(MEMBER, pa.int32()), *between, *structs]))


def tag_logic(
    number: int, count: int, schema: Schema, key: Sequence[str], names: tuple[str, ...], output: Schema, name: str
) -> Any:
    """The operator that tags the tuples of a member, of which it sees the first columns, `names`."""
    places = tuple(schema.names.index(column) for column in key)
    made = configured(Tagged, name, selectivity=Selectivity.ONE, number=number, count=count, key=places, names=names)
    return Map(made), output


def members_logic(
    members: Sequence[tuple[Keyed, Schema, Schema]], output: Schema, ttl_ms: int | None, name: str
) -> tuple[Keyed, Schema]:
    """The operator of all members: of each how it would run alone, the columns it takes and those it emits."""
    fields: dict[str, StateField] = {}
    held: list[Member] = []
    for logic, takes, gives in members:
        kind = type(logic.prototype)
        declared = [field for field in logic.fields if field.name not in TIMER_FIELDS]
        for field in declared:
            known = fields.setdefault(field.name, field)
            if (known.default, known.factory) != (field.default, field.factory):
                raise ProgramError(
                    f"{kind.__name__} declares the shared state {field.name!r} otherwise than the one before it: one "
                    "key has one value of it, so both begin with the same default or factory"
                )
        names = tuple(field.name for field in declared)
        held.append(Member(kind, dict(logic.prototype.__dict__), names, logic.method, logic.timed, takes, gives))
    timed = [number for number, member in enumerate(held) if member.timed]
    if not timed:
        prototype = configured(Members, name, members=tuple(held))
        return Keyed(prototype, "process", tuple(fields.values()), ttl_ms), output
    waiting = [StateField("timer_due"), StateField("timer_since")]
    waiting += [StateField(f"timer_times_{number}", factory=list) for number in timed]
    prototype = configured(TimedMembers, name, members=tuple(held))
    by_clock = any(logic.by_clock for logic, _, _ in members)
    return Keyed(prototype, "process", (*fields.values(), *waiting), timed="fire", by_clock=by_clock), output


def pick_logic(number: int, output: Schema, name: str) -> tuple[FlatMap, Schema]:
    """The operator that gives what one member emitted."""
    made = configured(Picked, name, selectivity=Selectivity.AT_MOST_ONE, number=number, names=output.names)
    return FlatMap(made), output
