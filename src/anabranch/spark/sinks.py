"""Where output goes, in order, once.

A sink gets the merged output of an epoch as one table. Writing the same epoch again must leave what
writing it once leaves: files are named by epoch and replaced, so a repeated epoch is there once.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from anabranch.engine.driver.sink import TableSink
from anabranch.engine.worker.output_files import STAGED, Target
from anabranch.errors import SinkError
from anabranch.program.ddl import to_ddl
from anabranch.program.schema import Schema
from anabranch.spark.hadoop_files import local_path, open_files, qualified

_MARK = "_anabranch.json"


def to_dataframe(spark: SparkSession, table: pa.Table, schema: Schema) -> DataFrame:
    """The table as a DataFrame, rows in the same order."""
    if table.num_rows == 0:
        return spark.createDataFrame([], to_ddl(schema.arrow))
    return spark.createDataFrame(table, to_ddl(schema.arrow))


class FileSink:
    """A directory of files, ``part-<epoch>-<number>``; in the order of their names they are the stream."""

    def __init__(
        self, spark: SparkSession, path: str, format_name: str, options: Mapping[str, str], schema: Schema
    ) -> None:
        self._spark = spark
        self._path = qualified(spark, path)
        self._format = format_name
        self._options = dict(options)
        self._schema = schema
        self._files = open_files(spark, path)

    def check(self, owner: str) -> None:
        try:
            names = self._files.names("")
        except NotADirectoryError:
            raise SinkError(f"the output path {self._path} is a file. Choose an empty or new directory.") from None
        mark = self._files.read(_MARK)
        if mark is not None:
            found = json.loads(mark)
            if found["owner"] != owner:
                raise SinkError(
                    f"the output path {self._path} belongs to the query with the checkpoint {found['owner']}; this "
                    f"query has the checkpoint {owner}. Choose another path, or delete that output."
                )
            if found["format"] != self._format:
                raise SinkError(f"the output path {self._path} holds {found['format']}, not {self._format}")
            return
        if names:
            raise SinkError(
                f"the output path {self._path} exists and holds other content ({', '.join(names[:3])}"
                f"{', …' if len(names) > 3 else ''}). Choose an empty or new path."
            )

    def prepare(self, owner: str) -> None:
        self.check(owner)
        for name in self._files.names(""):
            if name.startswith(STAGED):
                self._files.delete(name)  # a task's, of an epoch that was cut off
        if self._files.read(_MARK) is None:
            self._files.write(_MARK, json.dumps({"owner": owner, "format": self._format}).encode())

    def write(self, table: pa.Table, epoch: int) -> None:
        prefix = f"part-{epoch:012d}-"
        before = [name for name in self._files.names("") if name.startswith(prefix)]
        published = self._publish(table, prefix) if table.num_rows else []
        for name in before:
            if name not in published:
                self._files.delete(name)

    def target(self) -> Target | None:
        local = local_path(self._path)
        if local is None or self._format != "parquet" or self._options.keys() - {"compression"}:
            return None
        return Target(local, self._options.get("compression", "snappy"))

    def publish(self, files: Sequence[str], epoch: int) -> None:
        local = local_path(self._path)
        assert local is not None, "tasks write to paths that all processes can open"
        prefix = f"part-{epoch:012d}-"
        # What attempts left that were repeated goes with what an earlier run of the epoch had published.
        superseded = (prefix, f"{STAGED}{epoch:012d}-")
        before = [name for name in self._files.names("") if name.startswith(superseded) and name not in files]
        published = [f"{prefix}{number:05d}.parquet" for number in range(len(files))]
        for staged, name in zip(files, published, strict=True):
            os.replace(f"{local}/{staged}", f"{local}/{name}")
        for name in before:
            if name not in published:
                self._files.delete(name)

    def _publish(self, table: pa.Table, prefix: str) -> list[str]:
        if self._format == "parquet" and not self._options.keys() - {"compression"}:
            # A whole Spark job to write one small file costs more than the file.
            compression = self._options.get("compression", "snappy")
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression=compression, store_schema=False)
            name = f"{prefix}00000.parquet"
            self._files.write(name, memoryview(sink.getvalue()))
            return [name]
        return self._publish_with_spark(table, prefix)

    def _publish_with_spark(self, table: pa.Table, prefix: str) -> list[str]:
        staging = f"_staging-{prefix}"
        frame = to_dataframe(self._spark, table, self._schema).coalesce(1)
        writer = frame.write.mode("overwrite").format(self._format).options(**self._options)
        writer.save(f"{self._path}/{staging}")
        published = []
        parts = [n for n in self._files.names(staging) if n.startswith("part-")]
        for number, name in enumerate(parts):
            data = self._files.read(f"{staging}/{name}")
            assert data is not None
            suffix = name[name.index(".") :] if "." in name else ""
            target = f"{prefix}{number:05d}{suffix}"
            self._files.write(target, data)
            published.append(target)
        for name in self._files.names(staging):
            self._files.delete(f"{staging}/{name}")
        local = local_path(self._path)
        if local is None:
            self._files.delete(staging)
        else:
            os.rmdir(f"{local}/{staging}")
        return published


class MemorySink(TableSink):
    """Output kept in the driver, and a temporary view under the query's name. For small things."""

    def __init__(self, spark: SparkSession, name: str, schema: Schema) -> None:
        self._spark = spark
        self._name = name
        self._schema = schema
        self._epochs: dict[int, pa.Table] = {}

    def check(self, owner: str) -> None:
        """Any name will do."""

    def prepare(self, owner: str) -> None:
        to_dataframe(self._spark, self._schema.arrow.empty_table(), self._schema).createOrReplaceTempView(self._name)

    def write(self, table: pa.Table, epoch: int) -> None:
        self._epochs[epoch] = table
        to_dataframe(self._spark, self.table(), self._schema).createOrReplaceTempView(self._name)

    def table(self) -> pa.Table:
        """All output so far, in order."""
        tables = [self._epochs[epoch] for epoch in sorted(self._epochs)]
        return pa.concat_tables([self._schema.arrow.empty_table(), *tables])


class ConsoleSink(TableSink):
    """Prints each epoch as Spark's console sink does."""

    def __init__(self, schema: Schema, options: Mapping[str, str], show: Callable[[str], None] = print) -> None:
        self._schema = schema
        self._rows = int(options.get("numRows", 20))
        self._truncate = str(options.get("truncate", "true")).lower()
        self._show = show

    def check(self, owner: str) -> None:
        """Nothing to check."""

    def prepare(self, owner: str) -> None:
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

    def __init__(self, spark: SparkSession, function: Callable[[DataFrame, int], Any], schema: Schema) -> None:
        self._spark = spark
        self._function = function
        self._schema = schema

    def check(self, owner: str) -> None:
        """Nothing to check."""

    def prepare(self, owner: str) -> None:
        """Nothing to prepare."""

    def write(self, table: pa.Table, epoch: int) -> None:
        self._function(to_dataframe(self._spark, table, self._schema), epoch)


class NoopSink(TableSink):
    """Output is made and thrown away, as Spark's noop format: for measuring."""

    def check(self, owner: str) -> None:
        """Nothing to check."""

    def prepare(self, owner: str) -> None:
        """Nothing to prepare."""

    def write(self, table: pa.Table, epoch: int) -> None:
        """Nothing to keep."""
