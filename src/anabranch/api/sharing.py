"""`ab.share`: operators of one program that have state in common."""

from __future__ import annotations

import datetime
import functools
from typing import TYPE_CHECKING, Any

from anabranch.api.building import key_of, output_schema, put
from anabranch.api.declarations import Operator, make_prototype, state_fields, to_milliseconds
from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.shared_state import emitted_schema, members_logic, pick_logic, tag_logic, tagged_schema
from anabranch.operators.timers import TimedOperator
from anabranch.program.annotated_rows import seeing_methods
from anabranch.program.broadcasting import broadcast_fields
from anabranch.program.graph import Location, caller_location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


def share(
    *members: tuple[Stream, Operator] | tuple[Stream, Operator, Any],
    by: str | list[str] | tuple[str, ...],
    ttl: float | datetime.timedelta | None = None,
    name: str | None = None,
) -> tuple[Stream, ...]:
    """Operators over several streams that share the state which they declare under the same name.

    A key of all streams has one owner: the operators run in the same channel, one call after the other in the order of
    one thread, so each sees what the others left of its key.

    Parameters
    ----------
    members : (stream, operator) or (stream, operator, schema)
        An instance of an `Operator` class for each stream. State that two classes declare under one name, with the same
        default or factory, is one; all other state is an operator's own. The schema is that of what it emits, as
        in ``process``.
    by : str or list of str
        The key: columns that all streams have, of the same types.
    ttl : seconds or timedelta, optional
        How long the state of a key lives after any of the operators last changed it, by the clock of the epochs.

    Returns
    -------
    tuple of Stream
        What each operator emits.

    Examples
    --------
    >>> import anabranch as ab
    >>> class Logins(ab.Operator):
    ...     failed: int = ab.state(default=0)
    ...     def process(self, t):
    ...         self.failed += 1
    >>> class Orders(ab.Operator):
    ...     failed: int = ab.state(default=0)
    ...     def process(self, t):
    ...         if self.failed > 1:
    ...             yield (t.who, t.amount)
    >>> logins = ab.from_rows([("a",), ("a",), ("b",)], "who string")
    >>> orders = ab.from_rows([("a", 5), ("b", 7)], "who string, amount long")
    >>> none, doubtful = ab.share((logins, Logins(), "who string"), (orders, Orders(), orders.schema), by="who")
    >>> doubtful.run_sequential()
    [(who='a', amount=5)]
    """
    location = caller_location()
    if len(members) < 2:
        raise ProgramError(f"share at {location}: expected two or more of (stream, operator): one shares nothing")
    checked = [_checked(each, by, location) for each in members]
    fields = [state_fields(type(operator)) for _, operator, _, _ in checked]
    names = [field.name for each in fields for field in each]
    if len(set(names)) == len(names):
        raise ProgramError(
            f"share at {location}: no two of the operators declare state of the same name, so nothing is shared; use "
            "process(…) for each"
        )
    key = checked[0][2]
    for stream, _, _, _ in checked[1:]:
        for column in key:
            kinds = checked[0][0].schema.type_of(column), stream.schema.type_of(column)
            if kinds[0] != kinds[1]:
                raise SchemaError(
                    f"share at {location}: the key column {column!r} is {kinds[0]} in one stream and {kinds[1]} in "
                    "another; bring them to one type with map(…) first"
                )
    inputs = [stream.schema for stream, _, _, _ in checked]
    columns, route = tagged_schema(inputs, key)
    called = name or "share"
    tagged = [
        put(
            stream,
            "share",
            functools.partial(tag_logic, at, len(checked), stream.schema, key, columns),
            location,
            None,
            wanted=f"{called}-tag",
            part_of=called,
        )
        for at, (stream, _, _, _) in enumerate(checked)
    ]
    outputs = [output for _, _, _, output in checked]
    prototypes = [
        seeing_methods(make_prototype(operator), {"process": stream.schema}) for stream, operator, _, _ in checked
    ]
    owners = list(zip(prototypes, fields, inputs, outputs, strict=True))
    together = put(
        tagged[0].union(*tagged[1:]),
        "share",
        lambda it: members_logic(owners, emitted_schema(outputs), to_milliseconds(ttl), it),
        location,
        name,
        route,
        wanted="share",
    )
    return tuple(
        put(
            together,
            "share",
            functools.partial(pick_logic, at, output),
            location,
            None,
            wanted=f"{called}-{type(operator).__name__}",
        )
        for at, (_, operator, _, output) in enumerate(checked)
    )


def _checked(member: Any, by: Any, location: Location) -> tuple[Stream, Operator, tuple[str, ...], Schema]:
    from anabranch.api.stream import Stream

    if not isinstance(member, tuple) or len(member) not in (2, 3):
        raise ProgramError(
            f"share at {location}: expected (stream, operator) or (stream, operator, schema), found {member!r}"
        )
    stream, operator = member[0], member[1]
    if not isinstance(stream, Stream) or not isinstance(operator, Operator):
        raise ProgramError(
            f"share at {location}: expected a stream and an instance of an ab.Operator class, found {member!r}"
        )
    kind = type(operator)
    if kind.process is Operator.process:
        raise ProgramError(f"share at {location}: {kind.__name__} has no process(self, t) method")
    waits = [each for each in ("on_timer", "on_end") if getattr(kind, each) is not getattr(TimedOperator, each)]
    waits += ["on_punctuation"] if hasattr(kind, "on_punctuation") else []
    if waits or broadcast_fields(kind):
        what = waits[0] if waits else "broadcast state"
        raise ProgramError(
            f"share at {location}: {kind.__name__} has {what}, and state that several operators change is called for "
            "tuples only; keep what waits in an operator of its own, behind these"
        )
    key = key_of(stream, "share", by, location)
    given = member[2] if len(member) == 3 else None
    return stream, operator, key, output_schema(stream, "process", operator, given, location, "process")
