"""Which version of a changing table an epoch has.

At the start of an epoch a table is looked at if its time has come, by the clock of the epochs; what it holds then is
what all tuples of the epoch meet. On one thread that is all (`Follower`). A query records the version with the
beginning of the epoch, so that one that runs again meets the same, and keeps it in the checkpoint for as long
as a manifest needs it:

    tables/<operator>/<digest>.arrow        the rows, once for each version
    epochs/<n>.begun                        which version epoch n was begun with
    epochs/<n>.json                         and which it was committed with
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import logging
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from anabranch.errors import AnabranchError, InputError
from anabranch.program.changing_table import ChangingTable, Lookup, TableShape
from anabranch.program.graph import Node
from anabranch.program.showing import told
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.envelope import damaged
from anabranch.state.files import LocalFiles
from anabranch.state.manifest_facts import TableFact

_log = logging.getLogger("anabranch")


@dataclasses.dataclass(frozen=True)
class TableVersion:
    """A version of a table, as tasks are given it: in a file that they can open, or as it is."""

    shape: TableShape
    fact: TableFact
    path: str | None
    data: bytes | None = dataclasses.field(default=None, repr=False)

    def lookup(self) -> Lookup:
        """Its rows by key."""
        data = self.data
        if data is None:
            assert self.path is not None
            try:
                with open(self.path, "rb") as file:
                    data = file.read()
            except OSError as problem:
                raise damaged(self.path, problem) from None
        wrong = _damage_of(data, self.fact)
        if wrong:
            raise damaged(self.path or self.fact.name, wrong)
        table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
        return self.shape.lookup(self.shape.schema.rows(table.columns))


class Lookups:
    """Versions that this process has looked into: they never change."""

    def __init__(self, limit: int = 8) -> None:
        self._found: collections.OrderedDict[tuple[str, str], Lookup] = collections.OrderedDict()
        self._limit = limit
        self._lock = threading.Lock()

    def of(self, versions: Iterable[TableVersion]) -> dict[str, Lookup]:
        """The tables of an epoch, as its operators ask for them."""
        return {version.shape.number: self._of(version) for version in versions}

    def _of(self, version: TableVersion) -> Lookup:
        key = (version.fact.name, version.shape.number)
        with self._lock:
            if key not in self._found:
                self._found[key] = version.lookup()
                while len(self._found) > self._limit:
                    self._found.popitem(last=False)
            self._found.move_to_end(key)
            return self._found[key]


def _damage_of(data: bytes | None, fact: TableFact) -> str:
    """What is wrong with a version's file; empty if nothing is."""
    if data is None:
        return "it is missing"
    is_whole = len(data) == fact.bytes and zlib.crc32(data) == fact.checksum
    return "" if is_whole else "its checksum does not fit"


class Follower:
    """Reads a table when it is time to."""

    def __init__(self, node: Node) -> None:
        assert isinstance(node.table, ChangingTable)
        self.table: ChangingTable = node.table
        self._title = node.title
        self._looked_ms: int | None = None
        self._seen: Any = None

    def news(self, clock_ms: int, has_some: bool) -> Sequence[Any] | None:
        """The rows, if the table was looked at now and may have changed; None: it is what it was.

        InputError if it cannot be read, unless it may be kept as it is and there is some version of it.
        """
        table, refresh_ms = self.table, self.table.refresh_ms
        is_due = self._looked_ms is None or (refresh_ms is not None and clock_ms - self._looked_ms >= refresh_ms)
        if not is_due:
            return None
        self._looked_ms = clock_ms
        try:
            seen = None if table.fingerprint is None else table.fingerprint()
            if seen is not None and seen == self._seen:
                return None
            rows = table.read()
        except Exception as problem:
            why = str(problem) if isinstance(problem, AnabranchError) else told(problem)
            if table.keeps and has_some:
                _log.warning("operator %s: %s cannot be read: %s. Going on as it was.", self._title, table.shown, why)
                return None
            hint = "" if table.keeps else "; or say missing='keep', to go on with what was last read"
            raise InputError(
                f"operator {self._title}: the table {table.shown} cannot be read: {why}\n"
                f"The epoch was not begun. Put the table back and start again{hint}."
            ) from problem
        self._seen = seen
        return rows


class FollowedLookups:
    """The tables of a sequential run."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._followers = [Follower(node) for node in nodes if node.table is not None]
        self._held: dict[str, Lookup] = {}

    def at(self, clock_ms: int, around: Mapping[str, Lookup]) -> dict[str, Lookup]:
        """What operators find in an epoch that begins; those that an epoch around this one has are as it has them."""
        for follower in self._followers:
            shape = follower.table.shape
            if shape.number not in around:
                rows = follower.news(clock_ms, shape.number in self._held)
                if rows is not None:
                    self._held[shape.number] = shape.lookup(rows)
        return {**self._held, **around}


class TableVersions:
    """The tables of a query, between its epochs."""

    def __init__(self, nodes: Iterable[Node], checkpoint: Checkpoint, shared: bool) -> None:
        self._followers = {node.name: Follower(node) for node in nodes if node.table is not None}
        self._checkpoint = checkpoint
        self._is_open = shared and isinstance(checkpoint.files, LocalFiles)
        self._sound: set[str] = set()  # files that this driver has written, or found to be whole

    def looked_at(
        self, clock_ms: int, committed: Mapping[str, TableFact], recorded: Mapping[str, TableFact]
    ) -> dict[str, TableFact]:
        """The versions for an epoch that begins; those that are new are in the checkpoint then.

        What was recorded when it first began stays: only tables of a program that changed since are looked at.
        """
        found = dict(recorded)
        for name, follower in self._followers.items():
            if name in recorded:
                continue
            rows = follower.news(clock_ms, name in committed)
            if rows is None:
                found[name] = committed[name]
            else:
                found[name] = self._kept(name, follower.table.shape, rows, committed.get(name))
        return found

    def _kept(self, name: str, shape: TableShape, rows: Sequence[Any], before: TableFact | None) -> TableFact:
        fact, data = _as_file(name, shape, rows)
        if fact != before or fact.name not in self._sound:
            self._checkpoint.files.write(fact.name, data)
            self._sound.add(fact.name)
        return fact

    def versions(self, facts: Mapping[str, TableFact]) -> tuple[TableVersion, ...]:
        """What tasks are given."""
        self._sound &= {fact.name for fact in facts.values()}
        return tuple(self._version(name, follower.table, facts[name]) for name, follower in self._followers.items())

    def _version(self, name: str, table: ChangingTable, fact: TableFact) -> TableVersion:
        files = self._checkpoint.files
        if fact.name not in self._sound:
            self._make_sound(name, table, fact)
        if self._is_open:
            assert isinstance(files, LocalFiles)
            return TableVersion(table.shape, fact, str(files.path(fact.name)))
        data = files.read(fact.name)
        if data is None:
            raise damaged(f"{files.root}/{fact.name}", "it is missing")
        return TableVersion(table.shape, fact, None, bytes(data))

    def _make_sound(self, name: str, table: ChangingTable, fact: TableFact) -> None:
        """See that a version of an earlier driver is whole; if it is not, the table may still be that version."""
        files = self._checkpoint.files
        problem = _damage_of(files.read(fact.name), fact)
        if problem:
            try:
                again, data = _as_file(name, table.shape, table.read())
            except Exception:  # it is gone, or cannot be read: then it is no help
                again, data = None, b""
            if again != fact:
                raise damaged(f"{files.root}/{fact.name}", f"{problem}, and the table has another version now")
            files.write(fact.name, data)
        self._sound.add(fact.name)


def _as_file(name: str, shape: TableShape, rows: Sequence[Any]) -> tuple[TableFact, bytes]:
    """A version of a table, and the content of its file."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in shape.schema.names]
    table = pa.Table.from_arrays(shape.schema.arrays(columns), schema=shape.schema.arrow)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    digest = hashlib.sha256(data).hexdigest()[:24]
    return TableFact(f"tables/{name}/{digest}.arrow", len(rows), len(data), zlib.crc32(data)), data
