"""What users say of elastic operators: `elastic=True` and the options beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from anabranch.engine.pool.elastic_call import ElasticCall
from anabranch.errors import ProgramError
from anabranch.program.elastic import concurrency_of, is_async
from anabranch.program.graph import Location


class ConcurrencyOptions(TypedDict, total=False):
    """The options beside ``elastic=True``."""

    min_workers: int
    """Never fewer calls under way than this, if there are tuples."""
    max_workers: int
    """Never more than this."""
    timeout: float
    """Seconds after which a call has failed."""
    retries: int
    """How often a call that failed is made again, each time after a longer pause."""
    workers: str
    """"threads", or "processes" for code that holds the interpreter's lock."""
    period: float
    """Seconds after which the level is looked at; 1 by default."""
    controller: str
    """"default", or "paper" for the algorithm of *Operators*."""
    state: str
    """"locked": the function keeps state under a lock of its own, and the order of its results was given up."""


def check_elastic(method: str, elastic: bool, concurrency: Mapping[str, Any], location: Location) -> None:
    """An error for options that nobody knows, or that need `elastic=True`."""
    known = ConcurrencyOptions.__annotations__
    for name in concurrency:
        if name not in known:
            raise ProgramError(f"{method} at {location}: no such argument {name}=…; known: {', '.join(known)}")
        if not elastic:
            raise ProgramError(f"{method} at {location}: {name}=… is an option of elastic operators: add elastic=True")
    if not isinstance(elastic, bool):
        raise ProgramError(f"{method} at {location}: elastic={elastic!r}; expected True or False")


def elastic_function(
    method: str,
    function: Callable[[Any], Any],
    elastic: bool,
    concurrency: Mapping[str, Any],
    location: Location,
) -> Callable[[Any], Any]:
    """The function as the program has it: itself, or with how its calls are made."""
    check_elastic(method, elastic, concurrency, location)
    if not elastic:
        if is_async(function):
            raise ProgramError(f"{method} at {location}: an async function needs elastic=True, which awaits its calls")
        return function
    try:
        return ElasticCall(function, concurrency_of(function, **concurrency), method not in ("map", "filter"))
    except ProgramError as problem:
        raise ProgramError(f"{method} at {location}: {problem}") from None
