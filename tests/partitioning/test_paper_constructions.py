"""scan, redist and readj against word-for-word versions of Algorithms 2 to 4, in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.partitioning.placing.placement_problem import PlacementProblem
from anabranch.partitioning.placing.readj import readj
from anabranch.partitioning.placing.redist import redist
from anabranch.partitioning.placing.scan import scan
from anabranch.partitioning.placing.utility import Utility
from anabranch.partitioning.resources import Resources
from anabranch.partitioning.threshold import deviation


@st.composite
def problems(draw: st.DrawFn) -> PlacementProblem:
    """Problems without ties: frequencies at random, so that the best step is one."""
    seed = draw(st.integers(0, 10**6))
    channels, keys = draw(st.integers(2, 5)), draw(st.integers(1, 8))
    resources = Resources.of(draw(st.sampled_from(["CCL", "LCL", "LLL", "LQL"])))
    random = np.random.default_rng(seed)
    frequencies = np.sort(random.random(keys))[::-1].copy()
    frequencies /= frequencies.sum() * random.uniform(1, 3)
    balanced = list(resources.balanced)
    with_tail = draw(st.booleans())
    return PlacementProblem(
        channels=channels,
        frequencies=frequencies,
        loads=resources.loads(frequencies)[:, balanced],
        state=resources.loads(frequencies)[:, 0],
        origins=random.integers(0, channels + 1, keys).astype(np.int32),
        fallback=random.integers(0, channels, keys).astype(np.int32),
        deviations=np.array([deviation(resources.tolerances[k], channels) for k in balanced]),
        migration_base=float(random.random() * 0.1),
        migration_ideal=float(resources.loads(frequencies)[:, 0].sum() / channels + 0.01),
        tail=random.random((channels, len(balanced))) * 0.1 if with_tail else None,
        utility=draw(st.sampled_from(list(Utility))),
    )


def rho(problem: PlacementProblem, placed: dict[int, int]) -> float:
    """Equations 19 and 20, in Python floats."""
    product = 1.0
    for k in range(problem.loads.shape[1]):
        base = [0.0] * problem.channels if problem.tail is None else problem.tail[:, k].tolist()
        for key, channel in placed.items():
            base[channel] += float(problem.loads[key, k])
        mean = sum(base) / problem.channels
        product *= (max(base) - min(base)) / (float(problem.deviations[k]) * mean)
    return product ** (1 / problem.loads.shape[1])


def gamma(problem: PlacementProblem, placed: dict[int, int]) -> float:
    """Equation 18, in Python floats."""
    moved = sum(float(problem.state[key]) for key, c in placed.items() if c != problem.origins[key])
    return (problem.migration_base + moved) / problem.migration_ideal


def utility(problem: PlacementProblem, placed: dict[int, int]) -> float:
    a, m = rho(problem, placed), gamma(problem, placed)
    return {
        Utility.A: a,
        Utility.APM: a + m,
        Utility.APLM: a + math.log(1 + m),
        Utility.ATM: a * (1 + m),
        Utility.ATLM: a * (1 + math.log(1 + m)),
    }[problem.utility]


def replay(problem: PlacementProblem, order: list[int], final: list[int]) -> None:
    """Check that every placement, in the order it was made, had the best utility there was."""
    placed: dict[int, int] = {}
    for key in order:
        best = min(utility(problem, placed | {key: c}) for c in range(problem.channels))
        assert utility(problem, placed | {key: final[key]}) == pytest.approx(best, rel=1e-9, abs=1e-9)
        placed[key] = final[key]


@given(problem=problems())
@settings(deadline=None, max_examples=60)
def test_scan_gives_every_key_in_turn_its_best_channel(problem: PlacementProblem) -> None:
    order = np.argsort(-problem.frequencies, kind="stable").tolist()
    replay(problem, order, scan(problem).tolist())


@given(problem=problems())
@settings(deadline=None, max_examples=60)
def test_redist_always_makes_a_placement_of_the_best_utility_per_volume(problem: PlacementProblem) -> None:
    final = redist(problem).tolist()
    placed: dict[int, int] = {}
    while len(placed) < len(final):
        left = [key for key in range(len(final)) if key not in placed]
        costs = {
            (key, c): utility(problem, placed | {key: c}) / float(problem.frequencies[key])
            for key in left
            for c in range(problem.channels)
        }
        best = min(costs.values())
        chosen = [k for k in left if costs[k, final[k]] == pytest.approx(best, rel=1e-9, abs=1e-9)]
        assert chosen
        placed[chosen[0]] = final[chosen[0]]


def gain_of(problem: PlacementProblem, now: dict[int, int], after: dict[int, int], volume: float) -> float:
    return (utility(problem, now) - utility(problem, after)) / volume


def steps_from(problem: PlacementProblem, now: dict[int, int]) -> list[tuple[dict[int, int], float]]:
    """All readjustments that lower ρ, with their gains."""
    found = []
    keys = list(now)
    for a in keys:
        options = [(now | {a: c}, float(problem.frequencies[a])) for c in range(problem.channels) if c != now[a]]
        for b in keys:
            if a < b and now[a] != now[b]:
                volume = abs(float(problem.frequencies[a] - problem.frequencies[b]))
                options.append((now | {a: now[b], b: now[a]}, volume))
        for after, volume in options:
            if rho(problem, after) < rho(problem, now) * (1 - 1e-11):
                found.append((after, gain_of(problem, now, after, volume)))
    return found


@given(problem=problems())
@settings(deadline=None, max_examples=60)
def test_readj_takes_a_step_of_the_largest_gain_until_none_lowers_the_imbalance(
    problem: PlacementProblem,
) -> None:
    final = dict(enumerate(readj(problem, moves_per_key=1000).tolist()))
    start = np.where(problem.origins >= problem.channels, problem.fallback, problem.origins)
    frontier = [dict(enumerate(start.tolist()))]
    # Ties (of gains equal to the last bits) can be broken either way: follow them all.
    for _ in range(200):
        if final in frontier and not steps_from(problem, final):
            return
        following: list[dict[int, int]] = []
        for now in frontier:
            steps = steps_from(problem, now)
            best = max((gain for _, gain in steps), default=None)
            for after, gain in steps:
                if gain == pytest.approx(best, rel=1e-9, abs=1e-9) and after not in following:
                    following.append(after)
        frontier = following
    raise AssertionError(f"readj ended at {final}, which no sequence of best steps leads to")


@given(problem=problems())
@settings(deadline=None, max_examples=60)
def test_leaving_out_hopeless_pairs_of_channels_does_not_change_readj(problem: PlacementProblem) -> None:
    assert readj(problem).tolist() == readj(problem, every_pair=True).tolist()


@given(problem=problems())
@settings(deadline=None, max_examples=20)
def test_a_key_that_may_not_move_stays(problem: PlacementProblem) -> None:
    start = np.where(problem.origins >= problem.channels, problem.fallback, problem.origins)
    assert readj(problem, moves_per_key=0).tolist() == start.tolist()


def test_a_key_without_a_channel_any_more_starts_where_the_ring_puts_it() -> None:
    problem = PlacementProblem(
        channels=2,
        frequencies=np.array([0.5, 0.5]),
        loads=np.array([[0.5], [0.5]]),
        state=np.array([0.5, 0.5]),
        origins=np.array([0, 2], dtype=np.int32),
        fallback=np.array([0, 1], dtype=np.int32),
        deviations=np.array([0.1]),
    )
    assert readj(problem).tolist() == [0, 1]


def test_equal_resources_are_merged_without_changing_the_penalty() -> None:
    random = np.random.default_rng(3)
    column = random.random((5, 1))
    problem = PlacementProblem(
        channels=3,
        frequencies=column[:, 0],
        loads=np.concatenate([column, column**2, column], axis=1),
        state=column[:, 0],
        origins=np.zeros(5, dtype=np.int32),
        fallback=np.zeros(5, dtype=np.int32),
        deviations=np.array([0.1, 0.1, 0.1]),
    )
    merged = problem.with_distinct_loads()
    placement = np.array([0, 1, 2, 0, 1], dtype=np.int32)
    assert merged.loads.shape == (5, 2)
    assert merged.penalty_of_loads(merged.channel_loads(placement)) == pytest.approx(
        float(problem.penalty_of_loads(problem.channel_loads(placement)))
    )
