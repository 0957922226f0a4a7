"""What tasks count of the keys they route, and what the driver knows from it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.partitioning.counting.knowledge import PERIOD_SAMPLED, Knowledge
from anabranch.partitioning.counting.tally import KEYS_MAX, SAMPLE_MAX, Counted, Tally
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.resources import Resources

CCL = Resources.of("CCL")


def spread(keys: np.ndarray) -> np.ndarray:
    """Hashes of small numbers."""
    words = np.asarray(keys, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return words ^ (words >> np.uint64(29))


def zipf(rows: int, keys: int, seed: int = 0, z: float = 1.0) -> np.ndarray:
    shares = 1 / np.arange(1, keys + 1) ** z
    return np.random.default_rng(seed).choice(keys, rows, p=shares / shares.sum())


def counted(hashes: np.ndarray, seed: int = 0, batch: int = 1000) -> Counted:
    tally = Tally(seed)
    for at in range(0, len(hashes), batch):
        tally.add(hashes[at : at + batch])
    return Counted.of_report(tally.to_report())


@given(st.lists(st.integers(0, 3000), max_size=30), st.integers(0, 9))
def test_rows_and_groups_are_exact_however_batches_are_cut(sizes: list[int], seed: int) -> None:
    tally = Tally(seed, sample_max=128)
    parts = [spread(np.arange(size) % 11) for size in sizes]
    for part in parts:
        tally.add(part)
    found = Counted.of_report(tally.to_report())
    everything = np.concatenate([np.empty(0, dtype=np.uint64), *parts])
    assert found.rows == len(everything) and found.sampled <= 128
    assert (found.groups == np.bincount((everything >> np.uint64(52)).astype(int), minlength=4096)).all()


def test_few_rows_are_all_counted() -> None:
    found = counted(spread(np.array([5] * 300 + [6] * 200)))
    assert found.sampled == 500
    hashes, appearances, _ = found.counter.items()
    assert dict(zip(hashes.tolist(), appearances.tolist(), strict=True)) == {
        int(spread(np.array([5]))[0]): 300,
        int(spread(np.array([6]))[0]): 200,
    }


@pytest.mark.parametrize("period", [2, 4, 8, 16, 64, 4096])
def test_keys_that_come_round_in_a_fixed_order_do_not_fool_the_sample(period: int) -> None:
    rows = 200_000
    found = counted(spread(np.arange(rows) % period), batch=3333)
    _, appearances, _ = found.counter.items()
    share = 1 / period
    error = 5 * np.sqrt(share / found.sampled) + 1 / found.sampled
    assert found.sampled <= SAMPLE_MAX
    assert (appearances / rows).max() < share + error


def test_shares_are_within_the_stated_error_and_the_report_is_bounded() -> None:
    keys = zipf(300_000, 100_000)
    tally = Tally(3)
    for at in range(0, len(keys), 32_768):
        tally.add(spread(keys[at : at + 32_768]))
    report = tally.to_report()
    assert len(report.hashes) <= 8 * KEYS_MAX and len(report.groups) == 4 * 4096
    found = Counted.of_report(report)
    hashes, appearances, _ = found.counter.items()
    for key in range(20):
        true = (keys == key).mean()
        share = appearances[hashes == spread(np.array([key]))[0]].sum() / found.rows
        assert abs(share - true) < 5 * np.sqrt(true / found.sampled)


def observed(epochs: int = 4, rows: int = 60_000, busy=None, function=None) -> Knowledge:
    known = Knowledge()
    function = function or PartitioningFunction.even(8)
    for epoch in range(epochs):
        hashes = spread(zipf(rows, 10_000, seed=epoch))
        parts = [counted(part, seed=10 * epoch + at) for at, part in enumerate(np.array_split(hashes, 4))]
        known.observe(parts, function, busy)
    return known


def test_the_workload_has_the_frequent_keys_of_all_tasks() -> None:
    workload = observed().workload(PartitioningFunction.even(8), 8, CCL)
    share = 1 / np.sum(1 / np.arange(1, 10_001))
    assert workload.hashes[0] == spread(np.array([0]))[0]
    assert workload.frequencies[0] == pytest.approx(share, rel=0.1)
    assert 20 < len(workload.hashes) < 200
    assert workload.group_frequencies is not None and workload.group_frequencies.sum() == pytest.approx(1)
    assert workload.computation is None


def test_what_is_known_survives_a_restart() -> None:
    known = observed()
    facts = known.to_facts()
    assert len(str(facts)) < 40_000
    function = PartitioningFunction.even(8)
    before, after = known.workload(function, 8, CCL), Knowledge.of_facts(facts).workload(function, 8, CCL)
    assert before.hashes.tolist() == after.hashes.tolist()
    np.testing.assert_allclose(before.frequencies, after.frequencies)
    assert before.group_frequencies is not None and after.group_frequencies is not None
    np.testing.assert_allclose(before.group_frequencies, after.group_frequencies, rtol=2e-3, atol=1e-6)
    assert Knowledge.of_facts(None).is_empty


def test_a_period_ends_when_enough_was_sampled() -> None:
    known = Knowledge()
    assert not known.take_period()
    known.observe([counted(spread(np.arange(PERIOD_SAMPLED - 1)))], PartitioningFunction.even(2))
    assert not known.take_period()
    known.observe([counted(spread(np.arange(1)))], PartitioningFunction.even(2))
    assert known.take_period() and not known.take_period()


def test_a_channel_whose_rows_cost_more_makes_the_measured_load() -> None:
    function = PartitioningFunction.even(4)
    noisy = np.array([1.0, 1.1, 0.95, 1.0])
    assert observed(busy=noisy, function=function).workload(function, 4, CCL).computation is None
    known = Knowledge()
    for epoch in range(12):
        hashes = spread(np.random.default_rng(epoch).integers(0, 5000, 20_000))
        rows = np.bincount(function.route(hashes), minlength=4)
        known.observe([counted(hashes, seed=epoch)], function, rows * np.array([4.0, 1.0, 1.0, 1.0]) / 1e4)
    measured = known.workload(function, 4, CCL).computation
    assert measured is not None
    load = np.bincount(function.group_owners(), weights=measured.groups)
    rows = np.bincount(function.route(hashes), minlength=4)
    assert load[0] / load[1:].mean() == pytest.approx(4 * rows[0] / rows[1:].mean(), rel=0.2)


def test_a_cost_goes_with_its_key_when_the_key_moves() -> None:
    """One hot key costs ten times as much per row. Its neighbours are suspected too, until it has moved away."""
    keys = spread(np.arange(3000))
    here, there = (PartitioningFunction.even(4).with_hot({int(keys[0]): channel}) for channel in (0, 1))
    known = Knowledge()
    for epoch in range(40):
        function = here if epoch % 2 else there
        rows = spread(np.concatenate([np.zeros(2000, int), np.random.default_rng(epoch).integers(1, 3000, 18_000)]))
        cost = np.where(rows == keys[0], 10.0, 1.0)
        busy = np.bincount(function.route(rows), weights=cost, minlength=4) / 1e4
        known.observe([counted(rows, seed=epoch)], function, busy)
    assert known._costs_of(keys[:1])[0] / known._group_costs.mean() == pytest.approx(10, rel=0.35)
