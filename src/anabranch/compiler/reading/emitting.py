"""What leaves a function: returned, yielded, or given to the emit callback, and how many tuples that makes."""

from __future__ import annotations

import ast

from anabranch.compiler.reading.displays import iterate_over, tuple_parts
from anabranch.compiler.reading.facts import Emission, Kind
from anabranch.compiler.reading.frames import GeneratorMade
from anabranch.compiler.reading.reading_state import ExpressionHandlers, Reading
from anabranch.compiler.reading.tameness import plain_use
from anabranch.compiler.reading.values import ANYTHING, NONE, Callback, Iterator, Plain, Site, Value, join


def leave(reading: Reading, value: Value, node: ast.AST) -> None:
    frame = reading.frame
    let_escape(reading, value)
    frame.returned = join(frame.returned, value)
    frame.exits.append((reading.flow.copy(), value))
    reading.returns.setdefault(id(frame.node), []).append(Emission(value, reading.place(node)))
    reading.flow.alive = False


def let_escape(reading: Reading, value: Value) -> None:
    """From here on others may hold the object: what it looks like now must stay true."""
    for each in reading.heap.reach(value.objects):
        if isinstance(each, Site):
            reading.heap.at(each).made_times += 1


def hand_over(reading: Reading, value: Value, node: ast.AST) -> None:
    """The operator gives the value to the runtime, which tests it, goes through it and turns it into a tuple.

    What is returned leaves as surely as what is yielded: a dict of state must not, and special methods that run behind
    the operator's back must be Python's own.
    """
    if value.is_nothing or value.types == frozenset({Iterator}):
        return  # what comes out of a generator is handed over where it is yielded
    reading.use(value, node, how="emits it")
    if any(fact.kind is Kind.UNKNOWN for fact in reading.facts.found.values()):
        return  # that is said already, and nearer to where it began
    if value.types is not None and Callback in value.types:
        reading.unknown(node, "emits a function")
        return
    plain_use(reading, value, node, "emits it")


def _read_yield(reading: Reading, node: ast.Yield) -> Value:
    value = reading.evaluate(node.value) if node.value is not None else NONE
    _yielded(reading, value, node)
    return join(NONE, reading.sent)  # nobody sends into an operator, but it may send into generators of its own


def _yielded(reading: Reading, value: Value, node: ast.AST, least: int = 1, most: int = 1) -> None:
    if len(reading.active) <= 1:
        hand_over(reading, value, node)
    else:
        reading.use(value, node, how="emits it")
    let_escape(reading, value)
    reading.frame.yields.append(Emission(value, reading.place(node)))
    reading.flow.emit(least, most)


def emit_value(reading: Reading, value: Value, node: ast.AST) -> None:
    """The emit callback is called."""
    hand_over(reading, value, node)
    let_escape(reading, value)
    reading.facts.emissions.append(Emission(value, reading.place(node)))
    if reading.frame.is_generator:
        reading.emits_from_generator = True
    reading.flow.emit()


def _read_yieldfrom(reading: Reading, node: ast.YieldFrom) -> Value:
    value = reading.evaluate(node.value)
    made = _generator_of(reading, value)
    for least, most, emissions in count_elements(reading, value, node):
        for each in emissions:
            reading.frame.yields.append(each)
        reading.flow.emit(least, most)
        break
    if made is not None:
        return made.returned
    # A container returns None; an iterator whose end is not known, anything.
    known_end = value.types is not None and not value.types & {Iterator, Plain}
    return NONE if known_end else ANYTHING


def _generator_of(reading: Reading, value: Value) -> GeneratorMade | None:
    if value.types == frozenset({Iterator}) and len(value.objects) == 1:
        (only,) = value.objects
        if isinstance(only, Site):
            return reading.generators.get(only)
    return None


def count_elements(reading: Reading, value: Value, node: ast.AST) -> list[tuple[int, int, list[Emission]]]:
    """How many elements going through a value gives, and which: (least, most, elements)."""
    if value.is_nothing:
        return [(0, 0, [])]
    made = _generator_of(reading, value)
    if made is not None:
        return [(made.least, made.most, made.yields)]
    parts = tuple_parts(reading, value)
    if parts is not None and value.types in (frozenset({list}), frozenset({tuple})):
        for part in parts:
            reading.use(part, node, how="emits it")
        place = reading.place(node)
        return [(min(2, len(parts)), min(2, len(parts)), [Emission(part, place) for part in parts])]
    inside = iterate_over(reading, value, node)
    reading.use(inside, node, how="emits it")
    return [(0, 2, [Emission(inside, reading.place(node))])]


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.Yield: _read_yield,
    ast.YieldFrom: _read_yieldfrom,
}
