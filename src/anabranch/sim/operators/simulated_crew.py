"""The workers of a pool on a simulated machine.

Handing over has a price: the dispatch thread receives a row (`reception_s`, on the machine), and the queue is one for
all, so that whoever takes or puts waits for the others (`queue_s`, longer the more workers crowd around it).
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from anabranch.engine.pool.work import Chunk, run_chunk
from anabranch.sim.operators.machines import Machine
from anabranch.sim.operators.simulated_time import SimulatedTime


class SimulatedCrew:
    """Workers that take as long as they are told.

    Parameters
    ----------
    cost : callable
        How long the call for a row takes, in seconds of a machine that does nothing else.
    one : callable
        What the call gives, or raises.
    reception_s, queue_s : float
        What it takes to receive a row, and to put it in the queue or take it out.
    crowding : float
        How much longer the queue takes for each worker beyond the first, as a share.
    is_slow_to_hand_over : bool
        Rows are handed over one by one, as in *Operators*.
    """

    def __init__(
        self,
        time: SimulatedTime,
        machine: Machine,
        cost: Callable[[Any], float],
        one: Callable[[Any], Any],
        *,
        reception_s: float = 0.0,
        queue_s: float = 0.0,
        crowding: float = 0.0,
        is_slow_to_hand_over: bool = False,
    ) -> None:
        self._time, self._machine = time, machine
        self._cost, self._one = cost, one
        self._reception_s, self._queue_s, self._crowding = reception_s, queue_s, crowding
        self.is_slow_to_hand_over = is_slow_to_hand_over
        self.is_blocked = False
        self._work: deque[Chunk] = deque()
        self._in_hand: set[Chunk] = set()
        self._lost: set[Chunk] = set()
        self._level = 0
        self._queue_free = 0.0

    @property
    def busy(self) -> int:
        return len(self._in_hand)

    def give_up_left(self) -> None:
        """A simulated call always returns."""

    @property
    def hanging(self) -> int:
        return len(self._lost)

    def many(self, rows: Sequence[Any], results: list[Any]) -> None:
        """Make the calls for some rows where they are: the thread that receives them is the one that works."""
        for row in rows:
            seconds = self._cost(row) + self._reception_s
            self._time.block(lambda resume, seconds=seconds: self._machine.begin(seconds, resume))  # type: ignore[misc]
            results.append(self._one(row))

    def put(self, chunk: Chunk) -> None:
        self._receive(len(chunk.rows))
        self._work.append(chunk)
        self._fill()

    def put_first(self, chunk: Chunk) -> None:
        self._work.appendleft(chunk)
        self._fill()

    def set_level(self, level: int) -> None:
        self._level = level
        self._fill()

    def abandon(self, chunk: Chunk) -> bool:
        if chunk not in self._in_hand:
            return False
        chunk.abandoned = True
        self._in_hand.discard(chunk)
        self._lost.add(chunk)
        self._fill()
        return True

    def drop(self, done: queue.SimpleQueue[Chunk]) -> None:
        self._work = deque(chunk for chunk in self._work if chunk.done is not done)

    def close(self) -> None:
        self._work.clear()

    def _receive(self, rows: int) -> None:
        if self._reception_s:
            self._time.block(lambda resume: self._machine.begin(self._reception_s * rows, resume))
        if self._queue_s:
            self._time.block(lambda resume: self._time.after(self._turn_s(), resume))

    def _turn_s(self) -> float:
        """How long from now until the queue is ours, and done with."""
        now = self._time.passing_s()
        busy = self._queue_s * (1 + self._crowding * max(0, self._level - 1))
        self._queue_free = max(self._queue_free, now) + busy
        return self._queue_free - now

    def _fill(self) -> None:
        while self._work and len(self._in_hand) < self._level:
            chunk = self._work.popleft()
            chunk.taken = self._time.passing_s()
            self._in_hand.add(chunk)
            if self._queue_s:
                self._time.after(self._turn_s(), lambda chunk=chunk: self._begin(chunk))  # type: ignore[misc]
            else:
                self._begin(chunk)

    def _begin(self, chunk: Chunk) -> None:
        chunk.began = self._time.passing_s()
        self._machine.begin(sum(map(self._cost, chunk.rows)), lambda: self._end(chunk))

    def _end(self, chunk: Chunk) -> None:
        chunk.seconds = self._time.passing_s() - chunk.began
        if chunk in self._lost:  # given up: whatever it gives is dropped
            self._lost.discard(chunk)
            return
        self._in_hand.discard(chunk)
        run_chunk(chunk, lambda rows, results: results.extend(map(self._one, rows)))
        self._time.give_back(chunk)
        self._fill()
