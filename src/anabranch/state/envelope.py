"""The envelope of every file that a restart reads: what it is, whose it is, how long, and a checksum.

    {"anabranch":"manifest","bytes":1187,"checksum":2890447135,"format":3,"query":"5f0c…"}⏎
    the content, so many bytes

A disk that returns other bits, a copy that was cut off, a file of another query or of another kind under the right
name: each is found before anything of the content is believed. Which version of a file it is (an older one put back)
is for the content to say, and for its reader to compare.
"""

from __future__ import annotations

import json
import zlib

from anabranch.errors import CheckpointError

FORMAT = 3
_WAY_OUT = "Restore it from a copy, or start anew with another checkpointLocation and output path."


def to_json(value: object) -> str:
    """JSON with one form for one value, so that digests and comparisons work."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def seal(kind: str, query: str, content: bytes | memoryview) -> bytes:
    """A file: the content behind a header that describes it."""
    return _header(kind, query, content) + bytes(content)


def _header(kind: str, query: str, content: bytes | memoryview, version: int = FORMAT) -> bytes:
    # The checksum covers the header as well: a flipped bit in the query's id is damage, not another query.
    fields = {"anabranch": kind, "bytes": len(content), "format": version, "query": query}
    checksum = zlib.crc32(content, zlib.crc32(to_json(fields).encode()))
    return to_json({**fields, "checksum": checksum}).encode() + b"\n"


def unseal(data: bytes, kind: str, query: str | None, name: str) -> bytes:
    """The content of a file of a query (None: of whichever); CheckpointError, with its name, if it is not whole."""
    return opened(data, kind, query, name)[1]


def opened(data: bytes, kind: str, query: str | None, name: str) -> tuple[str, bytes]:
    """The id of the query a file belongs to, and the content; see `unseal`."""
    head, newline, content = data.partition(b"\n")
    try:
        fields = json.loads(head)
        version, found_kind, owner = fields["format"], fields["anabranch"], fields["query"]
        whole = head + newline == _header(found_kind, owner, content, version)
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged(name, "it is empty" if not data else "its header cannot be read") from None
    if not whole:
        raise damaged(name, "its length or its checksum does not fit")
    if version != FORMAT:
        raise CheckpointError(f"{name} has the format {version}; this version reads {FORMAT}. {_WAY_OUT}")
    if found_kind != kind:
        raise damaged(name, f"it is a {found_kind} and should be a {kind}")
    if query is not None and owner != query:
        raise damaged(name, f"it belongs to another query ({owner}; this one is {query})")
    return owner, content


def damaged(name: str, problem: object) -> CheckpointError:
    """The error of a file whose content cannot be believed."""
    return CheckpointError(f"{name} is damaged: {problem}. {_WAY_OUT}")
