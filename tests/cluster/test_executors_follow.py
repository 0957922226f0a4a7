"""On a real cluster executors follow the channels: given back, asked for again, given back, with the same output."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.engine.sequential import SequentialRun
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import LocalFiles
from tests.cluster.gated_programs import build_gated
from tests.cluster.test_cluster import read_parts, read_state
from tests.programs import COLUMNS, exact

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def rows_of(number: int) -> list[tuple[Any, ...]]:
    """The rows of a file, always the same."""
    chance = random.Random(number)
    return [(chance.randrange(40), chance.choice("abc"), chance.uniform(-5, 5)) for _ in range(100)]


def write_rows(directory: Path, number: int) -> None:
    schema = ab.from_rows([], COLUMNS).schema
    columns = list(zip(*rows_of(number), strict=True))
    hidden = directory / f"_{number:05d}"
    pq.write_table(pa.table(schema.arrays(columns), schema=schema.arrow), hidden)
    os.utime(hidden, (1_700_000_000 + number, 1_700_000_000 + number))
    hidden.rename(directory / f"{number:05d}.parquet")


def test_executors_come_and_go_with_the_channels_and_the_output_is_the_sequential_one(cluster, tmp_path):
    paths = {name: str(tmp_path / name) for name in ("input", "checkpoint", "output", "gate")}
    for name in ("input", "gate"):
        (tmp_path / name).mkdir()
    words = [word for name, value in paths.items() for word in (f"--{name}", value)]
    driver = cluster.start_driver(Path(__file__).with_name("executors_program.py"), *words)
    driver.wait_for_success(seconds=500)
    found = json.loads(next(line for line in driver.log.read_text().splitlines() if line.startswith('{"files"')))
    assert [phase["used"] for phase in found["phases"]] == [1, 2, 1], found
    # Given back, asked for, given back.
    story = [(target, given_back) for target, _, given_back, _ in found["told"]]
    assert story == [(1, 1), (2, 0), (1, 1)], found
    stream = build_gated(ab.from_rows([], COLUMNS), ["running", "gate"], paths["gate"])
    sequential = SequentialRun(stream._node)
    sequential.feed([row for number in range(found["files"]) for row in rows_of(number)])
    assert exact(read_parts(tmp_path / "output", stream.schema)) == exact(sequential.output)
    state = read_state(Checkpoint(LocalFiles(f"{paths['checkpoint']}/anabranch")), found["files"])
    assert state == {"Running": sequential.state("Running")}
