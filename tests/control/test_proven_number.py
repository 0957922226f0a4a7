"""Going down in overload: to what has proved better, else by half at most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from anabranch.control.bounds import Bounds
from anabranch.control.decision import Proposal
from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.observation import Observation
from anabranch.control.proven_number import CEILING_PERIODS, FRESH_PERIODS, BackToProven
from anabranch.papers.fluid.traces import BOUNDS, FULL, Trace, always, collapse, follow, moving_knee


@dataclass
class Wishes:
    """A policy that wants what it is told to want."""

    channels: int
    name: str = "wishes"
    bounds: Bounds = BOUNDS

    def propose(self, observation: Observation) -> Proposal:
        return Proposal(self.channels, "wish", "")

    def rebound(self, bounds: Bounds) -> None:
        self.bounds = bounds

    def to_dict(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass


def calm(period: int, channels: int, throughput: float) -> Observation:
    return Observation(period, channels, throughput, congestion=0.0, busy_share=0.85)


def overloaded(period: int, channels: int, throughput: float) -> Observation:
    return Observation(period, channels, throughput, congestion=0.3, busy_share=1.0)


def test_a_number_that_did_more_lately_is_gone_back_to_and_its_successor_avoided() -> None:
    wishes = Wishes(9)
    policy = BackToProven(wishes)
    policy.propose(calm(1, 8, 7000))
    assert policy.propose(overloaded(2, 9, 6250)).channels == 9  # to be confirmed
    assert policy.propose(overloaded(3, 9, 6250)).channels == 8
    assert policy.propose(calm(4, 8, 7000)).channels == 8
    assert policy.propose(calm(5 + CEILING_PERIODS, 8, 7000)).channels == 9


def test_what_was_done_long_ago_or_by_a_region_that_is_slower_now_proves_nothing() -> None:
    policy = BackToProven(Wishes(9))
    policy.propose(calm(1, 8, 7000))
    late = FRESH_PERIODS + 2
    assert [policy.propose(overloaded(late + at, 9, 6250)).channels for at in range(3)] == [9, 9, 9]
    policy = BackToProven(Wishes(16))
    policy.propose(calm(1, 8, 6000))
    policy.propose(overloaded(2, 8, 1800))
    assert [policy.propose(overloaded(3 + at, 16, 3600)).channels for at in range(3)] == [16, 16, 16]


def test_a_smaller_number_that_does_no_more_after_all_is_left_again() -> None:
    """A neighbour took the host meanwhile: eight do less now than nine did, so nine have not proved worse."""
    policy = BackToProven(Wishes(9))
    policy.propose(calm(1, 8, 7000))
    assert [policy.propose(overloaded(2 + at, 9, 5000)).channels for at in range(2)] == [9, 8]
    assert [policy.propose(overloaded(4 + at, 8, 4500)).channels for at in range(2)] == [8, 9]
    policy = BackToProven(Wishes(9))
    policy.propose(calm(1, 8, 7000))
    assert [policy.propose(overloaded(2 + at, 9, 5000)).channels for at in range(2)] == [9, 8]
    assert [policy.propose(overloaded(4 + at, 8, 6800)).channels for at in range(4)] == [8] * 4


def test_overload_is_no_time_for_steps_down_that_nothing_was_measured_for() -> None:
    policy = BackToProven(Wishes(1))
    assert policy.propose(overloaded(1, 32, 4000)).channels == 16
    assert policy.propose(calm(2, 32, 4000)).channels == 1
    policy = BackToProven(Wishes(4))
    policy.propose(overloaded(1, 4, 4000))
    assert policy.propose(overloaded(2, 16, 4000)).channels == 4


@pytest.mark.parametrize("left", [0.5, 0.78])
def test_a_region_that_was_never_saturated_before_its_collapse_comes_back(left: float) -> None:
    found = follow(ElasticOptions().make_policy(BOUNDS), Trace("collapse", always(7000), collapse(8, left)), 1)
    assert found.handled_steady >= 0.95


@pytest.mark.parametrize("seed", [5007, 5015])
def test_a_knee_that_moves_down_does_not_end_at_one_channel(seed: int) -> None:
    trace = Trace("knee", FULL, moving_knee(16, 4), noise=0.01, steady_from=100)
    assert min(follow(ElasticOptions().make_policy(BOUNDS), trace, seed).channels[20:]) >= 4
