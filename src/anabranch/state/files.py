"""Reading and writing whole files. All that the checkpoint and the sinks ask of a file system.

A file appears whole or not at all: it is written under another name and renamed. Nothing is appended to
and no directory is renamed, because object stores can do neither. One thing is asked beyond that: `create`, which
puts a file there only if nobody has. Whatever two drivers could both do is decided by it.

What goes wrong is a `StorageError` that names the file, whichever store it is on: a full disk is the same error for a
segment, a manifest and a part of the output.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from anabranch.errors import StorageError

# How a file that is being written ends: readers pass over it, and whoever owns the place removes those of the dead.
PASSING = ".tmp"


# How operating systems and Java say that a file cannot be written, wherever in a chain of exceptions that is.
_STORAGE = ("No space left on device", "Read-only file system", "quota", "Permission denied", "Mkdirs failed")


class Files(Protocol):
    """A file system below one root. Names are relative and use ``/``."""

    root: str
    durable: bool

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        """Put a file there, whole or not at all, in place of one that was there.

        `modified` dates it, in seconds since 1970.
        """

    def create(self, name: str, data: bytes | memoryview) -> bool:
        """Put a file there if there is none; whether it was put. Of several that try at once one succeeds."""

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it is not there."""

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        """So many bytes of a file from a place on, fewer where it ends before; None if it is not there."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it is not there."""

    def delete(self, name: str) -> None:
        """Remove a file; no error if it is not there."""

    def clear(self, directory: str) -> None:
        """Remove a directory and all that is in it; no error if it is not there."""


def passing_name(name: str) -> str:
    """What a file is called while it is written: hidden from Spark's readers, and nobody else's."""
    folder, _, own = name.rpartition("/")
    return f"{folder}{'/' if folder else ''}_{own}.{uuid.uuid4().hex[:12]}{PASSING}"


def remove_passing(files: Files, directory: str) -> int:
    """Remove what writers that died were writing in a directory; how many files there were."""
    found = [name for name in files.names(directory) if name.startswith("_") and name.endswith(PASSING)]
    for name in found:
        files.delete(f"{directory}/{name}" if directory else name)
    return len(found)


def cannot_write(path: str, problem: object) -> StorageError:
    """The error of a file that cannot be written, for whatever reason."""
    return StorageError(
        f"cannot write {path}: {problem}. The epoch failed; nothing of it was committed. Make room (or make the path "
        "writable) and start the query again."
    )


def storage_problem(problem: BaseException) -> str:
    """What an exception says of storage that is full or may not be written, in a line; empty if it does not."""
    lines = str(problem).splitlines()
    return next((line.strip()[:500] for line in lines if any(map(line.__contains__, _STORAGE))), "")


def cannot_read(path: str, problem: object) -> StorageError:
    """The error of a file that is there and cannot be read."""
    return StorageError(
        f"cannot read {path}: {problem}. Make it readable or restore it from a copy, and start the query again."
    )


class LocalFiles:
    """Files on a path that this process can open.

    Parameters
    ----------
    root : str
    durable : bool
        Whether what was written is on the disk, not only with the operating system, when a call returns.
    """

    def __init__(self, root: str, durable: bool = False) -> None:
        self.root = root
        self.durable = durable

    def path(self, name: str) -> Path:
        return Path(self.root) / name

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        path = self.path(name)
        with self._passing(name, data, modified) as passing:
            os.replace(passing, path)
            self._sync(path.parent)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        path = self.path(name)
        with self._passing(name, data) as passing:
            try:
                os.link(passing, path)  # fails if there is one; what appears is whole
            except FileExistsError:
                return False
            finally:
                passing.unlink(missing_ok=True)
            self._sync(path.parent)
            return True

    @contextlib.contextmanager
    def _passing(self, name: str, data: bytes | memoryview, modified: int | None = None) -> Iterator[Path]:
        """The data under another name, for a moment."""
        passing = self.path(passing_name(name))
        try:
            with _opened(passing) as file:
                file.write(data)
                if self.durable:
                    file.flush()
                    os.fsync(file.fileno())
            if modified is not None:
                os.utime(passing, (modified, modified))
            yield passing
        except BaseException as problem:
            with contextlib.suppress(OSError):
                passing.unlink(missing_ok=True)
            if isinstance(problem, OSError):
                raise cannot_write(str(self.path(name)), problem) from None
            raise

    def _sync(self, directory: Path) -> None:
        if self.durable:
            sync(str(directory))

    def read(self, name: str) -> bytes | None:
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise cannot_read(str(self.path(name)), problem) from None

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        try:
            with self.path(name).open("rb") as file:
                file.seek(start)
                return file.read(size)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise cannot_read(str(self.path(name)), problem) from None

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self.path(directory)))
        except FileNotFoundError:
            return []
        except OSError as problem:
            raise cannot_read(str(self.path(directory)), problem) from None

    def delete(self, name: str) -> None:
        try:
            self.path(name).unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except IsADirectoryError:
            self.clear(name)
        except OSError as problem:
            raise cannot_write(str(self.path(name)), problem) from None

    def age_s(self, name: str) -> float:
        """How long ago a file was last written; 0 if it is not there."""
        try:
            return time.time() - self.path(name).stat().st_mtime
        except OSError:
            return 0.0

    def clear(self, directory: str) -> None:
        try:
            shutil.rmtree(self.path(directory))
        except FileNotFoundError:
            return
        except OSError as problem:
            raise cannot_write(str(self.path(directory)), problem) from None


class MemoryFiles:
    """Files in this process's memory, as an object store has them: for tests, and worlds that end."""

    def __init__(self, root: str = "memory") -> None:
        self.root = root
        self.durable = False
        self._held: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        self._held[name] = bytes(data)

    def create(self, name: str, data: bytes | memoryview) -> bool:
        with self._lock:
            if name in self._held:
                return False
            self._held[name] = bytes(data)
            return True

    def read(self, name: str) -> bytes | None:
        return self._held.get(name)

    def read_range(self, name: str, start: int, size: int) -> bytes | None:
        data = self._held.get(name)
        return None if data is None else data[start : start + size]

    def names(self, directory: str) -> list[str]:
        inside = f"{directory}/" if directory else ""
        found = [name for name in list(self._held) if name.startswith(inside)]
        return sorted({name[len(inside) :].partition("/")[0] for name in found})

    def delete(self, name: str) -> None:
        self._held.pop(name, None)

    def clear(self, directory: str) -> None:
        for name in [each for each in list(self._held) if each.startswith(f"{directory}/")]:
            self.delete(name)


def _opened(path: Path) -> BinaryIO:
    """A new file; its directory is made if it is missing, which it is once."""
    try:
        return open(path, "wb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "wb")


def sync(path: str) -> None:
    """Have a file on the disk, or the names in a directory: what was renamed is there after a power cut only then."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_private(directory: str) -> bool:
    """Create a directory if need be, and make it ours alone; whether it is. One that others could write to never is."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        status = os.lstat(directory)
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or others_write:
            return False
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            os.chmod(directory, 0o700)
        return True
    except OSError:
        return False
