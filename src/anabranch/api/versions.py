"""What an operator was in earlier versions of its program: other names, other state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.api.building import operator_of, remade
from anabranch.errors import ProgramError
from anabranch.program.graph import caller_location
from anabranch.program.state_fields import FIRST_VERSION, StateField, StateHistory

if TYPE_CHECKING:
    from anabranch.api.stream import Stream

Step = Callable[[dict[str, Any]], dict[str, Any]]


def was(stream: Stream, *names: str) -> Stream:
    """Say what the operator that makes this stream was called in earlier versions of the program.

    State is found again by the name of its operator. With `was`, a query that goes on from a checkpoint in which the
    operator has one of these names takes its state over; without a checkpoint, or once it has, it says nothing.

    Examples
    --------
    >>> import anabranch as ab
    >>> orders = ab.from_rows([("a", 3)], "shop string, amount long")
    >>> totals = orders.aggregate(by="shop", window=ab.count(10), sum=ab.agg.sum("amount"), name="totals")
    >>> renamed = totals.was("aggregate")
    """
    location = caller_location()
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ProgramError(f"was at {location}: expected names that the operator had before, found {names!r}")
    return remade(stream, was=(*operator_of(stream._node).was, *names))


def state_history(version: Any, migrate: Any, fields: Sequence[StateField]) -> StateHistory | None:
    """What `process(…, version=…, migrate=…)` says of an operator with these fields; None: it is the first version."""
    if isinstance(version, bool) or not isinstance(version, int) or version < FIRST_VERSION:
        raise ProgramError(f"version={version!r}: expected a whole number from {FIRST_VERSION} on")
    if version == FIRST_VERSION:
        if migrate is not None:
            raise ProgramError(
                "migrate=… makes state of one version from that of the one before; say which version it is "
                "now: version=2"
            )
        return None
    given = migrate if isinstance(migrate, Mapping) else {} if migrate is None else {version - 1: migrate}
    for each, step in given.items():
        if isinstance(each, bool) or not isinstance(each, int) or not FIRST_VERSION <= each < version:
            raise ProgramError(
                f"migrate has a step from version {each!r}; expected one from {FIRST_VERSION} to {version - 1}"
            )
        if not callable(step):
            raise ProgramError(
                f"migrate={step!r}: expected a function that takes the fields of a key as a dict, and gives a dict"
            )
    return StateHistory(version, dict(given), tuple(field.name for field in fields))
