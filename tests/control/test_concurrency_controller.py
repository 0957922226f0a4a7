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
