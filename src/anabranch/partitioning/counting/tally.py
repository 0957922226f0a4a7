"""What a task counts of the keys it routes, cheaply enough to do it always.

    every row       rows per key group: a shift and a count, so the load of every channel's tail is known exactly
    some 4,000      counted by key, which takes a sort: whatever the number of rows, well below a millisecond

The sample is thinned as rows come: it begins with every row, and whenever it is full one row of each two in it
stays and new rows are taken half as often. Which row of a stretch is taken is a seeded draw and not a fixed
stride: keys that come round in a fixed order would fool a stride. One row of every stretch varies no more than a
plain random sample, so with m sampled rows the share f of a key is off by √(f (1 - f) / m), one standard deviation.

A report holds the 2,048 most frequent keys. A key left out has at most the 2,048th part of the sample, so every
key with a greater share of a task's sample is reported by it. The driver turns counts into rows, adds them up over
tasks and forgets rare keys by lossy counting (lossy_counter.py), over a sliding window (sliding_counter.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anabranch.partitioning.counting.lossy_counter import LossyCounter
from anabranch.program.hashing import GROUP_COUNT, key_groups

EPSILON = 1 / 4096
"""Of the driver's lossy counting."""
SAMPLE_MAX = 4096
KEYS_MAX = 2048
_DRAWS = 4096


@dataclass(frozen=True)
class TallyReport:
    """What a tally counted, as it travels: columns as bytes, little-endian."""

    rows: int
    sampled: int
    groups: bytes
    """Rows of every key group, 32 bits each."""
    hashes: bytes
    """Of the keys of the sample, 64 bits each, ascending."""
    appearances: bytes
    """How often each is in the sample, 32 bits each."""


class Tally:
    """Counts the keys that one task sends to one region.

    Parameters
    ----------
    seed
        Chooses the sample; tasks and epochs should differ in it.
    """

    def __init__(self, seed: int, *, sample_max: int = SAMPLE_MAX) -> None:
        self._sample_max = sample_max
        self._draws = np.random.default_rng(seed).integers(0, 1 << 30, _DRAWS)
        self._groups = np.zeros(GROUP_COUNT, dtype=np.int64)
        self._rows = 0
        self._stride = 1
        self._origin = 0  # the row with which the stretches of the current length begin
        self._sample: list[NDArray[np.uint64]] = []
        self._sampled = 0

    def add(self, hashes: NDArray[np.uint64]) -> None:
        """Count one row for every hash given."""
        self._groups += np.bincount(key_groups(hashes), minlength=len(self._groups))
        while len(hashes):
            # No further than the sample has room: a long batch must not cost more than several short ones.
            room = max(1, self._sample_max - self._sampled) * self._stride
            now, hashes = hashes[:room], hashes[room:]
            chosen = now[self._chosen(len(now))]
            self._sample.append(chosen)
            self._sampled += len(chosen)
            self._rows += len(now)
            if self._sampled >= self._sample_max:
                self._thin()

    def _chosen(self, rows: int) -> NDArray[np.int64]:
        """Which of the next rows are sampled: one of every stretch, stretches going on from batch to batch."""
        first, stride = self._rows - self._origin, self._stride
        stretches = np.arange(first // stride, (first + rows - 1) // stride + 1)
        places = stretches * stride + self._draws[stretches % _DRAWS] % stride - first
        return places[(places >= 0) & (places < rows)]

    def _thin(self) -> None:
        sample = np.concatenate(self._sample)
        pairs = np.arange(len(sample) // 2)
        self._sample = [sample[2 * pairs + self._draws[pairs % _DRAWS] % 2]]
        self._sampled = len(pairs)
        self._stride *= 2
        self._origin = self._rows

    def to_report(self) -> TallyReport:
        """What was counted, small enough to travel with the task's report."""
        sample = np.concatenate([np.empty(0, dtype=np.uint64), *self._sample])
        hashes, appearances = np.unique(sample, return_counts=True)
        if len(hashes) > KEYS_MAX:
            # Ties by hash, so that the same rows make the same report.
            kept = np.sort(np.argsort(-appearances, kind="stable")[:KEYS_MAX])
            hashes, appearances = hashes[kept], appearances[kept]
        return TallyReport(
            self._rows,
            self._sampled,
            self._groups.astype("<u4").tobytes(),
            hashes.astype("<u8").tobytes(),
            appearances.astype("<u4").tobytes(),
        )


@dataclass(frozen=True, eq=False)
class Counted:
    """What a task counted, as the driver reads it."""

    rows: int
    sampled: int
    groups: NDArray[np.int64]
    """Rows of every key group."""
    counter: LossyCounter
    """The keys of the sample, counted in rows."""

    @staticmethod
    def of_report(report: TallyReport) -> Counted:
        """Read what `Tally.to_report` wrote."""
        rows, sampled = report.rows, report.sampled
        hashes = np.frombuffer(report.hashes, dtype="<u8").astype(np.uint64)
        appearances = np.frombuffer(report.appearances, dtype="<u4")
        in_rows = np.rint(appearances * (rows / max(sampled, 1))).astype(np.int64)
        counter = LossyCounter.of_items(EPSILON, hashes, in_rows, np.zeros(len(hashes), dtype=np.int64), rows)
        return Counted(rows, sampled, np.frombuffer(report.groups, dtype="<u4").astype(np.int64), counter)
