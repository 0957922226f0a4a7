"""`ab.share`: operators of one program that have state in common."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from typing import TYPE_CHECKING, Any

from anabranch.api.building import output_schema, put
from anabranch.api.declarations import Operator, keyed_logic, state_fields, to_milliseconds
from anabranch.api.keys import By, KeyedStream, keyed_by
from anabranch.api.stream_time import scale_of
from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.shared_state import emitted_schema, members_logic, pick_logic, tag_logic, tagged_schema
from anabranch.operators.timers import TimedOperator
from anabranch.program.annotated_rows import seeing_methods
from anabranch.program.broadcasting import broadcast_fields
from anabranch.program.graph import Location, Logic, caller_location
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


def share(
    *members: tuple[Stream, Operator] | tuple[Stream, Operator, Any],
    by: By,
    ttl: float | datetime.timedelta | None = None,
    time: str | None = None,
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
    by : str, function, ab.key(…), or list of these
        The key: columns that all streams have, fields of structs, functions of a tuple; of the same types everywhere.
    ttl : seconds or timedelta, optional
        How long the state of a key lives after any of the operators last changed it, by the clock of the epochs.
    time : "event" or "clock", optional
        Which time timers follow: the watermark of all streams that have event time, which is the default if one has,
        or the clock of the epochs. Timers are an operator's own; of one time those of the operator named first are
        called first.

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
    called = name or "share"
    checked = [_checked(each, by, location, called) for each in members]
    fields = [state_fields(type(operator)) for _, operator, _, _ in checked]
    names = [field.name for each in fields for field in each]
    if len(set(names)) == len(names):
        raise ProgramError(
            f"share at {location}: no two of the operators declare state of the same name, so nothing is shared; use "
            "process(…) for each"
        )
    first, key = checked[0][2].stream, checked[0][2].names
    for _, _, keyed, _ in checked[1:]:
        for column, other in zip(key, keyed.names, strict=True):
            kinds = first.schema.type_of(column), keyed.stream.schema.type_of(other)
            if kinds[0] != kinds[1]:
                raise SchemaError(
                    f"share at {location}: the key column {column!r} is {kinds[0]} in one stream and {kinds[1]} in "
                    "another; bring them to one type with map(…) first, or say it: by=ab.key(…, 'name long')"
                )
    columns, route = tagged_schema([stream.schema for stream, *_ in checked], [first.schema.type_of(k) for k in key])
    tagged = [
        put(
            keyed.stream,
            "share",
            functools.partial(
                tag_logic, at, len(checked), keyed.stream.schema, keyed.names, stream.schema.names, columns
            ),
            location,
            None,
            wanted=f"{called}-tag",
            part_of=called,
        )
        for at, (stream, _, keyed, _) in enumerate(checked)
    ]
    outputs = [output for _, _, _, output in checked]
    ttl_ms = to_milliseconds(ttl)

    def make(it: str) -> tuple[Logic, Schema]:
        scale = scale_of(*(stream._node for stream, *_ in checked))
        alone = []
        for stream, operator, _, output in checked:
            logic = keyed_logic(operator, ttl_ms, False, scale, time if _is_timed(type(operator)) else None)
            prototype = seeing_methods(logic.prototype, {"process": stream.schema})
            alone.append((dataclasses.replace(logic, prototype=prototype), stream.schema, output))
        return members_logic(alone, emitted_schema(outputs), ttl_ms, it)

    together = put(tagged[0].union(*tagged[1:]), "share", make, location, name, route, wanted="share")
    return tuple(
        put(
            together,
            "share",
            functools.partial(pick_logic, at, output),
            location,
            None,
            wanted=f"{called}-{type(operator).__name__}",
            part_of=together._node.name,
        )
        for at, (_, operator, _, output) in enumerate(checked)
    )


def _is_timed(kind: type[Operator]) -> bool:
    return kind.on_timer is not TimedOperator.on_timer or kind.on_end is not TimedOperator.on_end


def _checked(member: Any, by: Any, location: Location, called: str) -> tuple[Stream, Operator, KeyedStream, Schema]:
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
    if hasattr(kind, "on_punctuation"):
        raise ProgramError(
            f"share at {location}: {kind.__name__} has on_punctuation, and the streams of operators that share state "
            "are one behind them, without punctuations: one would not say where it stands in the other. Let a timer "
            "do it, or keep what a punctuation closes in an operator of its own, behind these"
        )
    if broadcast_fields(kind):
        raise ProgramError(
            f"share at {location}: {kind.__name__} has broadcast state, which belongs to no key, and what is shared is "
            "the state of a key. Let a process(…, broadcast=…) before it add what the rules say to the tuples"
        )
    keyed = keyed_by(stream, "share", by, location, called)
    given = member[2] if len(member) == 3 else None
    return stream, operator, keyed, output_schema(stream, "process", operator, given, location, "process")
