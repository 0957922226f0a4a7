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
from anabranch.state.records import Shape


@dataclasses.dataclass(frozen=True, slots=True)
class UserObject:
    """An object as data."""

    name: str
    """Its class: module and qualified name."""
    kind: str
    """``object``, ``data`` (a dataclass), ``named`` (a named tuple), ``member`` (of an enumeration) or ``flag``."""
    fields: tuple[tuple[str, Any], ...]
    more: tuple[tuple[str, Any], ...] = ()
    """Of a dataclass: attributes that are no fields of it."""

    def __getitem__(self, name: str) -> Any:
        """A field, for a migration of objects whose class is no more."""
        return dict(self.fields)[name]

    def __repr__(self) -> str:
        short = self.name.rpartition(".")[2]
        if self.kind == "member":
            return f"{short}.{self.fields[0][0]}"
        return f"{short}({', '.join(f'{name}={value!r}' for name, value in (*self.fields, *self.more))})"

    def to_parts(self) -> list[Any]:
        parts = [self.name, self.kind, [list(each) for each in self.fields]]
        return [*parts, [list(each) for each in self.more]] if self.more else parts

    @staticmethod
    def from_parts(parts: list[Any]) -> UserObject:
        name, kind, *pairs = parts
        return UserObject(name, kind, *(tuple((each, value) for each, value in some) for some in pairs))


class UserClasses:
    """Turns objects of the classes that an operator's code names into records, and back.

    A lenient one gives the record of what cannot be made any more: to a migration.
    """

    def __init__(self, node: Node, *, is_lenient: bool = False) -> None:
        self._node = node
        self._is_lenient = is_lenient
        self._checked: dict[Shape, type] = {}
        self.kept: set[Shape] = set()
        """What there was of which class."""
        measures = getattr(getattr(getattr(node.logic, "prototype", None), "shape", None), "measures", ())
        self.sets_in_any_order = bool(measures) and all(name for name, _, _ in measures)
        """Nobody sees in which order sets hold their members: aggregations of the library only count them."""

    @cached_property
    def _classes(self) -> dict[str, type]:
        prototype = getattr(self._node.logic, "prototype", None)
        within: list[Any] = getattr(prototype, "operators_within", list)()  # of operators that share state
        found = code_of([getattr(prototype, "target", prototype), *within])[0]
        for field in getattr(self._node.logic, "fields", ()):
            # A class may be named by its declaration alone: as the factory, or by what it begins with.
            found |= code_of([field.default, field.factory])[0]
        for kind in [kind for each in (prototype, *within) for kind in type(each).__mro__]:
            named = [each for each in vars(kind).get("__annotations__", {}).values() if isinstance(each, type)]
            named += vars(kind).get("annotated_classes", ())  # what its methods get their tuples as
            found |= code_of(named)[0]
        return found

    @property
    def classes(self) -> dict[str, type]:
        """Those classes, by name."""
        return self._classes

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
            found = _of_instance(name, kind, value)
        else:
            return None
        if self._classes.get(name) is not kind:
            raise StateError(
                f"cannot keep a {name} as state: the operator's code does not name this class where it can be found "
                "again. Use it by its own name in a method of the operator, or at the top of its module."
            )
        # The attributes of other objects are as they are: nothing is asked of them.
        self.kept.add((name, found.kind, () if found.kind in ("object", "flag") else _names(found)))
        return found

    def refusal(self, shape: Shape) -> str | None:
        """Why objects of such a class cannot be made any more; None: they can."""
        name, kind, fields = shape
        try:
            self._check(UserObject(name, kind, tuple((each, None) for each in fields)))
        except StateError as problem:
            return str(problem)
        return None

    def _check(self, record: UserObject) -> type:
        """The class of a record; StateError if its objects cannot be made of it."""
        shape = (record.name, record.kind, _names(record))
        if shape not in self._checked:
            self._checked[shape] = self._class_of(record)
        return self._checked[shape]

    def _class_of(self, record: UserObject) -> type:
        kind: Any = self._classes.get(record.name)
        if kind is None:
            raise StateError(
                f"the state holds a {record.name}, a class that the operator's code does not name (any more). Give "
                "the class its old name and module, or say what becomes of it: process(…, version=2, migrate=…)."
            )
        if record.kind == "member" and record.fields[0][0] not in kind.__members__:
            raise StateError(
                f"the state holds {record.name}.{record.fields[0][0]}, which the enumeration no longer has. Keep the "
                "member, or say what becomes of it: process(…, version=2, migrate=…)."
            )
        missing = [name for name in _needed(kind, record.kind) if name not in dict(record.fields)]
        if missing:
            raise StateError(
                f"the fields of {record.name} have changed since its objects were kept: the class now needs "
                f"{', '.join(missing)}. Give new fields a default, or say what they are: process(…, version=2, "
                "migrate=…)."
            )
        return kind

    def made(self, record: UserObject) -> Any:
        """The object of a record. Fields that its class has no more are left behind."""
        try:
            kind: Any = self._check(record)
        except StateError:
            if self._is_lenient:
                return record
            raise
        if record.kind == "member":
            return kind[record.fields[0][0]]
        if record.kind == "flag":
            return kind(record.fields[0][1])
        if record.kind == "named":
            values, defaults = dict(record.fields), getattr(kind, "_field_defaults", {})
            return tuple.__new__(kind, [values.get(name, defaults.get(name)) for name in kind._fields])
        made: Any = object.__new__(kind)
        for name, value in _attributes(kind, record).items():
            object.__setattr__(made, name, value)
        return made


def _names(record: UserObject) -> tuple[str, ...]:
    return tuple(name for name, _ in record.fields)


def _of_instance(name: str, kind: type, value: Any) -> UserObject:
    """The record of an object; a dataclass has fields, and perhaps attributes that are none."""
    held = tuple((each, found) for each, found in attributes_of(value))
    if not dataclasses.is_dataclass(kind):
        return UserObject(name, "object", held)
    declared = {field.name for field in dataclasses.fields(kind)}
    fields = tuple(each for each in held if each[0] in declared)
    if any(one is not other for one, other in zip(held, fields, strict=False)):  # they would come back in another order
        return UserObject(name, "object", held)
    return UserObject(name, "data", fields, held[len(fields) :])


def _needed(kind: Any, how: str) -> list[str]:
    """The fields that an object of a class cannot be without."""
    if how == "named":
        return [name for name in kind._fields if name not in getattr(kind, "_field_defaults", {})]
    if how in ("object", "data") and dataclasses.is_dataclass(kind):
        none = dataclasses.MISSING
        return [f.name for f in dataclasses.fields(kind) if f.default is none and f.default_factory is none]
    return []


def _attributes(kind: Any, record: UserObject) -> dict[str, Any]:
    """What an object is to hold: fields that are new in the program with their defaults."""
    values = dict(record.fields)
    if not dataclasses.is_dataclass(kind):
        return values
    declared = {field.name: field for field in dataclasses.fields(kind)}
    has_slots = not hasattr(kind, "__dict__") or "__dict__" not in dir(kind)
    if record.kind == "data" or has_slots:
        values = {name: value for name, value in values.items() if name in declared}
    for name, field in declared.items():
        if name not in values:
            factory: Any = field.default_factory
            values[name] = field.default if field.default is not dataclasses.MISSING else factory()
    return values | dict(record.more)
