"""Standby copies: a host fetches, in the background, segments of channels that others run.

    task, after each epoch ──► what this host should have ──► a thread of its process ── fetched, kept ──► host's cache

The thread fetches one segment after the other and rests in between, so that it takes no more than its share of the
network; it stays alive between tasks, as the process does. What it should fetch is replaced by every later order, so
a copy that was merged away in the meantime is not fetched any more. Nothing depends on it: a copy that is damaged, late
or lost with its process is fetched by whoever needs it. If the cache takes nothing, because the disk is full, say,
nothing is fetched for a while: it would be for nothing, after every epoch again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from anabranch.errors import AnabranchError
from anabranch.state.files import Files
from anabranch.state.host_cache import HostCache
from anabranch.state.records import SegmentRecord
from anabranch.state.segment import checksum_of
from anabranch.state.slices import offsets, slice_name

_log = logging.getLogger("anabranch")
_FULL_S = 60.0


@dataclass(frozen=True)
class Copy:
    """What is copied as one: a segment, or a slice of it."""

    segment: str
    """The file in the store."""
    kept: str
    """The file in the cache."""
    bytes: int
    checksum: int
    start: int | None = None
    """Where a slice begins; None: it is the whole file."""

    @staticmethod
    def of(record: SegmentRecord, slices: Sequence[int] | None = None) -> list[Copy]:
        """A segment; or these of its slices, or all that it has."""
        if not record.slices:
            return [Copy(record.name, record.name, record.bytes, record.checksum)]
        starts = offsets(record.slices)
        return [
            Copy(record.name, slice_name(record.name, at), each.bytes, each.checksum, starts[at])
            for at, each in enumerate(record.slices)
            if slices is None or at in slices
        ]


@dataclass(frozen=True)
class Order:
    """What a host should have copies of."""

    cache: HostCache
    store: Files
    copies: Sequence[Copy]
    bytes_per_s: int


class Following:
    """Fetches what the last order says, in a thread of its own."""

    def __init__(self, rest: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._clock = clock
        self._full_until = float("-inf")
        self._lock = threading.Lock()
        self._order: Order | None = None
        self._waiting: list[Copy] = []
        self._thread: threading.Thread | None = None

    def order(self, order: Order) -> None:
        """Fetch this from now on, and nothing else."""
        with self._lock:
            self._order = order
            is_full = self._clock() < self._full_until
            self._waiting = [each for each in order.copies if not is_full and not order.cache.has(each.kept)]
            if self._waiting and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._fetch_all, name="anabranch-standby", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Until all that was ordered was tried, or so long."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def _fetch_all(self) -> None:
        while True:
            with self._lock:
                if not self._waiting or self._order is None:
                    self._thread = None
                    return
                order, wanted = self._order, self._waiting.pop(0)
            if not order.cache.has(wanted.kept):
                data = fetched(order.store, wanted)
                if data is not None and not order.cache.keep(wanted.kept, data):
                    with self._lock:
                        self._full_until, self._waiting = self._clock() + _FULL_S, []
                self._rest(wanted.bytes / order.bytes_per_s)


def fetched(store: Files, wanted: Copy) -> bytes | None:
    """A segment, or a slice of one, whole; None if it is not to be had."""
    name = f"state/{wanted.segment}"
    try:
        data = store.read(name) if wanted.start is None else store.read_range(name, wanted.start, wanted.bytes)
    except AnabranchError as problem:
        _log.warning("a standby copy is not fetched: %s", problem)
        return None
    # What is gone was merged since; what is damaged is nothing to keep.
    return data if data is not None and checksum_of(data) == wanted.checksum else None
