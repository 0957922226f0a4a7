"""Comprehensions: loops inside expressions, read until nothing new is learned."""

from __future__ import annotations

import ast
from typing import Any

from anabranch.compiler.reading.assigning import assign
from anabranch.compiler.reading.displays import iterate_over, make_object
from anabranch.compiler.reading.reading_state import ExpressionHandlers, Reading
from anabranch.compiler.reading.subscripts import check_index
from anabranch.compiler.reading.tameness import test_truth
from anabranch.compiler.reading.values import (
    NOTHING,
    Iterator,
    Types,
    Value,
    join,
    join_all,
)


def _read_listcomp(reading: Reading, node: ast.ListComp) -> Value:
    return _comprehension(reading, node, frozenset({list}), [node.elt])


def _read_setcomp(reading: Reading, node: ast.SetComp) -> Value:
    return _comprehension(reading, node, frozenset({set}), [node.elt])


def _read_generatorexp(reading: Reading, node: ast.GeneratorExp) -> Value:
    return _comprehension(reading, node, frozenset({Iterator}), [node.elt])


def _read_dictcomp(reading: Reading, node: ast.DictComp) -> Value:
    return _comprehension(reading, node, frozenset({dict}), [node.key, node.value])


def _comprehension(reading: Reading, node: Any, kinds: Types, elements: list[ast.expr]) -> Value:
    targets = {
        each.id for generator in node.generators for each in ast.walk(generator.target) if isinstance(each, ast.Name)
    }
    saved = {name: reading.flow.variables[name] for name in targets if name in reading.flow.variables}
    before = reading.flow.copy()
    content = NOTHING
    reading.loops = (*reading.loops, id(node))
    for _ in range(6):
        version, start = reading.heap.version, reading.flow.copy()
        for generator in node.generators:
            if generator.is_async:
                reading.unknown(node, "iterates asynchronously")
            assign(
                reading, generator.target, iterate_over(reading, reading.evaluate(generator.iter), generator.iter), node
            )
            for condition in generator.ifs:
                test_truth(reading, reading.evaluate(condition), condition)
        found = [reading.evaluate(element) for element in elements]
        if len(elements) == 2 or (kinds is not None and set in kinds):
            check_index(reading, found[0], node)
        new = join(content, join_all(found)).without_text()
        reading.flow = reading.flow.joined(start)
        if new == content and version == reading.heap.version and reading.flow.same_as(start):
            break
        content = new
    reading.loops = reading.loops[:-1]
    for name in targets:
        reading.flow.variables.pop(name, None)
    reading.flow.variables.update(saved)
    reading.flow.least = before.least
    if reading.flow.most > before.most:
        reading.flow.most = 2
    made = make_object(reading, node, kinds, content)
    for each in made.objects:
        reading.heap.lose_parts(each)
    return made


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.ListComp: _read_listcomp,
    ast.SetComp: _read_setcomp,
    ast.GeneratorExp: _read_generatorexp,
    ast.DictComp: _read_dictcomp,
}
