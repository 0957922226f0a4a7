"""What every controller does, whatever its policy: pinning, bounds, skipped periods, log, restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.control import (
    Bounds,
    Controller,
    DefaultPolicy,
    Observation,
    PaperPolicy,
    Pin,
    Policy,
    Proposal,
    Rescale,
    Unpin,
)
from anabranch.control.controller import ControllerMemory
from anabranch.papers.fluid.pipeline import FluidPipeline, FluidRegion, falling_after, flat_after, linear, sine, steps

MAKERS: dict[str, Callable[[Bounds], Policy]] = {
    "default": lambda bounds: DefaultPolicy(bounds),
    "paper": lambda bounds: PaperPolicy(bounds, congestion_threshold=0.05),
}
every_policy = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def congested(period: int, channels: int, valid: bool = True) -> Observation:
    return Observation(period, channels, 1000.0 * channels, congestion=0.9, busy_share=1.0, valid=valid)


def calm(period: int, channels: int) -> Observation:
    return Observation(period, channels, 100.0, congestion=0.0, busy_share=0.05)


@every_policy
def test_congestion_adds_channels_up_to_the_bound(make: Callable[[Bounds], Policy]) -> None:
    controller = Controller(make(Bounds(1, 7)))
    for period in range(1, 30):
        controller.handle(congested(period, controller.channels))
    assert controller.channels == 7


@every_policy
def test_calm_gives_channels_back_down_to_the_bound(make: Callable[[Bounds], Policy]) -> None:
    controller = Controller(make(Bounds(3, 16)), channels=16)
    assert controller.channels == 16
    controller.handle(congested(1, 16))  # the paper's policy comes down only if it sees congestion end
    for period in range(2, 60):
        controller.handle(calm(period, controller.channels))
    assert controller.channels == 3


@every_policy
def test_an_invalid_period_changes_nothing_and_teaches_nothing(make: Callable[[Bounds], Policy]) -> None:
    controller = Controller(make(Bounds(1, 8)))
    before = controller.memory().state
    decision = controller.handle(congested(1, 1, valid=False))
    assert decision.channels == 1
    assert decision.branch == "skipped"
    assert controller.memory().state == before


@every_policy
def test_a_pinned_region_stays_where_it_is_until_unpinned(make: Callable[[Bounds], Policy]) -> None:
    controller = Controller(make(Bounds(1, 8)))
    assert controller.handle(Pin(12)).channels == 12, "a pin is the user's word, bounds or not"
    for period in range(1, 10):
        assert controller.handle(congested(period, 12)).channels == 12
    assert controller.handle(Unpin()).channels == 8
    assert not controller.pinned
    controller.handle(congested(10, 8))
    for period in range(11, 20):
        controller.handle(calm(period, controller.channels))
    assert controller.channels < 8


@every_policy
def test_a_rescale_by_hand_is_where_the_controller_goes_on(make: Callable[[Bounds], Policy]) -> None:
    controller = Controller(make(Bounds(1, 32)))
    controller.handle(congested(1, 1))
    assert controller.handle(Rescale(8)).branch == "by hand"
    assert controller.handle(congested(2, 8)).channels > 8
    assert controller.handle(Rescale(100)).channels == 32
    with pytest.raises(ValueError, match="at least 1 channel"):
        controller.handle(Rescale(0))


@every_policy
def test_a_migration_that_was_put_off_is_not_believed_to_have_happened(
    make: Callable[[Bounds], Policy],
) -> None:
    controller = Controller(make(Bounds(1, 32)))
    assert controller.handle(congested(1, 1)).channels == 2
    decision = controller.handle(congested(2, 1))
    assert decision.channels_before == 1
    assert decision.channels == 2


@every_policy
def test_every_decision_can_be_read(make: Callable[[Bounds], Policy]) -> None:
    controller = Controller(make(Bounds(1, 32)), log_length=3)
    for period in range(1, 6):
        controller.handle(congested(period, controller.channels))
    assert [decision.period for decision in controller.log] == [3, 4, 5]
    entry = controller.log[-1]
    assert entry.observation is not None and entry.observation.congestion == 0.9
    assert entry.remembered
    assert entry.reason in entry.describe() and entry.branch in entry.describe()
    json.dumps(entry.to_dict(), allow_nan=False)


class Greedy:
    """A policy without a sense of bounds."""

    name = "greedy"
    bounds = Bounds(2, 5)

    def propose(self, observation: Observation) -> Proposal:
        return Proposal(99, "more", "always more")

    def to_dict(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


def test_the_bounds_hold_whatever_a_policy_proposes() -> None:
    controller = Controller(Greedy())
    assert controller.channels == 2
    decision = controller.handle(congested(1, 2))
    assert decision.channels == controller.channels == 5
    assert "kept within [2, 5]" in decision.reason


def test_what_is_no_event_is_refused() -> None:
    with pytest.raises(TypeError, match="Observation, Pin, Unpin or Rescale"):
        Controller(DefaultPolicy()).handle(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{"congestion": 1.1}, {"busy_share": -0.1}, {"throughput": float("nan")}, {"channels": 0}],
)
def test_an_observation_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    right = {"period": 1, "channels": 1, "throughput": 1.0, "congestion": 0.0, "busy_share": 0.5}
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Observation(**{**right, **wrong})  # type: ignore[arg-type]


@every_policy
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    stop_at=st.integers(1, 60),
    curve=st.sampled_from([linear(), flat_after(5), falling_after(6)]),
    load=st.sampled_from([sine(5000, 4000, 40), steps((9000, 1000, 5000), (15, 10, 15))]),
)
def test_a_restarted_driver_decides_as_if_it_had_never_stopped(
    make: Callable[[Bounds], Policy],
    seed: int,
    stop_at: int,
    curve: Callable[[int], float],
    load: Callable[[int], float],
) -> None:
    def play(restart: bool) -> list[int]:
        region = FluidRegion(1000, curve)
        world = FluidPipeline([region], load, noise=0.05, generator=np.random.default_rng(seed))
        controller = Controller(make(Bounds(1, 32)))
        found = []
        for period in range(1, 80):
            if restart and period == stop_at:
                saved = json.dumps(vars(controller.memory()), allow_nan=False)
                controller = Controller(make(Bounds(1, 32)))
                controller.restore(ControllerMemory(**json.loads(saved)))
            found.append(controller.channels)
            controller.handle(world.advance([controller.channels]).observations[0])
        return found

    assert play(restart=True) == play(restart=False)


@every_policy
def test_a_restart_with_other_bounds_keeps_to_the_new_ones(make: Callable[[Bounds], Policy]) -> None:
    controller = Controller(make(Bounds(1, 32)))
    for period in range(1, 12):
        controller.handle(congested(period, controller.channels))
    later = Controller(make(Bounds(1, 6)))
    later.restore(controller.memory())
    assert later.channels == 6
    assert later.handle(congested(12, 6)).channels == 6


def test_a_restart_keeps_the_pin() -> None:
    controller = Controller(DefaultPolicy(Bounds(1, 4)))
    controller.handle(Pin(9))
    later = Controller(DefaultPolicy(Bounds(1, 4)))
    later.restore(controller.memory())
    assert later.pinned
    assert later.handle(calm(1, 9)).channels == 9


def test_a_restart_with_another_policy_keeps_the_channels_only() -> None:
    controller = Controller(PaperPolicy(Bounds(1, 32)))
    for period in range(1, 5):
        controller.handle(congested(period, controller.channels))
    later = Controller(DefaultPolicy(Bounds(1, 32)))
    later.restore(controller.memory())
    assert later.channels == controller.channels > 1
    assert later.memory().state == DefaultPolicy().to_dict()


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 99"):
        Controller(DefaultPolicy()).restore(ControllerMemory("default", 1, None, 0, {}, version=99))
