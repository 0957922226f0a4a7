"""What the driver writes of an epoch's output as Parquet: several files at once, on as many cores as there are.

Nothing else of the query runs meanwhile, and pyarrow makes one file on one core.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq

FILE_BYTES_MIN = 2 << 20
"""What has twice as much is cut in two: the rows of a smaller file are written before a thread has begun."""


def in_files(table: pa.Table) -> dict[str, pa.Table]:
    """The rows of an epoch by the names of their files, in their order: as many files as cores, none too small."""
    count = max(1, min(_cores(), table.nbytes // FILE_BYTES_MIN))
    bounds = [table.num_rows * at // count for at in range(count + 1)]
    return {f"{at:05d}": table.slice(bounds[at], bounds[at + 1] - bounds[at]) for at in range(count)}


def parquet_files(tables: Mapping[str, pa.Table], compression: str) -> dict[str, memoryview]:
    """The content of each file."""

    def content(table: pa.Table) -> memoryview:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression=compression, store_schema=False)
        return memoryview(sink.getvalue())

    threads = min(_cores(), len(tables))
    if threads < 2 or sum(table.nbytes for table in tables.values()) < FILE_BYTES_MIN:
        return {name: content(table) for name, table in tables.items()}
    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(tables, pool.map(content, tables.values()), strict=True))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
