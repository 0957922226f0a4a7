"""Two drivers at once, frozen ones that wake up, killed ones, a full disk: nothing is lost, repeated or mixed."""

import os

import pytest

from anabranch import faults
from anabranch.control.source_spreading import PATIENCE, SpreadSettings
from anabranch.errors import StorageError
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.files import LocalFiles
from anabranch.state.ownership import Ownership
from benchmarks._query_in_process import PROGRAMS, LocalQuery, rows_of
from tests.faults.driver_schedules import Machine, check, frozen, schedule

pytestmark = pytest.mark.faults

# make test-nightly asks for a thousand.
SCHEDULES = int(os.environ.get("ANABRANCH_SCHEDULES", "24"))
# Those that are not reached in every epoch of every program have tests of their own.
CHANGES = ("function replaced", "program replaced")
REACHED = [point for point in faults.POINTS if point not in (*CHANGES, "feedback kept")]


@pytest.mark.parametrize("first", range(0, SCHEDULES, 8))
def test_random_schedules_of_drivers_change_nothing(tmp_path, first):
    happened: dict[str, int] = {}
    for seed in range(first, min(first + 8, SCHEDULES)):
        for what, count in schedule(seed, tmp_path / str(seed)).items():
            happened[what] = happened.get(what, 0) + count
    assert happened["killed"] and happened["taken over"], happened  # otherwise they test too little


@pytest.mark.parametrize("point", REACHED)
def test_a_driver_frozen_at_any_point_changes_nothing_when_it_wakes_up(tmp_path, point):
    assert frozen("keyed", point, 2, None, tmp_path / "far")
    assert frozen("loop", point, 3, 1, tmp_path / "near")


def test_a_driver_frozen_while_it_drains_changes_nothing_when_it_wakes_up(tmp_path):
    for at, point in enumerate(["epoch begun", "sink checked", "feedback kept", "commit checked", "manifest written"]):
        assert frozen("loop", point, 8, None, tmp_path / str(at))
        assert frozen("loop", point, 4, None, tmp_path / f"{at} before its input has ended", drains_after=3)


def test_a_driver_frozen_when_its_keys_change_their_owners_changes_nothing_when_it_wakes_up(tmp_path):
    for at, ahead in enumerate([None, 1, 4]):
        assert frozen("keyed", "function replaced", 2, ahead, tmp_path / f"keyed {at}", rescaled="total")
        assert frozen("loop", "function replaced", 3, ahead, tmp_path / f"loop {at}", rescaled="total")


def test_a_driver_frozen_when_its_program_takes_another_form_changes_nothing_when_it_wakes_up(tmp_path):
    for at, ahead in enumerate([None, 1, 4]):
        # It goes over as soon as it may, whatever there is to gain.
        eager = {"spread": SpreadSettings(gain_seconds=-1.0)}
        assert frozen("stateless first", "program replaced", PATIENCE, ahead, tmp_path / str(at), **eager)


def test_drivers_without_fences_are_caught(tmp_path, monkeypatch):
    """The check can fail: a driver that looks for no owner, and replaces what is there, goes on when it wakes up."""
    monkeypatch.setattr(Ownership, "check", lambda self: None)
    monkeypatch.setattr(LocalFiles, "create", lambda self, name, data: self.write(name, data) is None)
    monkeypatch.setattr(Checkpoint, "begun", lambda self, epoch: None)
    with pytest.raises(AssertionError, match="output"):
        frozen("loop", "manifest written", 3, 3, tmp_path, drains_after=3, kept=10)


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_a_full_disk_is_one_clear_error_wherever_it_strikes_and_the_query_goes_on(tmp_path, program):
    streams = PROGRAMS[program](rows_of(3, 4, 6))
    struck = set()
    with Machine() as machine:
        driver = machine.start(lambda: LocalQuery(streams, tmp_path))
        for moves in range(200):
            if driver.ended:
                if driver.problem is None:
                    break
                assert isinstance(driver.problem, StorageError) and "Make room" in str(driver.problem)
                struck.add(str(driver.problem).split(": ")[0].rsplit(".", 1)[-1])
                driver = machine.start(lambda: LocalQuery(streams, tmp_path))
            elif moves % 7 == 3:
                machine.disk.full_for = 1
            driver.move()
    assert len(struck) >= 2, struck
    check(streams, tmp_path, program)
