"""Real drivers, each with a Spark of its own: killed, frozen and thawed, two at once, on a full disk, rescaled."""

import os

import pytest

from tests.faults.real_schedules import RealSchedule, schedule

pytestmark = [pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(1800)]

# make test-nightly asks for sixty.
SCHEDULES = int(os.environ.get("ANABRANCH_REAL_SCHEDULES", "1"))
# Each driver begins where the one before was killed; between "manifest written" and the next epoch's "epoch begun"
# lie Spark's commit log and offset log.
DEATHS = [("epoch begun", 0), ("job done", 1), ("sink written", 2), ("manifest written", 3)]


def test_a_driver_killed_at_every_point_loses_nothing_and_repeats_nothing(tmp_path):
    run = RealSchedule(0, tmp_path)
    for point, epoch in DEATHS:
        killed = run.start((point, epoch, "kill"))
        killed.until_still()
        assert killed.code == -9, killed.story()
        if epoch == 0:
            run.forget_batch(0)
    last = run.start()
    last.until_still()
    assert last.code == 0, last.story()
    run.check()
    assert run.files_of_epochs("left")[0] == [0, 1]


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_random_schedules_of_real_drivers_change_nothing(tmp_path, seed):
    """The first is always one that is frozen and wakes up when another has ended the query."""
    happened = schedule(seed, tmp_path, () if seed else ("frozen at a point",))
    print(f"schedule({seed}): {'; '.join(happened)}")
    assert seed or ": frozen in epoch" in happened[0], happened
