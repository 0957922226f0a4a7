"""The objects that code makes while it is read, and what may be inside each: joined over everything put there."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from anabranch.compiler.reading.values import LOST, NOTHING, Kept, Object, Site, Value, join


@dataclasses.dataclass
class HeapObject:
    """What may be inside an object: elements and attributes, joined over everything put there."""

    content: Value = NOTHING
    #: Of the content: what is under a constant key or place, and what may be anywhere.
    items: dict[str | int, Value] = dataclasses.field(default_factory=dict)
    loose: Value = NOTHING
    attributes: dict[str, Value] = dataclasses.field(default_factory=dict)
    #: The parts of a tuple, dict or record display, while nothing has changed it.
    parts: dict[str | int, Value] | None = None
    parts_lost: bool = False
    #: Where it was put into something else: an object in two places of the state loses that on a restart.
    stored_at: set[tuple[Any, ...]] = dataclasses.field(default_factory=set)
    kinds: set[type] = dataclasses.field(default_factory=set)
    made_in: tuple[int, ...] = ()
    made_pass: int = 0
    made_times: int = 0


class Heap:
    """The objects made during a call, and what the key's state holds."""

    def __init__(self) -> None:
        self.objects: dict[Object, HeapObject] = {}
        self.version = 0

    def at(self, key: Object) -> HeapObject:
        found = self.objects.get(key)
        if found is None:
            found = self.objects[key] = HeapObject()
        return found

    def put(self, key: Object, value: Value, at: str | int | None = None) -> None:
        """Something is put into the object: under a constant key or place, or nobody knows where."""
        kept = self.at(key)
        value = value.without_text()
        joined = join(kept.content, value)
        if joined is not kept.content and joined != kept.content:
            kept.content = joined
            self.version += 1
        before = kept.loose if at is None else kept.items.get(at, NOTHING)
        joined = join(before, value)
        if joined is not before and joined != before:
            self.version += 1
            if at is None:
                kept.loose = joined
            else:
                kept.items[at] = joined

    def mix(self, key: Object) -> None:
        """What is in the object may have changed places."""
        kept = self.at(key)
        if kept.loose != kept.content:
            kept.loose = kept.content
            self.version += 1

    def item(self, value: Value, at: str | int) -> Value | None:
        """What a value made during the calls holds under a constant key or place; None if that is not known."""
        found = NOTHING
        for each in value.objects:
            if not isinstance(each, (Site, Kept)) or each not in self.objects:
                return None
            kept = self.objects[each]
            found = join(found, join(kept.items.get(at, NOTHING), kept.loose))
        return None if found.is_nothing else found

    def put_attribute(self, key: Object, name: str, value: Value) -> None:
        kept = self.at(key)
        joined = join(kept.attributes.get(name, NOTHING), value)
        if joined != kept.attributes.get(name):
            kept.attributes[name] = joined
            self.version += 1

    def set_parts(self, key: Object, parts: Mapping[Any, Value]) -> None:
        """The object is a display with these parts (joined if it was made here before)."""
        kept = self.at(key)
        if kept.parts_lost:
            return
        if kept.parts is None:
            kept.parts = dict(parts)
        elif kept.parts.keys() != parts.keys():
            self.lose_parts(key)
        else:
            kept.parts = {name: join(kept.parts[name], value) for name, value in parts.items()}

    def lose_parts(self, key: Object) -> None:
        kept = self.at(key)
        kept.parts, kept.parts_lost = None, True

    def parts(self, value: Value) -> dict[str | int, Value] | None:
        """The parts of a value that is a display, or None."""
        if len(value.objects) == 1:
            (only,) = value.objects
            if only in self.objects:
                return self.objects[only].parts
        return None

    def reach(self, start: Iterable[Object]) -> set[Object]:
        """Everything that can be reached from these objects."""
        found: set[Object] = set()
        waiting = list(start)
        if LOST in self.objects:
            waiting.append(LOST)
        while waiting:
            at = waiting.pop()
            if at in found:
                continue
            found.add(at)
            kept = self.objects.get(at)
            if kept is not None:
                waiting.extend(kept.content.objects)
                for value in kept.attributes.values():
                    waiting.extend(value.objects)
        return found
