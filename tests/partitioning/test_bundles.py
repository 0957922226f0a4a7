"""Key groups owned in bundles: a table beside hot keys, its serial form, and how it follows loads and channels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.query_options import QueryOptions
from anabranch.errors import ProgramError
from anabranch.partitioning.counting.workload import Workload
from anabranch.partitioning.function import PartitioningFunction, bundle_of_groups, sharing
from anabranch.partitioning.placing.construct import (
    Construction,
    ConstructionSettings,
    construct,
    evened,
    expect,
    resized,
    state_fetched_whole,
    state_moved,
)
from anabranch.partitioning.placing.deal import Pieces, deal
from anabranch.partitioning.resources import Resources
from anabranch.sim.owners import Owners


@st.composite
def functions(draw) -> PartitioningFunction:
    channels = draw(st.integers(1, 9))
    table = draw(st.lists(st.integers(0, channels - 1), min_size=1, max_size=60))
    hot = draw(st.dictionaries(st.integers(0, 2**64 - 1), st.integers(0, channels - 1), max_size=4))
    return PartitioningFunction.even(channels).with_hot(hot).with_bundles(table)


hashes = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=30)


@given(functions(), hashes)
def test_routing_is_what_the_table_says_by_the_word_of_another_reader(function, asked):
    asked += function.hot_hashes.tolist()
    other = Owners(function.to_bytes())
    routed = function.route(np.array(asked, dtype=np.uint64)).tolist()
    assert routed == [other.owner(each) for each in asked]
    many = function.route(np.array(asked * 100, dtype=np.uint64)).tolist()  # by the routing table, not by search
    assert many == routed * 100
    assert PartitioningFunction.from_bytes(function.to_bytes()) == function
    assert function.with_bundles([]).to_bytes()[2] == 1, "functions without a table are written as before"


@given(functions(), st.data())
def test_what_is_cut_off_or_changed_is_refused(function, data):
    whole = function.to_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ValueError):
        PartitioningFunction.from_bytes(whole[:cut])
    at = data.draw(st.integers(8, len(whole) - 1))
    with pytest.raises(ValueError):
        PartitioningFunction.from_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])


@given(functions(), functions(), hashes)
def test_who_took_over_a_key_looks_where_it_was(before, after, asked):
    keys = np.array(asked + before.hot_hashes.tolist() + after.hot_hashes.tolist(), dtype=np.uint64)
    assert sharing(before, after)[before.route(keys), after.route(keys)].all()


@given(st.integers(1, 4096))
def test_bundles_are_ranges_of_nearly_equal_size(bundles):
    sizes = np.bincount(bundle_of_groups(bundles), minlength=bundles)
    assert sizes.max() - sizes.min() <= 1 and (np.diff(bundle_of_groups(bundles)) >= 0).all()


@given(st.integers(1, 48), st.lists(st.integers(1, 12), min_size=2, max_size=6))
def test_another_number_of_channels_moves_as_few_bundles_as_it_can(bundles, path):
    function = evened(path[0], bundles)
    for channels in path[1:]:
        after = resized(function, channels)
        counts = np.bincount(after.bundle_channels, minlength=channels)
        assert after.channels == channels and after.bundles == bundles
        # Bundles differ by a group, so one more or less than the fair share may be even enough.
        assert counts.max() <= -(-bundles // channels) + (channels < function.channels)
        had = np.bincount(function.bundle_channels, minlength=max(channels, function.channels))
        needed = had[channels:].sum() + np.maximum(had[:channels] - -(-bundles // channels), 0).sum()
        moved = (after.bundle_channels != function.bundle_channels).sum()
        # To fill channels that are new, others may have to go below what they might keep.
        assert moved <= needed + channels
        function = after


@pytest.mark.parametrize("construction", list(Construction))
def test_every_construction_keeps_the_table_and_places_hot_keys_beside_it(construction):
    chance = np.random.default_rng(4)
    keys = chance.integers(0, 2**64, 20, dtype=np.uint64)
    workload = Workload(keys, np.full(20, 0.03), group_frequencies=np.full(4096, 1 / 4096))
    settings = ConstructionSettings(Resources.of("LLL"), construction, knows_tail=True)
    function = construct(evened(4, 32), workload, 4, settings).function
    assert function.bundles == 32
    assert bool(len(function.hot_hashes)) is (construction is not Construction.CONSISTENT)


def test_bundles_follow_a_skewed_load():
    groups = np.where(bundle_of_groups(32) < 8, 10.0, 1.0)
    groups /= groups.sum()
    begun = PartitioningFunction.even(4).with_bundles(np.repeat(np.arange(4), 8))  # all busy ones at channel 0
    workload = Workload(np.empty(0, dtype=np.uint64), np.empty(0), group_frequencies=groups)
    built = construct(begun, workload, 4, ConstructionSettings(Resources.of("LLL")))
    assert expect(begun, workload, Resources.of("LLL")).slowdown > 2.5
    assert built.expectation.slowdown < 1.1
    assert (built.function.bundle_channels != begun.bundle_channels).sum() <= 8


@pytest.mark.parametrize(
    ("said", "known", "shared", "channels", "found"),
    [
        (None, None, True, 4, 0),
        (None, None, False, 4, 48),
        (None, None, False, 64, 512),
        (None, None, False, 4000, 4096),
        (None, 0, False, 4, 0),
        (None, 16, True, 4, 16),
        (0, 48, False, 4, 0),
        (24, None, True, 4, 24),
    ],
)
def test_bundles_are_where_segments_are_fetched_and_what_is_there_stays(said, known, shared, channels, found):
    assert BalancingSettings(bundles=said).bundles_of(known, shared, channels) == found


STATES = ConstructionSettings(Resources.of("LLL"))


@given(st.data())
def test_what_is_fetched_whole_is_all_of_each_channel_that_something_is_taken_from(data):
    channels = data.draw(st.integers(1, 5))
    tables = st.lists(st.integers(0, channels - 1), min_size=8, max_size=8)
    hot = st.dictionaries(st.sampled_from([7, 2**40, 2**63]), st.integers(0, channels - 1))
    functions = [
        PartitioningFunction.even(channels).with_hot(data.draw(hot)).with_bundles(data.draw(tables)) for _ in range(2)
    ]
    keys = np.array([7, 2**40, 2**63, 2**62], dtype=np.uint64)
    workload = Workload(keys, np.full(4, 0.1), group_frequencies=np.full(4096, 0.6 / 4096))
    found = state_fetched_whole(*functions, workload, STATES.resources)
    # By the word of another reader, group by group and key by key.
    before, after = (Owners(each.to_bytes()) for each in functions)
    group = [(before.owner(each << 52 | 1), after.owner(each << 52 | 1), 0.6 / 4096) for each in range(4096)]
    key = [(before.owner(each), after.owner(each), 0.1) for each in keys.tolist()]
    held = np.zeros(channels)
    for owner, _, load in [*group, *key]:
        held[owner] += load
    expected = sum(held[one] for one, other in {(one, other) for one, other, _ in [*group, *key]} if one != other)
    assert found == pytest.approx(expected / held.sum(), abs=0.01)  # a hot key has a little of its group
    assert found >= state_moved(*functions, workload, STATES.resources) - 0.01


@given(st.integers(1, 6), st.lists(st.tuples(st.floats(0, 9), st.integers(-1, 8)), min_size=1, max_size=30))
def test_dealing_never_makes_the_fullest_channel_fuller(channels, given_pieces):
    loads = np.array([[load] for load, _ in given_pieces])
    owners = np.array([owner % channels for _, owner in given_pieces], dtype=np.int32)
    dealt = deal(Pieces(loads, loads[:, 0], owners), channels, np.array([1.0]))
    before, after = (np.bincount(each, loads[:, 0], minlength=channels).max() for each in (owners, dealt))
    assert after <= before * (1 + 1e-9) and ((dealt >= 0) & (dealt < channels)).all()


def test_the_option_is_read_and_bounded():
    assert QueryOptions.parse({"bundles": "24"}).balancing.bundles == 24
    assert QueryOptions.parse({}).balancing.bundles is QueryOptions.parse({"bundles": "auto"}).balancing.bundles is None
    with pytest.raises(ProgramError, match="bundles"):
        QueryOptions.parse({"bundles": "5000"})
    with pytest.raises(ValueError, match="bundles must go to channels"):
        PartitioningFunction.even(2).with_bundles([0, 2])
