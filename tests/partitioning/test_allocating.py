"""Allocations of standbys keep their constraints, and Algorithm 3 is near the optimum where that can be known."""

import itertools
import math
import os
import random
import statistics

import numpy as np
import pytest

from anabranch.papers.resources.improve import improved, optimum
from anabranch.partitioning.allocating.allocate import baseline, correlated, even
from anabranch.partitioning.allocating.allocation_problem import AllocationProblem, correlations_of, score
from anabranch.partitioning.allocating.repair import handed_over, repaired

CASES = int(os.environ.get("ALLOCATION_CASES", "60"))
FACTORS = (1.1, 1.2, 1.5, 2.0, math.inf)


def small(seed: int, factor: float | None = None, standbys: int | None = None) -> AllocationProblem[int, str]:
    """A random problem that can be solved: 3 to 5 hosts, 3 to 7 groups, loads in periods of three kinds."""
    chance = random.Random(seed)
    hosts = [f"h{n}" for n in range(chance.randint(3, 5))]
    series = {}
    for group in range(chance.randint(3, 7)):
        phase, height = chance.choice((0.0, math.pi, chance.uniform(0, 6))), chance.uniform(0.2, 3)
        noise = chance.uniform(0, 1.5)
        series[group] = [height * (3 + math.sin(t / 2 + phase) + noise * chance.random()) for t in range(20)]
    return AllocationProblem.measured(
        series,
        {group: chance.choice(hosts) for group in series},
        hosts,
        standbys=standbys or (2 if chance.random() < 0.2 else 1),
        load_factor=factor or chance.choice(FACTORS),
        standard_errors=0.0,
    )


def large(seed: int, factor: float) -> AllocationProblem[int, int]:
    chance = np.random.default_rng(seed)
    phases = chance.uniform(0, 6.3, 60)
    series = {g: (2 + np.sin(np.arange(40) / 5 + phases[g]) + chance.random(40)).tolist() for g in range(60)}
    return AllocationProblem.measured(series, {g: g % 12 for g in series}, range(12), load_factor=factor)


ALLOCATIONS = {
    "baseline": lambda problem, seed: baseline(problem, random.Random(seed)),
    "even": lambda problem, seed: even(problem, random.Random(seed)),
    "correlated": lambda problem, seed: correlated(problem),
    "improved": lambda problem, seed: improved(problem),
}


@pytest.mark.parametrize("name", ALLOCATIONS)
def test_no_standby_is_where_its_group_or_its_like_is(name: str) -> None:
    for seed in range(CASES):
        problem = small(seed)
        assert problem.breaches(ALLOCATIONS[name](problem, seed)) == [], seed
    for factor in (1.1, math.inf):
        if name != "improved" or math.isinf(factor):
            assert large(1, factor).breaches(ALLOCATIONS[name](large(1, factor), 1)) == []


def test_even_gives_no_host_more_than_its_part() -> None:
    for seed in range(CASES):
        problem = small(seed)
        if len(set(problem.owners.values())) < 3:
            continue  # too few owners: what may not be on them must be elsewhere
        held = [host for hosts in even(problem, random.Random(seed)).values() for host in hosts]
        most = -(-len(held) // len(problem.hosts))
        assert max(map(held.count, problem.hosts)) <= most or problem.standbys > 1, seed
    crowded = AllocationProblem(("x", "y"), dict.fromkeys("abcd", "x"), dict.fromkeys("abcd", 1.0), {})
    assert even(crowded, random.Random(1)) == dict.fromkeys("abcd", ("y",))


def test_even_moves_others_on_where_only_forbidden_hosts_have_room() -> None:
    problem = AllocationProblem((0, 1, 2), {g: g % 3 for g in range(9)}, dict.fromkeys(range(9), 1.0), {})
    for seed in range(200):
        held = [host for hosts in even(problem, random.Random(seed)).values() for host in hosts]
        assert sorted(map(held.count, (0, 1, 2))) == [3, 3, 3], seed


def test_constraint_2_is_broken_only_where_a_checkpoint_was_refused_everywhere() -> None:
    """As printed such a one goes to its best host; ours then keeps the constraint if any allocation does that it can
    reach."""
    broken = unsolved = 0
    for seed in range(CASES):
        problem = small(seed)
        best = optimum(problem)
        printed, ours = problem.excess(correlated(problem)), problem.excess(improved(problem))
        assert ours <= printed + 1e-9
        if best is not None:
            assert problem.excess(best) == 0
            broken += printed > 0
            unsolved += ours > 1e-9
        if math.isinf(problem.load_factor):
            assert printed == 0
    assert unsolved <= broken
    assert unsolved <= CASES // 20


def test_it_is_never_worse_than_even() -> None:
    """As printed without constraint 2, as the paper runs it; ours wherever even keeps constraint 2."""
    for seed in range(CASES):
        problem, free = small(seed), small(seed, math.inf)
        ours = improved(problem)
        others = [even(problem, random.Random(1_000 + chance)) for chance in range(10)]
        assert all(score(free, correlated(free)) <= score(free, other) + 1e-9 for other in others)
        kept = [other for other in others if problem.excess(other) == 0]
        for other in kept:
            assert score(problem, ours) <= score(problem, other) + 1e-9, seed
        started = improved(problem, kept)  # so it is certain
        assert all(score(problem, started) <= score(problem, other) + 1e-9 for other in kept)
    for seed in (1, 2):
        problem = large(seed, 1.1)
        assert all(
            score(problem, correlated(problem)) < score(problem, even(problem, random.Random(c))) for c in (1, 2)
        )


def gaps(factor: float, cases: int) -> tuple[list[float], list[float]]:
    """How far Algorithm 3 as printed, and with our improvement, are from the optimum, as shares of it; where the print
    breaks constraint 2 it has no gap, but is told as infinitely far off."""
    printed, ours = [], []
    for seed in range(cases):
        problem = small(1_000 + seed, factor, 1)
        best = optimum(problem)
        if best is None:
            continue
        least = score(problem, best)
        for found, allocation in ((printed, correlated(problem)), (ours, improved(problem))):
            kept = problem.excess(allocation) <= 1e-9
            found.append((score(problem, allocation) - least) / max(1e-9, abs(least)) if kept else math.inf)
    return printed, ours


@pytest.mark.parametrize("factor", FACTORS)
def test_the_median_gap_to_the_optimum_is_at_most_5_percent(factor: float) -> None:
    printed, ours = gaps(factor, 2 * CASES)
    assert len(ours) > CASES // 5
    assert min(printed + ours) > -1e-9
    assert statistics.median(ours) <= 0.05
    assert sum(gap > 0.05 for gap in ours) <= 0.2 * len(ours)
    if factor >= 1.5:
        assert statistics.median(printed) <= 0.05
    if math.isinf(factor):
        assert max(printed) < 1e-9  # nothing binds: the best host for each


def test_the_optimum_is_what_trying_everything_finds() -> None:
    for seed in range(20):
        problem = small(seed, standbys=1)
        if len(problem.owners) > 5:
            continue
        every = [
            allocation
            for hosts in itertools.product(problem.hosts, repeat=len(problem.owners))
            if not problem.breaches(allocation := {g: (h,) for g, h in zip(problem.owners, hosts, strict=True)})
            and problem.excess(allocation) == 0
        ]
        found = optimum(problem)
        assert (found is None) == (not every)
        if found is not None:
            assert score(problem, found) == pytest.approx(min(score(problem, each) for each in every))
    with pytest.raises(ValueError, match="too many"):
        optimum(large(1, math.inf))


# ---- Algorithm 3, step by step ----


def test_the_most_sensitive_checkpoint_goes_first() -> None:
    """Both want z, which has room for one; b loses more by the next best."""
    problem = AllocationProblem(
        ("x", "y", "z"),
        {"a": "x", "b": "x", "on y": "y", "on z": "z"},
        {"a": 1.0, "b": 1.0, "on y": 0.0, "on z": 0.0},
        {"a": {"on y": -0.8, "on z": -0.9}, "b": {"on y": -0.1, "on z": -0.7}},
        load_factor=1.5,
    )
    assert {group: correlated(problem)[group] for group in "ab"} == {"a": ("y",), "b": ("z",)}


def test_a_violation_takes_the_next_index_and_the_next_difference() -> None:
    """a and c come before b at z; refused there, b is weighed by what it loses between y and w."""
    owners = {"a": "x", "b": "x", "c": "x", "on y": "y", "on z": "z", "on w": "w"}
    problem = AllocationProblem(
        ("x", "y", "z", "w"),
        owners,
        {group: 1.0 if group in "abc" else 0.0 for group in owners},
        {
            "a": {"on z": -1.0, "on y": -0.1, "on w": 0.1},
            "b": {"on z": -0.9, "on y": -0.8, "on w": 0.9},
            "c": {"on y": -0.9, "on w": -0.8, "on z": 0.9},
        },
        load_factor=1.4,
    )
    found = correlated(problem)
    # First a (0.9) to z; then b and c (0.1 each), b first: z refuses, its next difference is 1.7, so it takes y
    # before c, which would have lost 0.1.
    assert {group: found[group] for group in "abc"} == {"a": ("z",), "b": ("y",), "c": ("w",)}


def test_equals_go_to_the_host_with_the_least_load_behind_its_standbys() -> None:
    problem = AllocationProblem((0, 1, 2, 3), dict.fromkeys(range(6), 0), dict.fromkeys(range(6), 1.0), {})
    held = [host for hosts in correlated(problem).values() for host in hosts]
    assert sorted(map(held.count, (1, 2, 3))) == [2, 2, 2]


def test_who_is_refused_everywhere_goes_to_the_best_host_and_leaves_the_queue() -> None:
    problem = AllocationProblem(
        ("x", "y", "z"),
        {"a": "x", "on y": "y", "on z": "z"},
        {"a": 9.0, "on y": 1.0, "on z": 1.0},
        {"a": {"on y": -0.2, "on z": -0.5}},
        load_factor=1.0,
    )
    assert correlated(problem)["a"] == ("z",)
    assert problem.excess(correlated(problem)) > 0


def test_the_simple_job_of_the_paper_gets_its_optimum() -> None:
    """Two operators whose loads are exchanged: each has its standbys where the other runs."""
    series = {f"1-{n}": [100 - t for t in range(100)] for n in range(10)} | {
        f"2-{n}": list(range(100)) for n in range(10)
    }
    owners = {group: int(group[0]) for group in series}
    found = correlated(AllocationProblem.measured(series, owners, (0, 1, 2)))
    assert found == {group: (3 - owner,) for group, owner in owners.items()}


# ---- too little ----


def test_with_fewer_hosts_than_copies_a_group_has_what_it_can_have() -> None:
    problem = AllocationProblem(("x", "y"), {"a": "x", "b": "gone"}, {"a": 1.0, "b": 1.0}, {}, standbys=3)
    for allocate in ALLOCATIONS.values():
        assert {group: set(hosts) for group, hosts in allocate(problem, 1).items()} == {"a": {"y"}, "b": {"x", "y"}}
    alone = AllocationProblem(("x",), {"a": "x"}, {"a": 1.0}, {}, standbys=1)
    for allocate in ALLOCATIONS.values():
        assert allocate(alone, 1) == {"a": ()}
    nobody = AllocationProblem((), {"a": "x"}, {"a": 1.0}, {}, standbys=1)
    assert repaired(nobody, {"a": ("y",)}, 0.0).allocation == {"a": ()}


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        AllocationProblem(("x", "x"), {}, {}, {})
    with pytest.raises(ValueError, match="standbys"):
        AllocationProblem(("x",), {}, {}, {}, standbys=-1)
    with pytest.raises(ValueError, match="load_factor"):
        AllocationProblem(("x",), {}, {}, {}, load_factor=0.5)
    for load in (None, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="load of group 'a'"):
            AllocationProblem(("x",), {"a": "x"}, {} if load is None else {"a": load}, {})
    with pytest.raises(ValueError, match="different numbers"):
        correlations_of({"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match="finite"):
        correlations_of({"a": [1, math.nan]})
    with pytest.raises(ValueError, match="epsilon"):
        repaired(small(1), {}, -1.0)


# ---- correlations ----


def test_correlations_are_pearsons_and_nothing_where_nothing_changes() -> None:
    chance = random.Random(3)
    series = {name: [chance.random() for _ in range(30)] for name in "abc"} | {"constant": [0.1] * 30}
    found = correlations_of(series)
    for one, other in itertools.combinations("abc", 2):
        assert found[one][other] == pytest.approx(statistics.correlation(series[one], series[other]), abs=1e-9)
    assert found["a"]["constant"] == 0
    assert correlations_of({}) == {}
    assert correlations_of({"a": [], "b": []}) == {"a": {"b": 0.0}, "b": {}}


def test_a_correlation_that_may_be_chance_counts_as_none() -> None:
    chance = random.Random(1)
    series = {name: [chance.random() for _ in range(50)] for name in range(20)}
    series["like 0"] = [value + 0.1 * chance.random() for value in series[0]]
    all_of_it, without = correlations_of(series), correlations_of(series, 2.0)
    pairs = [(one, other) for one in range(20) for other in range(one + 1, 20)]
    assert all(all_of_it[one][other] != 0 for one, other in pairs)
    assert sum(without[one][other] != 0 for one, other in pairs) < 0.12 * len(pairs)
    assert without[0]["like 0"] == all_of_it[0]["like 0"] > 0.9
    # Two periods: nothing but a perfect correlation could be seen, and it is.
    assert correlations_of({"a": [1, 2], "b": [2, 1]}, 2.0)["a"]["b"] == -1


def test_a_group_without_measurements_has_no_load_and_no_correlation() -> None:
    problem = AllocationProblem.measured({"a": [1, 2]}, {"a": "x", "new": "y"}, ("x", "y", "z"))
    assert problem.loads == {"a": 1.5, "new": 0.0}
    assert set(problem.costs["new"].values()) == {0.0}


# ---- repair ----


def test_a_repair_moves_the_best_first_and_only_until_the_score_is_near() -> None:
    for seed in range(CASES):
        problem = large(seed % 5, math.inf)
        start = even(problem, random.Random(seed))
        drift = score(problem, start) - score(problem, correlated(problem))
        found = repaired(problem, start, drift / 2)
        gains = [move.gain for move in found.moves]
        assert gains == sorted(gains, reverse=True)
        assert found.score_after - found.score_goal <= drift / 2 < found.score_after + gains[-1] - found.score_goal
        assert problem.breaches(found.allocation) == []
        assert repaired(problem, start, drift).moves == ()
        changed = sum(start[group] != found.allocation[group] for group in start)
        assert 0 < changed == len(gains) < 40


def test_a_repair_keeps_constraint_2_and_never_makes_the_score_worse() -> None:
    for seed in range(CASES):
        problem = small(seed)
        start = even(problem, random.Random(seed))
        found = repaired(problem, start, 0.0)
        assert problem.breaches(found.allocation) == []
        assert found.score_after <= found.score_before + 1e-9
        assert problem.excess(found.allocation) <= problem.excess(start) + 1e-9


def test_lost_hosts_new_owners_and_fewer_copies_are_repaired_whatever_the_score() -> None:
    problem = AllocationProblem(("x", "y", "z"), dict.fromkeys("abcd", "x"), dict.fromkeys("abcd", 1.0), {})
    current = {"a": ("y",), "b": ("lost",), "c": ("x",), "d": ("y", "z")}
    found = repaired(problem, current, math.inf)
    assert problem.breaches(found.allocation) == []
    assert found.allocation["a"] == ("y",)
    told = {(move.group, move.source, move.target) for move in found.moves}
    assert {("b", "lost", None), ("c", "x", None), ("d", "z", None)} < told
    assert len(told) == 5  # and b and c anew


def test_after_a_migration_the_old_owners_copy_is_the_standby() -> None:
    assert handed_over({"a": ("y", "z")}, "a", old="x", new="y") == {"a": ("x", "z")}
    assert handed_over({"a": ("y",)}, "a", old="x", new="z") == {"a": ("y",)}
