"""The elastic operator's algorithm on simulated rates."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.control import OperatorController, WorkerAction
from anabranch.papers.fluid.pipeline import falling_after, flat_after, linear


def play(
    curve: Callable[[int], float],
    periods: int = 80,
    workers_max: int = 16,
    noise: float = 0.0,
    seed: int = 0,
    **options: float,
) -> OperatorController:
    controller = OperatorController(workers_max, **options)
    generator = np.random.default_rng(seed)
    for _ in range(periods):
        rate = 1000 * curve(controller.active) * (1 + noise * float(np.clip(generator.standard_normal(), -3, 3)))
        controller.handle(rate)
    return controller


def actives(controller: OperatorController) -> list[int]:
    return [decision.active for decision in controller.log]


def test_workers_are_added_while_they_pay() -> None:
    controller = play(linear(), workers_max=8)
    assert controller.active == controller.created == 8
    assert actives(controller)[:8] == [2, 3, 4, 5, 6, 7, 8, 8]
    assert controller.log[-1].branch == "limit"


@pytest.mark.parametrize("knee", [1, 2, 4, 7])
def test_on_a_flat_curve_it_rests_one_above_the_knee(knee: int) -> None:
    found = actives(play(flat_after(knee)))
    assert found[-1] == knee + 1
    assert len(set(found[-40:])) == 1
    assert play(flat_after(knee)).log[-1].branch == "stable from below"


@pytest.mark.parametrize("peak", [3, 5, 8])
def test_on_a_falling_curve_it_comes_back_to_within_10_percent_of_the_best(peak: int) -> None:
    curve = falling_after(peak)
    controller = play(curve)
    best = max(curve(n) for n in range(1, 17))
    assert curve(controller.active) >= 0.9 * best
    assert len(set(actives(controller)[-40:])) == 1


@pytest.mark.parametrize(("tolerance", "workers"), [(0.1, 12), (0.05, 22)])
def test_linear_speed_up_is_followed_to_about_2_plus_1_over_tolerance(tolerance: float, workers: int) -> None:
    controller = play(linear(), periods=100, workers_max=64, tolerance=tolerance, decay=0.02)
    assert abs(controller.active - workers) <= 1


def test_a_suspended_worker_is_woken_and_none_is_created_twice() -> None:
    """Load from outside comes and goes: a worker is suspended on trial, and woken since that did not help."""
    controller = OperatorController(8)
    for _ in range(20):
        controller.handle(1000 * flat_after(4)(controller.active))
    assert controller.active == 5
    for _ in range(30):
        controller.handle(100 * min(controller.active, 4))
    for _ in range(60):
        controller.handle(1000 * flat_after(4)(controller.active))
    assert controller.active >= 4
    actions = [decision.action for decision in controller.log]
    assert WorkerAction.SUSPEND in actions
    assert WorkerAction.WAKE in actions
    created = [d.worker for d in controller.log if d.action is WorkerAction.CREATE]
    assert len(created) == len(set(created))


def test_after_a_leap_of_the_rate_the_levels_above_are_unknown_and_probed_anew() -> None:
    controller = OperatorController(8)
    curve = falling_after(3)
    for _ in range(40):
        controller.handle(1000 * curve(controller.active))
    rested, known = controller.active, len(controller.log[-1].peaks)
    assert known > rested
    controller.handle(10_000.0)
    decision = controller.log[-1]
    assert decision.peaks == (*decision.peaks[:rested], *[None] * (known - rested))
    assert (decision.action, decision.active) == (WorkerAction.WAKE, rested + 1)
    for _ in range(40):
        controller.handle(10_000.0 * controller.active)
    assert controller.active == 8


def test_a_trial_that_was_no_better_is_undone() -> None:
    controller = OperatorController(4)
    for rate in (100, 200, 300, 400):
        controller.handle(rate)
    assert controller.active == 4
    down = controller.handle(300)
    assert (down.action, down.worker, down.active) == (WorkerAction.SUSPEND, 3, 3)
    up = controller.handle(250)
    assert (up.action, up.worker, up.active) == (WorkerAction.WAKE, 3, 4)
    controller.handle(200)
    assert controller.active == 3
    stay = controller.handle(220)
    assert (stay.action, stay.active, stay.branch) == (WorkerAction.NONE, 3, "peaked")


def test_one_inflated_rate_is_forgotten_by_decay() -> None:
    controller = OperatorController(2)
    controller.handle(100.0)
    controller.handle(1000.0)
    for _ in range(400):
        controller.handle(100.0 * controller.active)
    assert all(decision.action is WorkerAction.NONE for decision in controller.log[-50:])
    assert controller.active == 2


def test_a_rate_of_zero_and_worker_0() -> None:
    controller = OperatorController(4)
    for rate in (0.0, 0.0, 0.0):
        assert controller.handle(rate).active >= 1
    alone = OperatorController(1)
    alone.handle(100.0)
    assert alone.handle(10.0).action is WorkerAction.NONE
    with pytest.raises(ValueError, match="not negative"):
        alone.handle(float("nan"))


@pytest.mark.parametrize("decay", [0.05 / 1.05, 0.06, -0.01])
def test_a_decay_that_would_probe_for_ever_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="probe for ever"):
        OperatorController(4, tolerance=0.05, decay=decay)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    peak=st.floats(2, 16),
    noise=st.sampled_from([0.0, 0.02]),
    seed=st.integers(0, 1000),
    stop_at=st.integers(1, 60),
)
def test_it_never_fails_stays_in_bounds_and_survives_a_restart(
    peak: float, noise: float, seed: int, stop_at: int
) -> None:
    curve = falling_after(peak)
    generator = np.random.default_rng(seed)
    controller, other = OperatorController(16), OperatorController(16)
    for period in range(80):
        if period == stop_at:
            restored = OperatorController(16)
            restored.restore(json.loads(json.dumps(other.to_dict(), allow_nan=False)))
            other = restored
        rate = 1000 * curve(controller.active) * (1 + noise * float(np.clip(generator.standard_normal(), -3, 3)))
        decision = controller.handle(rate)
        assert other.handle(rate).to_dict() == decision.to_dict()
        assert 1 <= decision.active <= controller.created <= 16
