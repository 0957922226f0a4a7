"""Whatever happens to the executors of a cluster, the output is the sequential one: random schedules, as in
`tests/faults/test_hosted_runs.py`, where hosts are directories, and here with real ones."""

import json
import os
from pathlib import Path

import pytest

from tests.object_store import BUCKET

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

SCHEDULES = int(os.environ.get("ANABRANCH_CLUSTER_SCHEDULES", "2"))


def test_kills_migrations_and_rescalings_on_a_cluster_leave_the_sequential_output(cluster, object_store, tmp_path):
    words = ["--directory", str(tmp_path), "--state", f"s3a://{BUCKET}/schedules", "--endpoint", object_store.endpoint]
    words += ["--executors", str(len(cluster.workers)), "--schedules", str(SCHEDULES)]
    driver = cluster.start_driver(Path(__file__).with_name("schedules_program.py"), *words)
    driver.wait_for_success(300 + 60 * SCHEDULES)
    told = json.loads(next(line for line in driver.log.read_text().splitlines() if line.startswith('{"happened"')))
    assert told["wrong"] == []
    assert sum(told["happened"].values()) >= 5 * SCHEDULES, told
