"""Which segments to make one of, and making it.

Every epoch adds a small segment per channel; a lookup asks them all. So neighbours become one, in tiers: as
soon as four neighbours are of one order of magnitude, they become one of the next. A row is then rewritten
once per tier, and a lookup asks a number of segments that grows with the logarithm of the state.

    epoch 12 │ 11 │ 10 │ 9 ‖ 5–8 │ 1–4          newest first; ‖ the next compaction takes the four on the left

How large a segment is, is its rows; where values are large, as many rows as its bytes would make. So a list of a
megabyte that grows by an item each epoch is not rewritten with every fourth item: items are put to items
(`deltas.py`) until there are a quarter as many.

Small compactions are made by the channel, when it saves. Large ones would hold up the epoch, so the driver has
them made beside it. Either way a compaction changes nothing until a manifest names its result, and what it was
made of is kept until no manifest that is kept names it, so that a damaged one can be done without.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.program.options import Interval

FAN_IN = 4


class SnapshotInterval:
    """How often all segments of a channel become one, beyond what the tiers do: every n epochs, or seconds."""

    def __init__(self, period: Interval) -> None:
        self._epochs = period.epochs
        self._milliseconds = period.seconds * 1000
        self._last: tuple[int, int] | None = None

    def due(self, epoch: int, clock_ms: int) -> bool:
        """Whether a snapshot is due after this epoch; if so, the next one counts from here."""
        if self._last is None:
            self._last = (epoch, clock_ms)
            return False
        by_epochs = self._epochs > 0 and epoch - self._last[0] >= self._epochs
        by_time = self._milliseconds > 0 and clock_ms - self._last[1] >= self._milliseconds
        if by_epochs or by_time:
            self._last = (epoch, clock_ms)
            return True
        return False


# Merging so many rows takes about 0.1 s: more would be felt in the epoch.
INLINE_ROWS = 250_000


def tier(rows: int) -> int:
    """The order of magnitude of a segment."""
    number = 0
    while rows >= FAN_IN:
        rows //= FAN_IN
        number += 1
    return number


def compactable(rows: Sequence[int]) -> tuple[int, int] | None:
    """The range of neighbours, given by their rows (newest first), that should become one next, or None.

    A run of four or more from the newest on, none of a higher tier than those of the run are; the oldest
    such run, so that one compaction does the work of several.
    """
    best = None
    highest = 0
    for count, number in enumerate(rows, start=1):
        highest = max(highest, tier(number))
        same = sum(1 for each in rows[:count] if tier(each) == highest)
        if same >= FAN_IN:
            best = (0, count)
    return best
