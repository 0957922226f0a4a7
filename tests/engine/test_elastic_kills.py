"""Ordered elastic operators and accumulators give what one thread gives, also if the process is killed in a call."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine import elastic_victim

CASES = int(os.environ.get("ANABRANCH_KILL_CASES", "1"))


@pytest.mark.parametrize("seed", range(CASES))
def test_kills_in_mid_epoch_lose_nothing_and_double_nothing(seed: int, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "tests.engine.elastic_victim", str(tmp_path), str(seed)]
    codes = []
    while not codes or codes[-1] == -signal.SIGKILL:
        codes.append(subprocess.run(command, cwd=root, env=environment, timeout=120, check=False).returncode)
        assert len(codes) <= elastic_victim.KILLS + 1
    assert codes == [-signal.SIGKILL] * elastic_victim.KILLS + [0]
    finished = elastic_victim.run(str(tmp_path), seed)  # nothing is left to do: it only reads what was delivered
    expected = [stream.run_sequential() for stream in elastic_victim.program("", seed)]
    assert finished.outputs == expected
