"""Channels run where their state is, on a cluster whose executors reach the state only through an object store.

It is the benchmark of that, in miniature, that runs: so it is tested, too.
"""

import contextlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from benchmarks import resources
from tests import object_store as store
from tests.benchmarks.figures import FIGURES, figures_of
from tests.cluster import placement_program, standalone

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

SIZE = resources.MINI


def assert_exact(directory: Path) -> None:
    keys = SIZE.keys[0]
    columns = [placement_program.columns_of(number, SIZE.rows, keys, fill=True) for number in range(SIZE.epochs)]
    rows = [row for which, values in columns for row in zip(which.tolist(), values.tolist(), strict=True)]
    source = ab.from_rows(rows, placement_program.SCHEMA)
    stream = source.process(placement_program.Total(), by="key", schema="key long, total double")
    parts = sorted((directory / "output").glob("part-*"))
    delivered = [tuple(row.values()) for part in parts for row in pq.read_table(part).to_pylist()]
    assert delivered == [tuple(row) for row in stream.run_sequential()]


def test_channels_stay_with_their_state_until_an_executor_is_lost_and_the_driver_sees_none_of_it(
    cluster, object_store, monkeypatch, capsys
):
    told: list[dict[str, Any]] = []
    run = resources.run

    def running(lent: Any, endpoint: str, directory: Path, *others: Any, **more: Any) -> dict[str, Any]:
        told.append(run(lent, endpoint, directory, *others, **more))
        assert_exact(directory)
        return told[-1]

    monkeypatch.setattr(resources, "run", running)
    monkeypatch.setattr(standalone, "StandaloneCluster", lambda *_, **__: Lent(cluster))
    monkeypatch.setattr(store, "object_store", lambda: contextlib.nullcontext(object_store))
    assert FIGURES["resources"] <= figures_of(capsys, "resources", "--mini").keys()
    (found,) = told
    placements = [{**each["placement"], "fetched_bytes": each["fetched_bytes"]} for each in found["progress"]]
    before, after = placements[1 : SIZE.move_at], placements[SIZE.kills_at[0] :]
    # The first epochs may run before all executors are there.
    assert sum(each["kept"] for each in before) >= 2 * len(before) - 1, placements
    assert before[-1]["fetched_bytes"] == 0, placements
    # The executor with the copy took over, and had all of it but perhaps the last epoch's part.
    (lost,) = [move for move in after[0]["moves"] if move["how"] != "CPAL"]
    assert lost["how"] == "CPA", placements
    whole = sum(each["state_bytes"] for each in found["progress"][: SIZE.kills_at[0]])
    assert after[0]["fetched_bytes"] < whole / 2, (whole, placements)
    assert sum(each["state_bytes"] for each in found["progress"]) > 0 and found["driver_state_bytes"] == 0


class Lent:
    """A cluster as whoever starts one uses it."""

    def __init__(self, cluster: Any) -> None:
        self._cluster = cluster

    def start(self) -> None:
        """It runs."""

    def stop(self) -> None:
        """Whoever lent it will."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
