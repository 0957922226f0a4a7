"""The partitioning function: routing against a dict, the serial form, migration between two functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.papers.streaming.migration import migration
from anabranch.partitioning.function import PartitioningFunction

hashes64 = st.integers(0, 2**64 - 1)


@st.composite
def functions(draw: st.DrawFn, group_bits: int | None = None) -> PartitioningFunction:
    weights = draw(st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any))
    bits = draw(st.integers(1, 10)) if group_bits is None else group_bits
    hot = draw(st.dictionaries(hashes64, st.integers(0, len(weights) - 1), max_size=12))
    return PartitioningFunction(tuple(weights), group_bits=bits).with_hot(hot)


def reference_route(function: PartitioningFunction, key: int) -> int:
    explicit = dict(zip(function.hot_hashes.tolist(), function.hot_channels.tolist(), strict=True))
    return explicit.get(key, int(function.group_owners()[key >> (64 - function.group_bits)]))


@given(function=functions(), keys=st.lists(hashes64, max_size=30))
@settings(deadline=None, max_examples=50)
def test_routing_is_the_explicit_channel_or_else_the_groups(function: PartitioningFunction, keys: list[int]) -> None:
    # Neighbours of hot keys share their slot in the routing table.
    hot = function.hot_hashes.tolist()
    keys = keys + hot + [(key + 1) % 2**64 for key in hot] + [key ^ (1 << 30) for key in hot]
    # A few are looked up by themselves; with many before it there is a table.
    for table in (False, True):
        if table:
            function.route(np.zeros(5000, dtype=np.uint64))
        routed = function.route(np.array(keys, dtype=np.uint64))
        assert routed.dtype == np.int32
        assert routed.tolist() == [reference_route(function, key) for key in keys]


def test_hot_keys_that_share_a_slot_are_all_found() -> None:
    crowd = {(7 << 50) + offset: offset % 3 for offset in range(40)}
    function = PartitioningFunction.even(3).with_hot(crowd)
    keys = np.array(list(crowd), dtype=np.uint64)
    assert function.route(keys).tolist() == list(crowd.values())
    assert function.route(np.tile(keys, 1000)).tolist() == list(crowd.values()) * 1000


def test_rows_beyond_one_block_are_routed_like_the_first() -> None:
    function = PartitioningFunction.even(5).with_hot({3: 1})
    keys = np.random.default_rng(1).integers(0, 2**64, 150_000, dtype=np.uint64)
    keys[::7] = 3
    routed = function.route(keys)
    assert (routed[::7] == 1).all()
    tail = keys != 3
    assert (routed[tail] == function.group_owners()[function.group_of(keys[tail])]).all()


@given(function=functions())
@settings(deadline=None)
def test_the_serial_form_gives_back_the_same_function(function: PartitioningFunction) -> None:
    again = PartitioningFunction.from_bytes(function.to_bytes())
    assert again == function and hash(again) == hash(function)
    assert (again.group_owners() == function.group_owners()).all()


def test_a_function_of_ten_channels_and_forty_hot_keys_takes_about_half_a_kilobyte() -> None:
    function = PartitioningFunction.even(10).with_hot({key: key % 10 for key in range(40)})
    assert len(function.to_bytes()) == 16 + 40 + 480


@given(function=functions(), data=st.data())
@settings(deadline=None, max_examples=50)
def test_damaged_bytes_are_refused(function: PartitioningFunction, data: st.DataObject) -> None:
    stored = bytearray(function.to_bytes())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ValueError):
        PartitioningFunction.from_bytes(bytes(stored))
    with pytest.raises(ValueError):
        PartitioningFunction.from_bytes(function.to_bytes()[:at])


def test_a_newer_version_is_refused_by_name() -> None:
    stored = bytearray(PartitioningFunction.even(2).to_bytes())
    stored[2] = 9
    with pytest.raises(ValueError, match="versions 1 and 2, found 9"):
        PartitioningFunction.from_bytes(bytes(stored))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"weights": ()}, "at least 1 channel"),
        ({"weights": (0, 0)}, "not all 0"),
        ({"weights": (1, 1), "group_bits": 0}, "group_bits"),
        ({"weights": (1, 1), "hot_hashes": np.array([3, 2]), "hot_channels": np.array([0, 1])}, "ascending"),
        ({"weights": (1, 1), "hot_hashes": np.array([2]), "hot_channels": np.array([2])}, r"channels 0\.\.1"),
        ({"weights": (1, 1), "hot_hashes": np.array([2]), "hot_channels": np.array([0, 1])}, "one channel"),
    ],
)
def test_impossible_functions_are_refused(arguments: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        PartitioningFunction(**arguments)


def test_zero_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 channel, found 0"):
        PartitioningFunction.even(0)


@given(before=functions(group_bits=6), after=functions(group_bits=6), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_moving_what_the_migration_says_turns_one_function_into_the_other(
    before: PartitioningFunction, after: PartitioningFunction, seed: int
) -> None:
    """A model of the state: tail keys by group, hot keys apart. Apply the moves, compare with route."""
    keys = np.random.default_rng(seed).integers(0, 2**64, 200, dtype=np.uint64)
    keys = np.union1d(keys, np.union1d(before.hot_hashes, after.hot_hashes))
    plan = migration(before, after)
    where = dict(zip(keys.tolist(), before.route(keys).tolist(), strict=True))
    special = set(before.hot_hashes.tolist()) | set(after.hot_hashes.tolist())
    moves = {
        int(unit): (int(source), int(target))
        for unit, source, target in zip(plan.groups.units, plan.groups.sources, plan.groups.targets, strict=True)
    }
    for key in keys.tolist():
        group = key >> (64 - 6)
        if key not in special and group in moves:
            source, target = moves[group]
            assert where[key] == source
            where[key] = target
    for key, source, target in zip(plan.keys.units, plan.keys.sources, plan.keys.targets, strict=True):
        assert where[int(key)] == source != target
        where[int(key)] = int(target)
    assert list(where.values()) == after.route(keys).tolist()
    assert set(plan.promoted.tolist()) == set(after.hot_hashes.tolist()) - set(before.hot_hashes.tolist())
    assert set(plan.demoted.tolist()) == set(before.hot_hashes.tolist()) - set(after.hot_hashes.tolist())


def test_a_function_has_nothing_to_migrate_to_itself() -> None:
    function = PartitioningFunction.even(4).with_hot({5: 2})
    assert migration(function, function).empty
    assert not migration(function, PartitioningFunction.even(4)).empty


def test_functions_with_different_groups_do_not_compare() -> None:
    with pytest.raises(ValueError, match="same groups"):
        migration(PartitioningFunction.even(2, group_bits=4), PartitioningFunction.even(2, group_bits=5))


def test_moves_can_be_asked_for_by_pair_of_channels() -> None:
    plan = migration(PartitioningFunction.even(1), PartitioningFunction.even(2))
    assert len(plan.groups.between(0, 1)) == len(plan.groups) > 0
    assert len(plan.groups.between(1, 0)) == 0
