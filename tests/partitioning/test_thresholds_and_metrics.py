"""δ and θ, utilities, resource functions, and the metrics, against hand calculations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.partitioning.placing.metrics import channel_loads, imbalance, relative_migration, slowdown
from anabranch.partitioning.placing.utility import Utility
from anabranch.partitioning.resources import Behaviour, Growth, Resources
from anabranch.partitioning.threshold import deviation, refined_threshold, threshold


@given(tolerance=st.floats(1.01, 4), channels=st.integers(2, 100))
def test_theta_is_reached_by_one_channel_at_the_tolerance_and_all_others_equal(tolerance: float, channels: int) -> None:
    loads = np.array([tolerance] + [1.0] * (channels - 1))
    assert loads.max() / loads.mean() - 1 == pytest.approx(deviation(tolerance, channels))
    text = (tolerance - 1) / (1 + tolerance / (channels - 1))
    assert deviation(tolerance, channels) == pytest.approx(text)


def test_delta_at_the_papers_defaults() -> None:
    theta = 0.2 / (1 + 1.2 / 9)
    assert threshold(Resources.of("LLL"), 10) == pytest.approx(0.1 * theta / 10)
    assert threshold(Resources.of("CCL"), 10) == pytest.approx(0.1 * theta / 10)
    quadratic = threshold(Resources.of("LQL"), 10, domain=10**6)
    assert quadratic == pytest.approx(math.sqrt(0.1 * theta / 10**7))


def test_the_quadratic_delta_is_raised_once_frequencies_are_known() -> None:
    weights = 1 / np.arange(1, 10**6 + 1)
    frequencies = weights / weights.sum()
    resources = Resources.of("LQL")
    collected = frequencies[frequencies >= threshold(resources, 10, domain=10**6)]
    refined = refined_threshold(resources, 10, collected, domain=10**6)
    # The paper: as many explicit entries as for linear resources.
    assert len(collected) > 1000
    assert refined == pytest.approx(threshold(Resources.of("LLL"), 10))


def test_equal_frequencies_leave_the_quadratic_delta_at_its_bound() -> None:
    resources = Resources.of("LQL")
    refined = refined_threshold(resources, 10, np.empty(0), domain=10**6)
    assert refined == pytest.approx(threshold(resources, 10, domain=10**6))


def test_an_unknown_domain_leaves_delta_to_the_linear_resources() -> None:
    linear = threshold(Resources.of("LLL"), 10)
    assert threshold(Resources.of("LQL"), 10, domain=None) == linear
    assert refined_threshold(Resources.of("LQL"), 10, np.array([0.5, 0.3]), domain=None) == linear


def test_one_channel_tracks_nothing_and_none_is_refused() -> None:
    assert threshold(Resources(), 1) == 1.0
    with pytest.raises(ValueError, match="at least 1 channel"):
        threshold(Resources(), 0)
    with pytest.raises(ValueError, match="sigma"):
        threshold(Resources(), 2, sigma=0)


def test_utilities_are_the_papers() -> None:
    log = math.log(3.0)
    expected = {
        Utility.A: 5.0,
        Utility.APM: 7.0,
        Utility.APLM: 5 + log,
        Utility.ATM: 15.0,
        Utility.ATLM: 5 * (1 + log),
    }
    assert {utility: float(utility.of(5.0, 2.0)) for utility in Utility} == pytest.approx(expected)


def test_loads_follow_the_resource_functions() -> None:
    loads = Resources.of("CQL").loads(np.array([0.5, 0.1]))
    assert loads.tolist() == [[1.0, 0.25, 0.5], [1.0, pytest.approx(0.01), 0.1]]


def test_the_steepest_operator_of_a_region_decides_per_resource() -> None:
    assert Resources.of_operators([]).letters == "CCL"
    assert Resources.of_operators([Behaviour.COUNT_WINDOW]).letters == "CCL"
    assert Resources.of_operators([Behaviour.COUNT_WINDOW, Behaviour.TIME_WINDOW]).letters == "LCL"
    assert Resources.of_operators([Behaviour.JOIN, Behaviour.TIME_WINDOW]).letters == "LQL"
    assert Resources.of_operators([(Growth.QUADRATIC, Growth.CONSTANT)]).letters == "QCL"


@pytest.mark.parametrize("letters", ["LL", "LXL", "LLQ", ""])
def test_impossible_resources_are_refused(letters: str) -> None:
    with pytest.raises(ValueError):
        Resources.of(letters)
    with pytest.raises(ValueError, match="tolerances"):
        Resources(tolerances=(1.2, 0.9, 1.2))


def test_relative_imbalance_is_the_geometric_mean_of_all_three_and_apart_of_those_to_be_balanced() -> None:
    loads = np.array([[2.0, 9.0, 3.0], [1.0, 1.0, 2.0]])
    found = imbalance(loads, Resources.of("LCL", tolerance=1.25))
    assert found.ratios == (2.0, 9.0, 1.5)
    assert found.relative == pytest.approx((1.6, 7.2, 1.2))
    assert found.combined == pytest.approx((1.6 * 7.2 * 1.2) ** (1 / 3))
    assert found.of_balanced == pytest.approx(math.sqrt(1.6 * 1.2))


def test_an_idle_channel_is_infinitely_imbalanced_and_no_load_at_all_is_balanced() -> None:
    assert imbalance(np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]), Resources()).combined == math.inf
    assert imbalance(np.zeros((3, 3)), Resources(tolerances=(1.0, 1.0, 1.0))).combined == 1.0


def test_relative_migration_counts_state_in_fair_shares_of_the_new_number_of_channels() -> None:
    state = np.array([4.0, 3.0, 2.0, 1.0])
    moved = relative_migration(state, np.array([0, 0, 1, 1]), np.array([0, 2, 1, 2]), 3)
    assert moved == pytest.approx((3 + 1) / (10 / 3))
    assert relative_migration(np.zeros(2), np.array([0, 1]), np.array([1, 0]), 2) == 0.0


def test_channel_loads_add_up_items_and_slowdown_is_the_busiest_over_the_mean() -> None:
    loads = channel_loads(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([0, 2, 2]), 3)
    assert loads.tolist() == [[1.0, 2.0], [0.0, 0.0], [8.0, 10.0]]
    assert slowdown(loads) == pytest.approx(8 / 3)
    assert slowdown(np.zeros((3, 2))) == 1.0
