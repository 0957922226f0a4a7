"""The methods of a stream that say where tuples go: spread, route, split, punctuate, unpunctuate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.api.building import put
from anabranch.errors import ProgramError
from anabranch.operators.library_operator import UserFunction, configured
from anabranch.operators.routing import FirstOf, Unmarked
from anabranch.program.annotated_rows import seeing
from anabranch.program.graph import FlatMap, Location, Logic, Port, Punctuate, Route, Spread, Union, caller_location
from anabranch.program.model import Selectivity
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from anabranch.api.stream import Stream


def spread(stream: Stream, *, name: str | None = None) -> Stream:
    """Deal the tuples out to channels in turn, so that what follows without state runs in parallel there.

    Behind a source it is only a hint: there operators without state run where it is read, and get channels of
    their own when that turns out to pay (option ``spread``). It pays behind an operator on one thread, if what
    follows takes long. The order is kept, as always; the number of channels adapts.
    """
    return put(stream, "spread", lambda _: (Spread(), stream.schema), caller_location(), name)


def route(
    stream: Stream, function: Callable[[Any], int], ways: int, *, name: str | None = None, on_error: str | None = None
) -> tuple[Stream, ...]:
    """Send each tuple to one of several streams: the function gives its number, from 0 to ways - 1."""
    location = caller_location()
    if not callable(function):
        raise ProgramError(f"route at {location}: expected a function of one tuple, found {function!r}")
    if isinstance(ways, bool) or not isinstance(ways, int) or ways < 1:
        raise ProgramError(f"route at {location}: ways={ways!r}; expected how many streams come out, 1 or more")
    return _ways(
        stream,
        "route",
        lambda _: (Route(seeing(function, stream.schema), ways), stream.schema),
        ways,
        location,
        name,
        on_error,
    )


def split(
    stream: Stream, *predicates: Callable[[Any], Any], name: str | None = None, on_error: str | None = None
) -> tuple[Stream, ...]:
    """A stream for each predicate, of the tuples for which it is the first to hold; and one for the rest.

    Examples
    --------
    >>> import anabranch as ab
    >>> small, large, rest = ab.from_rows([(1,), (9,)], "x long").split(lambda t: t.x < 3, lambda t: t.x > 5)
    """
    location = caller_location()
    if not predicates:
        raise ProgramError(f"split at {location}: expected at least one predicate")
    for predicate in predicates:
        if not callable(predicate):
            raise ProgramError(f"split at {location}: expected functions of one tuple, found {predicate!r}")
    predicates = tuple(seeing(predicate, stream.schema) for predicate in predicates)
    ways = len(predicates) + 1

    def make(called: str) -> tuple[Logic, Schema]:
        functions = [UserFunction(f"predicate {at}", predicate) for at, predicate in enumerate(predicates)]
        choice = configured(FirstOf, called, functions=functions, predicates=tuple(predicates))
        return Route(choice, ways), stream.schema

    return _ways(stream, "split", make, ways, location, name, on_error)


def _ways(
    stream: Stream,
    kind: str,
    make: Callable[[str], tuple[Logic, Schema]],
    ways: int,
    location: Location,
    name: str | None,
    on_error: str | None,
) -> tuple[Stream, ...]:
    route = put(stream, kind, make, location, name, on_error=on_error)
    named = route._node.name
    return tuple(_port(route, at, location, f"{named}_{at}") for at in range(ways))


def _port(stream: Stream, at: int, location: Location, wanted: str) -> Stream:
    return put(stream, "port", lambda _: (Port(at), stream.schema), location, None, wanted=wanted)


def punctuate(
    stream: Stream,
    predicate: Callable[[Any], Any],
    *,
    drop: bool = False,
    name: str | None = None,
    on_error: str | None = None,
) -> Stream:
    """The same tuples, with a punctuation behind each for which the predicate is true.

    Punctuations end the windows of operators that are told so (``window=punctuation()``), and call `on_punctuation` of
    yours. So an operator of yours makes punctuations by emitting tuples that are known as such.

    Parameters
    ----------
    drop : bool
        Those tuples are nothing but marks: the punctuation goes on, and they do not.

    Examples
    --------
    >>> import anabranch as ab
    >>> rows = ab.from_rows([(1,), (2,), (0,), (5,)], "x long")
    >>> marked = rows.punctuate(lambda t: t.x == 0, drop=True)
    >>> marked.aggregate(by=None, window=ab.punctuation(), sum=ab.agg.sum("x")).run_sequential()
    [(sum=3)]
    """
    location = caller_location()
    if not callable(predicate):
        raise ProgramError(f"punctuate at {location}: expected a function of one tuple, found {predicate!r}")
    predicate = seeing(predicate, stream.schema)
    made = put(stream, "punctuate", lambda _: (Punctuate(predicate), stream.schema), location, name, on_error=on_error)
    if not drop:
        return made

    def unmarked(called: str) -> tuple[Logic, Schema]:
        functions = [UserFunction("the predicate", predicate)]
        kept = configured(
            Unmarked,
            called,
            selectivity=Selectivity.AT_MOST_ONE,
            forwards=stream.schema.names,
            functions=functions,
            predicate=predicate,
        )
        return FlatMap(kept), stream.schema

    return put(made, "punctuate", unmarked, location, None, wanted=f"{made._node.name}-drop", part_of=made._node.name)


def unpunctuate(stream: Stream, *, name: str | None = None) -> Stream:
    """The same tuples without punctuations: what follows may have others, or meet a stream that has."""
    location = caller_location()
    return put(stream, "unpunctuate", lambda _: (Union(removes=True), stream.schema), location, name)
