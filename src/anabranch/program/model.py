"""Operator models: what the compiler believes of an operator, each belief with its reason and its line.

A model has five properties. They come from three places, in this order: what the author declared, what
the code shows, and — where neither says anything — "unknown", which is never run in parallel. What the
author declares is believed, as in the *Safe* paper; but where the code plainly shows the opposite, the
program is refused.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar

from anabranch.errors import ProgramError
from anabranch.program.graph import Location


class State(enum.Enum):
    """What an operator remembers from one tuple to the next."""

    STATELESS = "stateless"
    PARTITIONED = "partitioned"
    UNKNOWN = "unknown"


class Selectivity(enum.Enum):
    """How many tuples an operator emits for one it takes."""

    ONE = "1:1"
    AT_MOST_ONE = "1:[0,1]"
    ANY = "1:[0,∞)"

    def then(self, following: Selectivity) -> Selectivity:
        """That of two operators in a row."""
        order = list(Selectivity)
        return order[max(order.index(self), order.index(following))]


class Input(enum.Enum):
    """What an input port does with punctuations."""

    OBLIVIOUS = "oblivious"
    EXPECTING = "expecting"


class Output(enum.Enum):
    """What an output port does with punctuations."""

    PRESERVES = "preserves"
    REMOVES = "removes"
    GENERATES = "generates"


class Ordering(enum.Enum):
    """If an operator minds the order of its input."""

    NEEDED = "needed"
    PER_KEY = "per key"
    TOLERANT = "tolerant"


class Cause(enum.Enum):
    """Where a belief comes from."""

    SEEN = "the code or the operator's kind shows it"
    DECLARED = "the author declared it"


class OutputOrder(enum.Enum):
    """What order the tuples of an output must have: that of one thread, that within each key, or any."""

    TOTAL = "total"
    KEY = "key"
    NONE = "none"


@dataclasses.dataclass(frozen=True)
class Property:
    """A value, why it is believed (for people), the line that shows it, and where the belief comes from."""

    value: Any
    reason: str
    location: Location | None = None
    cause: Cause = Cause.SEEN

    @property
    def text(self) -> str:
        return self.value.value if isinstance(self.value, enum.Enum) else str(self.value)


@dataclasses.dataclass(frozen=True)
class Block(Property):
    """What keeps an operator sequential.

    Attributes
    ----------
    keeps : bool
        The operator is seen to keep something; otherwise something it does could not be followed.
    written : str
        How the code reaches what it writes and what outlives the call: ``self.total``, ``counter``; or nothing.
    shared : bool
        Another operator uses what this one changes, or the other way round.
    """

    keeps: bool = True
    written: str = ""
    shared: bool = False


@dataclasses.dataclass(frozen=True)
class Key:
    """What state is partitioned by: columns of the input, or an expression over them.

    Attributes
    ----------
    columns : tuple of str
        The columns of the key; for an expression, those it reads.
    expression : str
        The expression over the tuple ``t``; empty if the key is the columns themselves.
    function : callable, optional
        Computes the key of a tuple, for an expression.
    """

    columns: tuple[str, ...]
    expression: str = ""
    function: Callable[[Any], Any] | None = dataclasses.field(default=None, compare=False)

    @property
    def text(self) -> str:
        return self.expression or ", ".join(self.columns)


@dataclasses.dataclass(frozen=True)
class Model:
    """Everything the compiler believes of one operator.

    Attributes
    ----------
    state, selectivity, forwarding, inputs, output, ordering : Property
        `state` holds a `State`; `selectivity` a `Selectivity`; `forwarding` a dict from columns of the
        output to the columns of the input they are copies of; `inputs` a tuple with an `Input` for each
        port; `output` an `Output`; `ordering` an `Ordering`.
    key : Key or None
        What the state is partitioned by.
    blocks : tuple of Property
        Everything that keeps it sequential: the first is the state's reason.
    notes : tuple of Property
        Effects that no tuple shows (printing, logging), and other remarks.
    remedy : str
        The smallest change that would make it safe, for a sequential operator.
    case : int
        Which of the three levels of state transparency applies; 0 if none.
    logic : Logic or None
        What runs instead of the node's own logic, if the compiler rewrote it.
    unfollowed : str
        What of its code could not be followed though it has a key, and where: it is watched where it runs.
    in_globals, out_of_reach : tuple of str
        For an operator that runs in one channel, what it writes outside of its own object: in globals and classes,
        which its copy has of its own; and where no copy leads, as in another module.
    not_kept : tuple of str
        For such an operator, what it is seen to leave behind that could not be kept from one epoch to the next.
    by_identity : tuple of str
        For such an operator, if it keeps something, where it asks which object a value is, with the line.
    """

    state: Property
    selectivity: Property
    forwarding: Property
    inputs: Property
    output: Property
    ordering: Property
    key: Key | None = None
    blocks: tuple[Property, ...] = ()
    notes: tuple[Property, ...] = ()
    remedy: str = ""
    case: int = 0
    logic: Any = None
    in_globals: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()
    not_kept: tuple[str, ...] = ()
    by_identity: tuple[str, ...] = ()
    unfollowed: str = ""

    @property
    def is_safe(self) -> bool:
        return self.state.value is not State.UNKNOWN

    def forwards(self, column: str) -> str | None:
        """The input column an output column is a copy of, or None."""
        found = self.forwarding.value
        return found.get(column) if isinstance(found, dict) else None


# -- declarations -----------------------------------------------------------------------------------------

DECLARATION = "__anabranch_model__"
GROWTHS = ("constant", "linear", "quadratic")


@dataclasses.dataclass(frozen=True)
class Load:
    """How an operator's load of a key grows with the key's share of the tuples: β of the *Partitioning* paper.

    It decides which keys are mapped by themselves, and what channels have equally much of. What is measured while a
    query runs (seconds, bytes) counts for more.

    Parameters
    ----------
    state : {"constant", "linear", "quadratic"}
        What is kept for a key: one value or a fixed number of tuples (constant), or all tuples of a span of time
        (linear).
    computation : {"constant", "linear", "quadratic"}
        The work for a key: a step per tuple that does not depend on what is kept (constant), a scan of what is kept
        now and then (linear), every tuple compared with all that are kept (quadratic).

    Examples
    --------
    >>> @model(load=Load(state="linear", computation="quadratic"))
    ... class Join: ...
    """

    state: str = "constant"
    computation: str = "constant"

    def __post_init__(self) -> None:
        for what, growth in (("state", self.state), ("computation", self.computation)):
            if growth not in GROWTHS:
                raise ProgramError(f"Load({what}={growth!r}): no such growth; valid: {', '.join(map(repr, GROWTHS))}")


@dataclasses.dataclass(frozen=True)
class Declaration:
    """What an author said about an operator; None where nothing was said."""

    state: State | None = None
    key: tuple[str, ...] = ()
    selectivity: Selectivity | None = None
    forwards: tuple[str, ...] | str | None = None
    inputs: tuple[Input, ...] | None = None
    output: Output | None = None
    ordering: Ordering | None = None
    load: Load | None = None


Declared = TypeVar("Declared")


def model(
    *,
    state: str | None = None,
    key: str | tuple[str, ...] = (),
    selectivity: str | None = None,
    forwards: str | tuple[str, ...] | None = None,
    inputs: str | tuple[str, ...] | None = None,
    output: str | None = None,
    ordering: str | None = None,
    load: Load | None = None,
) -> Callable[[Declared], Declared]:
    """Declare what an operator does, where the compiler cannot see it.

    Parameters
    ----------
    state : {"stateless", "partitioned", "unknown"}
        "partitioned" needs the key, here or as ``by=`` where the operator is used.
    key : str or tuple of str
        The columns its state is partitioned by.
    selectivity : {"1:1", "1:[0,1]", "1:[0,∞)"}
        Tuples out per tuple in; "1:*" may be written for the last.
    forwards : str or tuple of str
        The columns it copies unchanged; "*" for all.
    inputs : {"oblivious", "expecting"} or a tuple of them
        What each input port does with punctuations.
    output : {"preserves", "removes", "generates"}
        What the output port does with punctuations.
    ordering : {"needed", "per key", "tolerant"}
        If the operator minds the order of its input.
    load : Load
        How its state and its work for a key grow with the key's share of the tuples.

    Returns
    -------
    callable
        A decorator for functions and classes.

    Examples
    --------
    >>> @model(state="stateless", selectivity="1:1")
    ... def convert(t):
    ...     return third_party.convert(t)
    """
    if load is not None and not isinstance(load, Load):
        raise ProgramError(f"model(load={load!r}): expected a Load, such as ab.Load(state='linear')")
    declaration = Declaration(
        state=None if state is None else _choice(State, state, "state"),
        key=(key,) if isinstance(key, str) else tuple(key),
        selectivity=(
            None
            if selectivity is None
            else _choice(Selectivity, _SPELLINGS.get(selectivity, selectivity), "selectivity")
        ),
        forwards=forwards if forwards is None or forwards == "*" else _tuple(forwards),
        inputs=None if inputs is None else tuple(_choice(Input, each, "inputs") for each in _tuple(inputs)),
        output=None if output is None else _choice(Output, output, "output"),
        ordering=None if ordering is None else _choice(Ordering, ordering, "ordering"),
        load=load,
    )

    def declare(found: Declared) -> Declared:
        setattr(found, DECLARATION, declaration)
        return found

    return declare


_SPELLINGS = {
    "1:*": Selectivity.ANY.value,
    "1:?": Selectivity.AT_MOST_ONE.value,
    "unknown": Selectivity.ANY.value,
}


def _tuple(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


Choice = TypeVar("Choice", bound=enum.Enum)


def _choice(kind: type[Choice], given: str, what: str) -> Choice:
    for each in kind:
        if each.value == given:
            return each
    valid = ", ".join(repr(each.value) for each in kind)
    raise ProgramError(f"model({what}={given!r}): no such {what}; valid: {valid}")


def declaration_of(*candidates: Any) -> Declaration | None:
    """The declaration on the first of these objects (or their classes) that carries one."""
    for found in candidates:
        if isinstance(found, Declaration):
            return found
        inner = found.func if type(found) is functools.partial else found
        for holder in (found, inner.__func__ if isinstance(inner, types.MethodType) else inner, type(found)):
            # Not by getattr, which may run code of the user's.
            declared = inspect.getattr_static(holder, DECLARATION, None)
            if isinstance(declared, Declaration):
                return declared
    return None
