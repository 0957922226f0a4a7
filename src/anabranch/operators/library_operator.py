"""What the library's own operators have in common: how they are made, what they check, what they count.

An operator of the library is an ordinary keyed operator. Its class holds the configuration, so that an instance,
of which there is one for every key, holds state only; and it carries its own model, because its code is ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from anabranch.errors import ProgramError
from anabranch.operators.epoch_context import count_anomaly
from anabranch.program.graph import StateField
from anabranch.program.model import DECLARATION, Declaration, Load, Selectivity
from anabranch.program.schema import Schema

NULL_KEY = "null_key"
NULL_ATTRIBUTE = "null_attribute"
BACKWARDS = "backwards"
LATE = "late"
PARTLY_LATE = "partly_late"

NULL_KEYS = ("keep", "drop", "fail")


class UserFunction(NamedTuple):
    """A function of the user's that an operator of the library calls, and how: the compiler reads it as it is called.

    Attributes
    ----------
    what : str
        What it is, in words.
    function : callable
    takes : tuple of str
        What it is called with: ``tuple`` (of the input), ``left``, ``right`` (of one of two inputs, or None), a column
        (``column x``), ``matched a b`` (lists of tuples by these names), or what was given under that name.
    gives : str
        The name under which what it returns is kept, and given to those that take it; empty: it goes no further.
    """

    what: str
    function: Callable[..., Any]
    takes: tuple[str, ...] = ("tuple",)
    gives: str = ""


class LibraryOperator:
    """The base of the library's operators with state.

    Attributes
    ----------
    operator_name : str
        Under which it counts what it meets.
    functions : tuple of UserFunction
        The user's functions that it calls.
    description : str
        What it does, in the words of the program, for plans.
    load : Load
        How state and computation of a key grow with its frequency, for balancing.
    """

    operator_name: str = ""
    functions: tuple[UserFunction, ...] = ()
    description: str = ""
    load: Load = Load()

    def users_code(self) -> list[tuple[str, Any]]:
        """What it holds of the user's, and what that is: it is part of its class, where nobody would look for it."""
        return [(each.what, each.function) for each in self.functions]

    def note(self, what: str, number: int = 1) -> None:
        """Count something that is not as it should be."""
        count_anomaly(self.operator_name, what, number)


Kind = TypeVar("Kind", bound=LibraryOperator)


def configured(
    kind: type[Kind],
    name: str,
    *,
    selectivity: Selectivity = Selectivity.ANY,
    forwards: Sequence[str] = (),
    functions: Sequence[UserFunction] = (),
    **configuration: Any,
) -> Kind:
    """An operator with a configuration, as the attributes of a class of its own."""
    held: dict[str, Any] = {
        each: staticmethod(value) if callable(value) and not isinstance(value, type) else value
        for each, value in configuration.items()
    }
    held |= {
        "__module__": kind.__module__,
        "__doc__": kind.__doc__,
        "operator_name": name,
        "functions": tuple(functions),
        DECLARATION: Declaration(selectivity=selectivity, forwards=tuple(forwards)),
    }
    return type(kind.__name__, (kind,), held)()


def fields(**defaults: Any) -> tuple[StateField, ...]:
    """State fields; a default that is a type (list, dict) makes a new one for each key."""
    return tuple(
        StateField(name, factory=value) if isinstance(value, type) else StateField(name, value)
        for name, value in defaults.items()
    )


@dataclasses.dataclass(frozen=True)
class Guard:
    """Looks at a tuple before an operator takes it: has it a key, has it what the window is measured by?

    Attributes
    ----------
    keys : tuple of (int, str)
        Places and names of the key's columns; empty where a null key is nothing special.
    null_key : str
        "keep": a null is a key like any other, but counted; "drop"; or "fail".
    attribute : (int, str), optional
        Place and name of the column that must be there.
    nulls : str
        "fail" or "drop", for the attribute.
    """

    keys: tuple[tuple[int, str], ...] = ()
    null_key: str = "keep"
    attribute: tuple[int, str] | None = None
    nulls: str = "fail"

    def admits(self, operator: LibraryOperator, t: tuple[Any, ...]) -> bool:
        """Whether the operator takes the tuple; counts, or raises, if something is missing."""
        for place, name in self.keys:
            if tuple.__getitem__(t, place) is None:
                if self.null_key == "fail":
                    raise ValueError(f"the key column {name!r} is null (null_key='fail')")
                operator.note(NULL_KEY)
                if self.null_key == "drop":
                    return False
                break
        if self.attribute is not None:
            place, name = self.attribute
            value = tuple.__getitem__(t, place)
            if value is None or value != value:
                if self.nulls == "fail":
                    raise ValueError(f"the attribute {name!r} is null; nulls='drop' would drop and count such tuples")
                operator.note(NULL_ATTRIBUTE)
                return False
        return True

    @property
    def may_drop(self) -> bool:
        """Whether a tuple can be lost here."""
        return self.null_key == "drop" or (self.attribute is not None and self.nulls == "drop")


def guard(
    schema: Schema, key: Sequence[str], null_key: str = "keep", attribute: str | None = None, nulls: str = "fail"
) -> Guard:
    """The guard of an operator that reads tuples of a schema."""
    if null_key not in NULL_KEYS:
        raise ProgramError(f"null_key={null_key!r}: expected one of {', '.join(map(repr, NULL_KEYS))}")
    if nulls not in ("fail", "drop"):
        raise ProgramError(f"nulls={nulls!r}: expected 'fail' or 'drop'")
    places: Mapping[str, int] = {name: at for at, name in enumerate(schema.names)}
    at = None if attribute is None else (places[attribute], attribute)
    return Guard(tuple((places[name], name) for name in key), null_key, at, nulls)
