"""Calls in flight on one event loop: the level is how many there are.

The loop runs in a thread of its own, one for all pools of the process. Work that arrives wakes it once, and a call that
ends starts the next one itself, so that a busy loop never waits for another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from anabranch.engine.pool.work import Chunk


class EventLoop:
    """A thread with a loop, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="elastic-loop", daemon=True).start()
            return self._loop


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
        """Calls are cancelled by their own timeout; one that blocks the loop cannot be."""
        return False

    def drop_waiting(self) -> None:
        self._work.clear()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel)

    def close(self) -> None:
        self.drop_waiting()

    def _cancel(self) -> None:
        for task in list(self._flying.values()):
            task.cancel()

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
            self._flying[chunk] = self._loop.create_task(self._run(chunk))

    async def _run(self, chunk: Chunk) -> None:
        try:
            chunk.results.append(await self._one(chunk.rows[0]))
        except asyncio.CancelledError:
            chunk.fail(RuntimeError("the call was cancelled"))
        except Exception as problem:
            chunk.fail(problem)
        finally:
            chunk.seconds = time.perf_counter() - chunk.began
            self._flying.pop(chunk, None)
            chunk.done.put(chunk)
            self._fill()
