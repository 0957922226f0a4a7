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
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

from anabranch.engine.pool.level_controller import LevelController, SharingController
from anabranch.engine.pool.metering import Latencies, Meter
from anabranch.engine.pool.neighbours import Neighbours
from anabranch.engine.pool.pool_run import FedRows, PoolRun, Results
from anabranch.engine.pool.pool_time import MACHINE_TIME, PoolTime
from anabranch.engine.pool.work import Chunk, Crew
from anabranch.program.elastic import Concurrency

WINDOW = 4096
"""Rows between the oldest call that has not ended and the newest that was handed out."""
_CHUNK_S = 0.0005
"""A chunk handed to a worker takes about so long, if calls are shorter than that."""
_INLINE_SHARE = 0.02
"""Of a period, the same where calls are made inline: after each chunk somebody looks at the clock."""
_CHUNK_MAX = 512
_INLINE_MAX = 1 << 16
_DRAIN_PERIODS = 4
"""How long calls of another level are waited for, before a period of the new one begins."""
_LOOK_SHARE = 0.25
"""Of a period that is enough for a look at a level, where calls are short."""


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
            run = PoolRun(self, rows, ordered, keeps_failures)
            try:
                for made in run.results():
                    if made is not None:
                        yield made[0], made[2]
            finally:
                run.end()

    def feeding(self, *, keeps_failures: bool = False) -> Feeding:
        """A run whose rows come some at a time, and whose results leave as they come."""
        return Feeding(self, keeps_failures)

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


class Feeding:
    """Rows that are fed to a pool, some at a time; the pool is free for others while nobody feeds it."""

    def __init__(self, pool: Pool, keeps_failures: bool) -> None:
        self._pool = pool
        self._rows = FedRows()
        self._run = PoolRun(pool, self._rows, ordered=False, keeps_failures=keeps_failures)
        self._results = self._run.results()

    def feed(self, rows: Sequence[Any]) -> list[Results]:
        """Hand out rows; what has ended by then, of these and of those before. CallFailed if a call failed for good."""
        self._rows.feed(rows)
        return self._made()

    def finish(self) -> list[Results]:
        """No more rows come: what is still under way."""
        self._rows.is_over = True
        return self._made()

    def close(self) -> None:
        """Whatever is under way counts no more."""
        self._results.close()
        self._run.end()

    def _made(self) -> list[Results]:
        found: list[Results] = []
        with self._pool._in_use:
            try:
                for made in self._results:
                    if made is None:
                        break
                    found.append(made)
            except BaseException:
                self._run.end()
                raise
            self._run.rest()
        return found
