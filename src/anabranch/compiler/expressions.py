"""Reading expressions: what value each may have, and what evaluating it may change."""

from __future__ import annotations

import abc
import ast
import builtins
import collections
import dataclasses
import datetime
import decimal
import inspect
import types
from collections.abc import Mapping
from typing import Any

from anabranch.compiler import known
from anabranch.compiler.context import Context, Flow, static_attribute
from anabranch.compiler.source import mangled
from anabranch.compiler.values import (
    ANYTHING,
    NOTHING,
    PLAIN,
    PLAIN_VALUE,
    ROW_TYPES,
    TUPLE,
    UNKNOWN,
    BoundMethod,
    Callback,
    Handle,
    Iterator,
    Kept,
    LocalFunction,
    NoneType,
    Plain,
    Site,
    SuperProxy,
    Types,
    Value,
    combined_text,
    constant,
    is_scalar_type,
    join,
    join_all,
    scalar,
)
from anabranch.flow.schema import Row

_OPERATORS: dict[type, str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.BitAnd: "&",
    ast.MatMult: "@",
}
_COMPARISONS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}


_HANDLERS: dict[type, str] = {}


class Expressions(Context):
    """Evaluates expressions over abstract values."""

    def evaluate(self, node: ast.expr) -> Value:
        self.step()
        kind = type(node)
        name = _HANDLERS.get(kind)
        if name is None:
            name = _HANDLERS[kind] = "_" + kind.__name__.lower()
        handler = getattr(self, name, None)
        return self._unsupported(node) if handler is None else handler(node)

    def _unsupported(self, node: ast.AST) -> Value:
        return self.unknown(node, f"uses {type(node).__name__}, which is not followed")

    # -- names and constants ------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _name(self, node: ast.Name) -> Value:
        return self.lookup(node.id, node)

    def lookup(self, name: str, node: ast.AST) -> Value:
        frame = self.frame
        if name in frame.captured and name in frame.cells:
            return frame.cells[name]
        if name in self.flow.variables:
            return self.flow.variables[name]
        if name not in frame.global_names:
            outer = frame.parent
            while outer is not None:
                if name in outer.locals:
                    return outer.cells.get(name, NOTHING)
                outer = outer.parent
            if name in frame.closure:
                return frame.closure[name]
        space = frame.globals
        if name in space:
            self.facts.globals_read.add((str(space.get("__name__", "?")), name))
            return self.shared(space[name], name, route=("global", frame.function, name))
        found = getattr(builtins, name, UNKNOWN)
        custom = space.get("__builtins__")
        if isinstance(custom, dict):
            found = custom.get(name, found)
        if found is UNKNOWN:
            if name in frame.locals:
                return NOTHING  # read before it is assigned: raises
            return self.unknown(node, f"uses {name}, which is not defined yet")
        return self.shared(found, name)

    def assign_name(self, name: str, value: Value, node: ast.AST) -> None:
        frame = self.frame
        if name in frame.global_names:
            space = str(frame.globals.get("__name__", "?"))
            self.facts.globals_written.add((space, name))
            self.write(node, id(frame.globals) ^ hash(name), name, f"assigns the global {name}")
            return
        if name in frame.nonlocal_names:
            outer = frame.parent
            while outer is not None:
                if name in outer.locals:
                    self._join_cell(outer, name, value)
                    return
                outer = outer.parent
            cell = self._cell(frame, name)
            self.facts.objects[id(cell)] = cell
            self.write(node, id(cell), name, f"assigns {name} of the enclosing function")
            return
        if name in frame.captured:
            self._join_cell(frame, name, value)
        self.flow.variables[name] = value

    def _cell(self, frame: Any, name: str) -> Any:
        """The cell of an operator's function that holds a variable of the function around it."""
        function = frame.function
        names = function.__code__.co_freevars if function is not None else ()
        return function.__closure__[names.index(name)] if name in names else frame.closure

    def _join_cell(self, frame: Any, name: str, value: Value) -> None:
        joined = join(frame.cells.get(name, NOTHING), value)
        if joined != frame.cells.get(name):
            frame.cells[name] = joined
            self.heap.version += 1

    def _namedexpr(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.assign_name(node.target.id, value, node)
        return value

    # -- attributes ---------------------------------------------------------------------------------------

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
            if name == "__dict__" or (
                name.startswith("__") and name not in known.SUBSCRIPT_METHODS | _DUNDERS
            ):
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
        if (
            not isinstance(kind, type) or kind.__flags__ & (1 << 9) == 0
        ):  # not a class made by a class statement
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
            self.write(node, id(found) ^ hash(name), path, f"assigns {path}")
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

    # -- subscripts ---------------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript) -> Value:
        return self.subscript(self.evaluate(node.value), self.evaluate(node.slice), node)

    def _slice(self, node: ast.Slice) -> Value:
        parts = [
            self.evaluate(each) if each is not None else None for each in (node.lower, node.upper, node.step)
        ]
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
            kinds = (
                frozenset(k for k in value.types if k in (list, tuple, str, bytes, Plain, bytearray)) or PLAIN
            )
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
        return dataclasses.replace(found, text=text) if text is not None else found

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

    def handle_of(self, value: Value) -> Handle | None:
        for each in value.objects:
            if isinstance(each, Handle):
                return each
        return None

    def _handles(self, value: Value, node: ast.AST) -> list[Handle] | None:
        """The dicts of state a value may be; None if it may be something else, too."""
        handles = [each for each in value.objects if isinstance(each, Handle)]
        if len(handles) != len(value.objects):
            self.unknown(node, f"cannot tell {handles[0].path} from other values")
            return None
        return handles

    def entry(
        self, value: Value, index: Value, node: ast.AST, create: bool, default: Value | None = None
    ) -> Value:
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
            if (
                kind not in known.MUTATORS
                and kind is not Plain
                and not is_scalar_type(kind)
                and kind is not Row
            ):
                self.unknown(node, f"assigns an item of a {kind.__name__}")
        parts = self.heap.parts(value)
        key = index.only
        update = (
            parts is not None
            and isinstance(key, (str, int))
            and all(isinstance(e, Site) for e in value.objects)
        )
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

    # -- displays -----------------------------------------------------------------------------------------

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
                made = dataclasses.replace(made, text=text)
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
            not isinstance(p, ast.FormattedValue) or (p.format_spec is None and p.conversion == -1)
            for p in node.values
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

    # -- operators ----------------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> Value:
        left, right = self.evaluate(node.left), self.evaluate(node.right)
        return self.binary(left, right, type(node.op), node)

    def binary(self, left: Value, right: Value, operator: type, node: ast.AST) -> Value:
        if left.is_nothing or right.is_nothing:
            return NOTHING
        symbol = _OPERATORS[operator]
        for side in (left, right):
            self.plain_use(side, node, f"uses it with {symbol}")
        if Iterator in (left.types or frozenset()) | (right.types or frozenset()):
            self.unknown(node, f"uses {symbol} with an iterator")
        if operator is ast.Mod and str in (left.types or ()) and self.holds_unordered(right):
            self.impure(node, "shows a set, whose order differs from process to process")
        kinds = _result_types(left.types, right.types, operator)
        text = combined_text(f"({{}} {symbol} {{}})", [left, right])
        if kinds is not None and all(is_scalar_type(kind) for kind in kinds):
            return Value(types=kinds, text=text)
        if kinds == PLAIN and not left.objects and not right.objects:
            return Value(types=PLAIN, text=text)
        parts = self._concatenated(left, right, operator)
        content = join(self._inside(left, node), self._inside(right, node))
        if parts is not None:
            return dataclasses.replace(self.display(node, kinds, parts), text=text)
        made = self.make(node, kinds, content)
        (site,) = made.objects
        self.heap.lose_parts(site)
        return made

    def _inside(self, value: Value, node: ast.AST) -> Value:
        if value.is_scalar:
            return value.without_text()
        return self.content(value, node)

    def _concatenated(self, left: Value, right: Value, operator: type) -> dict[str | int, Value] | None:
        first, second = self.tuple_parts(left), self.tuple_parts(right)
        if operator is ast.Add and first is not None and second is not None:
            return dict(enumerate(first + second))
        if operator is ast.BitOr:
            one, other = self.heap.parts(left), self.heap.parts(right)
            if one is not None and other is not None and left.types == right.types == frozenset({dict}):
                return {**one, **other}
        return None

    def _unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            self.truth(value, node)
            return scalar(bool, text=combined_text("(not {})", [value]))
        self.plain_use(value, node, "uses it with a sign")
        symbol = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}[type(node.op)]
        if isinstance(value.only, (int, float)) and not isinstance(value.only, bool) and symbol == "-":
            return constant(-value.only)
        kinds = frozenset(int if kind is bool else kind for kind in value.types or ()) - {NoneType}
        if kinds <= {int, float, decimal.Decimal, datetime.timedelta, complex} and kinds:
            return Value(types=kinds, text=combined_text(f"({symbol}{{}})", [value]))
        return Value(types=PLAIN, text=combined_text(f"({symbol}{{}})", [value]))

    def truth(self, value: Value, node: ast.AST) -> None:
        """The value is tested: its __bool__ or __len__ runs."""
        for each in value.objects:
            if isinstance(each, Handle):
                self.whole(each, node, "tests if it is empty")
        if value.is_nothing or value.concrete is not None:
            for found in value.concrete or ():
                kind = type(found)
                for name in ("__bool__", "__len__"):
                    if isinstance(static_attribute(kind, name), types.FunctionType) and not isinstance(
                        found, (LocalFunction, BoundMethod)
                    ):
                        self.unknown(node, f"tests a {kind.__name__}, which has its own {name}")
            return
        if value.types is None:
            self.unknown(node, "tests a value of unknown type")
            return
        for kind in value.types:
            own = any(
                isinstance(static_attribute(kind, name), types.FunctionType)
                for name in ("__bool__", "__len__")
            )
            if not self.is_tame(kind) and kind is not Callback and (own or not self._is_plain_class(kind)):
                self.unknown(node, f"tests a {kind.__name__}")

    def _boolop(self, node: ast.BoolOp) -> Value:
        first = self.evaluate(node.values[0])
        self.truth(first, node)
        found = first
        flows: list[Flow] = []
        texts = [first]
        for operand in node.values[1:]:
            flows.append(self.flow.copy())
            self.branch_depth += 1
            value = self.evaluate(operand)
            self.branch_depth -= 1
            self.truth(value, operand)
            texts.append(value)
            found = join(found, value)
        for flow in flows:
            self.flow = self.flow.joined(flow)
        symbol = " and " if isinstance(node.op, ast.And) else " or "
        return dataclasses.replace(
            found, text=combined_text("(" + symbol.join(["{}"] * len(texts)) + ")", texts)
        )

    def _compare(self, node: ast.Compare) -> Value:
        left = self.evaluate(node.left)
        values: list[Value] = [left]
        symbols: list[str | None] = []
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.evaluate(right_node)
            if isinstance(operator, (ast.Is, ast.IsNot)):
                self._identity(left, right, node)
                symbols.append(None)
            elif isinstance(operator, (ast.In, ast.NotIn)):
                self.contains(right, left, node)
                symbols.append(_COMPARISONS[type(operator)])
            else:
                for side in (left, right):
                    self._comparable(side, node)
                symbols.append(_COMPARISONS[type(operator)])
            values.append(right)
            left = right
        text = None
        if None not in symbols and not any(self.handle_of(value) for value in values):
            template = "({}" + "".join(f" {symbol} {{}}" for symbol in symbols) + ")"
            text = combined_text(template, values)
        return scalar(bool, text=text)

    def _comparable(self, value: Value, node: ast.AST) -> None:
        if value.concrete is not None and all(
            isinstance(each, type) or each is None for each in value.concrete
        ):
            return
        self.plain_use(value, node, "compares it")

    def contains(self, container: Value, item: Value, node: ast.AST) -> Value:
        """``item in container``."""
        handle = self.handle_of(container)
        if handle is not None:
            self._check_index(item, node)
            for each in self._handles(container, node) or ():
                self.access(each, item, node)
            return scalar(bool)
        if Iterator in (container.types or ()):
            self.mutate(container, node, "searches an iterator")
        self.plain_use(item, node, "searches for it")
        if container.is_nothing:
            return scalar(bool)
        if container.types is None:
            self.unknown(node, "searches a value of unknown type")
        for kind in container.types or ():
            is_enum = isinstance(container.only, type) and issubclass(container.only, known.ENUM)
            if not self.is_tame(kind) and not is_enum:
                self.unknown(node, f"searches a {kind.__name__}")
        if container.foreign:
            self.unknown(node, "searches among values of unknown type")
        return scalar(bool)

    def _identity(self, left: Value, right: Value, node: ast.AST) -> None:
        for side in (left, right):
            if side.concrete is not None and all(_is_singleton(each) for each in side.concrete):
                return
        self.impure(node, "compares objects by identity, which differs from process to process")

    def _ifexp(self, node: ast.IfExp) -> Value:
        self.truth(self.evaluate(node.test), node)
        before = self.flow.copy()
        self.branch_depth += 1
        yes = self.evaluate(node.body)
        after, self.flow = self.flow, before
        no = self.evaluate(node.orelse)
        self.branch_depth -= 1
        self.flow = self.flow.joined(after)
        found = join(yes, no)
        if found.text is None and yes.text is not None and no.text is not None:
            test = self._test_text(node.test)
            if test is not None:
                text = combined_text("({} if {} else {})", [yes, test, no])
                found = dataclasses.replace(found, text=text)
        return found

    def _test_text(self, node: ast.expr) -> Value | None:
        value = self.evaluate(node)
        return value if value.text is not None else None

    def _starred(self, node: ast.Starred) -> Value:
        return self.iterate(self.evaluate(node.value), node)

    # -- functions and generators -------------------------------------------------------------------------

    def _lambda(self, node: ast.Lambda) -> Value:
        return self.local_function(node)

    def local_function(self, node: Any) -> Value:
        self.lazy = True
        arguments = node.args
        defaults: list[tuple[str, Value]] = []
        places = [*arguments.posonlyargs, *arguments.args]
        if arguments.defaults:
            for each, default in zip(places[-len(arguments.defaults) :], arguments.defaults, strict=True):
                defaults.append((each.arg, self.evaluate(default)))
        for each, keyword in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if keyword is not None:
                defaults.append((each.arg, self.evaluate(keyword)))
        node.enclosing_class = getattr(
            node, "enclosing_class", getattr(self.frame.node, "enclosing_class", "")
        )
        # One per place and enclosing function: a new one in every pass would never settle.
        place = (id(node), id(self.frame.function))
        function = self._local_functions.get(place)
        if function is not None:
            before = dict(function.defaults)
            defaults = [(name, join(before.get(name, NOTHING), value)) for name, value in defaults]
        if function is None or [value for _, value in function.defaults] != [value for _, value in defaults]:
            function = LocalFunction(node, self.frame, tuple(defaults))
            self._local_functions[place] = function
        return Value(types=frozenset({Callback}), concrete=(function,))

    @property
    def _local_functions(self) -> dict[tuple[int, int], LocalFunction]:
        return self.__dict__.setdefault("_kept_functions", {})

    def _await(self, node: ast.Await) -> Value:
        return self.unknown(node, "awaits")

    # -- comprehensions -----------------------------------------------------------------------------------

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
                self.assign(
                    generator.target, self.iterate(self.evaluate(generator.iter), generator.iter), node
                )
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

    # -- given by the other parts of the interpreter --------------------------------------------------------

    def call(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
    ) -> Value:
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Value, node: ast.AST) -> None:
        raise NotImplementedError

    def emitted(self, value: Value, node: ast.AST) -> None:
        raise NotImplementedError


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
_NUMBERS = frozenset({bool, int, float})


def _is_singleton(found: Any) -> bool:
    if found is None or found is True or found is False or found is ... or found is NotImplemented:
        return True
    return isinstance(found, (type, known.ENUM, types.FunctionType)) or type(found) is object


def _result_types(left: Types, right: Types, operator: type) -> Types:
    """The types of a binary operation on values of these types."""
    if left is None or right is None:
        return None
    left, right = left - {NoneType}, right - {NoneType}  # None raises
    if not left or not right:
        return frozenset()
    if left <= _NUMBERS and right <= _NUMBERS:
        if operator is ast.Div:
            return frozenset({float})
        if operator is ast.Pow:
            return (
                frozenset({int, float, complex})
                if left | right <= {int, bool}
                else frozenset({float, complex})
            )
        if operator in (ast.BitAnd, ast.BitOr, ast.BitXor) and left | right == {bool}:
            return frozenset({bool})
        found: set[type] = set()
        if (left | right) & {float}:
            found.add(float)
        if left & {int, bool} and right & {int, bool}:
            found.add(int)
        return frozenset(found)
    if operator is ast.Add and left == right and len(left) == 1:
        return left
    if operator is ast.Mod and left == {str}:
        return frozenset({str})
    if operator is ast.Mult and (left | right) <= {str, int, bool} and str in left | right:
        return frozenset({str})
    if operator is ast.Add and left <= {tuple, Row} and right <= {tuple, Row}:
        return frozenset({tuple})
    alike = left == right and len(left) == 1 and left <= {set, frozenset, dict, collections.Counter}
    if alike and operator in (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor):
        return left
    if left | right <= {datetime.datetime, datetime.timedelta} and operator in (ast.Add, ast.Sub):
        return frozenset({datetime.datetime, datetime.timedelta})
    if decimal.Decimal in left | right and left | right <= {decimal.Decimal, int, bool}:
        return frozenset({decimal.Decimal})
    if operator is ast.Mult and left | right <= {list, int}:
        return frozenset({list})
    return PLAIN
