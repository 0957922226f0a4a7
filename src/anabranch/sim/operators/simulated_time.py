"""Time in which pools run without any passing: whoever waits hands over to whoever is next.

Each pool's dispatch is a thread, because a pool waits in the middle of its work; but only one of them runs at any
moment, and who is next follows from the events alone. So a run of an hour takes seconds, and is the same every time.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence

from anabranch.engine.pool.work import Chunk


class _Over(BaseException):
    """The time that was asked for is over."""


class _Turn:
    """A thread of the run: it goes on when it is its turn."""

    def __init__(self) -> None:
        self.signal = threading.Semaphore(0)
        self.waits = 0  # how often it has waited: what wakes it must mean this time


class SimulatedTime:
    """Events in their order, and threads that wait for them. It is the `PoolTime` of the pools that run in it."""

    def __init__(self) -> None:
        self._now = 1.0  # a chunk that began at 0 has not begun
        self._until = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._current = _Turn()
        self._next: deque[_Turn] = deque()
        self._waiting: dict[int, tuple[_Turn, int]] = {}  # queue → who waits for its next chunk
        self._asleep: dict[_Turn, None] = {}
        self._is_over = False
        self._problem: BaseException | None = None

    # -- for whoever runs something -------------------------------------------------------------------------

    def passing_s(self) -> float:
        return self._now

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        """Let something happen later."""
        heapq.heappush(self._events, (self._now + seconds, next(self._numbers), event))

    def sleep(self, seconds: float) -> None:
        self.block(lambda resume: self.after(seconds, resume))

    def block(self, begin: Callable[[Callable[[], None]], None]) -> None:
        """Begin something, and wait until it calls back."""
        me = self._current
        me.waits += 1
        begin(self._waker(me))
        self._hand_over(me)

    def ended(self, done: queue.SimpleQueue[Chunk], seconds: float) -> Chunk | None:
        """The next chunk of a queue; None if there is none in time."""
        if done.empty():
            me = self._current
            me.waits += 1
            self._waiting[id(done)] = me, me.waits
            self.after(seconds, self._waker(me))
            self._hand_over(me)
            self._waiting.pop(id(done), None)
        return None if done.empty() else done.get_nowait()

    def give_back(self, chunk: Chunk) -> None:
        """A chunk has ended: whoever waits for it goes on."""
        chunk.done.put(chunk)
        found = self._waiting.pop(id(chunk.done), None)
        if found is not None and found[0].waits == found[1]:
            found[0].waits += 1
            self._next.append(found[0])

    # -- the run --------------------------------------------------------------------------------------------

    def run(self, bodies: Sequence[Callable[[], None]], seconds: float) -> None:
        """Run some functions, a thread each, for so long, or until all have returned."""
        self._until = self._now + seconds
        self._is_over = False
        me = _Turn()
        left = len(bodies)

        def runs(body: Callable[[], None], turn: _Turn) -> None:
            nonlocal left
            turn.signal.acquire()
            try:
                body()
            except BaseException as problem:
                # Once the time is over everybody who waits is told so, also in a call, whose failure it then is.
                if not self._is_over:
                    self._problem = self._problem or problem
            left -= 1
            if not left or self._problem is not None:
                me.signal.release()
            else:
                self._choose()

        turns = [_Turn() for _ in bodies]
        for body, turn in zip(bodies, turns, strict=True):
            threading.Thread(target=runs, args=(body, turn), daemon=True).start()
        self._next.extend(turns)
        self._choose()
        me.signal.acquire()
        if self._problem is not None:
            raise self._problem
        self._events.clear()

    def _waker(self, turn: _Turn) -> Callable[[], None]:
        number = turn.waits

        def wake() -> None:
            if turn.waits == number:
                turn.waits += 1
                self._next.append(turn)

        return wake

    def _hand_over(self, me: _Turn) -> None:
        self._asleep[me] = None
        self._choose()
        me.signal.acquire()
        del self._asleep[me]
        if self._is_over:
            raise _Over

    def _choose(self) -> None:
        """Let time pass until it is somebody's turn."""
        while not self._next:
            if self._events and self._events[0][0] <= self._until:
                self._now, _, event = heapq.heappop(self._events)
                event()
            else:
                self._is_over = True
                self._next.extend(self._asleep)
        self._current = self._next.popleft()
        self._current.signal.release()
