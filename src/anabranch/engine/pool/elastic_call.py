"""An elastic function called by one thread: one call after the other, with its timeout and its retries.

That is what an elastic operator means. The sequential run calls it, and whoever looks for the first error does; a pool
only makes the same calls at the same time.

Async functions are awaited on one loop from `open()` to `close()`, which both run there: clients of services belong to
the loop they were made in. It is a loop of another thread, because a notebook's thread has one that is running already.
"""

from __future__ import annotations

import inspect
import logging
import random
import threading
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from anabranch.engine.pool.work import CallExited
from anabranch.engine.thread_settings import own_context
from anabranch.program.elastic import Concurrency, ElasticFunction, LoopBlocked, OpenFailed, is_async
from anabranch.program.showing import told

if TYPE_CHECKING:
    from anabranch.engine.pool.loop_crew import EventLoop

_OPENED = "_anabranch_opened"
BACKOFF_MAX_S = 30.0
CLEANING_UP_S = 1.0
"""How long an async call that was cancelled may go on, before it is left alone."""
BLOCKED_S = 2.0
"""How long a loop may not answer, before somebody is said to block it."""
_LEFT_ALONE: set[Any] = set()
_log = logging.getLogger("anabranch")


class CallTimeout(TimeoutError):  # noqa: N818 - what happened, told in the error of the operator
    """A call of an elastic operator took longer than its timeout allows."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the call took longer than timeout={seconds:g} seconds")


class LoopSilent(TimeoutError):  # noqa: N818 - what happened
    """An event loop has not done in time what it was asked for."""


class CallCancelled(RuntimeError):  # noqa: N818 - what happened, told in the error of the operator
    """The task of an async call was cancelled, by the call itself or by another one."""

    def __init__(self) -> None:
        super().__init__("the call was cancelled")


def backoff_s(settings: Concurrency, attempt: int) -> float:
    """How long to wait before another attempt, when so many have failed: longer each time, and not all at once."""
    longest: float = min(BACKOFF_MAX_S, settings.backoff_s * 2.0 ** min(attempt - 1, 20))
    return longest * random.uniform(0.5, 1.0)


class ElasticCall(ElasticFunction):
    """A function of the user's that can be called with one tuple, whatever kind of function it is.

    With `is_many` it may be a generator, and what that yields is made by the call, which may be limited in time.
    """

    def __init__(self, function: Callable[[Any], Any], settings: Concurrency, is_many: bool = True) -> None:
        super().__init__(function, settings)
        self._is_many = is_many

    apart: Callable[[Any], Any] | None = None
    """Makes the calls elsewhere, retries included, if they must not be made here: code may end the process it is in."""
    _loop: EventLoop | None = None

    def __call__(self, row: Any) -> Any:
        if self.apart is not None:
            return self.apart(row)
        self._open()
        attempt = 0
        while True:
            attempt += 1
            try:
                try:
                    return self._attempt(row)
                except (Exception, KeyboardInterrupt):
                    raise
                except BaseException as problem:
                    raise CallExited(problem) from None
            except LoopBlocked:
                self._loop = None  # nothing more is heard of it
                raise
            except Exception:
                if attempt > self.settings.retries:
                    raise
                time.sleep(backoff_s(self.settings, attempt))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("apart", "_loop")}

    def _attempt(self, row: Any) -> Any:
        timeout = self.settings.timeout_s
        if is_async(self.function):
            try:
                limit = None if timeout is None else timeout + CLEANING_UP_S + BLOCKED_S
                return self._on_loop(awaited(self.function, row, timeout), limit)
            except LoopSilent:
                assert timeout is not None
                raise LoopBlocked(timeout) from None
        if timeout is None:
            return self._made(row)
        return _within(lambda: self._made(row), timeout)

    def _made(self, row: Any) -> Any:
        result = self.function(row)
        return list(result) if self._is_many and inspect.isgenerator(result) else result

    def _open(self) -> None:
        # The mark is on the user's object, so that whoever puts its contents back puts the mark back too.
        owner = self.owner
        if hasattr(owner, "open") and not getattr(owner, _OPENED, False):
            try:
                self._called_here(owner.open)
            except Exception as problem:
                raise OpenFailed(problem) from None
            setattr(owner, _OPENED, True)

    def close(self) -> None:
        owner = self.owner
        if getattr(owner, _OPENED, False):
            delattr(owner, _OPENED)
            if hasattr(owner, "close"):
                closed(owner, lambda: self._called_here(owner.close))
        if self._loop is not None:
            self._loop.stop()
            self._loop = None

    def _called_here(self, function: Callable[[], Any]) -> None:
        if is_async(self.function):
            self._on_loop(outcome_of(function))
        else:
            function()

    def _on_loop(self, call: Coroutine[Any, Any, Any], limit_s: float | None = None) -> Any:
        # Not above: workers load this module, and few have use for a loop.
        from anabranch.engine.pool.loop_crew import EventLoop

        self._loop = self._loop or EventLoop()
        return self._loop.run(call, limit_s)


def closed(owner: Any, close: Callable[[], Any]) -> None:
    """Call a `close()`. What it raises is told in the log, whoever calls it: mostly there is nothing left to fail."""
    try:
        close()
    except Exception as problem:
        _log.warning("close() of %s raised %s", type(owner).__name__, told(problem), exc_info=problem)


async def outcome_of(function: Callable[[], Any]) -> None:
    """Call an `open` or `close` in a running loop, and await what it gives if that can be awaited."""
    result = function()
    if inspect.isawaitable(result):
        await result


async def awaited(function: Callable[[Any], Any], row: Any, timeout_s: float | None) -> Any:
    """The result of an async function for a tuple: of a coroutine, or all that an asynchronous generator yields.

    A call that takes too long is cancelled, and has a while to clean up; after that it is left alone. Whatever it
    gives or raises by then, it took too long.
    """
    import asyncio  # not above: workers load this module, and few have use for it

    if timeout_s is None:
        try:
            return await _made(function, row)
        except asyncio.CancelledError:
            raise CallCancelled from None
    call = asyncio.ensure_future(outcome(_made(function, row)))
    try:
        ended, _ = await asyncio.wait({call}, timeout=timeout_s)
        if not ended:
            call.cancel()
            _LEFT_ALONE.add(call)  # a loop does not hold on to its tasks
            call.add_done_callback(_LEFT_ALONE.discard)
            await asyncio.wait({call}, timeout=CLEANING_UP_S)
            raise CallTimeout(timeout_s)
    except asyncio.CancelledError:  # nobody waits for it any more
        call.cancel()
        raise CallCancelled from None
    if call.cancelled():
        raise CallCancelled
    result, problem = call.result()
    if problem is not None:
        raise problem
    return result


async def _made(function: Callable[[Any], Any], row: Any) -> Any:
    made = function(row)
    if inspect.isasyncgen(made):
        return [each async for each in made]
    return await made


async def outcome(call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """What a call gives or raises: a task that raises SystemExit would end the loop."""
    import asyncio

    try:
        return await call, None
    except asyncio.CancelledError:
        raise
    except Exception as problem:
        return None, problem
    except BaseException as problem:
        return None, CallExited(problem)


def _within(call: Callable[[], Any], seconds: float) -> Any:
    """The result of a call, if it comes in time; else the call is left alone."""
    outcome: list[Any] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=own_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(seconds)
    if problems:
        raise problems[0] if isinstance(problems[0], Exception) else CallExited(problems[0])
    if not outcome:
        raise CallTimeout(seconds)
    return outcome[0]
