"""A real driver, killed with SIGKILL at each crash point in turn, and started again from its checkpoint."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from anabranch.api.session import from_epochs
from tests.cheap_jvm import CHEAP_JVM
from tests.faults.dying_driver import STEPS, epochs
from tests.faults.test_schedules import check_state
from tests.programs import COLUMNS, build, exact

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(600)]

# Each driver begins where the one before was killed; between "manifest written" and the next epoch's "epoch begun"
# lie Spark's commit log and offset log.
DEATHS = [("epoch begun", 0), ("job done", 1), ("sink written", 2), ("manifest written", 3)]


def test_a_driver_killed_at_every_point_loses_nothing_and_repeats_nothing(tmp_path):
    script = Path(__file__).with_name("dying_driver.py")
    environment = {**os.environ, "PYTHONPATH": str(script.parents[2]), "JDK_JAVA_OPTIONS": CHEAP_JVM}

    def drive(point: str, epoch: int) -> subprocess.CompletedProcess:
        command = [sys.executable, script, tmp_path, point, str(epoch)]
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    for point, epoch in DEATHS:
        ended = drive(point, epoch)
        assert ended.returncode == -signal.SIGKILL, ended.stderr[-2000:]
    ended = drive("never", 99)
    assert ended.returncode == 0, ended.stderr[-2000:]
    stream = build(from_epochs(epochs(), COLUMNS), STEPS)
    parts = sorted((tmp_path / "out").glob("part-*"))
    delivered = [row for part in parts for row in stream.schema.rows(pq.read_table(part).columns)]
    assert exact(delivered) == exact(stream.run_sequential())
    check_state(stream, tmp_path / "checkpoint", "state after the kills")
