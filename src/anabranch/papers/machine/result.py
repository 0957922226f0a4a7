"""What a run has shown: samples over time, migrations and decisions."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.control.decision import Decision


@dataclass(frozen=True, slots=True)
class MigrationRecord:
    """One reconfiguration of a flow."""

    wanted_s: float
    """When the splitter was told to stop."""
    drained_s: float
    """When the last tuple before it had left the merger."""
    resumed_s: float
    """When the splitter went on: both vertical barriers and the horizontal one were passed."""
    flow: int
    channels_before: tuple[int, ...]
    channels_after: tuple[int, ...]
    """Of every region of the flow."""
    keys: int
    """Keys whose state moved."""
    bytes: float

    @property
    def pause_s(self) -> float:
        """For how long no tuple was taken."""
        return self.resumed_s - self.wanted_s

    @property
    def migration_s(self) -> float:
        """Without the draining."""
        return self.resumed_s - self.drained_s


@dataclass(frozen=True, slots=True)
class RegionSample:
    """One region over one sampling interval."""

    channels: int
    """At its end."""
    throughput: float
    """Tuples per second that channels took."""
    congestion: float
    """Share of the time in which the splitter before it was blocked; in a shuffle, of the channels before it."""
    busy_share: float
    """Mean over the channels."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The world over one sampling interval."""

    at_s: float
    """Its end."""
    load: float
    """Tuples per second of the load curve at its end."""
    taken: float
    """Tuples per second that the first splitter took."""
    delivered: float
    """Tuples per second at the sink."""
    latency_s: float
    """Mean, from the arrival at the source to the sink; NaN if nothing was delivered."""
    latency_p99_s: float
    backlog: int
    """Tuples that stood ready at the source at its end."""
    regions: tuple[RegionSample, ...]


@dataclass(frozen=True)
class Result:
    """A run."""

    names: tuple[str, ...]
    seconds: float
    """Virtual time at the end."""
    taken: int
    delivered: int
    samples: tuple[Sample, ...]
    migrations: tuple[MigrationRecord, ...]
    recoveries: tuple[tuple[float, float, int], ...]
    """Host failures: when, when the flow ran again, which flow."""
    decisions: tuple[tuple[float, int, Decision], ...]
    """Of the controllers: when, for which region, what and why."""
    events: int
    """How many events the world handled."""
    latencies: tuple[float, ...]
    """Seconds from source to sink: minimum, median, 90 %, 99 %, maximum of all that was delivered; empty if nothing."""

    @property
    def throughput(self) -> float:
        """Tuples taken per second, over the whole run."""
        return self.taken / self.seconds if self.seconds > 0 else 0.0

    def channels(self, region: int = 0) -> tuple[int, ...]:
        """The number of channels over time."""
        return tuple(sample.regions[region].channels for sample in self.samples)
