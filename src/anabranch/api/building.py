"""Putting an operator behind a stream: its name, its key, the columns of what it emits."""

from __future__ import annotations

import copy
import dataclasses
import dis
import inspect
import itertools
import types
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.guarding import POLICIES, can_fail
from anabranch.program.graph import Location, Logic, Node
from anabranch.program.hashing import is_hashable
from anabranch.program.schema import Schema, schema_of_return

if TYPE_CHECKING:
    from anabranch.api.stream import Stream

# One count for all programs of this process: streams of different sources may meet in one program.
_numbers = itertools.count()


def next_number() -> int:
    """A number that no other operator has."""
    return next(_numbers)


def put(
    stream: Stream,
    kind: str,
    make: Callable[[str], tuple[Logic, Schema]],
    location: Location,
    name: str | None,
    key: tuple[str, ...] = (),
    *,
    wanted: str = "",
    others: Sequence[Stream] = (),
    keys: tuple[tuple[str, ...], ...] = (),
    part_of: str = "",
    on_error: str | None = None,
) -> Stream:
    """Put an operator behind a stream (and others); `make` gets its name and gives its logic and schema."""
    policy = error_policy(stream._on_error if on_error is None else on_error, kind, location)
    session, names = stream._session, stream._names
    for other in others:
        session = session or other._session
        if other._session is not None and session is not None and other._session.spark is not session.spark:
            raise ProgramError(f"{kind} at {location}: the streams come from different Spark sessions; use one")
        if other._names is not names:
            names = names | other._names
    chosen = unique_name(name or wanted or kind, names, location, explicit=name is not None)
    try:
        logic, schema = make(chosen)
    except ProgramError as problem:
        names.discard(chosen)
        raise type(problem)(f"{kind} at {location}: {problem}") from None
    inputs = (stream._node, *(other._node for other in others))
    policy = policy if can_fail(logic) else "fail"
    number = next_number()
    node = Node(number, kind, chosen, logic, inputs, schema, location, key, keys, part_of=part_of, on_error=policy)
    made = type(stream)(session, node, names)
    return like(made, stream)


def error_policy(given: Any, kind: str, location: Location) -> str:
    """What a call that fails does; ProgramError if it is none of what it can do."""
    if given not in POLICIES:
        raise ProgramError(f"{kind} at {location}: on_error={given!r}; expected {', '.join(map(repr, POLICIES))}")
    return str(given)


def under(stream: Stream, on_error: str | None) -> Stream:
    """The same stream, behind which operators follow a policy; None: that of the stream."""
    made = copy.copy(stream)
    made._on_error = stream._on_error if on_error is None else on_error
    return made


def like(made: Stream, stream: Stream) -> Stream:
    """A stream behind which operators follow the policy that they follow behind another."""
    made._on_error = stream._on_error
    return made


def remade(stream: Stream, **said: Any) -> Stream:
    """The same stream, of the same operator, of which something more is said."""
    other = copy.copy(stream)
    other._node = _remade(stream._node, said)
    return other


def operator_of(node: Node) -> Node:
    """The operator of the user's that makes what a node emits: the node, or one whose tuples it only takes apart."""
    return operator_of(node.inputs[0]) if _takes_apart(node) else node


def _remade(node: Node, said: dict[str, Any]) -> Node:
    if _takes_apart(node):
        return dataclasses.replace(node, inputs=(_remade(node.inputs[0], said),))
    return dataclasses.replace(node, **said)


def _takes_apart(node: Node) -> bool:
    return bool(node.part_of) and node.part_of == node.inputs[0].name


def key_of(stream: Stream, method: str, by: str | Sequence[str], location: Location) -> tuple[str, ...]:
    """The columns of a key, if they can be one."""
    names = (by,) if isinstance(by, str) else tuple(by)
    if not names:
        raise SchemaError(f"{method} at {location}: the key is empty; name at least one column: by='…'")
    for name in names:
        if not isinstance(name, str) or name not in stream.schema:
            raise SchemaError(
                f"{method} at {location}: the key {name!r} is not a column; columns: {', '.join(stream.columns)}"
            )
        if not is_hashable(stream.schema.type_of(name)):
            raise SchemaError(
                f"{method} at {location}: the column {name!r} has the type {stream.schema.type_of(name)}, which "
                "cannot be a key; use a number, string, date, timestamp, boolean or binary column"
            )
    if len(set(names)) < len(names):
        raise SchemaError(f"{method} at {location}: the key names a column twice: {', '.join(names)}")
    return names


def output_schema(
    stream: Stream, kind: str, function: Any, given: Any, location: Location, method: str | None = None
) -> Schema:
    """The columns of what an operator emits: given, annotated, or found in its code."""
    if given is not None:
        try:
            return Schema.of(given)
        except SchemaError as problem:
            raise SchemaError(f"{kind} at {location}: {problem}") from None
    called = function if method is None or inspect.isroutine(function) else getattr(type(function), method)
    try:
        found = schema_of_return(called, many=kind != "map")
    except SchemaError as problem:
        raise SchemaError(f"{kind} at {location}: {problem}") from None
    if found is not None:
        return found
    # Workers import this module, and never read code: what does is only loaded where programs are built.
    from anabranch.compiler.models.inference import infer_output_schema

    found = infer_output_schema(function, stream.schema, None if inspect.isroutine(function) else method, mode=kind)
    if found is not None:
        return found
    raise SchemaError(
        f"{kind} at {location}: the columns of the output are unknown. Say them in one of two ways:\n"
        f"  a schema:      .{kind}({_plain_name(called)}, schema='id long, value double')\n"
        "  an annotation: class Reading(NamedTuple): id: int; value: float\n"
        f"                 def {_plain_name(called)}(t) -> {'Reading' if kind == 'map' else 'Iterator[Reading]'}: …"
    )


def unique_name(wanted: str, taken: set[str], location: Location, explicit: bool) -> str:
    """The name, or the name with a number behind it; a name the user chose must be free."""
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in wanted)
    if explicit and (plain != wanted or plain in taken):
        why = "it is taken" if plain in taken else "names are made of letters, digits, - and _"
        raise ProgramError(f"the operator at {location} cannot have the name {wanted!r}: {why}")
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    taken.add(name)
    return name


def must_be_callable(method: str, function: Any, location: Location) -> None:
    """An error if it cannot be called."""
    if not callable(function):
        raise ProgramError(f"{method} at {location}: expected a function of one tuple, found {function!r}")


def _plain_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "f")
    return name if name.isidentifier() else "f"


def must_return(method: str, function: Any, location: Location) -> None:
    """Refuse a function without a `return` of anything: it would give nulls, or drop every tuple, without a word."""
    if not isinstance(function, types.FunctionType) or function.__name__ == "<lambda>":
        return
    if function.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        raise ProgramError(f"{method} at {location}: {function.__name__}() yields; many tuples are emitted by flat_map")
    if function.__code__.co_flags & inspect.CO_COROUTINE:
        return
    returned: list[Any] = []
    before: dis.Instruction | None = None
    for each in dis.get_instructions(function):
        if each.opname == "RETURN_CONST":  # of Python 3.12
            returned.append(each.argval)
        elif each.opname == "RETURN_VALUE":
            is_constant = before is not None and before.opname == "LOAD_CONST"
            returned.append(before.argval if is_constant and before is not None else ...)
        before = each
    if returned and all(each is None for each in returned):
        raise ProgramError(f"{method} at {location}: {function.__name__}() returns nothing; is a return missing?")
