"""The session: where streams begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anabranch.api.building import error_policy, put, unique_name
from anabranch.api.events import Listener, Listeners
from anabranch.api.stream import Stream
from anabranch.api.tables import is_table, rows_of
from anabranch.errors import ProgramError, SchemaError
from anabranch.operators.guarding import readable, with_unreadable
from anabranch.program.ddl import to_ddl
from anabranch.program.graph import Feedback, Location, Loop, Node, Source, caller_location
from anabranch.program.hashing import is_hashable
from anabranch.program.options import CHANNELS_MAX
from anabranch.program.schema import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# With one of these it is the user who says which files an epoch takes, or which there are at all.
_OF_SELECTION = {
    *("maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage"),
    *("pathglobfilter", "modifiedbefore", "modifiedafter", "recursivefilelookup"),
}


class Session:
    """Streams on a SparkSession. Made by `session`."""

    def __init__(self, spark: SparkSession, on_error: str = "fail") -> None:
        self.spark = spark
        self.on_error = on_error
        self.listeners = Listeners()

    def addListener(self, listener: Listener) -> None:
        """Have a function called with every event of the queries that are started from now on."""
        self.listeners.add(listener)

    def removeListener(self, listener: Listener) -> None:
        """Give a function to no more queries; those that run keep it."""
        self.listeners.remove(listener)

    def read(
        self,
        dataframe: DataFrame,
        *,
        order_by: str | Sequence[str] | None = None,
        partitioned_by: str | Sequence[str] | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> Stream:
        """A stream from any streaming DataFrame.

        Parameters
        ----------
        dataframe : DataFrame
            A streaming DataFrame: ``spark.readStream.…``.
        order_by : str or sequence of str, optional
            The columns that order the rows of an epoch. Not needed for files (modification time, path, row)
            nor for Kafka (topic, partition, offset).
        partitioned_by : str or sequence of str, optional
            The columns by which the rows are partitioned already, as `partition_of` does it: each file, or each Kafka
            partition, has rows of one partition only. An operator by a key that holds these columns then needs no
            shuffle before it, if it comes first. Checked for every key.
        partitions : int, optional
            Into how many; needed with `partitioned_by`. The operator has as many channels.
        name : str, optional
            What plans and errors call the source.
        """
        from anabranch.spark.source import DataFrameOrigin, check_order, check_uncut, schema_of

        location = caller_location()
        title = f"{name or 'source'} ({location})"
        if not getattr(dataframe, "isStreaming", False):
            raise ProgramError(
                f"read at {location}: expected a streaming DataFrame (spark.readStream…), found "
                f"{'a DataFrame that is not streaming' if hasattr(dataframe, 'isStreaming') else repr(dataframe)}"
            )
        columns = (order_by,) if isinstance(order_by, str) else tuple(order_by or ())
        schema = schema_of(dataframe, title)
        check_order(dataframe, columns, title)
        parts = _partitioned(schema, partitioned_by, partitions, title)
        if parts[0] and columns:
            raise ProgramError(
                f"source {title}: order_by and partitioned_by exclude each other: rows that are sorted by columns are "
                "shuffled for it. Leave one of them away"
            )
        if parts[0]:
            check_uncut(dataframe, title)
        return _source(self, DataFrameOrigin(dataframe, columns), schema, location, name, parts)

    def from_files(
        self,
        path: str,
        format: str,
        schema: Any,
        *,
        partitioned_by: str | Sequence[str] | None = None,
        partitions: int | None = None,
        name: str | None = None,
        on_error: str | None = None,
        **options: Any,
    ) -> Stream:
        """A stream of the files in a directory, in the order of modification time, path and row.

        Parameters
        ----------
        path, format : str
            The directory and the format of its files: parquet, json, csv, orc, text, …
        schema : str or class
            The columns: a DDL string, a Spark or Arrow schema, or a class with annotated fields.
        partitioned_by, partitions
            As for `read`: each file has rows of one partition only. Unless options say otherwise, an epoch takes as
            many files as there are partitions; an epoch that has several files of one is run with a shuffle.
        on_error : "fail", "skip" or "dead_letter", optional
            What a row does that cannot be read (JSON, CSV, XML), or has a null in a column that is ``not null``: see
            `Stream.on_error`. What the session says by default. A file that is damaged as a whole fails the epoch.
        **options
            Options of Spark's reader, such as ``maxFilesPerTrigger=1`` or ``header=True``. Rows that cannot
            be read fail the epoch (``mode="FAILFAST"``); Spark's own default would turn them into nulls. Without
            options that say which files an epoch takes, and without wildcards in the path, their number is adapted
            so that epochs last about as long as the query's ``epochTarget``. Files are read however old they are;
            Spark's own default for ``maxFileAge`` would pass over those a week older than the newest.
        """
        location = caller_location()
        columns = _columns("from_files", schema, location)
        parts = _partitioned(columns, partitioned_by, partitions, f"{name or 'source'} ({location})")
        policy = error_policy(self.on_error if on_error is None else on_error, "from_files", location)
        wanted, has_mode = columns, any(option.lower() == "mode" for option in options)
        if policy != "fail" and not has_mode:
            columns = with_unreadable(columns)
            options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": columns.names[-1]}
        elif format in ("json", "csv", "xml"):
            options.setdefault("mode", "FAILFAST")
        from anabranch.spark.source import FOR_EVER, DataFrameOrigin, FilesOrigin

        if parts[0] and not {option.lower() for option in options} & _OF_SELECTION:
            options["maxFilesPerTrigger"] = parts[1]
        selects = {option.lower() for option in options} & _OF_SELECTION
        if not any(option.lower() == "maxfileage" for option in options):
            options["maxFileAge"] = FOR_EVER

        def load(**more: Any) -> DataFrame:
            reader = self.spark.readStream.format(format).schema(to_ddl(columns.arrow))
            return reader.options(**options, **more).load(path)

        origin = DataFrameOrigin(load(), ())
        if not selects and not set(path) & set("*?[]{}"):
            origin = FilesOrigin(origin.dataframe, (), path, lambda files: load(maxFilesPerTrigger=files))
        made = _source(self, origin, columns, location, name, parts)
        if columns is wanted:
            return made
        called = f"{made._node.name}_readable"
        return put(made, "readable", lambda n: (readable(n), wanted), location, None, wanted=called, on_error=policy)

    def read_state(self, checkpoint: str, operator: str | None = None, *, epoch: int | None = None) -> DataFrame:
        """What a checkpoint holds, as a DataFrame, without running its program.

        Parameters
        ----------
        checkpoint : str
            The query's checkpointLocation, or its stateLocation if it has one, on any path Spark can read or in an
            S3 store.
        operator : str, optional
            An operator: one row per key, with its key group and its state as text; broadcast state in a row before
            them, without a key. Without one: a row per operator with its numbers of keys, key groups and
            segments, and its size.
        epoch : int, optional
            The version; the newest by default.
        """
        from anabranch.spark.hadoop_files import open_state_files
        from anabranch.state.reader import CheckpointReader

        reader = CheckpointReader(open_state_files(self.spark, f"{checkpoint.rstrip('/')}/anabranch"), epoch)
        table = reader.summary_table() if operator is None else reader.table(operator)
        if table.num_rows == 0:
            return self.spark.createDataFrame([], to_ddl(table.schema))
        return self.spark.createDataFrame(table)

    def from_rows(
        self, rows: Any, schema: Any = None, *, rows_per_epoch: int | None = None, name: str | None = None
    ) -> Stream:
        """A stream of rows in memory, in their order. See `from_rows`."""
        return from_rows(rows, schema, rows_per_epoch=rows_per_epoch, name=name, session=self)

    def feedback(self, schema: Any, *, name: str | None = None) -> FeedbackStream:
        """The entry of a feedback edge. See `feedback`."""
        return feedback(schema, name=name, session=self)


class FeedbackStream(Stream):
    """A stream of tuples that are sent back from further down the program. Made by `feedback`."""

    def close(self, stream: Stream) -> None:
        """Say what is fed back: the tuples of this stream, which must have the same columns."""
        location = caller_location()
        loop = self._node.logic.target  # type: ignore[union-attr]
        assert isinstance(loop, Loop)
        if loop.node is not None:
            raise ProgramError(f"close at {location}: the feedback {self._node.title} is closed already")
        if not isinstance(stream, Stream):
            raise ProgramError(f"close at {location}: expected a stream, found {stream!r}")
        if not stream.schema.arrow.equals(self.schema.arrow):
            raise SchemaError(
                f"close at {location}: the feedback {self._node.title} has the columns {self.schema}, and what is fed "
                f"back has {stream.schema}"
            )
        loop.node = stream._node


def feedback(schema: Any, *, name: str | None = None, session: Session | None = None) -> FeedbackStream:
    """The entry of a feedback edge: tuples sent back enter the program here, at the start of the next epoch.

    Tuples of an epoch come in this order: those fed back, then those of the sources. A query over a source that
    ends (``trigger(availableNow=True)``) ends when the source is read and nothing is in flight.

    Examples
    --------
    >>> import anabranch as ab
    >>> numbers = ab.from_rows([(1,), (3,)], "x long")
    >>> again = ab.feedback("x long")
    >>> both = numbers.union(again)
    >>> again.close(both.filter(lambda t: t.x < 3).map(lambda t: (t.x + 1,), schema="x long"))
    >>> both.run_sequential()
    [(x=1), (x=3), (x=2), (x=3)]
    """
    location = caller_location()
    columns = _columns("feedback", schema, location)
    names = set[str]()
    chosen = unique_name(name or "feedback", names, location, explicit=name is not None)
    return FeedbackStream(session, Node(0, "feedback", chosen, Feedback(Loop()), (), columns, location), names)


def session(spark: SparkSession | None = None, *, on_error: str = "fail") -> Session:
    """A session over a SparkSession; without one, over a new local one (or the one that is running).

    `on_error` is what calls that fail do in programs of this session, if nothing else is said: see `Stream.on_error`.

    Examples
    --------
    >>> import anabranch as ab
    >>> streams = ab.session()                                            # doctest: +SKIP
    >>> usage = streams.read(spark.readStream.schema(s).json("in/"))      # doctest: +SKIP
    """
    policy = error_policy(on_error, "session", caller_location())
    if spark is None:
        from anabranch.spark.spark_session import local_session

        spark = local_session()
    return Session(spark, policy)


def from_rows(
    rows: Any,
    schema: Any = None,
    *,
    rows_per_epoch: int | None = None,
    name: str | None = None,
    session: Session | None = None,
) -> Stream:
    """A stream of rows in memory, in their order.

    Parameters
    ----------
    rows : iterable or table
        Tuples, dicts or rows; or a table: of pyarrow, pandas, Spark (no stream), or anything that hands out Arrow data.
    schema : str or class
        Their columns: a DDL string or a class with annotated fields. Of a table it may be left out.
    rows_per_epoch : int, optional
        How many form an epoch; all by default.
    session : Session, optional
        Needed to run the program on Spark; `run_sequential` needs none.
    """
    location = caller_location()
    if is_table(rows):
        try:
            rows, schema = rows_of(rows, schema)
        except (ProgramError, SchemaError) as problem:
            raise type(problem)(f"from_rows at {location}: {problem}") from None
    if schema is None:
        raise SchemaError(f"from_rows at {location}: the columns are unknown; give schema='…'")
    listed = list(rows)
    if rows_per_epoch is not None and rows_per_epoch < 1:
        raise ProgramError(f"from_rows at {location}: rows_per_epoch is {rows_per_epoch}; expected 1 or more")
    size = rows_per_epoch or max(len(listed), 1)
    epochs = [listed[at : at + size] for at in range(0, len(listed), size)] or [[]]
    return from_epochs(epochs, schema, name=name, session=session, location=location)


def from_epochs(
    epochs: Sequence[Sequence[Any]],
    schema: Any,
    *,
    name: str | None = None,
    session: Session | None = None,
    location: Location | None = None,
    partitioned: tuple[tuple[str, ...], int] = ((), 0),
) -> Stream:
    """A stream of rows in memory, cut into epochs by the caller; an epoch may be empty. For tests.

    That it is partitioned by some columns is for runs that cut an epoch into files accordingly.
    """
    from anabranch.program.origins import RowsOrigin

    location = location or caller_location()
    columns = _columns("from_rows", schema, location)
    return _source(session, RowsOrigin(tuple(tuple(e) for e in epochs)), columns, location, name, partitioned)


def _columns(method: str, schema: Any, location: Location) -> Schema:
    try:
        return Schema.of(schema)
    except SchemaError as problem:
        raise SchemaError(f"{method} at {location}: {problem}") from None


def _partitioned(
    schema: Schema, columns: str | Sequence[str] | None, partitions: int | None, title: str
) -> tuple[tuple[str, ...], int]:
    """The columns a source is partitioned by, and into how many; an error if that cannot be."""
    if columns is None and partitions is None:
        return (), 0
    by = (columns,) if isinstance(columns, str) else tuple(columns or ())
    if not by or partitions is None:
        raise ProgramError(
            f"source {title}: partitioned_by and partitions belong together: by which columns, and into how many; "
            f"found partitioned_by={columns!r}, partitions={partitions!r}"
        )
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= CHANNELS_MAX:
        raise ProgramError(f"source {title}: partitions={partitions!r}: expected a whole number, 1 to {CHANNELS_MAX}")
    for name in by:
        if name not in schema.names or by.count(name) > 1:
            what = "twice" if name in schema.names else f"which is no column; columns: {', '.join(schema.names)}"
            raise ProgramError(f"source {title}: partitioned_by names {name!r}, {what}")
        if not is_hashable(schema.type_of(name)):
            raise SchemaError(f"source {title}: partitioned_by: {name!r} cannot be a key: it is {schema.type_of(name)}")
    return by, partitions


def _source(
    session: Session | None,
    origin: Any,
    schema: Schema,
    location: Location,
    name: str | None,
    partitioned: tuple[tuple[str, ...], int] = ((), 0),
) -> Stream:
    names = set[str]()
    chosen = unique_name(name or "source", names, location, explicit=name is not None)
    node = Node(0, "source", chosen, Source(origin, *partitioned), (), schema, location)
    made = Stream(session, node, names)
    made._on_error = "fail" if session is None else session.on_error
    return made
