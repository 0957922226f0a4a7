"""What a simulated run left behind, as an outsider saw it: for the checkers.

    world ── batches, deliveries, decisions ──► Ledger ──► checks.py, owners.py
    store ── every file written or removed ────┘

A ledger only records. It reads manifests as what they are, JSON with a checksum, and knows no class of the product that
wrote them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.state.files import MemoryFiles

Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Delivery:
    """An epoch's output as a sink got it; again, if the epoch ran again."""

    output: int
    epoch: int
    rows: tuple[str, ...]
    """As text, that tells apart what == does not."""


@dataclass(frozen=True)
class Scaled:
    """A region that was given another number of channels, or other owners of its keys."""

    region: str
    epoch: int
    channels: int


@dataclass(frozen=True)
class Asked:
    """A rescaling that was asked for by hand, before a micro-batch ran."""

    region: str
    batch: int
    channels: int


@dataclass
class Ledger:
    """Everything that was seen from outside."""

    batches: dict[int, Mapping[str, Rows]] = field(default_factory=dict)
    """Micro-batch → source → its rows, in the order of the source."""
    deliveries: list[Delivery] = field(default_factory=list)
    manifests: list[Mapping[str, Any]] = field(default_factory=list)
    """Every manifest that was written, in the order of writing."""
    scaled: list[Scaled] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """Files that could not be read as what they should be."""

    def wrote(self, name: str, data: bytes) -> None:
        """The store has another file."""
        if name.startswith("epochs/") and name.endswith(".json"):
            try:
                head, _, content = data.partition(b"\n")
                header = json.loads(head)
                checksum = header.pop("checksum")
                described = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
                if zlib.crc32(content, zlib.crc32(described)) != checksum:
                    raise ValueError("its checksum does not fit")
                self.manifests.append(json.loads(content))
            except (ValueError, KeyError, TypeError) as problem:
                self.damaged.append(f"{name}: {problem}")


class WatchedFiles(MemoryFiles):
    """Files in memory that tell a ledger what is written; `before` is called first, with the name."""

    def __init__(self, ledger: Ledger, before: Callable[[str], None] = lambda name: None) -> None:
        super().__init__("world")
        self._ledger = ledger
        self._before = before

    def write(self, name: str, data: bytes | memoryview, modified: int | None = None) -> None:
        self._before(name)
        super().write(name, data, modified)
        self._ledger.wrote(name, bytes(data))

    def create(self, name: str, data: bytes | memoryview) -> bool:
        self._before(name)
        created = super().create(name, data)
        if created:
            self._ledger.wrote(name, bytes(data))
        return created

    def below(self, directory: str) -> list[str]:
        """The names of all files in a directory and below it."""
        return sorted(name for name in self._held if name.startswith(f"{directory}/"))
