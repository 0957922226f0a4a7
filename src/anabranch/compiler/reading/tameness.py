"""Whether special methods of a value are Python's own: what runs when a value is shown, compared, hashed or tested."""

from __future__ import annotations

import ast
import types

from anabranch.compiler.reading import known
from anabranch.compiler.reading.kinds import is_plain_class, is_record, static_attribute
from anabranch.compiler.reading.reading_state import Reading
from anabranch.compiler.reading.values import (
    SCALARS,
    BoundMethod,
    Callback,
    Handle,
    Iterator,
    Kept,
    LocalFunction,
    Plain,
    Site,
    Value,
    is_scalar_type,
)
from anabranch.program.schema import Row


def show_value(reading: Reading, value: Value, node: ast.AST) -> None:
    """The value is turned into text: its __str__ or __format__ runs."""
    plain_use(reading, value, node, "turns it into text")
    if holds_unordered(reading, value):
        reading.impure(node, "shows a set, whose order differs from process to process")


def holds_unordered(reading: Reading, value: Value) -> bool:
    kinds = set(value.types or ())
    for each in reading.heap.reach(value.objects):
        if isinstance(each, (Site, Kept)):
            kinds |= set(reading.heap.at(each).content.types or ())
    return bool(kinds & known.UNORDERED)


def plain_use(reading: Reading, value: Value, node: ast.AST, how: str) -> None:
    """Python runs special methods of the value: they must be Python's own."""
    if not value.objects and value.types is not None and value.types <= SCALARS and not value.foreign:
        return  # most values that are used are such
    reading.use(value, node, how=how)
    if value.is_nothing:
        return
    if value.types is None or value.foreign:
        reading.unknown(node, f"{how}: a value of unknown type")
        return
    if not value.objects and value.types and all(issubclass(kind, BaseException) for kind in value.types):
        # One that was caught: a text, unless something odd was raised (`read_operator` looks at the end).
        reading.caught_used.append((reading.place(node), how))
        return
    for kind in value.types:
        if not is_tame(reading, kind):
            reading.unknown(node, f"{how}: a {kind.__name__} may have its own special methods")
            return
    if not value.objects:
        return
    # Comparing, hashing or showing a container does so with what is in it.
    for each in reading.heap.reach(value.objects):
        if isinstance(each, (Site, Kept)) and not _is_tame_inside(reading, each):
            reading.unknown(node, f"{how}: what is in it may have its own special methods")
            return


def _is_tame_inside(reading: Reading, place: Site | Kept) -> bool:
    kept = reading.heap.at(place)
    for inside in (kept.content, *kept.attributes.values()):
        if inside.is_nothing:
            continue
        if inside.types is None or inside.foreign:
            return False
        if not all(is_tame(reading, kind) or kind is Callback for kind in inside.types):
            return False
    return True


def is_tame(reading: Reading, kind: type) -> bool:
    """The special methods of this type are Python's own and change nothing."""
    if kind in known.MUTATORS or kind in (Plain, Row, slice, Iterator) or is_scalar_type(kind):
        return True
    return is_record(kind)


def test_truth(reading: Reading, value: Value, node: ast.AST) -> None:
    """The value is tested: its __bool__ or __len__ runs."""
    for each in value.objects:
        if isinstance(each, Handle):
            reading.whole(each, node, "tests if it is empty")
    if value.is_nothing or value.concrete is not None:
        for found in value.concrete or ():
            kind = type(found)
            for name in ("__bool__", "__len__"):
                if isinstance(static_attribute(kind, name), types.FunctionType) and not isinstance(
                    found, (LocalFunction, BoundMethod)
                ):
                    reading.unknown(node, f"tests a {kind.__name__}, which has its own {name}")
        return
    if value.types is None:
        reading.unknown(node, "tests a value of unknown type")
        return
    for kind in value.types:
        own = any(isinstance(static_attribute(kind, name), types.FunctionType) for name in ("__bool__", "__len__"))
        if not is_tame(reading, kind) and kind is not Callback and (own or not is_plain_class(kind)):
            reading.unknown(node, f"tests a {kind.__name__}")
