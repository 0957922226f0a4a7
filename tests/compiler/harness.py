"""Runs operators of the corpus on one thread and on several channels, to look for differences.

A channel gets a copy of the operator made by pickling it, with the globals it uses, as a Spark worker
would; channels run one after the other, so that anything they share is seen in another order than on one
thread. State fields are copied one by one between tuples, as a store that keeps plain data would.
"""

from __future__ import annotations

import copy
import itertools
import types
from typing import Any

from pyspark import cloudpickle

from anabranch import from_rows
from anabranch.api.declarations import Operator, make_prototype, state_fields
from anabranch.program.graph import Filter, FlatMap, Keyed, Location, Map, Node, Process, Source
from anabranch.program.model import Model, State
from tests.compiler.corpus import SCHEMA, Case

_LOGICS = {"map": Map, "filter": Filter, "flat_map": FlatMap}
SOURCE = Node(0, "source", "source", Source(None), (), SCHEMA, Location("corpus", 0))


def node_of(case: Case, operator: Any = None) -> Node:
    """A program's node for an operator of the corpus."""
    operator = case.make() if operator is None else operator
    if isinstance(operator, Operator):
        logic: Any = Keyed(make_prototype(operator), "process", state_fields(type(operator)))
    elif case.mode == "process":
        logic = Process(operator)
    else:
        logic = _LOGICS[case.mode](operator)
    return Node(1, case.mode, case.name, logic, (SOURCE,), SCHEMA, Location("corpus", 1), key=case.by)


def fresh(thing: Any) -> Any:
    """What another process would get."""
    return cloudpickle.loads(cloudpickle.dumps(thing))


def emitted(call: Any, t: Any, mode: str, takes_emit: bool) -> list[Any]:
    """What a call emits, as comparable text; an exception is what it emits, too."""
    out: list[Any] = []
    try:
        if takes_emit:
            call(t, out.append)
            return [repr(each) for each in out]
        found = call(t)
        if mode == "filter":
            return [repr(t)] if found else []
        if mode == "map":
            return [repr(found)]
        if found is None:
            return []
        if hasattr(found, "__next__") or isinstance(found, list):
            for each in found:
                out.append(repr(each))
            return out
        return [repr(found)]
    except Exception as problem:
        return [
            *[each if isinstance(each, str) else repr(each) for each in out],
            f"raises {type(problem).__name__}",
        ]


def run_sequential(node: Node, mode: str, rows: list[Any], takes_emit: bool) -> list[Any]:
    logic = fresh(node.logic)
    if isinstance(logic, Keyed):
        return run_keyed(logic, lambda t: tuple(getattr(t, name) for name in node.key), rows, takes_emit)
    target = logic.operator if isinstance(logic, Process) else logic.function  # type: ignore[union-attr]
    return [(number, emitted(target, t, mode, takes_emit)) for number, t in enumerate(rows)]


def run_keyed(logic: Keyed, key_of: Any, rows: Any, takes_emit: bool, start: int | None = None) -> list[Any]:
    """One instance per key; fields kept one by one. `rows` may carry their numbers."""
    kept: dict[Any, dict[str, Any]] = {}
    results = []
    numbered = enumerate(rows) if start is None else rows
    for number, t in numbered:
        key = key_of(t)
        instance = copy.copy(logic.prototype)
        if key not in kept:
            kept[key] = {field.name: field.initial() for field in logic.fields}
        for name, value in kept[key].items():
            setattr(instance, name, copy.deepcopy(value))
        results.append((number, emitted(getattr(instance, logic.method), t, "process", takes_emit)))
        kept[key] = {field.name: copy.deepcopy(getattr(instance, field.name)) for field in logic.fields}
    return results


def run_parallel(node: Node, model: Model, mode: str, rows: list[Any], channels: int, takes_emit: bool) -> list[Any]:
    """Split, run each channel by itself, merge by number."""
    parts: list[list[tuple[int, Any]]] = [[] for _ in range(channels)]
    if model.state.value is State.STATELESS:
        for number, t in enumerate(rows):
            parts[number % channels].append((number, t))
        results = []
        for part in reversed(parts):
            logic = fresh(node.logic)
            target = logic.operator if isinstance(logic, Process) else logic.function  # type: ignore[union-attr]
            results += [(number, emitted(target, t, mode, takes_emit)) for number, t in part]
        return sorted(results)
    assert model.key is not None
    key = model.key
    logic = model.logic if model.logic is not None else node.logic
    key_of = fresh(key.function) if key.function is not None else (lambda t: tuple(getattr(t, n) for n in key.columns))
    owner: dict[Any, int] = {}
    turn = itertools.cycle(range(channels))
    for number, t in enumerate(rows):
        parts[owner.setdefault(key_of(t), next(turn))].append((number, t))
    results = []
    for part in reversed(parts):
        results += run_keyed(fresh(logic), key_of, part, takes_emit, start=0)
    return sorted(results)


def program_of(case: Case, rows: list[Any], rows_per_epoch: int) -> Any:
    """The operator in a program of its own, as a user would write it."""
    stream = from_rows(rows, str(SCHEMA), rows_per_epoch=rows_per_epoch)
    operator = case.make()
    if case.mode == "filter":
        return stream.filter(operator)
    if case.mode == "map":
        return stream.map(operator, str(SCHEMA))
    if case.mode == "flat_map":
        return stream.flat_map(operator, str(SCHEMA))
    more = {"by": case.by} if case.by else {}
    return stream.process(operator, schema=str(SCHEMA), **more)


def takes_emit(operator: Any) -> bool:
    code = getattr(operator, "__code__", None)
    return isinstance(code, types.CodeType) and code.co_varnames[1 : code.co_argcount] == ("emit",)
