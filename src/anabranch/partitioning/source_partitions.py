"""Sources that are partitioned by key already: whose rows are whose.

    producer ─ partition_of(key, n) ─► n files, or n Kafka partitions ─► n channels, in the tasks that read them

Producer and reader must agree on who owns a key, for as long as there is data: so the function is plain consistent
hashing, a function of nothing but the number of partitions. It never changes, as the hash of keys never does (a test
keeps some of its values), and no balancing replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.partitioning.function import PartitioningFunction
from anabranch.program.hashing import hash_columns


def source_function(partitions: int) -> PartitioningFunction:
    """Which partition of a source has which keys, and so which channel owns them."""
    return PartitioningFunction.even(partitions)


def partition_numbers(columns: Sequence[pa.Array | pa.ChunkedArray], partitions: int) -> np.ndarray:
    """The partition of every key made of these columns.

    Examples
    --------
    >>> partition_numbers([pa.array(["a", "b", None, "a"])], 4).tolist()
    [3, 0, 3, 3]
    """
    return source_function(partitions).route(hash_columns(columns))
