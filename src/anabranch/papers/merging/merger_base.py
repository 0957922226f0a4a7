"""What all mergers have in common: the interface, the statistics, the account of what waits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from anabranch.papers.merging.ordering import OrderViolation, Strategy


@dataclass(frozen=True)
class MergerStatistics:
    """What a merger has done so far and what it waits for."""

    received: tuple[int, ...]
    """Items that came, per channel: tuples, punctuations and pulses."""
    released: int
    """Items let out."""
    dropped: int
    """Copies of punctuations, and (outside a shuffle) pulses, that ended here."""
    queue_lengths: tuple[int, ...]
    """Items waiting now, per channel."""
    held_peak: int
    """The most items that ever waited at the end of a call, over all channels together."""
    blocked: tuple[int, ...]
    """Items that could not leave in the call that brought them, per channel."""
    waiting_for: tuple[int, ...]
    """Channels whose silence holds back the next item; empty if nothing waits."""

    @property
    def held(self) -> int:
        """Items waiting now, over all channels."""
        return sum(self.queue_lengths)


class Merger(ABC):
    """Puts the streams of the channels of a region back into the one order they came from.

    Events in, released items out: it has no clock, does no I/O and starts nothing by itself.

    Parameters
    ----------
    channels
        How many channels lead here.
    in_shuffle
        If true, released items keep their numbers and one copy of each pulse is let through, because another
        merger follows; else values come out bare and pulses end here.
    capacity
        Items that may wait on one channel. `accepts` tells a driver when to stop reading a channel; a push
        that would leave more waiting raises. None: as many as come.
    """

    strategy: ClassVar[Strategy]

    def __init__(self, channels: int, *, in_shuffle: bool = False, capacity: int | None = None) -> None:
        if channels < 1:
            raise ValueError(f"a region needs at least one channel, got {channels}")
        if in_shuffle and not self.strategy.is_pulsed:
            raise ValueError(
                f"{self.strategy.value} inside a shuffle: a merger there sees only the tuples routed to it, "
                f"so numbers are missing; use STRICT, RELAXED or INDEXED"
            )
        if capacity is not None and capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.channels = channels
        self._in_shuffle = in_shuffle
        self._capacity = capacity
        self._queues: list[deque[Any]] = [deque() for _ in range(channels)]
        self._received = [0] * channels
        self._blocked = [0] * channels
        self._dropped = 0
        self._held = 0
        self._held_peak = 0

    @abstractmethod
    def push(self, channel: int, item: Any) -> list[Any]:
        """Take the next item of a channel; return the items that may now leave, in order."""

    def push_many(self, channel: int, items: Sequence[Any]) -> list[Any]:
        """As `push`, for consecutive items of one channel."""
        out: list[Any] = []
        for item in items:
            out += self.push(channel, item)
        return out

    @abstractmethod
    def finish(self) -> list[Any]:
        """No channel will send any more: return what is left, in order. Raises if something is missing."""

    def accepts(self, channel: int) -> bool:
        """Whether the channel has room for one more item."""
        return self._capacity is None or len(self._queues[channel]) < self._capacity

    def statistics(self) -> MergerStatistics:
        lengths = tuple(len(queue) for queue in self._queues)
        return MergerStatistics(
            received=tuple(self._received),
            released=sum(self._received) - self._dropped - sum(lengths),
            dropped=self._dropped,
            queue_lengths=lengths,
            held_peak=self._held_peak,
            blocked=tuple(self._blocked),
            waiting_for=self._waiting_for(),
        )

    @abstractmethod
    def _waiting_for(self) -> tuple[int, ...]: ...

    def _account(self, channel: int, arrived: int) -> None:
        """Note what a call left behind on the channel it was about."""
        waiting = len(self._queues[channel])
        if waiting:
            self._blocked[channel] += min(waiting, arrived)
            if self._held > self._held_peak:
                self._held_peak = self._held
            if self._capacity is not None and waiting > self._capacity:
                raise self._violation(
                    f"{waiting} items wait, capacity is {self._capacity}: ask accepts() first", channel
                )

    def _violation(self, what: str, channel: int | None = None, item: Any = None) -> OrderViolation:
        where = "" if channel is None else f" on channel {channel}"
        return OrderViolation(
            f"{self.strategy.value} merger{where}: {what}",
            channel=channel,
            item=item,
            state=self.statistics(),
        )
