"""What an epoch runner is given: what the user chose, where state is, who runs tasks, who is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from anabranch.control import Decision
from anabranch.control.elastic_options import ElasticOptions
from anabranch.engine.clock import MACHINE_CLOCK, Clock
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.driver.epoch_progress import EpochProgress
from anabranch.engine.driver.epoch_sizing import EpochSizing
from anabranch.engine.driver.sink import Sink
from anabranch.engine.driver.waiting import Surroundings
from anabranch.engine.job import Executor
from anabranch.engine.thread_settings import ThreadSettings
from anabranch.engine.verifying.verifier import VerifySettings
from anabranch.engine.worker.compact_task import CompactTask
from anabranch.program.options import OVER_COLUMNS, Interval
from anabranch.state.backing import BackingStore
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.host_cache import CacheSettings
from anabranch.state.lineage import Compaction
from anabranch.state.records import SegmentRecord
from anabranch.state.slices import CUT_BYTES
from anabranch.state.store import StateVersion

# Compacts segments beside the epochs: the task, and what to compact.
Compactor = Callable[[CompactTask, list[Compaction]], Future[list[SegmentRecord]]]


@dataclasses.dataclass(frozen=True)
class EpochSettings:
    """What the user chose."""

    elastic: ElasticOptions = dataclasses.field(default_factory=ElasticOptions)
    balancing: BalancingSettings = dataclasses.field(default_factory=BalancingSettings)
    snapshots: Interval | None = None
    """How often all segments of a channel become one; None: only as the tiers do."""
    mergers: int | None = None
    """How many tasks put outputs in order; 0: the driver does; None: as many as run at once, for large outputs."""
    verify: VerifySettings = dataclasses.field(default_factory=VerifySettings)
    """Which keys are run again on one thread."""
    watch: str = "sample"
    """For which tuples dicts of the user's refuse what is not their key's: ``sample``, ``all`` or ``off``."""
    columns: frozenset[str] = frozenset(OVER_COLUMNS)
    """What runs over whole columns where it can."""
    thread: ThreadSettings = dataclasses.field(default_factory=ThreadSettings.here)
    """What holds in the thread that starts the query: other threads, which make jobs later, have their own."""


@dataclasses.dataclass(frozen=True)
class Storage:
    """Where state is."""

    checkpoint: Checkpoint
    shared: bool = True
    """Whether every process can open the checkpoint's files."""
    backing: BackingStore | None = None
    """Where segments wait for their new owner, if files are not shared."""
    cache: CacheSettings = dataclasses.field(default_factory=CacheSettings)
    """What hosts keep of segments that they have no path to."""
    cut_bytes: int = CUT_BYTES
    """From what size on segments are cut between bundles."""

    @property
    def state_root(self) -> str:
        """The directory of segments."""
        return f"{self.checkpoint.files.root}/state"


def _nobody(*_: object) -> None:
    """Is told, and does nothing."""


def no_digest(number: int) -> str | None:
    """Nobody notes what input a micro-batch has."""
    return None


@dataclasses.dataclass(frozen=True)
class Backend:
    """Who runs what the driver decides, and what the driver is told by it."""

    execute: Executor
    compact: Compactor
    sinks: Sequence[Sink]
    surroundings: Surroundings = dataclasses.field(default_factory=Surroundings)
    sizing: EpochSizing | None = None
    """What says how much the next epoch takes; None: the source does."""
    clock: Clock = MACHINE_CLOCK
    epoch_time_ms: Callable[[], int] | None = None
    """The time that the next epoch has, for user code and state; None: that of the clock."""

    batch_digest: Callable[[int], str | None] = no_digest
    """What tells the input of a micro-batch from any other; None if there is no note of it."""
    follow: Callable[[StateVersion], None] = _nobody
    """Told of the state that an epoch committed: who should have copies of it fetches them."""

    def next_epoch_ms(self) -> int:
        """The time of an epoch that begins now."""
        return int(self.clock.now_s() * 1000) if self.epoch_time_ms is None else self.epoch_time_ms()


@dataclasses.dataclass(frozen=True)
class Observer:
    """Who is told what happens."""

    ended: Callable[[EpochProgress], None] = _nobody
    decided: Callable[[str, Decision], None] = _nobody
    """A region, and what its controller decided."""
