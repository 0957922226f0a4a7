"""State inside a task: open it at a version, save what changed.

The driver says which segments make up the version (the epoch before); the task reads those, never anything
else, and writes new segments under names of their own. Whether they count is for the driver to say, when it
publishes the manifest. So a task may be repeated, run twice at once, or die at any point, and there is
nothing to undo.

Where a checkpoint is on a path that every process can open, segments are mapped from it into memory: the
page cache is the working store, shared by all workers of a host. Where only Hadoop reaches it, a host keeps
copies in a working directory: new segments travel to the checkpoint with the task's result, and a task that
misses one says so and is given it by the driver.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import CheckpointError, MissingSegments, StorageError
from anabranch.faults import reach
from anabranch.program.graph import Keyed, Node
from anabranch.state.backing import BackingStore
from anabranch.state.compaction import INLINE_ROWS
from anabranch.state.files import PASSING, Files, LocalFiles, is_private
from anabranch.state.key_owners import RegionOwners
from anabranch.state.key_states import TOGETHER
from anabranch.state.lineage import KeyRoute, files_of, inline_compaction, others_remain, own, visible
from anabranch.state.records import SegmentRecord
from anabranch.state.segment import EXPIRES, NEVER, Segment, checksum_of, compacted_segments
from anabranch.state.table import SegmentCache, Table

_segments = SegmentCache()
# No file takes that long to be written.
_WRITING_S_MAX = 3600.0


@dataclasses.dataclass(frozen=True)
class StateVersion:
    """The state before an epoch, and what a task needs to read it.

    Attributes
    ----------
    root : str
        The checkpoint's directory for state.
    shared : bool
        Whether every process can open files below the root.
    epoch : int
        The epoch that is about to run; what is read here was committed by the epochs before it.
    clock_ms : int
        The epoch's time, for what expires.
    owners : mapping
        Operator name → which channel owns which keys of it.
    keys : mapping
        Operator name → its key.
    fields : mapping
        Operator name → its state fields with their initial values.
    segments : mapping
        Operator name → the manifest's records of its segments.
    supplied : mapping
        Segments that a task said it was missing, by name.
    compacting : frozenset of str
        Segments that are being compacted beside this epoch.
    transient : frozenset of str
        Operators whose state is not kept in the checkpoint.
    durable : bool
        Whether segments are on the disk before they count.
    backing : BackingStore, optional
        Where segments that this host does not have may be found, if files are not shared.
    memory : Files, optional
        Files in the memory of the one process that all tasks run in: read and written instead of those below the root.
    """

    root: str
    shared: bool
    epoch: int
    clock_ms: int
    owners: Mapping[str, RegionOwners]
    keys: Mapping[str, KeyRoute]
    fields: Mapping[str, Mapping[str, Any]]
    segments: Mapping[str, Sequence[SegmentRecord]]
    supplied: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    compacting: frozenset[str] = frozenset()
    transient: frozenset[str] = frozenset()
    durable: bool = False
    backing: BackingStore | None = None
    memory: Files | None = None

    def __call__(self, channel: int) -> TaskState:
        return TaskState(self, channel)


class TaskState:
    """The state that one channel needs in one epoch."""

    def __init__(self, version: StateVersion, channel: int) -> None:
        self._version = version
        self._channel = channel
        working = LocalFiles(working_directory(version.root))
        self._working = working
        self._files = LocalFiles(version.root, version.durable) if version.shared else working
        self._tables: dict[str, Table] = {}
        self._records: dict[str, list[SegmentRecord]] = {}
        self.damaged: list[str] = []

    def open(self, nodes: Sequence[Node]) -> dict[str, Table]:
        """The tables of the keyed operators among `nodes`, by name."""
        missing: list[str] = []
        _segments.retain(self._files.root, files_of(self._version.segments))
        for node in nodes:
            if isinstance(node.logic, Keyed):
                records = self.visible(node.name)
                self._records[node.name] = records
                segments = [segment for record in records for segment in self._read(record, missing)]
                self._tables[node.name] = Table(
                    node,
                    self._version.keys[node.name],
                    segments,
                    self._version.clock_ms,
                    partial(self.owned, node.name),
                )
        if missing:
            raise MissingSegments(missing)
        return self._tables

    def visible(self, operator: str) -> list[SegmentRecord]:
        """The segments this channel reads of an operator, newest first."""
        version = self._version
        records = version.segments.get(operator, ())
        return visible(records, self._channel, version.owners[operator], version.keys[operator].route)

    def owned(self, operator: str, hashes: np.ndarray, keys: Callable[[], Sequence[Any]]) -> np.ndarray:
        """Which keys of a segment this channel owns, as a mask: an inherited one holds others' as well."""
        key, owners = self._version.keys[operator], self._version.owners[operator]
        return owners.owns(self._channel, key.route_hashes(hashes, keys))

    def _read(self, record: SegmentRecord, missing: list[str]) -> list[Segment]:
        """A segment; if it is damaged and was merged from others that are still there, those."""
        try:
            return [self._segment(record)]
        except MissingSegments as problem:
            missing.extend(problem.names)
            return []
        except CheckpointError as problem:
            if record.transient:
                return []  # its host is gone, or its disk was cleaned: it begins anew
            parts = record.parts
            if not parts:
                raise CheckpointError(
                    f"{problem}. It holds changes of epochs {record.first} to {record.last} of operator "
                    f"{record.operator} that are nowhere else. Restore the file, or start anew with another "
                    "checkpointLocation and output path."
                ) from None
            self.damaged.append(record.name)
            return [segment for part in parts for segment in self._read(part, missing)]

    def _segment(self, record: SegmentRecord) -> Segment:
        name, checksum = record.name, record.checksum
        if record.transient:
            return _segments.get(str(self._working.path(name)), checksum)
        if self._version.memory is not None:
            held = self._version.memory.read(f"state/{name}")
            if held is None:
                raise CheckpointError(f"the state segment {name} is missing")
            return Segment(pa.py_buffer(held), checksum)
        path = str(self._files.path(name))
        if self._version.shared:
            return _segments.get(path, checksum)
        supplied = self._version.supplied.get(name)
        if supplied is not None:
            self._keep(name, supplied)
            return Segment(pa.py_buffer(supplied), checksum)
        try:
            return _segments.get(path, checksum)
        except CheckpointError:  # not in the working directory, or damaged there
            return self._collected(name, checksum)

    def _collected(self, name: str, checksum: int) -> Segment:
        """A segment that another host wrote, from the backing store; if that has it not, the checkpoint has."""
        data = self._version.backing.collect(name) if self._version.backing is not None else None
        try:
            if data is None:
                raise MissingSegments([name])
            segment = Segment(pa.py_buffer(data), checksum)
        except CheckpointError:
            raise MissingSegments([name]) from None
        self._keep(name, data)
        return segment

    def _keep(self, name: str, data: bytes | memoryview) -> None:
        """Put a copy into the working directory; if that is full, the state is still in the checkpoint."""
        with contextlib.suppress(StorageError):
            if is_private(os.path.dirname(self._working.root)):
                self._working.write(name, data)

    def save(self, nodes: Sequence[Node]) -> list[SegmentRecord]:
        """Write what changed, compact where that is due; the records of the new segments, for the manifest."""
        written: list[SegmentRecord] = []
        for node in nodes:
            if node.name not in self._tables:
                continue
            changes = self._tables[node.name].changes()
            if changes is None:
                continue
            data, rows = changes
            record = self._write(node.name, data, rows, self._version.epoch)
            written.append(record)
            reach("segment written", epoch=self._version.epoch, channel=self._channel, operator=node.name)
            seen = [record, *self._records[node.name]]
            mine = own(seen, self._channel, self._version.owners[node.name])
            count = inline_compaction(mine, INLINE_ROWS, self._version.compacting)
            if count:
                is_all = count == len(seen)
                written.append(self.compact(node.name, mine[:count], is_all, new={record.name: data}))
        if not self._version.shared or self._version.transient:
            self._clean()
        return written

    def _clean(self) -> None:
        """Remove copies from the working directory that no manifest names and no running task can be writing, and what
        tasks that died were writing."""
        known = files_of(self._version.segments)
        for operator in self._version.segments:
            for name in self._working.names(operator):
                epoch = name.split("-")[0]
                is_old = epoch.isdigit() and int(epoch) < self._version.epoch - 1
                is_left = name.endswith(PASSING) and self._working.age_s(f"{operator}/{name}") > _WRITING_S_MAX
                if is_left or (is_old and f"{operator}/{name}" not in known):
                    self._working.delete(f"{operator}/{name}")

    def compact(
        self, operator: str, records: Sequence[SegmentRecord], is_all: bool, new: Mapping[str, pa.Buffer] | None = None
    ) -> SegmentRecord:
        """Compact segments (newest first) into one of this channel's lineage; its record."""
        version, owners = self._version, self._version.owners[operator]
        foreign = [r.name for r in records if r.generation != owners.generation]
        known, route = version.segments.get(operator, ()), version.keys[operator].route
        data = self._compacted(
            operator,
            self._segments_of(records, new or {}),
            drop_dead=is_all and not others_remain(known, self._channel, owners, route),
            is_restricted=bool(foreign),
        )
        first = min(record.first for record in records)
        merged = self._write(operator, data, len(Segment(data)), max(r.last for r in records), first)
        adopted = {name for record in records for name in record.adopted}
        return dataclasses.replace(
            merged,
            adopted=tuple(sorted(adopted | set(foreign))),
            made=self._version.epoch,
            parts=tuple(dataclasses.replace(each, parts=(), data=None) for each in records),
        )

    def _segments_of(
        self, records: Sequence[SegmentRecord], new: Mapping[str, pa.Buffer] | None = None
    ) -> list[Segment]:
        """The segments that records describe; those of this task are not in any file yet."""
        missing: list[str] = []
        segments = []
        for record in records:
            if new and record.name in new:
                segments.append(Segment(new[record.name]))
            else:
                segments += self._read(record, missing)
        if missing:
            raise MissingSegments(missing)
        return segments

    def _compacted(
        self, operator: str, segments: Sequence[Segment], drop_dead: bool, is_restricted: bool = True
    ) -> pa.Buffer:
        """Segments, newest first, as one; restricted to what this channel owns, if others' keys are in them."""
        return compacted_segments(
            segments,
            drop_dead=drop_dead,
            keeps=functools.partial(self.owned, operator) if is_restricted else None,
            defaults=self._defaults(operator, segments),
            clock_ms=self._version.clock_ms,
        )

    def _defaults(self, operator: str, segments: Sequence[Segment]) -> dict[str, Any]:
        """The fields the program has now, with the value of each for keys that were written before it had them."""
        defaults = dict(self._version.fields[operator])
        if any(EXPIRES in segment.fields for segment in segments):
            defaults[EXPIRES] = NEVER
        if any(TOGETHER in segment.fields for segment in segments):
            defaults[TOGETHER] = None
        return defaults

    def _write(self, operator: str, data: pa.Buffer, rows: int, last: int, first: int | None = None) -> SegmentRecord:
        # The name is unique: a repeated task must not touch what another attempt wrote.
        name = f"{operator}/{last:012d}-{self._channel:05d}-{uuid.uuid4().hex[:12]}.segment"
        record = SegmentRecord(
            name=name,
            operator=operator,
            channel=self._channel,
            generation=self._version.owners[operator].generation,
            route=self._version.keys[operator].route,
            first=last if first is None else first,
            last=last,
            rows=rows,
            bytes=data.size,
            checksum=checksum_of(data),
            transient=operator in self._version.transient,
        )
        if record.transient:
            self._keep(name, memoryview(data))
        elif self._version.memory is not None:
            self._version.memory.write(f"state/{name}", memoryview(data))
        elif self._version.shared:
            self._files.write(name, memoryview(data))
        else:
            self._keep(name, memoryview(data))
            if self._version.backing is not None:
                self._version.backing.donate(name, memoryview(data))
            record = dataclasses.replace(record, data=data.to_pybytes())
        return record


def working_directory(root: str) -> str:
    """Where this host keeps copies of a checkpoint that its processes cannot open directly.

    It is below a directory that is this user's alone; should somebody else have made that, nothing is kept there.
    """
    digest = hashlib.sha256(root.encode()).hexdigest()[:16]
    return os.path.join(tempfile.gettempdir(), f"anabranch-{os.getuid()}", digest)
