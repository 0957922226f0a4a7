"""What ordering costs in CPU time, on the data path that also runs on Spark, one core: *Safe*, Figure 9.

    rows ─► route and pack ─► unpack, work per tuple (integer multiplications), pack ─► unpack and merge

    round-robin         slices of the batch, no numbers; put one after the other again
    sequence numbers    a column of positions, rows routed by key, merged by a stable sort of the positions
    … with gaps         as before, but positions are not dense. An epoch's end is the pulse, there are none within it
    … with duplicates   the same, and two rows per position

What is compared is the CPU time of the whole way, for the same number of tuples in and out.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.engine.worker.packets import merge, pack, route, unpack
from anabranch.partitioning.function import PartitioningFunction
from anabranch.program.hashing import hash_columns

CHANNELS = 8
SCHEMA = pa.schema([("key", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("size", pa.int64())])
KINDS = ("round-robin", "sequence numbers", "with gaps", "with duplicates")


def overheads(works: Sequence[int], tuples: int, repeats: int) -> dict[str, list[float]]:
    """Return for each kind and amount of work the CPU time beyond round-robin's, as a share of it."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for work in works:
        rows = max(4000, min(tuples, 4_000_000 // max(work, 1)))
        batch = _batch(rows)
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        # The kinds take turns, so that a busy machine disturbs all alike; the least time is the undisturbed one.
        for _ in range(repeats):
            for kind in KINDS:
                times[kind].append(_seconds(kind, batch, work))
        for kind in KINDS:
            found[kind].append(min(times[kind]) / min(times["round-robin"]) - 1)
    return found


def _batch(rows: int) -> pa.RecordBatch:
    random = np.random.default_rng(rows)
    keys = random.integers(0, 1000, rows)
    names = pa.array([f"symbol {key}" for key in keys.tolist()])
    columns = [pa.array(keys), names, pa.array(random.random(rows)), pa.array(random.integers(1, 100, rows))]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _seconds(kind: str, batch: pa.RecordBatch, work: int) -> float:
    started = time.process_time()
    merged = _plain(batch, work) if kind == "round-robin" else _numbered(kind, batch, work)
    seconds = time.process_time() - started
    if merged.column("key").combine_chunks() != batch.column("key"):
        raise AssertionError(f"{kind}: the order was lost")
    return seconds


def _plain(batch: pa.RecordBatch, work: int) -> pa.Table:
    size = -(-batch.num_rows // CHANNELS)
    slices = [batch.slice(start, size) for start in range(0, batch.num_rows, size)]
    packets = [pack(piece.columns, SCHEMA) for piece in slices]
    results = [pack(_worked(unpack(packet, SCHEMA).columns, work), SCHEMA) for packet in packets]
    return pa.Table.from_batches([unpack(result, SCHEMA) for result in results])


def _numbered(kind: str, batch: pa.RecordBatch, work: int) -> pa.Table:
    schema = pa.schema([("#0", pa.int64()), *SCHEMA])
    count = batch.num_rows
    match kind:
        case "sequence numbers":
            numbers = np.arange(count)
        case "with gaps":
            numbers = np.arange(count) * 2
        case _:
            numbers = np.arange(count) // 2
    channels = PartitioningFunction.even(CHANNELS).route(hash_columns([batch.column("key")]))
    if kind == "with duplicates":
        channels[1::2] = channels[: 2 * (count // 2) : 2]  # a position's rows come from one channel
    results = []
    for _, packet in route([pa.array(numbers), *batch.columns], schema, channels, CHANNELS):
        position, *columns = unpack(packet, schema).columns
        results.append(pack([pa.array(position.to_pylist(), pa.int64()), *_worked(columns, work)], schema))
    parts = [unpack(result, schema) for result in results]
    return merge([([part.column(0).to_numpy()], pa.table(part.columns[1:], SCHEMA)) for part in parts], SCHEMA)


def _worked(columns: Sequence[pa.Array], work: int) -> list[pa.Array]:
    """One call per tuple, as an operator in Python is."""
    factors = range(work)

    def operator(key: int, name: str, price: float, size: int) -> tuple[int, str, float, int]:
        product = size
        for factor in factors:
            product = product * factor & 0xFFFF
        return key, name, price, size

    rows = list(map(operator, *(column.to_pylist() for column in columns)))
    return [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
