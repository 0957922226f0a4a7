"""Following calls: into user functions and classes, and into library functions that are known."""

from __future__ import annotations

import ast
import dataclasses
import functools
import operator
import types
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.context import static_attribute
from anabranch.compiler.reading.facts import Kind
from anabranch.compiler.reading.functions import Functions
from anabranch.compiler.reading.library_calls import Extra, name_of, qualified
from anabranch.compiler.reading.specials import SPECIAL
from anabranch.compiler.reading.values import (
    ANYTHING,
    EMIT,
    NONE,
    NOTHING,
    PLAIN_VALUE,
    UNKNOWN,
    BoundMethod,
    LocalFunction,
    Plain,
    Shared,
    SuperProxy,
    Value,
    combined_text,
    constant,
    join,
    join_all,
)


class Calls(Functions):
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
            return self.unknown(node, f"calls {name_of(node)}, which is not known before it runs")
        found = [
            self._call_known(each, function, arguments, keywords, node, extra or Extra()) for each in function.concrete
        ]
        result = join_all(found)
        return result if len(found) == 1 else result.without_text()

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
        special = SPECIAL.get(id(found))
        if special is not None and special[0] is found:
            if extra.places is not None or extra.names is not None:
                return self.unknown(node, f"calls {qualified(found)} with arguments that are not known")
            return getattr(self, special[1])(arguments, keywords, node)
        starred = extra.places is not None or extra.names is not None
        if starred:
            simple = isinstance(found, types.FunctionType) and known.effect_of(found) is None
            if not simple and not isinstance(found, functools.partial):
                arguments = [*arguments, *(each for each in (extra.places, extra.names) if each is not None)]
        if type(found) is functools.partial:
            before = [self.shared(each, "an argument of partial") for each in found.args]
            named = {name: self.shared(each, "an argument of partial") for name, each in found.keywords.items()}
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
            self.impure(node, f"calls {qualified(found)}, which {why}")
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
        return self.unknown(node, f"calls {qualified(found)}, whose source is not available")

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
            why = known.impurity_of(types.MethodType(found.function, owner)) if not isinstance(owner, type) else None
            if why is not None and known.impurity_of(found.function) is not None:
                self.impure(node, f"calls {qualified(found.function)}, which {why}")
                return PLAIN_VALUE
        if not isinstance(found.function, types.FunctionType):
            return self.call(
                self.shared(found.function, found.name), [found.receiver, *arguments], keywords, node, extra
            )
        return self.call_function(found.function, [found.receiver, *arguments], keywords, node, extra)

    def _call_descriptor(self, found: Any, arguments: list[Value], keywords: dict[str, Value], node: ast.AST) -> Value:
        """``list.append(x, 1)``: a method called through its class."""
        why = known.IMPURE.get(found)
        if why is not None:
            return self.unknown(node, f"calls {qualified(found)}, which {why}")
        receiver = arguments[0]
        kinds = receiver.types
        if kinds is None or not all(kind is Plain or issubclass(kind, found.__objclass__) for kind in kinds):
            return self.unknown(node, f"calls {qualified(found)} on a value of unknown type")
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
        return made.with_text(combined_text(template, results))
