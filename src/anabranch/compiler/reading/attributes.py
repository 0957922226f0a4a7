"""Attributes: of the tuple, of objects, classes and modules, and of values made during the call."""

from __future__ import annotations

import abc
import ast
import dataclasses
import inspect
import types
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.context import Context, static_attribute
from anabranch.compiler.reading.source_code import mangled
from anabranch.compiler.reading.values import (
    ANYTHING,
    NOTHING,
    PLAIN,
    PLAIN_VALUE,
    ROW_TYPES,
    TUPLE,
    UNKNOWN,
    BoundMethod,
    Callback,
    Iterator,
    Kept,
    LocalFunction,
    NoneType,
    Plain,
    Site,
    SuperProxy,
    Value,
    combined_text,
    constant,
    is_scalar_type,
    join,
    join_all,
    scalar,
)
from anabranch.program.schema import Row


class Attributes(Context):
    """Attributes of values."""

    def _attribute(self, node: ast.Attribute) -> Value:
        return self.attribute(self.evaluate(node.value), mangled(node.attr, self.frame.node), node)

    def attribute(self, value: Value, name: str, node: ast.AST) -> Value:
        """The attribute of a value."""
        if value.is_nothing:
            return NOTHING
        if value.types == ROW_TYPES:
            return self._column_of(value, name, node)
        if self.handle_of(value) is not None:
            return self._bound(value, name)
        if value.concrete is not None and not value.is_scalar:
            return join_all(self._attribute_of_known(value, each, name, node) for each in value.concrete)
        if value.types is None:
            return self.unknown(node, f"reads .{name} of a value of unknown type")
        found = NOTHING
        for kind in value.types:
            found = join(found, self._attribute_of_type(value, kind, name, node))
        return found

    def _column_of(self, value: Value, name: str, node: ast.AST) -> Value:
        parts = self.heap.parts(value)
        if parts is not None and name in parts:
            return parts[name]
        if TUPLE in value.objects and len(value.objects) == 1:
            if self.schema is not None and name in self.schema and not name.startswith("__"):
                return self.column(name)
            if self.schema is None and name not in ("but", "asDict", "count", "index"):
                return self.column(name)
        if hasattr(Row, name) and not name.startswith("_"):
            return self._bound(value, name)
        if name == "_fields" and self.schema is not None:
            return constant(self.schema.names)
        if self.schema is not None and TUPLE in value.objects and len(value.objects) == 1:
            return NOTHING  # raises: there is no such column
        return Value(types=PLAIN, objects=value.objects)

    def _bound(self, receiver: Value, name: str, function: Any = None) -> Value:
        method = BoundMethod(receiver, name, function)
        return Value(types=frozenset({Callback}), objects=receiver.objects, concrete=(method,))

    def _attribute_of_known(self, value: Value, found: Any, name: str, node: ast.AST) -> Value:
        if isinstance(found, SuperProxy):
            return self._attribute_of_super(found, name, node)
        if isinstance(found, (BoundMethod, LocalFunction)):
            return self.unknown(node, f"reads .{name} of a function")
        path = f"{value.path or type(found).__name__}.{name}"
        if isinstance(found, types.ModuleType):
            space = vars(found)
            if type(found) is not types.ModuleType:
                return self.unknown(node, f"reads {path} of a module that is made on demand")
            if name not in space:
                return self.unknown(node, f"reads {path}, which is not there")
            self.facts.globals_read.add((found.__name__, name))
            why = known.impurity_of_module(found.__name__)
            data = not is_scalar_type(type(space[name])) and not isinstance(space[name], types.ModuleType)
            if why is not None and data and not callable(space[name]):
                self.impure(node, f"reads {path}: {why}")
            return self.shared(space[name], path, route=("module", found.__name__, name))
        if isinstance(found, type):
            return self._attribute_of_class(value, found, name, path, node)
        kind = type(found)
        if kind in known.MUTATORS or is_scalar_type(kind):
            return self._attribute_of_type(value, kind, name, node)
        if isinstance(found, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
            if name in ("__name__", "__qualname__", "__module__", "__doc__"):
                return scalar(str, NoneType)
            if isinstance(found, types.FunctionType) and name in vars(found):
                return self.shared(vars(found)[name], path)
            if isinstance(found, types.MethodType) and name == "__self__":
                return self.shared(found.__self__, path)
            return self.unknown(node, f"reads {path} of a function")
        return self._attribute_of_instance(value, found, name, path, node)

    def _attribute_of_class(self, value: Value, found: type, name: str, path: str, node: ast.AST) -> Value:
        if name in ("__name__", "__qualname__", "__module__"):
            return scalar(str)
        if type(found) not in (type, abc.ABCMeta, known.ENUM.__class__):
            return self.unknown(node, f"reads {path} through the metaclass {type(found).__name__}")
        self._touch_classes(found)
        if name == "__dict__":
            return self.unknown(node, f"reaches every attribute of {path} by name")
        member = static_attribute(found, name)
        if member is inspect.Parameter.empty:
            return self.unknown(node, f"reads {path}, which is not there yet")
        if isinstance(member, staticmethod):
            return self.shared(member.__func__, path)
        if isinstance(member, classmethod):
            return self._bound(value, name, member.__func__)
        if isinstance(member, known.ENUM):
            return self.shared(member, path)
        if isinstance(member, (types.ClassMethodDescriptorType, types.BuiltinMethodType)):
            return self.shared(getattr(found, name), path)
        if (
            hasattr(type(member), "__get__")
            and not isinstance(
                member,
                (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, property),
            )
            and not isinstance(member, type)
            and not isinstance(member, types.GetSetDescriptorType)
        ):
            return self.unknown(node, f"reads {path}, a descriptor")
        return self.shared(member, path, route=("class", found, name))

    def _attribute_of_instance(self, value: Value, found: Any, name: str, path: str, node: ast.AST) -> Value:
        kind = type(found)
        blocked = self._intercepts(kind, ("__getattr__", "__getattribute__"))
        if blocked:
            return self.unknown(node, f"reads {path} through {kind.__name__}.{blocked}")
        if found is self.operator and name in self.fields:
            return self.kept(name)
        if name == "__class__":
            return self.shared(kind, f"{value.path}.__class__")
        if name == "__dict__":
            return self.unknown(node, f"reaches every attribute of {value.path} by name")
        self._touch_classes(kind)
        member = static_attribute(kind, name)
        if isinstance(member, (property, types.FunctionType, staticmethod, classmethod)) or (
            member is not inspect.Parameter.empty and hasattr(type(member), "__set__")
        ):
            held = getattr(found, "__dict__", {})
            if not (name in held and isinstance(member, (types.FunctionType, staticmethod, classmethod))):
                return self._member(value, kind, member, name, path, node)
        held = getattr(found, "__dict__", None)
        if isinstance(held, dict) and name in held:
            route = ("operator", name) if found is self.operator else None
            return self.shared(held[name], path, route=route)
        if member is inspect.Parameter.empty:
            # Set by some call, or never: either way its value is not known now.
            return self.unknown(node, f"reads {path}, which does not exist before the first tuple")
        return self._member(value, kind, member, name, path, node)

    def _touch_classes(self, kind: type) -> None:
        if id(kind) in self.facts.touched:
            return
        for owner in kind.__mro__:
            if owner.__module__ != "builtins":
                self.facts.touched.setdefault(id(owner), owner.__name__)

    def _intercepts(self, kind: type, names: tuple[str, ...]) -> str | None:
        for name in names:
            member = static_attribute(kind, name)
            if isinstance(member, types.FunctionType) and not issubclass(kind, Row):
                return name
        return None

    def _member(self, value: Value, kind: type, member: Any, name: str, path: str, node: ast.AST) -> Value:
        """What a class's member gives when it is read on an instance."""
        if isinstance(member, property):
            if member.fget is None:
                return NOTHING
            return self.call(self.shared(member.fget, path), [value], {}, node)
        if isinstance(member, types.FunctionType):
            return self._bound(value, name, member)
        if isinstance(member, staticmethod):
            return self.shared(member.__func__, path)
        if isinstance(member, classmethod):
            return self._bound(self.shared(kind, kind.__name__), name, member.__func__)
        if isinstance(member, types.MemberDescriptorType):  # a slot
            try:
                owner = value.only
                return self.shared(member.__get__(owner, kind), path) if owner is not UNKNOWN else ANYTHING
            except AttributeError:
                return self.unknown(node, f"reads {path}, which does not exist before the first tuple")
        if isinstance(member, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return self._bound(value, name, member)
        if hasattr(type(member), "__get__") and not isinstance(member, (type, types.BuiltinFunctionType)):
            return self.unknown(node, f"reads {path}, a descriptor ({type(member).__name__})")
        return self.shared(member, path, route=("class", kind, name))

    def _attribute_of_super(self, proxy: SuperProxy, name: str, node: ast.AST) -> Value:
        kinds = {type(each) for each in proxy.receiver.concrete or ()} or set(proxy.receiver.types or ())
        if len(kinds) != 1:
            return self.unknown(node, f"reads super().{name} of a value of unknown type")
        (kind,) = kinds
        order = list(kind.__mro__)
        for owner in order[order.index(proxy.owner) + 1 :] if proxy.owner in order else []:
            if name in vars(owner):
                member = vars(owner)[name]
                if owner is object and name == "__init__":
                    return self.shared(_do_nothing, "object.__init__")
                return self._member(proxy.receiver, kind, member, name, f"super().{name}", node)
        return self.unknown(node, f"reads super().{name}, which is not there")

    def _attribute_of_type(self, value: Value, kind: type, name: str, node: ast.AST) -> Value:
        """The attribute of a value of which only the type is known."""
        if kind is Row:
            return self._column_of(dataclasses.replace(value, types=ROW_TYPES), name, node)
        if kind in (Plain, Iterator) or kind in known.MUTATORS or is_scalar_type(kind):
            if name == "__dict__" or (name.startswith("__") and name not in known.SUBSCRIPT_METHODS | _DUNDERS):
                if name == "__class__":
                    return Value(types=None, text=None, foreign=True)
                return self.unknown(node, f"reads .{name}")
            if isinstance(kind, type) and issubclass(kind, known.ENUM) and kind is not known.ENUM:
                if isinstance(static_attribute(kind, name), (types.FunctionType, property)) and name not in (
                    "name",
                    "value",
                ):
                    return self.unknown(node, f"reads .{name} of {kind.__name__}")
                return PLAIN_VALUE
            if kind is not Plain and kind is not Iterator and not hasattr(kind, name):
                return NOTHING  # raises
            if kind is not Plain and kind is not Iterator and not callable(getattr(kind, name)):
                text = combined_text("{}." + name, [value])
                return Value(types=known.attribute_result(kind, name), objects=value.objects, text=text)
            return self._bound(value, name)
        if kind in (Callback, types.FunctionType):
            return self.unknown(node, f"reads .{name} of a function")
        if self.is_record(kind) or self._is_plain_class(kind):
            # An instance made during the call, or kept in state.
            for each in value.objects:
                held = self.heap.at(each).attributes if isinstance(each, (Site, Kept)) else {}
                if name in held and len(value.objects) == 1:
                    return held[name]
            found = NOTHING
            for each in value.objects:
                if isinstance(each, (Site, Kept)):
                    kept = self.heap.at(each)
                    found = join(found, kept.attributes.get(name, NOTHING))
                    if isinstance(each, Kept):
                        found = join(found, kept.content)
            member = static_attribute(kind, name)
            if not found.is_nothing and not isinstance(member, property):
                return found
            if member is inspect.Parameter.empty:
                return found
            if name in getattr(kind, "_fields", ()):
                return self.content(value, node)
            return self._member(value, kind, member, name, f"{kind.__name__}.{name}", node)
        return self.unknown(node, f"reads .{name} of a {kind.__name__}")

    def _is_plain_class(self, kind: type) -> bool:
        """A user class without special methods that would run behind the code's back."""
        if not isinstance(kind, type) or kind.__flags__ & (1 << 9) == 0:  # not a class made by a class statement
            return False
        for owner in kind.__mro__:
            if owner is object:
                continue
            if owner.__module__ == "builtins" or owner.__flags__ & (1 << 9) == 0:
                return False
            for name, member in vars(owner).items():
                if name in _HIDDEN and isinstance(member, types.FunctionType):
                    return False
        return type(kind) is type

    def assign_attribute(self, target: Value, name: str, value: Value, node: ast.AST, how: str = "") -> None:
        """``target.name = value``."""
        if target.is_nothing:
            return
        what = how or f"assigns .{name}"
        if target.types == ROW_TYPES:
            return  # raises: tuples have no settable attributes
        for found in target.concrete or ():
            if found is self.operator and name in self.fields:
                self.keep(name, value, node)
                continue
            kind = type(found)
            if not isinstance(found, (BoundMethod, LocalFunction, SuperProxy)):
                blocked = self._intercepts(kind, ("__setattr__",))
                member = static_attribute(kind, name)
                if isinstance(member, property) and member.fset is not None:
                    self.call(self.shared(member.fset, name), [target, value], {}, node)
                    continue
                if blocked or hasattr(type(member), "__set__"):
                    self.unknown(node, f"assigns {target.path}.{name} through {blocked or 'a descriptor'}")
            path = f"{target.path or kind.__name__}.{name}"
            self.facts.written.setdefault(id(found), path)
            if isinstance(found, types.ModuleType):
                self.facts.globals_written.add((found.__name__, name))
            self.write(node, (id(found), name), path, f"assigns {path}")
        if target.concrete is not None:
            return
        if target.types is None:
            self.unknown(node, f"{what} of a value of unknown type")
            return
        for kind in target.types:
            if not (self.is_record(kind) or self._is_plain_class(kind)):
                self.unknown(node, f"{what} of a {kind.__name__}")
                return
            member = static_attribute(kind, name)
            if hasattr(type(member), "__set__") and not isinstance(member, types.MemberDescriptorType):
                self.unknown(node, f"{what} through a descriptor of {kind.__name__}")
                return
        self.mutate(target, node, what)
        for each in target.objects:
            if isinstance(each, (Site, Kept)):
                self.heap.put_attribute(each, name, value)
                self.heap.put(each, value)
        self.stored(value, node)


def _do_nothing(*_: Any, **__: Any) -> None:
    """Stands in for ``object.__init__``."""


_DUNDERS = {"__iter__", "__len__", "__next__", "__eq__", "__add__"}
_HIDDEN = {
    "__getattr__",
    "__getattribute__",
    "__setattr__",
    "__delattr__",
    "__del__",
    "__new__",
    "__init_subclass__",
    "__class_getitem__",
}
