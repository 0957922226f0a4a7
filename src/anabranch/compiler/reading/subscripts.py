"""Indexing: of the tuple, of containers, and of dicts that are state."""

from __future__ import annotations

import ast
import collections
import types
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.attributes import Attributes
from anabranch.compiler.reading.values import (
    ANYTHING,
    NOTHING,
    PLAIN,
    PLAIN_VALUE,
    ROW_TYPES,
    TUPLE,
    UNKNOWN,
    Handle,
    Iterator,
    Plain,
    Site,
    Value,
    combined_text,
    is_scalar_type,
    join,
    scalar,
)
from anabranch.program.schema import Row


class Subscripts(Attributes):
    """Items of values."""

    def _subscript(self, node: ast.Subscript) -> Value:
        return self.subscript(self.evaluate(node.value), self.evaluate(node.slice), node)

    def _slice(self, node: ast.Slice) -> Value:
        parts = [self.evaluate(each) if each is not None else None for each in (node.lower, node.upper, node.step)]
        for part in parts:
            if part is not None and not part.is_scalar and part.types is None:
                self.unknown(node, "slices with a value of unknown type")
        texts = [part for part in parts if part is not None]
        template = ":".join("{}" if part is not None else "" for part in parts)
        return Value(types=frozenset({slice}), text=combined_text(template.rstrip(":") or ":", texts))

    def subscript(self, value: Value, index: Value, node: ast.AST) -> Value:
        """``value[index]``."""
        if value.is_nothing:
            return NOTHING
        handle = self.handle_of(value)
        if handle is not None:
            return self.entry(value, index, node, create=True)
        self._check_index(index, node)
        if value.types == ROW_TYPES:
            return self._row_item(value, index, node)
        if value.types is None:
            return self.unknown(node, "indexes a value of unknown type")
        for kind in value.types:
            plain = kind in known.MUTATORS or kind is Plain or is_scalar_type(kind)
            if not plain and not self.is_record(kind) and kind is not types.GenericAlias:
                return self.unknown(node, f"indexes a {kind.__name__}")
            if kind is collections.defaultdict:
                found = self._default_entry(value, node)
                if found is not None:
                    return found
        parts = self.heap.parts(value)
        key = index.only
        if parts is not None and isinstance(key, (str, int)) and key in parts:
            found = parts[key]
            return found
        if slice in (index.types or ()):
            kinds = frozenset(k for k in value.types if k in (list, tuple, str, bytes, Plain, bytearray)) or PLAIN
            found = Value(types=kinds, objects=value.objects)
        else:
            found = self.content(value, node)
            held: Any = value.only
            known_place = isinstance(held, known.CONTAINERS) and key is not UNKNOWN
            if value.concrete is not None and known_place:
                try:
                    found = self.shared(held[key], f"{value.path}[{key!r}]")
                except Exception:
                    found = NOTHING if not isinstance(value.only, collections.defaultdict) else found
        text = combined_text("{}[{}]", [value, index]) if value.is_scalar or TUPLE in value.objects else None
        return found.with_text(text) if text is not None else found

    def _check_index(self, index: Value, node: ast.AST) -> None:
        # The key's __hash__ and __eq__ run: they must be Python's own.
        if index.types is not None and not index.is_scalar:
            self.plain_use(index, node, "indexes with it")
        if index.types is None and not index.is_nothing:
            self.unknown(node, "indexes with a value of unknown type")
            return
        for kind in index.types or ():
            plain = is_scalar_type(kind) or kind in known.MUTATORS or kind in (Plain, slice, Row, Iterator)
            if not plain and not self.is_record(kind):
                self.unknown(node, f"indexes with a {kind.__name__}")
        self.use(index, node)

    def _default_entry(self, value: Value, node: ast.AST) -> Value | None:
        """Reading a defaultdict may create the entry."""
        made = NOTHING
        for found in value.concrete or ():
            if isinstance(found, collections.defaultdict):
                if found.default_factory is None:
                    continue
                self.mutate(value, node, "reads a defaultdict, which creates missing entries")
                made = join(made, self.call(self.shared(found.default_factory, "its factory"), [], {}, node))
        if value.concrete is None:
            self.mutate(value, node, "reads a defaultdict, which creates missing entries")
            return None
        return join(made, self.content(value, node)) if not made.is_nothing else None

    def _handles(self, value: Value, node: ast.AST) -> list[Handle] | None:
        """The dicts of state a value may be; None if it may be something else, too."""
        handles = [each for each in value.objects if isinstance(each, Handle)]
        if len(handles) != len(value.objects):
            self.unknown(node, f"cannot tell {handles[0].path} from other values")
            return None
        return handles

    def entry(self, value: Value, index: Value, node: ast.AST, create: bool, default: Value | None = None) -> Value:
        """One entry of a dict of state is read."""
        handles = self._handles(value, node)
        if handles is None:
            return ANYTHING
        self._check_index(index, node)
        result = NOTHING
        for handle in handles:
            self.access(handle, index, node)
            name = self.keyed[handle.identity]
            found = self.facts.objects[handle.identity]
            if create and isinstance(found, collections.defaultdict) and found.default_factory is not None:
                self.facts.stored.add(handle.identity)
                factory = self.shared(found.default_factory, f"the factory of {handle.path}")
                self.keep(name, self.call(factory, [], {}, node), node)
            result = join(result, self.kept(name))
            if create and isinstance(found, collections.Counter):
                result = join(result, scalar(int))
        return result if default is None else join(result, default).without_text()

    def store_entry(self, value: Value, index: Value, new: Value, node: ast.AST) -> None:
        """One entry of a dict of state is written."""
        handles = self._handles(value, node)
        if handles is None:
            return
        self._check_index(index, node)
        for handle in handles:
            self.access(handle, index, node)
            self.facts.stored.add(handle.identity)
            self.keep(self.keyed[handle.identity], new, node)

    def assign_item(self, value: Value, index: Value, new: Value, node: ast.AST) -> None:
        """``value[index] = new``."""
        if value.is_nothing:
            return
        handle = self.handle_of(value)
        if handle is not None:
            self.store_entry(value, index, new, node)
            return
        self._check_index(index, node)
        if value.types is None:
            self.unknown(node, "assigns an item of a value of unknown type")
        for kind in value.types or ():
            if kind not in known.MUTATORS and kind is not Plain and not is_scalar_type(kind) and kind is not Row:
                self.unknown(node, f"assigns an item of a {kind.__name__}")
        parts = self.heap.parts(value)
        key = index.only
        update = parts is not None and isinstance(key, (str, int)) and all(isinstance(e, Site) for e in value.objects)
        (only,) = value.objects if update else (None,)
        before = dict(parts) if update and parts is not None else {}
        self.put(value, new, node, f"assigns an item of {value.path or 'it'}")
        if slice in (index.types or ()):
            self.put(value, self.content(new, node), node, "assigns a slice")
        elif update and only is not None and isinstance(key, str) and isinstance(only, Site):
            # A dict that is filled key by key is still a display.
            self._filled(only, before, key, new)

    def _filled(self, site: Site, before: dict[str | int, Value], key: str, new: Value) -> None:
        kept = self.heap.at(site)
        if not (self.branch_depth or self.loops or kept.made_times != 1 or kept.made_in):
            # One object under this name, and the assignment always happens: the part is replaced.
            kept.parts_lost, kept.parts = False, {**before, key: new}
        elif key in before:
            kept.parts_lost, kept.parts = False, {**before, key: join(before[key], new)}

    branch_depth = 0

    def _row_item(self, value: Value, index: Value, node: ast.AST) -> Value:
        key = index.only
        names = self.schema.names if self.schema is not None else None
        original = value.objects == frozenset({TUPLE})
        if isinstance(key, str):
            return self._column_of(value, key, node) if original or self.heap.parts(value) else PLAIN_VALUE
        if isinstance(key, int) and names is not None and -len(names) <= key < len(names):
            if original:
                return self.column(names[key])
            parts = self.heap.parts(value)
            if parts is not None and names[key] in parts:
                return parts[names[key]]
        kinds = frozenset({tuple}) if slice in (index.types or ()) else PLAIN
        return Value(types=kinds, objects=value.objects, text=combined_text("{}[{}]", [value, index]))
