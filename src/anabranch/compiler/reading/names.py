"""Names and constants: what a name stands for here, what assigning it changes, functions made during the call."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from anabranch.compiler.reading.reading_state import ExpressionHandlers, Reading
from anabranch.compiler.reading.values import NOTHING, UNKNOWN, Callback, LocalFunction, Value, constant, join


def not_followed(reading: Reading, node: ast.AST) -> Value:
    return reading.unknown(node, f"uses {type(node).__name__}, which is not followed")


def _read_constant(reading: Reading, node: ast.Constant) -> Value:
    return constant(node.value)


def _read_name(reading: Reading, node: ast.Name) -> Value:
    return look_up(reading, node.id, node)


def look_up(reading: Reading, name: str, node: ast.AST) -> Value:
    frame = reading.frame
    if name in frame.captured and name in frame.cells:
        return frame.cells[name]
    if name in reading.flow.variables:
        return reading.flow.variables[name]
    if name not in frame.global_names:
        outer = frame.parent
        while outer is not None:
            if name in outer.locals:
                return outer.cells.get(name, NOTHING)
            outer = outer.parent
        if name in frame.closure:
            return frame.closure[name]
    space = frame.globals
    if name in space:
        reading.facts.globals_read.add((str(space.get("__name__", "?")), name))
        return reading.shared(space[name], name, route=("global", frame.function, name))
    found = getattr(builtins, name, UNKNOWN)
    custom = space.get("__builtins__")
    if isinstance(custom, dict):
        found = custom.get(name, found)
    if found is UNKNOWN:
        if name in frame.locals:
            return NOTHING  # read before it is assigned: raises
        return reading.unknown(node, f"uses {name}, which is not defined yet")
    return reading.shared(found, name)


def assign_name(reading: Reading, name: str, value: Value, node: ast.AST) -> None:
    frame = reading.frame
    if name in frame.global_names:
        space = str(frame.globals.get("__name__", "?"))
        reading.facts.globals_written.add((space, name))
        reading.write(node, (id(frame.globals), name), name, f"assigns the global {name}")
        reading.outlives(value, name, node)
        return
    if name in frame.nonlocal_names:
        outer = frame.parent
        while outer is not None:
            if name in outer.locals:
                _join_cell(reading, outer, name, value)
                return
            outer = outer.parent
        cell = _cell(reading, frame, name)
        reading.facts.objects[id(cell)] = cell
        reading.write(node, id(cell), name, f"assigns {name} of the enclosing function")
        reading.outlives(value, name, node)
        return
    if name in frame.captured:
        _join_cell(reading, frame, name, value)
    reading.flow.variables[name] = value


def _cell(reading: Reading, frame: Any, name: str) -> Any:
    """The cell of an operator's function that holds a variable of the function around it."""
    function = frame.function
    names = function.__code__.co_freevars if function is not None else ()
    return function.__closure__[names.index(name)] if name in names else frame.closure


def _join_cell(reading: Reading, frame: Any, name: str, value: Value) -> None:
    joined = join(frame.cells.get(name, NOTHING), value)
    if joined != frame.cells.get(name):
        frame.cells[name] = joined
        reading.heap.version += 1


def _read_lambda(reading: Reading, node: ast.Lambda) -> Value:
    return local_function(reading, node)


def local_function(reading: Reading, node: Any) -> Value:
    reading.lazy = True
    arguments = node.args
    defaults: list[tuple[str, Value]] = []
    places = [*arguments.posonlyargs, *arguments.args]
    if arguments.defaults:
        for each, default in zip(places[-len(arguments.defaults) :], arguments.defaults, strict=True):
            defaults.append((each.arg, reading.evaluate(default)))
    for each, keyword in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword is not None:
            defaults.append((each.arg, reading.evaluate(keyword)))
    node.enclosing_class = getattr(node, "enclosing_class", getattr(reading.frame.node, "enclosing_class", ""))
    # One per place and enclosing function: a new one in every pass would never settle.
    place = (id(node), id(reading.frame.function))
    function = reading.local_functions.get(place)
    if function is not None:
        before = dict(function.defaults)
        defaults = [(name, join(before.get(name, NOTHING), value)) for name, value in defaults]
    if function is None or [value for _, value in function.defaults] != [value for _, value in defaults]:
        function = LocalFunction(node, reading.frame, tuple(defaults))
        reading.local_functions[place] = function
    return Value(types=frozenset({Callback}), concrete=(function,))


def _read_await(reading: Reading, node: ast.Await) -> Value:
    return join(reading.evaluate(node.value), reading.unknown(node, "awaits"))


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.Constant: _read_constant,
    ast.Name: _read_name,
    ast.Lambda: _read_lambda,
    ast.Await: _read_await,
}
