"""Calls in flight on one event loop: the level is how many there are.

The loop runs in a thread of its own, one for all pools of the process. Work that arrives wakes it once, and a call that
ends starts the next one itself, so that a busy loop never waits for another thread.

Work that is dropped is dropped by the loop, later than whoever drops it goes on, and the next run may have put work by
then. So what is dropped is the work of one run, and a call that is cancelled leaves the crew at once: whether it ends,
or cleans up for a while, concerns nobody any more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import queue
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from anabranch.engine.pool.elastic_call import BLOCKED_S, CallCancelled, LoopSilent, outcome
from anabranch.engine.pool.work import Chunk


class EventLoop:
    """A thread with a loop, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_over = threading.Event()

    def get(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._is_over = threading.Event()
                arguments = (self._loop, self._is_over)
                threading.Thread(target=_run, args=arguments, name="elastic-loop", daemon=True).start()
            return self._loop

    def run(self, call: Coroutine[Any, Any, Any], timeout_s: float | None = None) -> Any:
        """What a coroutine gives that runs there."""
        running = asyncio.run_coroutine_threadsafe(outcome(call), self.get())
        try:
            result, problem = running.result(timeout_s)
        except TimeoutError:
            raise LoopSilent from None
        except concurrent.futures.CancelledError:
            raise CallCancelled from None
        if problem is not None:
            raise problem
        return result

    def stop(self) -> None:
        """End the thread."""
        with self._lock:
            if self._loop is not None:
                self._is_over.set()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._loop = None


def _run(loop: asyncio.AbstractEventLoop, is_over: threading.Event) -> None:
    while not is_over.is_set():  # a call may stop the loop, and with it all others would wait for ever
        with contextlib.suppress(BaseException):  # raised by a task of the user's, which has it as its outcome
            loop.run_forever()
    loop.close()


class LoopCrew:
    """Calls of async functions.

    Parameters
    ----------
    one : async callable
        Makes the call for a row, and keeps to its timeout.
    """

    is_slow_to_hand_over = True

    def __init__(self, one: Callable[[Any], Awaitable[Any]], loop: asyncio.AbstractEventLoop) -> None:
        self._one = one
        self._loop = loop
        self._work: deque[Chunk] = deque()
        self._level = 0
        self._flying: dict[Chunk, asyncio.Task[None]] = {}
        self._told = False
        self._asked_at: float | None = None

    @property
    def busy(self) -> int:
        return len(self._flying)

    @property
    def hanging(self) -> int:
        return 0

    def put(self, chunk: Chunk) -> None:
        self._work.append(chunk)
        self._tell()

    def put_first(self, chunk: Chunk) -> None:
        self._work.appendleft(chunk)
        self._tell()

    def set_level(self, level: int) -> None:
        self._level = level
        self._tell()

    def abandon(self, chunk: Chunk) -> bool:
        """Calls are given up by their own timeout, unless one of them blocks the loop: is anybody there?"""
        if self._asked_at is None:
            self._asked_at = time.perf_counter()
            self._loop.call_soon_threadsafe(self._answer)
        return False

    @property
    def is_blocked(self) -> bool:
        asked_at = self._asked_at
        return asked_at is not None and time.perf_counter() - asked_at > BLOCKED_S

    def _answer(self) -> None:
        self._asked_at = None

    def drop(self, done: queue.SimpleQueue[Chunk]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel, done)

    def give_up_left(self) -> None:
        """Those that were dropped are gone."""

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel, None)

    def _cancel(self, done: queue.SimpleQueue[Chunk] | None) -> None:
        """Forget the work of a run, or all."""
        for _ in range(len(self._work)):  # others only add to it, and only this thread takes
            chunk = self._work.popleft()
            if done is not None and chunk.done is not done:
                self._work.append(chunk)
        for chunk in [each for each in self._flying if done is None or each.done is done]:
            self._flying.pop(chunk).cancel()
        self._fill()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._loop.call_soon_threadsafe(self._fill)

    def _fill(self) -> None:
        self._told = False  # before looking: whoever puts work from now on tells again
        while len(self._flying) < self._level:
            try:
                chunk = self._work.popleft()
            except IndexError:  # nothing waits
                return
            chunk.taken = chunk.began = time.perf_counter()
            task = self._flying[chunk] = self._loop.create_task(self._run(chunk), context=chunk.context)
            # Not at the end of the coroutine: one that is cancelled before its first step never gets there.
            task.add_done_callback(functools.partial(self._ended, chunk))

    async def _run(self, chunk: Chunk) -> None:
        try:
            chunk.results.append(await self._one(chunk.rows[0]))
        except asyncio.CancelledError:
            chunk.fail(CallCancelled())
        except BaseException as problem:  # SystemExit would end the loop, and with it all other calls
            chunk.fail(problem)

    def _ended(self, chunk: Chunk, task: asyncio.Task[None]) -> None:
        chunk.seconds = time.perf_counter() - chunk.began
        if self._flying.pop(chunk, None) is not None:  # else it was dropped
            if not chunk.results:
                chunk.fail(CallCancelled())
            chunk.done.put(chunk)
        self._fill()
