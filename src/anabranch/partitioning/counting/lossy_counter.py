"""Lossy counting: which keys are frequent, in a space that does not grow with the number of keys.

After Manku and Motwani (VLDB 2002), as the *Partitioning* paper uses it. Rows come in windows of
w = ⌈1/ε⌉. A key that is not counted yet enters during window i with an appearance count of 1 and an error
count of i - 1: it may have been dropped before, at most i - 1 times. At the end of window i, keys with
appearances + errors ≤ i are dropped. After n rows, with a key's true count c:

    counted      appearances ≤ c ≤ appearances + errors,   errors ≤ εn
    not counted  c ≤ εn

so for δ > ε every key with c ≥ δn is counted and has appearances ≥ (δ - ε)n.

Inside a window the order of rows does not matter, so a window is counted in one stroke: sort it, add it
into the sorted counters, drop. Rows wait until their window is full; a row costs O(1) amortised whatever
the size of the batches it comes in.

Counters of several splitters are added up: appearances add up, and a key that one of them does not count is in
error there by at most that counter's number of closed windows. The sum of these is ≤ ε times the sum of the
rows, so the guarantees hold for the sum, which can be counted on with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Counts = NDArray[np.int64]


class LossyCounter:
    """Counts keys (by their 64-bit hash), forgetting rare ones.

    Parameters
    ----------
    epsilon
        The share of the rows by which a count may be too low, in (0, 1].

    Examples
    --------
    >>> counter = LossyCounter(epsilon=0.01)
    >>> counter.add(np.array([7] * 60 + list(range(100, 140)), dtype=np.uint64))
    >>> hashes, appearances = counter.frequent(delta=0.5)
    >>> hashes.tolist(), appearances.tolist(), counter.rows
    ([7], [60], 100)
    """

    def __init__(self, epsilon: float) -> None:
        if not 0 < epsilon <= 1:
            raise ValueError(f"epsilon lies in (0, 1], found {epsilon}")
        self.epsilon = epsilon
        self.window_rows = window_rows(epsilon)
        self._hashes: Hashes = np.empty(0, dtype=np.uint64)
        self._appearances: Counts = np.empty(0, dtype=np.int64)
        self._errors: Counts = np.empty(0, dtype=np.int64)
        self._closed_windows = 0
        self._open_rows = 0
        self._waiting = WaitingRows()

    @property
    def rows(self) -> int:
        """How many rows were counted."""
        return self._closed_windows * self.window_rows + self._open_rows + self._waiting.rows

    @property
    def size(self) -> int:
        """How many keys are counted now."""
        self._settle()
        return len(self._hashes)

    def add(self, hashes: Hashes) -> None:
        """Count one row for every hash given."""
        self._waiting.append(hashes)
        while self._open_rows + self._waiting.rows >= self.window_rows:
            rows = self._waiting.take(self.window_rows - self._open_rows)
            self._count(*np.unique(rows, return_counts=True))

    def add_counts(self, hashes: Hashes, counts: Counts) -> None:
        """Count rows that are counted already: distinct ascending hashes, and how often each occurs.

        The rows must not reach beyond the end of the open window: `LossyCounter.add` and `SlidingCounter`
        cut at the ends of windows. Rows waiting from earlier calls of `add` are counted first.
        """
        self._settle()
        rows = int(counts.sum())
        if self._open_rows + rows > self.window_rows:
            raise ValueError(
                f"{rows} rows do not fit in the open window, which has "
                f"{self.window_rows - self._open_rows} of {self.window_rows} left"
            )
        self._count(hashes, counts)

    def items(self) -> tuple[Hashes, Counts, Counts]:
        """The hashes counted now (ascending), their appearances and their errors."""
        self._settle()
        return self._hashes.copy(), self._appearances.copy(), self._errors.copy()

    def frequent(self, delta: float) -> tuple[Hashes, Counts]:
        """The keys with at least (δ - ε) × rows appearances, most frequent first.

        Contains every key whose share of the rows is at least δ, and no key below δ - ε.
        """
        self._settle()
        chosen = np.flatnonzero(self._appearances >= (delta - self.epsilon) * self.rows)
        # Ties by hash: the answer must not depend on how rows were cut into batches.
        order = chosen[np.argsort(-self._appearances[chosen], kind="stable")]
        return self._hashes[order], self._appearances[order]

    @staticmethod
    def of_items(epsilon: float, hashes: Hashes, appearances: Counts, errors: Counts, rows: int) -> LossyCounter:
        """A counter as `items` and `rows` described it: ascending hashes, with their counts."""
        counter = LossyCounter(epsilon)
        counter._hashes, counter._appearances, counter._errors = hashes, appearances, errors
        counter._closed_windows, counter._open_rows = divmod(rows, counter.window_rows)
        return counter

    @staticmethod
    def added_up(counters: Iterable[LossyCounter]) -> LossyCounter:
        """One counter over the rows of several; they stay as they are.

        Raises ValueError for counters of different ε, and for none at all.
        """
        counters = list(counters)
        if not counters:
            raise ValueError("added_up() needs at least one counter, found none")
        epsilons = {counter.epsilon for counter in counters}
        if len(epsilons) > 1:
            raise ValueError(f"only counters with the same epsilon add up, found {sorted(epsilons)}")
        parts = [counter.items() for counter in counters]
        result = LossyCounter(counters[0].epsilon)
        hashes = np.unique(np.concatenate([part[0] for part in parts]))
        appearances = np.zeros(len(hashes), dtype=np.int64)
        # Start from "dropped everywhere", and put right where a counter knows the key.
        errors = np.full(len(hashes), sum(c._closed_windows for c in counters), dtype=np.int64)
        for counter, (part_hashes, part_appearances, part_errors) in zip(counters, parts, strict=True):
            at = np.searchsorted(hashes, part_hashes)
            appearances[at] += part_appearances
            errors[at] += part_errors - counter._closed_windows
        result._hashes, result._appearances, result._errors = hashes, appearances, errors
        rows = sum(counter.rows for counter in counters)
        result._closed_windows, result._open_rows = divmod(rows, result.window_rows)
        result._drop()
        return result

    def _settle(self) -> None:
        """Count the waiting rows into the open window; they are too few to close it."""
        if self._waiting.rows:
            self._count(*np.unique(self._waiting.take(self._waiting.rows), return_counts=True))

    def _count(self, hashes: Hashes, counts: Counts) -> None:
        self._add_in(hashes, counts)
        self._open_rows += int(counts.sum())
        if self._open_rows == self.window_rows:
            self._closed_windows += 1
            self._open_rows = 0
            self._drop()

    def _add_in(self, hashes: Hashes, counts: Counts) -> None:
        at = np.searchsorted(self._hashes, hashes)
        known = np.zeros(len(hashes), dtype=bool)
        inside = at < len(self._hashes)
        known[inside] = self._hashes[at[inside]] == hashes[inside]
        self._appearances[at[known]] += counts[known]
        fresh = ~known
        at = at[fresh]
        self._hashes = np.insert(self._hashes, at, hashes[fresh])
        self._appearances = np.insert(self._appearances, at, counts[fresh])
        self._errors = np.insert(self._errors, at, self._closed_windows)

    def _drop(self) -> None:
        kept = self._appearances + self._errors > self._closed_windows
        self._hashes = self._hashes[kept]
        self._appearances = self._appearances[kept]
        self._errors = self._errors[kept]


class WaitingRows:
    """Rows in the order they came, to be taken in pieces of another size."""

    def __init__(self) -> None:
        self._pieces: list[Hashes] = []
        self.rows = 0

    def append(self, hashes: Hashes) -> None:
        """Add rows at the end. They are copied: the caller may reuse its buffer."""
        if len(hashes):
            self._pieces.append(np.array(hashes, dtype=np.uint64))
            self.rows += len(hashes)

    def take(self, rows: int) -> Hashes:
        """Remove and return that many rows from the front."""
        taken: list[Hashes] = []
        missing = rows
        used = 0
        for piece in self._pieces:
            if missing < len(piece):
                break
            taken.append(piece)
            missing -= len(piece)
            used += 1
        self._pieces = self._pieces[used:]
        if missing:
            taken.append(self._pieces[0][:missing])
            self._pieces[0] = self._pieces[0][missing:]
        self.rows -= rows
        return taken[0] if len(taken) == 1 else np.concatenate([np.empty(0, dtype=np.uint64), *taken])


def window_rows(epsilon: float) -> int:
    """The window ⌈1/ε⌉; rounded up, so that n / w closed windows never exceed εn."""
    return math.ceil(1 / epsilon)
