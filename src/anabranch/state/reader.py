"""Looking into a checkpoint without running its program: which stores, how large, what a key's value is.

Only data is read: the codec never runs code, so a checkpoint from anywhere can be looked at.
"""

from __future__ import annotations

import base64
import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.errors import CheckpointError
from anabranch.program.ddl import parse_ddl
from anabranch.program.hashing import hash_columns, key_groups
from anabranch.program.schema import Schema
from anabranch.state.checkpoint import Checkpoint, Manifest
from anabranch.state.codec import decode
from anabranch.state.files import Files
from anabranch.state.lineage import KeyRoute
from anabranch.state.records import SegmentRecord
from anabranch.state.renaming import renamed_manifest
from anabranch.state.segment import Segment, compacted_segments, same_key
from anabranch.state.slices import opened


@dataclasses.dataclass(frozen=True)
class StoreSummary:
    """The state of one operator at a version.

    Attributes
    ----------
    operator : str
        The operator whose state it is.
    key : tuple of str
        The columns it is partitioned by.
    fields : tuple of str
        The state kept for each key.
    epoch : int
        The version: the last epoch it includes.
    keys : int
        How many keys it holds.
    key_groups : int
        How many key groups they are in.
    segments : int
        How many files a lookup of all channels asks.
    bytes : int
        The size of those files.
    """

    operator: str
    key: tuple[str, ...]
    fields: tuple[str, ...]
    epoch: int
    keys: int
    key_groups: int
    segments: int
    bytes: int


class CheckpointReader:
    """A checkpoint to look into.

    Parameters
    ----------
    files : Files
        The directory ``anabranch`` below the query's checkpoint location.
    epoch : int, optional
        Which version to read; the newest by default.
    """

    def __init__(self, files: Files, epoch: int | None = None) -> None:
        self._files = files
        self._checkpoint = Checkpoint(files)
        program = self._checkpoint.program()
        if program is None:
            raise CheckpointError(f"{files.root} is not the checkpoint of an Anabranch query: it has no program.json")
        self.program = program
        self.manifest = renamed_manifest(self._manifest(epoch), program.operators)
        self._operators = {each.name: each for each in program.operators}
        self._compacted: dict[str, Segment] = {}

    def versions(self) -> list[int]:
        """The epochs that can be read."""
        names = self._files.names("epochs")
        return [int(name[:12]) for name in names if name.endswith(".json") and name[0].isdigit()]

    def _manifest(self, epoch: int | None) -> Manifest:
        if epoch is None:
            return self._checkpoint.latest()
        found = self._checkpoint.version(epoch)
        if found is None:
            known = ", ".join(map(str, self.versions())) or "none"
            raise CheckpointError(f"{self._files.root} has no version {epoch}; versions: {known}")
        return found

    def stores(self) -> list[StoreSummary]:
        """The state of every operator that has some."""
        return [self._summary(name) for name, operator in self._operators.items() if operator.key]

    def summary_table(self) -> pa.Table:
        """The same as a table."""
        rows = [dataclasses.asdict(summary) for summary in self.stores()]
        for row in rows:
            row.update(key=", ".join(row["key"]), fields=", ".join(row["fields"]))
        texts, numbers = ("operator", "key", "fields"), ("epoch", "keys", "key_groups", "segments", "bytes")
        schema = pa.schema([*((name, pa.string()) for name in texts), *((name, pa.int64()) for name in numbers)])
        return pa.Table.from_pylist(rows, schema)

    def _summary(self, name: str) -> StoreSummary:
        records = self.manifest.segments.get(name, ())
        whole = self._segment(name)
        operator = self._operators[name]
        return StoreSummary(
            operator=name,
            key=operator.key,
            fields=operator.state,
            epoch=self.manifest.epoch,
            keys=len(whole),
            key_groups=len(np.unique(key_groups(whole.hashes))),
            segments=len(records),
            bytes=sum(record.bytes for record in records),
        )

    def groups(self, operator: str) -> dict[int, int]:
        """Key group → how many keys of it there are."""
        return dict(sorted(Counter(key_groups(self._segment(operator).hashes).tolist()).items()))

    def route_hashes(self, operator: str) -> np.ndarray:
        """For every key, the hash it is routed by: what a partitioning function is asked about."""
        segment, details = self._segment(operator), self._operators[operator]
        routes = {
            region.routes[operator]
            for region in self.manifest.facts.owners.regions.values()
            if operator in region.routes
        }
        names = details.key
        schema = Schema(parse_ddl(details.input[0]))
        key = KeyRoute(names, tuple(schema.type_of(name) for name in names), routes.pop() if routes else names)
        return key.route_hashes(segment.hashes, lambda: segment.values("key"))

    def items(self, operator: str) -> list[tuple[Any, dict[str, Any]]]:
        """Every key with its state, in the order of the keys' hashes."""
        segment = self._segment(operator)
        columns = {name: segment.values(f"field.{name}") for name in self._fields(segment)}
        return [
            (key, {name: column[at] for name, column in columns.items()})
            for at, key in enumerate(segment.values("key"))
        ]

    def value(self, operator: str, key: Any) -> dict[str, Any] | None:
        """The state of one key, or None if it has none. A composite key is a tuple."""
        segment = self._segment(operator)
        wanted = int(self._hash(operator, key))
        hashed = np.uint64(wanted)
        rows = np.arange(*(np.searchsorted(segment.hashes, hashed, side=side) for side in ("left", "right")))
        for row, found in zip(rows.tolist(), segment.values("key", rows), strict=True):
            if same_key(found, key):
                at = np.array([row])
                return {name: segment.values(f"field.{name}", at)[0] for name in self._fields(segment)}
        return None

    def broadcast(self, operator: str) -> dict[str, Any]:
        """The broadcast state of an operator, by field; nothing if it has none, or has its first values still."""
        data = self.manifest.facts.broadcasts.get(operator)
        return {} if data is None else dict(decode(base64.b64decode(data)))

    def table(self, operator: str) -> pa.Table:
        """Every key with its state as text, for display and for a DataFrame: key group, key, one column per field.

        Broadcast state, which belongs to no key, is the first row: its key group and key are null.
        """
        segment = self._segment(operator)
        columns: dict[str, Any] = {
            "key_group": pa.array(key_groups(segment.hashes), pa.int32()),
            "key": pa.array([repr(key) for key in segment.values("key")], pa.string()),
        }
        for name in self._fields(segment):
            columns[name] = pa.array([repr(value) for value in segment.values(f"field.{name}")], pa.string())
        table, told = pa.table(columns), self.broadcast(operator)
        if not told:
            return table
        first = pa.table({name: pa.array([repr(value)], pa.string()) for name, value in told.items()})
        return pa.concat_tables([first, table], promote_options="default").select(
            [*table.column_names, *(name for name in told if name not in table.column_names)]
        )

    def _fields(self, segment: Segment) -> list[str]:
        return [name for name in segment.fields if not name.startswith("#")]

    def _hash(self, operator: str, key: Any) -> int:
        details = self._operators[operator]
        schema = Schema(parse_ddl(details.input[0]))
        values = key if len(details.key) > 1 else (key,)
        if len(values) != len(details.key):
            raise CheckpointError(f"the key of {operator} has {len(details.key)} parts: {', '.join(details.key)}")
        arrays = [pa.array([value], schema.type_of(name)) for name, value in zip(details.key, values, strict=True)]
        return int(hash_columns(arrays)[0])

    def _segment(self, operator: str) -> Segment:
        if operator not in self._operators or not self._operators[operator].key:
            known = ", ".join(name for name, each in self._operators.items() if each.key) or "none"
            raise CheckpointError(f"no operator {operator!r} with state in this checkpoint; with state: {known}")
        if operator not in self._compacted:
            records = sorted(self.manifest.segments.get(operator, ()), key=lambda record: -record.last)
            # A channel's own segments are newer than those it inherited, so sorting all by epoch is right for
            # every key: of two segments with one key, the later epoch is the one that counts.
            details = self._operators[operator]
            segments = [segment.renamed(details.were) for record in records for segment in self._open(record)]
            self._compacted[operator] = Segment(compacted_segments(segments, drop_dead=True, version=details.version))
        return self._compacted[operator]

    def _open(self, record: SegmentRecord) -> list[Segment]:
        place = f"{self._files.root}/state/{record.name}"
        data = self._files.read(f"state/{record.name}")
        try:
            if data is None:
                raise CheckpointError(f"the state segment {place} is missing")
            return opened(data, record.checksum, record.slices, place)
        except CheckpointError as problem:
            if not record.parts:
                raise CheckpointError(f"{problem}. Restore it from a copy, or read another version") from None
            return [segment for part in record.parts for segment in self._open(part)]
