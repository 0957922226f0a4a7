"""How long rows stood ready before an epoch took them, from what sources and Spark's own progress tell.

    everything ready is taken     ready = taken; what is taken came since the epoch before
    files, so many an epoch       the oldest file of the epoch says since when it stood there
    files, as many as we say      the one or the other, epoch by epoch: whether our limit was reached
    Kafka, so many an epoch       the newest offset there was − the offset taken

Which of them a source is follows from what it reports; nothing is guessed from the length of epochs. What a file's
time says is limited by when the query started: a file may be older than the query, its rows did not wait for it.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.control.executor_planner import SlotNeed
from anabranch.control.period_plan import PeriodPlan
from anabranch.engine.clock import MACHINE_CLOCK, Clock
from anabranch.engine.driver.epoch_progress import ExecutorProgress, PlacementProgress
from anabranch.engine.reports import Report, SplitReport

if TYPE_CHECKING:
    from anabranch.engine.driver.epoch_sizing import EpochSizing, TakenFiles
    from anabranch.spark.cluster import QueryExecutors
    from anabranch.spark.placement import ChannelPlacement

# As Spark's ProgressReporter names them.
_TRIGGER, _BATCH = "triggerExecution", "addBatch"
_RECENT = 5


@dataclasses.dataclass(frozen=True)
class Ready:
    """What is known at the start of an epoch about what stands ready.

    Attributes
    ----------
    limited : bool
        An epoch takes so much at most, so that rows may stand ready and not be taken.
    outstanding_rows : int or None
        Rows that the epoch before left behind; None if the sources cannot tell.
    since_ms : float
        When the query started.
    bookkeeping_s : float
        What Spark does between two epochs, beside waiting.
    left_before : bool or None
        The epoch before may have left rows behind; None: as `limited` says. If it left none, what is there came since,
        whatever the times of files say: a file may have been written long before it was put there.
    taken_files : TakenFiles, optional
        What it has of the sources whose files per epoch are ours to say.
    """

    limited: bool = True
    outstanding_rows: int | None = None
    since_ms: float = 0.0
    bookkeeping_s: float = 0.0
    left_before: bool | None = None
    taken_files: TakenFiles | None = None

    def rows_of(self, taken_rows: int) -> int | None:
        """Rows that stood ready; None if nobody knows."""
        if not self.limited:
            return taken_rows
        # What came between the last look and this start is not in it, but was ready for no time to speak of.
        return self.outstanding_rows

    def waited_s(self, started_ms: float, reports: Sequence[Report]) -> float | None:
        """How long the oldest row stood ready; None if nobody knows."""
        if not (self.limited if self.left_before is None else self.left_before):
            return None  # follows from the rows: they came since the epoch before
        oldest = [report.oldest_ms for report in reports if isinstance(report, SplitReport)]
        written = [each for each in oldest if each is not None]
        return max(0.0, started_ms - max(min(written), self.since_ms)) / 1000 if written else None


class Surroundings:
    """What an epoch runner is told by whatever runs it; this one, by nobody: one task at a time, nothing known."""

    interval_s: float | None = None

    def slots(self) -> int:
        """How many tasks run at once, or could soon."""
        return 1

    def slots_now(self) -> int:
        """How many tasks run at once."""
        return self.slots()

    def at_start(self, reads: bool = True) -> Ready:
        """What stands ready, asked at the start of an epoch, which may be one that reads nothing."""
        return Ready()

    def settled(self, need: SlotNeed) -> ExecutorProgress | None:
        """An epoch was committed, and the next one needs this; what is to be told about executors, if anything."""
        return None

    def restored(self) -> PeriodPlan | None:
        """What is to change before an epoch because executors are gone; None: nothing."""
        return None

    def placed(self, reports: Sequence[Report]) -> tuple[PlacementProgress | None, PeriodPlan | None]:
        """An epoch was committed; what is told of where its channels ran, and what is to change, if anything."""
        return None, None

    def read_by_spark(self) -> str:
        """Why it was not tasks that read the sources; empty: they did."""
        return ""

    def input_bytes(self) -> int:
        """How many bytes the files of the epoch that runs have; 0 if nobody knows."""
        return 0


class SparkSurroundings(Surroundings):
    """What Spark tells: how many tasks run at once, what its last trigger left behind and took for itself.

    Parameters
    ----------
    slots : callable
        How many tasks run at once, or could soon.
    limited : bool
        Whether some source gives so much an epoch at most.
    interval_s : float, optional
        The trigger's interval.
    sizing : EpochSizing, optional
        What sets limits of our own.
    slots_now : callable, optional
        How many tasks run at once; None: as `slots`.
    executors : QueryExecutors, optional
        What follows the channels; None: nothing does.
    last_progress : callable
        What Spark told of the query's last trigger; None: nothing yet.
    read_by_spark : callable
        Why it was not tasks that read the sources; empty: they did.
    placement : object, optional
        What knows where channels run; None: one place has them all, or Spark chooses.
    input_bytes : callable
        How many bytes the files of the epoch that runs have; 0 if nobody knows.
    """

    def __init__(
        self,
        slots: Callable[[], int],
        limited: bool,
        interval_s: float | None = None,
        sizing: EpochSizing | None = None,
        slots_now: Callable[[], int] | None = None,
        executors: QueryExecutors | None = None,
        clock: Clock = MACHINE_CLOCK,
        last_progress: Callable[[], Mapping[str, Any] | None] = lambda: None,
        read_by_spark: Callable[[], str] = lambda: "",
        placement: ChannelPlacement | None = None,
        input_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        self._slots = slots
        self._slots_now = slots_now if slots_now is not None else slots
        self._executors = executors
        self._limited = limited
        self.interval_s = interval_s
        self._sizing = sizing
        self._since_ms = clock.now_s() * 1000
        self._last_progress = last_progress
        self._read_by_spark = read_by_spark
        self._placement = placement
        self._input_bytes = input_bytes
        self._seen: Any = None
        self._bookkeeping: list[float] = []
        self._outstanding: int | None = None

    def slots(self) -> int:
        return max(1, self._slots())

    def slots_now(self) -> int:
        return max(1, self._slots_now())

    def settled(self, need: SlotNeed) -> ExecutorProgress | None:
        if self._placement is not None:
            need = dataclasses.replace(need, rather=self._placement.rather_back)
        return self._executors.settled(need) if self._executors is not None else None

    def restored(self) -> PeriodPlan | None:
        return None if self._placement is None else self._placement.restored()

    def placed(self, reports: Sequence[Report]) -> tuple[PlacementProgress | None, PeriodPlan | None]:
        return (None, None) if self._placement is None else self._placement.settled(reports)

    def read_by_spark(self) -> str:
        return self._read_by_spark()

    def input_bytes(self) -> int:
        return self._input_bytes()

    def at_start(self, reads: bool = True) -> Ready:
        if self._executors is not None:
            self._executors.begins()
        progress = self._last_progress()
        if progress is not None and progress.get("batchId") != self._seen:
            first, self._seen = self._seen is None, progress.get("batchId")
            self._outstanding = outstanding_rows(progress)
            times = progress.get("durationMs", {})
            # The first trigger loads and compiles what later ones only use. One without input has no batch; rows that
            # tasks read are none that Spark counts.
            if not first and _TRIGGER in times and _BATCH in times:
                self._bookkeeping = [*self._bookkeeping, max(0, times[_TRIGGER] - times[_BATCH]) / 1000][-_RECENT:]
        # The median of a few: a pause in one of them is not what Spark always takes.
        middle = sorted(self._bookkeeping)[len(self._bookkeeping) // 2] if self._bookkeeping else 0.0
        taken = self._sizing.at_start() if self._sizing is not None and reads else None
        if taken is None:
            return Ready(self._limited, self._outstanding, self._since_ms, middle)
        # A limit of ours counts only where it was reached: otherwise everything ready was taken.
        limited, left_before = self._limited or taken.left, self._limited or taken.left_before
        return Ready(limited, self._outstanding, self._since_ms, middle, left_before, taken)


def outstanding_rows(progress: Mapping[str, Any]) -> int | None:
    """Rows that sources with offsets (Kafka) have and that were not taken; None if some source cannot tell."""
    total = 0
    for source in progress.get("sources", ()):
        newest, taken = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if newest is None or taken is None:
            return None
        total += sum(max(0, offset - taken.get(place, offset)) for place, offset in newest.items())
    return total


def _offsets(text: Any) -> dict[tuple[str, str], int] | None:
    """Kafka's offsets, ``{"topic": {"0": 12}}``; None for anything else."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
        return {
            (topic, partition): int(offset)
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }
    except (TypeError, ValueError, AttributeError):
        return None
