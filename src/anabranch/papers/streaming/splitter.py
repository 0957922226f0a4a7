"""The splitter: one stream in, a channel and a wire item out for every tuple.

Routing and ordering are separate (*Safe*, section 4.2): a region without state is dealt in turn, a region
with partitioned state is routed by a function of the tuple. Numbers are dense: tuples, punctuations and
pulses each take the next one, and the copies of one punctuation share theirs.

    in:  a  b  |  c          | a window punctuation, pulse_every=3
    ch0: 0a    2|    4p
    ch1:    1b 2| 3c 4p      a, b, c are three tuples, so a pulse follows
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from anabranch.papers.merging.ordering import Numbered, OrderViolation, Strategy
from anabranch.papers.merging.punctuation import Punctuation

Route = Callable[[Any], int]
Sends = list[tuple[int, Any]]
"""What to send where: (channel, wire item), in this order."""

PULSE_EVERY_PER_CHANNEL = 10
"""Tuples per channel and epoch when nothing else is said: the default of the paper (its Figure 9 is flat
from 8 on)."""

_new_tuple = tuple.__new__  # half the cost of calling Numbered(…)


@dataclass(frozen=True)
class SplitterStatistics:
    """What a splitter has done so far."""

    sent: tuple[int, ...]
    """Tuples sent to each channel."""
    punctuations: int
    """Window and final punctuations that came in; each was sent to every channel."""
    pulses: int
    """Pulses made here; each was sent to every channel."""
    sequence_next: int
    """The number that the next item gets; stays 0 under round-robin."""


class Splitter:
    """First joint of a region.

    Parameters
    ----------
    strategy
        The strategy of the merger that stands at the region's end. (If it ends in a shuffle, that of the
        mergers in the shuffle.)
    channels
        How many channels the region has.
    route
        From a tuple to its channel. Without it tuples are dealt in turn, which only a stateless region
        allows.
    pulse_every
        Tuples between two pulses, over all channels; by default 10 per channel. Only for strategies with
        pulses. A window punctuation serves as a pulse and starts the count afresh.

    Examples
    --------
    >>> splitter = Splitter(Strategy.SEQUENCE, 2, route=lambda text: len(text) % 2)
    >>> splitter.push("even")
    [(0, Numbered(sequence=0, value='even', emission=()))]
    """

    def __init__(
        self,
        strategy: Strategy,
        channels: int,
        *,
        route: Route | None = None,
        pulse_every: int | None = None,
    ) -> None:
        if channels < 1:
            raise ValueError(f"a region needs at least one channel, got {channels}")
        if strategy is Strategy.ROUND_ROBIN and route is not None:
            raise ValueError(
                "round-robin takes tuples back in the order they were dealt, so it cannot be combined with a "
                "routing function; use Strategy.SEQUENCE"
            )
        if pulse_every is not None and (pulse_every < 1 or not strategy.is_pulsed):
            raise ValueError(f"pulse_every={pulse_every} with {strategy}: needs a number ≥ 1 and a pulsed strategy")
        self.strategy = strategy
        self.channels = channels
        self._is_numbered = strategy.is_numbered
        self._is_pulsed = strategy.is_pulsed
        self._route = route
        self._pulse_every = pulse_every or PULSE_EVERY_PER_CHANNEL * channels
        self._tuples_until_pulse = self._pulse_every if strategy.is_pulsed else -1
        self._sequence = 0
        self._turn = 0
        self._sent = [0] * channels
        self._punctuations = 0
        self._pulses = 0
        self._ended = False

    def push(self, value: Any) -> Sends:
        """Take the next tuple or punctuation of the stream; say what to send where."""
        if value.__class__ is Punctuation:
            return self._push_punctuation(value)
        if self._ended:
            raise OrderViolation("a tuple after the final punctuation or after finish()", item=value)
        route = self._route
        if route is None:
            channel = self._turn
            self._turn = channel + 1 if channel + 1 < self.channels else 0
            if not self._is_numbered:
                self._sent[channel] += 1
                return [(channel, value)]
        else:
            channel = route(value)
            if not 0 <= channel < self.channels:
                raise OrderViolation(
                    f"the routing function answered channel {channel!r} for {value!r}; "
                    f"there are {self.channels}, counted from 0",
                    item=value,
                )
        self._sent[channel] += 1
        sequence = self._sequence
        self._sequence = sequence + 1
        sends = [(channel, _new_tuple(Numbered, (sequence, value, ())))]
        # Strategies without pulses count from -1 downwards and never meet 0.
        self._tuples_until_pulse -= 1
        if not self._tuples_until_pulse:
            sends += self.pulse()
        return sends

    def pulse(self) -> Sends:
        """Send a pulse now; for a driver whose source has gone quiet. Nothing where no pulses are used."""
        if not self._is_pulsed or self._ended:
            return []
        self._pulses += 1
        return self._to_all(Punctuation.PULSE)

    def finish(self) -> Sends:
        """The stream has ended, perhaps without a final punctuation: a last pulse, if pulses are used."""
        sends = self.pulse()
        self._ended = True
        return sends

    def statistics(self) -> SplitterStatistics:
        return SplitterStatistics(tuple(self._sent), self._punctuations, self._pulses, self._sequence)

    def _push_punctuation(self, punctuation: Punctuation) -> Sends:
        if punctuation is Punctuation.PULSE:
            raise OrderViolation(
                "a pulse reached a splitter from outside the region: the merger before it should have "
                "dropped it (in a shuffle, use ShuffleSplitter)",
                item=punctuation,
            )
        if self._ended:
            raise OrderViolation("a punctuation after the final one or after finish()", item=punctuation)
        self._punctuations += 1
        sends = self._to_all(punctuation)
        self._ended = punctuation is Punctuation.FINAL
        return sends

    def _to_all(self, punctuation: Punctuation) -> Sends:
        if not self._is_numbered:
            return [(channel, punctuation) for channel in range(self.channels)]
        if self._is_pulsed:
            self._tuples_until_pulse = self._pulse_every
        item = Numbered(self._sequence, punctuation)
        self._sequence += 1
        return [(channel, item) for channel in range(self.channels)]


class ShuffleSplitter:
    """Last joint of a left channel in a shuffle: routes numbered tuples, gives no numbers, makes no pulses.

    Punctuations and pulses go to every right channel; each right merger sees one copy per left channel and
    lets one through.
    """

    def __init__(self, channels: int, route: Route) -> None:
        if channels < 1:
            raise ValueError(f"a region needs at least one channel, got {channels}")
        self.channels = channels
        self._route = route

    def push(self, item: Numbered) -> Sends:
        """Take the next item of the left channel; say where to send it."""
        value = item[1]
        if value.__class__ is Punctuation:
            return [(channel, item) for channel in range(self.channels)]
        channel = self._route(value)
        if not 0 <= channel < self.channels:
            raise OrderViolation(
                f"the routing function answered channel {channel!r} for {value!r}; "
                f"there are {self.channels}, counted from 0",
                item=item,
            )
        return [(channel, item)]
