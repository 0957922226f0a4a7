"""What a simulated run has shown: epochs over virtual time, decisions, and a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from anabranch.control.decision import Decision
from anabranch.engine.driver.epoch_progress import Change


@dataclass(frozen=True)
class SimulatedEpoch:
    """An epoch that was committed."""

    number: int
    started_s: float
    """When it began, in seconds since the world did."""
    ended_s: float
    """When it was committed."""
    rows_in: int
    rows_out: int
    files: int
    channels: Mapping[str, int]
    """Region → channels it ran with."""
    tasks_s: Mapping[str, tuple[float, ...]]
    """Region → what each of its channels took."""
    source_s: float
    """What the slowest task that read sources took."""
    backlog_rows: int
    """Rows that stood ready when it ended; of a source that always has more, some of them."""
    latency_s: float
    """From the arrival of a row to the commit, mean over its rows; 0 if it had none."""
    changes: tuple[Change, ...]
    """Regions that have other owners of keys, or other channels, from the next epoch on."""
    slots: int
    """Tasks that could run at once."""
    state_bytes: int
    """Written by it."""

    @property
    def duration_s(self) -> float:
        """From its start to its commit."""
        return self.ended_s - self.started_s


@dataclass(frozen=True)
class SimulatedRun:
    """A run."""

    seconds: float
    """Virtual time at the end."""
    epochs: tuple[SimulatedEpoch, ...]
    decisions: tuple[tuple[float, str, Decision], ...]
    """Of the controllers: when, for which region, what and why."""
    crashes: tuple[tuple[float, str], ...]
    """When the driver died, or an attempt of a task, and where."""
    outputs: tuple[tuple[Any, ...], ...] = ()
    """What was delivered, of every output; empty where no tuples were run."""

    @property
    def regions(self) -> list[str]:
        """The regions, in the order of the program."""
        return list(self.epochs[-1].channels) if self.epochs else []

    @property
    def rows_in(self) -> int:
        return sum(epoch.rows_in for epoch in self.epochs)

    @property
    def throughput(self) -> float:
        """Rows taken per second, from the start of the first epoch to the end of the last one."""
        return self.throughput_of(self.epochs)

    @staticmethod
    def throughput_of(epochs: Sequence[SimulatedEpoch]) -> float:
        """Rows taken per second, over some epochs in a row."""
        lasted = epochs[-1].ended_s - epochs[0].started_s if epochs else 0.0
        return sum(epoch.rows_in for epoch in epochs) / lasted if lasted > 0 else 0.0

    def channels(self, region: str) -> tuple[int, ...]:
        """The channels of a region, epoch by epoch."""
        return tuple(epoch.channels[region] for epoch in self.epochs if region in epoch.channels)

    def settled(self, region: str) -> int:
        """How many channels a region had for most of the last third of the epochs."""
        channels = self.channels(region)
        return round(median(channels[-max(1, len(channels) // 3) :])) if channels else 0

    def summary(self, rows: int = 20) -> str:
        """A table for people, of about so many rows."""
        changes = [(epoch, change) for epoch in self.epochs for change in epoch.changes]
        latency = sorted(epoch.latency_s for epoch in self.epochs if epoch.rows_in)
        lines = [
            f"{self.seconds:.1f} s of virtual time: {len(self.epochs)} epochs, {self.rows_in:,} rows "
            f"({self.throughput:,.0f}/s), {len(changes)} changes of owners, {len(self.crashes)} crashes"
        ]
        if latency:
            lines.append(f"latency of epochs: median {median(latency):.2f} s, worst {latency[-1]:.2f} s")
        for epoch, change in changes[:rows]:
            lines.append(
                f"  at {epoch.ended_s:.1f} s {change.region}: {change.channels_before} -> {change.channels} channels: "
                f"{change.reason}"
            )
        if len(changes) > rows:
            lines.append(f"  … and {len(changes) - rows} more")
        regions = self.regions
        table = [["time s", "epoch", "rows", "files", "epoch s", "backlog", "latency s", *regions]]
        for epoch in self.epochs[:: max(1, len(self.epochs) // rows)]:
            table.append(
                [
                    f"{epoch.started_s:.1f}",
                    str(epoch.number),
                    f"{epoch.rows_in:,}",
                    str(epoch.files),
                    f"{epoch.duration_s:.2f}",
                    f"{epoch.backlog_rows:,}",
                    f"{epoch.latency_s:.2f}",
                    *(str(epoch.channels.get(region, "")) for region in regions),
                ]
            )
        widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
        lines += ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join(lines)
