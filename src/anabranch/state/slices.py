"""Segments that are cut between bundles of key groups, so that one bundle can be had without its neighbours.

    <…>.segment   ┌ groups 0 … 84 ┐ ┌ groups 512 … 596 ┐ ┌ groups 1024 … 1108 ┐     each a segment of its own
                  0            17,216 17,216         33,920 33,920         51,200    at a multiple of 64 bytes

A file is one, and so is its record in the manifest, which says of each slice what groups, bytes and checksum it has. An
owner of all of it opens all slices; who has taken over a bundle asks the store for that range of bytes alone, and a
host keeps slices as files of their own. Only large segments are cut: a small one is as quickly fetched whole. Nor are
those of an operator whose state has finer keys than tuples are routed by: they are not sorted by key group.
"""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.partitioning.function import bundle_of_groups
from anabranch.program.hashing import key_groups
from anabranch.state.records import Slice
from anabranch.state.segment import Segment, checksum_of, table_bytes

CUT_BYTES = 1 << 20
_ALIGNMENT = 64
_SUFFIX = ".segment"


def cut(data: pa.Buffer, bundles: int) -> tuple[pa.Buffer, tuple[Slice, ...]]:
    """A segment's bytes with a slice for each bundle that it has keys of, and what these are; none of an empty one."""
    segment = Segment(data)
    if not len(segment):
        return data, ()
    bundle_of = bundle_of_groups(bundles)
    of_rows = bundle_of[key_groups(segment.hashes)]
    starts = np.flatnonzero(np.diff(of_rows, prepend=-1)).tolist()
    whole, found = io.BytesIO(), []
    for start, end in zip(starts, [*starts[1:], len(of_rows)], strict=True):
        piece = table_bytes(segment.table.slice(start, end - start))
        groups = np.flatnonzero(bundle_of == of_rows[start])
        whole.write(bytes(-whole.tell() % _ALIGNMENT))
        whole.write(piece)
        found.append(Slice(int(groups[0]), int(groups[-1]), piece.size, checksum_of(piece)))
    return pa.py_buffer(whole.getbuffer()), tuple(found)


def offsets(slices: Sequence[Slice]) -> list[int]:
    """Where each slice begins."""
    found, end = [], 0
    for each in slices:
        found.append(end + -end % _ALIGNMENT)
        end = found[-1] + each.bytes
    return found


def slice_name(name: str, at: int) -> str:
    """What a slice is called where it is a file of its own."""
    return f"{name}.{at}"


def segment_name(name: str) -> str:
    """The segment that a file is, or is a slice of."""
    kept, suffix, _ = name.partition(_SUFFIX)
    return kept + suffix


def opened(data: bytes, checksum: int, slices: Sequence[Slice], read_from: str) -> list[Segment]:
    """All of a segment from its bytes; CheckpointError, which says where they come from, if they are damaged."""
    whole = pa.py_buffer(data)
    if not slices:
        return [Segment(whole, checksum, read_from=read_from)]
    return [
        Segment(whole.slice(offset, each.bytes), each.checksum, read_from=read_from)
        for offset, each in zip(offsets(slices), slices, strict=True)
    ]
