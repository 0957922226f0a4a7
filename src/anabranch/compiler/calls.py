"""Following calls: into user functions and classes, and into library functions that are known."""

from __future__ import annotations

import ast
import collections
import copy
import dataclasses
import enum
import functools
import heapq
import inspect
import itertools
import json
import operator
import types
import warnings
from typing import Any

import numpy as np

from anabranch.compiler import known
from anabranch.compiler.context import Flow, Frame, local_names, static_attribute
from anabranch.compiler.facts import Kind
from anabranch.compiler.methods import Methods, is_callable
from anabranch.compiler.source import NoSource, tree_of
from anabranch.compiler.values import (
    ANYTHING,
    EMIT,
    NONE,
    NOTHING,
    PLAIN_VALUE,
    UNKNOWN,
    BoundMethod,
    Callback,
    Iterator,
    LocalFunction,
    NoneType,
    Plain,
    Shared,
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
from anabranch.flow.schema import Row

_DEEPEST = 24


@dataclasses.dataclass
class _Active:
    """A function that is being read, for calls that come back to it."""

    arguments: dict[str, Value]
    result: Value = NOTHING
    recursive: bool = False
    grown: bool = False


@dataclasses.dataclass
class Extra:
    """Arguments given with stars whose number or names are not known."""

    places: Value | None = None
    names: Value | None = None


class Calls(Methods):
    """Calls of anything."""

    def _call(self, node: ast.Call) -> Value:
        function = self.evaluate(node.func)
        arguments: list[Value] = []
        keywords: dict[str, Value] = {}
        extra = Extra()
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                inner = self.evaluate(argument.value)
                parts = self.tuple_parts(inner)
                if parts is not None and extra.places is None:
                    arguments.extend(parts)
                else:
                    extra.places = join(extra.places or NOTHING, self.iterate(inner, node))
            else:
                arguments.append(self.evaluate(argument))
        for keyword in node.keywords:
            value = self.evaluate(keyword.value)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
                continue
            named = self.heap.parts(value)
            if named is not None and all(isinstance(name, str) for name in named):
                keywords.update({str(name): part for name, part in named.items()})
            else:
                extra.names = join(extra.names or NOTHING, self.content(value, node))
        return self.call(function, arguments, keywords, node, extra)

    def call(
        self,
        function: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra | None = None,
    ) -> Value:
        if function.is_nothing:
            return NOTHING
        if function.concrete is None:
            for value in (*arguments, *keywords.values()):
                self.escape(value, node)
            return self.unknown(node, f"calls {_name_of(node)}, which is not known before it runs")
        found = [
            self._call_known(each, function, arguments, keywords, node, extra or Extra())
            for each in function.concrete
        ]
        result = join_all(found)
        return result if len(found) == 1 else result.without_text()

    def escape(self, value: Value, node: ast.AST) -> None:
        """The value is given to code that is not known."""
        self.use(value, node, how="passes it to unknown code")

    def _call_known(
        self,
        found: Any,
        function: Value,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra,
    ) -> Value:
        if found is EMIT:
            if len(arguments) != 1 or keywords or extra.places is not None:
                return self.unknown(node, "calls emit with something other than one tuple")
            self.emitted(arguments[0], node)
            return NONE
        if isinstance(found, LocalFunction):
            return self.call_tree(found.node, found, arguments, keywords, node, extra)
        if isinstance(found, BoundMethod):
            return self._call_method(found, arguments, keywords, node, extra)
        special = _SPECIAL.get(id(found))
        if special is not None and special[0] is found:
            if extra.places is not None or extra.names is not None:
                return self.unknown(node, f"calls {_qualified(found)} with arguments that are not known")
            return getattr(self, special[1])(arguments, keywords, node)
        starred = extra.places is not None or extra.names is not None
        if starred:
            simple = isinstance(found, types.FunctionType) and known.effect_of(found) is None
            if not simple and not isinstance(found, functools.partial):
                arguments = [*arguments, *(each for each in (extra.places, extra.names) if each is not None)]
        if type(found) is functools.partial:
            before = [self.shared(each, "an argument of partial") for each in found.args]
            named = {
                name: self.shared(each, "an argument of partial") for name, each in found.keywords.items()
            }
            inner = self.shared(found.func, getattr(found.func, "__name__", "the function of partial"))
            return self.call(inner, [*before, *arguments], {**named, **keywords}, node, extra)
        if isinstance(found, (operator.itemgetter, operator.attrgetter)):
            return self._call_getter(found, arguments, node)
        if isinstance(found, functools._lru_cache_wrapper):
            inner = self.shared(found.__wrapped__, found.__name__)
            result = self.call(inner, arguments, keywords, node, extra)
            if result.is_scalar or result.is_nothing:
                return result
            # All calls get the same object: changing it would be seen by later calls.
            return dataclasses.replace(
                result, objects=result.objects | {Shared(id(found), f"the cache of {found.__name__}")}
            )
        if isinstance(found, types.MethodType):
            receiver = self.shared(found.__self__, getattr(found.__self__, "__name__", "its object"))
            if isinstance(found.__func__, types.FunctionType):
                return self._call_method(
                    BoundMethod(receiver, found.__name__, found.__func__), arguments, keywords, node, extra
                )
        is_getter = found is operator.itemgetter or found is operator.attrgetter
        if is_getter and arguments and all(isinstance(each.only, (str, int)) for each in arguments):
            made = found(*(each.only for each in arguments))
            return Value(types=frozenset({found}), concrete=(made,))
        effect = known.effect_of(found)
        if effect is not None:
            result = self.apply(effect, found, arguments, keywords, node, starred)
            return self._starred_result(effect, result, arguments) if starred else result
        why = known.impurity_of(found)
        if why is not None:
            self.impure(node, f"calls {_qualified(found)}, which {why}")
            return PLAIN_VALUE
        if isinstance(found, types.FunctionType):
            return self.call_function(found, arguments, keywords, node, extra)
        if isinstance(found, type):
            return self._construct(found, arguments, keywords, node, extra)
        if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)) and arguments:
            return self._call_descriptor(found, arguments, keywords, node)
        if isinstance(found, (types.BuiltinMethodType, types.MethodWrapperType)):
            owner = getattr(found, "__self__", None)
            if owner is not None and not isinstance(owner, (types.ModuleType, type)):
                return self.method(
                    self.shared(owner, function.path or "its object"),
                    found.__name__,
                    arguments,
                    keywords,
                    node,
                )
        member = static_attribute(type(found), "__call__")
        if isinstance(member, types.FunctionType):
            return self.call_function(
                member,
                [function if function.only is found else self.shared(found, "it"), *arguments],
                keywords,
                node,
                extra,
            )
        for value in (*arguments, *keywords.values()):
            self.escape(value, node)
        return self.unknown(node, f"calls {_qualified(found)}, whose source is not available")

    def _call_method(
        self,
        found: BoundMethod,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra,
    ) -> Value:
        if found.function is None:
            if extra.places is not None:
                arguments = [*arguments, extra.places]
            return self.method(found.receiver, found.name, arguments, keywords, node)
        if isinstance(found.function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
            return self._call_descriptor(found.function, [found.receiver, *arguments], keywords, node)
        if getattr(found.function, "__module__", None) == "logging":
            for value in (*arguments, *keywords.values()):
                self.show(value, node)
            self.facts.add(Kind.NOTE, "writes to a log", self.place(node))
            return NONE
        owner = found.receiver.only
        if owner is not UNKNOWN and not isinstance(owner, (SuperProxy, BoundMethod, LocalFunction)):
            why = (
                known.impurity_of(types.MethodType(found.function, owner))
                if not isinstance(owner, type)
                else None
            )
            if why is not None and known.impurity_of(found.function) is not None:
                self.impure(node, f"calls {_qualified(found.function)}, which {why}")
                return PLAIN_VALUE
        if not isinstance(found.function, types.FunctionType):
            return self.call(
                self.shared(found.function, found.name), [found.receiver, *arguments], keywords, node, extra
            )
        return self.call_function(found.function, [found.receiver, *arguments], keywords, node, extra)

    def _call_descriptor(
        self, found: Any, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
    ) -> Value:
        """``list.append(x, 1)``: a method called through its class."""
        why = known.IMPURE.get(found)
        if why is not None:
            return self.unknown(node, f"calls {_qualified(found)}, which {why}")
        receiver = arguments[0]
        kinds = receiver.types
        if kinds is None or not all(kind is Plain or issubclass(kind, found.__objclass__) for kind in kinds):
            return self.unknown(node, f"calls {_qualified(found)} on a value of unknown type")
        return self.method(receiver, found.__name__, arguments[1:], keywords, node)

    def _call_getter(self, found: Any, arguments: list[Value], node: ast.AST) -> Value:
        _, items = found.__reduce__()[:2]
        results = []
        for item in items:
            value = arguments[0] if arguments else ANYTHING
            if isinstance(found, operator.itemgetter):
                results.append(self.subscript(value, constant(item), node))
            else:
                for name in item.split("."):
                    value = self.attribute(value, name, node)
                results.append(value)
        if len(results) == 1:
            return results[0]
        made = self.display(node, frozenset({tuple}), dict(enumerate(results)), "getter")
        template = "(" + ", ".join(["{}"] * len(results)) + ")"
        return dataclasses.replace(made, text=combined_text(template, results))

    # -- library functions --------------------------------------------------------------------------------

    def apply(
        self,
        effect: known.Effect,
        found: Any,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        starred: bool = False,
    ) -> Value:
        """Call a library function whose effect is known."""
        everything = [*arguments, *keywords.values()]
        functions = [value for value in everything if is_callable(value)]
        data = [value for value in everything if not is_callable(value)]
        if found in (isinstance, issubclass, callable):
            for value in everything[:1]:
                self.use(value, node, shallow=True)
            if found is not callable and not all(self._is_checkable(value) for value in everything[1:]):
                self.unknown(node, f"calls {found.__name__}() with a class that may decide by itself")
            return scalar(bool)
        if isinstance(found, np.ufunc):
            for value in arguments[found.nin :]:
                self.mutate(value, node, f"calls {_qualified(found)} with an output array")
        elif str(getattr(found, "__module__", "")).startswith("numpy"):
            inputs = 3 if getattr(found, "__name__", "") in _THREE_INPUTS else 2
            if len(arguments) > inputs:
                self.unknown(
                    node, f"calls {_qualified(found)} with so many arguments that one may be an output"
                )
        if "out" in keywords:
            self.mutate(keywords["out"], node, f"calls {_qualified(found)} with out=")
        for value in data:
            if any(value is arguments[place] for place in effect.mutates if place < len(arguments)):
                self.use(value, node, how=f"passes it to {_qualified(found)}()")
                if value.types is None and not value.is_nothing:
                    self.unknown(node, f"passes a value of unknown type to {_qualified(found)}()")
            elif effect.aliases and not effect.iterates and found not in (sorted,):
                self._contained(value, found, node)
            else:
                self.plain_use(value, node, f"passes it to {_qualified(found)}()")
            if found is not len and (Iterator in (value.types or ()) or self._is_shared_iterator(value)):
                self.iterate(value, node)
            if effect.iterates and known.UNORDERED & (value.types or frozenset()) and found not in (any, all):
                self._unordered(value, node)
            if found in (str, ascii, json.dumps) and self.holds_unordered(value):
                self.impure(node, "shows a set, whose order differs from process to process")
        elements = join_all(self._elements(value, node) for value in data)
        called = NOTHING
        for function in functions:
            for _ in range(2):
                given = None if starred else self._given(found, join(elements, called), data, node)
                if given is not None:
                    called = join(called, self.call(function, given, {}, node))
                    continue
                # How many arguments it gets is not known: each parameter may be anything that is around.
                around = join_all([elements, self._elements(elements, node), called, *data]).without_text()
                called = join(called, self.call(function, [], {}, node, Extra(places=around)))
        for place in effect.mutates:
            if place < len(arguments):
                self.mutate(
                    arguments[place], node, f"calls {_qualified(found)}() on {arguments[place].path or 'it'}"
                )
                if found is operator.setitem and len(arguments) == 3:
                    self.assign_item(arguments[0], arguments[1], arguments[2], node)
                    return NONE
                for other in arguments:
                    if other is not arguments[place]:
                        self.put(arguments[place], other, node, f"calls {_qualified(found)}()")
        return self._result(effect, found, arguments, keywords, elements, called, node)

    def _starred_result(self, effect: known.Effect, result: Value, arguments: list[Value]) -> Value:
        """With ``f(*x)`` it is not known which argument is which: the result may be or hold any of them."""
        if not effect.aliases:
            return result.without_text()
        given = join_all(arguments).without_text()
        for each in result.objects:
            if isinstance(each, Site):
                self.heap.put(each, given)
        return join(result, given).without_text()

    def _is_checkable(self, value: Value) -> bool:
        """A class, or a tuple of classes, whose instance check is Python's own."""
        parts = self.tuple_parts(value)
        if value.concrete is None and parts is not None:
            return all(self._is_checkable(part) for part in parts)
        kinds: list[Any] = []
        for each in value.concrete or (None,):
            kinds.extend(each if isinstance(each, tuple) else [each])
        return all(
            isinstance(kind, type)
            and (type(kind) in (type, enum.EnumMeta) or kind.__module__ in ("collections.abc", "numbers"))
            for kind in kinds
        )

    def _contained(self, value: Value, found: Any, node: ast.AST) -> None:
        self.use(value, node, how=f"passes it to {_qualified(found)}()")
        if value.types is None and not value.is_nothing:
            self.unknown(node, f"passes a value of unknown type to {_qualified(found)}()")
        if value.foreign:
            self.unknown(node, f"passes a value of unknown type to {_qualified(found)}()")

    def _is_shared_iterator(self, value: Value) -> bool:
        return any(
            not isinstance(each, (*known.REITERABLE, type, types.FunctionType, types.ModuleType))
            and hasattr(type(each), "__next__")
            for each in value.concrete or ()
        )

    def _given(self, found: Any, elements: Value, data: list[Value], node: ast.AST) -> list[Value] | None:
        """The arguments a library function calls a function with; None if their number is not known."""
        if found is map:
            return [self._elements(value, node).without_text() for value in data]
        if found in (functools.reduce, itertools.accumulate):
            # The first is the initial value itself, or what the function returned before.
            return [join(elements, join_all(data)), elements]
        if isinstance(found, type) and found.__name__ == "defaultdict":
            return []
        if getattr(found, "__name__", "") in ("sub", "subn"):
            return [PLAIN_VALUE]
        if found in (min, max):
            return [join(elements, join_all(data))]
        return [elements] if found in _CALL_WITH_ELEMENTS else None

    def _result(
        self,
        effect: known.Effect,
        found: Any,
        arguments: list[Value],
        keywords: dict[str, Value],
        elements: Value,
        called: Value,
        node: ast.AST,
    ) -> Value:
        kinds = effect.result
        if kinds is None:
            return self.unknown(node, f"calls {_qualified(found)}")
        text = None
        if effect.text and not keywords and arguments:
            text = combined_text("{f0}(" + ", ".join(["{}"] * len(arguments)) + ")", arguments, found)
        if found in (abs, round) and arguments:
            numeric = (arguments[0].types or frozenset()) - {NoneType}
            if numeric and numeric <= {int, float, bool}:
                kinds = frozenset(
                    {int if found is round and len(arguments) == 1 else max(numeric, key=_width)}
                )
        if found in (
            min,
            max,
            functools.reduce,
            next,
            heapq.heappop,
            heapq.heapreplace,
            heapq.heappushpop,
            operator.getitem,
        ):
            given = elements
            if len(arguments) > 1 and found in (min, max, next):
                given = join(given, join_all(value for value in arguments if not is_callable(value)))
                if found in (min, max):
                    given = join_all(value for value in arguments if not is_callable(value))
            given = join(given, join_all(v for n, v in keywords.items() if n == "default"))
            result = join(given, called if found is functools.reduce else NOTHING)
            return dataclasses.replace(result, text=text) if result.is_scalar else result.without_text()
        if all(is_scalar_type(kind) for kind in kinds):
            return Value(types=kinds, text=text)
        if found in (dict,) and not arguments:
            return self.display(node, kinds, dict(keywords), "dict")
        if found in (tuple, list) and len(arguments) == 1:
            parts = self.tuple_parts(arguments[0])
            if parts is not None:
                return dataclasses.replace(
                    self.display(node, kinds, dict(enumerate(parts)), "seq"), text=text
                )
        if found is dict and len(arguments) == 1:
            named: dict[Any, Value] | None = self.heap.parts(arguments[0])
            if named is not None and arguments[0].types == frozenset({dict}):
                return self.display(node, kinds, {**named, **keywords}, "dict")
        content = elements if effect.aliases else NOTHING
        around: frozenset[Any] = frozenset()
        if effect.aliases and found not in _GIVE_ELEMENTS:
            # Pairs, views, values given as they are: anything the arguments lead to may be in the result.
            data = join_all(value for value in (*arguments, *keywords.values()) if not is_callable(value))
            content = join(join(elements, self._elements(elements, node)), data).without_text()
            around = data.objects
        content = join(content, called)
        if found is enumerate:
            content = self.display(node, frozenset({tuple}), {0: scalar(int), 1: elements}, "pair")
        elif found is zip:
            shape = {place: self._elements(value, node) for place, value in enumerate(arguments)}
            content = self.display(node, frozenset({tuple}), shape, "pair")
        elif getattr(found, "__name__", "") in (
            "product",
            "pairwise",
            "combinations",
            "permutations",
            "zip_longest",
            "groupby",
            "combinations_with_replacement",
        ):
            inner = join(elements, NONE) if found is itertools.zip_longest else elements
            if found is itertools.groupby:
                group = self.make(node, frozenset({Iterator}), elements, "group")
                inner = join(join(called, elements), group)
                content = self.display(
                    node, frozenset({tuple}), {0: join(called, elements), 1: group}, "pair"
                )
            else:
                content = self.make(node, frozenset({tuple}), inner, "pair")
        elif found is itertools.count:
            content = scalar(int, float)
        elif found is map:
            content = called
        elif getattr(found, "__name__", "") == "from_iterable":
            content = self._elements(elements, node)
        elif found is divmod or found is range or not effect.aliases:
            content = PLAIN_VALUE
        if found in (copy.copy, copy.deepcopy) and arguments:
            kinds = arguments[0].types
            if arguments[0].is_scalar:
                return arguments[0]
            content = elements if found is copy.copy else _deep(elements)
        if kinds == frozenset({Plain}) and not effect.aliases:
            return Value(types=kinds, text=text)
        made = self.make(node, kinds, content, "call")
        for each in made.objects:
            self.heap.lose_parts(each)
        return dataclasses.replace(made, text=text, objects=made.objects | around)

    # -- functions that need care -------------------------------------------------------------------------

    def _getattr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) in (2, 3) and isinstance(arguments[1].only, str):
            target, name = arguments[0], arguments[1].only
            if len(arguments) == 3 and target.concrete is not None and not hasattr(type(target.only), name):
                missing = all(name not in getattr(each, "__dict__", {}) for each in target.concrete)
                if missing and target.only is not self.operator:
                    return arguments[2]
            found = self.attribute(target, name, node)
            return found if len(arguments) == 2 else join(found, arguments[2])
        return self.unknown(node, "reads an attribute whose name is not known")

    def _setattr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) == 3 and isinstance(arguments[1].only, str):
            self.assign_attribute(arguments[0], arguments[1].only, arguments[2], node)
            return NONE
        return self.unknown(node, "assigns an attribute whose name is not known")

    def _hasattr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) == 2 and isinstance(arguments[1].only, str):
            value, name = arguments[0], arguments[1].only
            kinds = {type(each) for each in value.concrete or ()} or set(value.types or (object,))
            for kind in kinds:
                if self._intercepts(kind, ("__getattr__", "__getattribute__")) or isinstance(
                    static_attribute(kind, name), property
                ):
                    return self.unknown(node, f"asks for .{name}, which runs code")
            if value.types is None:
                return self.unknown(node, f"asks for .{name} of a value of unknown type")
            return scalar(bool)
        return self.unknown(node, "asks for an attribute whose name is not known")

    def _type(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) != 1:
            return self.unknown(node, "makes a class")
        value = arguments[0]
        self.use(value, node, shallow=True)
        kinds: set[type] = (
            {type(each) for each in value.concrete} if value.concrete is not None else set(value.types or ())
        )
        if value.types is None or not kinds or Plain in kinds or kinds & {Iterator, Callback}:
            return Value(types=None, foreign=True)
        return join_all(self.shared(kind, f"type({value.path or kind.__name__})") for kind in kinds)

    def _super(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if not arguments:
            frame: Frame | None = self.frame
            while frame is not None and "__class__" not in frame.closure:
                frame = frame.parent
            if frame is None or not frame.node.args.args:
                return self.unknown(node, "uses super() where its class is not known")
            owner = frame.closure["__class__"].only
            first = frame.node.args.args[0].arg
            receiver = (
                self.flow.variables.get(first, NOTHING)
                if frame is self.frame
                else frame.cells.get(first, ANYTHING)
            )
        elif len(arguments) == 2:
            owner, receiver = arguments[0].only, arguments[1]
        else:
            return self.unknown(node, "uses super() with one argument")
        if not isinstance(owner, type):
            return self.unknown(node, "uses super() where its class is not known")
        return Value(
            types=None, objects=receiver.objects, concrete=(SuperProxy(owner, receiver),), path="super()"
        )

    def _print(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        for value in arguments:
            self.show(value, node)
        if "file" in keywords:
            self.impure(node, "prints to a file")
        self.facts.add(Kind.NOTE, "prints", self.place(node))
        return NONE

    def _warn(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        self.facts.add(Kind.NOTE, "warns", self.place(node))
        return NONE

    def _iter(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) != 1:
            return self.unknown(node, "calls iter() with a sentinel")
        return self.make(node, frozenset({Iterator}), self.iterate(arguments[0], node), "iter")

    def _repr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        for value in arguments:
            self.show(value, node)
        text = combined_text("{f0}({})", arguments, repr) if len(arguments) == 1 else None
        return scalar(str, text=text)

    def _format(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        for value in arguments:
            self.show(value, node)
        return scalar(
            str, text=combined_text("{f0}(" + ", ".join(["{}"] * len(arguments)) + ")", arguments, format)
        )

    def _delattr(self, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        if len(arguments) == 2 and isinstance(arguments[1].only, str):
            self.assign_attribute(arguments[0], arguments[1].only, NOTHING, node)
            return NONE
        return self.unknown(node, "deletes an attribute whose name is not known")

    # -- classes ------------------------------------------------------------------------------------------

    def _construct(
        self, kind: type, arguments: list[Value], keywords: dict[str, Value], node: ast.AST, extra: Extra
    ) -> Value:
        everything = [*arguments, *keywords.values()]
        if issubclass(kind, BaseException):
            for value in everything:
                self.use(value, node)
            made = self.make(node, frozenset({kind}), join_all(everything), "exception")
            for name in ("__new__", "__setattr__", "__getattribute__", "__init__"):
                member = static_attribute(kind, name)
                if isinstance(member, (types.FunctionType, staticmethod)):
                    if name != "__init__" or not isinstance(member, types.FunctionType):
                        return self.unknown(node, f"makes a {kind.__name__}, which has its own {name}")
                    self.call_function(member, [made, *arguments], keywords, node, extra)
            return made
        if issubclass(kind, known.ENUM):
            if not is_scalar_type(kind):
                return self.unknown(node, f"makes a {kind.__name__}, which has special methods of its own")
            return Value(types=frozenset({kind}))
        if issubclass(kind, Row):
            return self.unknown(node, "makes a tuple by its class: use t.but(…), a tuple or a dict")
        fields = getattr(kind, "_fields", None)
        if issubclass(kind, tuple) and isinstance(fields, tuple) and self.is_record(kind):
            return self._record(
                kind, fields, kind.__new__.__defaults__ or (), arguments, keywords, node, extra
            )
        if dataclasses.is_dataclass(kind) and self.is_record(kind) and "__post_init__" not in dir(kind):
            names = tuple(field.name for field in dataclasses.fields(kind) if field.init)
            plain_defaults = all(
                field.default_factory is dataclasses.MISSING
                or known.effect_of(field.default_factory) is not None
                for field in dataclasses.fields(kind)
            )
            generated = getattr(kind.__init__, "__code__", None)
            if plain_defaults and generated is not None and generated.co_filename.startswith("<"):
                return self._record(kind, names, (), arguments, keywords, node, extra)
        if not self._is_plain_class(kind):
            for value in everything:
                self.escape(value, node)
            return self.unknown(node, f"makes a {kind.__name__}, whose special methods are not known")
        made = self.make(node, frozenset({kind}), NOTHING, "instance")
        start = static_attribute(kind, "__init__")
        if isinstance(start, types.FunctionType):
            self.call_function(start, [made, *arguments], keywords, node, extra)
        return made

    def _record(
        self,
        kind: type,
        names: tuple[str, ...],
        defaults: tuple[Any, ...],
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra,
    ) -> Value:
        for value in (*arguments, *keywords.values()):
            self.use(value, node, how="puts it into a record")
        if extra.places is not None or extra.names is not None:
            inner = join(extra.places or NOTHING, extra.names or NOTHING)
            made = self.make(
                node, frozenset({kind}), join(inner, join_all([*arguments, *keywords.values()])), "record"
            )
            (site,) = made.objects
            for name in names:
                self.heap.put_attribute(site, name, self.heap.at(site).content)
            self.heap.lose_parts(site)
            return made
        parts: dict[str | int, Value] = dict(zip(names, arguments, strict=False))
        parts.update(keywords)
        for name in names:
            if name not in parts:
                default = static_attribute(kind, name)
                if dataclasses.is_dataclass(kind) and default is not inspect.Parameter.empty:
                    parts[name] = self.shared(default, f"{kind.__name__}.{name}")
                elif name in getattr(kind, "_field_defaults", {}):
                    parts[name] = self.shared(kind._field_defaults[name], f"{kind.__name__}.{name}")  # type: ignore[attr-defined]
                else:
                    parts[name] = PLAIN_VALUE if dataclasses.is_dataclass(kind) else NOTHING
        made = self.display(node, frozenset({kind}), {name: parts[name] for name in names}, "record")
        (site,) = made.objects
        for name in names:
            self.heap.put_attribute(site, name, parts[name])
        return made

    # -- user functions -----------------------------------------------------------------------------------

    def call_function(
        self,
        function: types.FunctionType,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra,
    ) -> Value:
        tree = tree_of(function)
        if isinstance(tree, NoSource):
            for value in (*arguments, *keywords.values()):
                self.escape(value, node)
            return self.unknown(node, f"calls {function.__qualname__}: {tree.reason}")
        return self.call_tree(tree, function, arguments, keywords, node, extra)

    def call_tree(
        self,
        tree: Any,
        function: Any,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra,
    ) -> Value:
        """Read the body of a function with these arguments."""
        if isinstance(tree, ast.AsyncFunctionDef):
            return self.unknown(node, f"calls {tree.name}, which is asynchronous")
        bound = self._bind(tree, function, arguments, keywords, node, extra)
        if bound is None:
            return NOTHING  # raises: the arguments do not fit
        key = id(tree)
        active = self.active.get(key)
        if active is not None:
            active.recursive = True
            for name, value in bound.items():
                joined = join(active.arguments.get(name, NOTHING), value)
                if joined != active.arguments.get(name):
                    active.arguments[name], active.grown = joined, True
            return active.result
        if len(self.active) > _DEEPEST:
            return self.unknown(node, "calls go too deep to be followed")
        active = self.active[key] = _Active(bound)
        try:
            for _ in range(8):
                active.grown = False
                result = join(active.result, self._run(tree, function, dict(active.arguments), node))
                stable = result == active.result and not active.grown
                active.result = result
                if stable or not active.recursive:
                    return result
            return self.unknown(node, "a recursion cannot be followed")
        finally:
            del self.active[key]

    def _run(self, tree: Any, function: Any, bound: dict[str, Value], node: ast.AST) -> Value:
        caller_frame, caller_flow = self.frame, self.flow
        frame = self.make_frame(tree, function)
        caller_path = self.path
        self.path = (*caller_path, id(node))
        self.frame = frame
        self.flow = Flow({})
        for name, value in bound.items():
            self.assign_name(name, value, tree)
        try:
            self.run_body(tree)
        finally:
            self.frame, self.flow, self.path = caller_frame, caller_flow, caller_path
        if frame.is_generator:
            content = join_all(each.value for each in frame.yields)
            lazy = self.lazy
            made = self.make(tree, frozenset({Iterator}), content, "generator")
            # The operator itself is read to its end before anything else happens.
            self.lazy = lazy or len(self.path) > 0
            (site,) = made.objects
            least = min([flow.least for flow, _ in frame.exits], default=0)
            most = max([flow.most for flow, _ in frame.exits], default=2)
            if isinstance(site, Site):
                self.generators[site] = (least, most, list(frame.yields))
            return made
        # What an inner function emitted through a callback counts for the operator.
        least = min([flow.least for flow, _ in frame.exits], default=0)
        most = max([flow.most for flow, _ in frame.exits], default=0)
        self.flow.emit(least, most)
        return frame.returned

    def make_frame(self, tree: Any, function: Any) -> Frame:
        names, captured, global_names, nonlocal_names, yields = local_names(tree)
        if isinstance(function, LocalFunction):
            parent = function.frame
            return Frame(
                tree,
                parent.file,
                parent.globals,
                parent.closure,
                function=parent.function,
                parent=parent,
                locals=names,
                captured=captured,
                global_names=global_names,
                nonlocal_names=nonlocal_names,
                is_generator=yields,
                cells=self.cells_of(tree),
            )
        closure: dict[str, Value] = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                closure[name] = self.shared(cell.cell_contents, name, route=("closure", function, name))
                self.facts.objects[id(cell)] = cell
                self.facts.touched.setdefault(id(cell), name)
            except ValueError:
                closure[name] = NOTHING
        return Frame(
            tree,
            function.__code__.co_filename,
            function.__globals__,
            closure,
            function=function,
            locals=names,
            captured=captured,
            global_names=global_names,
            nonlocal_names=nonlocal_names,
            is_generator=yields,
            cells=self.cells_of(tree),
        )

    def cells_of(self, tree: Any) -> dict[str, Value]:
        """The captured variables of a function; kept over passes, since a generator's body runs late."""
        return self.__dict__.setdefault("_cells", {}).setdefault(id(tree), {})

    def _bind(
        self,
        tree: Any,
        function: Any,
        arguments: list[Value],
        keywords: dict[str, Value],
        node: ast.AST,
        extra: Extra,
    ) -> dict[str, Value] | None:
        spec = tree.args
        places = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        only = [each.arg for each in spec.kwonlyargs]
        defaults = self._defaults(tree, function)
        bound: dict[str, Value] = dict(zip(places, arguments, strict=False))
        rest = arguments[len(places) :]
        named = dict(keywords)
        for name in list(named):
            if name in places or name in only:
                bound[name] = named.pop(name)
        unknown = join(extra.places or NOTHING, extra.names or NOTHING)
        starred = extra.places is not None or extra.names is not None
        for name in (*places, *only):
            if name not in bound:
                if name in defaults:
                    bound[name] = join(defaults[name], unknown) if starred else defaults[name]
                elif starred:
                    bound[name] = unknown
                else:
                    return None
        if spec.vararg is not None:
            if extra.places is None:
                bound[spec.vararg.arg] = self.display(
                    spec.vararg, frozenset({tuple}), dict(enumerate(rest)), "args"
                )
            else:
                bound[spec.vararg.arg] = self.make(
                    spec.vararg, frozenset({tuple}), join(extra.places, join_all(rest)), "args*"
                )
        elif rest:
            return None
        if spec.kwarg is not None:
            if extra.names is None:
                bound[spec.kwarg.arg] = self.display(spec.kwarg, frozenset({dict}), dict(named), "kwargs")
            else:
                bound[spec.kwarg.arg] = self.make(
                    spec.kwarg, frozenset({dict}), join(extra.names, join_all(named.values())), "kwargs*"
                )
        elif named:
            return None
        return bound

    def _defaults(self, tree: Any, function: Any) -> dict[str, Value]:
        if isinstance(function, LocalFunction):
            return dict(function.defaults)
        spec = tree.args
        places = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        values = function.__defaults__ or ()
        found = {
            name: self.shared(value, f"the default of {name}", route=("default", function, name))
            for name, value in zip(places[len(places) - len(values) :], values, strict=True)
        }
        for name, value in (function.__kwdefaults__ or {}).items():
            found[name] = self.shared(value, f"the default of {name}", route=("default", function, name))
        return found

    def run_body(self, tree: Any) -> None:
        raise NotImplementedError


def _deep(value: Value) -> Value:
    return Value(types=value.types if value.types is not None else frozenset({Plain}))


def _width(kind: type) -> int:
    return {bool: 0, int: 1, float: 2}[kind]


def _name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Call):
        text = ast.unparse(node.func)
        return text if len(text) < 60 else text[:57] + "…"
    return "a function"


def _qualified(found: Any) -> str:
    name = getattr(found, "__qualname__", None) or getattr(found, "__name__", None) or type(found).__name__
    module = getattr(found, "__module__", None)
    return (
        f"{module}.{name}"
        if isinstance(module, str) and module not in ("builtins", "__main__")
        else str(name)
    )


_THREE_INPUTS = {
    "where",
    "interp",
    "clip",
    "linspace",
    "full",
    "arange",
    "polyfit",
    "searchsorted",
    "isclose",
    "allclose",
}

#: Functions that make a new container of the elements of their argument, or of tuples of them.
_GIVE_ELEMENTS = (
    list,
    tuple,
    set,
    frozenset,
    collections.deque,
    sorted,
    reversed,
    enumerate,
    zip,
    map,
    filter,
    copy.copy,
    itertools.islice,
    itertools.chain,
    itertools.product,
    itertools.pairwise,
    itertools.combinations,
    itertools.permutations,
    itertools.takewhile,
    itertools.dropwhile,
    itertools.filterfalse,
    itertools.groupby,
    itertools.accumulate,
    heapq.nlargest,
    heapq.nsmallest,
)

#: Functions that call a function with the elements of their argument only; max(a, b, key=f) is none of them.
_CALL_WITH_ELEMENTS = (
    sorted,
    filter,
    itertools.filterfalse,
    itertools.takewhile,
    itertools.dropwhile,
    itertools.groupby,
    heapq.nlargest,
    heapq.nsmallest,
)

#: Functions the interpreter handles itself, by identity.
_SPECIAL: dict[int, tuple[Any, str]] = {
    id(function): (function, handler)
    for function, handler in (
        (getattr, "_getattr"),
        (setattr, "_setattr"),
        (hasattr, "_hasattr"),
        (delattr, "_delattr"),
        (type, "_type"),
        (super, "_super"),
        (print, "_print"),
        (warnings.warn, "_warn"),
        (iter, "_iter"),
        (repr, "_repr"),
        (format, "_format"),
    )
}
