"""Small programs to compile: nodes without the user API around them."""

from __future__ import annotations

import itertools
from typing import Any

from anabranch.operators.sorting import deduplicate_logic, sort_logic
from anabranch.operators.windows import punctuation
from anabranch.program.graph import (
    FlatMap,
    Keyed,
    Location,
    Map,
    Node,
    Process,
    Punctuate,
    Source,
    StateField,
    Union,
)
from anabranch.program.model import model
from anabranch.program.schema import Schema

SCHEMA = Schema.of("k long, l long, v double")
HERE = "program.py"


class Counting:
    """State for one key: how many tuples it had."""

    seen = 0

    def process(self, t: Any) -> Any:
        self.seen += 1
        yield t


@model(state="unknown")
def opaque(t: Any) -> Any:
    return t


def identity(t: Any) -> Any:
    return t


def twice(t: Any) -> Any:
    yield t
    yield t


def sometimes(t: Any) -> Any:
    if t.v > 0:
        yield t


class Builder:
    """Makes nodes with names and lines of their own."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def node(self, name: str, logic: Any, *inputs: Node, **more: Any) -> Node:
        number = next(self.numbers)
        schema = more.pop("schema", inputs[0].schema if inputs else SCHEMA)
        kind = more.pop("kind", type(logic).__name__.lower())
        return Node(number, kind, name, logic, inputs, schema, Location(HERE, number * 10), **more)

    def source(self, name: str = "source") -> Node:
        return self.node(name, Source(None))

    def stateless(self, name: str, *inputs: Node, **more: Any) -> Node:
        return self.node(name, Map(identity), *inputs, **more)

    def keyed(self, name: str, source: Node, *key: str, **more: Any) -> Node:
        logic = Keyed(Counting(), "process", (StateField("seen", 0),))
        return self.node(name, logic, source, key=key, kind="process", **more)

    def opaque(self, name: str, *inputs: Node, **more: Any) -> Node:
        return self.node(name, Process(opaque), *inputs, **more)

    def prolific(self, name: str, source: Node, **more: Any) -> Node:
        return self.node(name, FlatMap(twice), source, **more)

    def selective(self, name: str, source: Node, **more: Any) -> Node:
        return self.node(name, FlatMap(sometimes), source, **more)

    def union(self, name: str, *inputs: Node, **more: Any) -> Node:
        return self.node(name, Union(), *inputs, **more)

    def punctuate(self, name: str, source: Node, **more: Any) -> Node:
        return self.node(name, Punctuate(lambda t: t.v > 10), source, **more)

    def sort(self, name: str, *inputs: Node, **more: Any) -> Node:
        """Sorts the tuples between two punctuations."""
        logic = sort_logic(SCHEMA, ("v",), punctuation(), more.get("key", ()), False, "pass", "keep", name)
        return self.node(name, logic, *inputs, kind="sort", **more)

    def deduplicate(self, name: str, source: Node, *key: str) -> Node:
        logic = deduplicate_logic(SCHEMA, key, None, "keep", name)
        return self.node(name, logic, source, key=key, kind="deduplicate")
