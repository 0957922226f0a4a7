"""Merging without numbers: take tuples back in the turn in which they were dealt (*Safe*, 4.3.1 and 5.4).

    splitter dealt   a0 b1 | c2 d0          (| went to all three channels)
    channel 0        a | d
    channel 1        b |                    turn: 0 1 2 0 …
    channel 2        | c

A punctuation at the front of the channel whose turn it is is the next item, whatever the others hold; it
does not use up the turn. The paper then waits for a full round of copies. Here each channel's copies are
counted instead, and a copy is dropped when it comes to the front: the tuple behind the first copy need not
wait for the others.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from anabranch.papers.merging.merger_base import Merger
from anabranch.papers.merging.ordering import Strategy
from anabranch.papers.merging.punctuation import Punctuation


class RoundRobinMerger(Merger):
    """For stateless regions that emit exactly one tuple per tuple. Values travel bare."""

    strategy = Strategy.ROUND_ROBIN

    def __init__(self, channels: int, *, in_shuffle: bool = False, capacity: int | None = None) -> None:
        super().__init__(channels, in_shuffle=in_shuffle, capacity=capacity)
        self._turn = 0
        self._copies = [0] * channels  # punctuations taken from the front of each channel's queue
        self._punctuations = 0  # punctuations released
        # Those of them whose copies are not all here yet; the last one is number self._punctuations - 1.
        self._outstanding: deque[Punctuation] = deque()
        self._ended = [False] * channels

    def push(self, channel: int, item: Any) -> list[Any]:
        if self._ended[channel]:
            raise self._violation("an item after the final punctuation or after finish()", channel, item)
        self._received[channel] += 1
        queue = self._queues[channel]
        if item.__class__ is Punctuation:
            if item is Punctuation.PULSE:
                raise self._violation("a pulse, which round-robin does not use", channel, item)
            if item is Punctuation.FINAL:
                self._ended[channel] = True
            if not queue and self._copies[channel] < self._punctuations:
                self._drop_copy(channel, item)
                return []
        elif channel == self._turn and not queue and self._copies[channel] == self._punctuations:
            turn = channel + 1 if channel + 1 < self.channels else 0
            self._turn = turn
            if self._queues[turn]:
                return self._drain([item])
            return [item]
        queue.append(item)
        self._held += 1
        out = self._drain([]) if channel == self._turn else []
        self._account(channel, 1)
        return out

    def finish(self) -> list[Any]:
        self._ended = [True] * self.channels
        if self._held:
            raise self._violation("the streams have ended, but the tuple whose turn it is never came", self._turn)
        if self._outstanding:
            lost = [channel for channel, copies in enumerate(self._copies) if copies < self._punctuations]
            raise self._violation("the streams have ended and copies of a punctuation are missing", lost[0])
        return []

    def _drain(self, out: list[Any]) -> list[Any]:
        turn = self._turn
        queue = self._queues[turn]
        while queue:
            item = queue.popleft()
            self._held -= 1
            if item.__class__ is Punctuation:
                # Copies are dropped as soon as they are at a front, so this is the first one of its kind.
                out.append(item)
                self._copies[turn] += 1
                self._punctuations += 1
                if self.channels > 1:
                    self._outstanding.append(item)
                for channel in range(self.channels):
                    self._drop_copies_in_front(channel)
                continue
            if self._copies[turn] < self._punctuations:
                raise self._violation("a tuple where the copy of a punctuation has to be", turn, item)
            out.append(item)
            if queue and queue[0].__class__ is Punctuation:
                self._drop_copies_in_front(turn)
            turn = turn + 1 if turn + 1 < self.channels else 0
            self._turn = turn
            queue = self._queues[turn]
        return out

    def _drop_copies_in_front(self, channel: int) -> None:
        queue = self._queues[channel]
        while queue and queue[0].__class__ is Punctuation and self._copies[channel] < self._punctuations:
            self._drop_copy(channel, queue.popleft())
            self._held -= 1

    def _drop_copy(self, channel: int, item: Punctuation) -> None:
        expected = self._outstanding[self._copies[channel] - self._punctuations]
        if item is not expected:
            raise self._violation(f"{item} where the copy of {expected} has to be", channel, item)
        self._copies[channel] += 1
        self._dropped += 1
        if self._punctuations - min(self._copies) < len(self._outstanding):
            self._outstanding.popleft()

    def _waiting_for(self) -> tuple[int, ...]:
        return (self._turn,) if self._held else ()
