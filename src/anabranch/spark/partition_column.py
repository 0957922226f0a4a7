"""The partition of every row as a column of Spark's, for those who write what is read partitioned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - every PySpark user knows it by this name

from anabranch.partitioning.source_partitions import partition_numbers


def partition_column(columns: Sequence[str], partitions: int) -> Column:
    """Which partition each row belongs to by these columns."""

    def numbers(struct: pa.Array) -> pa.Array:
        return pa.array(partition_numbers(struct.flatten(), partitions), pa.int32())

    quoted = [F.col("`" + name.replace("`", "``") + "`").alias(f"c{at}") for at, name in enumerate(columns)]
    made: Any = F.arrow_udf  # its overloads do not know a function over one array
    column: Column = made(numbers, "int")(F.struct(*quoted))
    return column
