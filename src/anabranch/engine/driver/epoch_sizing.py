"""The size of epochs, adapted: what an epoch took of our files goes to the controller, its answer to Spark.

    start of an epoch    how many files has it?  did the one before leave some behind?    ─► how long rows stood ready
    end of an epoch      control/epoch_size ─► limits of the next epoch                   ─► Spark (read_limits)

**Files of the same time are never cut apart.** The order of files is that of their times, then of their paths, and
inside an epoch it is. Spark cuts epochs from a list in the order of times only; files of the same millisecond stand
there as the file system lists them, on a local disk in any order. If an epoch ended among them, the order of the
output would follow from where it ended, and that from how fast the machine is. So of the files that are there when
the query starts all of the same time go into the same epoch. Later ones are in the order in which they were found, as
without a limit. Other file systems list by name, and need none of it.

**The first epochs**, of which nothing is known but how large the files are, take as much as two slots would likely read
in the time: BYTES_PER_SLOT_S. That errs by the cost of a program, but not by a hundred where files are large.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from anabranch.control.epoch_size import EpochSize, TakenEpoch
from anabranch.engine.driver.epoch_progress import FileProgress
from anabranch.engine.reports import SplitReport
from anabranch.state.adaptation_facts import SizingFacts

if TYPE_CHECKING:
    from anabranch.engine.driver.adaptation import EpochFacts

_log = logging.getLogger("anabranch")

BEGINNING_FILES = 16
BYTES_PER_SLOT_S = 4 * 2**20  # a row of 100 bytes in 25 µs: an ordinary program in Python


@dataclasses.dataclass(frozen=True)
class TakenFiles:
    """What an epoch has of the sources whose limits are ours.

    Attributes
    ----------
    files, limits : mapping
        Source → how many files it has, and how many it might have; both empty if that is not known.
    left_before : bool
        The epoch before may have left files behind.
    left : bool
        This one may.
    """

    files: Mapping[str, int] = dataclasses.field(default_factory=dict)
    limits: Mapping[str, int] = dataclasses.field(default_factory=dict)
    left_before: bool = False
    left: bool = False


class ReadLimits(Protocol):
    """How many files each source of a running query gives an epoch."""

    def taken(self) -> tuple[dict[str, int], dict[str, int]]:
        """How many files of each source the epoch that runs has; the newest one's time, in milliseconds."""

    def replace(self, limits: Mapping[str, int]) -> None:
        """Have the next epoch take so many files at most."""


class EpochSizing:
    """The limits of a query's file sources, from its start on.

    Parameters
    ----------
    directories : mapping
        Source whose limit is ours → its local directory, or None if its files are listed by name.
    target_s : float
        How long an epoch should last.
    slots : int
        How many tasks run at once.
    facts : SizingFacts, optional
        What `to_facts` of an earlier driver gave.
    """

    def __init__(
        self, directories: Mapping[str, str | None], target_s: float, slots: int, facts: SizingFacts | None = None
    ) -> None:
        found = {source: local_files(path) for source, path in directories.items() if path is not None}
        self._size = EpochSize(
            list(directories),
            target_s,
            max(BEGINNING_FILES, slots),
            {source: beginning(files, target_s * slots * BYTES_PER_SLOT_S) for source, files in found.items()},
        )
        remembered = facts if facts is not None else SizingFacts()
        self._size.restore(remembered.size)
        self._newest = dict(remembered.newest_ms)
        self._times = {source: [time_ms for time_ms, _ in files] for source, files in found.items()}
        self._read_limits: ReadLimits | None = None
        self._left = False
        self._counted = 0
        self.reason = ""
        self.limits = self._whole(self._size.limits)

    def begin(self, read_limits: ReadLimits) -> None:
        """The query is about to run, with `limits`: from now on they are looked up and replaced there."""
        self._read_limits = read_limits

    @property
    def adapts(self) -> bool:
        """Whether limits can still be replaced."""
        return self._read_limits is not None

    def at_start(self) -> TakenFiles:
        """Asked at the start of every epoch that reads."""
        if not self.limits:
            return TakenFiles()
        before = self._left
        files: dict[str, int] = {}
        if self._read_limits is not None:
            try:
                files, newest = self._read_limits.taken()
                self._newest.update(newest)
            except Exception as problem:
                self._give_up(problem)
        # Not known: it is a source with a limit, and rows may stand ready.
        self._left = not files or any(files[source] >= limit for source, limit in self.limits.items())
        return TakenFiles(files, dict(self.limits), before, self._left)

    def after(self, facts: EpochFacts, overhead_s: float) -> bool:
        """Replace the limits after an epoch; whether it was cut short by one that is still on its way up."""
        rows: dict[str, int] = {}
        for report in facts.reports:
            if isinstance(report, SplitReport):
                for source, count in report.sources.items():
                    rows[source] = rows.get(source, 0) + count
        taken = facts.taken_files
        if self._read_limits is None or taken is None or not taken.files:
            return False
        self._counted += 1
        cut_short = False
        if self._counted > 1:  # the first epoch of a driver starts workers and compiles: no measure of any size
            ours = {source: rows.get(source, 0) for source in taken.limits}
            decision = self._size.handle(
                TakenEpoch(
                    facts.durations_s.total + facts.bookkeeping_s,
                    overhead_s,
                    taken.files,
                    ours,
                    taken.limits,
                    sum(rows.values()) - sum(ours.values()),
                )
            )
            cut_short, self.reason = decision.cut_short, decision.reason
        wanted = self._whole(self._size.limits)
        if wanted != self.limits:
            try:
                self._read_limits.replace(wanted)
                self.limits = wanted
            except Exception as problem:
                self._give_up(problem)
        return cut_short and self.adapts

    def changed(self) -> None:
        """Regions have other channels from now on."""
        self._size.changed()

    def _give_up(self, problem: Exception) -> None:
        self._read_limits = None
        self.reason = f"fixed: the limits of the running query cannot be replaced: {problem}"
        _log.warning("epochSize: %s; epochs go on with at most %s files", self.reason, self.limits)

    def _whole(self, limits: Mapping[str, int]) -> dict[str, int]:
        return {
            source: whole(self._times[source], self._newest.get(source), files) if source in self._times else files
            for source, files in limits.items()
        }

    def shown(self, taken: TakenFiles | None) -> dict[str, FileProgress]:
        """For the progress: files taken of each source, files it might have taken, and the next epoch may."""
        if taken is None:
            return {}
        return {
            source: FileProgress(taken.files.get(source), limit, self.limits[source])
            for source, limit in taken.limits.items()
        }

    def to_facts(self) -> SizingFacts:
        """What a restarted driver needs to go on."""
        return SizingFacts(self._size.memory(), dict(self._newest))


def local_files(directory: str) -> list[tuple[int, int]]:
    """Times, in ms, and sizes of the files in a directory and below, sorted; hidden ones left out, as Spark does."""
    found: list[tuple[int, int]] = []
    for place, names, files in os.walk(directory):
        names[:] = [name for name in names if "=" in name]  # partitions; Spark leaves out other directories
        for name in files:
            if not name.startswith((".", "_")) or "=" in name:
                try:
                    held = os.stat(os.path.join(place, name))
                    found.append((held.st_mtime_ns // 1_000_000, held.st_size))
                except OSError:  # gone meanwhile
                    continue
    return sorted(found)


def beginning(files: Sequence[tuple[int, int]], budget: float) -> int:
    """How many of the first files an epoch takes before anything is known of them but their sizes, in bytes."""
    totals = list(itertools.accumulate(size for _, size in files[:BEGINNING_FILES]))
    within = sum(total <= budget for total in totals)
    return max(1, within) if within < len(totals) else BEGINNING_FILES


def whole(times_ms: Sequence[int], newest_ms: int | None, limit: int) -> int:
    """A limit near the given one that ends between two files of different times.

    Parameters
    ----------
    times_ms
        Of the files that were there at the start, sorted.
    newest_ms
        The newest that was taken: those after it are next. None: nothing was taken.
    limit
        As wanted.
    """
    first = 0 if newest_ms is None else bisect.bisect_right(times_ms, newest_ms)
    cut = first + limit
    if cut >= len(times_ms) or times_ms[cut - 1] != times_ms[cut]:
        return limit
    before = bisect.bisect_left(times_ms, times_ms[cut]) - first
    after = bisect.bisect_right(times_ms, times_ms[cut]) - first
    # Rather a little less; but an epoch takes something, and half of a size would be another size.
    return before if before >= (limit + 1) // 2 else after
