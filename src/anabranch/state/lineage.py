"""Which segments a channel reads, and what a manifest keeps: decisions about records, without any I/O.

A record describes a segment: its file, the operator, the generation and the channel that wrote it, the
epochs it covers (first to last), rows, bytes, checksum. The segments one channel wrote in one generation
(key_owners.py) are a *lineage*; they follow one another without overlap. When the owners of a region are replaced,
its channels begin new lineages and read those of the old ones whose keys they took over: nothing is copied. A
compaction restricted to the keys a channel owns then *adopts* what it read, and an old segment is dropped when every
channel that needs it has adopted it.

Of two segments with one key, the one with the later last epoch counts: in each epoch a key has one owner, so
nobody else wrote it since. A compaction that adopts takes all its channel sees, so it never hides anything newer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.program.hashing import hash_columns
from anabranch.state.compaction import FAN_IN, compactable
from anabranch.state.key_owners import RegionOwners, Route
from anabranch.state.records import SegmentRecord

_INHERITED_MAX = 24
# An operator, a channel, and its segments to compact, newest first.
Compaction = tuple[str, int, list[SegmentRecord]]


@dataclasses.dataclass(frozen=True)
class KeyRoute:
    """The key of an operator's state, and the part of it that tuples are routed by.

    An operator in a region may have a finer key than the region: state is then found by the whole key, and
    owned by whoever its part belongs to.
    """

    names: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    route: tuple[str, ...]

    def hashes(self, keys: Sequence[Any]) -> np.ndarray:
        """The hashes state is found by."""
        if not self.names:
            return np.zeros(len(keys), dtype=np.uint64)
        if len(self.names) == 1:
            return hash_columns([pa.array(keys, self.types[0])])
        columns = zip(*keys, strict=True)
        return hash_columns([pa.array(c, kind) for c, kind in zip(columns, self.types, strict=True)])

    def route_hashes(self, hashes: np.ndarray, keys: Callable[[], Sequence[Any]]) -> np.ndarray:
        """The hashes the keys are routed by, from those they are found by; the keys are asked for only if needed."""
        if self.route in (self.names, ()) or not len(hashes):
            return hashes
        columns = list(zip(*keys(), strict=True))
        places = [self.names.index(name) for name in self.route]
        return hash_columns([pa.array(columns[at], self.types[at]) for at in places])


def own(records: Iterable[SegmentRecord], channel: int, owners: RegionOwners) -> list[SegmentRecord]:
    """The lineage of a channel, newest first."""
    mine = [r for r in records if r.channel == channel and r.generation == owners.generation]
    return sorted(mine, key=_newest_first)


def inherited(
    records: Iterable[SegmentRecord], channel: int, owners: RegionOwners, route: tuple[str, ...]
) -> list[SegmentRecord]:
    """What a channel still reads of others' lineages, newest first."""
    records = list(records)
    adopted = {name for record in own(records, channel, owners) for name in record.adopted}
    found = [
        record
        for record in records
        if record.generation != owners.generation
        and record.name not in adopted
        and owners.shares(record, channel, route)
    ]
    return sorted(found, key=_newest_first)


def others_remain(records: Iterable[SegmentRecord], channel: int, owners: RegionOwners, route: Route) -> bool:
    """Whether there are segments of other generations, adopted or not, that may hold keys of a channel.

    While there are, or could be again in place of a damaged compaction, the channel must not forget that a key was
    removed: a later generation might find it there.
    """
    return any(
        each.generation != owners.generation and owners.shares(each, channel, route)
        for record in records
        for each in (record, *record.parts)
    )


def _newest_first(record: SegmentRecord) -> tuple[int, int]:
    return -record.last, record.channel


def visible(
    records: Iterable[SegmentRecord], channel: int, owners: RegionOwners, route: tuple[str, ...]
) -> list[SegmentRecord]:
    """All a channel reads, newest first. What it wrote itself is newer than all it inherited."""
    records = list(records)
    return own(records, channel, owners) + inherited(records, channel, owners, route)


def inline_compaction(records: Sequence[SegmentRecord], rows_max: int, busy: frozenset[str] = frozenset()) -> int:
    """How many of a channel's newest segments it should make one of when it saves; 0 for none.

    Segments that are being compacted already (`busy`) are left alone, or that work would be for nothing.
    """
    free = next((at for at, record in enumerate(records) if record.name in busy), len(records))
    rows = [record.weight for record in records[:free]]
    found = compactable(rows)
    if found is None:
        return 0
    count = found[1]
    while count > 1 and sum(rows[:count]) > rows_max:
        smaller = compactable(rows[: count - 1])
        count = smaller[1] if smaller is not None else 0
    return count if count > 1 else 0


def large_compactions(
    segments: Mapping[str, Sequence[SegmentRecord]],
    by_operator: Mapping[str, RegionOwners],
    keys: Mapping[str, KeyRoute],
    rows_max: int,
    everything: bool = False,
) -> list[Compaction]:
    """The compactions to make beside the epochs: (operator, channel, its visible segments to take, newest first).

    A channel that inherited adopts everything it sees; otherwise the tiers decide, where they ask for more
    than is done inline. With `everything`, each channel compacts all it sees: a snapshot.
    """
    found = []
    for operator, records in segments.items():
        if operator not in keys:
            continue
        owners = by_operator[operator]
        for channel in range(owners.channels):
            seen = visible(records, channel, owners, keys[operator].route)
            if any(record.generation != owners.generation for record in seen) or (everything and len(seen) > 1):
                found.append((operator, channel, seen))
                continue
            range_ = compactable([record.weight for record in seen])
            if range_ is not None and sum(r.weight for r in seen[: range_[1]]) > rows_max:
                found.append((operator, channel, seen[: range_[1]]))
    return found


def pays_to_adopt(records: Sequence[SegmentRecord], owners: RegionOwners, rows_max: int) -> bool:
    """Whether a channel should now make one of all it sees, where that is written to a store and copied by others anew.

    What was taken over can be read where it is for as long as one likes, and mostly is what the channel had before. So
    it is rewritten when that is little, or no more than a few times what was written since (as tiers do), or when
    lookups would have to ask too many segments.
    """
    before = [each.weight for each in records if each.generation != owners.generation]
    since = sum(each.weight for each in records) - sum(before)
    return sum(before) <= max(rows_max, FAN_IN * since) or len(before) > _INHERITED_MAX


def after_compaction(records: Sequence[SegmentRecord], compacted: SegmentRecord) -> list[SegmentRecord]:
    """The records with a compaction in place of what it was made of; unchanged if that is not there any more."""
    names = {part.name for part in compacted.parts}
    if not names <= {record.name for record in records}:
        return list(records)
    lineage = {
        part.name
        for part in compacted.parts
        if part.channel == compacted.channel and part.generation == compacted.generation
    }
    return [compacted, *(record for record in records if record.name not in lineage)]


def without_adopted(records: Sequence[SegmentRecord], owners: RegionOwners, route: Route) -> list[SegmentRecord]:
    """The records without those that every channel has adopted, and without memories of what is gone."""
    needed = {r.name for channel in range(owners.channels) for r in visible(records, channel, owners, route)}
    kept = [record for record in records if record.name in needed]
    known = files_of({"": kept})
    return [
        dataclasses.replace(record, adopted=tuple(name for name in record.adopted if name in known))
        if any(name not in known for name in record.adopted)
        else record
        for record in kept
    ]


def without_damaged(records: Sequence[SegmentRecord], damaged: Iterable[str]) -> list[SegmentRecord]:
    """The records with damaged compactions replaced by what they were made of."""
    broken = set(damaged)
    return [
        part for record in records for part in (record.parts if record.name in broken and record.parts else (record,))
    ]


def without_old_parts(records: Sequence[SegmentRecord], before: int) -> list[SegmentRecord]:
    """The records; compactions made before an epoch no longer remember what they were made of, so that it can go."""
    return [
        dataclasses.replace(record, parts=()) if record.made is not None and record.made < before else record
        for record in records
    ]


def files_of(segments: Mapping[str, Sequence[SegmentRecord]]) -> set[str]:
    """The names of all files that records, or the parts a compaction could be replaced by, refer to."""
    return {each.name for records in segments.values() for record in records for each in (record, *record.parts)}
