"""Attributes: of the tuple, of objects, classes and modules, and of values made during the call."""

from __future__ import annotations

import abc
import ast
import collections
import dataclasses
import functools
import inspect
import json
import types
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.kinds import interceptor_of, is_plain_class, is_record, static_attribute
from anabranch.compiler.reading.reading_state import ExpressionHandlers, Reading
from anabranch.compiler.reading.values import (
    ANYTHING,
    NOTHING,
    PLAIN,
    PLAIN_VALUE,
    ROW_TYPES,
    SCALARS,
    TUPLE,
    UNKNOWN,
    BoundMethod,
    Callback,
    Iterator,
    Kept,
    LocalFunction,
    NoneType,
    Object,
    Plain,
    Shared,
    Site,
    SuperProxy,
    Value,
    attribute_path,
    combined_text,
    constant,
    is_scalar_type,
    join,
    join_all,
    scalar,
)
from anabranch.program.schema import Row
from anabranch.program.source_code import mangled


def _read_attribute(reading: Reading, node: ast.Attribute) -> Value:
    return attribute_of(reading, reading.evaluate(node.value), mangled(node.attr, reading.frame.node), node)


def attribute_of(reading: Reading, value: Value, name: str, node: ast.AST) -> Value:
    """The attribute of a value."""
    if value.is_nothing:
        return NOTHING
    if value.types == ROW_TYPES:
        return column_of(reading, value, name, node)
    if reading.handle_of(value) is not None:
        return _bound(reading, value, name)
    if value.concrete is not None and not value.is_scalar:
        return join_all(_attribute_of_known(reading, value, each, name, node) for each in value.concrete)
    if value.types is None:
        return reading.unknown(node, f"reads .{name} of a value of unknown type")
    found = NOTHING
    for kind in value.types:
        found = join(found, _attribute_of_type(reading, value, kind, name, node))
    return found


def column_of(reading: Reading, value: Value, name: str, node: ast.AST) -> Value:
    parts = reading.heap.parts(value)
    if parts is not None and name in parts:
        return parts[name]
    if TUPLE in value.objects and len(value.objects) == 1:
        if reading.schema is not None and name in reading.schema and not name.startswith("__"):
            return reading.column(name)
        if reading.schema is None and name not in ("but", "asDict", "_replace", "_asdict", "count", "index"):
            return reading.column(name)
    if reading.schema is not None and name in reading.schema and _is_input(reading, value):
        found = reading.column(name)
        if found.is_scalar:
            return found.without_text()  # of this tuple or an earlier one
    if hasattr(Row, name) and (not name.startswith("_") or name in ("_replace", "_asdict")):
        return _bound(reading, value, name)
    if name == "_fields" and reading.schema is not None:
        return constant(reading.schema.names)
    if reading.schema is not None and TUPLE in value.objects and len(value.objects) == 1:
        return NOTHING  # raises: there is no such column
    return Value(types=PLAIN, objects=value.objects)


def _is_input(reading: Reading, value: Value) -> bool:
    """Every tuple this may be came as input: now, or before and was kept as it was."""
    for each in value.objects - {TUPLE}:
        if not isinstance(each, Kept):
            return False
        kept = reading.heap.at(each)
        if not kept.attributes.get("value", ANYTHING).objects <= {TUPLE} or not kept.content.is_nothing:
            return False
    return TUPLE in value.objects


def has_fields(reading: Reading, found: Any) -> bool:
    """Whether declared state is attributes of this object: the operator, or another that has the same state."""
    return found is reading.operator or any(found is each for each in reading.sharing)


def _bound(reading: Reading, receiver: Value, name: str, function: Any = None) -> Value:
    method = BoundMethod(receiver, name, function)
    return Value(types=frozenset({Callback}), objects=receiver.objects, concrete=(method,))


def _attribute_of_known(reading: Reading, value: Value, found: Any, name: str, node: ast.AST) -> Value:
    if isinstance(found, SuperProxy):
        return _attribute_of_super(reading, found, name, node)
    if isinstance(found, (BoundMethod, LocalFunction)):
        return reading.unknown(node, f"reads .{name} of a function")
    path = attribute_path(value.path or type(found).__name__, name)
    if isinstance(found, types.ModuleType):
        space = vars(found)
        if type(found) is not types.ModuleType:
            return reading.unknown(node, f"reads {path} of a module that is made on demand")
        if name not in space:
            return reading.unknown(node, f"reads {path}, which is not there")
        reading.facts.globals_read.add((found.__name__, name))
        why = known.impurity_of_module(found.__name__)
        data = not is_scalar_type(type(space[name])) and not isinstance(space[name], types.ModuleType)
        if why is not None and data and not callable(space[name]):
            reading.impure(node, f"reads {path}: {why}", known.is_chance(why, name))
        return reading.shared(space[name], path, route=("module", found.__name__, name))
    if isinstance(found, type):
        return _attribute_of_class(reading, value, found, name, path, node)
    kind = type(found)
    if kind in known.MUTATORS or is_scalar_type(kind):
        return _attribute_of_type(reading, value, kind, name, node)
    if isinstance(found, (types.FunctionType, types.MethodType, types.BuiltinFunctionType)):
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return scalar(str, NoneType)
        if isinstance(found, types.FunctionType) and name in vars(found):
            return reading.shared(vars(found)[name], path)
        if isinstance(found, types.MethodType) and name == "__self__":
            return reading.shared(found.__self__, path)
        return reading.unknown(node, f"reads {path} of a function")
    return _attribute_of_instance(reading, value, found, name, path, node)


def _attribute_of_class(reading: Reading, value: Value, found: type, name: str, path: str, node: ast.AST) -> Value:
    if name in ("__name__", "__qualname__", "__module__"):
        return scalar(str)
    if type(found) not in (type, abc.ABCMeta, known.ENUM.__class__):
        return reading.unknown(node, f"reads {path} through the metaclass {type(found).__name__}")
    _touch_classes(reading, found)
    if name == "__dict__":
        return reading.unknown(node, f"reaches every attribute of {path} by name")
    member = static_attribute(found, name)
    if member is inspect.Parameter.empty:
        return reading.unknown(node, f"reads {path}, which is not there yet")
    if isinstance(member, staticmethod):
        return reading.shared(member.__func__, path)
    if isinstance(member, classmethod):
        return _bound(reading, value, name, member.__func__)
    if isinstance(member, known.ENUM):
        return reading.shared(member, path)
    if isinstance(member, (types.ClassMethodDescriptorType, types.BuiltinMethodType)):
        return reading.shared(getattr(found, name), path)
    if (
        hasattr(type(member), "__get__")
        and not isinstance(
            member,
            (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, property),
        )
        and not isinstance(member, type)
        and not isinstance(member, types.GetSetDescriptorType)
    ):
        return reading.unknown(node, f"reads {path}, a descriptor")
    return reading.shared(member, path, route=("class", found, name))


def _attribute_of_instance(reading: Reading, value: Value, found: Any, name: str, path: str, node: ast.AST) -> Value:
    kind = type(found)
    blocked = interceptor_of(kind, ("__getattr__", "__getattribute__"))
    if blocked:
        return reading.unknown(node, f"reads {path} through {kind.__name__}.{blocked}")
    if name in reading.fields and has_fields(reading, found):
        return reading.kept(name)
    if name == "__class__":
        return reading.shared(kind, f"{value.path}.__class__")
    if name == "__dict__":
        return reading.unknown(node, f"reaches every attribute of {value.path} by name")
    _touch_classes(reading, kind)
    member = static_attribute(kind, name)
    if isinstance(member, (property, types.FunctionType, staticmethod, classmethod)) or (
        member is not inspect.Parameter.empty and hasattr(type(member), "__set__")
    ):
        held = getattr(found, "__dict__", {})
        if not (name in held and isinstance(member, (types.FunctionType, staticmethod, classmethod))):
            return _member(reading, value, kind, member, name, path, node)
    held = getattr(found, "__dict__", None)
    if isinstance(held, dict) and name in held:
        route = ("operator", name) if found is reading.operator else None
        return reading.shared(held[name], path, route=route)
    if member is inspect.Parameter.empty:
        # Set by some call, or never: either way its value is not known now.
        return reading.unknown(node, f"reads {path}, which does not exist before the first tuple")
    if isinstance(member, functools.cached_property) and has_fields(reading, found):
        reading.facts.cached.setdefault(path, reading.place(node))
    return _member(reading, value, kind, member, name, path, node)


def _touch_classes(reading: Reading, kind: type) -> None:
    if id(kind) in reading.facts.touched:
        return
    for owner in kind.__mro__:
        if owner.__module__ != "builtins":
            reading.facts.touched.setdefault(id(owner), owner.__name__)


def _member(reading: Reading, value: Value, kind: type, member: Any, name: str, path: str, node: ast.AST) -> Value:
    """What a class's member gives when it is read on an instance."""
    if isinstance(member, property):
        if member.fget is None:
            return NOTHING
        return reading.call(reading.shared(member.fget, path), [value], {}, node)
    if isinstance(member, types.FunctionType):
        return _bound(reading, value, name, member)
    if isinstance(member, staticmethod):
        return reading.shared(member.__func__, path)
    if isinstance(member, classmethod):
        return _bound(reading, reading.shared(kind, kind.__name__), name, member.__func__)
    if isinstance(member, functools.singledispatchmethod):
        return _bound(reading, value, name, member.dispatcher)
    if isinstance(member, types.MemberDescriptorType):  # a slot
        try:
            owner = value.only
            return reading.shared(member.__get__(owner, kind), path) if owner is not UNKNOWN else ANYTHING
        except AttributeError:
            return reading.unknown(node, f"reads {path}, which does not exist before the first tuple")
    if isinstance(member, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return _bound(reading, value, name, member)
    if isinstance(member, _FieldOfTuple):
        place: Any = member.__reduce__()[1][0]
        if isinstance(value.only, tuple) and place < len(value.only):
            return reading.shared(tuple.__getitem__(value.only, place), path)
        return reading.content(value, node)
    if isinstance(member, functools.cached_property) and value.concrete is not None:
        found = reading.call(reading.shared(member.func, path), [value], {}, node)
        if found.is_scalar or (found.types is not None and found.types <= {tuple} and not found.objects):
            return found.without_text()
        held = reading.heap.reach(found.objects)
        if found.types == frozenset({tuple}) and all(
            isinstance(each, Site) and reading.heap.at(each).content.is_scalar for each in held
        ):
            return found.without_text()  # who computes it, and when, does not matter
    if hasattr(type(member), "__get__") and not isinstance(member, (type, types.BuiltinFunctionType)):
        return reading.unknown(node, f"reads {path}, a descriptor ({type(member).__name__})")
    return reading.shared(member, path, route=("class", kind, name))


def _attribute_of_super(reading: Reading, proxy: SuperProxy, name: str, node: ast.AST) -> Value:
    kinds = {type(each) for each in proxy.receiver.concrete or ()} or set(proxy.receiver.types or ())
    if len(kinds) != 1:
        return reading.unknown(node, f"reads super().{name} of a value of unknown type")
    (kind,) = kinds
    order = list(kind.__mro__)
    for owner in order[order.index(proxy.owner) + 1 :] if proxy.owner in order else []:
        if name in vars(owner):
            member = vars(owner)[name]
            if owner is object and name == "__init__":
                return reading.shared(_do_nothing, "object.__init__")
            return _member(reading, proxy.receiver, kind, member, name, f"super().{name}", node)
    return reading.unknown(node, f"reads super().{name}, which is not there")


@functools.lru_cache(maxsize=1024)
def _is_data_attribute(name: str) -> bool:
    """Every type of plain data that has this attribute has a value there, not a method."""
    if name in ("network_address", "netmask"):  # of networks, which have them as attributes of each
        return True
    found = [getattr(kind, name) for kind in known.DATA_TYPES if hasattr(kind, name)]
    return bool(found) and not any(callable(each) for each in found)


def _attribute_of_type(reading: Reading, value: Value, kind: type, name: str, node: ast.AST) -> Value:
    """The attribute of a value of which only the type is known."""
    if kind is Row:
        return column_of(reading, dataclasses.replace(value, types=ROW_TYPES), name, node)
    if kind in (Plain, Iterator) or kind in known.MUTATORS or is_scalar_type(kind):
        if name == "__dict__" or (name.startswith("__") and name not in known.SUBSCRIPT_METHODS | _DUNDERS):
            if name == "__class__":
                return Value(types=None, text=None, foreign=True)
            return reading.unknown(node, f"reads .{name}")
        if isinstance(kind, type) and issubclass(kind, known.ENUM) and kind is not known.ENUM:
            member = static_attribute(kind, name)
            if isinstance(member, (types.FunctionType, property)) and name not in ("name", "value"):
                return _member(reading, value, kind, member, name, f"{kind.__name__}.{name}", node)
            return _attribute_of_members(reading, value, kind, name)
        if kind is Plain and _is_data_attribute(name):
            return Value(types=PLAIN, objects=value.objects)
        if kind is not Plain and kind is not Iterator and not hasattr(kind, name):
            return NOTHING  # raises
        if kind is not Plain and kind is not Iterator and not callable(getattr(kind, name)):
            text = combined_text("{}." + name, [value])
            return Value(types=known.attribute_result(kind, name), objects=value.objects, text=text)
        return _bound(reading, value, name)
    if kind in (Callback, types.FunctionType):
        return reading.unknown(node, f"reads .{name} of a function")
    if issubclass(kind, BaseException) and not value.objects:
        # One that was caught: who raised it, and with what, is not followed.
        if name in _SCALARS_OF_ERRORS.get(kind, ()):
            return PLAIN_VALUE
        return reading.unknown(node, f"reads .{name} of a {kind.__name__} that was caught")
    if _has_attributes(kind):
        # An instance made during the call, or kept in state.
        member = static_attribute(kind, name)
        for each in value.objects:
            held = reading.heap.at(each).attributes if isinstance(each, (Site, Kept)) else {}
            if name in held and len(value.objects) == 1:
                return _or_of_class(reading, held[name], value, kind, member, name, node)
        is_method = isinstance(member, (types.FunctionType, staticmethod, classmethod))
        found = NOTHING
        for each in value.objects:
            if isinstance(each, (Site, Kept)):
                kept = reading.heap.at(each)
                found = join(found, kept.attributes.get(name, NOTHING))
                if isinstance(each, Kept) and not is_method:
                    found = join(found, kept.content)
            elif isinstance(each, Shared):
                # One of so many objects that they are not told apart by value.
                very = reading.facts.objects.get(each.identity)
                if type(very) is not kind:
                    return reading.unknown(node, f"reads .{name} of one of many objects")
                one = Value(types=frozenset({kind}), objects=frozenset({each}), concrete=(very,), path=each.path)
                found = join(found, _attribute_of_known(reading, one, very, name, node))
        if not found.is_nothing and not isinstance(member, property):
            return _or_of_class(reading, found, value, kind, member, name, node)
        if member is inspect.Parameter.empty:
            return found
        if name in getattr(kind, "_fields", ()):
            return reading.content(value, node)
        return _member(reading, value, kind, member, name, f"{kind.__name__}.{name}", node)
    return reading.unknown(node, f"reads .{name} of a {kind.__name__}")


def _or_of_class(
    reading: Reading, found: Value, value: Value, kind: type, member: Any, name: str, node: ast.AST
) -> Value:
    """An attribute that was set on an object: on this one perhaps not, and then it is that of the class."""
    is_set = member is inspect.Parameter.empty or isinstance(
        member, (property, types.MemberDescriptorType, _FieldOfTuple)
    )
    if is_set or (dataclasses.is_dataclass(kind) and any(each.name == name for each in dataclasses.fields(kind))):
        return found
    return join(found, _member(reading, value, kind, member, name, f"{kind.__name__}.{name}", node))


def _has_attributes(kind: type) -> bool:
    """Objects of the class have attributes that mean nothing but themselves."""
    if issubclass(kind, BaseException):
        return not interceptor_of(kind, ("__getattr__", "__getattribute__", "__setattr__"))
    return kind is types.SimpleNamespace or is_record(kind) or is_plain_class(kind)


def _attribute_of_members(reading: Reading, value: Value, kind: Any, name: str) -> Value:
    """What the members of an enumeration hold: the same objects for all calls."""
    if name == "name":
        return scalar(str)
    members = [each for each in (value.concrete if value.concrete is not None else kind) if isinstance(each, kind)]
    found = NOTHING
    for each in members:
        held = each.value if name == "value" else vars(each).get(name, static_attribute(kind, name))
        if held is not inspect.Parameter.empty:
            found = join(found, reading.shared(held, f"{kind.__name__}.{each.name}.{name}"))
    return found.without_text()


def assign_attribute(
    reading: Reading,
    target: Value,
    name: str,
    value: Value,
    node: ast.AST,
    how: str = "",
    again: frozenset[Object] = frozenset(),
) -> None:
    """``target.name = value``; `again` are objects that were there before."""
    if target.is_nothing:
        return
    what = how or f"assigns .{name}"
    if target.types == ROW_TYPES:
        return  # raises: tuples have no settable attributes
    for found in target.concrete or ():
        if name in reading.fields and has_fields(reading, found):
            reading.keep(name, value, node)
            continue
        kind = type(found)
        if kind in SCALARS:
            continue  # raises: None and numbers have no settable attributes
        if not isinstance(found, (BoundMethod, LocalFunction, SuperProxy)):
            blocked = interceptor_of(kind, ("__setattr__",))
            member = static_attribute(kind, name)
            if isinstance(member, property) and member.fset is not None:
                reading.call(reading.shared(member.fset, name), [target, value], {}, node)
                continue
            if blocked or hasattr(type(member), "__set__"):
                told = attribute_path(target.path, name)
                reading.unknown(node, f"assigns {told} through {blocked or 'a descriptor'}")
        path = attribute_path(target.path or kind.__name__, name)
        reading.facts.written.setdefault(id(found), path)
        if isinstance(found, types.ModuleType):
            reading.facts.globals_written.add((found.__name__, name))
        reading.write(node, (id(found), name), path, f"assigns {path}")
        reading.outlives(value, path, node)
    if target.concrete is not None:
        return
    if target.types is None:
        reading.unknown(node, f"{what} of a value of unknown type")
        return
    for kind in target.types:
        if kind in SCALARS:
            continue  # raises: None and numbers have no settable attributes
        if issubclass(kind, known.ENUM):
            path = f"{kind.__name__}.{name}"  # of a member, and there is one of each for all tuples
            reading.write(node, (id(kind), name), path, f"assigns {path}")
            continue
        if not _has_attributes(kind):
            reading.unknown(node, f"{what} of a {kind.__name__}")
            return
        member = static_attribute(kind, name)
        if hasattr(type(member), "__set__") and not isinstance(member, types.MemberDescriptorType):
            reading.unknown(node, f"{what} through a descriptor of {kind.__name__}")
            return
    reading.mutate(target, node, what)
    for each in target.objects:
        if isinstance(each, (Site, Kept)):
            reading.heap.put_attribute(each, name, value)
            reading.heap.put(each, value)
    reading.stored(value, node, target.objects, again=again)


#: What a named tuple's class has for each field.
_FieldOfTuple: type = type(collections.namedtuple("_", "field").field)  # type: ignore[attr-defined]


#: Errors of the library that have numbers and texts only.
_SCALARS_OF_ERRORS: dict[type, frozenset[str]] = {
    json.JSONDecodeError: frozenset({"msg", "doc", "pos", "lineno", "colno"})
}


def _do_nothing(*_: Any, **__: Any) -> None:
    """Stands in for ``object.__init__``."""


_DUNDERS = {"__iter__", "__len__", "__next__", "__eq__", "__add__"}


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.Attribute: _read_attribute,
}
