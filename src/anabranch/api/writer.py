"""`writeStream`: where a stream goes and how it is run, with Spark's names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from anabranch.api.query import StreamingQuery
from anabranch.api.temporary_checkpoint import temporary_checkpoint
from anabranch.compiler.compile import compiled
from anabranch.compiler.layout.hot_key_split import has_parts
from anabranch.compiler.layout.source_spread import spread_names
from anabranch.engine.driver.latest_rows import Latest
from anabranch.engine.query_options import QueryOptions
from anabranch.errors import ProgramError, SchemaError, SinkError
from anabranch.program.graph import DeadLetters, Node, named, upstream
from anabranch.program.model import OutputOrder
from anabranch.program.options import check_names, is_ours, read_options

if TYPE_CHECKING:
    from anabranch.api.session import Session

_FILE_FORMATS = ("parquet", "json", "csv", "orc", "text")
_FORMATS = (*_FILE_FORMATS, "console", "memory", "noop")


class DataStreamWriter:
    """Collects how a stream is to be written; `start` starts it. Every method but `start` returns the writer."""

    def __init__(self, session: Session, node: Node) -> None:
        self._session = session
        self._node = node
        self._format = "parquet"
        self._options: dict[str, str] = {}
        self._trigger: dict[str, Any] = {}
        self._name: str | None = None
        self._function: Callable[[Any, int], Any] | None = None
        self._others: list[DataStreamWriter] = []
        self._partitioned: tuple[str, ...] = ()

    def also(self, other: DataStreamWriter) -> DataStreamWriter:
        """Write another stream in the same query: ``a.writeStream.also(b.writeStream.option("path", "b")).start("a")``.

        The streams may share operators and sources, which then run once. Format, path, the format's options and
        ``order`` are each writer's own (``order`` is the first's where nothing is said); the checkpoint, the trigger,
        the name and all other options are those of the first, and refused on others.
        """
        if not isinstance(other, DataStreamWriter):
            raise ProgramError(f"also({other!r}): expected another stream's writer: also(stream.writeStream.format(…))")
        if other._trigger or (other._name is not None and other._format != "memory"):
            raise ProgramError("also(…): the trigger and the name of the query are set on the writer that is started")
        self._others.append(other)
        return self

    def format(self, source: str) -> DataStreamWriter:
        """parquet (the default), json, csv, orc, text, console, memory or noop."""
        if source not in _FORMATS:
            raise SinkError(f"unknown format {source!r}; known: {', '.join(_FORMATS)}; or use foreachBatch")
        self._format = source
        return self

    def option(self, key: str, value: Any) -> DataStreamWriter:
        """Set an option; docs/options.md lists ours.

        Those most often said: ``checkpointLocation``; ``channels`` to pin the number of channels, ``maxChannels`` to
        bound it; ``epochTarget``, such as ``"2 seconds"``, how long tuples may stand ready; ``snapshotInterval``, such
        as ``"20 epochs"``; ``order="none"`` where order does not matter. Others go to the format, unless they look like
        one of ours misspelt.
        """
        self._options[key] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: Any) -> DataStreamWriter:
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> DataStreamWriter:
        """Only ``append`` exists: what has been delivered is never taken back."""
        if outputMode.lower() != "append":
            raise ProgramError(f"outputMode({outputMode!r}): the output of a stream program is only ever appended to")
        return self

    def partitionBy(self, *cols: str) -> DataStreamWriter:
        """Write files into directories by the values of columns: ``day=2024-01-01/hour=7/part-…``.

        For file formats. In each directory the files, in the order of their names, have its tuples in the order of one
        thread, once. The columns are in the names of the directories, as Spark has them, and not in the files.
        """
        names = cols[0] if len(cols) == 1 and isinstance(cols[0], (list, tuple)) else cols
        if not names or not all(isinstance(name, str) for name in names):
            raise SinkError(f"partitionBy{cols!r}: expected names of columns")
        self._partitioned = tuple(names)
        return self

    def queryName(self, queryName: str) -> DataStreamWriter:
        """Name the query; the memory format makes a temporary view of this name."""
        self._name = queryName
        return self

    def trigger(
        self,
        *,
        processingTime: str | None = None,
        once: bool | None = None,
        availableNow: bool | None = None,
    ) -> DataStreamWriter:
        """When an epoch begins: at intervals, or at once for all there is and then stop."""
        given = {"processingTime": processingTime, "once": once, "availableNow": availableNow}
        self._trigger = {name: value for name, value in given.items() if value is not None}
        if len(self._trigger) != 1:
            raise ProgramError("trigger: give exactly one of processingTime, once, availableNow")
        return self

    def foreachBatch(self, func: Callable[[Any, int], Any]) -> DataStreamWriter:
        """Give each epoch's output to a function, as an ordered DataFrame, with the epoch's number.

        As in Spark, the function is called again for an epoch whose commit was cut off by a crash.
        """
        if not callable(func):
            raise ProgramError(f"foreachBatch({func!r}): expected a function of a DataFrame and an epoch number")
        self._function = func
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,
        queryName: str | None = None,
        **options: Any,
    ) -> StreamingQuery:
        """Start the query. Everything that can be checked is checked first, and nothing is written if it fails."""
        from anabranch.spark.assemble import QueryDescription

        if format is not None:
            self.format(format)
        if queryName is not None:
            self.queryName(queryName)
        self.options(**options)
        writers = [self, *self._others]
        for writer in writers:
            check_names(writer._options)
        for writer in self._others:
            _check_is_its_own(writer._options)
        chosen = QueryOptions.parse(self._options)
        if chosen.mergers and not any(writer._writes_files for writer in writers):
            raise ProgramError(
                "option mergers has no effect: no output of this query is written as files; leave it out"
            )
        checkpoint = chosen.checkpoint
        durable = chosen.durability == "power"
        sinks = [self._sink(path, durable), *(other._sink(None, durable) for other in self._others)]
        _check_places(sinks)
        _check_checkpoint_is_no_output(sinks, checkpoint)
        _check_checkpoint_is_no_output(sinks, chosen.state_location)
        if checkpoint is None:
            if chosen.state_location is not None:
                raise ProgramError(
                    "option stateLocation needs a checkpointLocation, too: what Spark notes of the input belongs to it"
                )
            if any(writer._is_durable for writer in writers):
                raise SinkError("a checkpoint location is needed: .option('checkpointLocation', 'checkpoint/')")
            checkpoint = temporary_checkpoint()
        nodes = [writer._node for writer in writers]
        _check_letters(nodes)
        splits = chosen.split_hot_keys == "on" or (chosen.balancing.enabled and has_parts(nodes))
        wanted = QueryDescription(
            lambda form: compiled(nodes, form.split_hot_keys, form.spread),
            chosen.split_hot_keys if splits else "off",
            spread_names(named(nodes)) if chosen.spread == "auto" else {},
            sinks,
            [OutputOrder(read_options(writer._options).get("order", chosen.order)) for writer in writers],
            str(checkpoint),
            chosen,
            self._trigger,
            self._name,
        )
        return StreamingQuery(self._session.spark, wanted, self._session.listeners.functions)

    @property
    def _is_durable(self) -> bool:
        return self._function is not None or self._format in _FILE_FORMATS

    @property
    def _writes_files(self) -> bool:
        return self._function is None and self._format in _FILE_FORMATS

    def _latest(self) -> Latest | None:
        """By which key only the last tuples are wanted; None: all are."""
        given = read_options(self._options)
        if "latestBy" not in given:
            if "changeColumn" in given:
                raise SinkError("option changeColumn goes with latestBy, which names the key")
            return None
        if self._function is None and self._format != "memory":
            raise SinkError(
                f"option latestBy: the format {self._format!r} only ever appends; it is for foreachBatch and 'memory'. "
                "In foreachBatch a table that can be merged into takes the last tuple of each key"
            )
        try:
            return Latest.of(self._node.schema, given["latestBy"], given.get("changeColumn", "change"))
        except SchemaError as problem:
            raise SinkError(f"option latestBy: {problem}") from None

    def _sink(self, path: str | None, durable: bool) -> Any:
        from anabranch.spark import sinks

        path = path if path is not None else next((v for k, v in self._options.items() if k.lower() == "path"), None)
        if path is None and self._function is None and self._format in _FILE_FORMATS:
            raise SinkError(f"format {self._format!r} needs a path: .start('out/'), or .option('path', 'out/')")

        spark, schema = self._session.spark, self._node.schema
        if self._partitioned and (self._function is not None or self._format not in _FILE_FORMATS):
            where = "foreachBatch" if self._function is not None else f"the format {self._format!r}"
            raise SinkError(f"partitionBy({', '.join(self._partitioned)}): {where} writes no files")
        latest = self._latest()
        if self._function is not None:
            return sinks.FunctionSink(spark, self._function, schema, latest)
        if self._format == "console":
            return sinks.ConsoleSink(schema, self._options)
        if self._format == "noop":
            return sinks.NoopSink()
        if self._format == "memory":
            if self._name is None:
                raise SinkError("format 'memory' needs a name for its view: .queryName('result')")
            return sinks.MemorySink(spark, self._name, schema, latest)
        assert path is not None, "checked above"
        own = {key: value for key, value in self._options.items() if not is_ours(key)}
        partitions = None
        if self._partitioned:
            zone = spark.conf.get("spark.sql.session.timeZone", "UTC") or "UTC"
            partitions = sinks.OutputPartitions(schema, self._partitioned, zone)
        return sinks.FileSink(spark, str(path), self._format, own, schema, durable, partitions)


def _check_is_its_own(options: Iterable[str]) -> None:
    """Of our options, a stream that is written beside another has only those that say how it is written."""
    for name in options:
        if is_ours(name) and name.lower() not in ("order", "path", "latestby", "changecolumn"):
            raise ProgramError(
                f"also(…): option {name} is the query's: set it on the writer that is started. Of ours, writers of "
                "more outputs have order, path, latestBy and changeColumn; the options of their formats are their own"
            )


def _check_letters(nodes: Sequence[Node]) -> None:
    """Dead letters that nobody reads would be lost without a word."""
    program = upstream(*nodes)
    read = {each.id for node in program if isinstance(node.logic, DeadLetters) for each in node.inputs}
    lost = [node for node in program if node.on_error == "dead_letter" and node.id not in read]
    if lost:
        raise ProgramError(
            f"operator {lost[0].title}: nobody reads its dead letters. Write them, too: "
            "….writeStream.also(stream.dead_letters().writeStream.option('path', 'letters/')); or let it skip what "
            "fails, which is counted: on_error='skip'"
        )


def _check_places(sinks: Sequence[Any]) -> None:
    """Outputs of one query go to places of their own: in one place each would replace what the others wrote."""
    places: list[str] = []
    for sink in sinks:
        place = getattr(sink, "place", None)
        if place is None:
            continue
        for other in places:
            if place == other or place.startswith(f"{other}/") or other.startswith(f"{place}/"):
                raise SinkError(
                    f"two outputs of this query go to one place: {other} and {place}. Give each a path (or, in "
                    "memory, a name) of its own, none inside another."
                )
        places.append(place)


def _check_checkpoint_is_no_output(sinks: Sequence[Any], checkpoint: str | None) -> None:
    """A checkpoint among output would be taken for output, and the output's directory for another's."""
    from anabranch.spark.hadoop_files import local_path

    local = None if checkpoint is None else local_path(checkpoint)
    if local is None:
        return
    place = os.path.realpath(local)
    for sink in sinks:
        output = getattr(sink, "place", None)
        if output is not None and (place == output or place.startswith(f"{output}/")):
            raise SinkError(
                f"the checkpoint {place} is in the output path {output}. Give each a directory of its own; the output "
                "may be read by others, and holds nothing but output."
            )
