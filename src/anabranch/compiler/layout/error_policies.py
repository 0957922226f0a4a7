"""Programs with operators whose calls may fail: letters leave them beside their tuples, and are taken apart again.

    … ─► f, dead_letter ─► …      ─►      … ─► f ─┬─► only its tuples ─► …
             ⋮ letters                            └─► only its letters ─► whoever reads letters

An operator whose letters nobody reads, or that skips, stays one operator. One that gives on the tuples it takes (a
route, a punctuation, event time) has an operator before it that asks it, and that fails in its stead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.compiler.layout.analysis import analyse_with_facts
from anabranch.errors import ProgramError
from anabranch.operators.guarding import checked, is_asked, only_letters, only_tuples, with_letters
from anabranch.program.calling import route_of
from anabranch.program.event_time import event_time_of
from anabranch.program.graph import (
    DeadLetters,
    Feedback,
    Loop,
    Node,
    Punctuate,
    Route,
    Union,
    Watermark,
)
from anabranch.program.model import Model, Property, Selectivity, State


def with_error_policies(
    outputs: Sequence[Node], order: Sequence[Node], models: Mapping[int, Model]
) -> tuple[list[Node], list[Node], dict[int, Model]]:
    """The outputs, operators and models of the program with its letters as streams."""
    if all(node.on_error == "fail" for node in order):
        return list(outputs), list(order), dict(models)
    return _Expansion(order, models).run(outputs)


class _Expansion:
    def __init__(self, order: Sequence[Node], models: Mapping[int, Model]) -> None:
        self._order = order
        self._models = models
        self._taken = {node.name for node in order}
        self._read = {each.id for node in order if isinstance(node.logic, DeadLetters) for each in node.inputs}
        self._found: list[Node] = []
        self._believed: dict[int, Model] = {}
        self._copies: dict[int, Node] = {}
        self._letters: dict[int, Node] = {}  # operator → what emits its letters

    def run(self, outputs: Sequence[Node]) -> tuple[list[Node], list[Node], dict[int, Model]]:
        loops: list[tuple[Loop, int]] = []
        for node in self._order:
            logic = node.logic
            if isinstance(logic, Feedback) and isinstance(logic.target, Loop) and logic.target.node is not None:
                loops.append((Loop(), logic.target.node.id))
                logic = Feedback(loops[-1][0])
            inputs = tuple(self._copies.get(each.id, each) for each in node.inputs)
            copy = dataclasses.replace(node, logic=logic, inputs=inputs)
            if isinstance(logic, DeadLetters):
                self._copies[node.id] = self._gathered(node)
            elif node.on_error == "fail":
                self._copies[node.id] = self._add(copy, self._models[node.id])
            elif is_asked(logic):
                self._copies[node.id] = self._asked_before(node, copy)
            else:
                self._copies[node.id] = self._guarded(node.id, copy, self._models[node.id])
        for loop, target in loops:
            loop.node = self._copies[target]
        return [self._copies[node.id] for node in outputs], self._found, self._believed

    def _add(self, node: Node, model: Model) -> Node:
        numbered = dataclasses.replace(node, id=len(self._found))
        self._found.append(numbered)
        self._believed[numbered.id] = model
        return numbered

    def _made(self, kind: str, name: str, logic: Any, inputs: tuple[Node, ...], like: Node, schema: Any) -> Node:
        while name in self._taken:
            name += "~"
        self._taken.add(name)
        node = Node(-1, kind, name, logic(name), inputs, schema, like.location)
        return self._add(node, analyse_with_facts(node)[0])

    def _guarded(self, number: int, node: Node, model: Model) -> Node:
        """An operator whose calls may fail; what stands for its tuples."""
        reads = number in self._read and node.on_error == "dead_letter"
        if not reads:
            said = "counted and dropped" if node.on_error == "skip" else "counted: nobody reads its dead letters"
            least = Property(
                Selectivity.AT_MOST_ONE, "a call that fails emits nothing", node.location, model.selectivity.cause
            )
            is_one = model.selectivity.value is Selectivity.ONE
            model = dataclasses.replace(model, selectivity=least if is_one else model.selectivity)
            return self._add(node, _noted(model, node, said))
        model = _noted(model, node, "a dead letter")
        emitting = dataclasses.replace(node, schema=with_letters(node.schema), columns=node.schema)
        emitting = self._letters[number] = self._add(emitting, model)
        return self._made(
            "tuples", f"{node.name}-tuples", lambda n: only_tuples(node.schema, n), (emitting,), node, node.schema
        )

    def _asked_before(self, node: Node, copy: Node) -> Node:
        model = self._models[node.id]
        if model.state.value is not State.STATELESS:
            raise ProgramError(
                f"{node.title}: on_error={node.on_error!r}: its function keeps something ({model.state.reason}), and "
                "would be called twice for each tuple. Do what may fail in a map before it"
            )
        name = f"{node.name}-checked"
        before = copy.inputs[0]
        while name in self._taken:
            name += "~"
        self._taken.add(name)
        asks = checked(copy, _asking(copy), name)
        guard = Node(-1, "checked", name, asks, (before,), before.schema, node.location, part_of=node.name)
        found = analyse_with_facts(guard)[0]
        passed = self._guarded(node.id, dataclasses.replace(guard, on_error=node.on_error), found)
        return self._add(dataclasses.replace(copy, inputs=(passed,), on_error="fail"), model)

    def _gathered(self, node: Node) -> Node:
        """What reads letters: one operator's, or those of several."""
        sources = [self._letters[each.id] for each in node.inputs if each.id in self._letters]
        if len(sources) == 1:
            self._taken.discard(node.name)
            return self._made("dead_letters", node.name, only_letters, (sources[0],), node, node.schema)
        parts = tuple(
            self._made("letters", f"{each.name}-letters", only_letters, (each,), node, node.schema) for each in sources
        )
        union = dataclasses.replace(node, logic=Union(), inputs=parts)
        return self._add(union, analyse_with_facts(union)[0])


def _noted(model: Model, node: Node, said: str) -> Model:
    note = Property("note", f"on_error={node.on_error}: a call that fails has no effect, and is {said}", node.location)
    return dataclasses.replace(model, notes=(*model.notes, note))


def _asking(node: Node) -> Any:
    """What an operator does with a tuple that may fail."""
    logic = node.logic
    if isinstance(logic, Route):
        return lambda t: route_of(logic, t)
    if isinstance(logic, Watermark):
        place = node.schema.names.index(logic.attribute)
        return lambda t: event_time_of(logic, tuple.__getitem__(t, place))
    assert isinstance(logic, Punctuate)
    return lambda t: bool(logic.function(t))
