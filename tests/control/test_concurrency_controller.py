"""Our search for the level of an elastic operator: it finds the best, follows changes, and stays where it is good."""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable

import pytest

from anabranch.control.concurrency_controller import ConcurrencyController


def service(best: int, loss: float) -> Callable[[int], float]:
    """Calls of 200 ms; more than `best` at once take longer: with a loss of 0 the rate stays, else it falls."""
    return lambda level: max(level, 1) * 5.0 if level <= best else best * 5.0 * (best / level) ** loss


def settle(controller: ConcurrencyController, rate_at: Callable[[int], float], noise: float, seed: int, periods: int):
    """(the period from which on its level gives 90 % of the best, mean share of the best in the second half)"""
    chance = random.Random(seed)
    most = max(rate_at(level) for level in range(257))
    settled = None
    shares = []
    for period in range(periods):
        share = rate_at(controller.level) / most
        shares.append(share)
        controller.handle(rate_at(controller.level) * (1 + chance.gauss(0, noise)))
        if controller.is_settled and settled is None and share >= 0.9:
            settled = period + 1
    return settled, statistics.mean(shares[periods // 2 :])


@pytest.mark.parametrize("loss", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_it_follows_a_service_whose_best_concurrency_changes(loss: float, noise: float) -> None:
    for seed in range(20):
        controller = ConcurrencyController(1, 256)
        for best in (8, 64, 16):
            settled, share = settle(controller, service(best, loss), noise, seed, 40)
            assert settled is not None and settled <= 15, (loss, noise, seed, best)
            assert share > 0.9


def test_it_never_goes_beyond_twice_a_level_that_was_the_best_so_far() -> None:
    controller = ConcurrencyController(0, 1024)
    rates: dict[int, float] = {}
    for _ in range(60):
        rates[controller.level] = service(10, 0.5)(controller.level)
        best = max(rates, key=rates.__getitem__)
        controller.handle(rates[controller.level])
        assert controller.level <= max(2, 2 * best)


def test_work_that_workers_only_hinder_is_done_inline() -> None:
    controller = ConcurrencyController(0, 128)
    levels = []
    for _ in range(200):
        levels.append(controller.level)
        controller.handle(1e6 if controller.level == 0 else 2e5)
    assert levels[-1] == 0 or levels[-2] == 0
    assert sum(level > 0 for level in levels[20:]) <= 6, "looks that cost much become rare"


def test_of_levels_that_give_the_same_it_takes_the_lowest() -> None:
    controller = ConcurrencyController(0, 128)
    for _ in range(30):
        controller.handle(100.0 * min(max(controller.level, 1), 3))
    assert controller.to_dict()["level"] == 3


def test_it_stays_between_its_bounds() -> None:
    controller = ConcurrencyController(3, 5)
    for _ in range(30):
        assert 3 <= controller.level <= 5
        controller.handle(float(controller.level))
    assert controller.to_dict()["level"] == 5
    only = ConcurrencyController(4, 4)
    for rate in (1.0, 1.0, 9.0, 9.0, 9.0, 0.1, 0.1, 0.1):
        only.handle(rate)
        assert only.level == 4


def test_one_odd_period_changes_nothing() -> None:
    controller = ConcurrencyController(0, 128)
    for _ in range(12):
        controller.handle(service(8, 0.5)(controller.level))
    while controller.is_looking:
        controller.handle(service(8, 0.5)(controller.level))
    level = controller.level
    assert controller.handle(service(8, 0.5)(level) * 0.8).branch == "unsure"
    assert controller.level == level


def test_what_was_learnt_can_be_taken_over() -> None:
    controller = ConcurrencyController(0, 128)
    for _ in range(20):
        controller.handle(service(16, 0.5)(controller.level))
    memory = json.loads(json.dumps(controller.to_dict()))
    other = ConcurrencyController(0, 128)
    other.restore(memory)
    assert other.level == memory["level"] and other.is_settled
    narrow = ConcurrencyController(0, 4)
    narrow.restore(memory)
    assert narrow.level == 4 and not narrow.is_settled


def test_every_decision_is_logged_with_its_reason() -> None:
    controller = ConcurrencyController(0, 128)
    for _ in range(10):
        controller.handle(service(8, 0.0)(controller.level))
    log = controller.log
    assert [each.period for each in log] == list(range(1, 11))
    assert all(each.branch and each.reason for each in log)
    assert [each.before for each in log[1:]] == [each.level for each in log[:-1]]


@pytest.mark.parametrize("bounds", [(-1, 4), (5, 4), (0, 0)])
def test_bounds_that_leave_nothing_are_refused(bounds: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="level_m"):
        ConcurrencyController(*bounds)


@pytest.mark.parametrize("rate", [-1.0, float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate"):
        ConcurrencyController(0, 4).handle(rate)


def test_chance_does_not_climb_a_plateau() -> None:
    """Sixteen are enough, more change nothing, and others take up to a fifth of the machine at times."""
    found = []
    for seed in range(40):
        chance, controller = random.Random(seed), ConcurrencyController(0, 128)
        levels = []
        for _ in range(80):
            controller.handle(min(max(controller.level, 0.9), 16) * 50 * (1 - abs(chance.gauss(0, 0.1))))
            levels.append(controller.level)
        found.append(statistics.median(levels[20:]))
    assert statistics.mean(found) <= 22, "24.3 where no level is measured once more"


CURVES: dict[str, tuple[Callable[[int], float], float]] = {
    # what a level gives of the best; the least share of it that a busy machine must leave us, over 200 periods
    "workers only hinder": (lambda level: {0: 1.0, 1: 0.6, 2: 0.56}.get(level, 0.48), 0.95),
    "two cores": (lambda level: {0: 0.5, 1: 0.5}.get(level, 1.0), 0.95),
    "two cores that others want": (lambda level: {0: 0.83, 1: 0.71, 2: 0.84, 3: 0.95}.get(level, 1.0), 0.94),
    "four cores": (lambda level: min(max(level, 1), 4) / 4, 0.95),
    "sixteen cores": (lambda level: min(max(level, 1), 16) / 16, 0.95),
    "a crowd hurts": (lambda level: min(max(level, 1), 24) / 24 * max(1, level / 24) ** -0.5, 0.9),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_busy_machine_disturbs_periods_but_not_the_level(name: str) -> None:
    """Rates are off by 8 %, and every twelfth period is slowed down by up to a half."""
    curve, least = CURVES[name]
    shares = []
    for seed in range(12):
        chance, controller = random.Random(seed), ConcurrencyController(0, 128)
        done = time = 0.0
        for period in range(220):
            length = 0.25 if controller.is_looking else 1.0
            if period >= 20:
                done, time = done + curve(controller.level) * length, time + length
            seen = curve(controller.level) * max(0.1, 1 + chance.gauss(0, 0.08) / length**0.5)
            controller.handle(1000 * seen * (chance.uniform(0.5, 0.9) if chance.random() < 0.08 else 1.0))
        shares.append(done / time)
    assert statistics.mean(shares) >= least


def test_a_level_that_was_too_high_by_chance_is_left_again() -> None:
    """As where a JVM warms up: each level looked better than the one before because time had passed."""
    controller, warmth, left_at = ConcurrencyController(0, 128), 0.3, None
    for period in range(80):
        warmth = min(1.0, warmth * 1.25)
        controller.handle(min(max(controller.level, 1), 16) * 50.0 * warmth)
        if left_at is None and period > 12 and controller.is_settled and controller.to_dict()["level"] <= 20:
            left_at = period
    assert 14 <= controller.to_dict()["level"] <= 20
    assert left_at is not None and left_at <= 40
