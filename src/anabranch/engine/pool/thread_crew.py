"""Workers that are threads: created, suspended and woken, never destroyed.

There is one queue for all (queues of their own would need stealing). A worker is in one of three states:

    working ──► idle: active, and nothing to do       woken by work
       │
       └──────► suspended: its number is not active   woken by a higher level

Each waits on a lock of its own, so that work wakes one worker, and one that may work. A worker whose call was given up
(a timeout) is *lost*: another takes its number, and when the call returns after all the worker becomes a spare.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from anabranch.engine.pool.work import Chunk, run_chunk

LEFT_S = 1.0
"""How long calls of a run that is over may hold their workers: one may never return."""
_log = logging.getLogger("anabranch")


class Worker:
    """One worker."""

    __slots__ = ("chunk", "companion", "number", "signal")

    def __init__(self, number: int) -> None:
        self.number: int | None = number  # None: lost or spare
        self.signal = threading.Semaphore(0)
        self.chunk: Chunk | None = None
        self.companion: Any = None  # what a subclass needs one of for each worker


class ThreadCrew:
    """Threads that work on the chunks of one queue."""

    is_slow_to_hand_over = False
    is_blocked = False

    def __init__(self, many: Callable[[Any, list[Any]], None], name: str = "elastic") -> None:
        self._many = many
        self._name = name
        self._lock = threading.Lock()
        self._work: deque[Chunk] = deque()
        self._level = 0
        self._workers: list[Worker] = []
        self._idle: list[Worker] = []
        self._suspended: set[Worker] = set()
        self._spare: list[Worker] = []
        self._lost: dict[Chunk, Worker] = {}
        self._in_hand: dict[Chunk, Worker] = {}
        self._left: dict[Chunk, float] = {}  # in hand, for a run that is over
        self._closed = False

    @property
    def created(self) -> int:
        """How many workers there are, suspended ones among them."""
        return len(self._workers)

    @property
    def busy(self) -> int:
        return len(self._in_hand)

    @property
    def hanging(self) -> int:
        return len(self._lost)

    def put(self, chunk: Chunk) -> None:
        with self._lock:
            self._work.append(chunk)
            self._wake_one()

    def put_first(self, chunk: Chunk) -> None:
        with self._lock:
            self._work.appendleft(chunk)
            self._wake_one()

    def set_level(self, level: int) -> None:
        with self._lock:
            self._level = level
            while len(self._workers) < level:
                try:
                    self._workers.append(self._new(len(self._workers)))
                except RuntimeError as problem:  # the system has no more threads
                    if not self._workers:
                        raise
                    _log.warning("%s: %d workers instead of %d: %s", self._name, len(self._workers), level, problem)
                    break
            for worker in [w for w in self._suspended if w.number is not None and w.number < level]:
                self._suspended.discard(worker)
                worker.signal.release()
            for worker in [w for w in self._idle if w.number is None or w.number >= level]:
                self._idle.remove(worker)
                self._suspended.add(worker)

    def abandon(self, chunk: Chunk) -> bool:
        with self._lock:
            worker = self._in_hand.pop(chunk, None)
            if worker is None or worker.number is None:
                return False
            chunk.abandoned = True
            self._lost[chunk] = worker
            number, worker.number = worker.number, None
            if self._spare:
                other = self._spare.pop()
                other.number = number
                self._workers[number] = other
                other.signal.release()
            else:
                self._workers[number] = self._new(number)
        self._interrupt(worker)
        return True

    def drop(self, done: queue.SimpleQueue[Chunk]) -> None:
        with self._lock:
            self._work = deque(chunk for chunk in self._work if chunk.done is not done)
            now = time.perf_counter()
            self._left |= {chunk: now for chunk in self._in_hand if chunk.done is done}

    def give_up_left(self) -> None:
        if not self._left:
            return
        with self._lock:
            until = time.perf_counter() - LEFT_S
            self._left = {chunk: at for chunk, at in self._left.items() if chunk in self._in_hand}
            overdue = [chunk for chunk, at in self._left.items() if at < until]
        for chunk in overdue:
            self.abandon(chunk)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            everyone = [*self._workers, *self._spare]
        for worker in everyone:
            worker.signal.release()
        self._dismiss_all(everyone)

    # -- what subclasses do otherwise -----------------------------------------------------------------------

    def _prepare(self, worker: Worker) -> None:
        """Before a call begins, and its time."""

    def _work_off(self, worker: Worker, chunk: Chunk) -> None:
        run_chunk(chunk, self._many, is_own_thread=True)

    def _interrupt(self, worker: Worker) -> None:
        """A thread cannot be stopped: it is left alone."""

    def _dismiss_all(self, workers: list[Worker]) -> None:
        """The crew is closed."""

    # -- a worker -------------------------------------------------------------------------------------------

    def _new(self, number: int) -> Worker:
        worker = Worker(number)
        threading.Thread(target=self._run, args=(worker,), name=f"{self._name}-{number}", daemon=True).start()
        return worker

    def _wake_one(self) -> None:
        if self._idle:
            self._idle.pop().signal.release()

    def _run(self, worker: Worker) -> None:
        while True:
            chunk = self._next(worker)
            if chunk is None:
                return
            begun = time.perf_counter()
            try:
                self._prepare(worker)
                chunk.began = begun = time.perf_counter()
                chunk.context.run(self._work_off, worker, chunk)
            except BaseException as problem:  # no process can be started, say: whoever waits must hear of it
                for _ in chunk.rows[len(chunk.results) :]:
                    chunk.fail(problem)
            chunk.seconds = time.perf_counter() - begun
            with self._lock:
                mine = self._in_hand.pop(chunk, None) is worker
                if not mine:
                    self._lost.pop(chunk, None)
            if mine:
                chunk.done.put(chunk)

    def _next(self, worker: Worker) -> Chunk | None:
        while True:
            with self._lock:
                if self._closed:
                    return None
                if worker.number is None:
                    self._spare.append(worker)
                elif worker.number >= self._level:
                    self._suspended.add(worker)
                    if self._work:  # it was woken for work that another must do now
                        self._wake_one()
                elif self._work:
                    chunk = self._work.popleft()
                    chunk.taken = time.perf_counter()
                    self._in_hand[chunk] = worker
                    return chunk
                else:
                    self._idle.append(worker)
            worker.signal.acquire()
