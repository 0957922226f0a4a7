"""Joins that hold a tuple until a time has come.

`WatermarkJoin`: tuples of two streams whose event times are near each other. A tuple is held until the watermark of
both streams has passed the last time that could meet it; if it met none, an outer join emits it then.

`LastingJoin`: tuples of two streams with one key, however far apart they come, or within a time to live by the clock of
the epochs. What an outer join emits without a partner comes out when its time to live is over; without one, when the
input ends.
"""

from __future__ import annotations

from typing import Any

from anabranch.operators.joins import WindowJoin
from anabranch.operators.library_operator import LATE, NULL_KEY
from anabranch.program.event_time import END, TimeScale


class _HoldingJoin(WindowJoin):
    """A held tuple is a list ``[tuple, has it met one, until when it is held]``; None: for ever."""

    timer_due: int | None

    def take_left(self, t: Any, now: int) -> Any:  # type: ignore[override]
        return self._take_at(0, t, now)

    def take_right(self, t: Any, now: int) -> Any:  # type: ignore[override]
        return self._take_at(1, t, now)

    def _take_at(self, side: int, t: Any, now: int) -> Any:
        if not self.guards[side].admits(self, t):
            return
        t = tuple(t)
        if any(t[place] is None for place in self.keys[side]):
            # As in SQL, null equals nothing: it could only wait in vain.
            self.note(NULL_KEY)
            if self.pads[side]:
                yield self._pair(side, t, None)
            return
        mine = self._held(side, t, now)
        if mine is None:
            self.note(LATE)
            return
        windows = (self.left, self.right)
        windows[side].append(mine)
        until = mine[2]
        if until is not None and (self.timer_due is None or until < self.timer_due):
            self.timer_due = until
        for held in windows[1 - side]:
            if self._meets(side, mine, held):
                held[1] = mine[1] = True
                yield self._pair(side, t, held[0])

    def _held(self, side: int, t: Any, now: int) -> list[Any] | None:
        """A tuple as it is held; None if it is late."""
        raise NotImplementedError

    def _meets(self, side: int, mine: list[Any], held: list[Any]) -> bool:
        return True

    def fire(self, time: int) -> Any:
        """Let go what was held until now: the left side first, each in the order it came."""
        for side, window in ((0, self.left), (1, self.right)):
            gone = [held for held in window if held[2] is not None and held[2] <= time]
            if gone:
                window[:] = [held for held in window if held[2] is None or held[2] > time]
                for held in gone:
                    yield from self._leave(side, held)
        held_until = [held[2] for window in (self.left, self.right) for held in window if held[2] is not None]
        self.timer_due = min(held_until, default=None)


class WatermarkJoin(_HoldingJoin):
    """The tuples of both sides for one key that a tuple which is not late may still meet."""

    scale: TimeScale
    spans: tuple[int, int]

    def _held(self, side: int, t: Any, now: int) -> list[Any] | None:
        at = self.scale.number(t[self.places[side]])
        return None if at < now else [t, False, at + self.spans[side] + 1, at]

    def _meets(self, side: int, mine: list[Any], held: list[Any]) -> bool:
        apart: int = mine[3] - held[3]
        return -self.spans[side] <= apart <= self.spans[1 - side]


class LastingJoin(_HoldingJoin):
    """The tuples of both sides for one key."""

    ttl_ms: int | None

    def _held(self, side: int, t: Any, now: int) -> list[Any] | None:
        if self.ttl_ms is not None:
            return [t, False, now + self.ttl_ms]
        return [t, False, END if self.pads[side] else None]
