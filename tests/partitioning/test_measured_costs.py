"""What keys cost, as measured: better placed than by their frequency alone, and nonsense breaks nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.partitioning.counting.key_costs import (
    KEYS_REPORTED,
    ChannelTimes,
    KeyCosts,
    KeyTimes,
    KeyTimesReport,
    approximate_bytes,
)
from anabranch.partitioning.counting.knowledge import STATE_BYTES_MIN, Knowledge
from anabranch.partitioning.counting.tally import Counted, Tally
from anabranch.partitioning.placing.construct import ConstructionSettings, construct, evened
from anabranch.partitioning.placing.planner import Period, Planner, PlannerSettings, Replace
from anabranch.partitioning.resources import Resources
from anabranch.program.hashing import _mix

CHANNELS = 8
KEYS = _mix(np.arange(1, 3001, dtype=np.uint64))
SHARES = 1 / np.arange(1, 3001)
SHARES = SHARES / SHARES.sum()
RESOURCES = Resources.of("CCL")


def counted(hashes: np.ndarray, seed: int) -> Counted:
    tally = Tally(seed)
    tally.add(hashes)
    return Counted.of_report(tally.to_report())


def times_of(hashes, costs, state=None, keys=300, mean_bytes=8.0, part=1.0):
    """What a channel reports whose rows took so long; the first of them were timed."""
    timed = KeyTimes()
    count = int(len(hashes) * part)
    timed.add(hashes[:count], costs[:count])
    return ChannelTimes.of_report(timed.to_report(state or {}, keys, mean_bytes), len(hashes), float(costs.sum()))


def settled(cost_of_key: np.ndarray, told: str, epochs: int = 25) -> float:
    """The busiest channel's seconds over the mean, in truth, after the planner had its time.

    The planner is told nothing but rows, the seconds of whole channels too, or also those of keys.
    """
    function = evened(CHANNELS)
    known, planner = Knowledge(), Planner(function, PlannerSettings(ConstructionSettings(RESOURCES)))
    for epoch in range(epochs):
        random = np.random.default_rng(epoch)
        drawn = random.choice(len(KEYS), 20_000, p=SHARES)
        hashes, costs = KEYS[drawn], cost_of_key[drawn] * random.uniform(0.8, 1.2, len(drawn))
        owners = function.route(hashes)
        busy = np.bincount(owners, weights=costs, minlength=CHANNELS)
        times = [times_of(hashes[owners == at], costs[owners == at]) for at in range(CHANNELS)]
        known.observe(
            [counted(hashes, epoch)],
            function,
            None if told == "rows" else busy,
            [each for each in times if each] if told == "keys" else (),
        )
        known.take_period()
        instruction = planner.handle(Period(known.workload(function, CHANNELS, RESOURCES), CHANNELS))
        function = instruction.function if isinstance(instruction, Replace) else function
    loads = np.bincount(function.route(KEYS), weights=SHARES * cost_of_key, minlength=CHANNELS)
    return float(loads.max() / loads.mean())


def test_rare_keys_that_are_a_hundred_times_as_expensive_are_placed_by_what_they_cost():
    """Ten keys with 0.06 % of the rows each have 4 % of the work each: beta cannot know, nor can a channel's total."""
    costs = np.full(len(KEYS), 1e-4)
    costs[200:210] *= 100
    keys, channels, rows = (settled(costs, told) for told in ("keys", "channels", "rows"))
    assert keys < 1.12 < channels < rows and rows > 1.4, (keys, channels, rows)


def test_a_frequent_key_that_costs_next_to_nothing_does_not_take_a_channel_for_itself():
    costs = np.full(len(KEYS), 1e-4)
    costs[0] *= 0.02
    assert settled(costs, "keys") < 1.15


def test_where_all_rows_cost_the_same_measuring_changes_nothing():
    costs = np.full(len(KEYS), 1e-4)
    assert settled(costs, "keys") < 1.15 and settled(costs, "rows") < 1.15


def test_the_longest_call_of_a_key_is_not_what_the_key_costs():
    times = KeyTimes()
    times.add(np.full(20, 5, dtype=np.uint64), np.array([1e-6] * 19 + [0.5]))
    ((key, calls, seconds),) = times.reported()
    assert (key, calls) == (5, 19) and seconds == pytest.approx(19e-6)


def test_reports_are_bounded_and_hold_the_keys_that_took_most():
    times = KeyTimes()
    for _ in range(3):
        times.add(np.repeat(np.arange(1000, dtype=np.uint64), 4), np.repeat(np.arange(1000) * 1e-6, 4))
    found = [key for key, _, _ in times.reported()]
    assert found == list(range(999, 999 - KEYS_REPORTED, -1))
    assert len(times.to_report({}, 1000, 8.0).hashes) == 8 * KEYS_REPORTED


def test_a_key_is_believed_after_some_calls_and_forgotten_when_it_stays_away():
    costs = KeyCosts()
    rows = np.concatenate([np.full(5, 7), np.arange(100, 1100)]).astype(np.uint64)
    seconds = np.where(rows == 7, 1e-3, 1e-5)
    epoch = [times_of(rows, seconds)]
    costs.observe(epoch)
    assert 7 not in costs.hashes.tolist()
    for _ in range(3):
        costs.observe(epoch)
    assert costs.hashes.tolist() == [7]
    assert 40 < costs.costs(costs.hashes)[0] < 100
    others = [times_of(rows[5:], seconds[5:])]
    for _ in range(20):
        costs.observe(others)
    assert not len(costs.hashes)


def test_a_restarted_driver_knows_what_keys_cost():
    known = Knowledge()
    function = evened(2)
    hashes = np.concatenate([np.full(50, KEYS[0]), np.repeat(KEYS[1:100], 20)])
    seconds = np.where(hashes == KEYS[0], 0.01, 0.001)
    owners = function.route(hashes)
    times = [times_of(hashes[owners == at], seconds[owners == at], {int(KEYS[0]): 10**8}) for at in range(2)]
    known.observe([counted(hashes, 1)], function, np.bincount(owners, weights=seconds), [t for t in times if t])
    before, after = known, Knowledge.of_facts(known.to_facts())
    one, other = (each.workload(function, 4, RESOURCES) for each in (before, after))
    assert one.computation is not None and other.computation is not None
    assert one.state is not None and other.state is not None
    np.testing.assert_allclose(one.computation.keys, other.computation.keys, rtol=0.01)
    np.testing.assert_allclose(one.state.keys, other.state.keys, rtol=0.01)


# -- state ----------------------------------------------------------------------------------------------------


def workload_with_state(size: dict, keys: int, mean_bytes: float, resources: Resources):
    known, function = Knowledge(), evened(CHANNELS)
    hashes = KEYS[np.random.default_rng(0).choice(len(KEYS), 20_000, p=SHARES)]
    seconds = np.full(len(hashes), 1e-3)
    owners = function.route(hashes)
    times = [
        times_of(hashes[owners == at], seconds[owners == at], size, keys // CHANNELS, mean_bytes)
        for at in range(CHANNELS)
    ]
    known.observe([counted(hashes, 0)], function, np.bincount(owners, weights=seconds, minlength=CHANNELS), times)
    return known.workload(function, CHANNELS, resources)


def test_a_key_with_much_state_is_placed_by_its_size_and_small_state_is_no_load():
    whale = int(KEYS[5])
    small = workload_with_state({whale: 1000}, 3000, 8.0, RESOURCES)
    assert small.state is None
    large = workload_with_state({whale: 40 * STATE_BYTES_MIN}, 3000, 8.0, RESOURCES)
    assert large.state is not None
    assert large.state.keys[large.hashes.tolist().index(whale)] > 0.9
    assert large.state.groups.sum() == pytest.approx(1)
    built = construct(evened(CHANNELS), large, CHANNELS, ConstructionSettings(RESOURCES)).function
    assert built.is_hot(np.array([whale], dtype=np.uint64)).all()


def test_state_of_equal_size_stays_out_of_the_balance_if_it_is_said_to_be_constant():
    size = {int(key): 5000 for key in KEYS}
    assert workload_with_state(size, 30_000, 5000.0, RESOURCES).state is None
    linear = workload_with_state(size, 30_000, 5000.0, Resources.of("LCL"))
    # Said to grow with the frequency, and does not: what was measured counts.
    assert linear.state is not None and linear.state.keys.max() == pytest.approx(1 / 30_000, rel=0.05)


def test_sizes_are_estimated_from_what_a_value_holds():
    assert approximate_bytes({"a": [1, 2, 3]}) == 8 + 8 + 5 + 8 + 3 * 8
    assert approximate_bytes(list(range(10**6))) == pytest.approx(8 * 10**6, rel=0.01)
    assert approximate_bytes(None) == approximate_bytes(1.5) == 8


# -- nonsense -------------------------------------------------------------------------------------------------

numbers = st.sampled_from([0.0, -1.0, 1e-9, 1.0, 1e30, 1e308, float("nan"), float("inf"), float("-inf")])


@st.composite
def reports(draw):
    count = draw(st.integers(0, 5))
    keys = draw(st.lists(st.sampled_from(KEYS[:30].tolist()), min_size=count, max_size=count, unique=True))
    column = st.lists(numbers, min_size=count, max_size=count)
    columns = {name: np.array(draw(column), dtype="<f8").tobytes() for name in ("calls", "spent", "state_bytes")}
    return KeyTimesReport(
        rows=draw(numbers),
        seconds=draw(numbers),
        hashes=np.array(keys, dtype="<u8").tobytes(),
        keys=draw(numbers),
        mean_bytes=draw(numbers),
        **columns,
    )


@settings(max_examples=300, deadline=None)
@given(
    epochs=st.lists(st.lists(reports(), max_size=3), min_size=1, max_size=4),
    busy=st.lists(st.sampled_from([0.0, 1e-9, 1.0, 1e30, float("inf"), float("nan")]), min_size=3, max_size=3),
    letters=st.sampled_from(["CCL", "LLL", "LQL"]),
    rows=st.sampled_from([0, 1, 300]),
    channels=st.integers(1, 5),
)
def test_nonsense_measurements_never_break_a_construction(epochs, busy, letters, rows, channels):
    known, function, resources = Knowledge(), evened(3), Resources.of(letters)
    hashes = KEYS[np.random.default_rng(1).choice(30, 600)]
    for epoch in epochs:
        times = [ChannelTimes.of_report(report, rows, busy[0]) for report in epoch]
        known.observe([counted(hashes, 1)], function, np.array(busy), [each for each in times if each is not None])
        known = Knowledge.of_facts(known.to_facts())
    workload = known.workload(function, channels, resources)
    assert np.isfinite(workload.frequencies).all()
    for measured in (workload.state, workload.computation):
        assert measured is None or (np.isfinite(measured.keys).all() and np.isfinite(measured.groups).all())
    built = construct(function, workload, channels, ConstructionSettings(resources)).function
    assert built.channels == channels and ((routed := built.route(KEYS)) >= 0).all() and (routed < channels).all()
