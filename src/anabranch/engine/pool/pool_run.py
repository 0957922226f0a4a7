"""Rows on their way through a pool: handed out, taken back, made again, in order or as they are done.

Rows may be *fed*, some at a time, where nobody minds the order of the results: then what was handed out is still under
way when the next rows come, and no worker waits at the end of a batch for its slowest call.

    feed(rows) ─► handed out ─► all of them: back to whoever feeds, with what has ended so far ─► feed(more rows) …

While whoever feeds is away nothing is measured: what ends then was not awaited by anybody.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import queue
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.engine.pool.elastic_call import CallTimeout, backoff_s
from anabranch.engine.pool.work import Chunk, Failed, run_chunk
from anabranch.program.elastic import LoopBlocked, OpenFailed
from anabranch.program.misfits import MisfitError, ShapeError
from anabranch.program.showing import shown

if TYPE_CHECKING:
    from anabranch.engine.pool.dispatch import Pool

QUIET_S = 60.0
"""If no call ends for so long, that is told in the log."""
_log = logging.getLogger("anabranch")
FINAL = (ShapeError, MisfitError, OpenFailed, LoopBlocked)
"""What another attempt would not change: the call succeeded, and gave something that is no tuple of the output; or
there was nobody to make it."""

Results = tuple[int, Sequence[Any], list[Any]]
"""The place of a row, it and some that follow it, the result for each."""


class CallFailed(Exception):  # noqa: N818 - what happened to a call, for whoever runs the pool
    """A call failed for good: the first one in the order of the rows."""

    def __init__(self, index: int, row: Any, problem: BaseException) -> None:
        super().__init__(f"row {index}: {shown(problem)}")
        self.index = index
        self.row = row
        self.problem = problem


class FedRows(Sequence[Any]):
    """Rows of which more may come; those that were handed out are forgotten."""

    def __init__(self) -> None:
        self._rows: Sequence[Any] = ()
        self._first = 0
        self.is_over = False

    def feed(self, rows: Sequence[Any]) -> None:
        """More rows: those before have all been handed out."""
        self._first += len(self._rows)
        self._rows = rows

    def __len__(self) -> int:
        return self._first + len(self._rows)

    def __getitem__(self, which: Any) -> Any:
        return self._rows[which.start - self._first : which.stop - self._first]


class PoolRun:
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
        self._fed: FedRows | None = rows if isinstance(rows, FedRows) else None
        self._quiet_since = self._time.passing_s()  # nothing has ended since

    def end(self) -> None:
        """Whatever is under way counts no more."""
        self._pool.rest()
        if self._queued:
            self._crew.drop(self._done)

    def results(self) -> Generator[Results | None, None, None]:
        """What was made; None: rows that are fed have all been handed out, and more may come."""
        pool = self._pool
        while True:
            if pool._level == 0 and not self._open:
                yield from self._inline()
            self._hand_out()
            if not self._open:
                if self._failure is not None:
                    raise self._failure
                if self._at >= len(self._rows):
                    if not self._awaits_rows:
                        return
                    yield None
                continue
            if self._awaits_rows and self._at >= len(self._rows) and self._failure is None:
                pool.rest()
                yield None
                yield from self._took(self._ended_meanwhile())
            else:
                yield from self._took(self._wait())

    @property
    def _awaits_rows(self) -> bool:
        return self._fed is not None and not self._fed.is_over

    def _took(self, ended: list[Chunk]) -> Iterator[Results]:
        """What can be given on, now that these have ended."""
        pool = self._pool
        now = self._time.passing_s()
        if ended:
            self._quiet_since = now
        elif self._open and now - self._quiet_since > QUIET_S:
            self._quiet_since = now
            _log.warning(
                "no call of the elastic operator %s has ended for %g s; %s",
                pool.name,
                QUIET_S,
                "without timeout=… a call that blocks for ever holds up its epoch for ever"
                if self._settings.timeout_s is None
                else f"each is given up after {self._settings.timeout_s:g} s",
            )
        for chunk in ended:
            finished = self._take(chunk, now)
            if finished is not None and not self._ordered and self._failure is None:
                self._open.remove(finished)
                yield finished.first, finished.rows, finished.results
        self._make_again(now)
        self._give_up_overdue(now)
        self._crew.give_up_left()
        if self._failure is not None:
            while self._open and self._open[-1].first > self._failure.index:  # nothing behind it matters
                self._open.pop()
        while self._open and (self._ordered or self._failure is not None) and self._is_settled(self._open[0]):
            chunk = self._open.popleft()
            good = chunk.results if self._failure is None else chunk.results[: self._failure.index - chunk.first]
            if good:
                yield chunk.first, chunk.rows, good
        pool._evaluate(now)

    # -- inline ---------------------------------------------------------------------------------------------

    def _inline(self) -> Iterator[Results]:
        """Calls on this thread, while the level is 0."""
        pool = self._pool
        while pool._level == 0 and self._at < len(self._rows) and self._failure is None:
            stop = min(len(self._rows), self._at + pool._chunk_rows)
            # Mostly, where calls are short: then there is nothing to copy.
            is_all = stop - self._at == len(self._rows) and self._fed is None
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
                    yield chunk.first, chunk.rows, good
                return
            pool._ended(chunk, now)
            yield chunk.first, chunk.rows, chunk.results
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
            self._failure = CallFailed(chunk.first + place, chunk.rows[place], result.problem)

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

    def _ended_meanwhile(self) -> list[Chunk]:
        """Chunks that ended while whoever feeds was away."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._done.get_nowait())
        return found

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
        elif self._keeps_failures and not isinstance(problem, OpenFailed):
            return
        elif self._failure is None or index < self._failure.index:
            self._failure = CallFailed(index, row, problem)

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
                if chunk.whole is None and chunk in self._open:  # who waits for it waits for what stands in for it
                    self._open[self._open.index(chunk)] = stand_in
                self._take(stand_in, now)
            elif self._crew.is_blocked:
                raise CallFailed(chunk.first, chunk.rows[0], LoopBlocked(timeout))
        most = 2 * (self._settings.max_workers or self._pool._level) + 16
        if self._crew.hanging > most:
            first = self._open[0] if self._open else next(iter(self._running))
            raise CallFailed(first.first, first.rows[0], _too_many_hang(self._crew.hanging, timeout))


def _too_many_hang(count: int, timeout: float) -> Exception:
    return RuntimeError(
        f"{count} calls did not return within timeout={timeout:g} seconds, nor later: threads cannot be stopped, so no "
        "more are started. Give the function a timeout of its own, or use workers='processes', which can be stopped"
    )
