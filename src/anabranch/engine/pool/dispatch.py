"""The pool: hands out work, takes results, keeps order, makes failed calls again, adapts the level.

Whoever has rows runs this on his own thread, which is the dispatch thread of *Operators*. It keeps the one work queue
filled, and no fuller than a few chunks for each worker; it stops when the oldest call that has not ended is a window
behind, so that what waits for its turn is bounded whatever the number of rows. Every call comes back, also one that
emits nothing, so no worker has to say how far it is: suspended ones hold nobody up.

Level 0 has no workers: the calls are made here, in the loop that a plain operator has.

A failed call is made again after a while, by whoever is free then; no worker waits for that. When a call has failed for
good, nothing behind it is begun any more, what stands before it is awaited, and the first failure in the order of the
rows is raised: that of one thread.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

from anabranch.engine.pool.elastic_call import CallTimeout, backoff_s
from anabranch.engine.pool.level_controller import LevelController, SharingController
from anabranch.engine.pool.metering import Latencies, Meter
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.engine.pool.pool_time import MACHINE_TIME, PoolTime
from anabranch.engine.pool.work import Chunk, Crew, Failed, run_chunk
from anabranch.program.elastic import Concurrency
from anabranch.program.schema import MisfitError, ShapeError

WINDOW = 4096
"""Rows between the oldest call that has not ended and the newest that was handed out."""
_CHUNK_S = 0.0005
"""A chunk handed to a worker takes about so long, if calls are shorter than that."""
_INLINE_SHARE = 0.02
"""Of a period, the same where calls are made inline: after each chunk somebody looks at the clock."""
_CHUNK_MAX = 512
_INLINE_MAX = 1 << 16
_GRACE_S = 2.0
"""How long after its timeout a call that must stop by itself may take."""
_DRAIN_PERIODS = 4
"""How long calls of another level are waited for, before a period of the new one begins."""
_LOOK_SHARE = 0.25
"""Of a period that is enough for a look at a level, where calls are short."""
FINAL = (ShapeError, MisfitError)
"""What another attempt would not change: the call succeeded, and gave something that is no tuple of the output."""


class CallFailed(Exception):  # noqa: N818 - what happened to a call, for whoever runs the pool
    """A call failed for good: the first one in the order of the rows."""

    def __init__(self, index: int, problem: BaseException) -> None:
        super().__init__(f"row {index}: {problem!r}")
        self.index = index
        self.problem = problem


@dataclasses.dataclass
class PoolCounts:
    """What happened since somebody asked last."""

    calls: int = 0
    retries: int = 0
    timeouts: int = 0
    periods: int = 0
    latencies: Latencies = dataclasses.field(default_factory=Latencies)


class Pool:
    """Several calls of one function under way at once.

    Parameters
    ----------
    crew : Crew
        The workers.
    many : callable
        Makes the calls for some rows on this thread, for level 0.
    settings : Concurrency
    controller : LevelController
    window : int
        How many rows may lie between the oldest call that has not ended and the newest.
    learnt : callable, optional
        Told after each period.
    neighbours : Neighbours, optional
        The other pools of the host.
    time : PoolTime
    """

    def __init__(
        self,
        crew: Crew,
        many: Callable[[Sequence[Any], list[Any]], None],
        settings: Concurrency,
        controller: LevelController,
        *,
        window: int = WINDOW,
        learnt: Callable[[Pool], None] | None = None,
        neighbours: Neighbours | None = None,
        time: PoolTime = MACHINE_TIME,
    ) -> None:
        self._crew = crew
        self._many = many
        self._settings = settings
        self.controller = controller
        self._window = window
        self._learnt = learnt
        self._neighbours = neighbours
        self._time = time
        self._meter = Meter(settings.period_s)
        self._counts = PoolCounts()
        self._chunk_rows = 1
        self._level = -1
        self._changed_at = 0.0  # the level
        self._old_left = 0  # calls that were under way then, and are still
        self.rate = 0.0
        """Tuples per second in the last period that counted."""
        self._in_use = threading.Lock()
        self._change_level()

    @property
    def level(self) -> int:
        """How many calls are under way, at most."""
        return self._level

    def take_counts(self) -> PoolCounts:
        """What happened since the last call of this."""
        found, self._counts = self._counts, PoolCounts()
        return found

    def close(self) -> None:
        """No more calls."""
        self._crew.close()
        if self._neighbours is not None:
            self._neighbours.close()

    def run(
        self, rows: Sequence[Any], *, ordered: bool = True, keeps_failures: bool = False
    ) -> Generator[tuple[int, list[Any]], None, None]:
        """The results for some rows: (place of the first, results of some in a row).

        Parameters
        ----------
        ordered : bool
            They come in the order of the rows; else as they are done, and a slow call holds up nobody.
        keeps_failures : bool
            A call that failed for good has a `Failed` as its result, and the others go on.

        Raises
        ------
        CallFailed
            If a call failed for good, and all before it have ended.
        """
        with self._in_use:  # what one task learns counts for the next, but they come one after the other
            run = _Run(self, rows, ordered, keeps_failures)
            try:
                yield from run.results()
            finally:
                run.end()

    # -- the level ------------------------------------------------------------------------------------------

    def _change_level(self) -> None:
        if self.controller.level != self._level:
            self._old_left = self._crew.busy
            self._changed_at = now = self._time.passing_s()  # after that: those have all been taken by now
            self._level = self.controller.level
            # Worker 0 is never suspended: it works off what was handed out before the level became 0.
            self._crew.set_level(max(1, self._level))
            self._meter.new_level(self._level, now)
            self._chunk_rows = 1

    def _evaluate(self, now: float) -> None:
        """The alarm: if the period is over, the controller decides."""
        if self._meter.is_over(now, _LOOK_SHARE if self.controller.is_looking else 1.0):
            self.rate = self._meter.rate()
        elif self._meter.has_collapsed(now, self.controller.collapsed_below):
            self.rate = self._meter.mean_rate(now)
        else:
            return
        self._counts.periods += 1
        self._decide(now)
        self._meter.new_level(self._level, now)
        self._change_level()
        if self._neighbours is not None:
            self._neighbours.begin()
        if self._learnt is not None:
            self._learnt(self)

    def _decide(self, now: float) -> None:
        controller, others = self.controller, self._neighbours
        if others is None or not isinstance(controller, SharingController):
            controller.handle(self.rate)
            return
        # The rate is less if others paid for it.
        rate = self.rate * others.factor(controller.is_at_rest)
        controller.is_shared, controller.others_level = others.are_there, others.level
        controller.handle(rate)
        if controller.wants_turn:
            controller.has_turn = others.take_turn(now)
        elif controller.has_turn:
            controller.has_turn = False
            others.give_turn()

    def _ended(self, chunk: Chunk, now: float) -> None:
        calls = len(chunk.rows)
        self._counts.calls += calls
        if self._neighbours is not None:
            self._neighbours.tell(calls, now, self._level)
        self._counts.latencies.add(chunk.seconds / calls, calls)
        if self._old_left:
            self._old_left -= chunk.taken <= self._changed_at
            if self._old_left <= 0 or now > self._changed_at + _DRAIN_PERIODS * self._settings.period_s:
                self._old_left = 0
                self._meter.new_level(self._level, now)
            return  # what was begun at another level, or beside such calls, says little
        self._meter.ended(chunk.began, chunk.seconds, calls, now)
        call_s = self._meter.call_s
        if call_s is not None and self._settings.timeout_s is None:
            inline_s = self._settings.period_s * _INLINE_SHARE
            target, most = (_CHUNK_S, _CHUNK_MAX) if self._level else (inline_s, _INLINE_MAX)
            # At most four times as many as before: the first calls say little about the others.
            self._chunk_rows = max(1, min(most, self._chunk_rows * 4, int(target / max(call_s, 1e-9))))


class _Run:
    """Rows on their way through a pool."""

    def __init__(self, pool: Pool, rows: Sequence[Any], ordered: bool, keeps_failures: bool) -> None:
        self._pool = pool
        self._keeps_failures = keeps_failures
        self._crew, self._settings, self._time = pool._crew, pool._settings, pool._time
        self._rows = rows
        self._ordered = ordered
        self._at = 0  # rows handed out
        self._done: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
        self._open: deque[Chunk] = deque()  # in order; ordered: until they are given back, else until they ended
        self._queued = 0  # chunks that the crew has
        self._late: list[tuple[float, int, Chunk]] = []  # calls to make again, by when
        self._numbers = itertools.count()
        self._running: dict[Chunk, None] = {}  # with a timeout: chunks that the crew has, oldest first
        self._look_again = 0.0
        self._failure: CallFailed | None = None

    def end(self) -> None:
        """Whatever is under way counts no more."""
        self._pool._meter.pause(self._time.passing_s())
        if self._queued:
            self._crew.drop(self._done)

    def results(self) -> Iterator[tuple[int, list[Any]]]:
        pool = self._pool
        while True:
            if pool._level == 0 and not self._open:
                yield from self._inline()
            self._hand_out()
            if not self._open:
                if self._failure is not None:
                    raise self._failure
                if self._at >= len(self._rows):
                    return
                continue
            ended = self._wait()
            now = self._time.passing_s()
            for chunk in ended:
                finished = self._take(chunk, now)
                if finished is not None and not self._ordered and self._failure is None:
                    self._open.remove(finished)
                    yield finished.first, finished.results
            self._make_again(now)
            self._give_up_overdue(now)
            if self._failure is not None:
                while self._open and self._open[-1].first > self._failure.index:  # nothing behind it matters
                    self._open.pop()
            while self._open and (self._ordered or self._failure is not None) and self._is_settled(self._open[0]):
                chunk = self._open.popleft()
                good = chunk.results if self._failure is None else chunk.results[: self._failure.index - chunk.first]
                if good:
                    yield chunk.first, good
            pool._evaluate(now)

    # -- inline ---------------------------------------------------------------------------------------------

    def _inline(self) -> Iterator[tuple[int, list[Any]]]:
        """Calls on this thread, while the level is 0."""
        pool = self._pool
        while pool._level == 0 and self._at < len(self._rows) and self._failure is None:
            stop = min(len(self._rows), self._at + pool._chunk_rows)
            is_all = stop - self._at == len(self._rows)  # mostly, where calls are short: then there is nothing to copy
            chunk = Chunk(self._at, self._rows if is_all else self._rows[self._at : stop], self._done)
            self._at = stop
            chunk.began = begun = self._time.passing_s()
            pool._meter.resume(begun)
            run_chunk(chunk, pool._many)
            now = self._time.passing_s()
            chunk.seconds = now - begun
            for place, result in enumerate(chunk.results) if chunk.has_failed else ():
                if type(result) is Failed:
                    self._again_inline(chunk, place, result)
                    if self._failure is not None:
                        break
            if self._failure is not None:
                good = chunk.results[: self._failure.index - chunk.first]
                if good:
                    yield chunk.first, good
                return
            pool._ended(chunk, now)
            yield chunk.first, chunk.results
            pool._evaluate(self._time.passing_s())

    def _again_inline(self, chunk: Chunk, place: int, result: Failed) -> None:
        for attempt in range(1, self._settings.retries + 1):
            if isinstance(result.problem, FINAL):
                break
            self._pool._counts.retries += 1
            self._time.sleep(backoff_s(self._settings, attempt))
            again = Chunk(chunk.first + place, [chunk.rows[place]], self._done)
            run_chunk(again, self._pool._many)
            chunk.results[place] = again.results[0]
            if type(again.results[0]) is not Failed:
                return
            result = again.results[0]
        if not self._keeps_failures:
            self._failure = CallFailed(chunk.first + place, result.problem)

    # -- handing out ----------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        pool = self._pool
        if self._failure is not None or pool._level == 0:
            return
        # So many that whoever ends a chunk finds another, and a few for the time that this thread needs to notice.
        wanted = 2 * pool._level + 2
        while self._at < len(self._rows) and self._queued < wanted and self._is_within_window():
            size = 1 if self._crew.is_slow_to_hand_over else pool._chunk_rows
            stop = min(len(self._rows), self._at + size)
            chunk = Chunk(self._at, self._rows[self._at : stop], self._done)
            self._at = stop
            self._open.append(chunk)
            self._put(chunk)
        now = self._time.passing_s()
        if self._at < len(self._rows) or self._queued > pool._level:
            pool._meter.resume(now)
        else:  # somebody may find nothing to do
            pool._meter.pause(now)

    def _put(self, chunk: Chunk, first: bool = False) -> None:
        self._queued += 1
        if self._settings.timeout_s is not None:
            self._running[chunk] = None
        if first:
            self._crew.put_first(chunk)
        else:
            self._crew.put(chunk)

    def _is_within_window(self) -> bool:
        if not self._ordered:
            return len(self._open) < self._pool._window
        return not self._open or self._at - self._open[0].first < self._pool._window

    # -- taking back ----------------------------------------------------------------------------------------

    def _wait(self) -> list[Chunk]:
        """Chunks that have ended: at least one, unless there is something else to look after."""
        found: list[Chunk] = []
        try:
            found.append(self._done.get_nowait())
        except queue.Empty:
            now = self._time.passing_s()
            wakes = [now + self._settings.period_s]
            if self._late:
                wakes.append(self._late[0][0])
            if self._settings.timeout_s is not None and self._running:
                wakes.append(now + self._settings.timeout_s / 10)
            ended = self._time.ended(self._done, max(0.001, min(wakes) - now))
            if ended is None:
                return []
            found.append(ended)
        while len(found) < 64:
            try:
                found.append(self._done.get_nowait())
            except queue.Empty:
                break
        return found

    def _take(self, chunk: Chunk, now: float) -> Chunk | None:
        """Note what a chunk brought; the chunk that is finished by that, if one is."""
        self._queued -= 1
        self._running.pop(chunk, None)
        self._pool._ended(chunk, now)
        chunk.is_taken = True
        whole = chunk.whole or chunk
        if chunk.whole is not None:
            whole.results[chunk.first - whole.first] = chunk.results[0]
            whole.waiting -= 1
        for place, result in enumerate(chunk.results) if chunk.has_failed else ():
            if type(result) is Failed:
                self._failed(whole, chunk.first + place, chunk.rows[place], chunk.attempt, result.problem, now)
        return whole if self._is_finished(whole) else None

    def _is_finished(self, chunk: Chunk) -> bool:
        return chunk.is_taken and not chunk.waiting

    def _is_settled(self, chunk: Chunk) -> bool:
        """Whether nothing of a chunk is awaited any more: it is finished, or all is that stands before the failure."""
        if self._failure is None or self._failure.index >= chunk.first + len(chunk.rows):
            return self._is_finished(chunk)
        before = chunk.results[: self._failure.index - chunk.first]
        return chunk.is_taken and not any(type(result) is Failed for result in before)

    def _failed(self, whole: Chunk, index: int, row: Any, attempt: int, problem: BaseException, now: float) -> None:
        if isinstance(problem, CallTimeout):
            self._pool._counts.timeouts += 1
        if attempt <= self._settings.retries and not isinstance(problem, FINAL):
            self._pool._counts.retries += 1
            again = Chunk(index, [row], self._done, attempt + 1)
            again.whole = whole
            whole.waiting += 1
            due = now + backoff_s(self._settings, attempt)
            heapq.heappush(self._late, (due, next(self._numbers), again))
        elif not self._keeps_failures and (self._failure is None or index < self._failure.index):
            self._failure = CallFailed(index, problem)

    def _make_again(self, now: float) -> None:
        while self._late and self._late[0][0] <= now:
            _, _, chunk = heapq.heappop(self._late)
            if self._failure is None or chunk.first < self._failure.index:
                self._put(chunk, first=True)

    def _give_up_overdue(self, now: float) -> None:
        timeout = self._settings.timeout_s
        if timeout is None or now < self._look_again:
            return
        self._look_again = now + timeout / 10
        # Chunks have one call each where calls have a timeout.
        for chunk in [c for c in self._running if c.began and now - c.began > timeout]:
            if self._crew.abandon(chunk):
                del self._running[chunk]
                stand_in = Chunk(chunk.first, chunk.rows, self._done, chunk.attempt)
                stand_in.taken, stand_in.began, stand_in.seconds = chunk.taken, chunk.began, now - chunk.began
                stand_in.fail(CallTimeout(timeout))
                stand_in.whole = chunk.whole
                if chunk.whole is None:  # whoever waits for the chunk waits for what stands in for it
                    self._open[self._open.index(chunk)] = stand_in
                self._take(stand_in, now)
            elif now - chunk.began > timeout + _GRACE_S and self._crew.is_slow_to_hand_over:
                raise CallFailed(chunk.first, LoopBlocked(timeout))
        most = 2 * (self._settings.max_workers or self._pool._level) + 16
        if self._crew.hanging > most:
            first = self._open[0].first if self._open else 0
            raise CallFailed(first, _too_many_hang(self._crew.hanging, timeout))


class LoopBlocked(RuntimeError):  # noqa: N818 - what happened, told in the error of the operator
    """An async function holds up the event loop, and with it every other call."""

    def __init__(self, timeout: float) -> None:
        super().__init__(
            f"the call did not end within timeout={timeout:g} seconds and could not be cancelled: an async function "
            "must not block. Await what takes time, or write a plain function, which gets threads"
        )


def _too_many_hang(count: int, timeout: float) -> Exception:
    return RuntimeError(
        f"{count} calls did not return within timeout={timeout:g} seconds, nor later: threads cannot be stopped, so no "
        "more are started. Give the function a timeout of its own, or use workers='processes', which can be stopped"
    )
