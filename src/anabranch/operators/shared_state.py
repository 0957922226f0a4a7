"""Operators that share state: one key, one owner. Several operators of the user's as one, which has the state of all.

    logins ─ tagged ─┐                                   ┌─ what Logins emits
                     ├─ union ─► process, by key: calls ─┤
    clicks ─ tagged ─┘           the tuple's operator    └─ what Clicks emits

A tuple goes on its way with the number of its operator, its key, and itself as a struct; so do the tuples that come
out. In between there is one operator with a key, whose state is that of all members: a field that two of them declare
is there once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import ProgramError, StateError
from anabranch.operators.library_operator import LibraryOperator, configured
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
        structs[self.number] = dict(zip(self.names, values, strict=True))
        return (self.number, *[values[place] for place in self.key], *structs)


class Members(LibraryOperator):
    """The operators of one key, with the state of all."""

    members: tuple[tuple[type, dict[str, Any], tuple[str, ...], Schema, Schema], ...]

    def operators_within(self) -> list[Any]:
        """The operators as their authors wrote them."""
        found: list[Any] = []
        for kind, configuration, *_ in self.members:
            found.append(object.__new__(kind))
            found[-1].__dict__.update(configuration)
        return found

    def process(self, t: Any) -> Any:
        number = tuple.__getitem__(t, 0)
        kind, configuration, names, schema, output = self.members[number]
        held = tuple.__getitem__(t, number - len(self.members))
        called = object.__new__(kind)
        attributes = called.__dict__
        attributes.update(configuration)
        mine = self.__dict__
        for name in names:
            attributes[name] = mine[name]
        made = [
            dict(zip(output.names, output.unpack(each), strict=True))
            for each in emitted(called.process(schema.row_class([held[name] for name in schema.names])))
        ]
        for name in names:
            mine[name] = attributes.pop(name)
        for name, value in attributes.items():
            if name not in configuration or configuration[name] is not value:
                raise StateError(
                    f"{kind.__name__}.process() changed self.{name}, which is not declared as state, so its value "
                    f"would be lost. Declare it in the class: {name} = ab.state(default=…)"
                )
        before, behind = [None] * number, [None] * (len(self.members) - number - 1)
        return [(number, *before, each, *behind) for each in made]


class Picked(LibraryOperator):
    """What one member emitted, as a tuple of its own."""

    number: int
    names: tuple[str, ...]

    def __call__(self, t: Any) -> Any:
        if tuple.__getitem__(t, 0) != self.number:
            return None
        struct = tuple.__getitem__(t, 1 + self.number)
        return tuple([struct[name] for name in self.names])


def tagged_schema(schemas: Sequence[Schema], key: Sequence[str]) -> tuple[Schema, tuple[str, ...]]:
    """The columns in which the tuples of all members travel, and those of them that are the key."""
    names = tuple(f"key_{at}" for at in range(len(key)))
    fields = [pa.field(name, schemas[0].type_of(column)) for name, column in zip(names, key, strict=True)]
    return _with_structs(schemas, fields), names


def emitted_schema(schemas: Sequence[Schema]) -> Schema:
    """The columns in which what members emit travels."""
    return _with_structs(schemas, [])


def _with_structs(schemas: Sequence[Schema], between: Sequence[pa.Field]) -> Schema:
    structs = [pa.field(f"tuple_{at}", pa.struct(list(schema.arrow))) for at, schema in enumerate(schemas)]
    return Schema(pa.schema([pa.field(MEMBER, pa.int32()), *between, *structs]))


def tag_logic(number: int, count: int, schema: Schema, key: Sequence[str], output: Schema, name: str) -> Any:
    """The operator that tags the tuples of a member."""
    places = tuple(schema.names.index(column) for column in key)
    made = configured(
        Tagged, name, selectivity=Selectivity.ONE, number=number, count=count, key=places, names=schema.names
    )
    return Map(made), output


def members_logic(
    members: Sequence[tuple[Any, tuple[StateField, ...], Schema, Schema]], output: Schema, ttl_ms: int | None, name: str
) -> tuple[Keyed, Schema]:
    """The operator of all members: each a prototype, its state, the columns it takes and those it emits."""
    fields: dict[str, StateField] = {}
    for prototype, declared, _, _ in members:
        for field in declared:
            known = fields.setdefault(field.name, field)
            if (known.default, known.factory) != (field.default, field.factory):
                raise ProgramError(
                    f"{type(prototype).__name__} declares the shared state {field.name!r} otherwise than the one "
                    "before it: one key has one value of it, so both begin with the same default or factory"
                )
    held = tuple(
        (type(prototype), dict(prototype.__dict__), tuple(field.name for field in declared), schema, made)
        for prototype, declared, schema, made in members
    )
    return Keyed(configured(Members, name, members=held), "process", tuple(fields.values()), ttl_ms), output


def pick_logic(number: int, output: Schema, name: str) -> tuple[FlatMap, Schema]:
    """The operator that gives what one member emitted."""
    made = configured(Picked, name, selectivity=Selectivity.AT_MOST_ONE, number=number, names=output.names)
    return FlatMap(made), output
