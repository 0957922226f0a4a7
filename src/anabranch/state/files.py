"""Reading and writing whole files. All that the checkpoint and the sinks ask of a file system.

A file appears whole or not at all: it is written under another name and renamed. Nothing is appended to
and no directory is renamed, because object stores can do neither.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """A file system below one root. Names are relative and use ``/``."""

    root: str

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        """Put a file there, whole or not at all, in place of one that was there.

        `modified` dates it, in seconds since 1970.
        """

    def read(self, name: str) -> bytes | None:
        """The content of a file, or None if it is not there."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted; empty if it is not there."""

    def delete(self, name: str) -> None:
        """Remove a file; no error if it is not there."""


class LocalFiles:
    """Files on a path that this process can open."""

    def __init__(self, root: str) -> None:
        self.root = root

    def path(self, name: str) -> Path:
        return Path(self.root) / name

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Hidden from Spark's readers while it is incomplete; unique, because two tasks may write at once.
        passing = path.with_name(f"_{path.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            with open(passing, "wb") as file:
                file.write(data)
            if modified is not None:
                os.utime(passing, (modified, modified))
            os.replace(passing, path)
        except BaseException:
            passing.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes | None:
        try:
            return self.path(name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self.path(directory)))
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)


class MemoryFiles:
    """Files in this process's memory: for tests, and for worlds that are gone when they end."""

    def __init__(self, root: str = "memory") -> None:
        self.root = root
        self._held: dict[str, bytes] = {}

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        self._held[name] = bytes(data)

    def read(self, name: str) -> bytes | None:
        return self._held.get(name)

    def names(self, directory: str) -> list[str]:
        inside = f"{directory}/"
        return sorted({name[len(inside) :].partition("/")[0] for name in self._held if name.startswith(inside)})

    def delete(self, name: str) -> None:
        self._held.pop(name, None)
