"""The comparison of the simulator with Spark, without Spark: what is measured, and what is simulated."""

import pytest

from anabranch.sim.work_costs import WorkCosts
from benchmarks import _simulated_and_real as compared

COSTS = WorkCosts(
    tuple_s=1e-6, key_s=0.0, byte_s=0.0, file_s=0.0, task_s=0.0, launch_s=0.02, stage_s=0.01, plan_s=0.1,
    begin_s=0.005, sink_s=0.002, sink_tuple_s=0.0, commit_s=0.003, between_s=0.3, operators={"": 0.0005},
)  # fmt: skip


def test_costs_are_found_again_from_what_epochs_take(monkeypatch):
    """Epochs that take what the cost model says are measured as what it says."""

    def overheads(session, root, regions, channels, warming=0):
        tasks, stages = channels * (regions + 1), regions + 1
        driver = {"begin": COSTS.begin_s, "sink": COSTS.sink_s, "commit": COSTS.commit_s}
        epoch_s = COSTS.plan_s + tasks * COSTS.launch_s + stages * COSTS.stage_s + sum(driver.values())
        return compared.Overheads(epoch_s, COSTS.between_s, 0.0005, driver)

    monkeypatch.setattr(compared, "overheads", overheads)
    found = compared.calibrated(None, None)
    for name in ("plan_s", "launch_s", "stage_s", "begin_s", "sink_s", "commit_s", "between_s"):
        assert getattr(found, name) == pytest.approx(getattr(COSTS, name)), name
    assert found.operators == {"": 0.0005}
    assert compared.mean_costs(found, found) == found


def test_the_regions_of_a_calibration_are_as_many_stages():
    import anabranch as ab

    layout = compared.calibration(3)(ab.from_rows([], "k long")).plan().layout
    assert [stage.depth for stage in layout.stages] == [0, 1, 2, 3]


@pytest.mark.parametrize("stretch", [1.0, 4.0])
def test_every_program_runs_in_the_simulator_and_settles(stretch):
    for case in compared.cases(stretch):
        settled = compared.settled_simulated(case, COSTS, 110.0)
        if case.paced:
            assert settled.throughput == pytest.approx(50.0 / stretch, rel=0.05)
            assert 3 <= settled.channels["work"] <= 5
        else:
            assert set(settled.channels.values()) <= {7, 8}, case.name
            assert stretch * settled.throughput < compared.SLOTS / min(0.040, sum(case.sleeps.values()) / stretch)
        assert settled.epoch_s == pytest.approx(4.0 * stretch, rel=0.4), case.name


def test_the_end_of_a_run_is_compared():
    def epoch(at_s, rows, channels):
        return compared.Seen(at_s, {"rows_in": rows, "channels": {"work": channels}, "duration_ms": {"total": 900.0}})

    early = [epoch(float(at), 1, 2) for at in range(60)]
    late = [epoch(float(60 + at), 10, 8) for at in range(41)]
    settled = compared.settled_real([*early, *late], ["work"])
    assert settled == compared.Settled(pytest.approx(10.0), 0.9, {"work": 8})
    other = compared.Settled(8.0, 1.0, {"work": 7})
    assert compared.differences(other, settled) == {"throughput": 0.2, "epoch_s": 0.111, "channels": 1}
