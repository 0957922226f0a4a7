"""An elastic function called by one thread: one call after the other, with its timeout and its retries.

That is what an elastic operator means. The sequential run calls it, and whoever looks for the first error does; a pool
only makes the same calls at the same time.
"""

from __future__ import annotations

import inspect
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from anabranch.program.elastic import Concurrency, ElasticFunction, is_async

_OPENED = "_anabranch_opened"
BACKOFF_MAX_S = 30.0


class CallTimeout(TimeoutError):  # noqa: N818 - what happened, told in the error of the operator
    """A call of an elastic operator took longer than its timeout allows."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the call took longer than timeout={seconds:g} seconds")


def backoff_s(settings: Concurrency, attempt: int) -> float:
    """How long to wait before another attempt, when so many have failed: longer each time, and not all at once."""
    longest: float = min(BACKOFF_MAX_S, settings.backoff_s * 2.0 ** min(attempt - 1, 20))
    return longest * random.uniform(0.5, 1.0)


class ElasticCall(ElasticFunction):
    """A function of the user's that can be called with one tuple, whatever kind of function it is."""

    def __call__(self, row: Any) -> Any:
        self._open()
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt(row)
            except Exception:
                if attempt > self.settings.retries:
                    raise
                time.sleep(backoff_s(self.settings, attempt))

    def _attempt(self, row: Any) -> Any:
        timeout = self.settings.timeout_s
        if is_async(self.function):
            import asyncio

            return asyncio.run(awaited(self.function, row, timeout))
        if timeout is None:
            return collected(self.function(row))
        return _within(lambda: collected(self.function(row)), timeout)

    def _open(self) -> None:
        # The mark is on the user's object, so that whoever puts its contents back puts the mark back too.
        owner = self.owner
        if hasattr(owner, "open") and not getattr(owner, _OPENED, False):
            owner.open()
            setattr(owner, _OPENED, True)

    def close(self) -> None:
        owner = self.owner
        if getattr(owner, _OPENED, False):
            delattr(owner, _OPENED)
            if hasattr(owner, "close"):
                owner.close()


def collected(result: Any) -> Any:
    """A result whose making is over: what a generator yields is made when it is asked for."""
    return list(result) if inspect.isgenerator(result) else result


async def awaited(function: Callable[[Any], Any], row: Any, timeout_s: float | None) -> Any:
    """The result of an async function for a tuple: of a coroutine, or all that an asynchronous generator yields."""
    import asyncio  # not above: workers load this module, and few have use for it

    try:
        async with asyncio.timeout(timeout_s):
            made = function(row)
            if inspect.isasyncgen(made):
                return [each async for each in made]
            return await made
    except TimeoutError as problem:
        if timeout_s is None or isinstance(problem, CallTimeout):
            raise
        raise CallTimeout(timeout_s) from None


def _within(call: Callable[[], Any], seconds: float) -> Any:
    """The result of a call, if it comes in time; else the call is left alone."""
    outcome: list[Any] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if problems:
        raise problems[0]
    if not outcome:
        raise CallTimeout(seconds)
    return outcome[0]
