"""How late and how noisy measurements are: found out from what they say, not believed.

*Late.* What is reported after a move may still be about the time before it. A capacity answers a move up if it
differs clearly from the one before; if it does so only in a later period, measurements are late by the periods between,
and what was measured in them says nothing about the new number of channels:

    channels   4     8     8     8
    capacity   4000  4010  7980  8020       answered in the second period after the move: late by one
               before  └ not of 8 channels

*Noisy.* The spread between two periods at the same number of channels. A source that says its error is 0 may just not
know it; and one that tells another error each time, as stragglers make it do, is as uncertain in the periods that
happen to agree: what is told is averaged over periods, by squares.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

RESPONSE_SHARE = 0.2  # a capacity that differs by so much, beyond noise, from the one before a move answers it
LAG_PERIODS_MAX = 3
RATIO_MIN = 1.4  # of channels: a smaller move has no answer that could be told from noise
SPREAD_MAX = 0.5  # two capacities that differ by more are of two regions, not of a noisy one
NOISE_STEP = 0.25
DEVIATION_OF_MEAN_DIFFERENCE = 0.886  # of a normal distribution: standard deviation over mean absolute difference


@dataclass(slots=True)
class MeasurementQuality:
    """What is known about measurements; plain values, so that it is its own serialisation."""

    lag: int | None = None
    """Periods by which measurements are late; None: no move has been answered yet."""
    noise: float | None = None
    """Standard deviation of a capacity, relative; None: not seen yet."""
    told: float | None = None
    """Relative error as it is told, by squares over the latest periods; None: nothing was told yet."""
    before: float | None = None
    """Capacity before the last move up; None: answered, or not known."""
    latest: float | None = None
    """The last capacity at the present number of channels."""
    periods: int = 0
    """Periods since the last move."""
    taken: int = 0
    """Of these, those of which a capacity was taken, or that were not to be judged."""

    @property
    def settling(self) -> bool:
        """Whether the present period lies within the lag of the last move: it says nothing about the move."""
        return self.lag is not None and self.periods <= self.lag

    @property
    def unanswered(self) -> bool:
        """Whether the answer to the last move may still be on its way."""
        return self.lag is None and self.before is not None and self.periods <= LAG_PERIODS_MAX

    @property
    def error(self) -> float:
        """The relative error of a capacity: what is told, or what is seen if that is more."""
        return max(self.told or 0.0, self.noise or 0.0)

    def moved(self, ratio: float) -> None:
        """The number of channels has changed to so many times what it was; small moves have no clear answer."""
        self.before = self.latest if ratio >= RATIO_MIN else None
        self.latest = None
        self.periods = self.taken = 0

    def begin(self, told: float) -> None:
        """A period has passed since the last move; its error is told to be so much."""
        known = told**2 if self.told is None else self.told**2
        self.told = (known + NOISE_STEP * (told**2 - known)) ** 0.5
        if not self.settling and self.taken < self.periods:
            self.before = None  # the region had time left: an answer was there, or nobody asked
        self.periods += 1

    def take(self, capacity: float) -> bool:
        """Take a capacity of this period; True if those measured here before turn out to have been late."""
        late = False
        self.taken = self.periods
        if self._answers(capacity):
            assert self.before is not None
            # Something else than before the move was an answer, clear or not: what differs from it is another thing.
            is_first = self.latest is None or abs(self.latest - self.before) <= RESPONSE_SHARE * self.before
            late = is_first and self.periods - 1 > (self.lag or 0)
            if is_first:
                # Also less than was thought, if that is how it is now.
                self.lag = min(self.periods - 1, LAG_PERIODS_MAX)
            self.before = None
        elif self.latest is not None:
            spread = DEVIATION_OF_MEAN_DIFFERENCE * abs(capacity / self.latest - 1.0)
            if spread < SPREAD_MAX:
                self.noise = spread if self.noise is None else self.noise + NOISE_STEP * (spread - self.noise)
        self.latest = capacity if capacity > 0 else None
        return late

    def early(self, capacity: float | None) -> bool:
        """Whether a capacity answers the last move although it was not expected to do so yet."""
        return capacity is not None and self._answers(capacity)

    def _answers(self, capacity: float) -> bool:
        clearly = RESPONSE_SHARE + 2 * self.error
        return self.before is not None and abs(capacity - self.before) > clearly * self.before

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
