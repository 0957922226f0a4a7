"""Following calls: into user functions and classes, and into library functions that are known."""

from __future__ import annotations

import ast
import dataclasses
import datetime
import functools
import operator
import types
import zoneinfo
from random import Random
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.attributes import attribute_of
from anabranch.compiler.reading.builtin_calls import SPECIAL
from anabranch.compiler.reading.displays import iterate_over, make_display, tuple_parts
from anabranch.compiler.reading.emitting import emit_value
from anabranch.compiler.reading.facts import Kind
from anabranch.compiler.reading.kinds import static_attribute
from anabranch.compiler.reading.library_calls import apply_effect, name_of, qualified, starred_result
from anabranch.compiler.reading.method_calls import call_method
from anabranch.compiler.reading.reading_state import ExpressionHandlers, Extra, Reading
from anabranch.compiler.reading.settings_calls import look_at_setting
from anabranch.compiler.reading.subscripts import item_of
from anabranch.compiler.reading.tameness import show_value
from anabranch.compiler.reading.user_functions import call_function, call_tree, changed_record, construct
from anabranch.compiler.reading.values import (
    ANYTHING,
    EMIT,
    NONE,
    NOTHING,
    PLAIN_VALUE,
    UNKNOWN,
    BoundMethod,
    LocalFunction,
    NoneType,
    Plain,
    Shared,
    Site,
    SuperProxy,
    Value,
    combined_text,
    constant,
    is_plain_enum,
    is_scalar_type,
    join,
    join_all,
)
from anabranch.program.object_parts import is_library


def _read_call(reading: Reading, node: ast.Call) -> Value:
    function = reading.evaluate(node.func)
    arguments: list[Value] = []
    keywords: dict[str, Value] = {}
    extra = Extra()
    for argument in node.args:
        if isinstance(argument, ast.Starred):
            inner = reading.evaluate(argument.value)
            parts = tuple_parts(reading, inner)
            if parts is not None and extra.places is None:
                arguments.extend(parts)
            else:
                extra.places = join(extra.places or NOTHING, iterate_over(reading, inner, node))
        else:
            arguments.append(reading.evaluate(argument))
    for keyword in node.keywords:
        value = reading.evaluate(keyword.value)
        if keyword.arg is not None:
            keywords[keyword.arg] = value
            continue
        named = reading.heap.parts(value)
        if named is not None and all(isinstance(name, str) for name in named):
            keywords.update({str(name): part for name, part in named.items()})
        else:
            extra.names = join(extra.names or NOTHING, reading.content(value, node))
    return reading.call(function, arguments, keywords, node, extra)


def call(
    reading: Reading,
    function: Value,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    extra: Extra,
) -> Value:
    if function.is_nothing:
        return NOTHING
    if function.concrete is None:
        for value in (*arguments, *keywords.values()):
            reading.escape(value, node)
        return reading.unknown(node, f"calls {name_of(node)}, which is not known before it runs")
    found = [_call_known(reading, each, function, arguments, keywords, node, extra) for each in function.concrete]
    result = join_all(found)
    return result if len(found) == 1 else result.without_text()


def _call_known(
    reading: Reading,
    found: Any,
    function: Value,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    extra: Extra,
) -> Value:
    if found is None:
        return NOTHING  # raises
    if found is EMIT:
        if len(arguments) != 1 or keywords or extra.places is not None:
            return reading.unknown(node, "calls emit with something other than one tuple")
        emit_value(reading, arguments[0], node)
        return NONE
    if isinstance(found, LocalFunction):
        return call_tree(reading, found.node, found, arguments, keywords, node, extra)
    if isinstance(found, BoundMethod):
        return _call_bound(reading, found, arguments, keywords, node, extra)
    reading.called[id(node)] = found
    look_at_setting(reading, found, len(arguments) + len(keywords), node)
    special = SPECIAL.get(id(found))
    if special is not None and special[0] is found:
        if extra.places is not None or extra.names is not None:
            return reading.unknown(node, f"calls {qualified(found)} with arguments that are not known")
        return special[1](reading, arguments, keywords, node)
    starred = extra.places is not None or extra.names is not None
    if starred:
        simple = isinstance(found, types.FunctionType) and known.effect_of(found) is None
        if not simple and not isinstance(found, functools.partial):
            arguments = [*arguments, *(each for each in (extra.places, extra.names) if each is not None)]
    if type(found) is functools.partial:
        before = [reading.shared(each, "an argument of partial") for each in found.args]
        named = {name: reading.shared(each, "an argument of partial") for name, each in found.keywords.items()}
        inner = reading.shared(found.func, getattr(found.func, "__name__", "the function of partial"))
        return reading.call(inner, [*before, *arguments], {**named, **keywords}, node, extra)
    if isinstance(found, (operator.itemgetter, operator.attrgetter)):
        return _call_getter(reading, found, arguments, node)
    if found is Random and not any(value.only is not None for value in arguments):
        reading.impure(node, "makes a generator of random numbers without a seed", is_chance=True)
    if isinstance(found, functools._lru_cache_wrapper) and known.effect_of(found) is None:
        inner = reading.shared(found.__wrapped__, found.__name__)
        if starred or not all(_tells_apart(reading, value) for value in (*arguments, *keywords.values())):
            # 1, 1.0 and True are one entry, and 0.0 and -0.0: who comes first decides what the others get.
            reading.impure(node, f"calls {found.__name__}, whose cache takes values that are equal for the same")
        result = reading.call(inner, arguments, keywords, node, extra)
        if result.is_scalar or result.is_nothing or _never_changes(reading, result):
            return result
        # All calls get the same object: changing it would be seen by later calls.
        return dataclasses.replace(
            result, objects=result.objects | {Shared(id(found), f"the cache of {found.__name__}")}
        )
    if isinstance(found, types.MethodType):
        receiver = reading.shared(found.__self__, getattr(found.__self__, "__name__", "its object"))
        if isinstance(found.__func__, types.FunctionType):
            return _call_bound(
                reading, BoundMethod(receiver, found.__name__, found.__func__), arguments, keywords, node, extra
            )
    is_getter = found is operator.itemgetter or found is operator.attrgetter
    if is_getter and arguments and all(isinstance(each.only, (str, int)) for each in arguments):
        made = found(*(each.only for each in arguments))
        return Value(types=frozenset({found}), concrete=(made,))
    if found is dataclasses.replace and arguments:
        made = changed_record(reading, arguments[0], "replace", [], keywords, node, extra)
        return made if made is not None else reading.unknown(node, "replaces fields of a value of unknown type")
    effect = known.effect_of(found)
    if effect is not None:
        result = apply_effect(reading, effect, found, arguments, keywords, node, starred)
        return starred_result(reading, effect, result, arguments) if starred else result
    why = known.impurity_of(found)
    if why is not None:
        exact = None if starred else _pure_after_all(found, arguments, keywords)
        if exact is not None:
            return exact
        is_chance = known.is_chance(why, getattr(found, "__name__", ""), len(arguments))
        reading.impure(node, f"calls {qualified(found)}, which {why}", is_chance)
        if found is id:
            reading.facts.by_identity.setdefault("calls id()", reading.place(node))
        return PLAIN_VALUE
    if isinstance(found, types.FunctionType) and found.__code__ is _DISPATCH and arguments:
        # Which one is meant depends on the class of the first argument: any of them may be.
        ways = [reading.shared(each, found.__name__) for each in found.registry.values()]  # type: ignore[attr-defined]
        return join_all(reading.call(way, arguments, keywords, node, extra) for way in ways).without_text()
    if isinstance(found, types.FunctionType):
        return call_function(reading, found, arguments, keywords, node, extra)
    if isinstance(found, type):
        return construct(reading, found, arguments, keywords, node, extra)
    if isinstance(found, (types.MethodDescriptorType, types.WrapperDescriptorType)) and arguments:
        if starred:
            return reading.unknown(node, f"calls {qualified(found)} with arguments that are not known")
        return _call_descriptor(reading, found, arguments, keywords, node)
    if isinstance(found, (types.BuiltinMethodType, types.MethodWrapperType)):
        owner = getattr(found, "__self__", None)
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            return call_method(
                reading,
                reading.shared(owner, function.path or "its object"),
                found.__name__,
                arguments,
                keywords,
                node,
                starred,
            )
    member = static_attribute(type(found), "__call__")
    if isinstance(member, types.FunctionType):
        return call_function(
            reading,
            member,
            [function if function.only is found else reading.shared(found, "it"), *arguments],
            keywords,
            node,
            extra,
        )
    for value in (*arguments, *keywords.values()):
        reading.escape(value, node)
    return reading.unknown(node, f"calls {qualified(found)}, whose source is not available")


_DISPATCH = functools.singledispatch(abs).__code__  # type: ignore[attr-defined]


def _pure_after_all(found: Any, arguments: list[Value], keywords: dict[str, Value]) -> Value | None:
    """What an impure function gives for arguments with which it is a function of them."""
    if found is hash and len(arguments) == 1 and arguments[0].types is not None and arguments[0].types <= {int, bool}:
        return Value(types=frozenset({int}), text=combined_text("{f0}({})", arguments, hash))
    zone = keywords.get("tz", arguments[1] if len(arguments) == 2 else NONE)
    of_datetime = getattr(found, "__self__", None) is datetime.datetime and found.__name__ == "fromtimestamp"
    if of_datetime and zone.types is not None and zone.types <= {datetime.timezone, zoneinfo.ZoneInfo} and arguments:
        return Value(types=frozenset({datetime.datetime}))
    return None


#: Values of these types that are equal are the same in every respect.
_EXACT = frozenset({int, str, bytes, bool, datetime.date})


def _tells_apart(reading: Reading, value: Value) -> bool:
    """A cache that looks this value up by equality finds only what was stored for the very same value."""
    parts = tuple_parts(reading, value)
    if parts is not None and value.types == frozenset({tuple}):
        return all(_tells_apart(reading, part) for part in parts)
    kinds = None if value.types is None else value.types - {NoneType}
    if value.concrete is not None and all(isinstance(each, (type, types.FunctionType)) for each in value.concrete):
        return True
    return kinds is not None and len(kinds) <= 1 and all(kind in _EXACT or is_plain_enum(kind) for kind in kinds)


def _never_changes(reading: Reading, value: Value) -> bool:
    """Numbers and texts, and tuples of them: it does not matter who else has them."""
    held = [value, *(reading.heap.at(each).content for each in reading.heap.reach(value.objects))]
    if any(not isinstance(each, Site) for each in reading.heap.reach(value.objects)):
        return False
    return all(
        each.types is not None
        and not each.foreign
        and all(is_scalar_type(kind) or kind in (tuple, frozenset) for kind in each.types)
        for each in held
    )


def _call_bound(
    reading: Reading,
    found: BoundMethod,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    extra: Extra,
) -> Value:
    if found.function is None:
        more = [each for each in (extra.places, extra.names) if each is not None]
        return call_method(reading, found.receiver, found.name, [*arguments, *more], keywords, node, bool(more))
    if isinstance(found.function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        if extra.places is not None or extra.names is not None:
            return reading.unknown(node, f"calls {qualified(found.function)} with arguments that are not known")
        return _call_descriptor(reading, found.function, [found.receiver, *arguments], keywords, node)
    if getattr(found.function, "__module__", None) == "logging":
        return _log(reading, found, [*arguments, *keywords.values()], node)
    owner = found.receiver.only
    if owner is not UNKNOWN and not isinstance(owner, (SuperProxy, BoundMethod, LocalFunction)):
        why = known.impurity_of(types.MethodType(found.function, owner)) if not isinstance(owner, type) else None
        if why is not None and known.impurity_of(found.function) is not None:
            is_chance = known.is_chance(why, getattr(found.function, "__name__", ""))
            reading.impure(node, f"calls {qualified(found.function)}, which {why}", is_chance)
            return PLAIN_VALUE
    if found.name in ("_replace", "_asdict") and isinstance(found.function, types.FunctionType):
        made = changed_record(reading, found.receiver, found.name, arguments, keywords, node, extra)
        if made is not None:
            return made
    if not isinstance(found.function, types.FunctionType) or found.function.__code__ is _DISPATCH:
        return reading.call(
            reading.shared(found.function, found.name), [found.receiver, *arguments], keywords, node, extra
        )
    return call_function(reading, found.function, [found.receiver, *arguments], keywords, node, extra)


def _log(reading: Reading, found: BoundMethod, values: list[Value], node: ast.AST) -> Value:
    """A method of a logger: what it writes no tuple shows, unless the user's own code takes it."""
    if found.name not in _WRITING:
        return reading.unknown(node, f"calls .{found.name}() of a logger, which all of the process share")
    assert found.function is not None
    root, at = found.function.__globals__["root"], found.receiver.only
    loggers: list[Any] = [root, *root.manager.loggerDict.values()]
    if at is not UNKNOWN:  # those that pass on what it is given
        loggers = [at]
        while getattr(loggers[-1], "propagate", False) and loggers[-1].parent is not None:
            loggers.append(loggers[-1].parent)
    taking = [getattr(each, name, []) for each in loggers for name in ("handlers", "filters")]
    own = next((each for some in taking for each in some if not is_library(type(each).__module__)), None)
    if own is not None:
        return reading.unknown(node, f"writes to a log, which a {type(own).__qualname__} takes: it may keep something")
    for value in values:
        show_value(reading, value, node)
    reading.facts.add(Kind.NOTE, "writes to a log", reading.place(node))
    return NONE


_WRITING = frozenset({"debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log"})


def _call_descriptor(
    reading: Reading, found: Any, arguments: list[Value], keywords: dict[str, Value], node: ast.AST
) -> Value:
    """``list.append(x, 1)``: a method called through its class."""
    why = known.IMPURE.get(found)
    if why is not None:
        return reading.unknown(node, f"calls {qualified(found)}, which {why}")
    receiver = arguments[0]
    kinds = receiver.types
    if kinds is None or not all(kind is Plain or issubclass(kind, found.__objclass__) for kind in kinds):
        return reading.unknown(node, f"calls {qualified(found)} on a value of unknown type")
    return call_method(reading, receiver, found.__name__, arguments[1:], keywords, node)


def _call_getter(reading: Reading, found: Any, arguments: list[Value], node: ast.AST) -> Value:
    _, items = found.__reduce__()[:2]
    results = []
    for item in items:
        value = arguments[0] if arguments else ANYTHING
        if isinstance(found, operator.itemgetter):
            results.append(item_of(reading, value, constant(item), node))
        else:
            for name in item.split("."):
                value = attribute_of(reading, value, name, node)
            results.append(value)
    if len(results) == 1:
        return results[0]
    made = make_display(reading, node, frozenset({tuple}), dict(enumerate(results)), "getter")
    template = "(" + ", ".join(["{}"] * len(results)) + ")"
    return made.with_text(combined_text(template, results))


#: The expressions that are read here.
EXPRESSIONS: ExpressionHandlers = {
    ast.Call: _read_call,
}
