"""Which columns of its tuples a keyed operator reads: the others need not come to it.

Known of the library's aggregations, whose code is written so (`operators/aggregation`), and of users' methods that
never use the tuple as a whole (`tuple_reads`).
"""

from __future__ import annotations

import ast
import functools
from typing import Any

from anabranch.compiler.rewriting.over_columns import over_columns
from anabranch.compiler.rewriting.tuple_reads import tuple_reads
from anabranch.operators.aggregation import Aggregate
from anabranch.operators.library_operator import LibraryOperator
from anabranch.program.graph import Keyed, Node
from anabranch.program.schema import Schema


def keyed_reads(node: Node, place: int) -> frozenset[int] | None:
    """The columns of an input that a keyed operator reads, those of its key among them; None: all."""
    logic = node.logic
    if not isinstance(logic, Keyed) or node.is_broadcast(place) or node.on_error == "dead_letter":
        return None  # a letter shows the whole tuple
    schema = node.inputs[place].schema
    kind = type(logic.prototype)
    found: frozenset[int] | None = None
    if isinstance(logic.prototype, Aggregate):
        found = _aggregate_reads(kind, schema)
    elif not isinstance(logic.prototype, LibraryOperator):
        found = tuple_reads(getattr(kind, logic.method_of(place)), schema.names)
    return None if found is None else found | {schema.names.index(name) for name in node.key_of(place)}


def _aggregate_reads(kind: type[Aggregate], schema: Schema) -> frozenset[int] | None:
    code = _code_reads(kind.source, len(schema.names))
    if code is None:
        return None
    columns, functions = code
    reads = set(columns)
    # Around an operator with an error policy there is a class with methods of its own.
    written: Any = next(each for each in kind.__mro__ if "source" in vars(each))
    for name in functions:
        test = over_columns(written.process.__globals__[name], schema, None)
        if test is None:
            return None
        reads |= {read.column for read in test.reads}
    return frozenset(reads)


@functools.lru_cache(maxsize=256)
def _code_reads(source: str, count: int) -> tuple[frozenset[int], frozenset[str]] | None:
    """The columns that an aggregation's code uses, and the functions that it calls with the tuple; None: all of it."""
    definitions = [each for each in ast.parse(source).body if isinstance(each, ast.FunctionDef)]
    process = next((each for each in definitions if each.name == "process"), None)
    if process is None:
        return None
    unpacking = f"({', '.join(f'c{at}' for at in range(count))},) = t"
    body: list[ast.AST] = list(process.body)
    found = next((each for each in body if ast.unparse(each) == ast.unparse(ast.parse(unpacking))), None)
    if found is None:
        return None
    body.remove(found)
    names: set[str] = set()
    functions: set[str] = set()
    used = 0
    for node in (inner for each in body for inner in ast.walk(each)):
        match node:
            case ast.Call(func=ast.Name(id=called), args=[ast.Name(id="t")], keywords=[]) if called[0] == "F":
                functions.add(called)
                used -= 1
            case ast.Name(id="t"):
                used += 1
            case ast.Name(id=name):
                names.add(name)
    if used:  # otherwise than by such calls
        return None
    variables: dict[str, Any] = {f"c{at}": at for at in range(count)}
    return frozenset(variables[name] for name in names if name in variables), frozenset(functions)
