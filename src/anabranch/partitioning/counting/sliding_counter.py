"""Frequencies of recent rows: a sliding window made of x lossy counters over tumbling windows.

All x counters count all rows, but they start one step of W / (x - 1) rows apart, and each starts again from
nothing after W rows of building and one step of use. The oldest is the one in use (█), so the answer always
covers between W and (1 + 1/(x - 1)) W rows. With x = 3:

    counter 0   ░░░░░░░░████░░░░░░░░████
    counter 1       ░░░░░░░░████░░░░░░░░████
    counter 2           ░░░░░░░░████░░░░░░░░
                |   W   |W/2|

Before the first W rows have come, the oldest counter has seen all there is, which is less than W.

A step is rounded up to whole windows of the lossy counters, so the x counters close their windows on the
same rows, and each window is sorted once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.counting.lossy_counter import LossyCounter, WaitingRows, window_rows


class SlidingCounter:
    """Counts keys over about the last `rows` rows.

    Parameters
    ----------
    epsilon
        Error of the lossy counters.
    rows
        W: how many rows, at least, an answer covers once so many have come.
    counters
        x: how many tumbling counters, at least 2. More follow change closer, and cost more.
    """

    def __init__(self, epsilon: float, rows: int, counters: int = 3) -> None:
        if counters < 2:
            raise ValueError(f"a sliding window needs at least 2 tumbling counters, found {counters}")
        if rows < 1:
            raise ValueError(f"a sliding window covers at least 1 row, found {rows}")
        self.epsilon = epsilon
        window = window_rows(epsilon)
        self.step_rows = -(-rows // ((counters - 1) * window)) * window
        self._counters_max = counters
        self._window_rows = window
        self._waiting = WaitingRows()
        self._step_rows_done = 0
        self._counters = [LossyCounter(epsilon)]  # oldest first; the newest joins at the next step

    @property
    def rows(self) -> int:
        """How many rows the current answer covers."""
        return self._counters[0].rows + self._waiting.rows

    @property
    def size(self) -> int:
        """How many counters are kept in all."""
        return sum(counter.size for counter in self._counters)

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Count one row for every hash given."""
        self._waiting.append(hashes)
        while self._waiting.rows >= self._window_rows:
            window = self._waiting.take(self._window_rows)
            distinct, counts = np.unique(window, return_counts=True)
            for counter in self._counters:
                counter.add_counts(distinct, counts)
            self._advance(self._window_rows)

    def absorb(self, counters: Iterable[LossyCounter]) -> None:
        """Count the rows of other counters, such as those of one epoch's splitters.

        A step then ends with the first epoch that fills it, so an answer can cover one epoch more than the
        usual upper end. Use `add` or `absorb` on one sliding window, not both.
        """
        if self._waiting.rows:
            raise ValueError("this sliding window counts rows by add(); it cannot absorb() counters as well")
        epoch = LossyCounter.added_up(counters)
        self._counters = [LossyCounter.added_up([counter, epoch]) for counter in self._counters]
        self._advance(epoch.rows)

    def _advance(self, rows: int) -> None:
        self._step_rows_done += rows
        if self._step_rows_done >= self.step_rows:
            self._step_rows_done = 0
            self._counters.append(LossyCounter(self.epsilon))
            self._counters = self._counters[-self._counters_max :]

    def current(self) -> LossyCounter:
        """The counter in use, with the rows of the open window; a copy, to add up or to ask."""
        counter = LossyCounter.added_up([self._counters[0]])
        waiting = self._waiting.take(self._waiting.rows)
        counter.add(waiting)
        self._waiting.append(waiting)
        return counter
