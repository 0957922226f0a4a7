"""What stands ready at the sources: files that arrive over time, and how epochs take them.

    load curve ─► files ─► ready ─► an epoch takes all of them, or so many (maxFilesPerTrigger, or our own limit)

Which files form a micro-batch is decided before the epoch runs and kept, as Spark's log of offsets does: an epoch that
runs again has the same files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch.sim.virtual_time import START_S


@dataclass(frozen=True)
class InputFile:
    """A file of a source."""

    source: str
    number: int
    at_s: float
    """When it was complete, since the world began."""
    rows: int
    content: Sequence[Any] = ()
    """Its rows; empty where no tuples are run."""

    @property
    def written_ms(self) -> int:
        """Its time, as file systems tell it."""
        return int((START_S + self.at_s) * 1000)


class FileSource:
    """The files of one source, in the order in which they arrive."""

    def __init__(self, name: str, arriving: Iterator[InputFile]) -> None:
        self.name = name
        self._arriving = arriving
        self._ready: list[InputFile] = []
        self._next: InputFile | None = next(arriving, None)

    def arrive(self, until_s: float, most: int | None = None) -> None:
        """Let files arrive; of an endless source no more than so many stand ready."""
        while self._next is not None and self._next.at_s <= until_s and (most is None or len(self._ready) < most):
            self._ready.append(self._next)
            self._next = next(self._arriving, None)

    @property
    def next_s(self) -> float:
        """When the next file is there; infinity if none is to come."""
        if self._ready:
            return self._ready[0].at_s
        return math.inf if self._next is None else self._next.at_s

    @property
    def ready_rows(self) -> int:
        return sum(file.rows for file in self._ready)

    def take(self, most: int | None) -> list[InputFile]:
        """Files for an epoch, the oldest first."""
        count = len(self._ready) if most is None else most
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken


_READY_MAX = 100_000
"""Files of a source that always has more: more than any epoch takes."""


class Inputs:
    """All sources, and the micro-batches made of them. Is what `EpochSizing` asks about files, too."""

    def __init__(self, sources: Sequence[FileSource], files_per_epoch: int | None) -> None:
        self._sources = {source.name: source for source in sources}
        self._limits: dict[str, int] = dict.fromkeys(self._sources, files_per_epoch) if files_per_epoch else {}
        self.batches: list[dict[str, list[InputFile]]] = []

    @property
    def names(self) -> list[str]:
        return list(self._sources)

    def next_s(self) -> float:
        """When something is there to take."""
        return min((source.next_s for source in self._sources.values()), default=math.inf)

    def form_batch(self, at_s: float) -> bool:
        """Take what is ready as the next micro-batch; whether there was anything."""
        for name, source in self._sources.items():
            source.arrive(at_s, (self._limits[name] + 1) if name in self._limits else _READY_MAX)
        taken = {name: source.take(self._limits.get(name)) for name, source in self._sources.items()}
        if not any(taken.values()):
            return False
        self.batches.append(taken)
        return True

    def backlog_rows(self, at_s: float, most: int) -> int:
        """Rows that stand ready; of an endless source, no more than so many files of it are counted."""
        for source in self._sources.values():
            source.arrive(at_s, most)
        return sum(source.ready_rows for source in self._sources.values())

    # -- as `EpochSizing` sees it: the limits of a running query -----------------------------------------------

    def taken(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many files of each source the epoch that runs has; the newest one's time."""
        batch = self.batches[-1]
        newest = {name: max(file.written_ms for file in files) for name, files in batch.items() if files}
        return {name: len(files) for name, files in batch.items()}, newest

    def replace(self, limits: Mapping[str, int]) -> None:
        """Have the next epoch take so many files at most."""
        self._limits = dict(limits)
