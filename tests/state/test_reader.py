"""Looking into a checkpoint without running its program, from Python and from the command line."""

import shutil

import pytest

from anabranch.api.session import from_epochs
from anabranch.cli import main
from anabranch.errors import CheckpointError
from anabranch.program.options import Interval
from anabranch.state.compaction import SnapshotInterval
from anabranch.state.files import LocalFiles
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, build


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> str:
    path = str(tmp_path_factory.mktemp("checkpoint"))
    epochs = [[(k, "a", float(n + k)) for k in range(5)] for n in range(3)]
    ParallelRun(build(from_epochs(epochs, COLUMNS), ["running", "jump by both"]), path, channels=2).run_epochs()
    return path


def reader(checkpoint: str, epoch: int | None = None) -> CheckpointReader:
    return CheckpointReader(LocalFiles(f"{checkpoint}/anabranch"), epoch)


def test_stores_say_what_they_hold(checkpoint):
    running, jump = reader(checkpoint).stores()
    assert (running.operator, running.key, running.fields) == ("Running", ("k",), ("total", "seen"))
    assert (running.epoch, running.keys) == (2, 5)
    assert running.bytes > 0 and 1 <= running.key_groups <= 5
    assert jump.key == ("k", "s")
    assert sum(reader(checkpoint).groups("Running").values()) == 5


def test_the_value_of_a_key_is_found_at_every_version(checkpoint):
    assert [reader(checkpoint, epoch).value("Running", 3)["seen"] for epoch in (0, 1, 2)] == [1, 2, 3]
    assert reader(checkpoint).value("Running", 99) is None
    assert reader(checkpoint).value("Jump", (1, "a"))["stored"] is not None


def test_what_is_not_there_is_an_error_that_says_what_is(checkpoint, tmp_path):
    with pytest.raises(
        CheckpointError, match="no operator 'Walking' with state in this checkpoint; with state: Running"
    ):
        reader(checkpoint).items("Walking")
    with pytest.raises(CheckpointError, match="no version 17; versions: 0, 1, 2"):
        reader(checkpoint, 17)
    with pytest.raises(CheckpointError, match="not the checkpoint"):
        CheckpointReader(LocalFiles(str(tmp_path)))


def test_the_command_lists_stores_keys_and_values(checkpoint, capsys):
    assert main(["state", checkpoint]) == 0
    assert "Running   k" in capsys.readouterr().out
    assert main(["state", checkpoint, "Running", "--limit", "2"]) == 0
    shown = capsys.readouterr().out
    assert "total" in shown and "3 more; --limit 5 shows all" in shown
    assert main(["state", checkpoint, "Running", "--key", "3", "--epoch", "1"]) == 0
    assert "seen = 2" in capsys.readouterr().out
    assert main(["state", checkpoint, "Jump", "--key", '[1, "a"]']) == 0
    assert "stored = " in capsys.readouterr().out
    assert main(["state", checkpoint, "Running", "--groups"]) == 0
    assert "key_group" in capsys.readouterr().out
    assert main(["state", checkpoint, "--versions"]) == 0
    assert capsys.readouterr().out == "0\n1\n2\n"


@pytest.mark.parametrize("damage", ["flipped", "empty", "deleted"])
def test_a_damaged_segment_is_named_with_its_place_and_what_to_do(checkpoint, tmp_path, damage):
    shutil.copytree(checkpoint, tmp_path / "copy")
    for path in (tmp_path / "copy").rglob("*.segment"):
        data = path.read_bytes()
        path.unlink()
        if damage != "deleted":
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage == "flipped" else b"")
    found = reader(str(tmp_path / "copy"))
    name = next(each.operator for each in reader(checkpoint).stores())
    with pytest.raises(CheckpointError, match=r"copy/anabranch/state/.*\.segment is (damaged|missing).*Restore it"):
        found.items(name)


def test_the_command_fails_with_a_sentence(checkpoint, capsys):
    assert main(["state", checkpoint, "Running", "--key", "99"]) == 2
    assert "the key 99 has no state" in capsys.readouterr().err


def test_snapshots_are_due_by_epochs_or_by_time():
    by_epochs = SnapshotInterval(Interval(epochs=3))
    assert [by_epochs.due(epoch, 0) for epoch in range(8)] == [False, False, False, True, False, False, True, False]
    by_time = SnapshotInterval(Interval(seconds=120))
    assert [by_time.due(0, seconds * 1000) for seconds in (0, 60, 120, 180, 240)] == [False, False, True, False, True]
