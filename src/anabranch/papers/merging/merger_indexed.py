"""Merging by ⟨sequence, emission⟩: what allows a shuffle after a prolific region.

    source ─ 7:x ─ left channel 1 emits  7.0:p  7.1:q  7.2:r
                      shuffle            7.0 → right 0   7.1 → right 1   7.2 → right 0
                      merger             right 0: 7.0 7.2      right 1: 7.1      → 7.0 7.1 7.2

Behind the shuffle one number comes on several channels, so "its duplicates are on the channel that
delivered it" is no longer true and the paper forbids the shuffle. The index at which a tuple was emitted puts
them back.

A *key* is ⟨sequence, emission⟩. A punctuation s stands behind everything numbered s: its emission is `END`.
So operators may also emit on a window or final punctuation, on every channel (a partitioned aggregate that
ends its windows), if their emissions say in which order. Nobody emits on a pulse.

As in merger_numbered the frontier of a channel is the least key that may still come on it: after a tuple its
own key (a prolific region before the last merger repeats it), after a punctuation s the key ⟨s+1, ()⟩, which
is below every key of s+1. The top of the next-heap, z, may leave when

    z = last, on the channel of last;
    no key fits between last and z, and the frontier of last's channel is past last; or
    z ≤ floor.

Nothing fits between ⟨s, (…, i)⟩ and ⟨s, (…, i+1)⟩, nor between the punctuation s-1 and ⟨s, (0, …, 0)⟩ or a
pulse s. Something may fit between the last tuple of s-1 and the first of s, for nobody says how many s-1
emitted: there the floor decides, which pulses keep moving.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from typing import Any

from anabranch.papers.merging.merger_base import Merger
from anabranch.papers.merging.ordering import Numbered, Strategy
from anabranch.papers.merging.punctuation import Punctuation

Key = tuple[float, tuple[float, ...]]

END = (float("inf"),)
"""The emission of a punctuation: above that of every tuple."""
NEVER: Key = (float("inf"), END)

_FINAL = Punctuation.FINAL  # an enum's attribute costs as much as a heap operation
_PULSE = Punctuation.PULSE


class IndexedMerger(Merger):
    """For regions behind a shuffle behind a prolific region, and for regions that emit on punctuations.

    Parameters
    ----------
    depth
        The length of every emission that comes here: the number of prolific regions passed that ended in a
        shuffle, and at least 1.
    """

    strategy = Strategy.INDEXED

    def __init__(self, channels: int, *, depth: int = 1, in_shuffle: bool = False, capacity: int | None = None) -> None:
        super().__init__(channels, in_shuffle=in_shuffle, capacity=capacity)
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self._depth = depth
        self._zeros = (0,) * depth
        self._next: list[tuple[Key, int]] = []
        self._frontier: list[Key] = [(0, ())] * channels
        self._seen = [(self._frontier[channel], channel) for channel in range(channels)]
        # The top of the seen-heap when it was last corrected. Still the floor if that channel's frontier is.
        self._floor = self._frontier[0]
        self._floor_channel = 0
        self._last: Key = (-1, END)
        self._last_channel = 0

    def push(self, channel: int, item: Numbered) -> list[Any]:
        sequence, value, emission = item
        key: Key
        if value.__class__ is Punctuation:
            key = (sequence, END)
            frontier: Key = NEVER if value is _FINAL else (sequence + 1, ())
        elif len(emission) == self._depth:
            frontier = key = (sequence, emission)
        else:
            raise self._violation(f"{item} has an emission whose length is not {self._depth}", channel, item)
        if key < self._frontier[channel]:
            over = self._frontier[channel]
            if over == NEVER:
                raise self._violation(f"{item} after the final punctuation or after finish()", channel, item)
            raise self._violation(f"{item}, but keys below {over} are over on this channel", channel, item)
        self._frontier[channel] = frontier
        self._received[channel] += 1
        if key == self._last and channel == self._last_channel:
            return [item if self._in_shuffle else value]
        queue = self._queues[channel]
        if not queue:
            heappush(self._next, (key, channel))
        queue.append((key, item))
        self._held += 1
        out = []
        # Else neither the floor nor the channel of last has moved: the item sets nothing free.
        if (
            channel == self._last_channel
            or sequence <= self._last[0] + 1
            or key <= self._floor
            or self._frontier[self._floor_channel] != self._floor
        ):
            out = self._drain()
        self._account(channel, 1)
        return out

    def finish(self) -> list[Any]:
        self._frontier = [NEVER] * self.channels
        return self._drain()

    def _drain(self) -> list[Any]:
        out: list[Any] = []
        heap = self._next
        floor = self._raise_floor()
        while heap:
            key, channel = heap[0]
            queue = self._queues[channel]
            value = queue[0][1][1]
            if key > floor and key > self._last and not self._is_next(key, value):
                break
            item = queue.popleft()[1]
            self._held -= 1
            if queue:
                heapreplace(heap, (queue[0][0], channel))
            else:
                heappop(heap)
            if value.__class__ is not Punctuation:
                if key <= self._last and (key < self._last or channel != self._last_channel):
                    raise self._violation(
                        f"{item}, but {self._last} has left from channel {self._last_channel}: "
                        f"two channels sent one key, or an emission was negative",
                        channel,
                        item,
                    )
                self._last = key
                self._last_channel = channel
                out.append(item if self._in_shuffle else value)
            elif key <= self._last:
                self._dropped += 1
            else:
                self._last = key
                self._last_channel = channel
                if value is _PULSE and not self._in_shuffle:
                    self._dropped += 1
                else:
                    out.append(item if self._in_shuffle else value)
        return out

    def _is_next(self, key: Key, value: Any) -> bool:
        """Whether nothing can come between the item last released and this one."""
        sequence, emission = key
        last_sequence, last_emission = self._last
        if last_emission is END:
            return sequence == last_sequence + 1 and (emission == self._zeros or value is _PULSE)
        return (
            sequence == last_sequence
            and emission is not END
            and emission[-1] == last_emission[-1] + 1
            and emission[:-1] == last_emission[:-1]
            and self._frontier[self._last_channel] > self._last
        )

    def _raise_floor(self) -> Key:
        """Correct the top of the seen-heap; return the least key that may still come on any channel."""
        seen = self._seen
        while True:
            frontier, channel = seen[0]
            if frontier == self._frontier[channel]:
                self._floor, self._floor_channel = frontier, channel
                return frontier
            heapreplace(seen, (self._frontier[channel], channel))

    def _waiting_for(self) -> tuple[int, ...]:
        if not self._next:
            return ()
        key = self._next[0][0]
        return tuple(c for c, frontier in enumerate(self._frontier) if frontier < key)
