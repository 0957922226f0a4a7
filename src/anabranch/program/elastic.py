"""What a program says of an elastic operator: a function that may have several calls under way at once.

    stream.map(fn, elastic=True)   ─►   Map(ElasticFunction(fn, Concurrency(…)))

The function stays a function of one tuple: whoever runs a program on one thread calls it like any other. A pool
(`engine/pool`) takes it apart instead, and has as many calls of what is inside under way as pay off.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any

from anabranch.errors import AnabranchError, ProgramError

KINDS = ("threads", "processes")
CONTROLLERS = ("default", "paper")
LOCKED = "locked"
LONGEST_S = 86_400


@dataclasses.dataclass(frozen=True)
class Concurrency:
    """How an elastic operator's calls are made.

    Attributes
    ----------
    min_workers, max_workers : int
        Bounds of the level. Level 0 calls the function where the tuples are, without a worker. None: the kind of
        worker decides how many are allowed.
    timeout_s : float or None
        A call that takes longer has failed.
    retries : int
        How often a call that failed is made again.
    backoff_s : float
        How long the first of them waits, about; each waits twice as long as the one before.
    kind : {"threads", "processes", "async"}
        What the workers are.
    period_s : float
        How often the level is looked at.
    controller : {"default", "paper"}
    keeps_state : bool
        The function keeps state under a lock of its own: one in each worker process, and in no checkpoint.
    """

    min_workers: int = 0
    max_workers: int | None = None
    timeout_s: float | None = None
    retries: int = 0
    backoff_s: float = 0.1
    kind: str = "threads"
    period_s: float = 1.0
    controller: str = "default"
    keeps_state: bool = False

    @property
    def text(self) -> str:
        """For people."""
        most = "as many as pay off" if self.max_workers is None else f"at most {self.max_workers}"
        what = {"threads": "threads", "processes": "processes", "async": "calls in flight on one event loop"}[self.kind]
        parts = [f"{what}, {most}"]
        if self.min_workers:
            parts.append(f"at least {self.min_workers}")
        if self.timeout_s is not None:
            parts.append(f"{self.timeout_s:g} s for a call")
        if self.retries:
            parts.append(f"{self.retries} {'retry' if self.retries == 1 else 'retries'}")
        if self.keeps_state:
            parts.append("state under its own lock: one in each worker process, in no checkpoint, lost by a crash")
        return ", ".join(parts)


class OpenFailed(AnabranchError):  # noqa: N818 - what happened, told in the error of the operator
    """The `open()` of an elastic operator raised: the epoch fails, whatever is said of calls that fail."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__(problem)
        self.problem = problem


class LoopBlocked(AnabranchError):  # noqa: N818 - what happened, told in the error of the operator
    """An async function holds up the event loop, and with it every other call: the epoch fails, as for `open()`."""

    def __init__(self, timeout: float) -> None:
        super().__init__(
            f"the call did not end within timeout={timeout:g} seconds and could not be cancelled: an async function "
            "must not block. Await what takes time, or write a plain function, which gets threads"
        )


class ElasticFunction:
    """A function of the user's with how its calls are made. Subclasses can be called with a tuple."""

    def __init__(self, function: Callable[[Any], Any], settings: Concurrency) -> None:
        self.function = function
        self.settings = settings

    @property
    def owner(self) -> Any:
        """The object whose `open` and `close` are called, if it has them."""
        return owner_of(self.function)

    def close(self) -> None:
        """Give back what `open` got, if it was opened."""


def owner_of(function: Any) -> Any:
    """The object that a method is of, also one of which arguments are given already; else the function itself."""
    called = _without_arguments(function)
    return getattr(called, "__self__", function)


def _without_arguments(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def user_function(function: Any) -> Any:
    """The function that the user wrote, of one that may be elastic."""
    return function.function if isinstance(function, ElasticFunction) else function


def settings_of(logic: Any) -> Concurrency | None:
    """How the calls of an elastic function, or of elastic accumulators, are made; None if it is neither."""
    function = getattr(logic, "function", None)
    if isinstance(function, ElasticFunction):
        return function.settings
    found = getattr(getattr(logic, "prototype", None), "concurrency", None)
    return found if isinstance(found, Concurrency) else None


def is_async(function: Any) -> bool:
    """Whether calls of a function are awaited: a coroutine, or an asynchronous generator."""
    function = _without_arguments(function)
    called = function if inspect.isroutine(function) else getattr(type(function), "__call__", function)  # noqa: B004
    called = getattr(called, "__func__", called)
    return inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called)


def concurrency_of(
    function: Any,
    *,
    min_workers: int | None = None,
    max_workers: int | None = None,
    timeout: float | None = None,
    retries: int = 0,
    workers: str | None = None,
    period: float = 1.0,
    controller: str = "default",
    state: str | None = None,
) -> Concurrency:
    """What a user said, checked; ProgramError tells what is wrong with it."""
    if workers is not None and workers not in KINDS:
        raise ProgramError(f"workers={workers!r}; expected {' or '.join(map(repr, KINDS))}")
    if controller not in CONTROLLERS:
        raise ProgramError(f"controller={controller!r}; expected {' or '.join(map(repr, CONTROLLERS))}")
    if state not in (None, LOCKED):
        raise ProgramError(f"state={state!r}; expected {LOCKED!r}: the function keeps state under a lock of its own")
    if state == LOCKED and workers == "processes":
        raise ProgramError("state='locked' and workers='processes': a lock does not reach other processes; use threads")
    owner = owner_of(function)
    for name in ("open", "close"):
        if is_async(getattr(owner, name, None)) and not is_async(function):
            raise ProgramError(f"{name}() is async, and the calls are not: there is no event loop to await it on")
    if is_async(function):
        if workers is not None:
            raise ProgramError(f"workers={workers!r}: an async function runs on an event loop; leave workers out")
        kind = "async"
    else:
        kind = workers or "threads"
    for name, number, least in (("min_workers", min_workers, 0), ("max_workers", max_workers, 1)):
        if number is not None and not (_is_whole(number) and number >= least):
            raise ProgramError(f"{name}={number!r}: expected a whole number from {least} on")
    if not (_is_whole(retries) and retries >= 0):
        raise ProgramError(f"retries={retries!r}: expected a whole number from 0 on")
    for name, seconds in (("timeout", timeout), ("period", period)):
        is_number = isinstance(seconds, numbers.Real) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and 0 < seconds <= LONGEST_S):
            raise ProgramError(
                f"{name}={seconds!r}: expected a positive number of seconds, {LONGEST_S} (a day) at most"
                + ("; without timeout=… a call may take as long as it takes" if name == "timeout" else "")
            )
    # Who watches over a call cannot be the one who makes it.
    least = 1 if kind != "threads" or timeout is not None else 0
    lowest = max(least, min_workers or 0)
    if max_workers is not None and lowest > max_workers:
        raise ProgramError(f"min_workers={min_workers}, max_workers={max_workers}: the least is more than the most")
    return Concurrency(
        int(lowest),
        None if max_workers is None else int(max_workers),
        None if timeout is None else float(timeout),
        int(retries),
        kind=kind,
        period_s=float(period),
        controller=controller,
        keeps_state=state == LOCKED,
    )


def _is_whole(number: Any) -> bool:
    return isinstance(number, numbers.Integral) and not isinstance(number, bool)
