"""Signals from simulated epochs: busy is not congested, and only who takes the time is to blame."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.control import (
    AdaptationPeriods,
    Bounds,
    Controller,
    DefaultPolicy,
    EpochMeasurement,
    Observation,
    observe,
)
from anabranch.control.signals import EPOCHS_MIN
from anabranch.papers.fluid.saso import reversals
from tests.control.epoch_world import EpochWorld

ONE = {"a": 1}


def always(rate: float) -> Callable[[float], float]:
    return lambda at_s: rate


def seen(world: EpochWorld, channels: Mapping[str, int], epochs: int = 13, skip: int = 5) -> dict[str, Observation]:
    for _ in range(skip):
        world.step(channels)
    return observe(1, [world.step(channels) for _ in range(epochs)], channels)


@pytest.mark.parametrize("tells_waiting", [True, False])
@pytest.mark.parametrize("rows_max", [None, 500])
def test_a_saturated_region_is_congested(tells_waiting: bool, rows_max: int | None) -> None:
    world = EpochWorld(always(2000), {"a": 1000.0}, rows_max=rows_max, tells_waiting=tells_waiting)
    observation = seen(world, ONE, skip=8 if rows_max is None else 20)["a"]
    assert observation.congestion > 0.8
    assert observation.busy_share > 0.9
    assert not observation.remote


@pytest.mark.parametrize("tells_waiting", [True, False])
@pytest.mark.parametrize("trigger_s", [0.0, 1.0, 10.0])
def test_an_under_loaded_region_is_not_congested_however_busy_spark_is(tells_waiting: bool, trigger_s: float) -> None:
    world = EpochWorld(always(300), {"a": 1000.0}, trigger_s=trigger_s, tells_waiting=tells_waiting)
    observation = seen(world, ONE)["a"]
    assert observation.congestion < 0.02
    assert observation.busy_share < 0.6
    assert observation.throughput == pytest.approx(300, rel=0.05)
    assert observation.offered == pytest.approx(300, rel=0.05)


@pytest.mark.parametrize("has_interval", [False, True])
def test_a_pause_while_rows_are_left_behind_is_waiting_only_for_a_trigger_that_has_an_interval(
    has_interval: bool,
) -> None:
    def epoch(number: int) -> EpochMeasurement:
        return EpochMeasurement(
            epoch=number,
            started_s=number * 4.0,  # a second of each four is Spark's own: a slow store, say
            duration_s=3.0,
            ready_rows=1_000 - 10 * number,
            taken_rows=10,
            region_s=(("a", 2.8),),
            sink_s=0.0,
            overhead_s=0.2,
            target_s=1.0,
            has_interval=has_interval,
        )

    found = observe(1, [epoch(number) for number in range(6)], ONE)["a"]
    assert (found.congestion == 0.0) == has_interval
    assert has_interval or found.congestion > 0.4


def test_epochs_settle_at_fixed_cost_over_one_minus_utilisation_without_congestion() -> None:
    world = EpochWorld(always(700), {"a": 1000.0}, overhead_s=0.2)
    for _ in range(40):
        measurement = world.step(ONE)
    assert measurement.duration_s == pytest.approx(0.2 / (1 - 0.7), rel=0.05)
    assert seen(world, ONE)["a"].congestion == 0


def test_a_slow_sink_is_remote_congestion() -> None:
    world = EpochWorld(always(2000), {"a": 20_000.0}, sink_rate=1000.0, rows_max=1000)
    observation = seen(world, ONE, skip=20)["a"]
    assert observation.congestion == 0
    assert observation.remote


def test_only_the_slow_region_is_blamed_for_a_growing_backlog() -> None:
    channels = {"a": 1, "b": 1}
    world = EpochWorld(always(2000), {"a": 1000.0, "b": 50_000.0}, rows_max=1000)
    observations = seen(world, channels, skip=20)
    assert observations["a"].congestion > 0.8
    assert observations["b"].congestion == 0
    assert not observations["a"].remote
    assert not observations["b"].remote, "what is slow is upstream of b"


def test_a_slow_region_is_remote_for_the_one_before_it() -> None:
    channels = {"a": 1, "b": 1}
    world = EpochWorld(always(2000), {"a": 50_000.0, "b": 1000.0}, rows_max=1000)
    observations = seen(world, channels, skip=20)
    assert observations["a"].remote
    assert observations["a"].congestion == 0
    assert observations["b"].congestion > 0.8


def test_the_own_rate_does_not_depend_on_the_neighbours_channels() -> None:
    rates = {"a": 1000.0, "b": 400.0}
    few = seen(EpochWorld(always(2000), rates, rows_max=500), {"a": 2, "b": 1})
    many = seen(EpochWorld(always(2000), rates, rows_max=500), {"a": 2, "b": 8})
    assert many["a"].throughput > 1.5 * few["a"].throughput
    assert many["a"].busy_throughput == pytest.approx(few["a"].busy_throughput, rel=0.01)
    # 500 rows of an epoch that cannot be longer: 0.25 s of work and 0.2 s of overhead.
    assert few["a"].busy_throughput == pytest.approx(500 / 0.45, rel=0.01)


def test_where_the_source_limits_epochs_the_overhead_of_channels_is_their_cost_and_elsewhere_it_is_not() -> None:
    def rate(channels: int, overhead_s: float, rows_max: int | None) -> float | None:
        world = EpochWorld(always(5000), {"a": 1000.0}, overhead_s=overhead_s, rows_max=rows_max)
        return seen(world, {"a": channels}, skip=20)["a"].busy_throughput

    assert rate(8, 0.3, 500) > rate(16, 0.6, 500), "more channels, more overhead than they save"
    assert rate(8, 0.3, 500) < rate(16, 0.3, 500)
    assert rate(8, 0.3, None) == pytest.approx(8000, rel=0.01)


def test_a_garbage_collection_pause_decides_nothing() -> None:
    calm = seen(EpochWorld(always(300), {"a": 1000.0}), ONE)["a"]
    paused = seen(EpochWorld(always(300), {"a": 1000.0}, pauses={8: 10.0}), ONE)["a"]
    assert paused.congestion < 0.05
    assert paused.busy_throughput == pytest.approx(calm.busy_throughput, rel=0.15)


def test_empty_and_warm_up_epochs_are_left_out() -> None:
    assert not seen(EpochWorld(always(0), {"a": 1000.0}), ONE)["a"].valid

    def epoch(i: int, duration: float, warm_up: bool) -> EpochMeasurement:
        return EpochMeasurement(
            epoch=i,
            started_s=sum([9.0, 1.0, 1.0, 1.0, 1.0][:i]),
            duration_s=duration,
            ready_rows=100,
            taken_rows=100,
            region_s=(("a", duration - 0.1),),
            sink_s=0.0,
            overhead_s=0.1,
            target_s=1.0,
            waited_s=0.5,
            warm_up=warm_up,
        )

    epochs = [epoch(0, 9.0, True)] + [epoch(i, 0.5, False) for i in range(1, 5)]
    observation = observe(1, epochs, ONE)["a"]
    assert observation.valid
    assert observation.throughput == pytest.approx(100)
    assert observation.busy_throughput == pytest.approx(250)
    assert not observe(1, epochs[:-1], ONE)["a"].valid, "two useful epochs are too few"


def test_overhead_longer_than_the_target_is_not_the_regions_congestion() -> None:
    world = EpochWorld(always(100), {"a": 1000.0}, overhead_s=2.0, target_s=0.5)
    assert seen(world, ONE)["a"].congestion == 0


def test_noise_between_epochs_is_reported_as_error_of_the_rate() -> None:
    def world(noise: float) -> EpochWorld:
        return EpochWorld(always(2000), {"a": 1000.0}, rows_max=500, noise=noise)

    assert seen(world(0.0), ONE)["a"].relative_error == pytest.approx(0, abs=1e-9)
    assert 0.005 < seen(world(0.1), ONE, epochs=41)["a"].relative_error < 0.03


def test_epochs_that_agree_by_chance_are_no_certainty_where_there_are_few() -> None:
    """Of three epochs two had a straggler: their median deviation is nothing, and says nothing."""

    def epoch(number: int, seconds: float) -> EpochMeasurement:
        regions = (("a", seconds),)
        return EpochMeasurement(number, 10.0 * number, seconds + 0.1, 100, 100, regions, 0.0, 0.1, 1.0, waited_s=9.0)

    def told(*seconds: float) -> float:
        epochs = [epoch(number, each) for number, each in enumerate([*seconds, 1.0])]
        return observe(1, epochs, ONE)["a"].relative_error

    assert told(4.0, 4.0, 1.0) > 0.5
    assert told(4.0, 4.0, 4.0) == pytest.approx(0, abs=1e-9)
    assert told(*[1.0] * 7, 4.0) == pytest.approx(0, abs=1e-9), "one pause of many does not count"


def test_a_measurement_that_cannot_be_is_refused() -> None:
    world = EpochWorld(always(100), {"a": 1000.0})
    epochs = [world.step(ONE) for _ in range(6)]
    with pytest.raises(ValueError, match="did not start after"):
        observe(1, epochs[::-1], ONE)
    with pytest.raises(ValueError, match=r"no stage time for region 'b'; it has \['a'\]"):
        observe(1, epochs, {"b": 1})
    with pytest.raises(ValueError, match="took 5 rows of 3"):
        EpochMeasurement(0, 0.0, 1.0, 3, 5, (("a", 0.5),), 0.0, 0.1, 1.0)


@settings(max_examples=40, deadline=None)
@given(
    load=st.floats(10, 5000),
    rates=st.tuples(st.floats(200, 20_000), st.floats(200, 20_000)),
    sink_rate=st.floats(500, 1e6),
    trigger_s=st.sampled_from([0.0, 0.5, 2.0]),
    rows_max=st.sampled_from([None, 300, 3000]),
    seed=st.integers(0, 1000),
)
def test_signals_stay_in_range_and_blame_never_exceeds_the_whole(
    load: float,
    rates: tuple[float, float],
    sink_rate: float,
    trigger_s: float,
    rows_max: int | None,
    seed: int,
) -> None:
    world = EpochWorld(
        always(load),
        {"a": rates[0], "b": rates[1]},
        sink_rate=sink_rate,
        trigger_s=trigger_s,
        rows_max=rows_max,
        noise=0.05,
        generator=np.random.default_rng(seed),
    )
    observations = seen(world, {"a": 1, "b": 1}, epochs=10)
    assert sum(o.congestion for o in observations.values()) <= 1 + 1e-9
    for observation in observations.values():
        assert not (observation.remote and observation.congestion > 0)


def control(
    world: EpochWorld, epochs: int, channels_max: int = 16
) -> tuple[list[dict[str, int]], dict[str, Controller]]:
    """The whole loop as the driver runs it: epochs → periods → controllers → channels of the next epoch."""
    controllers = {name: Controller(DefaultPolicy(Bounds(1, channels_max))) for name in world.region_rates}
    periods = AdaptationPeriods(period_s=5.0)
    history = []
    for _ in range(epochs):
        channels = {name: controller.channels for name, controller in controllers.items()}
        history.append(channels)
        observations = periods.handle(world.step(channels), channels)
        for name, observation in (observations or {}).items():
            controllers[name].handle(observation)
    return history, controllers


def channels_of(history: list[dict[str, int]], region: str) -> tuple[int, ...]:
    return tuple(channels[region] for channels in history)


def test_the_loop_gives_a_region_the_channels_its_load_needs_and_no_more() -> None:
    world = EpochWorld(always(3500), {"a": 1000.0}, rows_max=5000, noise=0.05)
    history, _ = control(world, 400)
    found = channels_of(history, "a")
    assert 4 <= found[-1] <= 8, found
    assert reversals(found) <= 1, found
    assert world.queue and world.now_s - world.queue[0][0] < 2.5, "the backlog is gone"


def test_the_loop_leaves_an_under_loaded_region_alone() -> None:
    history, _ = control(EpochWorld(always(300), {"a": 1000.0}, noise=0.05), 300)
    assert set(channels_of(history, "a")) == {1}


def test_the_loop_adds_no_channels_for_a_slow_sink_and_says_why() -> None:
    world = EpochWorld(always(3000), {"a": 20_000.0}, sink_rate=1000.0, rows_max=2000, noise=0.05)
    history, controllers = control(world, 300)
    assert set(channels_of(history, "a")) == {1}
    assert any(decision.branch == "remote" for decision in controllers["a"].log)


def test_two_regions_in_one_job_do_not_chase_each_other() -> None:
    world = EpochWorld(always(3000), {"a": 1500.0, "b": 1000.0}, rows_max=5000, noise=0.05)
    history, _ = control(world, 600)
    for region in ("a", "b"):
        found = channels_of(history, region)
        assert reversals(found) <= 1, (region, found)
        assert len(set(found[-200:])) == 1, (region, found)
    assert world.now_s - world.queue[0][0] < 3, "the backlog is gone"


def test_a_rescale_starts_a_new_period_with_a_warm_up_epoch() -> None:
    world = EpochWorld(always(300), {"a": 1000.0})
    periods = AdaptationPeriods(period_s=0.1)
    for _ in range(20):
        if periods.handle(world.step(ONE), ONE):
            break
    else:
        pytest.fail("no period was closed")
    assert periods.handle(world.step({"a": 2}), {"a": 2}) is None
    closed = None
    epochs = 1
    while closed is None:
        closed = periods.handle(world.step({"a": 2}), {"a": 2})
        epochs += 1
    assert closed["a"].channels == 2
    assert closed["a"].busy_throughput == pytest.approx(2000, rel=0.01)
    assert epochs == 1 + EPOCHS_MIN + 1, "the warm-up epoch, the useful ones, the one that closes the period"


def test_a_silent_source_closes_periods_that_are_not_valid() -> None:
    world = EpochWorld(always(0), {"a": 1000.0})
    periods = AdaptationPeriods(period_s=1.0)
    closed = [o for o in (periods.handle(world.step(ONE), ONE) for _ in range(100)) if o is not None]
    assert closed
    assert not any(o["a"].valid for o in closed)


def side_by_side(a_s: float, b_s: float) -> dict[str, Observation]:
    epochs = [
        EpochMeasurement(
            epoch=i,
            started_s=3.0 * i,
            duration_s=3.0,
            ready_rows=1000 + 900 * i,
            taken_rows=100,
            region_s=(("a", a_s), ("b", b_s)),
            sink_s=0.1,
            overhead_s=0.2,
            target_s=1.0,
            waited_s=5.0 + i,
            beside=(("a", "b"),),
        )
        for i in range(6)
    ]
    return observe(1, epochs, {"a": 1, "b": 1})


def test_of_regions_side_by_side_only_the_slow_ones_are_to_blame() -> None:
    seen = side_by_side(2.7, 0.5)
    assert seen["a"].congestion > 0.9 and seen["a"].busy_share > 0.9
    assert seen["b"].congestion == 0 and seen["b"].busy_share < 0.3
    assert not seen["b"].remote


def test_two_equally_slow_regions_side_by_side_are_both_to_blame() -> None:
    seen = side_by_side(2.7, 2.6)
    assert seen["a"].congestion > 0.9 and seen["b"].congestion > 0.9
    assert seen["a"].busy_share > 0.9 and seen["b"].busy_share > 0.9


def test_a_source_that_cannot_tell_what_stands_ready_offers_nobody_knows_what() -> None:
    epochs = [
        EpochMeasurement(i, 2.0 * i, 1.9, None, 100, (("a", 1.7),), 0.0, 0.1, 1.0, waited_s=10.0 * i + 9)
        for i in range(6)
    ]
    seen = observe(1, epochs, ONE)["a"]
    assert seen.offered is None
    assert seen.congestion > 0.9
