"""A chunk of calls on its way through a pool: rows in, a result or a failure for each out.

Calls that take long travel alone. Short ones travel together, because handing over costs more than they do.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from anabranch.engine.thread_settings import own_context
from anabranch.program.showing import shown

CLOSING_S = 5.0
"""How long whoever gives back what `open` got may take, before nobody waits for it any more."""


class Failed:
    """In the place of a result: the call raised."""

    __slots__ = ("problem",)

    def __init__(self, problem: BaseException) -> None:
        self.problem = problem


class Chunk:
    """Some calls that a worker makes one after the other.

    Attributes
    ----------
    first : int
        The place of its first row among the rows of a run.
    rows, results : list
        A result or `Failed` for each row, when it is done.
    done : queue
        Where the worker puts the chunk when the calls have ended.
    taken, began, seconds : float
        When a worker took it, when the first call began, and how long all took.
    context : Context
        What holds in the thread that hands it out, and is to hold where its calls are made: the decimal context, say.
    attempt : int
        Which attempt at the call it is; retries travel alone.
    whole : Chunk or None
        For a retry, the chunk that the call belongs to.
    waiting : int
        How many of its calls will be made again.
    has_failed : bool
        Whether there is a `Failed` among the results.
    is_taken : bool
        Whether whoever handed it out has looked at its results: the worker writes them before it says that it ended.
    """

    __slots__ = (
        "abandoned",
        "attempt",
        "began",
        "context",
        "done",
        "first",
        "has_failed",
        "is_taken",
        "results",
        "rows",
        "seconds",
        "taken",
        "waiting",
        "whole",
    )

    def __init__(self, first: int, rows: Sequence[Any], done: queue.SimpleQueue[Chunk], attempt: int = 1) -> None:
        self.first = first
        self.rows = rows
        self.results: list[Any] = []
        self.done = done
        self.taken = 0.0
        self.began = 0.0
        self.context = own_context()
        self.seconds = 0.0
        self.attempt = attempt
        self.whole: Chunk | None = None
        self.waiting = 0
        self.abandoned = False
        self.has_failed = False
        self.is_taken = False

    def fail(self, problem: BaseException) -> None:
        """In the place of the next result: what was raised."""
        self.results.append(Failed(problem if isinstance(problem, Exception) else CallExited(problem)))
        self.has_failed = True


class Crew(Protocol):
    """Workers, some of which are active."""

    is_slow_to_hand_over: bool
    """Whether chunks have one row each, because whoever works on them starts several anyway."""

    def put(self, chunk: Chunk) -> None:
        """Work for whoever is free."""

    def put_first(self, chunk: Chunk) -> None:
        """The same, before all that waits."""

    def set_level(self, level: int) -> None:
        """How many workers are active from now on."""

    def abandon(self, chunk: Chunk) -> bool:
        """Give up a chunk in hand; False if it has just ended. The worker counts no more until it comes back."""

    def drop(self, done: queue.SimpleQueue[Chunk]) -> None:
        """Forget the work of a run, known by where it awaits its chunks: perhaps later, and never that of another."""

    def give_up_left(self) -> None:
        """Give up calls in hand of runs that were dropped a while ago: one may never return, and its worker with it."""

    @property
    def is_blocked(self) -> bool:
        """Whether nobody works any more, because one call holds up all others."""

    @property
    def busy(self) -> int:
        """How many calls are under way that were not given up, also of workers that are no longer active."""

    @property
    def hanging(self) -> int:
        """How many workers are in calls that were given up."""

    def close(self) -> None:
        """No more work: whoever waits goes home."""


class CallExited(RuntimeError):  # noqa: N818 - what happened, told in the error of the operator
    """A call wanted to end the program (SystemExit, say): a worker of a pool has only its call to end."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__(
            f"the call raised {shown(problem)}; in an elastic operator that ends the call, not the program"
        )
        self.__traceback__ = problem.__traceback__  # the line that is told


def run_chunk(chunk: Chunk, many: Callable[[Sequence[Any], list[Any]], None], is_own_thread: bool = False) -> None:
    """Make the calls of a chunk: whatever one raises is its failure.

    On the thread of whoever runs the program KeyboardInterrupt is theirs; a thread of a pool that ended would tell
    nobody.
    """
    results, rows = chunk.results, chunk.rows
    at = 0
    while at < len(rows):
        try:
            many(rows[at:] if at else rows, results)
        except BaseException as problem:
            if isinstance(problem, KeyboardInterrupt) and not is_own_thread:
                raise
            chunk.fail(problem)
        at = len(results)
