"""Following calls into user classes and functions."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import types
from typing import Any

from anabranch.compiler.reading import known
from anabranch.compiler.reading.context import static_attribute
from anabranch.compiler.reading.frames import Flow, Frame, local_names
from anabranch.compiler.reading.library_calls import Extra
from anabranch.compiler.reading.source_code import NoSource, tree_of
from anabranch.compiler.reading.specials import Specials
from anabranch.compiler.reading.values import (
    NOTHING,
    PLAIN_VALUE,
    Iterator,
    LocalFunction,
    Site,
    Value,
    is_scalar_type,
    join,
    join_all,
)
from anabranch.program.schema import Row

_DEEPEST = 24


@dataclasses.dataclass
class _Active:
    """A function that is being read, for calls that come back to it."""

    arguments: dict[str, Value]
    result: Value = NOTHING
    recursive: bool = False
    grown: bool = False


class Functions(Specials):
    """Calls of user classes and functions."""

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
            return self._record(kind, fields, kind.__new__.__defaults__ or (), arguments, keywords, node, extra)
        if dataclasses.is_dataclass(kind) and self.is_record(kind) and "__post_init__" not in dir(kind):
            names = tuple(field.name for field in dataclasses.fields(kind) if field.init)
            plain_defaults = all(
                field.default_factory is dataclasses.MISSING or known.effect_of(field.default_factory) is not None
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
            made = self.make(node, frozenset({kind}), join(inner, join_all([*arguments, *keywords.values()])), "record")
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
                bound[spec.vararg.arg] = self.display(spec.vararg, frozenset({tuple}), dict(enumerate(rest)), "args")
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
