"""Following calls into user classes and functions: binding arguments, reading the body, what comes back."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
import typing
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.attributes import attribute_of
from anabranch.compiler.reading.displays import make_display, make_object
from anabranch.compiler.reading.emitting import leave
from anabranch.compiler.reading.facts import Emission
from anabranch.compiler.reading.frames import ActiveCall, ControlFlow, Frame, GeneratorMade, local_names
from anabranch.compiler.reading.kinds import is_generated, is_plain_class, is_record, static_attribute
from anabranch.compiler.reading.names import assign_name
from anabranch.compiler.reading.reading_state import Extra, Reading
from anabranch.compiler.reading.values import (
    NONE,
    NOTHING,
    Iterator,
    LocalFunction,
    Site,
    Value,
    is_scalar_type,
    join,
    join_all,
)
from anabranch.program.schema import Row
from anabranch.program.source_code import NoSource, tree_of

_DEEPEST = 24


def construct(
    reading: Reading, kind: type, arguments: list[Value], keywords: dict[str, Value], node: ast.AST, extra: Extra
) -> Value:
    everything = [*arguments, *keywords.values()]
    if issubclass(kind, BaseException):
        for value in everything:
            reading.use(value, node)
        made = make_object(reading, node, frozenset({kind}), join_all(everything), "exception")
        special = ("__str__", "__repr__", "__eq__", "__hash__", "__bool__", "__reduce__", "__format__")
        own = any(isinstance(static_attribute(kind, name), types.FunctionType) for name in special)
        starred = extra.places is not None or extra.names is not None
        reading.makes_odd_errors |= own or starred or not all(value.is_scalar for value in everything)
        for name in ("__new__", "__setattr__", "__getattribute__", "__init__"):
            member = static_attribute(kind, name)
            if isinstance(member, (types.FunctionType, staticmethod)):
                if name != "__init__" or not isinstance(member, types.FunctionType):
                    return reading.unknown(node, f"makes a {kind.__name__}, which has its own {name}")
                call_function(reading, member, [made, *arguments], keywords, node, extra)
        return made
    if issubclass(kind, known.ENUM):
        if not is_scalar_type(kind):
            return reading.unknown(node, f"makes a {kind.__name__}, which has special methods of its own")
        return Value(types=frozenset({kind}))
    if issubclass(kind, Row):
        return reading.unknown(node, "makes a tuple by its class: use t.but(…), a tuple or a dict")
    fields = getattr(kind, "_fields", None)
    if issubclass(kind, tuple) and isinstance(fields, tuple) and is_record(kind):
        return _record(reading, kind, fields, kind.__new__.__defaults__ or (), arguments, keywords, node, extra)
    if typing.is_typeddict(kind) and not arguments and extra.names is None:
        return make_display(reading, node, frozenset({dict}), dict(keywords), "dict")
    if kind is types.SimpleNamespace and not arguments and extra.names is None:
        made = make_object(reading, node, frozenset({kind}), join_all(everything), "instance")
        (site,) = made.objects
        for name, value in keywords.items():
            reading.heap.put_attribute(site, name, value)
        return made
    tame = is_record(kind) or is_plain_class(kind)
    if dataclasses.is_dataclass(kind) and tame:
        names = tuple(field.name for field in dataclasses.fields(kind) if field.init)
        after = static_attribute(kind, "__post_init__")
        simple = after is inspect.Parameter.empty or isinstance(after, types.FunctionType)
        generated = getattr(kind.__init__, "__code__", None)
        if simple and _has_simple_fields(kind) and generated is not None and is_generated(generated):
            made = _record(reading, kind, names, (), arguments, keywords, node, extra)
            if isinstance(after, types.FunctionType):
                call_function(reading, after, [made], {}, node, Extra())
            return made
    if not is_plain_class(kind):
        for value in everything:
            reading.escape(value, node)
        return reading.unknown(node, f"makes a {kind.__name__}, whose special methods are not known")
    made = make_object(reading, node, frozenset({kind}), NOTHING, "instance")
    start = static_attribute(kind, "__init__")
    if isinstance(start, types.FunctionType):
        call_function(reading, start, [made, *arguments], keywords, node, extra)
    return made


def _has_simple_fields(kind: Any) -> bool:
    """Nothing that is given to __post_init__ only; no descriptors for defaults."""
    pseudo = len(kind.__dataclass_fields__) != len(dataclasses.fields(kind))
    return not pseudo and not any(hasattr(type(field.default), "__get__") for field in dataclasses.fields(kind))


def _is_missing(default: Any) -> bool:
    """By its type: a class that was pickled has a marker of its own."""
    return type(default) is type(dataclasses.MISSING)


def _record(
    reading: Reading,
    kind: type,
    names: tuple[str, ...],
    defaults: tuple[Any, ...],
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    extra: Extra,
) -> Value:
    for value in (*arguments, *keywords.values()):
        reading.use(value, node, how="puts it into a record")
    if extra.places is not None or extra.names is not None:
        inner = join(extra.places or NOTHING, extra.names or NOTHING)
        made = make_object(
            reading, node, frozenset({kind}), join(inner, join_all([*arguments, *keywords.values()])), "record"
        )
        (site,) = made.objects
        for name in names:
            reading.heap.put_attribute(site, name, reading.heap.at(site).content)
        reading.heap.lose_parts(site)
        return made
    parts: dict[str | int, Value] = dict(zip(names, arguments, strict=False))
    parts.update(keywords)
    for name in names:
        if name not in parts:
            if dataclasses.is_dataclass(kind):
                parts[name] = _default_of_field(reading, kind, name, node)
            elif name in getattr(kind, "_field_defaults", {}):
                parts[name] = reading.shared(kind._field_defaults[name], f"{kind.__name__}.{name}")  # type: ignore[attr-defined]
            else:
                parts[name] = NOTHING
    made = make_display(reading, node, frozenset({kind}), {name: parts[name] for name in names}, "record")
    (site,) = made.objects
    for name in names:
        reading.heap.put_attribute(site, name, parts[name])
    if dataclasses.is_dataclass(kind):
        for field in dataclasses.fields(kind):
            if not field.init:  # set by what is generated, or by __post_init__
                given = _default_of_field(reading, kind, field.name, node)
                reading.heap.put_attribute(site, field.name, given)
                reading.heap.put(site, given)
    return made


def _default_of_field(reading: Reading, kind: Any, name: str, node: ast.AST) -> Value:
    """What a field of a dataclass is if nothing is given: the default, or what its factory makes for each object."""
    field = kind.__dataclass_fields__[name]
    if not _is_missing(field.default):
        return reading.shared(field.default, f"{kind.__name__}.{name}")
    if _is_missing(field.default_factory):
        return NOTHING
    effect = known.effect_of(field.default_factory)
    if effect is not None and effect.result is not None:
        return make_object(reading, node, effect.result, NOTHING, f"default of {name}")
    factory = reading.shared(field.default_factory, f"the factory of {kind.__name__}.{name}")
    return reading.call(factory, [], {}, node)


def changed_record(
    reading: Reading,
    receiver: Value,
    name: str,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    extra: Extra,
) -> Value | None:
    """``p._replace(x=1)``, ``p._asdict()``, ``replace(p, x=1)`` of a record; None if it is none, or overrides them."""
    kinds = receiver.types
    if kinds is None or len(kinds - {type(None)}) != 1 or arguments or extra.places is not None:
        return None
    kind: Any = next(iter(kinds - {type(None)}))
    is_named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if not is_record(kind) or is_named == (name == "replace"):
        return None
    if is_named and not is_generated(getattr(static_attribute(kind, name), "__code__", _NO_CODE)):
        return None
    names = kind._fields if is_named else tuple(field.name for field in dataclasses.fields(kind) if field.init)
    only = dataclasses.replace(receiver, types=frozenset({kind}))
    parts = {each: attribute_of(reading, only, each, node) for each in names}
    if name == "_asdict":
        return make_display(reading, node, frozenset({dict}), parts, "asdict")
    if extra.names is not None:
        parts = {each: join(part, extra.names) for each, part in parts.items()}
    return construct(reading, kind, [], {**parts, **keywords}, node, Extra())


_NO_CODE = compile("", "user", "exec")


def call_function(
    reading: Reading,
    function: types.FunctionType,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    extra: Extra,
) -> Value:
    tree = tree_of(function)
    if isinstance(tree, NoSource):
        for value in (*arguments, *keywords.values()):
            reading.escape(value, node)
        return reading.unknown(node, f"calls {function.__qualname__}: {tree.reason}")
    return call_tree(reading, tree, function, arguments, keywords, node, extra)


def call_tree(
    reading: Reading,
    tree: Any,
    function: Any,
    arguments: list[Value],
    keywords: dict[str, Value],
    node: ast.AST,
    extra: Extra,
) -> Value:
    """Read the body of a function with these arguments."""
    if isinstance(tree, ast.AsyncFunctionDef):
        # When it runs is not followed, but what it does is: as if it were awaited at once.
        reading.unknown(node, f"calls {tree.name}, which is asynchronous")
    bound = _bind(reading, tree, function, arguments, keywords, node, extra)
    if bound is None:
        return NOTHING  # raises: the arguments do not fit
    key = id(tree)
    active = reading.active.get(key)
    if active is not None:
        active.recursive = True
        for name, value in bound.items():
            joined = join(active.arguments.get(name, NOTHING), value)
            if joined != active.arguments.get(name):
                active.arguments[name], active.grown = joined, True
        return active.result
    if len(reading.active) > _DEEPEST:
        return reading.unknown(node, "calls go too deep to be followed")
    active = reading.active[key] = ActiveCall(bound)
    try:
        for _ in range(8):
            active.grown = False
            result = join(active.result, _run(reading, tree, function, dict(active.arguments), node))
            stable = result == active.result and not active.grown
            active.result = result
            if stable or not active.recursive:
                return result
        return reading.unknown(node, "a recursion cannot be followed")
    finally:
        del reading.active[key]


def _run(reading: Reading, tree: Any, function: Any, bound: dict[str, Value], node: ast.AST) -> Value:
    caller_frame, caller_flow = reading.frame, reading.flow
    frame = make_frame(reading, tree, function)
    caller_path = reading.path
    reading.path = (*caller_path, id(node))
    reading.frame = frame
    reading.flow = ControlFlow({})
    for name, value in bound.items():
        assign_name(reading, name, value, tree)
    try:
        run_body(reading, tree)
    finally:
        reading.frame, reading.flow, reading.path = caller_frame, caller_flow, caller_path
    if frame.is_generator:
        content = join_all(each.value for each in frame.yields)
        lazy = reading.lazy
        made = make_object(reading, tree, frozenset({Iterator}), content, "generator")
        # The operator itself is read to its end before anything else happens.
        reading.lazy = lazy or len(reading.path) > 0
        (site,) = made.objects
        least = min([flow.least for flow, _ in frame.exits], default=0)
        most = max([flow.most for flow, _ in frame.exits], default=2)
        if isinstance(site, Site):
            reading.generators[site] = GeneratorMade(least, most, list(frame.yields), frame.returned)
        return made
    # What an inner function emitted through a callback counts for the operator.
    least = min([flow.least for flow, _ in frame.exits], default=0)
    most = max([flow.most for flow, _ in frame.exits], default=0)
    reading.flow.emit(least, most)
    return frame.returned


def make_frame(reading: Reading, tree: Any, function: Any) -> Frame:
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
            cells=reading.cells.setdefault(id(tree), {}),
        )
    closure: dict[str, Value] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            closure[name] = reading.shared(cell.cell_contents, name, route=("closure", function, name))
            reading.facts.objects[id(cell)] = cell
            reading.facts.touched.setdefault(id(cell), name)
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
        cells=reading.cells.setdefault(id(tree), {}),
    )


def _bind(
    reading: Reading,
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
    defaults = _defaults(reading, tree, function)
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
            bound[spec.vararg.arg] = make_display(
                reading, spec.vararg, frozenset({tuple}), dict(enumerate(rest)), "args"
            )
        else:
            bound[spec.vararg.arg] = make_object(
                reading, spec.vararg, frozenset({tuple}), join(extra.places, join_all(rest)), "args*"
            )
    elif rest:
        return None
    if spec.kwarg is not None:
        if extra.names is None:
            bound[spec.kwarg.arg] = make_display(reading, spec.kwarg, frozenset({dict}), dict(named), "kwargs")
        else:
            bound[spec.kwarg.arg] = make_object(
                reading, spec.kwarg, frozenset({dict}), join(extra.names, join_all(named.values())), "kwargs*"
            )
    elif named:
        return None
    return bound


def _defaults(reading: Reading, tree: Any, function: Any) -> dict[str, Value]:
    if isinstance(function, LocalFunction):
        return dict(function.defaults)
    spec = tree.args
    places = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    values = function.__defaults__ or ()
    found = {
        name: reading.shared(value, f"the default of {name}", route=("default", function, name))
        for name, value in zip(places[len(places) - len(values) :], values, strict=True)
    }
    for name, value in (function.__kwdefaults__ or {}).items():
        found[name] = reading.shared(value, f"the default of {name}", route=("default", function, name))
    return found


def run_body(reading: Reading, tree: Any) -> None:
    frame = reading.frame
    if isinstance(tree, ast.Lambda):
        value = reading.evaluate(tree.body)
        leave(reading, value, tree.body)
        return
    reading.run(tree.body)
    if reading.flow.alive:
        frame.returned = join(frame.returned, NONE)
        frame.exits.append((reading.flow.copy(), None))
        reading.returns.setdefault(id(tree), []).append(Emission(NONE, reading.place(tree.body[-1])))
