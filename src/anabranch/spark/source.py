"""Streaming DataFrames as sources, with an order that is a function of their data.

Spark cuts a source into partitions as it likes: by cores, by file size, by restart. So the order never
comes from partitions. It comes from what the rows say of themselves:

    files           modification time, path, offset of the split in the file, row in the split
    Kafka           topic, partition, offset
    named columns   those, then all other columns (rows that are equal in all are interchangeable)
    lists           the index: each epoch's rows are one file, written in order
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - every PySpark user knows it by this name

from anabranch.engine.worker.needed_columns import Needed
from anabranch.errors import OrderError, SchemaError
from anabranch.program.ddl import to_ddl
from anabranch.program.graph import Node
from anabranch.program.origins import RowsOrigin
from anabranch.program.schema import Schema
from anabranch.spark.hadoop_files import local_path, open_files, qualified
from anabranch.spark.narrowing import can_be_handed, narrowed

# Spark passes over files that are older, by its maxFileAge, than the newest it has seen: a week, unless it is told
# otherwise. Nothing of a stream may be left out without a word.
FOR_EVER = "36500d"


@dataclasses.dataclass(frozen=True)
class DataFrameOrigin:
    """A streaming DataFrame the user made."""

    dataframe: DataFrame
    order_by: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FilesOrigin(DataFrameOrigin):
    """Files whose number per epoch the user left to us."""

    path: str
    with_limit: Callable[[int], DataFrame]


@dataclasses.dataclass(frozen=True)
class Ordered:
    """A DataFrame ready to be split: data columns c0…, then the columns its order comes from.

    `order` is how pieces are found (see `tasks`); `sort` names columns each epoch must be sorted by; `limited`
    says that an epoch takes so much at most.
    """

    dataframe: DataFrame
    order: str
    sort: tuple[str, ...] = ()
    limited: bool = False


def schema_of(dataframe: DataFrame, title: str) -> Schema:
    """The stream schema of a DataFrame."""
    names = dataframe.columns
    for name in names:
        if names.count(name) > 1:
            raise SchemaError(f"source {title}: the DataFrame has the column {name!r} twice; rename one")
    try:
        return Schema.of(dataframe.schema)
    except SchemaError as problem:
        raise SchemaError(f"source {title}: {problem}") from None


def check_order(dataframe: DataFrame, order_by: Sequence[str], title: str) -> None:
    """Fail while the program is built if the DataFrame has no order."""
    for name in order_by:
        if name not in dataframe.columns:
            raise OrderError(
                f"source {title}: order_by names {name!r}, which is no column; columns: {', '.join(dataframe.columns)}"
            )
    if not order_by:
        _order_of(dataframe, title)


def check_uncut(dataframe: DataFrame, title: str) -> None:
    """Fail while the program is built if Spark is told to cut what must be read by one task."""
    for options in _options(dataframe):
        for name in _CUTTING:
            if name in options:
                raise OrderError(
                    f"source {title}: the option {name} has Spark cut Kafka partitions, and with partitioned_by each "
                    "must be read by one task. Leave one of them away"
                )


_CUTTING = ("minpartitions", "maxrecordsperpartition")
_LIMITS = ("maxfilespertrigger", "maxbytespertrigger", "maxoffsetspertrigger")


class OrderedSources:
    """The sources of a program as one streaming DataFrame.

    One source is itself. Several become rows of (number of the source, a struct for each source, all but one of
    them null): Spark then keeps the offsets of all in one query, and an epoch is what it read of all.

    Parameters
    ----------
    spark : SparkSession
    nodes : sequence of Node
    rows : mapping
        Source made of rows in memory → the directory of files that hold them.
    limits : mapping
        Source whose files per epoch are ours to say → how many the first epoch takes at most.
    """

    def __init__(
        self,
        spark: SparkSession,
        nodes: Sequence[Node],
        rows: Mapping[str, str],
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self._nodes = list(nodes)
        self._each = [_ordered(spark, node, rows, (limits or {}).get(node.name)) for node in nodes]
        # Whether some source gives so much an epoch at most, so that rows may stand ready and not be taken.
        self.limited = any(each.limited for each in self._each)
        self.orders = {node.name: each.order for node, each in zip(nodes, self._each, strict=True)}
        frames: list[DataFrame | None] = [each.dataframe for each in self._each]
        self.dataframe = self._united(frames)
        # Which leaf of the whole plan the first of each source is, from the left.
        self.leaves: dict[str, int] = {}
        first = 0
        for node, each in zip(nodes, self._each, strict=True):
            self.leaves[node.name] = first
            first += _leaves(each.dataframe).size()

    def unread(self) -> DataFrame:
        """The same sources without their rows, for a query whose tasks read the files themselves.

        Spark lists the files and keeps the offsets as ever. But what it makes anew for every epoch, whether anybody
        reads it or not, is a plan of nothing: no code to generate, no reader, no broadcast of Hadoop's settings. That
        was more than half of what the JVM did for an epoch.
        """
        frames = [each.dataframe.where(F.lit(False)).select(F.lit(0).alias("none")) for each in self._each]
        return functools.reduce(DataFrame.unionAll, frames)

    def of_files(self, session: SparkSession, relations: Sequence[Any]) -> DataFrame | None:
        """What the stream of `dataframe` has in an epoch, given the files of each source there (None: none).

        For queries that began with `unread`, if Spark has to read after all.
        """
        frames = []
        for node, relation in zip(self._nodes, relations, strict=True):
            java_session: Any = session._jsparkSession
            found = None if relation is None else DataFrame(java_session.baseRelationToDataFrame(relation), session)
            frames.append(None if found is None else _with_order(found, (), node.title).dataframe)
        return None if all(frame is None for frame in frames) else self._united(frames)

    def _united(self, frames: Sequence[DataFrame | None]) -> DataFrame:
        """The rows of all sources; of some there are none."""
        if len(frames) == 1:
            assert frames[0] is not None
            return frames[0]
        parts = []
        for number, frame in enumerate(frames):
            if frame is None:
                continue
            structs = [
                F.struct(*frame.columns).alias("s0").cast(other.dataframe.schema).alias(f"s{at}")
                if at == number
                else F.lit(None).cast(other.dataframe.schema).alias(f"s{at}")
                for at, other in enumerate(self._each)
            ]
            parts.append(frame.select(F.lit(number).alias("source"), *structs))
        return functools.reduce(DataFrame.unionAll, parts)

    def handed(self, needed: Sequence[Needed]) -> tuple[Needed, ...]:
        """What Spark gives of each source, if so much is needed."""
        return tuple(can_be_handed(each, node.schema) for each, node in zip(needed, self._nodes, strict=True))

    def rows(self, batch: DataFrame | None, handed: Sequence[Needed]) -> list[DataFrame]:
        """An epoch's rows as splitters take them, with what is `handed` of each source (nothing said: all)."""
        parts = self._sorted(batch)
        schemas = [node.schema for node in self._nodes]
        return [narrowed(part, handed, schemas) for part in parts] if handed else parts

    def _sorted(self, batch: DataFrame | None) -> list[DataFrame]:
        """An epoch's rows, those of sources with named columns sorted by these."""
        if batch is None:
            return []
        if len(self._each) == 1:
            return [batch.orderBy(*self._each[0].sort) if self._each[0].sort else batch]
        if not any(each.sort for each in self._each):
            return [batch]
        parts = []
        for number, each in enumerate(self._each):
            part = batch.where(F.col("source") == number)
            parts.append(part.orderBy(*(f"s{number}.{name}" for name in each.sort)) if each.sort else part)
        return parts


def local_directories(spark: SparkSession, nodes: Sequence[Node]) -> dict[str, str | None]:
    """The sources whose files per epoch are ours to say → their directory, if it is on this machine.

    What other file systems list is in the order of names. What Spark's own sink wrote is listed by its log.
    """
    found: dict[str, str | None] = {}
    for node in nodes:
        origin = node.logic.origin  # type: ignore[union-attr]
        if isinstance(origin, FilesOrigin):
            location = qualified(spark, origin.path)
            if open_files(spark, f"{location}/_spark_metadata").names(""):
                continue
            found[node.name] = local_path(location)
    return found


def _ordered(spark: SparkSession, node: Node, rows: Mapping[str, str], limit: int | None) -> Ordered:
    """A source as a DataFrame whose order is known."""
    origin = node.logic.origin  # type: ignore[union-attr]
    if limit is not None:
        # That it has a limit is for epoch sizing to judge: only it knows which epochs reached it.
        limited = _with_order(origin.with_limit(limit), origin.order_by, node.title)
        return dataclasses.replace(limited, limited=False)
    if isinstance(origin, RowsOrigin):
        # One file an epoch. They are dated by number, far back, so none may be too old to be read.
        reader = spark.readStream.schema(to_ddl(node.schema.arrow)).option("maxFilesPerTrigger", 1)
        return _with_order(reader.option("maxFileAge", FOR_EVER).parquet(rows[node.name]), (), node.title)
    return _with_order(origin.dataframe, origin.order_by, node.title)


def _with_order(dataframe: DataFrame, order_by: Sequence[str], title: str) -> Ordered:
    # Columns get plain names: mapInArrow resolves them by name and trips over dots.
    data = [F.col(_quoted(name)).alias(f"c{at}") for at, name in enumerate(dataframe.columns)]
    if order_by:
        rest = [name for name in dataframe.columns if name not in order_by]
        sortable = [n for n in rest if dataframe.schema[n].dataType.typeName() != "map"]
        sort = tuple(f"c{dataframe.columns.index(name)}" for name in [*order_by, *sortable])
        return Ordered(dataframe.select(*data), "partition", sort, _is_limited(dataframe))
    order, columns = _order_of(dataframe, title)
    return Ordered(dataframe.select(*data, *columns), order, limited=_is_limited(dataframe))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _order_of(dataframe: DataFrame, title: str) -> tuple[str, list[Any]]:
    kinds = {
        name: field.dataType.simpleString() for name, field in zip(dataframe.columns, dataframe.schema, strict=True)
    }
    kafka = {"topic": "string", "partition": "int", "offset": "bigint"}
    if kafka.items() <= kinds.items() and _reads_kafka(dataframe):
        return "kafka", [F.col(name).alias(f"o{at}") for at, name in enumerate(kafka)]
    try:
        columns = [
            # Three accesses to _metadata cost three times what these do: measured.
            F.unix_micros(F.col("_metadata.file_modification_time")).alias("o0"),
            F.input_file_name().alias("o1"),
            F.input_file_block_start().alias("o2"),
        ]
        dataframe.select(*columns)  # analysed at once: fails if this is no file source
        return "files", columns
    except AnalysisException:
        raise OrderError(
            f"source {title}: this DataFrame has no order of its own. Files are ordered by modification time, path "
            "and row, Kafka by topic, partition and offset (keep these three columns). For anything else name the "
            f"columns that order it: read(df, order_by=[…]); columns: {', '.join(dataframe.columns)}"
        ) from None


def _is_limited(dataframe: DataFrame) -> bool:
    return any(name in options for options in _options(dataframe) for name in _LIMITS)


def _options(dataframe: DataFrame) -> Iterator[str]:
    """The options that each leaf of a streaming DataFrame was made with, in lower case."""
    # No public API gives them back; the leaves of its plan have them.
    leaves = _leaves(dataframe)
    for at in range(leaves.size()):
        leaf = leaves.apply(at)
        kind = leaf.getClass().getSimpleName()
        if kind == "StreamingRelation":
            yield leaf.dataSource().options().toString().lower()
        elif kind == "StreamingRelationV2":
            yield leaf.extraOptions().toString().lower()


def _leaves(dataframe: DataFrame) -> Any:
    return dataframe._jdf.queryExecution().analyzed().collectLeaves()


def _reads_kafka(dataframe: DataFrame) -> bool:
    # No public API says where a DataFrame comes from, and three columns of these names prove nothing.
    plan = dataframe._jdf.queryExecution().analyzed().toString()
    return "kafka" in plan.lower()
