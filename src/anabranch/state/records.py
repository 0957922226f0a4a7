"""What a manifest says of a segment: its file, whose state it holds, who wrote it when, and what it was made of.

A record is made by the task that wrote the segment, travels in its report, and is kept in manifests for as long as the
segment counts. It is a dict only on the way (`to_fields`, `of_fields`): docs/checkpoint.md has the form.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_Data = bytes  # a field has that name

Shape = tuple[str, str, tuple[str, ...]]
"""A class of the user's as state has it: module and name, kind, its fields (of an enumeration, the member)."""


_BYTES_OF_ALL, _BYTES_OF_ROW = 4096, 64  # of a segment with few rows, and of each of many


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """A part of a segment: the rows of neighbouring key groups, as a segment of its own."""

    first: int
    """The first key group it may hold keys of."""
    last: int
    bytes: int
    checksum: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRecord:
    """A segment, as manifests know it."""

    name: str
    """Its file, below ``state/``."""
    operator: str
    """Whose state."""
    channel: int
    """Which channel wrote it."""
    generation: int
    """The ownership it was written under: that generation's function says whose keys it holds."""
    route: tuple[str, ...]
    """The columns that keys were routed by."""
    first: int
    """The first epoch whose changes it holds."""
    last: int
    """The last one."""
    rows: int
    bytes: int
    checksum: int
    """CRC-32 of the whole file."""
    transient: bool = False
    """Not in the checkpoint but on the host that wrote it."""
    made: int | None = None
    """Of a compaction: the epoch in or before which it was made."""
    parts: tuple[SegmentRecord, ...] = ()
    """Of a compaction: what it was made of, while that is kept."""
    adopted: tuple[str, ...] = ()
    """Of a compaction: segments of older generations whose keys it took over."""
    versions: tuple[int, ...] = ()
    """Which versions of the operator's state its rows are of; empty: the first."""
    classes: tuple[Shape, ...] = ()
    """The classes of the user's whose objects it holds."""
    slices: tuple[Slice, ...] = ()
    """What its file is cut into, by key groups; empty: it is in one piece."""
    data: _Data | None = dataclasses.field(default=None, repr=False)
    """The segment itself, where it must travel to the checkpoint with the record; never in a manifest."""

    @property
    def weight(self) -> int:
        """How large it is, for deciding what is merged: in rows, or in as many bytes as a usual row has."""
        return max(self.rows, (self.bytes - _BYTES_OF_ALL) // _BYTES_OF_ROW)

    def to_fields(self) -> dict[str, Any]:
        """As a dict of plain values; what a segment does not have is left out."""
        fields = {name: getattr(self, name) for name in _ALWAYS}
        fields["route"] = list(self.route)
        if self.transient:
            fields["transient"] = True
        if self.made is not None:
            fields["made"] = self.made
        if self.parts:
            fields["parts"] = [part.to_fields() for part in self.parts]
        if self.adopted:
            fields["adopted"] = list(self.adopted)
        if self.versions:
            fields["versions"] = list(self.versions)
        if self.classes:
            fields["classes"] = [[name, kind, list(names)] for name, kind, names in self.classes]
        if self.slices:
            fields["slices"] = [[each.first, each.last, each.bytes, each.checksum] for each in self.slices]
        if self.data is not None:
            fields["data"] = self.data
        return fields

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> SegmentRecord:
        """From what `to_fields` gave. TypeError or KeyError for anything else."""
        given = dict(fields)
        given["route"] = tuple(given["route"])
        given["parts"] = tuple(cls.of_fields(part) for part in given.get("parts", ()))
        given["adopted"] = tuple(given.get("adopted", ()))
        given["versions"] = tuple(given.get("versions", ()))
        given["classes"] = tuple((name, kind, tuple(names)) for name, kind, names in given.get("classes", ()))
        given["slices"] = tuple(Slice(*each) for each in given.get("slices", ()))
        return cls(**given)


_ALWAYS = tuple(field.name for field in dataclasses.fields(SegmentRecord) if field.default is dataclasses.MISSING)
