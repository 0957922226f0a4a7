"""The frozen plan: what the runtime executes and the checkpoint remembers.

A plan's *description* is plain data without paths, line numbers, addresses or anything else that differs
between two compilations of the same program; its digest is the fingerprint. Two descriptions can be
compared in words, so that a restart with a changed program says what has changed.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import types
from collections.abc import Mapping
from typing import Any

from anabranch.compiler.layout.regions import Border
from anabranch.compiler.layout.strategies import Joint, Order, Routing
from anabranch.compiler.reading.read_operator import top_function
from anabranch.compiler.reading.source_code import NoSource, tree_of
from anabranch.program.graph import Keyed, Logic, Node
from anabranch.program.model import Key, Model, Selectivity


@dataclasses.dataclass(frozen=True)
class Options:
    """How to compile.

    Attributes
    ----------
    emission_index : bool
        Packets carry the place of a tuple among those with its sequence number, so that a shuffle after a
        prolific region keeps their order. Without it such regions are merged and split again.
    fans : bool
        A region may begin with an operator that reads several streams, and end with one whose stream is read by
        several: trails keep the order across unions and forks. Without it, as in the *Safe* paper, such operators
        are in no region.
    """

    emission_index: bool = False
    fans: bool = False


@dataclasses.dataclass(frozen=True)
class PlannedOperator:
    """An operator with what is believed of it and where it runs.

    Attributes
    ----------
    node : Node
    model : Model
    logic : Logic
        What to run: the node's own, or what the compiler made of it (case 2).
    region : int or None
        Its parallel region; None if it is sequential.
    process : int
        Its processing element: operators with the same number run fused.
    blocked : str
        For a sequential operator, what keeps it out of every region.
    remedy : str
        … and the smallest change that would free it.
    """

    node: Node
    model: Model
    logic: Logic
    region: int | None
    process: int
    blocked: str = ""
    remedy: str = ""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def key(self) -> Key | None:
        return self.model.key


@dataclasses.dataclass(frozen=True)
class Region:
    """Operators that are replicated together.

    Attributes
    ----------
    number : int
    operators : tuple of str
        Names, in the order tuples pass them.
    key : tuple of str
        The columns of the region's input that tuples are routed by; empty if any channel will do.
    key_function : callable or None
        … or the function of the tuple whose value they are routed by, with `key_text` as its expression.
    first, last : Joint
    routing : Routing
    ordering : Order
        How the merger (or the next region's, after a shuffle) restores the order.
    selectivity : Selectivity
        Of the region alone; `flow_selectivity` of it and the regions shuffled into it.
    """

    number: int
    operators: tuple[str, ...]
    key: tuple[str, ...]
    key_text: str
    key_function: Any
    first: Joint
    last: Joint
    routing: Routing
    ordering: Order
    selectivity: Selectivity
    flow_selectivity: Selectivity
    stateless: bool
    reason: str


@dataclasses.dataclass(frozen=True)
class Process:
    """Operators that run fused, in one process: all in one region, or all sequential."""

    number: int
    operators: tuple[str, ...]
    region: int | None


@dataclasses.dataclass(frozen=True)
class Plan:
    """A compiled program.

    Attributes
    ----------
    operators : tuple of PlannedOperator
        In an order in which every operator comes after those it reads.
    regions : tuple of Region
    processes : tuple of Process
    borders : tuple of Border
        Why each region ends where it ends.
    outputs : tuple of str
        The operators whose streams leave the program.
    """

    operators: tuple[PlannedOperator, ...]
    regions: tuple[Region, ...]
    processes: tuple[Process, ...]
    borders: tuple[Border, ...]
    outputs: tuple[str, ...]
    options: Options

    def operator(self, name: str) -> PlannedOperator:
        for each in self.operators:
            if each.name == name:
                return each
        raise KeyError(f"no operator {name!r}; operators: {', '.join(each.name for each in self.operators)}")

    def region_of(self, name: str) -> Region | None:
        found = self.operator(name).region
        return None if found is None else self.regions[found]

    def description(self) -> dict[str, Any]:
        """The plan as plain data, the same in every process and on every machine."""
        return describe(self)

    @property
    def fingerprint(self) -> str:
        """The digest of the description."""
        text = json.dumps(self.description(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def explain(self, form: str = "text") -> str:
        """Explain the plan as "text", "json", "mermaid" or "svg"."""
        from anabranch.compiler.explaining.explain import explain

        return explain(self, form)


# -- description ------------------------------------------------------------------------------------------


def describe(plan: Plan) -> dict[str, Any]:
    return {
        "version": 1,
        "operators": {each.name: _describe_operator(each) for each in plan.operators},
        "regions": [
            {
                "operators": list(region.operators),
                "key": region.key_text,
                "first": region.first.value,
                "last": region.last.value,
                "routing": region.routing.value,
                "ordering": region.ordering.value,
            }
            for region in plan.regions
        ],
        "outputs": list(plan.outputs),
    }


def _describe_operator(operator: PlannedOperator) -> dict[str, Any]:
    node, model = operator.node, operator.model
    return {
        "kind": node.kind,
        "inputs": [source.name for source in node.inputs],
        "schema": repr(node.schema),
        "state": model.state.text,
        "key": model.key.text if model.key is not None else "",
        "fields": _describe_fields(operator.logic),
        "selectivity": model.selectivity.text,
        "forwards": dict(sorted(model.forwarding.value.items())),
        "code": code_digest(node),
    }


def _describe_fields(logic: Any) -> dict[str, str]:
    if not isinstance(logic, Keyed):
        return {}
    found = {}
    for field in logic.fields:
        if field.factory is not None:
            found[field.name] = f"made by {getattr(field.factory, '__qualname__', type(field.factory).__name__)}"
        elif isinstance(field.default, (type(None), bool, int, float, str, bytes, tuple)):
            found[field.name] = repr(field.default)
        else:
            found[field.name] = type(field.default).__qualname__
    return found


def code_digest(node: Node) -> str:
    """The digest of an operator's code: of its syntax, not of its layout."""
    logic = node.logic
    for name in ("function", "operator", "prototype"):
        target = getattr(logic, name, None)
        if target is not None:
            return _digest(target, getattr(logic, "method", None))
    return ""


def _digest(target: Any, method: str | None) -> str:
    functions: list[types.FunctionType] = []
    top = top_function(target, method)
    if top is not None:
        functions.append(top)
    owner = target.__self__ if isinstance(target, types.MethodType) else target
    if not isinstance(owner, (types.FunctionType, type)):
        for base in type(owner).__mro__:
            if base is not object and not base.__module__.startswith(("anabranch.", "functools", "builtins")):
                functions.extend(member for member in vars(base).values() if isinstance(member, types.FunctionType))
    text = []
    for function in dict.fromkeys(functions):
        tree = tree_of(function)
        if isinstance(tree, NoSource):
            text.append(f"{function.__name__}:{function.__code__.co_code.hex()}")
        else:
            text.append(_dump(tree))
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16] if text else ""


_dumps: dict[int, tuple[ast.AST, str]] = {}


def _dump(tree: ast.AST) -> str:
    kept = _dumps.get(id(tree))
    if kept is None or kept[0] is not tree:
        kept = _dumps[id(tree)] = (tree, ast.unparse(tree))
    return kept[1]


# -- difference -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Change:
    """One difference between two plans.

    Attributes
    ----------
    operator : str
        The operator; empty for the program as a whole.
    text : str
        The difference, in words.
    loses_state : bool
        State in a checkpoint of the old plan does not fit the new one.
    """

    operator: str
    text: str
    loses_state: bool

    def __str__(self) -> str:
        return self.text


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What has changed from one description to another."""
    changes: list[Change] = []
    before, after = old["operators"], new["operators"]
    for name in before:
        if name not in after:
            had = bool(before[name]["fields"]) or before[name]["state"] == "partitioned"
            changes.append(Change(name, f"operator {name} was removed", had))
    for name in after:
        if name not in before:
            changes.append(Change(name, f"operator {name} was added", False))
    for name in before:
        if name in after:
            changes.extend(_operator_changes(name, before[name], after[name]))
    if [r["operators"] for r in old["regions"]] != [r["operators"] for r in new["regions"]]:
        changes.append(Change("", "the parallel regions hold other operators", False))
    return changes


def _operator_changes(name: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    found: list[Change] = []

    def note(text: str, loses_state: bool = False) -> None:
        found.append(Change(name, f"operator {name}: {text}", loses_state))

    if old["key"] != new["key"]:
        note(f"key changed from {old['key'] or 'none'} to {new['key'] or 'none'}", bool(old["fields"]))
    if old["state"] != new["state"]:
        note(f"state changed from {old['state']} to {new['state']}", bool(old["fields"]))
    for field in old["fields"]:
        if field not in new["fields"]:
            note(f"state field {field} was removed", True)
        elif old["fields"][field] != new["fields"][field]:
            note(f"state field {field} now starts as {new['fields'][field]}, was {old['fields'][field]}")
    for field in new["fields"]:
        if field not in old["fields"]:
            note(f"state field {field} was added", bool(old["fields"]))
    if old["schema"] != new["schema"]:
        note(f"columns changed from {old['schema']} to {new['schema']}")
    if old["inputs"] != new["inputs"]:
        note(f"reads {', '.join(new['inputs']) or 'nothing'} instead of {', '.join(old['inputs']) or 'nothing'}")
    if old["kind"] != new["kind"]:
        note(f"is a {new['kind']}, was a {old['kind']}")
    if old["selectivity"] != new["selectivity"]:
        note(f"selectivity changed from {old['selectivity']} to {new['selectivity']}")
    if old["code"] != new["code"]:
        note("its code changed")
    return found
