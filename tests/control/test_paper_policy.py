"""The paper's controller where it works, and each of its known faults, kept on purpose."""

from __future__ import annotations

import pytest

from anabranch.control import Bounds, Controller, Observation, PaperPolicy, doubling_levels
from anabranch.papers.fluid.pipeline import (
    FluidRegion,
    Load,
    SpeedUp,
    constant,
    falling_after,
    flat_after,
    linear,
    sine,
    steps,
)
from anabranch.papers.fluid.saso import Run, run

BOUNDS = Bounds(1, 32)


def play(
    curve: SpeedUp, load: Load, periods: int = 100, noise: float = 0.0, seed: int = 0, threshold: float = 0.05
) -> Run:
    policy = PaperPolicy(BOUNDS, congestion_threshold=threshold)
    return run(policy, FluidRegion(1000, curve), load, periods, noise=noise, seed=seed)


# -- where it works ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("load", "channels"), [(500, 1), (1500, 2), (3900, 4), (7500, 8), (10_500, 11)])
def test_it_finds_the_lowest_level_without_congestion(load: float, channels: int) -> None:
    found = play(linear(), constant(load))
    assert found.channels[-1] == channels
    assert found.reversals == 0
    assert found.overshoot == 0


def test_it_follows_a_sine_without_noise() -> None:
    found = play(linear(), sine(5000, 2500, 100), periods=300)
    assert found.handled > 0.97
    assert found.overshoot <= 1


def test_a_load_that_rises_is_noticed_by_congestion_and_one_that_falls_by_throughput() -> None:
    found = play(linear(), steps((2000, 8000, 2000), (30, 30, 30)), periods=90)
    assert found.channels[29] == 2
    assert found.channels[59] == 8
    assert found.channels[89] == 2


def test_the_decisions_name_their_principle() -> None:
    controller = Controller(PaperPolicy(BOUNDS, congestion_threshold=0.05))
    first = controller.handle(Observation(1, 1, 1000.0, congestion=0.5, busy_share=1.0))
    assert (first.branch, first.channels) == ("expand", 2)
    assert "P1" in first.reason
    second = controller.handle(Observation(2, 2, 1900.0, congestion=0.0, busy_share=0.9))
    assert (second.branch, second.channels) == ("hold", 2)
    assert "remembered as congested" in second.reason
    third = controller.handle(Observation(3, 2, 500.0, congestion=0.0, busy_share=0.2))
    assert (third.branch, third.channels) == ("contract", 1)
    assert "less load" in third.reason


def test_sensitivity_sets_how_large_a_change_of_throughput_counts() -> None:
    def after_a_fall(sensitivity: float) -> str:
        policy = PaperPolicy(BOUNDS, congestion_threshold=0.05, change_sensitivity=sensitivity)
        policy.propose(Observation(1, 1, 1000.0, congestion=0.5, busy_share=1.0))
        policy.propose(Observation(2, 2, 2000.0, congestion=0.0, busy_share=1.0))
        # 30 % of one ideal channel (1000/s) less: significant beyond s = 0.1 + 0.9 (1 - sensitivity)
        return policy.propose(Observation(3, 2, 1700.0, congestion=0.0, busy_share=0.85)).branch

    assert after_a_fall(sensitivity=1.0) == "contract"
    assert after_a_fall(sensitivity=0.0) == "hold"
    with pytest.raises(ValueError, match="change_sensitivity"):
        PaperPolicy(change_sensitivity=1.5)


def test_congestion_that_appears_at_the_same_level_forgets_the_levels_above() -> None:
    """P3: the level above was last seen under less load, and would otherwise forbid to go up."""
    policy = PaperPolicy(BOUNDS, congestion_threshold=0.05)
    periods = [  # channels, throughput, congestion, channels wanted next
        (1, 1000.0, 0.5, 2),
        (2, 1900.0, 0.5, 3),
        (3, 2000.0, 0.0, 3),
        (3, 1200.0, 0.0, 2),
        (2, 1200.0, 0.0, 1),
        (1, 1000.0, 0.5, 2),
        (2, 1200.0, 0.0, 2),
        (2, 1400.0, 0.5, 3),
    ]
    for period, (channels, throughput, congestion, wanted) in enumerate(periods, start=1):
        proposal = policy.propose(Observation(period, channels, throughput, congestion, busy_share=1.0))
        assert proposal.channels == wanted, (period, proposal)


# -- its faults ----------------------------------------------------------------------------------------------


def test_fault_remote_congestion_is_not_noticed_when_throughput_falls() -> None:
    """P5 is dead but for ties: the fall is first taken for less load, which wipes the memory P5 needs."""
    policy = PaperPolicy(BOUNDS, congestion_threshold=0.05)
    region = FluidRegion(1000, falling_after(6))
    branches = []
    channels = 1
    for period in range(1, 21):
        throughput = region.capacity(channels)
        proposal = policy.propose(Observation(period, channels, throughput, congestion=0.9, busy_share=1.0))
        branches.append(proposal.branch)
        channels = proposal.channels
    assert channels == 32, "it climbs all the way over the peak"
    assert region.capacity(channels) < 0.5 * region.best(32)
    assert "remote" not in branches


def test_fault_an_exact_tie_flip_flops_for_ever() -> None:
    """On a tie P5 goes down, and P1 with its >= goes up again."""
    found = play(flat_after(4), constant(100_000), periods=60)
    assert found.reversals > 40
    assert set(found.channels[-20:]) == {4, 6}


def test_fault_memory_sticks_below_the_optimum_after_load_changes() -> None:
    """P1's "unless" remembers a throughput that was low only because the load was."""
    found = play(linear(), steps((12_000, 1500, 5500), (3, 4, 150)), periods=150)
    assert set(found.channels[-100:]) == {2}, "congested with 64 % of the load unhandled, for good"
    assert found.accuracy < 0.4
    needed = play(linear(), constant(5500))
    assert needed.channels[-1] == 6


def test_fault_every_descent_visits_one_level_too_low() -> None:
    found = play(linear(), steps((7500, 2900), (20, 40)), periods=60)
    assert found.channels[-1] == 3
    assert min(found.channels[20:]) == 2


@pytest.mark.parametrize("noise", [0.05, 0.1])
def test_fault_noise_makes_it_oscillate(noise: float) -> None:
    reversals = [play(linear(), constant(7500), noise=noise, seed=seed).reversals for seed in range(4)]
    assert max(reversals) >= 3
    assert play(linear(), constant(7500)).reversals == 0


def test_fault_its_series_needs_nine_periods_for_32_channels_where_doubling_needs_five() -> None:
    slow = play(linear(), constant(100_000))
    policy = PaperPolicy(BOUNDS, congestion_threshold=0.05, level_function=doubling_levels)
    fast = run(policy, FluidRegion(1000, linear()), constant(100_000), 50)
    assert slow.settled - 1 == 9
    assert fast.settled - 1 == 5


def test_fault_a_threshold_of_0_takes_noise_for_congestion_and_overshoots() -> None:
    """Figure 17: it does not come down again."""
    found = play(linear(), constant(2500), noise=0.05, threshold=0.0)
    assert found.overshoot >= 3


def test_fault_a_threshold_of_0_9_leaves_load_unhandled() -> None:
    """Figure 18."""
    assert play(linear(), sine(5000, 2500, 100), periods=200, threshold=0.9).handled < 0.5
