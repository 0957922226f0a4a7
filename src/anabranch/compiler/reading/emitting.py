"""What leaves a function: returned, yielded, or given to the emit callback, and how many tuples that makes."""

from __future__ import annotations

import ast

from anabranch.compiler.reading.calls import Calls
from anabranch.compiler.reading.facts import Emission
from anabranch.compiler.reading.values import NONE, PLAIN_VALUE, Iterator, Site, Value, join


class Emitting(Calls):
    """Follows values out of the function that is read."""

    @property
    def returns(self) -> dict[int, list[Emission]]:
        """What each function returned, by its tree."""
        return self.__dict__.setdefault("_returns", {})

    def _leave(self, value: Value, node: ast.AST) -> None:
        frame = self.frame
        self.escaped(value)
        frame.returned = join(frame.returned, value)
        frame.exits.append((self.flow.copy(), value))
        self.returns.setdefault(id(frame.node), []).append(Emission(value, self.place(node)))
        self.flow.alive = False

    def escaped(self, value: Value) -> None:
        """From here on others may hold the object: what it looks like now must stay true."""
        for each in self.heap.reach(value.objects):
            if isinstance(each, Site):
                self.heap.at(each).made_times += 1

    def _yield(self, node: ast.Yield) -> Value:
        value = self.evaluate(node.value) if node.value is not None else NONE
        self._yielded(value, node)
        return NONE  # nobody sends into an operator

    def _yielded(self, value: Value, node: ast.AST, least: int = 1, most: int = 1) -> None:
        self.use(value, node, how="emits it")
        self.escaped(value)
        self.frame.yields.append(Emission(value, self.place(node)))
        self.flow.emit(least, most)

    def emitted(self, value: Value, node: ast.AST) -> None:
        """The emit callback is called."""
        self.use(value, node, how="emits it")
        self.escaped(value)
        self.facts.emissions.append(Emission(value, self.place(node)))
        if self.frame.is_generator:
            self.emits_from_generator = True
        self.flow.emit()

    emits_from_generator = False

    def _yieldfrom(self, node: ast.YieldFrom) -> Value:
        value = self.evaluate(node.value)
        for least, most, emissions in self.counted(value, node):
            for each in emissions:
                self.frame.yields.append(each)
            self.flow.emit(least, most)
            break
        return PLAIN_VALUE

    def counted(self, value: Value, node: ast.AST) -> list[tuple[int, int, list[Emission]]]:
        """How many elements going through a value gives, and which: (least, most, elements)."""
        if value.is_nothing:
            return [(0, 0, [])]
        if value.types is not None and len(value.objects) == 1:
            (only,) = value.objects
            if isinstance(only, Site) and only in self.generators and value.types == frozenset({Iterator}):
                return [self.generators[only]]
        parts = self.tuple_parts(value)
        if parts is not None and value.types in (frozenset({list}), frozenset({tuple})):
            for part in parts:
                self.use(part, node, how="emits it")
            place = self.place(node)
            return [(min(2, len(parts)), min(2, len(parts)), [Emission(part, place) for part in parts])]
        inside = self.iterate(value, node)
        self.use(inside, node, how="emits it")
        return [(0, 2, [Emission(inside, self.place(node))])]
