"""Making containers: displays, comprehensions, texts; and going through them."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.subscripts import Subscripts
from anabranch.compiler.reading.values import (
    ANYTHING,
    NOTHING,
    PLAIN_VALUE,
    ROW_TYPES,
    TUPLE,
    BoundMethod,
    Callback,
    Iterator,
    Kept,
    LocalFunction,
    Plain,
    Site,
    Types,
    Value,
    combined_text,
    constant,
    is_scalar_type,
    join,
    join_all,
    scalar,
)
from anabranch.program.schema import Row


class Displays(Subscripts):
    """New objects, and what is inside values."""

    def make(self, node: ast.AST, kinds: Types, content: Value, role: str = "") -> Value:
        """A new object, named by the node that makes it."""
        site = Site(id(node), role)
        kept = self.heap.at(site)
        kept.made_in = self.loops
        kept.kinds |= kinds or {object}
        if kinds is None or Iterator in kinds:
            self.lazy = True
        self.heap.put(site, content)
        self.stored(content, node)
        return Value(types=kinds, objects=frozenset({site}))

    def display(self, node: ast.AST, kinds: Types, parts: Mapping[Any, Value], role: str = "") -> Value:
        made = self.make(node, kinds, join_all(parts.values()), role)
        (site,) = made.objects
        kept = self.heap.at(site)
        if kept.made_pass != self.passes:
            # Made anew: what was lost was lost on the object of an earlier pass over this code.
            kept.parts, kept.parts_lost, kept.made_pass, kept.made_times = None, False, self.passes, 0
        kept.made_times += 1
        self.heap.set_parts(site, parts)
        return made

    def _tuple(self, node: ast.Tuple) -> Value:
        return self._sequence(node, node.elts, frozenset({tuple}))

    def _list(self, node: ast.List) -> Value:
        return self._sequence(node, node.elts, frozenset({list}))

    def _set(self, node: ast.Set) -> Value:
        value = self._sequence(node, node.elts, frozenset({set}))
        for each in value.objects:
            self.heap.lose_parts(each)
        return value

    def _sequence(self, node: ast.expr, elements: list[ast.expr], kinds: Types) -> Value:
        parts: dict[str | int, Value] = {}
        starred, extra = False, NOTHING
        for element in elements:
            if isinstance(element, ast.Starred):
                inner = self.evaluate(element.value)
                shape = self.tuple_parts(inner)
                if shape is not None and not starred:
                    for part in shape:
                        parts[len(parts)] = part
                    continue
                starred = True
                extra = join(extra, self.iterate(inner, element))
            else:
                parts[len(parts)] = self.evaluate(element)
        if starred:
            made = self.make(node, kinds, join(extra, join_all(parts.values())))
            (site,) = made.objects
            self.heap.lose_parts(site)
            return made
        made = self.display(node, kinds, parts)
        for part in parts.values():
            self.use(part, node, how="puts it into a display") if kinds and set in kinds else None
        if kinds is not None and tuple in kinds:
            ordered = [parts[place] for place in range(len(parts))]
            template = "(" + ", ".join(["{}"] * len(ordered)) + ("," if len(ordered) == 1 else "") + ")"
            text = combined_text(template, ordered)
            if text is not None:
                made = made.with_text(text)
            if all(part.is_scalar for part in ordered) and ordered:
                return made
        return made

    def tuple_parts(self, value: Value) -> list[Value] | None:
        """The elements of a tuple or list of known length, in order."""
        if value.objects == frozenset({TUPLE}) and value.types == ROW_TYPES and self.schema is not None:
            return [self.column(name) for name in self.schema.names]
        parts = self.heap.parts(value)
        if parts is None or value.types is None:
            return None
        if value.types == ROW_TYPES and self.schema is not None:
            return [parts[name] for name in self.schema.names if name in parts]
        if value.types <= {tuple, list} and all(isinstance(name, int) for name in parts):
            return [parts[place] for place in range(len(parts))]
        if value.types and all(self.is_record(kind) for kind in value.types):
            return list(parts.values())
        return None

    def _dict(self, node: ast.Dict) -> Value:
        parts: dict[str | int, Value] = {}
        exact, extra = True, NOTHING
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.evaluate(item)
            if key is None:
                shape = self.heap.parts(value)
                if shape is not None and all(isinstance(name, str) for name in shape):
                    parts.update(shape)
                else:
                    exact = False
                    extra = join(extra, self.content(value, node))
                continue
            name = self.evaluate(key)
            self._check_index(name, node)
            if isinstance(name.only, str):
                parts[name.only] = value
            else:
                exact = False
                extra = join(extra, join(value, name))
        if exact:
            return self.display(node, frozenset({dict}), parts)
        made = self.make(node, frozenset({dict}), join(extra, join_all(parts.values())))
        (site,) = made.objects
        self.heap.lose_parts(site)
        return made

    def _joinedstr(self, node: ast.JoinedStr) -> Value:
        pieces, template = [], []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.evaluate(part.value)
                self.show(value, part)
                template.append("{{{{!s}}}}")
                pieces.append(value)
                if part.format_spec is not None:
                    self.evaluate(part.format_spec)
            elif isinstance(part, ast.Constant):
                pieces.append(constant(part.value))
        simple = all(
            not isinstance(p, ast.FormattedValue) or (p.format_spec is None and p.conversion == -1) for p in node.values
        )
        text = None
        if simple and pieces:
            text = combined_text("''.join((" + " ".join(["format({}),"] * len(pieces)) + "))", pieces)
        return scalar(str, text=text)

    def _formattedvalue(self, node: ast.FormattedValue) -> Value:
        self.show(self.evaluate(node.value), node)
        return scalar(str)

    def show(self, value: Value, node: ast.AST) -> None:
        """The value is turned into text: its __str__ or __format__ runs."""
        self.plain_use(value, node, "turns it into text")
        if self.holds_unordered(value):
            self.impure(node, "shows a set, whose order differs from process to process")

    def holds_unordered(self, value: Value) -> bool:
        kinds = set(value.types or ())
        for each in self.heap.reach(value.objects):
            if isinstance(each, (Site, Kept)):
                kinds |= set(self.heap.at(each).content.types or ())
        return bool(kinds & known.UNORDERED)

    def plain_use(self, value: Value, node: ast.AST, how: str) -> None:
        """Python runs special methods of the value: they must be Python's own."""
        self.use(value, node, how=how)
        if value.is_nothing:
            return
        if value.types is None or value.foreign:
            self.unknown(node, f"{how}: a value of unknown type")
            return
        for kind in value.types:
            if not self.is_tame(kind):
                self.unknown(node, f"{how}: a {kind.__name__} may have its own special methods")
                return
        if not value.objects:
            return
        # Comparing, hashing or showing a container does so with what is in it.
        for each in self.heap.reach(value.objects):
            if isinstance(each, (Site, Kept)) and not self._is_tame_inside(each):
                self.unknown(node, f"{how}: what is in it may have its own special methods")
                return

    def _is_tame_inside(self, place: Site | Kept) -> bool:
        kept = self.heap.at(place)
        for inside in (kept.content, *kept.attributes.values()):
            if inside.is_nothing:
                continue
            if inside.types is None or inside.foreign:
                return False
            if not all(self.is_tame(kind) or kind is Callback for kind in inside.types):
                return False
        return True

    def is_tame(self, kind: type) -> bool:
        """The special methods of this type are Python's own and change nothing."""
        if kind in known.MUTATORS or kind in (Plain, Row, slice, Iterator) or is_scalar_type(kind):
            return True
        return self.is_record(kind)

    def _listcomp(self, node: ast.ListComp) -> Value:
        return self._comprehension(node, frozenset({list}), [node.elt])

    def _setcomp(self, node: ast.SetComp) -> Value:
        return self._comprehension(node, frozenset({set}), [node.elt])

    def _generatorexp(self, node: ast.GeneratorExp) -> Value:
        return self._comprehension(node, frozenset({Iterator}), [node.elt])

    def _dictcomp(self, node: ast.DictComp) -> Value:
        return self._comprehension(node, frozenset({dict}), [node.key, node.value])

    def _comprehension(self, node: Any, kinds: Types, elements: list[ast.expr]) -> Value:
        targets = {
            each.id
            for generator in node.generators
            for each in ast.walk(generator.target)
            if isinstance(each, ast.Name)
        }
        saved = {name: self.flow.variables[name] for name in targets if name in self.flow.variables}
        before = self.flow.copy()
        content = NOTHING
        self.loops = (*self.loops, id(node))
        for _ in range(6):
            version, start = self.heap.version, self.flow.copy()
            for generator in node.generators:
                if generator.is_async:
                    self.unknown(node, "iterates asynchronously")
                self.assign(generator.target, self.iterate(self.evaluate(generator.iter), generator.iter), node)
                for condition in generator.ifs:
                    self.truth(self.evaluate(condition), condition)
            found = [self.evaluate(element) for element in elements]
            if len(elements) == 2 or (kinds is not None and set in kinds):
                self._check_index(found[0], node)
            new = join(content, join_all(found)).without_text()
            self.flow = self.flow.joined(start)
            if new == content and version == self.heap.version and self.flow.same_as(start):
                break
            content = new
        self.loops = self.loops[:-1]
        for name in targets:
            self.flow.variables.pop(name, None)
        self.flow.variables.update(saved)
        self.flow.least = before.least
        if self.flow.most > before.most:
            self.flow.most = 2
        made = self.make(node, kinds, content)
        for each in made.objects:
            self.heap.lose_parts(each)
        return made

    def iterate(self, value: Value, node: ast.AST) -> Value:
        """One element of a value that is gone through."""
        if value.is_nothing:
            return NOTHING
        self.use(value, node, shallow=True, how="goes through it")
        if value.types is None:
            return self.unknown(node, "goes through a value of unknown type")
        for found in value.concrete or ():
            if isinstance(found, (LocalFunction, BoundMethod)):
                return self.unknown(node, "goes through a function")
            if not isinstance(found, known.REITERABLE) and not self.is_record(type(found)):
                if isinstance(found, type) and issubclass(found, known.ENUM):
                    return Value(types=frozenset({found}))
                self.mutate(value, node, "goes through a shared iterator")
                if not isinstance(found, types.GeneratorType) and type(found).__module__ not in (
                    "builtins",
                    "itertools",
                ):
                    return self.unknown(node, f"goes through a {type(found).__name__}")
        for kind in value.types:
            if kind in known.UNORDERED:
                self._unordered(value, node)
            elif not self.is_tame(kind):
                return self.unknown(node, f"goes through a {kind.__name__}")
        if Iterator in value.types:
            self.mutate(value, node, "goes through an iterator")
        found = self.content(value, node)
        if any(isinstance(kind, type) and issubclass(kind, dict) for kind in value.types):
            found = self._keys(value, found)
        if value.types == ROW_TYPES and self.schema is not None and value.objects == frozenset({TUPLE}):
            return join_all(self.column(name) for name in self.schema.names).without_text()
        return found

    def _keys(self, value: Value, found: Value) -> Value:
        parts = self.heap.parts(value)
        if parts is not None and all(isinstance(name, str) for name in parts):
            return scalar(str)
        if value.concrete is not None and all(isinstance(each, dict) for each in value.concrete):
            kinds = frozenset(type(key) for each in value.concrete for key in each)
            if all(is_scalar_type(kind) for kind in kinds):
                return Value(types=kinds)
        return join(found, PLAIN_VALUE)

    def _unordered(self, value: Value, node: ast.AST) -> None:
        inside = NOTHING
        for each in value.objects:
            if isinstance(each, Site):
                inside = join(inside, self.heap.at(each).content)
            else:
                inside = ANYTHING
        numbers = inside.types is not None and inside.types <= {int, float, bool}
        if not numbers:
            self.impure(node, "goes through a set, whose order differs from process to process")
