"""Standby copies: a host fetches, in the background, segments of channels that others run.

    task, after each epoch ──► what this host should have ──► a thread of its process ── fetched, kept ──► host's cache

The thread fetches one segment after the other and rests in between, so that it takes no more than its share of the
network; it stays alive between tasks, as the process does. What it should fetch is replaced by every later order, so
a copy that was merged away in the meantime is not fetched any more. Nothing depends on it: a copy that is damaged, late
or lost with its process is fetched by whoever needs it.
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

_log = logging.getLogger("anabranch")


@dataclass(frozen=True)
class Order:
    """What a host should have copies of."""

    cache: HostCache
    store: Files
    records: Sequence[SegmentRecord]
    bytes_per_s: int


class Following:
    """Fetches what the last order says, in a thread of its own."""

    def __init__(self, rest: Callable[[float], None] = time.sleep) -> None:
        self._rest = rest
        self._lock = threading.Lock()
        self._order: Order | None = None
        self._waiting: list[SegmentRecord] = []
        self._thread: threading.Thread | None = None

    def order(self, order: Order) -> None:
        """Fetch this from now on, and nothing else."""
        with self._lock:
            self._order = order
            self._waiting = [record for record in order.records if not order.cache.has(record.name)]
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
                order, record = self._order, self._waiting.pop(0)
            if not order.cache.has(record.name):
                fetch(order.cache, order.store, record)
                self._rest(record.bytes / order.bytes_per_s)


def fetch(cache: HostCache, store: Files, record: SegmentRecord) -> bool:
    """Put a copy of a segment into the cache; whether it is there now, whole."""
    try:
        data = store.read(f"state/{record.name}")
    except AnabranchError as problem:
        _log.warning("a standby copy is not fetched: %s", problem)
        return False
    # What is gone was merged since; what is damaged is nothing to keep.
    return data is not None and checksum_of(data) == record.checksum and cache.keep(record.name, data)
