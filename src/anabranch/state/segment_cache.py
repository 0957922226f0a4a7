"""Segments that a process keeps open."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from anabranch.state.segment import Segment
from anabranch.state.slices import segment_name, slice_name


class SegmentCache:
    """Open segments of this process. They never change, so keeping them open is always right."""

    def __init__(self, limit: int = 4096) -> None:
        self._open: OrderedDict[str, Segment] = OrderedDict()
        self._limit = limit
        self._lock = threading.Lock()

    def get(self, path: str, checksum: int, within: tuple[int, int] | None = None) -> Segment:
        """A segment, or the slice of one that has so many bytes from a place on."""
        kept = path if within is None else slice_name(path, within[0])
        with self._lock:
            found = self._open.get(kept)
            if found is not None:
                self._open.move_to_end(kept)
                return found
        segment = Segment(path, checksum, within)  # the checksum is verified once per process
        with self._lock:
            self._open[kept] = segment
            while len(self._open) > self._limit:
                self._open.popitem(last=False)
        return segment

    def retain(self, root: str, names: Iterable[str]) -> None:
        """Close the segments below a root that are not among these: a file that is mapped keeps its place on disk
        after it was deleted.
        """
        wanted = {f"{root}/{name}" for name in names}
        with self._lock:
            ours = [path for path in self._open if path.startswith(f"{root}/")]
            for path in [path for path in ours if segment_name(path) not in wanted]:
                del self._open[path]
