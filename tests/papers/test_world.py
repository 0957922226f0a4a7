"""The world itself: times that can be computed by hand."""

from __future__ import annotations

import math
import time

import pytest

from anabranch.control import Bounds, DefaultPolicy
from anabranch.papers.machine import (
    Cluster,
    Constant,
    Fault,
    Host,
    MachineRegion,
    MachineSource,
    Rescaling,
    Sine,
    StandStill,
    Steps,
    World,
    WorldDescription,
)

MANY_CORES = Cluster(hosts=(Host(cores=64),), barrier_s=0.0)


def run(
    *regions: MachineRegion, source: MachineSource, cluster: Cluster = MANY_CORES, until_s: float = math.inf, **more
):
    return World(WorldDescription(source, regions, cluster, **more)).run(until_s)


def test_one_channel_takes_one_tuple_after_the_other():
    result = run(MachineRegion(cost_s=0.01), source=MachineSource(tuples=100))
    assert result.delivered == 100
    assert result.seconds == pytest.approx(1.0)


@pytest.mark.parametrize("channels", [2, 4, 10])
def test_channels_work_at_the_same_time(channels):
    result = run(MachineRegion(cost_s=0.01, channels=channels), source=MachineSource(tuples=100))
    assert result.seconds == pytest.approx(1.0 / channels)


def test_channels_share_the_cores_of_their_host():
    result = run(
        MachineRegion(cost_s=0.01, channels=8),
        source=MachineSource(tuples=400),
        cluster=Cluster(hosts=(Host(cores=2),), barrier_s=0),
    )
    assert result.seconds == pytest.approx(2.0, rel=0.02)


def test_other_tenants_take_cores_away():
    host = Host(cores=4, tenants=Constant(2.0))
    result = run(
        MachineRegion(cost_s=0.01, channels=4), source=MachineSource(tuples=400), cluster=Cluster(hosts=(host,))
    )
    assert result.seconds == pytest.approx(2.0, rel=0.02)


def test_a_slow_host_holds_up_what_is_dealt_in_turn():
    cluster = Cluster(hosts=(Host(), Host(speed=0.5)))
    result = run(MachineRegion(cost_s=0.01, channels=2), source=MachineSource(tuples=400), cluster=cluster)
    assert result.seconds == pytest.approx(200 * 0.02, rel=0.02)


def test_a_stall_is_waited_for_and_nothing_is_lost():
    cluster = Cluster(hosts=(Host(stalls=(Fault(0.5, 2.0),)),), barrier_s=0)
    result = run(MachineRegion(cost_s=0.01), source=MachineSource(tuples=100), cluster=cluster)
    assert result.seconds == pytest.approx(3.0)
    assert result.delivered == 100


def test_congestion_is_the_share_of_time_in_which_a_send_would_block():
    source = MachineSource(load=Constant(200.0), stored=False)
    region = MachineRegion(cost_s=0.01, queue=4)
    congested = run(region, source=source, until_s=50.0).samples[-1].regions[0].congestion
    # A tuple is ready 5 ms after the last was taken, and room for it comes every 10 ms.
    assert congested == pytest.approx(0.5, abs=0.02)
    calm = run(region, source=MachineSource(load=Constant(50.0)), until_s=50.0).samples[-1].regions[0].congestion
    assert calm == 0.0


def test_latency_is_delay_and_work():
    cluster = Cluster(hosts=(Host(),), delay_s=0.003)
    result = run(MachineRegion(cost_s=0.01), source=MachineSource(load=Constant(10.0), tuples=20), cluster=cluster)
    assert result.latencies[1] == pytest.approx(0.016)


def test_a_backlog_is_kept_and_counts_as_latency():
    result = run(MachineRegion(cost_s=0.01), source=MachineSource(load=Constant(200.0), tuples=200))
    assert result.latencies[-1] == pytest.approx(1.0, rel=0.05)
    assert max(sample.backlog for sample in run(
        MachineRegion(cost_s=0.01), source=MachineSource(load=Constant(200.0)), until_s=10.0
    ).samples) == pytest.approx(1000, rel=0.1)  # fmt: skip


def test_the_pause_of_a_migration_grows_with_the_state():
    def pause(key_bytes: float) -> float:
        region = MachineRegion(cost_s=0.001, key=0, channels=2, key_bytes=key_bytes)
        cluster = Cluster(hosts=(Host(cores=8),), migration_bytes_per_s=1e6)
        source = MachineSource(load=Constant(100.0), tuples=2000, keys=500)
        (record,) = run(region, source=source, cluster=cluster, rescalings=(Rescaling(10.0, 0, 4),)).migrations
        assert record.bytes == pytest.approx(record.keys * key_bytes)
        assert record.channels_after == (4,)
        return record.migration_s

    barriers = 3 * Cluster().barrier_s
    small, large = pause(100.0) - barriers, pause(1000.0) - barriers
    assert large == pytest.approx(10 * small, rel=0.01)


def test_a_controller_follows_a_step():
    region = MachineRegion(cost_s=0.01, policy=DefaultPolicy, bounds=Bounds(1, 16))
    source = MachineSource(load=Steps((50.0, 550.0), (40.0,)))
    result = run(region, source=source, until_s=80.0, period_s=2.0)
    channels = result.channels()
    assert channels[10] == 1
    assert 6 <= channels[-2] <= 9
    assert result.samples[-2].delivered == pytest.approx(550.0, rel=0.02)


def test_the_same_seed_gives_the_same_run_and_another_seed_another():
    def latencies(seed: int):
        source = MachineSource(load=Constant(150.0), tuples=500, random_arrivals=True)
        return run(MachineRegion(cost_s=0.01, channels=2), source=source, seed=seed).latencies

    assert latencies(1) == latencies(1)
    assert latencies(1) != latencies(2)


def test_a_deadlock_is_told_and_not_waited_for():
    """Queues in the merger that are shorter than an epoch, as docs/ordering.md says."""
    region = MachineRegion(cost_s=0.01, key=0, channels=3, selectivity=0.1, merger_capacity=1, queue=1, pulse_every=50)
    with pytest.raises(StandStill, match="nothing can happen any more"):
        run(region, source=MachineSource(tuples=500, keys=50))


@pytest.mark.parametrize("length_s", [0.02, 1.0, 5.0])
@pytest.mark.parametrize("stored", [True, False])
def test_a_load_that_falls_to_nothing_comes_back(length_s, stored):
    """The swarm found a curve whose zeros fell in step with the times at which it was looked at."""
    source = MachineSource(load=Sine(3000.0, 3000.0, length_s), stored=stored)
    result = run(MachineRegion(cost_s=1e-6), source=source, until_s=2 * length_s, period_s=length_s)
    assert result.taken == pytest.approx(6000 * length_s, rel=0.05, abs=3)


def test_a_run_that_does_not_come_to_an_end_is_stopped():
    with pytest.raises(StandStill, match="no end in sight"):
        World(WorldDescription(MachineSource(tuples=1000), (MachineRegion(),))).run(events_max=500)


def test_a_run_without_an_end_is_refused():
    with pytest.raises(ValueError, match="needs an end"):
        run(MachineRegion(), source=MachineSource())


def test_a_hundred_channels_take_less_than_a_minute_per_million_tuples():
    started = time.process_time()
    cluster = Cluster(hosts=tuple(Host(cores=8) for _ in range(14)), delay_s=1e-4)
    result = run(MachineRegion(key=0, channels=100), source=MachineSource(tuples=30_000, keys=1000), cluster=cluster)
    assert result.delivered == 30_000
    assert time.process_time() - started < 30_000 * 60e-6 + 1.0  # …and a second to start
