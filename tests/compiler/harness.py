"""Operators of the corpus as nodes, for the compiler alone, and in programs, as a user would write them."""

from __future__ import annotations

import types
from typing import Any

from anabranch import from_rows
from anabranch.api.declarations import Operator, make_prototype, state_fields
from anabranch.program.graph import Filter, FlatMap, Keyed, Location, Map, Node, Process, Source
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


def program_of(case: Case, rows: list[Any], rows_per_epoch: int) -> Any:
    """The operator in a program of its own, as a user would write it."""
    return behind(from_rows(rows, str(SCHEMA), rows_per_epoch=rows_per_epoch), case)


def behind(stream: Any, case: Case) -> Any:
    """The operator of a case, as it reads a stream."""
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
