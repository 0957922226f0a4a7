"""`writeStream`: where a stream goes and how it is run, with Spark's names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anabranch.api.query import StreamingQuery
from anabranch.api.stream import compiled
from anabranch.compiler.layout.hot_key_split import has_parts
from anabranch.control.elastic_options import ElasticOptions
from anabranch.errors import ProgramError, SinkError
from anabranch.program.graph import Node
from anabranch.program.model import OutputOrder

if TYPE_CHECKING:
    from anabranch.api.session import Session

_FILE_FORMATS = ("parquet", "json", "csv", "orc", "text")
_FORMATS = (*_FILE_FORMATS, "console", "memory", "noop")
# What the writer itself takes; other options go to the format.
_OWN_OPTIONS = {
    *("checkpointlocation", "path", "allowstateloss", "snapshotinterval", "versionskept"),
    *("channels", "minchannels", "maxchannels", "initialchannels"),
    *("minexecutors", "maxexecutors", "executoridletimeout"),
    *("policy", "adaptationperiod", "epochtarget", "epochsize", "congestionthreshold"),
    *("changesensitivity", "levels"),
    *("order", "mergers", "migrationstore"),
    *("balancing", "imbalancetolerance", "partitioning", "splithotkeys"),
}


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

    def also(self, other: DataStreamWriter) -> DataStreamWriter:
        """Write another stream in the same query: ``a.writeStream.also(b.writeStream.option("path", "b")).start("a")``.

        The streams may share operators and sources, which then run once. Format, path, the format's options and
        ``order`` are each writer's own (``order`` is the first's where nothing is said); the checkpoint, the trigger,
        the name and the channels are those of the first.
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
        """Set an option.

        Ours are ``checkpointLocation``; ``snapshotInterval``, such as ``"20 epochs"`` or ``"5 minutes"``, how often
        each channel's state is merged into one snapshot beyond what is merged anyway; ``versionsKept``, how many
        epochs back a checkpoint can be read (10); ``allowStateLoss``, to go on with a program that has less state;
        ``order`` of this output: ``"total"``, that of one thread; ``"key"``, only tuples of one key of the region they
        come from stand in their order; ``"none"``. What operators need they have anyway. Parquet files that are not in
        total order are written by the channels themselves;
        ``mergers``, how many tasks put large outputs in order and write them (parquet on a path that all hosts share;
        by default the driver does).

        How many channels a region has is found out while it runs, between ``minChannels`` (1) and ``maxChannels`` (as
        many as tasks run at once); ``initialChannels`` is where a new query begins, ``channels`` pins the number.
        ``epochTarget``, such as ``"2 seconds"``, is how long tuples may stand ready before that is called congestion
        (the trigger's interval, or a second); ``adaptationPeriod``, such as ``"5 seconds"`` or ``"8 epochs"``, how
        often it is looked at; ``congestionThreshold`` (0.05) how much of it is tolerated; ``policy`` is ``default`` or
        ``paper``, the controller of the *Elastic* paper as printed, which takes ``changeSensitivity`` (0.5; from 0 to
        1) and ``levels``, the numbers of channels it walks on: ``paper``, ``doubling`` or ``single``. ``epochSize`` is
        ``auto`` (how many files of ``from_files`` an epoch takes is found out, so that one that cannot take all there
        is lasts about the epoch target, or the trigger's interval, or two seconds) or ``fixed``. ``migrationStore``, a
        PostgreSQL URL, is where state waits for its new owner on a cluster whose hosts cannot open the checkpoint's
        files.

        On a cluster without dynamic allocation ``maxExecutors`` lets the executors follow the channels: as many are
        asked for as the channels have use for, and those that were superfluous for ``executorIdleTimeout`` (60
        seconds) are given back, down to ``minExecutors`` (1). Without it their number is left alone.

        ``balancing`` is ``auto`` (frequent keys are found and placed so that channels are equally loaded) or ``off``
        (consistent hashing only); ``imbalanceTolerance`` (1.2) is how many times the load of the least loaded channel
        the most loaded one may have; ``partitioning`` is how keys are placed: ``weigh``, or ``scan``, ``redist``,
        ``readj`` or ``consistent`` of the *Partitioning* paper. ``splitHotKeys`` lets several channels work on a key
        that is too hot for one, in aggregations over punctuated and time windows whose partial results combine exactly.
        That costs these a shuffle more: ``auto`` begins without and goes over to it when a key turns out to need it,
        ``on`` begins with it, ``off`` never does it. Others go to the format.
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
        if format is not None:
            self.format(format)
        if queryName is not None:
            self.queryName(queryName)
        self.options(**options)
        lowered = {key.lower(): value for key, value in self._options.items()}
        checkpoint = lowered.get("checkpointlocation")
        writers = [self, *self._others]
        sinks = [self._sink(path), *(other._sink(None) for other in self._others)]
        if checkpoint is None:
            if any(writer._is_durable for writer in writers):
                raise SinkError("a checkpoint location is needed: .option('checkpointLocation', 'checkpoint/')")
            checkpoint = tempfile.mkdtemp(prefix="anabranch-checkpoint-")
        nodes = [writer._node for writer in writers]
        mode = self._splits_hot_keys(lowered)
        splits = mode == "auto" and has_parts(nodes)
        return StreamingQuery(
            self._session.spark,
            compiled(nodes, mode == "on"),
            sinks,
            str(checkpoint),
            self._elastic(lowered),
            self._trigger,
            self._name,
            lowered,
            self._session.listeners.functions,
            compiled(nodes, split_hot_keys=True) if splits else None,
            [writer._order(lowered.get("order", "total")) for writer in writers],
        )

    @property
    def _is_durable(self) -> bool:
        return self._function is not None or self._format in _FILE_FORMATS

    def _order(self, default: str) -> OutputOrder:
        chosen = next((value for key, value in self._options.items() if key.lower() == "order"), default)
        if chosen not in {each.value for each in OutputOrder}:
            raise ProgramError(f"option order={chosen!r}: expected 'total', 'key' or 'none'")
        return OutputOrder(chosen)

    def _elastic(self, options: dict[str, str]) -> ElasticOptions:
        try:
            return ElasticOptions.parse(options)
        except ValueError as problem:
            raise ProgramError(str(problem)) from None

    def _splits_hot_keys(self, options: dict[str, str]) -> str:
        chosen = options.get("splithotkeys", "auto")
        if chosen not in ("auto", "on", "off"):
            raise ProgramError(f"option splitHotKeys={chosen!r}: expected 'auto', 'on' or 'off'")
        return chosen

    def _sink(self, path: str | None) -> Any:
        from anabranch.spark import sinks

        path = path if path is not None else next((v for k, v in self._options.items() if k.lower() == "path"), None)
        if path is None and self._function is None and self._format in _FILE_FORMATS:
            raise SinkError(f"format {self._format!r} needs a path: .start('out/'), or .option('path', 'out/')")

        spark, schema = self._session.spark, self._node.schema
        if self._function is not None:
            return sinks.FunctionSink(spark, self._function, schema)
        if self._format == "console":
            return sinks.ConsoleSink(schema, self._options)
        if self._format == "noop":
            return sinks.NoopSink()
        if self._format == "memory":
            if self._name is None:
                raise SinkError("format 'memory' needs a name for its view: .queryName('result')")
            return sinks.MemorySink(spark, self._name, schema)
        assert path is not None, "checked above"
        own = {key: value for key, value in self._options.items() if key.lower() not in _OWN_OPTIONS}
        return sinks.FileSink(spark, str(path), self._format, own, schema)
