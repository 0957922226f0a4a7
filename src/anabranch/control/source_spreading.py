"""When operators without state should have channels of their own, and when not.

What has no state runs where its source is read, with as many tasks as the source has pieces: that costs no shuffle, and
is right while the work is light or the pieces are many and even. Where one file, or one large one among small ones,
carries heavy work, the other slots have nothing to do:

    in the source's tasks     max(share of the largest task × work, work ÷ slots)
    dealt out to channels     work ÷ slots + what dealing out its rows takes

The difference is what an epoch would gain, and it is computed from the same two measurements in both forms: the
seconds spent in operators, and the rows of each task that read the source. Going over and back costs something too, and
loads flutter, so both take patience: to channels after `PATIENCE` epochs in a row that would gain `gain_seconds` or
more, back after `PATIENCE_BACK` in a row that gain less than half of it. Epochs without rows say nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

PATIENCE = 3
PATIENCE_BACK = 8
ROW_SECONDS = 2e-6
"""To pack, send, sort and unpack a row, in CPU seconds of all processes: 0.9 to 1.8 µs were measured, with 300,000 rows
of a number, a double and a short text in an epoch; wider rows take more."""


@dataclasses.dataclass(frozen=True)
class SpreadSettings:
    """What a user may say about it (option ``spread``), and what tests do."""

    gain_seconds: float = 0.5
    """How much shorter an epoch must be: about what the shuffle takes that comes with it, however few rows it has."""


@dataclasses.dataclass(frozen=True)
class SourceWork:
    """What a source's operators had to do in an epoch."""

    seconds: float
    """In operators, of all tasks together."""
    rows: Sequence[int]
    """Rows of the source that each task read."""

    def gain_seconds(self, slots: int) -> float:
        """How much sooner the work would be done by channels than by the tasks that read the source."""
        total = sum(self.rows)
        if not total:
            return 0.0
        even = self.seconds / slots
        alone = max(self.seconds * max(self.rows) / total, even)
        return alone - even - total * ROW_SECONDS / slots


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What should be from now on, and why."""

    spread: bool
    reason: str


class SourceSpreading:
    """Decides for the sources of a query. Epochs in, verdicts out; remembers only for how long it has been so.

    Examples
    --------
    >>> spreading = SourceSpreading(SpreadSettings())
    >>> heavy = SourceWork(8.0, [1000])
    >>> [verdict and verdict.spread for verdict in (spreading.judge("in", heavy, 4, False) for _ in range(3))]
    [None, None, True]
    """

    def __init__(self, settings: SpreadSettings) -> None:
        self._settings = settings
        self._for: dict[str, int] = {}

    def judge(self, source: str, work: SourceWork, slots: int, spread: bool) -> Verdict | None:
        """Take in an epoch of a source; what to change, if it has been so for long enough."""
        if not any(work.rows):
            return None
        gain = work.gain_seconds(slots)
        wanted = self._settings.gain_seconds
        otherwise = gain < wanted / 2 if spread else gain >= wanted
        self._for[source] = self._for.get(source, 0) + 1 if otherwise else 0
        patience = PATIENCE_BACK if spread else PATIENCE
        if self._for[source] < patience:
            return None
        self._for[source] = 0
        tasks = sum(1 for rows in work.rows if rows)
        share = max(work.rows) / sum(work.rows)
        rows = f"{share:.0%} of the rows in the largest of {tasks} tasks"
        facts = f"{work.seconds:.2f} s of work an epoch, {rows}, {slots} slots"
        if spread:
            return Verdict(False, f"{source}: channels of its own gain only {gain:.2f} s an epoch ({facts})")
        return Verdict(True, f"{source}: channels of its own save {gain:.2f} s of every epoch ({facts})")
