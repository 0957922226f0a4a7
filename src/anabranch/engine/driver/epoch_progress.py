"""What is told of an epoch when it has ended: ``lastProgress`` is this, as a dict.

Only what is named here is shown: what tasks report to the driver beside it stays inside. docs/progress.md lists the
keys for users, from the fields and the strings under them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anabranch.engine.pool.metering import Latencies
from anabranch.engine.reports import ChannelReport, ElasticReport, MergerReport, Report, SplitReport


@dataclasses.dataclass(frozen=True)
class EpochDurations:
    """Where the time of an epoch went, as the driver saw it, in seconds."""

    begin: float = 0.0
    """Looking at what stands ready, and recording that the epoch began."""
    job: float = 0.0
    """The tasks."""
    merge: float = 0.0
    """Putting the output in order, in the driver."""
    sink: float = 0.0
    """Writing the output."""
    commit: float = 0.0
    """Writing the manifest."""
    total: float = 0.0
    """All of it."""

    @classmethod
    def between(
        cls, started: float, begun: float, ran: float, merged: float, written: float, committed: float
    ) -> EpochDurations:
        """From when the epoch started and when each part of it ended."""
        return cls(
            begun - started, ran - begun, merged - ran, written - merged, committed - written, committed - started
        )


@dataclasses.dataclass(frozen=True)
class DurationProgress:
    """`EpochDurations` in milliseconds."""

    begin: int = 0
    """Looking at what stands ready, and recording that the epoch began."""
    job: int = 0
    """The tasks: sources, shuffles, channels."""
    merge: int = 0
    """Putting the output in order, in the driver."""
    sink: int = 0
    """Writing the output."""
    commit: int = 0
    """Writing the manifest."""
    total: int = 0
    """All of it."""
    between: int = 0
    """Not in `total`: what Spark does between two epochs beside waiting (offsets, planning, its own commit), about: the
    median of the last epochs that it has told of."""

    @classmethod
    def of(cls, durations: EpochDurations, between_s: float = 0.0) -> DurationProgress:
        parts = {name: round(seconds * 1000) for name, seconds in vars(durations).items()}
        return cls(**parts, between=round(between_s * 1000))


@dataclasses.dataclass(frozen=True)
class TaskProgress:
    """What one task of the epoch did."""

    kind: str
    """`source`, `channel` or `merger`."""
    depth: int
    """How many shuffles lie between the sources and the task: 0 for a source's."""
    seconds: float
    """How long it ran."""
    rows_in: int
    """Tuples it read."""
    rows_out: int
    """Tuples it sent on; a merger writes what it reads."""
    began_s: float | None = None
    """When it began, in seconds since 1970, by the clock of its host; null for a merger."""
    stage: int | None = None
    """The number of a channel's stage in the layout; null for others."""
    name: str = ""
    """The region of a channel, named after the operator at its entry; empty for others."""
    channel: int | None = None
    """The number of a channel in its region; null for others."""
    busy_seconds: float = 0.0
    """How long a channel worked in operators."""
    state_seconds: float = 0.0
    """How long a channel took to write its state."""

    @classmethod
    def of(cls, report: Report) -> TaskProgress:
        """What of a report is shown."""
        if isinstance(report, SplitReport):
            return cls("source", 0, report.seconds, report.rows_in, report.rows_out, report.began_s)
        if isinstance(report, MergerReport):
            return cls("merger", report.depth, report.seconds, report.rows_in, report.rows_in)
        return cls(
            "channel",
            report.depth,
            report.seconds,
            report.rows_in,
            report.rows_out,
            report.began_s,
            report.stage,
            report.name,
            report.channel,
            report.busy_seconds,
            report.state_seconds,
        )


@dataclasses.dataclass(frozen=True)
class Change:
    """A region whose partitioning function was replaced between two epochs."""

    region: str
    """Named after the operator at its entry."""
    epoch: int
    """The first epoch with the new function."""
    channels_before: int
    """How many channels the region had."""
    channels: int
    """How many it has now; as many as before if only keys have other owners."""
    reason: str
    """Why, in a sentence."""


@dataclasses.dataclass(frozen=True)
class FileProgress:
    """Files of a source whose epochs are sized by us (`epochSize`)."""

    taken: int | None
    """How many the epoch took; null if Spark does not say."""
    limit: int
    """How many it might have taken."""
    next: int
    """How many the next epoch may take."""


@dataclasses.dataclass(frozen=True)
class ElasticProgress:
    """The calls of an elastic operator, over all tasks of the epoch."""

    level: int
    """How many calls were under way at most in one task, in the end; 0: they were made one after the other, inline."""
    tasks: int
    """How many tasks made calls."""
    calls: int
    """How many calls were made, those made again included."""
    retries: int
    """How many of them were made again, because the one before had failed."""
    timeouts: int
    """How many took longer than the timeout."""
    rate: float
    """Calls per second, of all tasks together, in the last period of each that counted."""
    periods: int
    """How many periods ended, after each of which the level was looked at."""
    p50_ms: float
    """Half of the calls took no longer; accurate to a tenth."""
    p95_ms: float
    """95 % of the calls took no longer."""
    p99_ms: float
    """99 % of the calls took no longer."""
    decision: str
    """What was decided last about the level, and why."""


@dataclasses.dataclass(frozen=True)
class ExecutorProgress:
    """The executors, where they follow the channels (`maxExecutors`)."""

    present: int
    """How many there are."""
    target: int
    """How many Spark was asked for in all."""
    given_back: tuple[str, ...] = ()
    """The identities of those given back since the epoch before."""


@dataclasses.dataclass(frozen=True)
class MoveProgress:
    """A channel that went to another executor."""

    region: str
    """Named after the operator at its entry."""
    channel: int
    """Its number in the region."""
    source: str
    """The executor that it left."""
    target: str
    """The one that it went to."""
    how: str
    """`direct`: all of its state is fetched; `CPA`: the executor was lost, one with a copy took over; `CPAL`: the old
    one went on until the new one had a copy."""
    missing_bytes: int | None
    """What the copy lacked, beside what the last epoch wrote; null: there was none."""


@dataclasses.dataclass(frozen=True)
class HostProgress:
    """What an executor had to do in an epoch, in the bundles of its channels together."""

    load: float = 0.0
    """In slots: how much of the time tasks of channels had one."""
    outside: float = 0.0
    """What other tenants use of its slots."""
    processor: float = 0.0
    """In cores: processor time of those tasks."""
    rows: float = 0.0
    memory_bytes: int = 0
    """Of the Python workers of its channels, at the end of their tasks."""
    state_bytes: int = 0
    """Of its bundles."""
    bundles: int = 0

    def with_bundle(
        self, load: float, processor: float, rows: float, memory_bytes: int, state_bytes: int
    ) -> HostProgress:
        """The same with a bundle more."""
        return HostProgress(
            self.load + load,
            self.outside,
            self.processor + processor,
            self.rows + rows,
            self.memory_bytes + memory_bytes,
            self.state_bytes + state_bytes,
            self.bundles + 1,
        )


@dataclasses.dataclass(frozen=True)
class PlacementProgress:
    """Where channels ran, on a cluster."""

    kept: int
    """Channels that ran on the executor they had run on before."""
    moved: int
    """Channels that ran on another one than before."""
    elsewhere: int
    """Channels that did not run where they were asked to, because that executor was busy or gone."""
    moves: Sequence[MoveProgress] = ()
    """Channels that were asked to run on another executor than before, and how they moved."""
    standby_missing_bytes: int = 0
    """What standby copies have not fetched yet, of all."""
    unprotected: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """With `standbys`: region and bundle (or channel) → for how many epochs nobody else has had a complete copy."""
    decisions: Sequence[str] = ()
    """What the plan of the period changes from now on, and why: channels that are placed anew, bundles that move,
    executors that are asked for."""
    hosts: Mapping[str, HostProgress] = dataclasses.field(default_factory=dict)
    """Executor → what it has to do."""


@dataclasses.dataclass(frozen=True)
class VerifyProgress:
    """What was run again on one thread, in an epoch that keys were taken of (`verify`)."""

    keys: int
    """Keys of operators with state; a key counts once for each."""
    tuples: int
    """Tuples of these keys, and of operators without state; a tuple counts once for each operator."""
    differences: int
    """Operators that did something else than one thread; always 0 unless `verifyAction` is `report`."""
    files: Sequence[str]
    """Where each difference is described."""
    seconds: float
    """What it took, in the driver."""
    not_covered: Mapping[str, str]
    """Operator → why it is never run again."""


@dataclasses.dataclass(frozen=True)
class EpochProgress:
    """What happened in an epoch."""

    epoch: int
    """Its number; epochs of a checkpoint count from 0."""
    rows_in: int
    """Tuples read from the sources."""
    rows_out: int
    """Tuples given to the sinks."""
    channels: Mapping[str, int]
    """How many channels each region had; a region is named after the operator at its entry."""
    duration_ms: DurationProgress
    """Where the time went, as the driver saw it."""
    stages: Sequence[TaskProgress] = ()
    """What each task did."""
    state_rows: int = 0
    """Keys whose state was written to the checkpoint."""
    state_bytes: int = 0
    """What was written to the checkpoint for that, with segments that were compacted."""
    fetched_bytes: int = 0
    """State that hosts had to fetch because they did not have it; 0 where they can open the checkpoint's files."""
    in_flight: int = 0
    """Tuples that were fed back and wait for the next epoch."""
    anomalies: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    """Bad input by operator, and what it was: tuples that came too late, nulls where a key or a time should be, steps
    backwards, calls that failed and were skipped or became dead letters."""
    elastic: Mapping[str, ElasticProgress] = dataclasses.field(default_factory=dict)
    """Elastic operator → its calls."""
    changes: Sequence[Change] = ()
    """Regions that have another partitioning function from the next epoch on."""
    hot_keys: str = ""
    """Why aggregations run in two steps, so that hot keys can be in parts; empty: they run as written."""
    spread: str = ""
    """Why what has no state runs in channels of its own; empty: it runs where its source is read."""
    shuffled: str = ""
    """Why the epoch had a shuffle that a partitioned source should have spared; empty: it had none of the kind."""
    read_by_spark: str = ""
    """Why Spark read the sources; empty: tasks read their files themselves."""
    epoch_files: Mapping[str, FileProgress] = dataclasses.field(default_factory=dict)
    """Source → its files, for every source whose files per epoch are adapted."""
    epoch_size: str = ""
    """Why the next epoch may take so many files; or, where an adapted size had to be given up, why."""
    executors: ExecutorProgress | None = None
    """The executors, with `maxExecutors` on a cluster; else null."""
    placement: PlacementProgress | None = None
    """Where channels ran, on a cluster; else null."""
    verify: VerifyProgress | None = None
    """What was run again on one thread; null in epochs of which no keys were taken."""
    skipped: bool = False
    """The epoch had been committed before and was not run again."""

    def to_dict(self) -> dict[str, Any]:
        """As ``lastProgress`` shows it."""
        shown: dict[str, Any] = _shown(self)
        return shown


def _shown(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: _shown(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _shown(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shown(each) for each in value]
    return value


def anomalies_in(reports: Iterable[Report]) -> dict[str, dict[str, int]]:
    """What operators counted, over all tasks."""
    found: dict[str, dict[str, int]] = {}
    for report in reports:
        if isinstance(report, (SplitReport, ChannelReport)):
            for each in report.anomalies:
                counts = found.setdefault(each.operator, {})
                counts[each.what] = counts.get(each.what, 0) + each.count
    return found


def elastic_in(reports: Iterable[Report]) -> dict[str, ElasticProgress]:
    """The calls of elastic operators, over all tasks."""
    found: dict[str, list[ElasticReport]] = {}
    for report in reports:
        if isinstance(report, (SplitReport, ChannelReport)):
            for each in report.elastic:
                found.setdefault(each.operator, []).append(each)
    return {operator: _elastic_progress(each) for operator, each in found.items()}


def _elastic_progress(reports: Sequence[ElasticReport]) -> ElasticProgress:
    latencies = Latencies()
    for each in reports:
        latencies.counts.update({int(bucket): count for bucket, count in each.latencies.items()})
    p50, p95, p99 = (round(seconds * 1000, 3) for seconds in latencies.percentiles((0.5, 0.95, 0.99)))
    last = max(reports, key=lambda each: each.periods)
    return ElasticProgress(
        level=max(each.level for each in reports),
        tasks=len(reports),
        calls=sum(each.calls for each in reports),
        retries=sum(each.retries for each in reports),
        timeouts=sum(each.timeouts for each in reports),
        rate=round(sum(each.rate for each in reports), 3),
        periods=sum(each.periods for each in reports),
        p50_ms=p50,
        p95_ms=p95,
        p99_ms=p99,
        decision=last.decision,
    )
