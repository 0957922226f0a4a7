"""Objects of the user's classes as plain data: for people who have state and no program, and to compare by value.

How objects are kept is `object_graph.py`; nothing is ever read back from a view.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from anabranch.program.object_filling import Reference
from anabranch.program.object_parts import attributes_of, is_plain_instance
from anabranch.program.schema import Row


@dataclasses.dataclass(frozen=True, slots=True)
class UserObject:
    """An object as data."""

    name: str
    """Its class: module and qualified name."""
    kind: str
    """``object``, ``named`` (a named tuple), ``member`` (of an enumeration) or ``flag``."""
    fields: tuple[tuple[str, Any], ...]

    def __repr__(self) -> str:
        short = self.name.rpartition(".")[2]
        if self.kind == "member":
            return f"{short}.{self.fields[0][0]}"
        return f"{short}({', '.join(f'{name}={value!r}' for name, value in self.fields)})"

    def to_parts(self) -> list[Any]:
        return [self.name, self.kind, [list(each) for each in self.fields]]

    @staticmethod
    def from_parts(parts: list[Any]) -> UserObject:
        name, kind, fields = parts
        return UserObject(name, kind, tuple((each, value) for each, value in fields))


def view_of(value: Any) -> UserObject | None:
    """An object as data; None if it is more than its fields, or none of the user's."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, enum.Flag):  # members may be combined, and then have no name of their own
        return UserObject(name, "flag", (("value", value.value),))
    if isinstance(value, enum.Enum):
        return UserObject(name, "member", ((value.name, None),))
    if isinstance(value, tuple) and hasattr(kind, "_fields") and not isinstance(value, Row):
        return UserObject(name, "named", tuple(zip(kind._fields, tuple.__iter__(value), strict=True)))
    if is_plain_instance(kind) and not isinstance(value, (list, dict, set)):
        return UserObject(name, "object", tuple(attributes_of(value)))
    return None


def view_of_graph(nodes: list[Any]) -> Any:
    """The parts of a graph as plain values: what is shared is shown where it is first met."""
    met: set[int] = set()

    def plain(each: Any) -> Any:
        if not isinstance(each, Reference) or each.number in met:
            return each
        met.add(each.number)
        anchor, kind, contents = nodes[each.number]
        if kind in ("list", "tuple", "set", "frozenset", "cell"):
            found = [plain(item) for item in contents]
            return tuple(found) if kind == "tuple" else found
        if kind in ("set with a table", "frozenset with a table"):
            return [plain(item) for item in contents[0]]
        if kind in ("dict", "OrderedDict", "Counter", "defaultdict"):
            pairs = contents[1] if kind == "defaultdict" else contents
            return {repr(plain(key)) if isinstance(key, Reference) else key: plain(item) for key, item in pairs}
        if kind == "deque":
            return [plain(item) for item in contents[1]]
        if kind in ("instance", "namespace"):
            pairs = contents[1] if kind == "instance" else contents
            fields = {name: plain(item) for name, *items in pairs for item in items}
            is_own = kind == "instance" and anchor is None
            return UserObject(contents[0], "object", tuple(fields.items())) if is_own else fields
        if kind == "named":
            return UserObject(contents[0], kind, tuple(zip(contents[2], map(plain, contents[1]), strict=True)))
        if kind == "member":
            return UserObject(contents[0], kind, ((contents[1], None),))
        return kind if kind in ("same", "class") else [kind, contents]

    return plain(Reference(0))
