"""What listeners are told: an epoch ended, a controller decided, a region was rescaled, executors follow.

>>> def watch(event):
...     if isinstance(event, Rescaled):
...         print(f"{event.region}: {event.channels_before} → {event.channels} channels, because {event.reason}")
>>> query.addListener(watch)                                              # doctest: +SKIP
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from anabranch.errors import ProgramError

if TYPE_CHECKING:
    from anabranch.control.decision import Decision


@dataclasses.dataclass(frozen=True)
class EpochEnded:
    """An epoch was committed; `progress` is what ``lastProgress`` shows."""

    progress: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Decided:
    """The controller of a region judged an adaptation period; also if nothing changes."""

    region: str
    decision: Decision


@dataclasses.dataclass(frozen=True)
class Rescaled:
    """A region has another partitioning function from an epoch on: other channels, or other owners of keys."""

    region: str
    epoch: int
    channels_before: int
    channels: int
    reason: str


@dataclasses.dataclass(frozen=True)
class ExecutorsChanged:
    """Spark was asked for another number of executors, or some were given back (see ``maxExecutors``).

    `target` is how many it was asked for in all, `present` how many there are, without those in `given_back`.
    Told perhaps in another thread than the one that runs the epochs: idle executors go when none run.
    """

    target: int
    present: int
    given_back: tuple[str, ...]
    reason: str


Event = EpochEnded | Decided | Rescaled | ExecutorsChanged
Listener = Callable[[Event], None]

_log = logging.getLogger("anabranch")


class Listeners:
    """Functions that are told of events, in the thread that runs the epochs. May be changed from any thread."""

    def __init__(self, initial: Iterable[Listener] = ()) -> None:
        self._lock = threading.Lock()
        self._functions = list(initial)

    def add(self, listener: Listener) -> None:
        if not callable(listener):
            raise ProgramError(f"addListener({listener!r}): expected a function of one event")
        with self._lock:
            self._functions = [*self._functions, listener]

    def remove(self, listener: Listener) -> None:
        with self._lock:
            self._functions = [each for each in self._functions if each != listener]

    @property
    def functions(self) -> list[Listener]:
        return list(self._functions)

    def tell(self, event: Event) -> None:
        """Tell all. A listener that raises is reported and does not stop the query: it only watches."""
        for listener in self._functions:
            try:
                listener(event)
            except Exception:
                _log.exception("a listener failed on %s", type(event).__name__)
