"""State inside a task: open it at a version, save what changed.

The driver says which segments make up the version (the epoch before); the task reads those, never anything
else, and writes new segments under names of their own. Whether they count is for the driver to say, when it
publishes the manifest. So a task may be repeated, run twice at once, or die at any point, and there is
nothing to undo.

Where a checkpoint is on a path that every process can open, segments are mapped from it into memory: the
page cache is the working store, shared by all workers of a host. In an object store tasks write and read segments
themselves, and a host keeps copies (`host_cache`). Where only Hadoop reaches the checkpoint there are copies too, but
new segments travel to the checkpoint with the task's result, and a task that misses one says so and is given it by the
driver.
"""

from __future__ import annotations

import dataclasses
import functools
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import CheckpointError, MissingSegments, StorageError
from anabranch.faults import reach
from anabranch.partitioning.function import bundle_of_groups
from anabranch.program.graph import Keyed, Node
from anabranch.program.hashing import GROUP_COUNT
from anabranch.program.state_fields import FIRST_VERSION
from anabranch.state.backing import BackingStore
from anabranch.state.compaction import INLINE_ROWS
from anabranch.state.files import Files, LocalFiles, MemoryFiles
from anabranch.state.host_cache import CacheSettings, HostCache
from anabranch.state.key_owners import RegionOwners
from anabranch.state.lineage import KeyRoute, files_of, inline_compaction, others_remain, own, visible
from anabranch.state.records import SegmentRecord, Slice
from anabranch.state.segment import EXPIRES, NEVER, Segment, checksum_of, compacted_segments
from anabranch.state.segment_cache import SegmentCache
from anabranch.state.slices import CUT_BYTES, cut, offsets, slice_name
from anabranch.state.table import Table

_segments = SegmentCache()


@dataclasses.dataclass(frozen=True)
class FieldNames:
    """What a program says of the fields of an operator's state."""

    version: int = FIRST_VERSION
    """Which version of the state has them."""
    were: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """Field → what it was called before, latest first."""


_FIRST = FieldNames()


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
    histories : mapping
        Operator name → the version of its state, and what its fields were called before, where that says something.
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
    store : Files, optional
        The checkpoint's files, where tasks reach them by it and not by a path: an object store, or the memory of the
        one process that all tasks run in.
    cache : CacheSettings
        Where a host keeps copies of what it has no path to.
    cut_bytes : int
        From what size on segments are cut between bundles.
    """

    root: str
    shared: bool
    epoch: int
    clock_ms: int
    owners: Mapping[str, RegionOwners]
    keys: Mapping[str, KeyRoute]
    fields: Mapping[str, Mapping[str, Any]]
    segments: Mapping[str, Sequence[SegmentRecord]]
    histories: Mapping[str, FieldNames] = dataclasses.field(default_factory=dict)
    supplied: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    compacting: frozenset[str] = frozenset()
    transient: frozenset[str] = frozenset()
    durable: bool = False
    backing: BackingStore | None = None
    store: Files | None = None
    cache: CacheSettings = dataclasses.field(default_factory=CacheSettings)
    cut_bytes: int = CUT_BYTES

    def __call__(self, channel: int) -> TaskState:
        return TaskState(self, channel)


class TaskState:
    """The state that one channel needs in one epoch."""

    def __init__(self, version: StateVersion, channel: int) -> None:
        self._version = version
        self._channel = channel
        self._cache = HostCache(version.root, version.cache)
        self._files = LocalFiles(version.root, version.durable)
        self._is_mapped = version.shared and version.store is None
        self._tables: dict[str, Table] = {}
        self._records: dict[str, list[SegmentRecord]] = {}
        self.damaged: list[str] = []
        self.fetched_bytes = 0

    def open(self, nodes: Sequence[Node]) -> dict[str, Table]:
        """The tables of the keyed operators among `nodes`, by name."""
        missing: list[str] = []
        known = files_of(self._version.segments)
        _segments.retain(self._files.root, known)
        self._cache.retain(known)
        for node in nodes:
            if isinstance(node.logic, Keyed):
                records = self.visible(node.name)
                self._records[node.name] = records
                segments = self._named_now(node.name, [s for record in records for s in self._read(record, missing)])
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

    def _named_now(self, operator: str, segments: Sequence[Segment]) -> list[Segment]:
        """Segments with the names that the program has for the fields."""
        were = self._version.histories.get(operator, _FIRST).were
        return [segment.renamed(were) for segment in segments] if were else list(segments)

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
        """A segment, as far as it may hold keys of this channel; if it is damaged and was merged from others that are
        still there, those.
        """
        try:
            if not record.slices:
                return [self._segment(record)]
            starts = offsets(record.slices)
            return [self._segment(record, at, starts[at]) for at in self.needed(record)]
        except MissingSegments as problem:
            missing.extend(problem.names)
            return []
        except StorageError:
            raise  # nobody knows whether it is damaged
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

    def needed(self, record: SegmentRecord, bundles: Container[int] | None = None) -> list[int]:
        """Which slices of a segment may hold keys of this channel; with `bundles`, of those that are in these."""
        owners, route = self._version.owners[record.operator], self._version.keys[record.operator].route
        held = np.ones(GROUP_COUNT, dtype=bool)
        if record.route == route:  # else groups are those of another column
            held = owners.groups(self._channel)
            if bundles is not None:
                held &= np.array([each in bundles for each in bundle_of_groups(owners.function.bundles).tolist()])
        return [at for at, each in enumerate(record.slices) if held[each.first : each.last + 1].any()]

    def _segment(self, record: SegmentRecord, at: int = 0, start: int = 0) -> Segment:
        """A segment that is in one piece; or a slice of it, which begins there in the file."""
        name, checksum, within = record.name, record.checksum, None
        kept = name
        if record.slices:
            within, checksum = (start, record.slices[at].bytes), record.slices[at].checksum
            kept = slice_name(name, at)
        if isinstance(self._version.store, MemoryFiles) and not record.transient:
            return Segment(pa.py_buffer(self._fetched(name, within)), checksum, read_from=name)
        if self._is_mapped and not record.transient:
            return _segments.get(str(self._files.path(name)), checksum, within)
        found = self._cache.segment(kept, checksum)
        if found is not None:
            return found
        if record.transient:
            raise CheckpointError(f"the state segment {name} is missing")
        data = self._fetched(name, within)
        try:
            segment = Segment(pa.py_buffer(data), checksum, read_from=f"{self._version.root}/{name}")
        except CheckpointError:
            if self._version.store is not None or name in self._version.supplied:
                raise
            raise MissingSegments([name]) from None
        self.fetched_bytes += len(data)
        self._cache.keep(kept, data)
        return segment

    def _fetched(self, name: str, within: tuple[int, int] | None) -> bytes:
        """A segment that is not on this host: from the store, from the driver, or from where its writer put it."""
        version = self._version
        if version.store is not None:
            whole = f"state/{name}"
            data = version.store.read(whole) if within is None else version.store.read_range(whole, *within)
            if data is None:
                raise CheckpointError(f"the state segment {version.root}/{name} is missing")
            return data
        data = version.supplied.get(name)
        if data is None and version.backing is not None:
            data = version.backing.collect(name)
        if data is None:
            raise MissingSegments([name])
        return data if within is None else data[within[0] : sum(within)]

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
            version = self._version.histories.get(node.name, _FIRST).version
            record = self._write(node.name, data, rows, self._version.epoch)
            record = dataclasses.replace(
                record,
                versions=() if version == FIRST_VERSION else (version,),
                classes=tuple(sorted(self._tables[node.name].classes.kept)),
            )
            written.append(record)
            reach("segment written", epoch=self._version.epoch, channel=self._channel, operator=node.name)
            seen = [record, *self._records[node.name]]
            mine = own(seen, self._channel, self._version.owners[node.name])
            count = inline_compaction(mine, INLINE_ROWS, self._version.compacting)
            if count:
                is_all = count == len(seen)
                written.append(self.compact(node.name, mine[:count], is_all, new={record.name: data}))
        if not self._is_mapped or self._version.transient:
            now = self._version
            self._cache.clean(files_of(now.segments), now.segments, now.epoch, now.compacting)
        return written

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
            versions=_versions_in(records),
            classes=tuple(sorted({shape for record in records for shape in record.classes})),
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
        segments = self._named_now(operator, segments)
        return compacted_segments(
            segments,
            drop_dead=drop_dead,
            keeps=functools.partial(self.owned, operator) if is_restricted else None,
            defaults=self._defaults(operator, segments),
            clock_ms=self._version.clock_ms,
            version=self._version.histories.get(operator, _FIRST).version,
        )

    def _defaults(self, operator: str, segments: Sequence[Segment]) -> dict[str, Any]:
        """The fields the program has now, with the value of each for keys that were written before it had them."""
        defaults = dict(self._version.fields[operator])
        if any(EXPIRES in segment.fields for segment in segments):
            defaults[EXPIRES] = NEVER
        return defaults

    def _write(self, operator: str, data: pa.Buffer, rows: int, last: int, first: int | None = None) -> SegmentRecord:
        # The name is unique: a repeated task must not touch what another attempt wrote.
        name = f"{operator}/{last:012d}-{self._channel:05d}-{uuid.uuid4().hex[:12]}.segment"
        key, bundles = self._version.keys[operator], self._version.owners[operator].function.bundles
        slices: tuple[Slice, ...] = ()
        if bundles and key.route == key.names and data.size >= self._version.cut_bytes:
            data, slices = cut(data, bundles)
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
            slices=slices,
        )
        if record.transient:
            self._keep(record, data)
        elif self._is_mapped:
            self._files.write(name, memoryview(data))
        elif self._version.store is not None:
            self._version.store.write(f"state/{name}", memoryview(data))
            if not isinstance(self._version.store, MemoryFiles):
                self._keep(record, data)
        else:
            self._keep(record, data)
            if self._version.backing is not None:
                self._version.backing.donate(name, memoryview(data))
            record = dataclasses.replace(record, data=data.to_pybytes())
        return record

    def _keep(self, record: SegmentRecord, data: pa.Buffer) -> None:
        """Keep a copy of what this task wrote on its host."""
        if not record.slices:
            self._cache.keep(record.name, memoryview(data))
        for at, (start, each) in enumerate(zip(offsets(record.slices), record.slices, strict=True)):
            self._cache.keep(slice_name(record.name, at), memoryview(data.slice(start, each.bytes)))


def _versions_in(records: Sequence[SegmentRecord]) -> tuple[int, ...]:
    """Which versions of its operator's state a merge may hold; empty: the first alone."""
    found = {version for record in records for version in record.versions or (FIRST_VERSION,)}
    return () if found == {FIRST_VERSION} else tuple(sorted(found))
