"""Bursts: the controller rests at what serves them or their mean, and nothing else is taken for a burst."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.control.burst_rest import RestInBursts
from anabranch.control.default_policy import DefaultPolicy
from anabranch.control.elastic_options import ElasticOptions
from anabranch.control.observation import Observation
from anabranch.errors import ProgramError
from anabranch.papers.fluid.shared_hosts import follow_shared, shared_hosts
from anabranch.papers.fluid.traces import (
    BOUNDS,
    RATE,
    Trace,
    always,
    bursts,
    families,
    follow,
    linear,
    reversals_of,
    sine,
)

LOW, HIGH = 2000.0, 10_000.0


def resting(at: str) -> RestInBursts:
    return RestInBursts(DefaultPolicy(BOUNDS), at)


@given(on=st.integers(2, 10), off=st.integers(2, 15), noise=st.sampled_from([0.0, 0.02, 0.05]), backlog=st.booleans())
@settings(max_examples=10, deadline=None)
def test_it_rests_in_bursts(on: int, off: int, noise: float, backlog: bool) -> None:
    """Bursts of two periods and more: a single period may be a wrong measurement."""
    trace = Trace("bursts", bursts(LOW, HIGH, on, off), linear(), noise, backlog=backlog, steady_from=None, periods=240)
    mean = (LOW * off + HIGH * on) / (on + off) / RATE
    late = follow(resting("mean"), trace, 1).channels[140:]
    assert reversals_of(late) <= 1
    assert 0.95 * mean <= max(late) <= 1.9 * mean + 2
    late = follow(resting("peak"), trace, 1).channels[140:]
    assert reversals_of(late) <= 1
    assert min(late) >= 0.9 * HIGH / RATE


def test_what_waits_in_bursts_is_worked_off_in_the_pauses() -> None:
    """With channels for the mean nothing is lost where tuples can wait."""
    arrived = handled = kept = 0.0
    policy, channels = resting("mean"), 1
    for period in range(1, 401):
        load = bursts(LOW, HIGH, 4, 6)(period)
        available, capacity = load + kept, RATE * channels
        done = min(available, capacity)
        kept = available - done
        congestion = kept / available
        observation = Observation(period, channels, done, congestion, done / capacity, offered=load)
        channels = policy.propose(observation).channels
        arrived, handled = arrived + load, handled + done
    assert channels <= 8
    assert handled > 0.99 * arrived


@pytest.mark.parametrize("at", ["peak", "mean"])
@pytest.mark.parametrize(
    "name", ["constant, noise 20%", "saturated", "step × 10", "slower × 0.6", "knee 4 to 16", "late by 2"]
)
def test_what_is_no_burst_is_left_to_the_policy(at: str, name: str) -> None:
    trace = next(trace for trace in families() if trace.name == name)
    assert follow(resting(at), trace, 3).channels == follow(DefaultPolicy(BOUNDS), trace, 3).channels


@pytest.mark.parametrize("at", ["peak", "mean"])
@pytest.mark.parametrize("seed", range(4))
def test_a_slow_wave_is_no_burst_though_noise_takes_it_across_the_middle_more_than_once(at: str, seed: int) -> None:
    trace = Trace("wave", sine(5000, 2500, 100), linear(), noise=0.05, steady_from=None)
    assert follow(resting(at), trace, seed).channels == follow(DefaultPolicy(BOUNDS), trace, seed).channels


def test_a_load_that_stays_high_is_no_burst_any_more() -> None:
    def load(period: int) -> float:
        return bursts(LOW, HIGH, 3, 7)(period) if period < 150 else HIGH

    found = follow(resting("mean"), Trace("stays", load, linear(), steady_from=150), 1)
    assert found.channels[145] <= 8
    assert found.channels[-1] >= HIGH / RATE


def test_a_restarted_controller_rests_as_before() -> None:
    one, channels = resting("mean"), 1
    for period in range(1, 120):
        other = resting("mean")
        other.restore(json.loads(json.dumps(one.to_dict())))
        load, capacity = bursts(LOW, HIGH, 3, 7)(period), RATE * channels
        done = min(load, capacity)
        observation = Observation(period, channels, done, 1 - done / load, done / capacity)
        proposal = one.propose(observation)
        assert other.propose(observation) == proposal
        channels = proposal.channels
    # What a policy without rests remembered is enough to go on from.
    resting("peak").restore(DefaultPolicy(BOUNDS).to_dict())


def test_it_is_an_option() -> None:
    policy = ElasticOptions.parse({"bursts": "mean"}).make_policy(BOUNDS)
    assert isinstance(policy, RestInBursts) and policy.name == "default"
    with pytest.raises(ProgramError, match="no effect with policy='paper'"):
        ElasticOptions.parse({"bursts": "mean", "policy": "paper"})
    with pytest.raises(ProgramError, match="one of peak, mean"):
        ElasticOptions.parse({"bursts": "median"})
    with pytest.raises(ValueError, match="peak or their mean"):
        RestInBursts(DefaultPolicy(BOUNDS), "low")


@pytest.mark.parametrize(
    "host", [host for host in shared_hosts() if "always full" not in host.name], ids=lambda h: h.name
)
def test_regions_that_share_a_host_do_not_starve_each_other(host) -> None:
    ours, papers = (
        follow_shared(ElasticOptions(policy=policy).make_policy, host, 1) for policy in ("default", "paper")
    )
    assert ours.handled >= 0.95 * papers.handled
    if ours.handled_steady is not None:
        assert ours.handled_steady >= 0.95 and (ours.reversals_steady or 0) <= 4


def test_a_steady_load_is_no_burst_however_long() -> None:
    found = follow(resting("mean"), Trace("steady", always(7500), linear(), noise=0.05), 2)
    assert reversals_of(found.channels[60:]) == 0
