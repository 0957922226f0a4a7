"""Timers of an operator's keys: after ``self.timers.at(time)`` ``on_timer(self, time)`` is called when that has come.

A key's timers are its state: a sorted list of (when it is due, the time that was asked for). The two differ only for
times that had passed already: those are due at the next advance, as if they were for the first time behind the
watermark. The first is what the key waits for (`timer_due`). Each timer is a call of its own; several may be due at one
time, and one that sets a later time which has come already is due at the time that it was due itself.
"""

from __future__ import annotations

import bisect
from typing import Any

from anabranch.errors import ProgramError
from anabranch.operators.epoch_context import moment
from anabranch.program.calling import emitted
from anabranch.program.event_time import BEGINNING, END, LAST, TimeScale

TIMER_FIELDS = ("timer_due", "timer_since", "timer_times")
"""The state of a key that has timers."""


_UNKNOWN = BEGINNING // 2
"""Times below this were counted from a watermark that had no value yet."""


class Timers:
    """The timers of one key."""

    __slots__ = ("_owner", "_scale")

    def __init__(self, owner: Any, scale: TimeScale) -> None:
        self._owner = owner
        self._scale = scale

    @property
    def now(self) -> Any:
        """How far time has come: the watermark or, by the clock, the time of the epoch.

        None before a watermark has a value; at the end of the input, when all time has come, the last time there is.
        """
        reached = moment().reached
        return None if reached <= BEGINNING else self._scale.value(min(reached, LAST))

    @property
    def pending(self) -> list[Any]:
        """The times that timers are set for."""
        return [self._scale.value(asked) for _, asked in self._owner.timer_times if _UNKNOWN <= asked < END]

    def at(self, time: Any) -> None:
        """Set a timer. There is one for each time, however often it is set.

        One for a time that has passed is due when time next moves on. While the input ends, no more are set.
        """
        self._at(self._scale.number(time))

    def _at(self, asked: int) -> None:
        now = moment()
        if now.reached >= END:
            return
        if asked > now.reached:
            self._set(asked, asked)
        elif now.fired is not None and asked > now.asked:  # it catches up: in this advance
            self._set(max(asked, now.fired), asked)
        else:
            self._set(now.reached + 1, asked)

    def after(self, duration: Any) -> None:
        """Set a timer for so long after `now`; for timestamps, and by the clock, a number means seconds.

        Before the watermark has a value, at the first tuples of a stream, it counts from the first it has.
        """
        self._at(moment().reached + self._scale.span(duration))

    def cancel(self, time: Any) -> bool:
        """Remove the timer of a time; whether there was one."""
        asked, owner = self._scale.number(time), self._owner
        kept = [each for each in owner.timer_times if each[1] != asked]
        found = len(kept) < len(owner.timer_times)
        owner.timer_times = kept
        owner.timer_due = kept[0][0] if kept else None
        return found

    def _set(self, due: int, asked: int) -> None:
        owner = self._owner
        if all(each[1] != asked for each in owner.timer_times):
            bisect.insort(owner.timer_times, (due, asked))
            owner.timer_due = owner.timer_times[0][0]


class TimedOperator:
    """What an operator of the user's gets if it has timers: how it is called when one is due."""

    timer_due: int | None
    timer_times: list[tuple[int, int]]
    timer_scale: TimeScale
    punctuation_open: bool

    @property
    def timers(self) -> Timers:
        """The timers of this key."""
        if not hasattr(self, "timer_scale"):
            if type(self).on_timer is TimedOperator.on_timer:
                raise ProgramError(f"{type(self).__name__} has no timers: it has no method on_timer(self, time)")
            raise ProgramError(
                f"{type(self).__name__} is called by itself, where no time passes: anabranch.testing.Harness runs an "
                "operator alone, with timers; harness.advance(time) or .clock(seconds) calls them"
            )
        return Timers(self, self.timer_scale)

    def take_until_end(self, t: Any) -> Any:
        """Take a tuple, for an operator that wants to be called at the end of the input."""
        self.timers._set(END, END)
        return self.process(t)  # type: ignore[attr-defined]

    def fire_timers(self, due: int) -> Any:
        """Call the first that is due."""
        asked = self._taken()
        if asked is None:
            return
        moment().asked = asked
        called = self.on_end() if asked == END else self.on_timer(self.timer_scale.value(asked))
        for each in emitted(called):
            yield each
            moment().asked = asked  # others may have been called since

    def _taken(self) -> int | None:
        """The first timer, which is removed; None if it was set before there was a watermark: it is set anew now."""
        (_, asked), *self.timer_times = self.timer_times
        self.timer_due = self.timer_times[0][0] if self.timer_times else None
        if asked >= _UNKNOWN:
            return asked
        reached = moment().reached
        if reached < END:  # so long after the first watermark, which has come now
            asked += reached - BEGINNING
            self.timers._set(max(asked, reached + 1), asked)
        return None

    def give_up(self, due: int | None = None) -> None:
        """A call for a time, or for a punctuation, has failed and changed nothing: it is not made again."""
        if due is None:
            self.punctuation_open = False
            return
        self._taken()

    def take_until_punctuation(self, t: Any) -> Any:
        """Take a tuple, for an operator that wants to be called at the next punctuation."""
        self.punctuation_open = True
        return self.process(t)  # type: ignore[attr-defined]

    def call_punctuated(self) -> Any:
        """Call it at a punctuation."""
        self.punctuation_open = False
        return self.on_punctuation()  # type: ignore[attr-defined]

    def on_timer(self, time: Any) -> Any:
        """Called when time has come to a timer; yields or returns tuples. Subclasses define it."""

    def on_end(self) -> Any:
        """Called when the input has ended, if the query is told to. Subclasses may define it."""
