"""Packets that go from task to task through files of this machine.

    a task ─► one file: payloads, one after the other,       ─► those behind it map the file and sort what is listed
              then for each receiver where its own rows lie      for them: a payload is read when its turn has come

Where all tasks run on one machine nothing is gained by handing rows to Spark's shuffle: they would cross to the JVM,
into its files, back, and be sorted as objects.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import mmap
import os
import struct
import uuid
from collections.abc import Iterator, Sequence

import msgpack

from anabranch.engine.worker.exchange import Arriving, Payload, Row

_BUFFER = 1 << 18
# What systems say whose files have one name only: exFAT, some network and user-space ones.
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_END = struct.Struct(">Q")


@dataclasses.dataclass(frozen=True)
class PacketList:
    """Where a task finds what another one sent it."""

    view: memoryview
    """The whole file, which those who look for what is theirs share."""
    begin: int
    """Where the list of the rows stands in it."""
    size: int


def send(rows: Iterator[Row], path: str) -> None:
    """Write what a task sends to a file, which is there when it is whole, and stays as it is.

    If another attempt of the task was faster, its file is the one: receivers must not have some rows of either.
    """
    partial = f"{path}.{uuid.uuid4().hex}"
    try:
        _write(rows, partial)
        _put(partial, path)
    finally:
        with contextlib.suppress(FileNotFoundError):  # the disk was full, or the job is gone
            os.unlink(partial)


def _put(partial: str, path: str) -> None:
    """Have a file appear under its name, unless another is there."""
    try:
        os.link(partial, path)
    except FileExistsError:
        return
    except OSError as problem:
        if problem.errno not in _NO_LINKS:
            raise
        # Without hard links two attempts may both find nothing. Of those only one holds the task (`claimed_tasks`).
        if not os.path.exists(path):
            os.rename(partial, path)


def _write(rows: Iterator[Row], path: str) -> None:
    listed: dict[int, list[tuple[bytes, int, int]]] = {}
    at = 0
    with open(path, "xb", _BUFFER) as file:
        for receiver, order, payload in rows:
            listed.setdefault(receiver, []).append((order, at, len(payload)))
            at += file.write(payload)
        lists = {}
        for receiver, mine in listed.items():
            size = file.write(msgpack.packb(mine))
            lists[receiver] = (at, size)
            at += size
        file.write(msgpack.packb(lists))
        file.write(_END.pack(at))


def lists_in(path: str) -> dict[int, PacketList]:
    """What a task sent, by receiver."""
    view = _mapped(path)
    end = len(view) - _END.size
    (at,) = _END.unpack(view[end:])
    found = msgpack.unpackb(view[at:end], strict_map_key=False)
    return {receiver: PacketList(view, begin, size) for receiver, (begin, size) in found.items()}


def received(lists: Sequence[PacketList]) -> Iterator[Arriving]:
    """The rows that a task gets, sorted by their order."""
    rows = [
        (order, number, at, size)
        for number, each in enumerate(lists)
        for order, at, size in msgpack.unpackb(each.view[each.begin : each.begin + each.size])
    ]
    for order, number, at, size in sorted(rows):
        yield order, Payload(lists[number].view[at : at + size])


def _mapped(path: str) -> memoryview:
    """A file's bytes, which stay readable as long as something refers to them, whatever becomes of the file."""
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
