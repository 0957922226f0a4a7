"""One thread of plain Python over the workloads that systems are compared with: what there is to be beaten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import anabranch as ab
from examples.nexmark.events import EVENTS
from examples.nexmark.queries import run


def groups_of(source: Path, files: int) -> list[list[Path]]:
    """The files of a directory, so many at a time."""
    paths = sorted(source.glob("*.parquet"))
    return [paths[at : at + files] for at in range(0, len(paths), files)]


def run_nexmark(plain: Any, name: str, source: Path, output: Path, files: int) -> None:
    """A query of Nexmark, as in `benchmarks.nexmark`: rows as dicts, a loop, Parquet."""
    schema = run(name, ab.from_rows([], EVENTS)).schema.arrow
    groups = (plain.read_rows(group, plain.NEEDS[name]) for group in groups_of(source, files))
    for number, rows in enumerate(plain.QUERIES[name](groups)):
        _write(rows, schema, output / f"part-{number:05d}.parquet")


def run_stateful(source: Path, output: Path, files: int) -> None:
    """The volume-weighted mean price of each key so far, for each row."""
    schema = pa.schema([("key", pa.int64()), ("vwap", pa.float64())])
    totals: dict[int, list[float]] = {}
    for number, group in enumerate(groups_of(source, files)):
        rows = []
        for path in group:
            for row in pq.read_table(path).to_pylist():
                mine = totals.setdefault(row["key"], [0.0, 0.0])
                mine[0] += row["price"] * row["volume"]
                mine[1] += row["volume"]
                rows.append((row["key"], mine[0] / mine[1]))
        _write(rows, schema, output / f"part-{number:05d}.parquet")


def _write(rows: list[Any], schema: pa.Schema, path: Path) -> None:
    if rows:
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
        pq.write_table(pa.table(columns, schema=schema), path)
