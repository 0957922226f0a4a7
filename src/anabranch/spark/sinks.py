"""Where output goes, in order, once.

A sink gets the merged output of an epoch as one table. Writing the same epoch again must leave what
writing it once leaves: files are named by epoch and replaced, so a repeated epoch is there once.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from anabranch.engine.driver.latest_rows import Latest
from anabranch.engine.driver.output_directory import OutputDirectory
from anabranch.engine.driver.output_partitions import OutputPartitions
from anabranch.engine.driver.parquet_files import in_files, parquet_files
from anabranch.engine.driver.sink import Holder, TableSink
from anabranch.engine.worker.output_files import Target
from anabranch.program.ddl import to_ddl
from anabranch.program.schema import Schema
from anabranch.spark.hadoop_files import local_path, open_files, qualified
from anabranch.state.files import cannot_write, storage_problem

_NUMBERS = ("partition~", "place~")


def to_dataframe(spark: SparkSession, table: pa.Table, schema: Schema) -> DataFrame:
    """The table as a DataFrame, rows in the same order."""
    if table.num_rows == 0:
        return spark.createDataFrame([], to_ddl(schema.arrow))
    # Chunks in one: Spark leaves out all that follows an empty one.
    return spark.createDataFrame(table.combine_chunks(), to_ddl(schema.arrow))


class FileSink:
    """A directory of files, ``part-<epoch>-<number>``; in the order of their names they are the stream.

    With `partitions`, a directory for each combination of values of some columns; in each the same holds.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        format_name: str,
        options: Mapping[str, str],
        schema: Schema,
        durable: bool = False,
        partitions: OutputPartitions | None = None,
    ) -> None:
        self._spark = spark
        self._partitions = partitions
        self._path = qualified(spark, path)
        self._format = format_name
        self._options = dict(options)
        self._schema = schema
        columns, by = to_ddl(schema.arrow), str(partitions or "")
        self._directory = OutputDirectory(open_files(spark, path, durable), format_name, columns, by)

    @property
    def place(self) -> str:
        """Where the files go: the same for two ways of writing one path."""
        local = local_path(self._path)
        return self._path if local is None else os.path.realpath(local)

    def check(self, holder: Holder) -> None:
        self._directory.check(holder)

    def prepare(self, holder: Holder) -> None:
        self._directory.prepare(holder)

    def write(self, table: pa.Table, epoch: int) -> None:
        self._directory.publish(epoch, self._content(table, epoch) if table.num_rows else {})

    def target(self) -> Target | None:
        local = local_path(self._path)
        if local is None or self._partitions is not None:
            return None
        return Target(local, self._options.get("compression", "snappy") if self._is_plain_parquet else "lz4")

    def publish(self, files: Sequence[str], epoch: int) -> None:
        if self._is_plain_parquet or not files:
            self._directory.publish_staged(epoch, files, ".parquet")
            return
        # Tasks write Parquet; Spark makes the format of it, a task for each file, and no row comes to the driver.
        local = local_path(self._path)
        paths = [f"{local}/{name}" for name in files]
        columns = to_ddl(pa.schema([field.with_name(f"c{at}") for at, field in enumerate(self._schema.arrow)]))
        numbers = self._spark.range(0, len(paths), 1, len(paths))
        # Columns have plain names until then: mapInArrow trips over dots.
        frame = numbers.mapInArrow(partial(_read_staged, paths, self._schema.arrow), columns)
        with self._saved(frame.toDF(*self._schema.names), epoch) as (staging, names):
            self._directory.publish_staged(epoch, [f"{staging}/{name}" for name in names], _end(names[0]))
        for name in files:
            self._directory.files.delete(name)

    def _content(self, table: pa.Table, epoch: int) -> dict[str, bytes | memoryview]:
        """The files of an epoch, by the ends of their names."""
        if self._is_plain_parquet:
            compression = self._options.get("compression", "snappy")
            if self._partitions is None:
                return {f"{name}.parquet": data for name, data in parquet_files(in_files(table), compression).items()}
            files = {f"{folder}/00000": rows for folder, rows in self._partitions.parts(table).items()}
            return {f"{name}.parquet": data for name, data in parquet_files(files, compression).items()}
        if self._partitions is None:
            written = self._written_by_spark(to_dataframe(self._spark, table, self._schema).coalesce(1), epoch)
            return {f"{at:05d}{end}": data for at, (_, end, data) in enumerate(written)}
        apart, kept = self._partitions.apart(table), self._partitions.kept(table)
        # One task for each directory: Spark's own way does not say that it keeps the order.
        owner = np.empty(kept.num_rows, np.int32)
        for number, (_, places) in enumerate(apart):
            owner[places] = number
        numbered = pa.table([*kept.columns, owner, np.arange(kept.num_rows)], names=[*kept.column_names, *_NUMBERS])
        schema = Schema(numbered.schema)
        frame = to_dataframe(self._spark, numbered, schema).repartitionById(len(apart), _NUMBERS[0])
        written = self._written_by_spark(frame.sortWithinPartitions(_NUMBERS[1]).drop(*_NUMBERS), epoch)
        found: dict[str, bytes | memoryview] = {}
        for task, group in groupby(written, key=itemgetter(0)):
            # More than one file has a task with the option maxRecordsPerFile.
            found |= {f"{apart[task][0]}/{at:05d}{end}": data for at, (_, end, data) in enumerate(group)}
        return found

    @property
    def _is_plain_parquet(self) -> bool:
        """Whether the files can be written without Spark: a job to write one small file costs more than the file."""
        return self._format == "parquet" and not self._options.keys() - {"compression"}

    def _written_by_spark(self, frame: DataFrame, epoch: int) -> list[tuple[int, str, bytes | memoryview]]:
        """The files, in their order: of which task, how their names end, what they hold."""
        found: list[tuple[int, str, bytes | memoryview]] = []
        with self._saved(frame, epoch) as (staging, names):
            for name in names:
                data = self._directory.files.read(f"{staging}/{name}")
                assert data is not None
                found.append((_task_and_number(name)[0], _end(name), data))
        return found

    @contextlib.contextmanager
    def _saved(self, frame: DataFrame, epoch: int) -> Iterator[tuple[str, list[str]]]:
        """A directory with what Spark has written, gone afterwards, and the files in it, in the order of its tasks."""
        staging = self._directory.staging(epoch)
        files = self._directory.files
        writer = frame.write.mode("overwrite").format(self._format).options(**self._options)
        try:
            writer.save(f"{self._path}/{staging}")
            written = (name for name in files.names(staging) if name.startswith("part-"))
            yield staging, sorted(written, key=_task_and_number)
        except Exception as problem:
            why = storage_problem(problem)
            if not why:
                raise
            raise cannot_write(self._path, why) from problem
        finally:
            files.clear(staging)


def _task_and_number(name: str) -> tuple[int, int]:
    """Which task of Spark's wrote a file, and which of its files it is: part-00007-<id>-c000.json is the first of 7."""
    task, _, rest = name.removeprefix("part-").partition("-")
    number = _end(name) and rest[: rest.index(".")].rpartition("-c")[2]
    return int(task), int(number) if number.isdecimal() else 0


def _end(name: str) -> str:
    """What a file's name ends with, from the first dot on: format and compression."""
    return name[name.index(".") :] if "." in name else ""


def _read_staged(
    paths: Sequence[str], schema: pa.Schema, numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The rows of the files with these numbers, in the types that they are to be written with."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            with pq.ParquetFile(paths[number]) as file:
                for rows in file.iter_batches():
                    found = pa.Table.from_batches([rows]).cast(schema).to_batches()
                    yield from (each.rename_columns([f"c{at}" for at in range(len(schema))]) for each in found)


class MemorySink(TableSink):
    """Output kept in the driver, and a temporary view under the query's name. For small things."""

    def __init__(self, spark: SparkSession, name: str, schema: Schema, latest: Latest | None = None) -> None:
        self._spark = spark
        self._name = name
        self._schema = schema
        self._latest = latest
        self._epochs: dict[int, pa.Table] = {}

    def check(self, holder: Holder) -> None:
        """Any name will do."""

    @property
    def place(self) -> str:
        """The view's name."""
        return f"memory:{self._name}"

    def prepare(self, holder: Holder) -> None:
        to_dataframe(self._spark, self._schema.arrow.empty_table(), self._schema).createOrReplaceTempView(self._name)

    def write(self, table: pa.Table, epoch: int) -> None:
        self._epochs[epoch] = table
        to_dataframe(self._spark, self.table(), self._schema).createOrReplaceTempView(self._name)

    def table(self) -> pa.Table:
        """All output so far, in order; or of each key the last tuple."""
        tables = [self._epochs[epoch] for epoch in sorted(self._epochs)]
        found = pa.concat_tables([self._schema.arrow.empty_table(), *tables])
        return found if self._latest is None else self._latest.rows(found)


class ConsoleSink(TableSink):
    """Prints each epoch as Spark's console sink does."""

    def __init__(self, schema: Schema, options: Mapping[str, str], show: Callable[[str], None] = print) -> None:
        self._schema = schema
        self._rows = int(options.get("numRows", 20))
        self._truncate = str(options.get("truncate", "true")).lower()
        self._show = show

    def check(self, holder: Holder) -> None:
        """Nothing to check."""

    def prepare(self, holder: Holder) -> None:
        """Nothing to prepare."""

    def write(self, table: pa.Table, epoch: int) -> None:
        width = 20 if self._truncate == "true" else 10**9 if self._truncate == "false" else int(self._truncate)
        shown = table.slice(0, self._rows)
        cells = [[_cell(value, width) for value in row] for row in self._schema.rows(shown.columns)]
        names = list(self._schema.names)
        widths = [max(len(names[at]), *(len(row[at]) for row in cells), 3) for at in range(len(names))]
        rule = "+" + "+".join("-" * w for w in widths) + "+"
        lines = ["-" * 43, f"Epoch: {epoch}", "-" * 43, rule, _line(names, widths), rule]
        lines += [_line(row, widths) for row in cells] + [rule]
        if table.num_rows > self._rows:
            lines.append(f"only showing top {self._rows} of {table.num_rows} rows")
        self._show("\n".join(lines))


def _cell(value: Any, width: int) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= width else text[: max(width - 3, 1)] + "..."


def _line(cells: list[str], widths: list[int]) -> str:
    return "|" + "|".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)) + "|"


class FunctionSink(TableSink):
    """The user's own function, called with each epoch as an ordered DataFrame, as Spark's foreachBatch."""

    def __init__(
        self,
        spark: SparkSession,
        function: Callable[[DataFrame, int], Any],
        schema: Schema,
        latest: Latest | None = None,
    ) -> None:
        self._spark = spark
        self._function = function
        self._schema = schema
        self._latest = latest

    def check(self, holder: Holder) -> None:
        """Nothing to check."""

    def prepare(self, holder: Holder) -> None:
        """Nothing to prepare."""

    def write(self, table: pa.Table, epoch: int) -> None:
        if self._latest is not None:
            table = self._latest.rows(table, keeps_deleted=True)
        self._function(to_dataframe(self._spark, table, self._schema), epoch)


class NoopSink(TableSink):
    """Output is made and thrown away, as Spark's noop format: for measuring."""

    def check(self, holder: Holder) -> None:
        """Nothing to check."""

    def prepare(self, holder: Holder) -> None:
        """Nothing to prepare."""

    def write(self, table: pa.Table, epoch: int) -> None:
        """Nothing to keep."""
