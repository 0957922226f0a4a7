"""The methods of a stream that say what becomes of calls that fail: on_error, dead_letters."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from anabranch.api.building import error_policy, next_number, unique_name
from anabranch.errors import ProgramError
from anabranch.operators.guarding import LETTERS
from anabranch.program.graph import DeadLetters, Node, caller_location, upstream

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


def on_error(stream: Stream, policy: str) -> Stream:
    """The same stream; operators that are put behind it follow this policy, unless they say another.

    Parameters
    ----------
    policy : "fail", "skip" or "dead_letter"
        What a call does that fails: it fails the epoch, which is the default; or it has no effect, neither on the
        output nor on state, and its tuple is dropped and counted as ``skipped``, or is a dead letter.

    Examples
    --------
    >>> import anabranch as ab
    >>> numbers = ab.from_rows([(1,), (0,), (2,)], "x long").on_error("skip")
    >>> numbers.map(lambda t: (2 // t.x,), schema="y long").run_sequential()
    [(y=2), (y=1)]
    """
    made = copy.copy(stream)
    made._on_error = error_policy(policy, "on_error", caller_location())
    return made


def dead_letters(stream: Stream, *others: Stream, name: str | None = None) -> Stream:
    """The dead letters of all operators that this stream (and others) came through, in the order of one thread.

    A stream like any other: write it with ``also``, or put operators behind it. Its columns: ``tuple``, the tuple as
    JSON (of a call that had none, its key); ``operator``, its name; ``line``, the line of your code that raised, or
    that put the operator into the program; ``error``, the exception's type and text; ``epoch``, the epoch's number.

    Examples
    --------
    >>> import anabranch as ab
    >>> numbers = ab.from_rows([(1,), (0,), (2,)], "x long")
    >>> inverse = numbers.map(lambda t: (2 // t.x,), schema="y long", on_error="dead_letter")
    >>> [(t["tuple"], t.operator, t.error) for t in inverse.dead_letters().run_sequential()]
    [('{"x": 0}', 'map', 'ZeroDivisionError: integer division or modulo by zero')]
    """
    location = caller_location()
    streams = [stream, *others]
    found = [each for each in upstream(*(each._node for each in streams)) if each.on_error == "dead_letter"]
    if not found:
        raise ProgramError(
            f"dead_letters at {location}: no operator before it has on_error='dead_letter'; say it where the operator "
            "is put into the program, or of the stream before it: stream.on_error('dead_letter')"
        )
    session = next((each._session for each in streams if each._session is not None), None)
    names = stream._names
    for other in others:
        names = names if other._names is names else names | other._names
    chosen = unique_name(name or "dead_letters", names, location, explicit=name is not None)
    node = Node(next_number(), "dead_letters", chosen, DeadLetters(), tuple(found), LETTERS, location)
    return type(stream)(session, node, names)
