"""Who writes which output: the driver what is small, tasks what is large; decided epoch by epoch.

    small                  tasks ─► driver: puts it in order, writes it               no further stage
    made where it is read  tasks write pieces of their source, which stand one after the other
    large, behind a shuffle   tasks ─► shuffle ─► mergers: a range of positions each, one file each
    without order          whoever makes the tuples writes them

What passes through the driver is in its memory several times over, and written by one process. So only little may: an
output is large if the epoch before had much of it, or if it is the first and its input is large. Where that was wrong,
a task that has more for the driver than it should stops (`OutputTooLarge`), and the epoch is run again with tasks that
write. The rows, and their order, are the same whoever writes; only how many files an epoch has is not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from anabranch.compiler.layout.stages import Layout
from anabranch.engine.driver.results import Results
from anabranch.engine.driver.sink import Sink
from anabranch.engine.worker.exchange import DriverShare
from anabranch.engine.worker.output_files import Target, in_pieces, unordered
from anabranch.engine.worker.output_mergers import mergeable

DRIVER_BYTES = 64 << 20
"""So much of what tasks could write passes through the driver at most, in an epoch."""
MERGED_BYTES = 32 << 20
"""An output with so many bytes is put in order by tasks; one that has half of it, or less, no longer is."""
PIECES_BYTES = 4 << 20
"""From so many bytes on, tasks that read an epoch's input write what they make of it."""
_SHARES_MIN = 16
"""Spark may read with more tasks than run at once: what passes the driver is shared among so many at least."""


@dataclasses.dataclass(frozen=True)
class Ways:
    """Who writes in an epoch; whatever is nowhere here, the driver."""

    direct: Mapping[int, Target]
    """Exits that whoever makes their tuples writes, in any order."""
    pieces: Mapping[int, Target]
    """Exits that whoever reads the source writes, if there is much to read."""
    pieces_from: int
    """How many bytes that is."""
    merged: Mapping[int, Target]
    mergers: int
    reader_bounds: DriverShare
    """Of those who read the sources."""
    bounds: DriverShare
    """Of the tasks behind shuffles."""


NONE = Ways({}, {}, 0, {}, 0, DriverShare(), DriverShare())
"""Everything passes through the driver."""


class OutputWays:
    """Decides who writes.

    Parameters
    ----------
    layout : Layout
    sinks : sequence of Sink
        By exit.
    mergers : int or None
        The option: so many, 0: the driver does everything that has an order, None: as it fits.
    """

    def __init__(self, layout: Layout, sinks: Sequence[Sink], mergers: int | None) -> None:
        found = {number: sink.target() for number, sink in enumerate(sinks)}
        targets = {number: target for number, target in found.items() if target is not None}
        chosen = targets if mergers != 0 else {}
        self._layout = layout
        self._without = frozenset(number for number, target in found.items() if target is None)
        self._mergers = mergers
        self._direct = {at: target for at, target in targets.items() if unordered(layout, at)}
        self._pieces = {at: target for at, target in chosen.items() if in_pieces(layout, at)}
        self._mergeable = {at: target for at, target in chosen.items() if mergeable(layout, at)}
        self._large: set[int] = set(self._mergeable) if mergers else set()
        self._pieces_from = PIECES_BYTES
        self._reader_bytes = self._task_bytes = 0  # of a task at most, in the last epoch
        self._last: dict[int, int] | None = None
        self._in_files: frozenset[int] = frozenset()

    def of_epoch(self, slots: int, tasks: int, input_bytes: Callable[[], int]) -> Ways:
        """Who writes in the next epoch.

        Parameters
        ----------
        slots : int
            How many tasks run at once.
        tasks : int
            How many there are at most behind a shuffle.
        input_bytes : callable
            How many bytes its files have, as far as that is known; asked only if nothing else says more.
        """
        unknown = self._last is None and self._mergers is None and bool(self._mergeable)
        large = set(self._mergeable) if unknown and input_bytes() >= DRIVER_BYTES else self._large
        merged = {at: target for at, target in self._mergeable.items() if at in large}
        self._reader_bytes, self._task_bytes = DRIVER_BYTES // max(slots, _SHARES_MIN), DRIVER_BYTES // max(tasks, 1)
        reader_bounds = DriverShare(frozenset(self._pieces if self._pieces_from else ()), self._reader_bytes)
        bounds = DriverShare(frozenset(self._mergeable.keys() - merged.keys()), self._task_bytes)
        count = (self._mergers or slots) if merged else 0
        return Ways(self._direct, self._pieces, self._pieces_from, merged, count, reader_bounds, bounds)

    def overflowed(self) -> None:
        """There was too much for the driver."""
        self._large = set(self._mergeable)
        self._pieces_from = 0

    def after(self, results: Results) -> None:
        """An epoch was run."""
        self._last = results.bytes
        self._in_files = results.written
        # Back to the driver only with what no single task could have too much of: not to and fro.
        if self._mergers is None:
            for at in self._mergeable:
                found = self._last.get(at, 0)
                if found >= MERGED_BYTES:
                    self._large.add(at)
                elif found < min(MERGED_BYTES // 2, self._task_bytes):
                    self._large.discard(at)
        if sum(self._last.get(at, 0) for at in self._pieces) < min(PIECES_BYTES, self._reader_bytes):
            self._pieces_from = PIECES_BYTES

    @property
    def direct(self) -> frozenset[int]:
        """Exits that whoever makes their tuples writes, in any order."""
        return frozenset(self._direct)

    @property
    def by_readers(self) -> frozenset[int]:
        """Exits that whoever read the source wrote in the last epoch."""
        return frozenset(self._pieces) & self._in_files

    @property
    def merged(self) -> frozenset[int]:
        """Exits that mergers write."""
        return frozenset(self._large)

    def mergers(self, slots: int) -> int:
        """How many of them there are, if so many tasks run at once."""
        return (self._mergers or slots) if self._large else 0

    def through_driver(self) -> dict[int, str]:
        """Exits that pass through the driver → why."""
        others = self.direct | self.by_readers | self.merged
        exits = [at for at, found in enumerate(self._layout.exits) if not found.loop and at not in others]
        return {at: self._why(at) for at in exits}

    def _why(self, number: int) -> str:
        if number in self._without:
            return (
                "tasks cannot write for its sink: memory, console and foreachBatch take tables, and directories by "
                "partition and paths that are not on this machine are written by the driver"
            )
        if self._mergers == 0:
            return "option mergers=0"
        if number not in self._pieces and number not in self._mergeable:
            return "its tuples come from several depths, or by several ways from one source, and meet in the driver"
        size = "it is small" if self._last is None else f"the last epoch had {_bytes(self._last.get(number, 0))} of it"
        if number in self._pieces:
            return f"{size}; tasks that read {_bytes(PIECES_BYTES)} or more in an epoch write what they make of it"
        return f"{size}; from {_bytes(MERGED_BYTES)} on mergers write it"


def _bytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MB" if size >= 1 << 20 else f"{size} bytes"
