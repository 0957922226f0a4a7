"""Clocks of a simulated world.

`VirtualClock` is the driver's: it stands still unless the world moves it, so what the driver does itself takes no time
and every second in its measurements is one that somebody modelled. `TickingClock` is for tasks: their code looks at a
clock to find out which calls take long, and must find the same every time a world is run.
"""

from __future__ import annotations

START_S = 1_700_000_000.0
"""The time of day at which every world begins, in seconds since 1970."""


class VirtualClock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.at_s = 0.0
        """Seconds since the world began."""

    def now_s(self) -> float:
        """Seconds since 1970."""
        return START_S + self.at_s

    def passing_s(self) -> float:
        """Seconds since the world began."""
        return self.at_s

    def processor_s(self) -> float:
        """As many as passed."""
        return self.at_s

    def pass_by(self, seconds: float) -> None:
        """So many seconds pass."""
        if not seconds >= 0:
            raise ValueError(f"time only goes forward, not by {seconds} s")
        self.at_s += seconds

    def wait_until(self, at_s: float) -> None:
        """Let time pass until then; none, if it is later already."""
        self.at_s = max(self.at_s, at_s)


class TickingClock:
    """A clock of a task: each look at it takes one tick, and nothing else takes any time."""

    def __init__(self, tick_s: float) -> None:
        self._tick_s = tick_s
        self._looks = 0

    def now_s(self) -> float:
        return START_S

    def passing_s(self) -> float:
        self._looks += 1
        return self._looks * self._tick_s

    def processor_s(self) -> float:
        return self._looks * self._tick_s
