"""What the tasks of an epoch tell the driver: a report of each splitter, channel and merger.

    task ─► SplitReport | ChannelReport | MergerReport ─► to_bytes ═ shuffle, Spark ═► from_bytes ─► driver

Between the two border functions a report is an object of its class; what it is, is what its class says. A task that
runs twice reports twice, and only the report of the attempt that Spark delivers is seen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from anabranch.partitioning.counting.key_costs import KeyTimesReport
from anabranch.partitioning.counting.tally import TallyReport
from anabranch.state.records import SegmentRecord


@dataclasses.dataclass(frozen=True)
class Anomaly:
    """Input that an operator met and had to follow its policy for."""

    operator: str
    what: str
    """late, null, backwards, …: what it was."""
    count: int


@dataclasses.dataclass(frozen=True)
class ElasticReport:
    """What the pool of an elastic operator did in a task."""

    operator: str
    level: int
    """How many calls were under way at most, in the end."""
    rate: float
    """Tuples per second in its last period that counted."""
    periods: int
    """How many periods came to an end."""
    calls: int
    retries: int
    timeouts: int
    latencies: Mapping[str, int]
    """How many calls took how long: the counts of `engine.pool.metering.Latencies`, by bucket."""
    decision: str = ""
    """What the controller said last."""


@dataclasses.dataclass(frozen=True)
class RoutedKeys:
    """What a task counted of the keys it routed to a stage."""

    stage: int
    tally: TallyReport


@dataclasses.dataclass(frozen=True)
class WrittenFile:
    """A file of output that a task wrote, under a name that nobody reads yet."""

    exit: int
    stage: int
    """Together with `number`, its place among the files of the epoch."""
    number: int
    """Of the task: the channel, or the merger's range."""
    name: str
    rows: int
    bytes: int = 0
    """Of its rows, as they are in memory."""
    coordinate: str = ""
    """Where its first piece stands among all, in hexadecimal digits; empty: only its task says where it stands."""

    @property
    def order(self) -> tuple[int, str, int, str]:
        """Its place among the files of an exit."""
        return self.stage, self.coordinate, self.number, self.name


@dataclasses.dataclass(frozen=True)
class SplitReport:
    """What a splitter did, or the task that takes what was fed back."""

    began_s: float
    """When it began, by the clock of its host, in seconds since 1970."""
    seconds: float
    rows_out: int = 0
    sources: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Source → rows read of it."""
    oldest_ms: float | None = None
    """When the oldest file it read was written; None if it read none."""
    operators: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Operator → tuples that entered it."""
    busy_seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Source → seconds in the operators that run where it is read."""
    files: tuple[WrittenFile, ...] = ()
    """Output it wrote itself."""
    keys: tuple[RoutedKeys, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    elastic: tuple[ElasticReport, ...] = ()
    watermarks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Watermark → how far it has come, of those that had tuples here or are this task's own."""

    @property
    def rows_in(self) -> int:
        """Rows read, of all sources."""
        return sum(self.sources.values())


@dataclasses.dataclass(frozen=True)
class ChannelReport:
    """What a channel of a stage did."""

    stage: int
    name: str
    """The operator at the stage's entry."""
    depth: int
    """How many shuffles lie between the sources and the stage."""
    channel: int
    began_s: float
    seconds: float
    rows_in: int = 0
    rows_out: int = 0
    busy_seconds: float = 0.0
    """In operators."""
    state_seconds: float = 0.0
    """Writing state."""
    segments: tuple[SegmentRecord, ...] = ()
    """The segments it wrote."""
    damaged: tuple[str, ...] = ()
    """Segments that it could not read, and did without."""
    measured: KeyTimesReport | None = None
    """What single keys cost; None where nothing was timed."""
    operators: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Operator → tuples that entered it."""
    files: tuple[WrittenFile, ...] = ()
    """Output it wrote itself."""
    keys: tuple[RoutedKeys, ...] = ()
    anomalies: tuple[Anomaly, ...] = ()
    elastic: tuple[ElasticReport, ...] = ()
    watermarks: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Watermark → how far it has come, of those that had tuples here or are this task's own."""
    fetched_bytes: int = 0
    """State that its host did not have."""
    place: str = ""
    """Where it ran, in words of whatever ran it."""
    processor_seconds: float = 0.0
    """Of the process it ran in, while it ran."""
    memory_bytes: int = 0
    """What of that process was in memory when it ended; 0 where nobody asks, or the system does not tell."""
    broadcasts: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """Operator → its broadcast state behind the epoch, which all channels have alike: told by the first."""


@dataclasses.dataclass(frozen=True)
class MergerReport:
    """What a merger did: its time is a part of writing the output."""

    depth: int
    seconds: float
    files: tuple[WrittenFile, ...]

    @property
    def rows_in(self) -> int:
        """Tuples put in order."""
        return sum(file.rows for file in self.files)


Report = SplitReport | ChannelReport | MergerReport

_KINDS: Mapping[str, type] = {"split": SplitReport, "channel": ChannelReport, "merger": MergerReport}
_PARTS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "files": lambda fields: WrittenFile(**fields),
    "keys": lambda fields: RoutedKeys(fields["stage"], TallyReport(**fields["tally"])),
    "anomalies": lambda fields: Anomaly(**fields),
    "elastic": lambda fields: ElasticReport(**fields),
}
_NAMES: Mapping[type, str] = {kind: name for name, kind in _KINDS.items()}


def to_bytes(report: Report) -> bytes:
    """A report as it travels."""
    fields = {name: _plain(value) for name, value in vars(report).items()}
    return msgpack.packb([_NAMES[type(report)], fields])


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, SegmentRecord):
        return value.to_fields()
    if dataclasses.is_dataclass(value):
        return {name: _plain(each) for name, each in vars(value).items()}
    return value


def from_bytes(data: Any) -> Report:
    """The report that travelled; `data` is what `to_bytes` gave, or a buffer of it.

    Examples
    --------
    >>> from_bytes(to_bytes(SplitReport(0.0, 0.5, sources={"in": 3}))).rows_in
    3
    """
    kind, fields = msgpack.unpackb(data)
    for name, made in _PARTS.items():
        if name in fields:
            fields[name] = tuple(made(each) for each in fields[name])
    if "segments" in fields:
        fields["segments"] = tuple(SegmentRecord.of_fields(each) for each in fields["segments"])
        fields["damaged"] = tuple(fields["damaged"])
    if fields.get("measured") is not None:
        fields["measured"] = KeyTimesReport(**fields["measured"])
    found: Report = _KINDS[kind](**fields)
    return found
