"""How producers partition what `read(…, partitioned_by=…)` reads: the number of the partition of every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from anabranch.errors import ProgramError, SchemaError
from anabranch.partitioning.source_partitions import partition_numbers
from anabranch.program.hashing import is_hashable
from anabranch.program.options import CHANNELS_MAX

if TYPE_CHECKING:
    from pyspark.sql import Column


def partition_of(columns: str | Sequence[str], partitions: int) -> Column:
    """A column of a DataFrame: which partition, counted from 0, each row belongs to by its key.

    It is a function of nothing but the values in these columns, in this order, and the number of partitions, and never
    changes: data that was partitioned by it stays readable with ``read(…, partitioned_by=columns,
    partitions=partitions)``.

    Parameters
    ----------
    columns : str or sequence of str
        The columns of the key.
    partitions : int
        How many there are.

    Examples
    --------
    >>> import anabranch as ab
    >>> (df.withColumn("p", ab.partition_of("k", 8)).repartitionById(8, "p").drop("p")   # doctest: +SKIP
    ...    .write.mode("append").parquet("in/"))                                        # a file for each partition
    """
    from anabranch.spark.partition_column import partition_column

    return partition_column(_checked(columns, partitions), partitions)


def partitions_of(table: pa.Table | pa.RecordBatch, columns: str | Sequence[str], partitions: int) -> list[int]:
    """The same for an Arrow table, without Spark: the partition of each of its rows.

    The types of its columns must be those that the source has: a date is not a string.

    Examples
    --------
    >>> import anabranch as ab, pyarrow as pa
    >>> ab.partitions_of(pa.table({"k": ["a", "b", None, "a"], "x": [1, 2, 3, 4]}), "k", 4)
    [3, 0, 3, 3]
    """
    found = []
    for name in _checked(columns, partitions):
        if name not in table.schema.names:
            raise ProgramError(f"partitions_of: no column {name!r}; columns: {', '.join(table.schema.names)}")
        column: Any = table.column(name)
        if not is_hashable(column.type):
            raise SchemaError(f"partitions_of: {name!r} cannot be a key: it is {column.type}")
        found.append(column)
    numbers: list[int] = partition_numbers(found, partitions).tolist()
    return numbers


def _checked(columns: str | Sequence[str], partitions: int) -> tuple[str, ...]:
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    if not names:
        raise ProgramError("a partition is told by at least one column")
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= CHANNELS_MAX:
        raise ProgramError(f"partitions={partitions!r}: expected a whole number from 1 to {CHANNELS_MAX}")
    return names
