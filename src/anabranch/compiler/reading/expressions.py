"""Reading expressions: what value each may have, and what evaluating it may change."""

from __future__ import annotations

import ast
import builtins
from typing import Any

from anabranch.compiler.reading.operations import Operators
from anabranch.compiler.reading.values import (
    NOTHING,
    UNKNOWN,
    Callback,
    LocalFunction,
    Value,
    constant,
    join,
)

_HANDLERS: dict[type, str] = {}


class Expressions(Operators):
    """Evaluates expressions over abstract values."""

    def evaluate(self, node: ast.expr) -> Value:
        self.step()
        kind = type(node)
        name = _HANDLERS.get(kind)
        if name is None:
            name = _HANDLERS[kind] = "_" + kind.__name__.lower()
        handler = getattr(self, name, None)
        return self._unsupported(node) if handler is None else handler(node)

    def _unsupported(self, node: ast.AST) -> Value:
        return self.unknown(node, f"uses {type(node).__name__}, which is not followed")

    # -- names and constants ------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        return self.lookup(node.id, node)

    def lookup(self, name: str, node: ast.AST) -> Value:
        frame = self.frame
        if name in frame.captured and name in frame.cells:
            return frame.cells[name]
        if name in self.flow.variables:
            return self.flow.variables[name]
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
            self.facts.globals_read.add((str(space.get("__name__", "?")), name))
            return self.shared(space[name], name, route=("global", frame.function, name))
        found = getattr(builtins, name, UNKNOWN)
        custom = space.get("__builtins__")
        if isinstance(custom, dict):
            found = custom.get(name, found)
        if found is UNKNOWN:
            if name in frame.locals:
                return NOTHING  # read before it is assigned: raises
            return self.unknown(node, f"uses {name}, which is not defined yet")
        return self.shared(found, name)

    def assign_name(self, name: str, value: Value, node: ast.AST) -> None:
        frame = self.frame
        if name in frame.global_names:
            space = str(frame.globals.get("__name__", "?"))
            self.facts.globals_written.add((space, name))
            self.write(node, (id(frame.globals), name), name, f"assigns the global {name}")
            return
        if name in frame.nonlocal_names:
            outer = frame.parent
            while outer is not None:
                if name in outer.locals:
                    self._join_cell(outer, name, value)
                    return
                outer = outer.parent
            cell = self._cell(frame, name)
            self.facts.objects[id(cell)] = cell
            self.write(node, id(cell), name, f"assigns {name} of the enclosing function")
            return
        if name in frame.captured:
            self._join_cell(frame, name, value)
        self.flow.variables[name] = value

    def _cell(self, frame: Any, name: str) -> Any:
        """The cell of an operator's function that holds a variable of the function around it."""
        function = frame.function
        names = function.__code__.co_freevars if function is not None else ()
        return function.__closure__[names.index(name)] if name in names else frame.closure

    def _join_cell(self, frame: Any, name: str, value: Value) -> None:
        joined = join(frame.cells.get(name, NOTHING), value)
        if joined != frame.cells.get(name):
            frame.cells[name] = joined
            self.heap.version += 1

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.assign_name(node.target.id, value, node)
        return value

    # -- functions and generators -------------------------------------------------------------------------

    def _lambda(self, node: ast.Lambda) -> Value:
        return self.local_function(node)

    def local_function(self, node: Any) -> Value:
        self.lazy = True
        arguments = node.args
        defaults: list[tuple[str, Value]] = []
        places = [*arguments.posonlyargs, *arguments.args]
        if arguments.defaults:
            for each, default in zip(places[-len(arguments.defaults) :], arguments.defaults, strict=True):
                defaults.append((each.arg, self.evaluate(default)))
        for each, keyword in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if keyword is not None:
                defaults.append((each.arg, self.evaluate(keyword)))
        node.enclosing_class = getattr(node, "enclosing_class", getattr(self.frame.node, "enclosing_class", ""))
        # One per place and enclosing function: a new one in every pass would never settle.
        place = (id(node), id(self.frame.function))
        function = self._local_functions.get(place)
        if function is not None:
            before = dict(function.defaults)
            defaults = [(name, join(before.get(name, NOTHING), value)) for name, value in defaults]
        if function is None or [value for _, value in function.defaults] != [value for _, value in defaults]:
            function = LocalFunction(node, self.frame, tuple(defaults))
            self._local_functions[place] = function
        return Value(types=frozenset({Callback}), concrete=(function,))

    @property
    def _local_functions(self) -> dict[tuple[int, int], LocalFunction]:
        return self.__dict__.setdefault("_kept_functions", {})

    def _await(self, node: ast.Await) -> Value:
        return self.unknown(node, "awaits")
