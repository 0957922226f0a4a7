"""What moves through a stage: flows between its steps, what arrives at its entry, what leaves it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from anabranch.compiler.layout.stages import Edge
from anabranch.engine.worker.advances import Advances
from anabranch.engine.worker.batch import Batch
from anabranch.engine.worker.trails import Trails


@dataclasses.dataclass
class Flow:
    """Tuples on their way through a stage: their positions point into the trails. And the punctuations, and advances.

    While tuples are timed, `origins` says for each place of the trails which of the tuples that entered it comes from.
    """

    batch: Batch
    trails: Trails
    marks: Trails | None = None
    origins: np.ndarray | None = None
    advances: tuple[Advances, ...] = ()

    def part(self, start: int, stop: int) -> Flow:
        """Some of the tuples, without what stands between them."""
        batch = self.batch.part(start, stop)
        trails = [digit[start:stop] for digit in self.trails] if batch.are_numbered else self.trails
        return Flow(batch, trails)

    def timed(self) -> Flow:
        """The same, with origins."""
        origins = np.zeros(len(self.trails[0]), dtype=np.int64)
        origins[self.batch.position_array] = np.arange(len(self.batch))
        return dataclasses.replace(self, origins=origins)


@dataclasses.dataclass
class Arrival:
    """What enters a stage: the tuples of each input, with positions in the order of all, and punctuations there."""

    batches: Mapping[int, Batch]  # by the place of the input
    trails: Trails
    marks: np.ndarray  # positions
    tick: int | None = None  # the position of the start of the epoch, if something waits for it
    advances: Sequence[tuple[int, str, int]] = ()  # of watermarks: position, name, value

    def advances_by_name(self) -> Iterator[Advances]:
        """The advances with their trails."""
        for name in dict.fromkeys(name for _, name, _ in self.advances):
            mine = [(position, value) for position, each, value in self.advances if each == name]
            positions, values = np.array(mine, dtype=np.int64).T
            yield Advances(name, [digit[positions] for digit in self.trails], values)


@dataclasses.dataclass
class Leaving:
    """What leaves a stage by an edge."""

    edge: Edge
    trails: Trails
    columns: list[pa.Array]
    marks: Trails | None
    advances: tuple[Advances, ...] = ()


def by_range(leaving: Leaving, total: int, count: int) -> Iterator[tuple[int, Leaving]]:
    """What leaves, cut into ranges of positions: (range, what is in it)."""
    # What one channel emits is in order, so the ranges are slices.
    limits = [total * at // count for at in range(1, count)]
    cuts = [0, *np.searchsorted(leaving.trails[0], limits).tolist(), len(leaving.trails[0])]
    for at in range(count):
        start, stop = cuts[at], cuts[at + 1]
        if start < stop:
            trails = [digit[start:stop] for digit in leaving.trails]
            columns = [column.slice(start, stop - start) for column in leaving.columns]
            yield at, dataclasses.replace(leaving, trails=trails, columns=columns, marks=None, advances=())
