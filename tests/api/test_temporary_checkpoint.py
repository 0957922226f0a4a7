"""Queries without a checkpoint have one for as long as their process lives."""

import os
import subprocess
import sys
import tempfile

from anabranch.api.temporary_checkpoint import temporary_checkpoint


def test_those_of_processes_that_ended_are_removed_and_all_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead, living = tmp_path / f"anabranch-checkpoint-{ended.pid}-abc", tmp_path / "anabranch-checkpoint-1-abc"
    elsewhere, foreign = tmp_path / "elsewhere", tmp_path / "anabranch-checkpoint-of-mine"
    for directory in (dead, living, elsewhere, foreign):
        directory.mkdir()
        (directory / "file").write_text("x")
    (tmp_path / f"anabranch-checkpoint-{ended.pid}-link").symlink_to(elsewhere)
    mine = temporary_checkpoint()
    assert os.stat(mine).st_mode & 0o777 == 0o700
    assert not dead.exists()
    assert (living / "file").exists() and (elsewhere / "file").exists() and (foreign / "file").exists()
    again = temporary_checkpoint()
    assert os.path.isdir(mine) and mine != again
