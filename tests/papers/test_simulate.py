"""Trying a program before paying for it."""

from __future__ import annotations

import math

import pytest

import anabranch as ab
from anabranch.papers import machine as sim
from anabranch.papers.machine.simulate import OperatorCosts, regions_of
from anabranch.program.model import Selectivity

SALES = ab.from_rows([("a", 1.0, 2)], "shop string, amount double, other long")


class Jump(ab.Operator):
    stored: float = ab.state(default=0.0)

    def process(self, t):
        if t.amount > self.stored:
            self.stored = t.amount
            yield t


class Remember:
    def __init__(self):
        self.count = 0

    def __call__(self, t):
        self.count += 1
        yield t


PROGRAM = (
    SALES.filter(lambda t: t.amount > 1, name="large")
    .process(Jump(), by="shop", name="jump")
    .aggregate(by="other", window=ab.tumbling(2), total=ab.agg.sum("amount"), name="sums")
)


def test_the_regions_of_a_plan_keep_keys_joints_and_selectivity():
    known = OperatorCosts({"large": 1e-5, "jump": 4e-5, "sums": 1e-4}, {"large": 0.5, "sums": 0.25})
    first, second = regions_of(PROGRAM.plan(), known)
    assert (first.key, first.shuffled, first.emits) == (0, False, Selectivity.AT_MOST_ONE)
    assert first.cost_s == pytest.approx(1e-5 + 0.5 * 4e-5)
    assert (second.key, second.shuffled, second.emits, second.selectivity) == (1, True, Selectivity.AT_MOST_ONE, 0.25)


def test_a_program_gets_the_channels_its_load_takes():
    result = sim.simulate(
        PROGRAM,
        load=40_000,
        seconds=120,
        hosts=2,
        cores=8,
        costs={"large": 1e-5, "jump": 2e-4},
        selectivities={"large": 0.9},
    )
    # 10 + 0.9 · 200 µs, 40,000 times a second: 7.6 channels.
    assert 8 <= result.channels(0)[-1] <= 13
    assert result.samples[-1].delivered > 0
    assert result.throughput_after(80) == pytest.approx(40_000, rel=0.03)
    text = result.summary()
    assert "large+jump channels" in text
    assert "reconfigurations" in text


def test_a_sequential_operator_stays_one_channel_and_limits_the_rest():
    sales = ab.from_rows([("a", 1.0)], "shop string, amount double")
    program = sales.filter(lambda t: t.amount > 1, name="large").process(Remember(), name="remember")
    result = sim.simulate(
        program, seconds=30, cores=16, costs={"large": 1e-3, "remember": 1e-3}, selectivities={"large": 0.5}
    )
    assert set(result.channels(1)) == {1}
    # 1000 a second pass the sequential part, twice as many enter.
    assert result.throughput_after(15) == pytest.approx(2000, rel=0.1)


def test_regions_may_be_described_by_hand_and_kept_as_they_are():
    regions = [
        sim.MachineRegion("parse", cost_s=1e-3, channels=2),
        sim.MachineRegion("join", cost_s=2e-3, key=0, channels=4),
    ]
    result = sim.simulate(regions, seconds=20, cores=8, policy="fixed", keys=1000, rebalance=False)
    assert result.migrations == ()
    assert result.throughput == pytest.approx(2000, rel=0.25)


@pytest.mark.parametrize("grain", [1, 5, 25])
def test_a_coarser_grain_shows_the_same_rates(grain):
    region = sim.MachineRegion(cost_s=1e-3, channels=4)
    result = sim.simulate(region, load=3000.0, seconds=20, policy="fixed", cores=8, grain=grain)
    assert result.samples[-2].taken == pytest.approx(3000, rel=0.02)
    assert result.samples[-2].regions[0].busy_share == pytest.approx(0.75, rel=0.05)


def test_the_papers_policy_can_be_tried():
    result = sim.simulate(sim.MachineRegion(cost_s=1e-3), load=3500, seconds=120, cores=16, policy="paper")
    assert 4 <= result.channels()[-1] <= 6


def test_what_is_told_about_an_unknown_operator_is_refused():
    with pytest.raises(ValueError, match="no operator 'jmp'; it has jump, large, source, sums"):
        sim.simulate(PROGRAM, costs={"jmp": 1.0})


def test_a_run_that_would_take_for_ever_is_made_coarser():
    result = sim.simulate(sim.MachineRegion(cost_s=1e-6), load=math.inf, seconds=10, policy="fixed", channels=1)
    assert result.throughput == pytest.approx(1e6, rel=0.05)
