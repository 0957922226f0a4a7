"""Reading the user's functions that one operator of the library calls: all of them, as it calls them.

One may return what outlives the call, and another change it; so they are read together. What goes from one to another
has a name, and is read as a field of declared state is: it is kept from one epoch to the next, joined over all that
gives it.

    create() ──► accumulator ──► add(accumulator, value) ──► accumulator ──► result(accumulator)
"""

from __future__ import annotations

import ast
import dataclasses
import types
from collections.abc import Sequence
from typing import Any

from anabranch.compiler.reading import attributes
from anabranch.compiler.reading.displays import make_object
from anabranch.compiler.reading.emitting import hand_over
from anabranch.compiler.reading.facts import Fact
from anabranch.compiler.reading.read_operator import HANDLERS, read_until_settled, top_function
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.values import NOTHING, ROW_TYPES, TUPLE, NoneType, Text, Value
from anabranch.operators.library_operator import UserFunction
from anabranch.program.graph import Location, StateField
from anabranch.program.schema import Schema


@dataclasses.dataclass(frozen=True)
class Called:
    """A function, or a method of an object, and how it is called: see `UserFunction`."""

    how: UserFunction
    method: str | None = None


def read_functions(
    calls: Sequence[Called], schema: Schema | None, fields: tuple[StateField, ...], fallback: Location
) -> tuple[Reading, list[tuple[Called, Fact]]]:
    """Read them until nothing new is learned; each fact with the call that led to it first."""
    given = [StateField(each.how.gives) for each in calls if each.how.gives]
    names = {field.name for field in (*fields, *given)}
    reading = Reading(HANDLERS, schema, {}, {field.name: field for field in (*given, *fields)})
    found: dict[Any, tuple[Called, Fact]] = {}
    starts = [_start_of(each, fallback) for each in calls]  # once: what is made is named by the node that makes it

    def once() -> None:
        for each, (file, start) in zip(calls, starts, strict=True):
            reading.frame.file, reading.start, reading.tree = file, start, start
            # What one leaves behind of its own run is not for the next.
            reading.returns.clear()
            reading.active.clear()
            reading.flow.variables.clear()
            reading.flow.alive = True
            made = _call(reading, each, names)
            if each.how.gives:
                reading.keep(each.how.gives, made, reading.start)
            else:
                hand_over(reading, made, reading.start)
            note(each)

    def note(each: Called) -> None:
        for key, fact in reading.facts.found.items():
            found.setdefault(key, (each, fact))

    read_until_settled(reading, fields, once)
    if calls:
        note(calls[-1])
    return reading, sorted(found.values(), key=lambda pair: (pair[1].location.file, pair[1].location.line))


def _call(reading: Reading, each: Called, names: set[str]) -> Value:
    function = each.how.function
    path = getattr(function, "__name__", "self") if each.method is None else "self"
    reading.operator, reading.operator_reached = function, False
    value = reading.shared(function, path)
    if each.method is not None:
        value = attributes.attribute_of(reading, value, each.method, reading.start)
    return reading.call(value, [_taken(reading, name, names) for name in each.how.takes], {}, reading.start)


def _taken(reading: Reading, name: str, names: set[str]) -> Value:
    """What a function is called with."""
    if name in names:
        return reading.kept(name)
    if name == "tuple":
        return Value(types=ROW_TYPES, objects=frozenset({TUPLE}), text=Text("t"))
    if name in ("left", "right"):
        assert ROW_TYPES is not None
        return Value(types=ROW_TYPES | {NoneType}, objects=frozenset({TUPLE}))
    if name.startswith("column "):
        return reading.column(name.removeprefix("column "))
    return _matched(reading, name.split()[1:])


def _matched(reading: Reading, steps: list[str]) -> Value:
    """What a pattern has matched so far: an object with a new list of tuples under each name."""
    made = make_object(reading, reading.start, frozenset({types.SimpleNamespace}), NOTHING, "matched")
    row = Value(types=ROW_TYPES, objects=frozenset({TUPLE}))
    for name in (*steps, "tuples"):
        taken = make_object(reading, reading.start, frozenset({list}), row, f"matched {name}")
        for each in made.objects:
            reading.heap.put_attribute(each, name, taken)
    return made


def _start_of(each: Called, fallback: Location) -> tuple[str, ast.AST]:
    """The file of a function, and a node for its first line."""
    function = top_function(each.how.function, each.method)
    line = fallback.line if function is None else function.__code__.co_firstlineno
    file = fallback.file if function is None else function.__code__.co_filename
    return file, ast.Constant(None, lineno=line, col_offset=0)
