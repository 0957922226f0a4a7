"""Sources whose files tasks read themselves, and which files an epoch has of them.

Spark lists the files, cuts the stream into epochs and keeps the offsets, as ever. Which files an epoch has is asked of
the epoch that runs, which is nothing public: so it is asked first whether this Spark has it (as in `read_limits`), and
if not, Spark reads. What cannot be read alike, Spark reads too: `engine/worker/file_pieces.py` says what that is, file
by file. Either way the source, its log and its offsets are the same, so who reads may change with every epoch and at
every restart.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from anabranch.engine.worker.file_pieces import FilePiece, ListedFile, cut, dealt, examined, in_turn, size_of
from anabranch.errors import ProgramError
from anabranch.program.graph import Node
from anabranch.program.origins import RowsOrigin
from anabranch.spark.hadoop_files import local_path
from anabranch.spark.read_limits import why_not_replaceable
from anabranch.spark.slots import asked_once_if_local, slots_now
from anabranch.spark.stopping import is_interruption

# What says which files there are, and how many an epoch takes, changes nothing in how one is read.
_OF_LISTING = {
    *("path", "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage", "filenameonly"),
    *("pathglobfilter", "modifiedbefore", "modifiedafter", "recursivefilelookup"),
}
# Settings of a session that change what is read, and the value with which pyarrow reads the same.
_NEEDED = {
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.binaryAsString": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
    "spark.sql.caseSensitive": "false",
}
_ATTACHED_S_MAX = 30.0
_PIECE_BYTES_MIN = 1 << 20
_FOOTERS_AT_ONCE = 8


class DirectFiles:
    """The files of a query's sources, as pieces for tasks.

    Parameters
    ----------
    spark : SparkSession
    nodes : sequence of Node
        The sources.
    leaves : mapping
        Source → which leaf of the query's plan it is, counted from the left.
    choice : str
        The option ``fileReading``.
    """

    def __init__(self, spark: SparkSession, nodes: Sequence[Node], leaves: Mapping[str, int], choice: str) -> None:
        self._schemas = [node.schema for node in nodes]
        self._leaves = [leaves[node.name] for node in nodes]
        asked = "option fileReading='spark'" if choice == "spark" else None
        unknown = why_not_replaceable(spark)
        self.why_not = asked or unknown or next(filter(None, (_why_not(spark, node) for node in nodes)), None)
        """Why Spark reads them; None if tasks do. Changes when an epoch has a file that only Spark can read."""
        self.begun = self.why_not is None
        """Whether the query began with tasks that read: Spark's own rows are then not in its stream."""
        self._slots_now = asked_once_if_local(spark.sparkContext, partial(slots_now, spark.sparkContext))
        self._query: Any = None
        self._started = threading.Event()

    def attach(self, query: Any) -> None:
        """The query has started. Its first epoch may run already."""
        self._query = query
        self._started.set()

    def input_bytes(self) -> int:
        """How many bytes the files of the epoch that runs have; 0 if Spark reads them."""
        try:
            return sum(os.stat(file.path).st_size for file in self._listed()) if self.why_not is None else 0
        except Exception:  # `partitions` tells why
            return 0

    def partitions(self, whole_files: bool, in_order: bool = False) -> list[list[FilePiece]] | None:
        """What each task of the epoch that runs reads; None if Spark has to.

        With `whole_files` each file is read by a task of its own; with `in_order` later tasks have later pieces.
        """
        if self.why_not is not None:
            return None
        try:
            files = self._listed()
        except (OSError, ValueError) as problem:
            self.why_not = f"the files of an epoch cannot be listed: {str(problem).partition(chr(10))[0]}"
            return None
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
            footers = list(pool.map(lambda file: examined(file, self._schemas[file.source]), files))
        found = []
        for file, footer in zip(files, footers, strict=True):
            if isinstance(footer, str):
                self.why_not = footer
                return None
            found.append((file, footer))
        slots = self._slots_now()
        size_max = max(_PIECE_BYTES_MIN, sum(size_of(footer) for _, footer in found) // slots + 1)
        pieces = [piece for file, footer in found for piece in cut(file, footer, None if whole_files else size_max)]
        return (in_turn if in_order else dealt)(pieces, len(pieces) if whole_files else slots)

    def relations(self) -> list[Any]:
        """What Spark would read of each source in the epoch that runs; None for one that has nothing new."""
        if not self._started.wait(_ATTACHED_S_MAX):
            raise ProgramError(f"the query did not start in {_ATTACHED_S_MAX} s")
        try:
            leaves = self._query._jsq.streamingQuery().lastExecution().logical().collectLeaves()
            plans = [leaves.apply(at) for at in self._leaves]
            # A source that has nothing new is an empty relation in its place.
            return [p.relation() if p.getClass().getSimpleName() == "LogicalRelation" else None for p in plans]
        except Exception as problem:  # nothing here is public
            if is_interruption(problem):
                raise
            raise ProgramError(
                "which files an epoch has cannot be asked of this Spark. Nothing of the epoch was written; start the "
                f"query with option('fileReading', 'spark').\n{str(problem).partition(chr(10))[0]}"
            ) from None

    def _listed(self) -> list[ListedFile]:
        """The files of the epoch that runs."""
        found = []
        for source, relation in enumerate(self.relations()):
            for name in () if relation is None else relation.location().inputFiles():
                path = local_path(name)
                if path is None or "=" in os.path.dirname(path):
                    raise ValueError(f"{name} is not on this machine, or its directory says something of its rows")
                found.append(ListedFile(source, path, name, os.stat(path).st_mtime_ns // 1_000_000))
        return found


def _why_not(spark: SparkSession, node: Node) -> str | None:
    """Why tasks cannot read a source themselves, as far as that is known before there are files."""
    origin = node.logic.origin  # type: ignore[union-attr]
    for setting, needed in _NEEDED.items():
        if str(spark.conf.get(setting, needed)).lower() != needed.lower():
            return f"the session has {setting} = {spark.conf.get(setting)}"
    if isinstance(origin, RowsOrigin):
        return None
    if origin.order_by:
        return f"{node.name} is sorted by columns"
    return _not_plain(origin.dataframe, node.name)


def _not_plain(dataframe: DataFrame, name: str) -> str | None:
    """Why a DataFrame is more than the rows of Parquet files."""
    plan = dataframe._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "StreamingRelation":
        return f"{name} is not plain files: Spark has something to do with its rows"
    source = plan.dataSource()
    if source.className().lower() != "parquet":
        return f"{name} is {source.className()}, not Parquet"
    given = source.options().keys().mkString("\n").lower().split("\n")
    others = sorted(set(filter(None, given)) - _OF_LISTING)
    return f"{name} is read with the option {others[0]}" if others else None
