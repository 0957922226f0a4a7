"""A bounded queue between two nodes, with the delay of a network, in order.

What travels counts as being in the queue: a sender that finds `capacity` items in it blocks until the receiver
takes one. The receiver is told of an item when it arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol


class Marker:
    """Travels behind the last item of a generation: whoever has one from every side has seen everything."""


MARKER = Marker()


class Receiver(Protocol):
    def arrived(self, index: int, ready: float) -> None:
        """An item was put into the receiver's link of this number, and can be taken from `ready` on."""


class Sender(Protocol):
    def unblock(self, _: Any = None) -> None:
        """The link that was full has room again."""


Schedule = Callable[[float, Callable[[Any], None], Any], None]


class WorldClock:
    """The virtual time; the world moves it."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0


class LinkWatch(Protocol):
    """Told of everything that goes in and out of links, for the checkers."""

    def put(self, link: Link) -> None: ...

    def taken(self, link: Link) -> None: ...


class Link:
    """From one sender to one receiver."""

    __slots__ = (
        "_clock",
        "_delays",
        "_last_ready",
        "_schedule",
        "_watch",
        "capacity",
        "index",
        "items",
        "name",
        "receiver",
        "waiter",
    )

    def __init__(
        self,
        name: tuple[Any, ...],
        capacity: int,
        clock: WorldClock,
        schedule: Schedule,
        delays: Iterator[float] | None,
        watch: LinkWatch | None,
        index: int = 0,
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.index = index
        """Which of the receiver's links this is."""
        self.items: deque[tuple[float, Any]] = deque()
        self.receiver: Receiver | None = None
        self.waiter: Sender | None = None
        """The sender, if it is blocked."""
        self._clock = clock
        self._schedule = schedule
        self._delays = delays
        self._last_ready = 0.0
        self._watch = watch

    def send(self, item: Any) -> None:
        """Put an item in; the sender has made sure that there is room."""
        ready = self._clock.now
        if self._delays is not None:
            ready += next(self._delays)
            if ready < self._last_ready:
                ready = self._last_ready
            self._last_ready = ready
        self.items.append((ready, item))
        if self._watch is not None:
            self._watch.put(self)
        if self.receiver is not None:
            self.receiver.arrived(self.index, ready)

    def take(self) -> Any:
        """Take the first item out."""
        item = self.items.popleft()[1]
        if self._watch is not None:
            self._watch.taken(self)
        if self.waiter is not None:
            # Not called, but scheduled: the sender may be the one on whose behalf this runs.
            self._schedule(self._clock.now, self.waiter.unblock, None)
            self.waiter = None
        return item
