"""KeyOwners: one per region, replaced at will, kept in the manifest for as long as a segment needs them."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import CheckpointError
from anabranch.partitioning.function import PartitioningFunction
from anabranch.partitioning.placing.construct import evened, resized
from anabranch.sim.owners import owners_of
from anabranch.state.key_owners import KeyOwners, RegionOwners
from anabranch.state.records import SegmentRecord

ROUTES = {"sum": {"Sum": ("k",), "Fine": ("k",)}, "all": {"All": ()}}
CHANNELS = {"sum": 3, "all": 1}


def record(channel: int, generation: int, route=("k",), **more) -> SegmentRecord:
    facts = {"name": "s", "operator": "Sum", "first": 0, "last": 0, "rows": 1, "bytes": 1, "checksum": 0}
    return SegmentRecord(channel=channel, generation=generation, route=route, **facts, **more)


def started() -> KeyOwners:
    return KeyOwners().started(ROUTES, CHANNELS)


def test_each_region_has_a_layout_of_its_own():
    owners = started().by_operator()
    assert {name: region.channels for name, region in owners.items()} == {"Sum": 3, "Fine": 3, "All": 1}
    assert owners["Sum"].generation == owners["Fine"].generation != owners["All"].generation


def test_a_replacement_concerns_its_region_only_and_is_a_new_generation():
    owners = started()
    later = owners.replaced("sum", resized(owners.function("sum"), 4))
    assert later.of_region("all").generation == owners.of_region("all").generation
    assert later.of_region("sum").generation > max(owners.functions)
    assert later.of_region("sum").earlier[owners.of_region("sum").generation] == owners.function("sum")
    back = later.replaced("sum", owners.function("sum"))
    assert back.of_region("sum").generation > later.of_region("sum").generation
    assert back.replaced("sum", back.function("sum")) is back


def test_a_restart_of_the_same_program_changes_nothing():
    owners = started().replaced("sum", evened(3).with_hot({7: 1}))
    again = KeyOwners.from_facts(owners.to_facts()).started(ROUTES, CHANNELS)
    assert again == owners


def test_a_restart_with_another_number_of_channels_resizes_and_moves_only_what_it_must():
    before = started()
    after = before.started(ROUTES, {**CHANNELS, "sum": 4})
    moved = before.function("sum").group_owners() != after.function("sum").group_owners()
    assert 0.24 <= moved.mean() <= 1.05 * 0.25
    assert after.of_region("all").generation == before.of_region("all").generation


@pytest.mark.parametrize(
    "routes", [{"Sum": ("l",), "Fine": ("k",)}, {"Sum": ("k",)}, {"Sum": ("k",), "Fine": ("k",), "New": ("k",)}]
)
def test_other_operators_or_columns_begin_a_new_generation_under_the_same_function(routes):
    before = started()
    after = before.started({"sum": routes, "all": {"All": ()}}, CHANNELS)
    assert after.of_region("sum").generation == before.newest + 1
    assert after.function("sum") == before.function("sum")


def test_a_region_that_was_away_does_not_get_its_old_number_back():
    before = started()
    away = before.started({"all": {"All": ()}}, CHANNELS).pruned({})
    assert set(away.regions) == {"all"} and len(away.functions) == 1
    back = KeyOwners.from_facts(away.to_facts()).started(ROUTES, CHANNELS)
    assert back.of_region("sum").generation > before.newest


def test_functions_are_kept_while_a_record_or_a_part_of_one_refers_to_them():
    owners = started()
    for channels in (4, 5, 6, 7):
        owners = owners.replaced("sum", resized(owners.function("sum"), channels))
    assert len(owners.functions) == 6
    pruned = owners.pruned({"Sum": [record(0, 2, parts=(record(0, 3),))], "Gone": [record(0, 4)]})
    current = {region.generation for region in owners.regions.values()}
    assert set(pruned.functions) == {2, 3, 4} | current
    assert set(pruned.pruned({}).functions) == current
    assert pruned.pruned({}).newest == owners.newest


def test_an_unknown_region_is_an_error_that_says_which_there_are():
    with pytest.raises(KeyError, match="no region 'top'; regions: sum, all"):
        started().replaced("top", evened(2))


def test_functions_with_other_key_groups_are_refused():
    with pytest.raises(ValueError, match="4096 key groups; the function has 256"):
        started().replaced("sum", PartitioningFunction.even(2, group_bits=8))


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["functions"].clear(),
        lambda facts: facts["functions"].update({"0": "AAAA"}),
        lambda facts: facts["functions"].update({"0": "!"}),
        lambda facts: facts["regions"]["sum"].pop("routes"),
        lambda facts: facts.pop("generation"),
    ],
)
def test_facts_that_do_not_fit_are_refused_with_a_sentence(change):
    facts = started().to_facts()
    change(facts)
    with pytest.raises(CheckpointError, match="partitioning functions cannot be read"):
        KeyOwners.from_facts(facts)


def test_a_checkpoint_that_is_new_has_no_facts():
    assert KeyOwners.from_facts({}).started(ROUTES, CHANNELS).of_region("sum").generation == 0


def test_what_was_routed_otherwise_or_under_an_unknown_function_may_be_anyones():
    region = RegionOwners(7, evened(4), {6: evened(4)})
    assert not region.shares(record(1, 6), 0, ("k",))
    assert region.shares(record(1, 6, route=("l",)), 0, ("k",))
    assert region.shares(record(1, 5), 0, ("k",))
    assert region.shares(record(1, 6), 0, ())


def test_a_hot_key_is_inherited_from_its_old_owner_alone():
    function = evened(3)
    key = int(np.uint64(1) << np.uint64(52))  # the first key of group 1
    home = int(function.group_owners()[1])
    here, there = sorted({0, 1, 2} - {home})
    before, after = function.with_hot({key: here}), function.with_hot({key: there})
    region = RegionOwners(1, after, {0: before})
    assert [region.shares(record(channel, 0), there, ("k",)) for channel in (here, there, home)] == [True, True, False]
    assert region.groups(there)[1] and region.groups(home)[1] and not region.groups(here)[1]
    hashes = np.array([key, key + 1], dtype=np.uint64)
    assert region.owns(there, hashes).tolist() == [True, False]
    assert region.owns(home, hashes).tolist() == [False, True]


def test_a_layout_travels_in_few_bytes():
    owners = started().replaced("sum", evened(8).with_hot(dict.fromkeys(range(40), 1)))
    owners.function("sum").route(np.zeros(1, dtype=np.uint64))  # the tables exist now
    sent = pickle.dumps(owners.by_operator())
    assert len(sent) < 3000
    arrived = pickle.loads(sent)
    assert arrived["Sum"].function == owners.function("sum")
    assert arrived["Sum"].function is pickle.loads(sent)["Sum"].function  # a process derives its tables once


@st.composite
def functions(draw) -> PartitioningFunction:
    channels = draw(st.integers(1, 8))
    weights = draw(st.lists(st.integers(0, 40), min_size=channels, max_size=channels).filter(any))
    hot = draw(st.dictionaries(st.integers(0, 2**64 - 1), st.integers(0, channels - 1), max_size=6))
    return PartitioningFunction(tuple(weights)).with_hot(hot)


@settings(max_examples=40)
@given(functions(), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50))
def test_each_key_has_exactly_one_owner_and_it_is_the_right_one(function, keys):
    region = RegionOwners(0, function)
    hashes = np.array([*keys, *function.hot_hashes.tolist()], dtype=np.uint64)
    masks = np.stack([region.owns(channel, hashes) for channel in range(region.channels)])
    expected = [owners_of(function.to_bytes()).owner(int(hashed)) for hashed in hashes]
    assert masks.sum(axis=0).tolist() == [1] * len(hashes)
    assert masks.argmax(axis=0).tolist() == expected
    for hashed, owner in zip(hashes.tolist(), expected, strict=True):
        assert region.groups(owner)[hashed >> 52]


@settings(max_examples=40)
@given(functions(), functions(), st.lists(st.integers(0, 2**64 - 1), max_size=50))
def test_whoever_owns_a_key_now_reads_the_segments_of_whoever_owned_it(before, after, keys):
    region = RegionOwners(1, after, {0: before})
    for hashed in [*keys, *before.hot_hashes.tolist(), *after.hot_hashes.tolist()]:
        old, new = (owners_of(each.to_bytes()).owner(hashed) for each in (before, after))
        assert region.shares(record(old, 0), new, ("k",))
