"""Channels run where their state is, on a cluster whose executors reach the state only through an object store."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from tests.cluster import placement_program
from tests.cluster.standalone import Process, StandaloneCluster
from tests.object_store import BUCKET, ObjectStore

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

EPOCHS, KILL_AT, ROWS, KEYS = 7, 4, 400, 300


def start(cluster: StandaloneCluster, store: ObjectStore, directory: Path, **more: Any) -> Process:
    arguments = {
        "directory": directory,
        "state": f"s3a://{BUCKET}/{directory.name}",
        "endpoint": store.endpoint,
        "executors": 2,
        "epochs": EPOCHS,
        "rows": ROWS,
        "keys": KEYS,
        **more,
    }
    words = [word for name, value in arguments.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return cluster.start_driver(Path(placement_program.__file__), *words)


def finished(driver: Process) -> dict[str, Any]:
    driver.wait_for_success(300)
    text = driver.log.read_text()
    # What others log may follow on the same line.
    found, _ = json.JSONDecoder().raw_decode(text, text.index('{"progress"'))
    return found


def assert_exact(directory: Path) -> None:
    rows = [row for number in range(EPOCHS) for row in placement_program.rows_of(number, ROWS, KEYS)]
    source = ab.from_rows(rows, placement_program.SCHEMA)
    stream = source.process(placement_program.Total(), by="key", schema="key long, total double")
    parts = sorted((directory / "output").glob("part-*"))
    delivered = [tuple(row.values()) for part in parts for row in pq.read_table(part).to_pylist()]
    assert delivered == [tuple(row) for row in stream.run_sequential()]


def test_channels_stay_with_their_state_until_an_executor_is_lost_and_the_driver_sees_none_of_it(
    cluster, object_store, tmp_path
):
    found = finished(start(cluster, object_store, tmp_path, kill_at=KILL_AT, standbys=1))
    placements = [{**each["placement"], "fetched_bytes": each["fetched_bytes"]} for each in found["progress"]]
    before, after = placements[1:KILL_AT], placements[KILL_AT:]
    # The first epochs may run before all executors are there.
    assert sum(each["kept"] for each in before) >= 2 * len(before) - 1, placements
    assert before[-1]["fetched_bytes"] == 0, placements
    # The executor with the copy took over, and had all of it but perhaps the last epoch's part.
    (lost,) = [move for move in after[0]["moves"] if move["how"] != "CPAL"]
    assert lost["how"] == "CPA", placements
    whole = sum(each["state_bytes"] for each in found["progress"][:KILL_AT])
    assert after[0]["fetched_bytes"] < whole / 2, (whole, placements)
    assert sum(each["state_bytes"] for each in found["progress"]) > 0 and found["driver_state_bytes"] == 0
    assert_exact(tmp_path)
