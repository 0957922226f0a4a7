"""A Spark-like world for tests: epochs whose stages run one after the other, fed by a source with a backlog.

Unlike the fluid model nothing here is told about congestion: it produces raw epoch measurements, from which
signals.py must find out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from anabranch.control import EpochMeasurement


@dataclass
class EpochWorld:
    arrivals_per_s: Callable[[float], float]
    """Load over time."""
    region_rates: Mapping[str, float]
    """Rows per second of one channel, per region; channels add up linearly."""
    sink_rate: float = 1e9
    overhead_s: float = 0.2
    target_s: float = 1.0
    trigger_s: float = 0.0
    """0: the next epoch starts at once."""
    rows_max: int | None = None
    """Rows one epoch takes at most."""
    tells_waiting: bool = True
    pauses: Mapping[int, float] = field(default_factory=dict)
    """Extra seconds in the first region of an epoch: garbage collection."""
    noise: float = 0.0
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    now_s: float = 0.0
    epoch: int = 0
    queue: list[tuple[float, int]] = field(default_factory=list)
    """(time of arrival, rows), oldest first."""

    def _factor(self) -> float:
        return 1.0 + self.noise * float(np.clip(self.generator.standard_normal(), -3, 3))

    def _arrive(self, until_s: float) -> None:
        slices = 20
        width = (until_s - self.now_s) / slices
        for i in range(slices):
            at = self.now_s + i * width
            self.queue.append((at, round(self.arrivals_per_s(at) * width)))
        self.now_s = until_s

    def step(self, channels: Mapping[str, int]) -> EpochMeasurement:
        self.queue = [(at, rows) for at, rows in self.queue if rows > 0]
        ready = sum(rows for _, rows in self.queue)
        taken = ready if self.rows_max is None else min(ready, self.rows_max)
        waited = self.now_s - self.queue[0][0] if self.queue else 0.0
        left = taken
        while left > 0:
            at, rows = self.queue[0]
            used = min(rows, left)
            left -= used
            if used == rows:
                self.queue.pop(0)
            else:
                self.queue[0] = (at, rows - used)
        stages = []
        for i, (name, rate) in enumerate(self.region_rates.items()):
            pause = self.pauses.get(self.epoch, 0.0) if i == 0 else 0.0
            stages.append((name, taken / (rate * channels[name]) * self._factor() + pause))
        sink = taken / self.sink_rate * self._factor()
        duration = self.overhead_s + sum(seconds for _, seconds in stages) + sink
        measurement = EpochMeasurement(
            epoch=self.epoch,
            started_s=self.now_s,
            duration_s=duration,
            ready_rows=ready,
            taken_rows=taken,
            region_s=tuple(stages),
            sink_s=sink,
            overhead_s=self.overhead_s,
            target_s=self.target_s,
            waited_s=waited if self.tells_waiting else None,
        )
        self.epoch += 1
        self._arrive(self.now_s + max(duration, self.trigger_s))
        return measurement
