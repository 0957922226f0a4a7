"""State inside a task: open it at a version, save what changed.

The driver says which segments make up the version (the epoch before); the task reads them, never anything
else, and writes a new segment under a name of its own. Whether that segment counts is for the driver to
say, when it publishes the manifest. So a task may be repeated, run twice at once, or die at any point.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.compiler.graph import Keyed, Node
from anabranch.state.files import LocalFiles
from anabranch.state.segment import describe
from anabranch.state.table import SegmentCache, Table

_segments = SegmentCache()


@dataclasses.dataclass(frozen=True)
class StateVersion:
    """The state at the end of an epoch: for every operator its segments, newest first.

    Attributes
    ----------
    root : str
        The checkpoint's directory for state.
    epoch : int
        The epoch that is about to run; what is read here was committed by the epochs before it.
    segments : mapping
        Operator name → the manifest's records of its segments, newest first.
    """

    root: str
    epoch: int
    segments: Mapping[str, Sequence[Mapping[str, Any]]]

    def __call__(self, channel: int) -> TaskState:
        return TaskState(self, channel)


class TaskState:
    """The state that one channel needs in one epoch."""

    def __init__(self, version: StateVersion, channel: int) -> None:
        self._version = version
        self._channel = channel
        self._files = LocalFiles(version.root)
        self._tables: dict[str, Table] = {}

    def open(self, nodes: Sequence[Node]) -> dict[str, Table]:
        """The tables of the keyed operators among `nodes`, by name."""
        for node in nodes:
            if isinstance(node.logic, Keyed):
                records = self._version.segments.get(node.name, ())
                mine = [r for r in records if r["channel"] == self._channel]
                segments = [_segments.get(str(self._files.path(r["name"])), r["checksum"]) for r in mine]
                self._tables[node.name] = Table(node, segments)
        return self._tables

    def save(self, nodes: Sequence[Node]) -> list[dict[str, Any]]:
        """Write what changed; the records of the new segments, for the manifest."""
        records = []
        for node in nodes:
            if node.name not in self._tables:
                continue
            changes = self._tables[node.name].changes()
            if changes is None:
                continue
            data, hashes = changes
            name = f"{node.name}/{self._version.epoch:012d}-{self._channel:05d}-{uuid.uuid4().hex[:12]}.segment"
            self._files.write(name, memoryview(data))
            facts = {
                "name": name,
                "channel": self._channel,
                "epoch": self._version.epoch,
                "rows": len(hashes),
            }
            records.append({"operator": node.name, **describe(data, **facts)})
        return records
