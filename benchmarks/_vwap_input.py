"""The trades that the VWAP benchmarks read, and what must come out for them.

The truth is recomputed with numpy and shares no code with any system: `numpy.cumsum` adds strictly from left to
right, which is what one thread does to one key, so its numbers are those of the sequential run, bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "key long, price double, volume double"
FILES_PER_EPOCH = 4
# With 500,000 rows of 100,000 keys: about 32,000 distinct keys per epoch, a fifth of the rows in the hottest.
ZIPF_EXPONENT = 1.2
RELATIVE_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Output:
    """Rows (key, vwap), in the order in which a system wrote them."""

    key: np.ndarray
    vwap: np.ndarray


def make_epochs(rows_of_epochs: Sequence[int], keys: int, seed: int = 1) -> list[pa.Table]:
    """One table of trades per epoch."""
    draw = np.random.default_rng(seed)
    weights = np.arange(1, keys + 1, dtype=float) ** -ZIPF_EXPONENT
    cumulative = np.cumsum(weights / weights.sum())
    cumulative[-1] = 1.0
    names = draw.permutation(keys)  # so that a key's number says nothing about how often it comes
    return [
        pa.table(
            {
                "key": names[np.searchsorted(cumulative, draw.random(rows))],
                "price": np.round(draw.uniform(1, 500, rows), 2),
                "volume": np.round(draw.uniform(0.001, 100, rows), 3),
            }
        )
        for rows in rows_of_epochs
    ]


def write_epochs(epochs: Sequence[pa.Table], directory: Path) -> None:
    """Each epoch as `FILES_PER_EPOCH` files, whose modification times are in the order of the rows."""
    directory.mkdir(parents=True)
    for epoch, table in enumerate(epochs):
        bounds = np.linspace(0, table.num_rows, FILES_PER_EPOCH + 1).astype(int)
        for part in range(FILES_PER_EPOCH):
            path = directory / f"{epoch:06d}-{part}.parquet"
            pq.write_table(table.slice(bounds[part], bounds[part + 1] - bounds[part]), path)
            seconds = 1_700_000_000 + epoch * FILES_PER_EPOCH + part
            os.utime(path, (seconds, seconds))


def link_epochs(source: Path, count: int, directory: Path) -> Path:
    """A directory that holds the first `count` epochs: the same files, not copies."""
    directory.mkdir(parents=True)
    for path in sorted(source.glob("*.parquet"))[: count * FILES_PER_EPOCH]:
        os.link(path, directory / path.name)
    return directory


def sequential_output(epochs: Sequence[pa.Table]) -> list[Output]:
    """What one thread would have written, per epoch."""
    table = pa.concat_tables(epochs)
    key, price, volume = (table.column(name).to_numpy() for name in ("key", "price", "volume"))
    order = np.argsort(key, kind="stable")
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    amounts, volumes = (price * volume)[order], volume[order]
    for start, stop in zip(starts, [*starts[1:], len(key)], strict=True):
        np.cumsum(amounts[start:stop], out=amounts[start:stop])
        np.cumsum(volumes[start:stop], out=volumes[start:stop])
    vwap = np.empty(len(key))
    vwap[order] = amounts / volumes
    bounds = np.cumsum([epoch.num_rows for epoch in epochs])[:-1]
    return [Output(*both) for both in zip(np.split(key, bounds), np.split(vwap, bounds), strict=True)]


# ---- comparisons; each raises AssertionError with what is wrong ----


def check_identical(found: Sequence[Output], expected: Sequence[Output]) -> str:
    """Same rows, same order, same bits."""
    assert len(found) == len(expected), f"{len(found)} epochs, expected {len(expected)}"
    for epoch, (mine, truth) in enumerate(zip(found, expected, strict=True)):
        assert np.array_equal(mine.key, truth.key), f"epoch {epoch}: other keys, or in another order"
        different = np.flatnonzero(mine.vwap != truth.vwap)
        assert not len(different), f"epoch {epoch}: {len(different)} rows differ, the first is row {different[0]}"
    return "every row equals the sequential run bit for bit, in its order"


def check_per_key(found: Sequence[Output], expected: Sequence[Output]) -> str:
    """As many rows per key and epoch as came in, and the key's last value right.

    The running values in between depend on the order of a key's rows, which Spark's operators do not promise;
    how many of them agree nevertheless is in the answer.
    """
    check_last_values(found, expected)
    equal = rows = 0
    for epoch, (mine, truth) in enumerate(zip(found, expected, strict=True)):
        mine_order, truth_order = (np.argsort(each.key, kind="stable") for each in (mine, truth))
        same_keys = np.array_equal(mine.key[mine_order], truth.key[truth_order])
        assert same_keys, f"epoch {epoch}: not one row out for each row in"
        equal += int((mine.vwap[mine_order] == truth.vwap[truth_order]).sum())
        rows += len(truth.key)
    share = 100 * equal / rows
    return f"rows per key and last values agree; {share:.1f} % of the rows are bit-equal, by key and order"


def check_last_values(found: Sequence[Output], expected: Sequence[Output]) -> str:
    """The last value of each key in each epoch is right, whatever was written before it."""
    assert len(found) == len(expected), f"{len(found)} epochs, expected {len(expected)}"
    for epoch, (mine, truth) in enumerate(zip(found, expected, strict=True)):
        mine_keys, mine_values = _last_values(mine)
        truth_keys, truth_values = _last_values(truth)
        assert np.array_equal(mine_keys, truth_keys), (
            f"epoch {epoch}: {len(mine_keys)} keys, expected {len(truth_keys)}"
        )
        close = np.isclose(mine_values, truth_values, rtol=RELATIVE_TOLERANCE, atol=0)
        assert close.all(), f"epoch {epoch}: the last value of {np.count_nonzero(~close)} keys is wrong"
    return "the value of every key agrees after every epoch"


def _last_values(output: Output) -> tuple[np.ndarray, np.ndarray]:
    keys, from_the_end = np.unique(output.key[::-1], return_index=True)
    return keys, output.vwap[::-1][from_the_end]
