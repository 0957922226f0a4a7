"""A directory of output that belongs to one query: ``part-<epoch>-<number>``, in the order of their names the stream.

    _anabranch.json                        whose it is, made when the first epoch is about to be written
    part-000000000007-00000.parquet        epoch 7; again, if the epoch runs again: replaced by the same
    day=7/part-000000000007-00000.parquet  the same where output is in directories by columns (`output_partitions.py`)
    _staged-…  _staging-…                  what tasks and Spark have written and nobody reads: renamed when all is there

Files are staged under names that no other driver has and only one's own are published; the next owner removes the
rest. What remains open: a driver that is frozen between its last look at the ownership and its renaming, and wakes
up later, replaces the files of that one epoch, by files with the same rows.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence

from anabranch.engine.driver.sink import Holder
from anabranch.engine.worker.output_files import STAGED
from anabranch.errors import CheckpointError, SinkError, StorageError
from anabranch.faults import reach
from anabranch.state.envelope import opened, seal, to_json
from anabranch.state.files import Files, LocalFiles, cannot_write, remove_passing, sync

MARK = "_anabranch.json"
_KIND = "output"
STAGING = "_staging-"
_SWEPT_EVERY = 64  # epochs; what is swept is seldom there


class OutputDirectory:
    """The files that a query writes.

    Parameters
    ----------
    files : Files
        The directory.
    format_name : str
        What the files hold.
    columns : str
        … and their columns: files of different ones in one directory could not be read as one table.
    partitioned : str
        The columns that are in the names of directories.
    """

    def __init__(self, files: Files, format_name: str, columns: str, partitioned: str = "") -> None:
        self.files = files
        self._format = format_name
        self._columns = f"{columns} partitioned by {partitioned}" if partitioned else columns
        self._partitioned = bool(partitioned)
        self._holder = Holder("", None)

    def check(self, holder: Holder) -> None:
        """Make sure that the directory is the query's, or new; writes nothing."""
        path = self.files.root
        try:
            names = self.files.names("")
        except StorageError as problem:
            raise SinkError(f"the output path {path} is no directory. Choose an empty or new one. {problem}") from None
        found = self._owner()
        if found is None:
            if names:
                raise SinkError(
                    f"the output path {path} exists and holds other content ({', '.join(names[:3])}"
                    f"{', …' if len(names) > 3 else ''}), and no {MARK} that would say whose it is. Choose an empty or "
                    "new path; if this is the output of this query, restore that file from a copy."
                )
            return
        query, owner, format_name, columns = found
        if owner != holder.checkpoint:
            raise SinkError(
                f"the output path {path} belongs to the query with the checkpoint {owner}; this query has the "
                f"checkpoint {holder.checkpoint}. Choose another path, or delete that output."
            )
        if query != holder.query:
            raise SinkError(
                f"the output path {path} belongs to the query {query}, whose checkpoint was in {owner}; what is there "
                f"now is {'a new query' if holder.query is None else f'the query {holder.query}'}. Choose another "
                "path, or delete that output, or restore the checkpoint."
            )
        if format_name != self._format:
            raise SinkError(f"the output path {path} holds {format_name}, not {self._format}")
        if columns != self._columns:
            raise SinkError(
                f"the output path {path} holds the columns {columns}; the program now writes {self._columns}, and "
                "files of both could not be read as one table. Write to another path: the query goes on with its state."
            )

    def _owner(self) -> tuple[str, str, str, str] | None:
        """The query, checkpoint, format and columns that the mark names."""
        data = self.files.read(MARK)
        if data is None:
            return None
        place = f"{self.files.root}/{MARK}"
        try:
            query, content = opened(data, _KIND, None, place)
            found = json.loads(content)
            return query, found["checkpoint"], found["format"], found["columns"]
        except (CheckpointError, ValueError, KeyError, TypeError) as problem:
            raise SinkError(
                f"{place} is damaged, so it cannot be said whose output this is. Restore it from a copy; or write to "
                f"another path. ({problem})"
            ) from None

    def prepare(self, holder: Holder) -> None:
        """Make it the query's, and remove what owners before this one staged and did not publish."""
        self.check(holder)
        assert holder.query is not None, "a query has an id when it begins to write"
        self._holder = holder
        for folder in self._folders():
            remove_passing(self.files, folder)
        for name in self.files.names(""):
            if name.startswith(STAGED):
                self.files.delete(name)
            elif name.startswith(STAGING):
                self.files.clear(name)
        body = to_json({"checkpoint": holder.checkpoint, "format": self._format, "columns": self._columns}).encode()
        if not self.files.create(MARK, seal(_KIND, holder.query, body)):
            self.check(holder)  # two queries at once: one of them made the mark

    def staging(self, epoch: int) -> str:
        """A name for a directory in which an epoch's output is prepared: this driver's alone."""
        return f"{STAGING}{self._holder.token:06d}-{uuid.uuid4().hex[:12]}-part-{epoch:012d}-"

    def publish(self, epoch: int, content: Mapping[str, bytes | memoryview]) -> None:
        """Make contents, by the ends of their names, an epoch's output; there may be none.

        Before the end of a name there may be directories, of partitions.
        """
        names = {_part_name(epoch, end): data for end, data in content.items()}
        self._holder.check()
        reach("files checked", epoch=epoch)
        for name, data in names.items():
            self.files.write(name, data)
        if self.files.durable and isinstance(self.files, LocalFiles):
            for folder in sorted({above for name in names for above in _folders_above(name)}, reverse=True):
                sync(f"{self.files.root}/{folder}")
        self._remove_others(epoch, names)

    def publish_staged(self, epoch: int, staged: Sequence[str], end: str) -> None:
        """Make files that tasks have written here an epoch's output, in this order."""
        names = [f"part-{epoch:012d}-{number:05d}{end}" for number in range(len(staged))]
        self._holder.check()
        reach("files checked", epoch=epoch)
        root = self.files.root
        try:
            for source, name in zip(staged, names, strict=True):
                if self.files.durable:
                    sync(f"{root}/{source}")
                os.replace(f"{root}/{source}", f"{root}/{name}")
            if self.files.durable:
                sync(root)
        except OSError as problem:
            raise cannot_write(root, problem) from None
        self._remove_others(epoch, names)
        if epoch % _SWEPT_EVERY == 0:
            self._sweep(epoch)

    def _remove_others(self, epoch: int, mine: Collection[str]) -> None:
        """Remove what others have published of an epoch that is mine, or that nobody will publish again.

        To list a directory of a million files takes long, and in nearly every epoch there is nothing to be found:
        nobody has begun it before. A driver that was frozen finds itself fenced. If its epoch is committed it has just
        replaced files of its successor, by the same rows, and removes the rest of them; else the successor will.
        """
        if self._holder.is_again(epoch) if self._holder.is_owner else self._holder.is_committed(epoch):
            # What attempts of tasks left that were repeated goes with it.
            superseded = (f"part-{epoch:012d}-", f"{STAGED}{epoch:012d}-")
            for folder in self._folders():
                for name in self.files.names(folder):
                    if name.startswith(superseded) and f"{folder}{'/' if folder else ''}{name}" not in mine:
                        self.files.delete(f"{folder}/{name}" if folder else name)

    def _folders(self, above: str = "") -> Iterator[str]:
        """The directory itself and those of partitions in it."""
        yield above
        if not above and not self._partitioned:
            return
        for name in self.files.names(above):
            if "=" in name and not name.startswith((STAGED, STAGING)):  # a column may begin with an underline, too
                yield from self._folders(f"{above}/{name}" if above else name)

    def _sweep(self, epoch: int) -> None:
        """Remove files of attempts of tasks that were repeated."""
        for name in self.files.names(""):
            if name.startswith(STAGED) and name < f"{STAGED}{epoch + 1:012d}-":
                self.files.delete(name)


def _part_name(epoch: int, end: str) -> str:
    folder, _, own = end.rpartition("/")
    return f"{folder}{'/' if folder else ''}part-{epoch:012d}-{own}"


def _folders_above(name: str) -> list[str]:
    """The directories in which something new may have a name, the root as the empty text."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts))]
