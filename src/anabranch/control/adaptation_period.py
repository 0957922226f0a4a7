"""Cuts the stream of epochs into adaptation periods: epochs in, now and then observations out.

A period ends when it has lasted `period_s` and has enough epochs to judge by, so that long epochs (a
saturated region) make longer periods instead of invalid ones. After a rescale of any region a new period
starts: epochs from before say nothing about the channels of now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anabranch.control.observation import Observation
from anabranch.control.signals import EPOCHS_MIN, EpochMeasurement, observe

EMPTY_EPOCHS_MAX = 20  # a quiet source must not keep a period open, or collect epochs, for ever


class AdaptationPeriods:
    """Collects epochs until a period is complete.

    Parameters
    ----------
    period_s
        Shortest adaptation period. The paper's is 5 s.
    period_epochs
        Fewest epochs of a period, beside those that say nothing.
    """

    def __init__(self, period_s: float, period_epochs: int = 0) -> None:
        if period_s < 0 or period_epochs < 0 or period_s == period_epochs == 0:
            raise ValueError(
                f"an adaptation period must be longer than 0 s or 0 epochs, got {period_s} s and {period_epochs} epochs"
            )
        self._period_s = period_s
        self._period_epochs = period_epochs
        self._period = 0
        self._channels: dict[str, int] = {}
        self._epochs: list[EpochMeasurement] = []

    @property
    def period(self) -> int:
        """The number of the last period that ended."""
        return self._period

    def restore(self, period: int) -> None:
        """Count on from the periods of an earlier driver."""
        self._period = period

    def handle(self, epoch: EpochMeasurement, channels: Mapping[str, int]) -> dict[str, Observation] | None:
        """Take a finished epoch and the channels it ran with; observations per region if a period ends."""
        if dict(channels) != self._channels:
            self._channels = dict(channels)
            self._epochs = [replace(epoch, warm_up=True)]
            return None
        self._epochs.append(epoch)
        first = self._epochs[0]
        useful = sum(1 for e in self._epochs[:-1] if e.taken_rows > 0 and not e.warm_up)
        lasted = epoch.started_s - first.started_s
        complete = (
            useful >= max(EPOCHS_MIN, self._period_epochs) or len(self._epochs) > EMPTY_EPOCHS_MAX + self._period_epochs
        )
        if lasted < self._period_s or not complete:
            return None
        self._period += 1
        observations = observe(self._period, self._epochs, self._channels)
        self._epochs = [epoch]
        return observations
