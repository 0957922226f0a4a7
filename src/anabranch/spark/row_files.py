"""Rows in memory as files, one an epoch, so that they survive a restart as any source does.

    sources/<source>/000000000.parquet   the rows of the first epoch
                    /_rows.json          for each file: how many rows, a digest of them, and the file's checksum

The files are named and dated by epoch, and what is there is kept: a query that starts again with a longer list reads
the rest as new epochs. A list whose rows differ from those that were read before is refused; a file that was lost or
damaged is made again, from the list.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from anabranch.engine.sequential import input_row
from anabranch.errors import CheckpointError
from anabranch.program.graph import Node
from anabranch.program.origins import RowsOrigin
from anabranch.spark.hadoop_files import open_files
from anabranch.state.codec import encode
from anabranch.state.envelope import damaged, seal, to_json, unseal
from anabranch.state.files import Files

INDEX = "_rows.json"
_KIND = "rows"


@dataclasses.dataclass(frozen=True)
class RowFile:
    """What the index says of a file."""

    rows: int
    digest: str
    bytes: int
    checksum: int


class RowFiles:
    """The sources of a program that are made of rows in memory.

    Parameters
    ----------
    nodes : sequence of Node
        All sources. A row that does not fit its schema is an error at once, before anything is written.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.rows: dict[str, tuple[Node, list[list[tuple[Any, ...]]]]] = {}
        for node in nodes:
            origin = node.logic.origin  # type: ignore[union-attr]
            if isinstance(origin, RowsOrigin):
                count = 0
                epochs: list[list[tuple[Any, ...]]] = []
                for rows in origin.epochs:
                    epochs.append([input_row(node, row, count + at) for at, row in enumerate(rows)])
                    count += len(rows)
                self.rows[node.name] = (node, epochs)

    def written(self, spark: SparkSession, place: str, query: str, check: Callable[[], None]) -> dict[str, str]:
        """Write what is not there; source → the directory of its files. `check` raises if another driver took over."""
        found = {}
        for name, (node, epochs) in self.rows.items():
            found[name] = f"{place}/{name}"
            write_rows(open_files(spark, found[name]), node, epochs, query, check)
        return found


def write_rows(
    files: Files, node: Node, epochs: Sequence[Sequence[tuple[Any, ...]]], query: str, check: Callable[[], None]
) -> None:
    """Bring the files of a source up to its list."""
    listed = [row for rows in epochs for row in rows]
    names = set(files.names(""))
    indexed = _read_index(files, query)
    known = _found_again(files, node, listed, indexed, names)
    first = 0
    for number, file in enumerate(known):
        rows = listed[first : first + file.rows]
        _check_same(files, node, number, file, rows, first)
        _mend(files, node, number, file, rows if len(rows) == file.rows else None, names)
        first += file.rows
    added = list(known)
    for rows in _remaining(epochs, [file.rows for file in known]):
        data = _encoded(node, rows)
        check()
        files.write(_name(len(added)), data, modified=_date(len(added)))
        added.append(RowFile(len(rows), _digest(rows), len(data), zlib.crc32(data)))
    if added != indexed or INDEX not in names:
        check()
        body = to_json([dataclasses.asdict(each) for each in added]).encode()
        files.write(INDEX, seal(_KIND, query, body))


def _read_index(files: Files, query: str) -> list[RowFile]:
    """The files that are known to be written; none if nothing says so any more."""
    data = files.read(INDEX)
    if data is None:
        return []
    try:
        return [RowFile(**each) for each in json.loads(unseal(data, _KIND, query, f"{files.root}/{INDEX}"))]
    except (ValueError, TypeError) as problem:
        raise damaged(f"{files.root}/{INDEX}", problem) from None


def _found_again(
    files: Files, node: Node, listed: Sequence[tuple[Any, ...]], known: Sequence[RowFile], names: set[str]
) -> list[RowFile]:
    """The files that the index knows, and those behind them. Each of these must hold what the list has there.

    A driver died before it wrote the index; or one that was frozen in between woke up, and put its older index in the
    place of its successor's. Spark may have read those files, so they are not cut anew.
    """
    found = list(known)
    first = sum(file.rows for file in known)
    while _name(len(found)) in names:
        name = _name(len(found))
        data = files.read(name) or b""
        try:
            count = pq.read_metadata(pa.BufferReader(data)).num_rows
            rows = listed[first : first + count]
            same = len(rows) == count and _encoded(node, rows) == data
        except (pa.ArrowException, OSError):
            same = False
        if not same:
            raise CheckpointError(
                f"{files.root}/{INDEX} does not know {name}, which does not hold the rows that source {node.title} has "
                "there now: it is damaged, or the list was changed. Restore both from a copy, or start anew with "
                "another checkpointLocation and output path."
            )
        found.append(RowFile(count, _digest(rows), len(data), zlib.crc32(data)))
        first += count
    return found


def _check_same(
    files: Files, node: Node, number: int, file: RowFile, rows: Sequence[tuple[Any, ...]], first: int
) -> None:
    if len(rows) == file.rows:
        same = _digest(rows) == file.digest
    else:
        same = not rows or _begins_with(files, node, number, file, rows)  # the list ends here, within what was read
    if not same:
        raise CheckpointError(
            f"source {node.title}: rows {first} to {first + len(rows) - 1} of its list differ from those that this "
            f"query has in {files.root}. A list may grow at its end; what was read once cannot change. Use the list "
            "as it was, or another checkpointLocation and output path."
        )


def _begins_with(files: Files, node: Node, number: int, file: RowFile, rows: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a file begins with these rows; one that is damaged is for `_mend` to judge."""
    data = files.read(_name(number)) or b""
    if (len(data), zlib.crc32(data)) != (file.bytes, file.checksum):
        return True
    sink = pa.BufferOutputStream()
    pq.write_table(pq.read_table(pa.BufferReader(data)).slice(0, len(rows)).cast(node.schema.arrow), sink)
    return bool(sink.getvalue().to_pybytes() == _encoded(node, rows))


def _mend(
    files: Files, node: Node, number: int, file: RowFile, rows: Sequence[tuple[Any, ...]] | None, names: set[str]
) -> None:
    """Make sure that a file is as it was written."""
    data = files.read(_name(number)) if _name(number) in names else None
    if data is not None and (len(data), zlib.crc32(data)) == (file.bytes, file.checksum):
        return
    if rows is None:
        raise damaged(f"{files.root}/{_name(number)}", "its rows are not in the list that was given, either")
    again = _encoded(node, rows)
    files.write(_name(number), again, modified=_date(number))


def _remaining(epochs: Sequence[Sequence[tuple[Any, ...]]], written: Sequence[int]) -> Iterator[list[tuple[Any, ...]]]:
    """What is not written yet, cut where the list is."""
    if list(written) == [len(rows) for rows in epochs[: len(written)]]:
        yield from (list(rows) for rows in epochs[len(written) :])
        return
    first, done = 0, sum(written)
    for rows in epochs:
        rest = list(rows)[max(0, done - first) :]
        first += len(rows)
        if rest:
            yield rest


def _encoded(node: Node, rows: Sequence[tuple[Any, ...]]) -> bytes:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in node.schema.names]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(node.schema.arrays(columns), schema=node.schema.arrow), sink)
    return sink.getvalue().to_pybytes()


def _digest(rows: Sequence[tuple[Any, ...]]) -> str:
    return hashlib.sha256(encode([tuple(row) for row in rows])).hexdigest()[:32]


def _name(number: int) -> str:
    return f"{number:09d}.parquet"


def _date(number: int) -> int:
    return 1_000_000_000 + number
