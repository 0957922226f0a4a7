"""What a run has shown: samples over time, migrations, decisions, and a summary in words."""

from __future__ import annotations

from dataclasses import dataclass, replace

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

    def scaled(self, grain: float) -> Result:
        """The same run, if every tuple in it stands for so many."""
        if grain == 1:
            return self
        samples = tuple(
            replace(
                sample,
                load=sample.load * grain,
                taken=sample.taken * grain,
                delivered=sample.delivered * grain,
                backlog=round(sample.backlog * grain),
                regions=tuple(replace(one, throughput=one.throughput * grain) for one in sample.regions),
            )
            for sample in self.samples
        )
        return replace(self, samples=samples, taken=round(self.taken * grain), delivered=round(self.delivered * grain))

    def channels(self, region: int = 0) -> tuple[int, ...]:
        """The number of channels over time."""
        return tuple(sample.regions[region].channels for sample in self.samples)

    def throughput_after(self, at_s: float) -> float:
        """Tuples taken per second, in the samples that end after this time."""
        rates = [sample.taken for sample in self.samples if sample.at_s > at_s]
        return sum(rates) / len(rates) if rates else 0.0

    def settled_s(self, region: int = 0) -> float:
        """From when on the number of channels did not change any more."""
        channels = self.channels(region)
        last = [i for i, count in enumerate(channels) if count != channels[-1]]
        return self.samples[last[-1]].at_s if last else 0.0

    def summary(self, rows: int = 20) -> str:
        """A table for people, of about so many rows."""
        lines = [
            f"{self.seconds:.1f} s of virtual time: {self.taken:,} tuples taken ({self.throughput:,.0f}/s), "
            f"{self.delivered:,} delivered, {len(self.migrations)} reconfigurations, {len(self.recoveries)} recoveries"
        ]
        if self.latencies:
            least, median, nine, nine_nine, most = self.latencies
            lines.append(
                f"latency: median {_seconds(median)}, 90 % {_seconds(nine)}, 99 % {_seconds(nine_nine)}, "
                f"from {_seconds(least)} to {_seconds(most)}"
            )
        for record in self.migrations[:rows]:
            lines.append(
                f"  at {record.wanted_s:.2f} s: channels {_plain(record.channels_before)} -> "
                f"{_plain(record.channels_after)}, {record.keys} keys ({record.bytes / 1e6:.2f} MB) moved, "
                f"pause {_seconds(record.pause_s)}"
            )
        if len(self.migrations) > rows:
            lines.append(f"  … and {len(self.migrations) - rows} more")
        head = ["time s", "load/s", "taken/s", "backlog", "latency", *(f"{name} channels" for name in self.names)]
        head += [f"{name} congestion" for name in self.names]
        every = max(1, len(self.samples) // rows)
        table = [head]
        for sample in self.samples[every - 1 :: every]:
            table.append(
                [
                    f"{sample.at_s:.1f}",
                    f"{sample.load:,.0f}",
                    f"{sample.taken:,.0f}",
                    f"{sample.backlog:,}",
                    _seconds(sample.latency_s),
                    *(str(region.channels) for region in sample.regions),
                    *(f"{region.congestion:.2f}" for region in sample.regions),
                ]
            )
        widths = [max(len(row[i]) for row in table) for i in range(len(head))]
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join(lines)


def _plain(channels: tuple[int, ...]) -> str:
    return ", ".join(map(str, channels))


def _seconds(value: float) -> str:
    if value != value:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.2f} ms"
