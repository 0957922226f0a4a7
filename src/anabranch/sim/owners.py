"""Checks that each key has exactly one owner per epoch. Shares no code with what it checks.

The owner of a key is worked out from the bytes of the partitioning function, one key at a time, with Python's own
integers: no numpy, no buckets, no tables. Segments are opened as what they are, Arrow files.
"""

from __future__ import annotations

import base64
import bisect
import functools
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

_WORD = (1 << 64) - 1


def _mixed(value: int, salt: int) -> int:
    value = (value + salt) & _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)


class Owners:
    """The owner of each hash, by the serial form of a partitioning function (docs/partitioning.md)."""

    def __init__(self, data: bytes) -> None:
        magic, version, self.group_bits, _, self.channels, hot = struct.unpack_from("<2sBBIII", data)
        assert magic == b"AP" and version in (1, 2)
        weights = struct.unpack_from(f"<{self.channels}I", data, 16)
        hashes = struct.unpack_from(f"<{hot}Q", data, 16 + 4 * self.channels)
        targets = struct.unpack_from(f"<{hot}I", data, 16 + 4 * self.channels + 8 * hot)
        self.hot = dict(zip(hashes, targets, strict=True))
        rest = data[16 + 4 * self.channels + 12 * hot :]
        self.table = struct.unpack(f"<{len(rest) // 4}I", rest)[1:]  # the channel of each bundle, behind their number
        self.ring = sorted(
            (
                _mixed(_mixed(channel << 32 | replica, 0x9E3779B97F4A7C15), 0) << 64
                | _mixed(_mixed(channel << 32 | replica, 0xD1B54A32D192ED03), 0),
                channel,
            )
            for channel, weight in enumerate(weights)
            for replica in range(weight)
        )

    def owner(self, hashed: int) -> int:
        """The one channel that owns a hash."""
        if hashed in self.hot:
            return self.hot[hashed]
        group = hashed >> (64 - self.group_bits)
        if self.table:
            return self.table[group * len(self.table) >> self.group_bits]
        place = _mixed(group, 0x8CB92BA72F3D8DD7) << 64 | _mixed(group, 0xABC98388FB8FAC03)
        at = bisect.bisect_left(self.ring, (place, -1))
        return self.ring[at % len(self.ring)][1]


@functools.lru_cache(maxsize=256)
def owners_of(data: bytes) -> Owners:
    """The owners under a function, worked out once."""
    return Owners(data)


def rows_of(segment: Path | bytes, slices: Sequence[Sequence[int]] = ()) -> list[tuple[int, Any]]:
    """Hash and stored key of every row of a segment, given as a file or as what is in it, and how it is cut."""
    data = segment.read_bytes() if isinstance(segment, Path) else segment
    found: list[tuple[int, Any]] = []
    start = 0
    for first, last, size, checksum in slices or [(0, 1 << 64, len(data), zlib.crc32(data))]:
        start += -start % 64
        part = data[start : start + size]
        assert zlib.crc32(part) == checksum
        table = pa.ipc.open_file(pa.BufferReader(part)).read_all()
        keys = table["key"].to_pylist()
        if pa.types.is_struct(table["key"].type):
            keys = [tuple(key.values()) for key in keys]
        rows = list(zip(table["hash"].to_pylist(), keys, strict=True))
        assert not slices or all(first <= hashed >> 52 <= last for hashed, _ in rows)
        found += rows
        start += size
    return found


def check_records(
    records: Iterable[Mapping[str, Any]],
    functions: Mapping[int, bytes],
    rows: Callable[[Mapping[str, Any]], list[tuple[int, Any]]],
    written: dict[tuple[str, int], dict[Any, str]],
) -> int:
    """Assert that every segment holds keys of its writer only, and no key was written twice in an epoch.

    `rows` gives, for a record, the hash each key is routed by and the key. `written` remembers, from one call to
    the next, who wrote what in which epoch. Returns the number of keys looked at.
    """
    count = 0
    for record in records:
        owners = owners_of(functions[record["generation"]])
        assert 0 <= record["channel"] < owners.channels, record
        for hashed, key in rows(record):
            count += 1
            if record["route"]:
                owner = owners.owner(hashed)
                assert owner == record["channel"], f"{key!r} belongs to channel {owner}: {record}"
            if record["first"] == record["last"] and "parts" not in record and "made" not in record:
                earlier = written.setdefault((record["operator"], record["last"]), {}).setdefault(key, record["name"])
                assert earlier == record["name"], f"{key!r} has two owners in one epoch: {earlier}, {record['name']}"
    return count


def check_checkpoint(checkpoint: Path, routed_by: Callable[[str, int, Any], int] | None = None) -> int:
    """Assert it for all versions a checkpoint has; the number of keys looked at.

    `routed_by` gives, for an operator, the hash of a stored key and the key, the hash it is routed by.
    """
    written: dict[tuple[str, int], dict[Any, str]] = {}
    count = 0
    for path in sorted((checkpoint / "anabranch/epochs").glob("*.json")):
        head, _, content = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        assert header["bytes"] == len(content)
        checksum = header.pop("checksum")
        described = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
        assert zlib.crc32(content, zlib.crc32(described)) == checksum
        manifest = json.loads(content)
        functions = {int(g): base64.b64decode(data) for g, data in manifest["facts"]["functions"].items()}
        for operator, records in manifest["segments"].items():

            def rows(record: Mapping[str, Any], operator: str = operator) -> list[tuple[int, Any]]:
                found = rows_of(checkpoint / "anabranch/state" / record["name"], record.get("slices", ()))
                return [(routed_by(operator, hashed, key) if routed_by else hashed, key) for hashed, key in found]

            count += check_records(records, functions, rows, written)
    return count
