"""The consistent hash: against a 128-bit reference, its promises about moving, and weights."""

from __future__ import annotations

import bisect

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.partitioning.ring import Points, Ring, RingHashes, WeighableItems

weights_lists = st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any)


def items(count: int, seed: int = 0) -> RingHashes:
    return RingHashes.of_items(np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64))


def whole(places: RingHashes) -> list[int]:
    return [(int(high) << 64) | int(low) for high, low in zip(places.high, places.low, strict=True)]


def reference_owners(weights: tuple[int, ...], places: RingHashes) -> list[int]:
    """Look up with Python's big integers and binary search: shares nothing but the places with the ring."""
    points = []
    for channel, weight in enumerate(weights):
        if weight:
            at = RingHashes.of_points(np.full(weight, channel), np.arange(weight))
            points += [(place, channel) for place in whole(at)]
    points.sort()
    keys = [place for place, _ in points]
    return [points[bisect.bisect_left(keys, place) % len(points)][1] for place in whole(places)]


@given(weights=weights_lists, seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_lookup_finds_the_first_point_clockwise(weights: list[int], seed: int) -> None:
    places = items(300, seed)
    assert Ring(tuple(weights)).lookup(places).tolist() == reference_owners(tuple(weights), places)


def test_an_item_exactly_on_a_point_belongs_to_it_and_one_behind_the_last_point_wraps() -> None:
    ring = Ring((5, 5, 5))
    points = ring.points
    assert ring.lookup(points.places).tolist() == points.channels.tolist()
    last = RingHashes(points.places.high[-1:], points.places.low[-1:] + np.uint64(1))
    assert ring.lookup(last).tolist() == [int(points.channels[0])]


def test_equal_high_halves_are_told_apart_by_the_low_halves() -> None:
    points = Points((2, 2))
    at = points.places
    before = RingHashes(at.high, at.low - np.uint64(1))
    after = RingHashes(at.high, at.low + np.uint64(1))
    assert points.successors(before).tolist() == [0, 1, 2, 3]
    assert points.successors(after).tolist() == [1, 2, 3, 4]


def test_a_joining_channel_only_takes_and_a_leaving_one_only_gives() -> None:
    places = items(20_000)
    small, large = Ring.of(4).lookup(places), Ring.of(5).lookup(places)
    moved = small != large
    assert set(large[moved].tolist()) == {4}
    assert 0.17 < moved.mean() < 0.23


def test_fewer_replicas_give_up_items_and_take_none() -> None:
    places = items(20_000)
    full, less = Ring((1000, 1000, 1000)).lookup(places), Ring((1000, 700, 1000)).lookup(places)
    moved = full != less
    assert set(full[moved].tolist()) == {1}
    assert 0.9 * 700 / 2700 < (less == 1).mean() < 1.1 * 700 / 2700


@given(weights=weights_lists, seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_weighable_items_agree_with_a_ring_built_anew(weights: list[int], seed: int) -> None:
    places = items(200, seed)
    owners = WeighableItems(places, len(weights), 40).owners(weights)
    assert owners.tolist() == Ring(tuple(weights)).lookup(places).tolist()


def test_places_never_change_because_stored_functions_depend_on_them() -> None:
    at = RingHashes.of_items(np.array([0, 1, 2**64 - 1], dtype=np.uint64))
    points = RingHashes.of_points(np.array([0, 3]), np.array([0, 999]))
    assert [hex(place) for place in whole(at) + whole(points)] == PINNED


PINNED = [
    "0x399cb48bc72e8d68ba142b02c2b44ef9",
    "0x69dc524aa97c7d84ec7751775fc9abb9",
    "0x1b0542fde9c287cb414fb7fd8786b5f6",
    "0x48218226ff3cd4bf4e96155e5f0a1c3f",
    "0xd23baf8a9df754d63767d55bf2cdf0c3",
]


@pytest.mark.parametrize("weights", [(), (0, 0), (-1, 5)])
def test_a_ring_without_any_point_is_refused(weights: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"ring|replicas"):
        _ = Points(weights)


def test_weights_outside_the_prepared_ones_are_refused() -> None:
    prepared = WeighableItems(items(10), 2, 100)
    with pytest.raises(ValueError, match=r"0\.\.100"):
        prepared.owners([101, 1])
