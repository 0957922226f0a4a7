"""What a host keeps of state that is elsewhere: copies of segments, so many bytes of them, the least used go first.

    store ── fetched once ──► <directory>/<digest of the checkpoint>/<operator>/….segment ──► mapped by every task here
    task ─── written ───────►

A segment never changes and its name is given once, so a copy that has its checksum is the segment. One that has not (a
half-written file, a bad disk) is removed and counts as not there. Nothing depends on the cache: if it cannot be
written, because the disk is full or the directory is somebody else's, that is logged once, and segments are read from
the store each time. A file that is removed while a task has it mapped stays readable for that task.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Collection, Iterator

from anabranch.errors import CheckpointError, StorageError
from anabranch.state.files import PASSING, LocalFiles, is_private
from anabranch.state.segment import Segment
from anabranch.state.segment_cache import SegmentCache
from anabranch.state.slices import segment_name

_log = logging.getLogger("anabranch")
BYTES_MAX = 4 << 30
# No file takes that long to be written.
_WRITING_S_MAX = 3600.0
_open = SegmentCache()


@dataclasses.dataclass(frozen=True)
class CacheSettings:
    """Where hosts keep copies, and how many bytes of them."""

    directory: str | None = None
    """None: below the host's directory for temporary files, this user's alone. A relative one is below the working
    directory of each executor."""
    bytes_max: int = BYTES_MAX


class HostCache:
    """Copies of the segments of one checkpoint on this host.

    Parameters
    ----------
    root : str
        The checkpoint's directory for state: tells one checkpoint from another.
    settings : CacheSettings
    """

    def __init__(self, root: str, settings: CacheSettings | None = None) -> None:
        settings = CacheSettings() if settings is None else settings
        temporary = os.path.join(tempfile.gettempdir(), f"anabranch-{os.getuid()}")
        self._everything = os.path.abspath(settings.directory or os.path.join(temporary, "cache"))
        self._private = self._everything if settings.directory else temporary
        self._bytes_max = settings.bytes_max
        digest = hashlib.sha256(root.encode()).hexdigest()[:16]
        self._files = LocalFiles(os.path.join(self._everything, digest))

    @property
    def directory(self) -> str:
        """Where the copies are."""
        return self._files.root

    def segment(self, name: str, checksum: int) -> Segment | None:
        """The segment, if a whole copy of it is here."""
        path = str(self._files.path(name))
        try:
            found = _open.get(path, checksum)
        except CheckpointError:
            with contextlib.suppress(StorageError):
                self._files.delete(name)
            return None
        with contextlib.suppress(OSError):  # it may have been removed since it was mapped
            os.utime(path)
        return found

    def keep(self, name: str, data: bytes | memoryview) -> bool:
        """Put a copy here, and remove those that were least recently used; whether it was put."""
        size = memoryview(data).nbytes
        if size > self._bytes_max:
            return False
        try:
            if not is_private(self._private):
                raise StorageError(f"{self._private} is not this user's alone")
            self._make_room(size)
            self._files.write(name, data)
            return True
        except (StorageError, OSError) as problem:
            _say_once(self._everything, str(problem).partition(". The epoch failed")[0])
            return False

    def has(self, name: str) -> bool:
        """Whether a copy is here, whole or not."""
        return self._files.path(name).exists()

    def retain(self, names: Collection[str]) -> None:
        """Close segments that are not among these: a mapped file keeps its place on disk after it was deleted."""
        _open.retain(self._files.root, names)

    def clean(
        self, known: Collection[str], operators: Collection[str], epoch: int, compacting: Collection[str] = ()
    ) -> None:
        """Remove copies that no manifest names and no running task can be writing, and what tasks that died were
        writing.

        What is being made beside the epochs of segments of `compacting` may be here already, and is in no manifest yet.
        It ends with the epoch that one of these ends with.
        """
        under_way = {os.path.basename(name).split("-")[0] for name in compacting}
        for operator in operators:
            for name in self._files.names(operator):
                made = name.split("-")[0]
                is_old = made.isdigit() and int(made) < epoch - 1 and made not in under_way
                is_left = name.endswith(PASSING) and self._files.age_s(f"{operator}/{name}") > _WRITING_S_MAX
                if is_left or (is_old and segment_name(f"{operator}/{name}") not in known):
                    with contextlib.suppress(StorageError):
                        self._files.delete(f"{operator}/{name}")

    def _make_room(self, size: int) -> None:
        """Remove what was least recently used, of all checkpoints, until so many bytes more are allowed."""
        held = sorted(_copies(self._everything))
        superfluous = sum(bytes_held for _, bytes_held, _ in held) + size - self._bytes_max
        for _, bytes_held, path in held:
            if superfluous <= 0:
                return
            with contextlib.suppress(OSError):
                os.unlink(path)
            superfluous -= bytes_held


def _copies(directory: str) -> Iterator[tuple[float, int, str]]:
    """Every file below a directory: when it was last used, its bytes, its path."""
    for folder, _, names in os.walk(directory):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                status = os.stat(path)
                yield status.st_mtime, status.st_size, path


@functools.lru_cache(maxsize=64)
def _say_once(directory: str, problem: str) -> None:
    _log.warning(
        "the cache of state segments in %s takes no more: %s. They are read from the store.", directory, problem
    )
