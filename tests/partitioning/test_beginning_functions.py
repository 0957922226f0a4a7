"""The function a query begins with, how much changing it moves, and what a process is sent of it."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.papers.streaming.migration import Holdings, moved_keys
from anabranch.partitioning.function import PartitioningFunction, sharing
from anabranch.partitioning.placing.construct import evened, resized

HASHES = np.random.default_rng(7).integers(0, 2**64, 200_000, dtype=np.uint64)


def busiest(function: PartitioningFunction) -> float:
    groups = np.bincount(function.group_owners(), minlength=function.channels)
    return float(groups.max() / groups.mean())


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 8, 12, 16, 32])
def test_a_query_begins_with_groups_dealt_nearly_evenly(channels):
    assert busiest(evened(channels)) <= 1.025
    assert not len(evened(channels).hot_hashes)


def test_the_plain_ring_would_not_do():
    assert busiest(PartitioningFunction.even(16)) > 1.1


@pytest.mark.parametrize("path", [(2, 3, 4, 8, 2), (1, 8, 16, 32), (8, 4, 2, 1)])
def test_changing_the_number_of_channels_moves_within_five_per_cent_of_the_minimum(path):
    function = evened(path[0])
    for channels in path[1:]:
        after = resized(function, channels)
        moved = moved_keys(function, after, Holdings.of(HASHES, function, after))
        assert moved.against_minimum <= 1.05
        assert moved.moved >= moved.minimum_alike - 1e-6
        function = after


@st.composite
def functions(draw) -> PartitioningFunction:
    channels = draw(st.integers(1, 6))
    weights = draw(st.lists(st.integers(0, 9), min_size=channels, max_size=channels).filter(any))
    hot = draw(st.lists(st.integers(0, 40), unique=True, max_size=8))
    return PartitioningFunction(tuple(weights)).with_hot(
        {int(HASHES[at]): draw(st.integers(0, channels - 1)) for at in hot}
    )


@settings(max_examples=40)
@given(functions(), functions())
def test_moved_keys_are_those_whose_channel_changes(before, after):
    hashes = np.concatenate([HASHES[:2000], HASHES[:30]])  # a key may stand for several of one finer key
    moved = moved_keys(before, after, Holdings.of(hashes, before, after))
    assert moved.moved == int((before.route(hashes) != after.route(hashes)).sum())
    assert moved.keys == len(hashes)
    assert moved.minimum_alike <= moved.moved
    loads = np.bincount(before.route(hashes), minlength=8)
    fair = np.where(np.arange(8) < after.channels, len(hashes) / after.channels, 0)
    assert moved.minimum == pytest.approx(np.maximum(loads - fair, 0).sum())


def test_holdings_counted_for_other_functions_are_refused():
    before, after = evened(2), evened(2).with_hot({5: 1})
    with pytest.raises(ValueError, match="counted for other functions"):
        moved_keys(before, after, Holdings.of(HASHES, before))


def test_nothing_moved_where_nothing_had_to_is_the_minimum():
    one = PartitioningFunction.even(1)
    assert moved_keys(one, one, Holdings.of(HASHES[:10], one)).against_minimum == 1.0


@settings(max_examples=40)
@given(functions(), functions())
def test_channels_share_whatever_keys_they_own_one_after_the_other(before, after):
    shared = sharing(before, after)
    assert shared.shape == (before.channels, after.channels)
    hashes = np.concatenate([HASHES[:5000], before.hot_hashes, after.hot_hashes])
    assert shared[before.route(hashes), after.route(hashes)].all()
    # Not more than there is: every pair has a whole group, or a hot key, that goes from one to the other.
    hot = np.union1d(before.hot_hashes, after.hot_hashes)
    pairs = set(zip(before.group_owners().tolist(), after.group_owners().tolist(), strict=True))
    pairs |= set(zip(before.route(hot).tolist(), after.route(hot).tolist(), strict=True))
    assert {(int(a), int(b)) for a, b in np.argwhere(shared)} == pairs


@given(functions())
def test_a_channel_may_hold_its_own_groups_and_those_of_its_hot_keys(function):
    for channel in range(function.channels):
        own = set(np.flatnonzero(function.group_owners() == channel).tolist())
        hot = {int(h) >> 52 for h in function.hot_hashes[function.hot_channels == channel].tolist()}
        assert set(np.flatnonzero(function.held_groups(channel)).tolist()) == own | hot


def test_a_function_is_sent_without_its_tables_and_read_once_per_process():
    function = evened(8).with_hot({1: 3})
    function.route(HASHES)
    sent = pickle.dumps(function)
    assert len(sent) < 300
    assert pickle.loads(sent) is pickle.loads(sent) and pickle.loads(sent) == function
