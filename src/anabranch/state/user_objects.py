"""Objects of the user's classes in state: dataclasses, named tuples, enumerations and plain objects.

They are kept as the name of their class and their fields; nothing is ever unpickled. Read back, a class is looked up
among those that the operator's own code names, and an object gets its fields without any code of its class being run.
Who reads state without the program (`read_state`, the command line) sees a `UserObject`.
"""

from __future__ import annotations

import dataclasses
import enum
from functools import cached_property
from typing import Any

from anabranch.errors import StateError
from anabranch.program.graph import Node
from anabranch.program.object_parts import attributes_of, is_plain_instance
from anabranch.program.object_reach import code_of
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


class UserClasses:
    """Turns objects of the classes that an operator's code names into classes, and back."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @cached_property
    def _classes(self) -> dict[str, type]:
        prototype = getattr(self._node.logic, "prototype", None)
        found = code_of(getattr(prototype, "target", prototype))[0]
        for field in getattr(self._node.logic, "fields", ()):
            # A class may be named by its declaration alone: as the factory, or by what it begins with.
            found |= code_of([field.default, field.factory])[0]
        for kind in type(prototype).__mro__:
            named = [each for each in vars(kind).get("__annotations__", {}).values() if isinstance(each, type)]
            named += vars(kind).get("annotated_classes", ())  # what its methods get their tuples as
            found |= code_of(named)[0]
        return found

    def of(self, value: Any) -> UserObject | None:
        """The record of an object; None if it is of no class that can be kept so."""
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(value, enum.Flag):  # members may be combined, and then have no name of their own
            found = UserObject(name, "flag", (("value", value.value),))
        elif isinstance(value, enum.Enum):
            found = UserObject(name, "member", ((value.name, None),))
        elif isinstance(value, tuple) and hasattr(kind, "_fields") and not isinstance(value, Row):
            found = UserObject(name, "named", tuple(zip(kind._fields, tuple.__iter__(value), strict=True)))
        elif is_plain_instance(kind) and not isinstance(value, (list, dict, set)):
            found = UserObject(name, "object", tuple(attributes_of(value)))
        else:
            return None
        if self._classes.get(name) is not kind:
            raise StateError(
                f"cannot keep a {name} as state: the operator's code does not name this class where it can be found "
                "again. Use it by its own name in a method of the operator, or at the top of its module."
            )
        return found

    def made(self, record: UserObject) -> Any:
        """The object of a record."""
        kind = self._classes.get(record.name)
        if kind is None:
            raise StateError(
                f"the state holds a {record.name}, a class that the operator's code does not name (any more). Give "
                "the class its old name and module, or start anew with another checkpointLocation."
            )
        if record.kind == "member":
            return self._member(kind, record)
        if record.kind == "flag":
            return kind(record.fields[0][1])
        if record.kind == "named":
            return self._named(kind, record)
        made: Any = object.__new__(kind)
        fields = dict(record.fields)
        if dataclasses.is_dataclass(kind):
            fields = self._completed(kind, fields, record)
        for name, value in fields.items():
            object.__setattr__(made, name, value)
        return made

    def _member(self, kind: Any, record: UserObject) -> Any:
        name = record.fields[0][0]
        try:
            return kind[name]
        except KeyError:
            raise StateError(f"the state holds {record.name}.{name}, which the enumeration no longer has") from None

    def _named(self, kind: Any, record: UserObject) -> Any:
        values = dict(record.fields)
        defaults = getattr(kind, "_field_defaults", {})
        unknown = values.keys() - set(kind._fields)
        missing = [name for name in kind._fields if name not in values and name not in defaults]
        if unknown or missing:
            raise self._changed(record, unknown, missing)
        return tuple.__new__(kind, [values.get(name, defaults.get(name)) for name in kind._fields])

    def _completed(self, kind: Any, values: dict[str, Any], record: UserObject) -> dict[str, Any]:
        """The fields of a dataclass, those that are new in the program with their defaults."""
        declared = {field.name: field for field in dataclasses.fields(kind)}
        has_slots = not hasattr(kind, "__dict__") or "__dict__" not in dir(kind)
        unknown = values.keys() - declared.keys() if has_slots else set()
        missing = []
        for name, field in declared.items():
            if name in values:
                continue
            if field.default is not dataclasses.MISSING:
                values[name] = field.default
            elif field.default_factory is not dataclasses.MISSING:
                values[name] = field.default_factory()
            else:
                missing.append(name)
        if unknown or missing:
            raise self._changed(record, unknown, missing)
        return values

    def _changed(self, record: UserObject, unknown: Any, missing: Any) -> StateError:
        parts = [f"the state has {', '.join(sorted(unknown))}"] if unknown else []
        parts += [f"the class now needs {', '.join(missing)}"] if missing else []
        return StateError(
            f"the fields of {record.name} have changed since its objects were kept: {'; '.join(parts)}. Give new "
            "fields a default, and keep the old ones."
        )
