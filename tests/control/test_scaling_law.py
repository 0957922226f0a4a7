"""Scaling laws: what the capacities measured so far say about other numbers of channels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.control.capacity_memory import Capacity
from anabranch.control.scaling_law import ScalingLaw, ScalingLaws, fit
from anabranch.papers.fluid.pipeline import SpeedUp, amdahl, falling_after, fixed_cost, flat_after, linear

DOUBLINGS = (1, 2, 4, 8, 16)


def measured(curve: SpeedUp, channels: tuple[int, ...] = DOUBLINGS, noise: float = 0.0, seed: int = 0) -> ScalingLaws:
    generator = np.random.default_rng(seed)
    found = fit(
        [Capacity(n, 1000 * curve(n) * (1 + noise * float(generator.standard_normal())), 1, 1) for n in channels],
        noise,
    )
    assert found is not None
    return found


@pytest.mark.parametrize(
    "curve",
    [linear(), amdahl(0.05), amdahl(0.3), falling_after(10), falling_after(20, 0.05), fixed_cost(0.1, 0.003)],
)
def test_a_smooth_curve_is_known_from_its_doublings(curve: SpeedUp) -> None:
    _, found = max(measured(curve).weighted, key=lambda weighted: weighted[0])
    for channels in (3, 11, 23, 32):
        assert found.capacity(channels) == pytest.approx(1000 * curve(channels), rel=0.04)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(peak=st.floats(9, 30), contention=st.floats(0, 0.1))
def test_a_peak_is_foreseen_from_below(peak: float, contention: float) -> None:
    curve = falling_after(peak, contention)
    best = max(curve(n) for n in range(1, 33))
    assert curve(measured(curve, (1, 2, 4, 8)).worthwhile(32, 0.05)) >= 0.95 * best


def test_a_knee_is_told_from_a_smooth_bend() -> None:
    found = measured(flat_after(8))
    assert found.worthwhile(32, 0.05) == 8
    assert found.capacity(32) == pytest.approx(8000, rel=0.02)


def test_a_bend_within_noise_counts_as_none() -> None:
    """Where a linear region is taken for a bent one, some law that may be true still promises more channels."""
    hopeful = [
        max(law.worthwhile(32, 0.05) for law in measured(linear(), (1, 2, 4), noise=0.05, seed=seed).laws)
        for seed in range(50)
    ]
    assert sum(limit < 32 for limit in hopeful) <= 1


def test_laws_that_cannot_be_are_given_up_as_points_come() -> None:
    few = measured(falling_after(10), (1, 2, 4), noise=0.05, seed=3)
    many = measured(falling_after(10), noise=0.05, seed=3)
    assert max(law.worthwhile(32, 0.05) for law in few.laws) == 32
    assert max(law.worthwhile(32, 0.05) for law in many.laws) <= 13


def test_the_weights_of_the_laws_add_up_to_one() -> None:
    found = measured(amdahl(0.1), noise=0.05, seed=1)
    assert sum(weight for weight, _ in found.weighted) == pytest.approx(1)
    assert all(isinstance(law, ScalingLaw) for law in found.laws)


def test_nothing_measured_says_nothing() -> None:
    assert fit([], 0.05) is None
    assert fit([Capacity(4, 0.0, 1, 1)], 0.05) is None


def test_faster_than_linear_counts_as_linear() -> None:
    found = measured(lambda n: n**1.2, (1, 2, 4))
    assert found.worthwhile(32, 0.05) == 32
