"""Merging by sequence number: SEQUENCE, STRICT and RELAXED (*Safe*, 4.3.2 to 4.3.4).

Each channel's items come in order, so this is a merge of sorted queues in which one never knows how long a
queue will be. Three things are kept:

    queues      items that came and may not leave yet, per channel
    next-heap   the front of every queue that is not empty: what would leave next
    seen-heap   the *frontier* of every channel: the least number that may still come on it

The paper's seen-heap holds the number last seen. The frontier says the same and a little more: after a tuple
s it is s+1, or s where duplicates are allowed; after a punctuation s it is s+1 always, since a punctuation
has no duplicates on its channel. It starts at 0, so "steady state" (something was heard from every channel)
needs no case of its own: before that the least frontier, the *floor*, is 0 and proves nothing.

An item z at the top of the next-heap may leave when no smaller number can come:

    SEQUENCE    z = last + 1
    STRICT      z = last + 1, or z ≤ floor
    RELAXED     z = last;  z = last + 1 and the frontier of last's channel is past last;  or z ≤ floor

A duplicate can only come on the channel that delivered its number, which is why RELAXED asks one channel
(the paper's `lastChan` and `noDups`). If last was a punctuation, the answer is known: its channel is past it.

Heap entries are `number * channels + channel`: one integer orders as the pair does and compares in half the
time. Frontiers only rise, so an entry of the seen-heap that is out of date is too low, never too high, and
it is enough to correct the top until it is current.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush, heapreplace
from typing import Any

from anabranch.papers.merging.merger_base import Merger
from anabranch.papers.merging.ordering import Numbered, OrderViolation, Strategy
from anabranch.papers.merging.punctuation import Punctuation

NEVER = 1 << 256
"""The frontier of a channel on which nothing follows. An integer, for the arithmetic of heap entries."""

_FINAL = Punctuation.FINAL  # an enum's attribute costs as much as a heap operation
_PULSE = Punctuation.PULSE


class NumberedMerger(Merger):
    """The queues and the two heaps."""

    def __init__(self, channels: int, *, in_shuffle: bool = False, capacity: int | None = None) -> None:
        super().__init__(channels, in_shuffle=in_shuffle, capacity=capacity)
        self._next: list[int] = []
        self._frontier = [0] * channels
        self._seen = list(range(channels))
        # The top of the seen-heap when it was last corrected. Still the floor if that channel's frontier is.
        self._floor = 0
        self._floor_channel = 0
        self._last = -1

    def push_many(self, channel: int, items: Sequence[Numbered]) -> list[Any]:
        frontier = self._frontier[channel]
        for item in items:
            if item[0] < frontier:
                raise self._out_of_order(channel, item)
            frontier = self._frontier_after(item)
        self._frontier[channel] = frontier
        self._received[channel] += len(items)
        if not items:
            return []
        for item in items:
            self._enqueue(channel, item)
        out = self._drain()
        self._account(channel, len(items))
        return out

    def finish(self) -> list[Any]:
        self._frontier = [NEVER] * self.channels
        return self._drain()

    def _frontier_after(self, item: Numbered) -> int:
        return NEVER if item[1] is _FINAL else item[0] + 1

    def _enqueue(self, channel: int, item: Numbered) -> None:
        queue = self._queues[channel]
        if not queue:
            heappush(self._next, item[0] * self.channels + channel)
        queue.append(item)
        self._held += 1

    def _drain(self) -> list[Any]:
        raise NotImplementedError

    def _raise_floor(self) -> int:
        """Correct the top of the seen-heap; return the least number that may still come on any channel."""
        seen, frontier, channels = self._seen, self._frontier, self.channels
        while True:
            entry = seen[0]
            channel = entry % channels
            current = frontier[channel] * channels + channel
            if entry == current:
                self._floor_channel = channel
                self._floor = frontier[channel]
                return self._floor
            heapreplace(seen, current)

    def _waiting_for(self) -> tuple[int, ...]:
        if not self._next:
            return ()
        sequence = self._next[0] // self.channels
        return tuple(c for c, frontier in enumerate(self._frontier) if frontier < sequence)

    def _out_of_order(self, channel: int, item: Numbered) -> OrderViolation:
        frontier = self._frontier[channel]
        if frontier == NEVER:
            return self._violation(f"{item} after the final punctuation or after finish()", channel, item)
        return self._violation(f"{item}, but numbers below {frontier} are over on this channel", channel, item)


class StrictMerger(NumberedMerger):
    """For regions that emit at most one tuple per tuple."""

    strategy = Strategy.STRICT

    def push(self, channel: int, item: Numbered) -> list[Any]:
        sequence, value, _ = item
        frontier = self._frontier
        if sequence < frontier[channel]:
            raise self._out_of_order(channel, item)
        self._received[channel] += 1
        frontier[channel] = NEVER if value is _FINAL else sequence + 1
        last = self._last
        if sequence == last + 1:
            if not self._next and value.__class__ is not Punctuation:
                self._last = sequence
                return [item if self._in_shuffle else value]
            self._enqueue(channel, item)
            return self._drain()
        self._enqueue(channel, item)
        out = []
        # Else the floor has not moved, and the item is neither next nor below it: it sets nothing free.
        if sequence <= self._floor or frontier[self._floor_channel] != self._floor or sequence <= last:
            out = self._drain()
        self._account(channel, 1)
        return out

    def _drain(self) -> list[Any]:
        out: list[Any] = []
        heap, queues, channels, last = self._next, self._queues, self.channels, self._last
        in_shuffle = self._in_shuffle
        floor = self._floor
        if self._frontier[self._floor_channel] != floor:
            floor = self._raise_floor()
        entry_end = (max(last + 1, floor) + 1) * channels  # the first entry that may not leave
        popped = 0
        while heap and (entry := heap[0]) < entry_end:
            channel = entry % channels
            queue = queues[channel]
            item = queue.popleft()
            popped += 1
            if queue:
                heapreplace(heap, queue[0][0] * channels + channel)
            else:
                heappop(heap)
            sequence, value, _ = item
            if sequence > last:
                if sequence > last + 1:
                    self._skip(last, sequence)
                last = sequence
                if value is _PULSE and not in_shuffle:
                    self._dropped += 1
                else:
                    out.append(item if in_shuffle else value)
                if last >= floor:
                    entry_end = (last + 2) * channels
            elif value.__class__ is Punctuation:
                self._dropped += 1
            else:
                raise self._violation(f"{item}, but the numbers up to {last} have left", channel, item)
        self._last = last
        self._held -= popped
        return out

    def _skip(self, last: int, sequence: int) -> None:
        """The numbers between these two will never come."""


class SequenceMerger(StrictMerger):
    """For regions that emit exactly one tuple per tuple: every number comes, so the floor is not needed.

    It is kept all the same: once it is past a number that is not here, that number is lost, and raising
    then is better than waiting for ever.
    """

    strategy = Strategy.SEQUENCE

    def _skip(self, last: int, sequence: int) -> None:
        raise self._violation(
            f"number {last + 1} can no longer come, the next one here is {sequence}; an operator dropped a "
            f"tuple, so the region needs STRICT"
        )


class RelaxedMerger(NumberedMerger):
    """For regions that emit any number of tuples per tuple."""

    strategy = Strategy.RELAXED

    def __init__(self, channels: int, *, in_shuffle: bool = False, capacity: int | None = None) -> None:
        super().__init__(channels, in_shuffle=in_shuffle, capacity=capacity)
        self._last_channel = 0  # where last came from

    def push(self, channel: int, item: Numbered) -> list[Any]:
        sequence, value, _ = item
        frontier = self._frontier
        if sequence < frontier[channel]:
            raise self._out_of_order(channel, item)
        self._received[channel] += 1
        last = self._last
        last_channel = self._last_channel
        if value.__class__ is Punctuation:
            frontier[channel] = NEVER if value is _FINAL else sequence + 1
        else:
            frontier[channel] = sequence
            if sequence == last:
                # A duplicate leaves at once and proves nothing about what waits.
                if channel == last_channel:
                    return [item if self._in_shuffle else value]
            elif sequence == last + 1 and not self._next and frontier[last_channel] > last:
                self._last = sequence
                self._last_channel = channel
                return [item if self._in_shuffle else value]
        self._enqueue(channel, item)
        out = []
        # Else neither the floor nor the channel of last has moved: the item sets nothing free.
        if (
            channel == last_channel
            or sequence <= last + 1
            or sequence <= self._floor
            or frontier[self._floor_channel] != self._floor
        ):
            out = self._drain()
        self._account(channel, 1)
        return out

    def _frontier_after(self, item: Numbered) -> int:
        sequence, value, _ = item
        if value.__class__ is not Punctuation:
            return sequence
        return NEVER if value is _FINAL else sequence + 1

    def _drain(self) -> list[Any]:
        out: list[Any] = []
        heap, queues, channels, last = self._next, self._queues, self.channels, self._last
        frontier, in_shuffle = self._frontier, self._in_shuffle
        last_channel = self._last_channel
        floor = self._floor
        if frontier[self._floor_channel] != floor:
            floor = self._raise_floor()
        popped = 0
        while heap:
            entry = heap[0]
            sequence = entry // channels
            if sequence > floor and sequence > last and (sequence > last + 1 or frontier[last_channel] <= last):
                break
            channel = entry % channels
            queue = queues[channel]
            item = queue.popleft()
            popped += 1
            if queue:
                heapreplace(heap, queue[0][0] * channels + channel)
            else:
                heappop(heap)
            value = item[1]
            if value.__class__ is not Punctuation:
                if sequence <= last and (sequence < last or channel != last_channel):
                    raise self._violation(
                        f"{item}, but {last} has left; if a number can come on several channels, the region "
                        f"needs INDEXED",
                        channel,
                        item,
                    )
                last = sequence
                last_channel = channel
                out.append(item if in_shuffle else value)
            elif sequence <= last:
                self._dropped += 1
            else:
                last = sequence
                last_channel = channel
                if value is _PULSE and not in_shuffle:
                    self._dropped += 1
                else:
                    out.append(item if in_shuffle else value)
        self._last = last
        self._last_channel = last_channel
        self._held -= popped
        return out

    def _waiting_for(self) -> tuple[int, ...]:
        if self._next and self._next[0] // self.channels == self._last + 1:
            return (self._last_channel,)
        return super()._waiting_for()
