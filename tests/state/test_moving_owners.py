"""State follows its owners: whatever functions follow one another, reading is reading a plain dict."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.partitioning.function import PartitioningFunction
from anabranch.program.hashing import hash_columns
from anabranch.sim.owners import check_records, rows_of
from anabranch.state import store
from anabranch.state.files import LocalFiles
from anabranch.state.key_owners import KeyOwners
from anabranch.state.lineage import (
    KeyRoute,
    after_compaction,
    files_of,
    large_compactions,
    pays_to_adopt,
    without_adopted,
    without_damaged,
    without_old_parts,
)
from anabranch.state.records import SegmentRecord
from anabranch.state.segment import Segment, write_segment
from anabranch.state.store import StateVersion, TaskState

PARTS_KEPT = 3  # epochs for which a merge remembers what it was made of
TIME_TO_LIVE = 4  # epochs; the clock goes on by one second each


def crowded_keys() -> list[int]:
    """Keys of only four key groups: hot keys then share their group with others."""
    keys = np.arange(20_000)
    groups = hash_columns([pa.array(keys)]) >> np.uint64(52)
    return keys[groups < 4].tolist()


KEYS = crowded_keys()
HASHES = dict(zip(KEYS, hash_columns([pa.array(KEYS)]).tolist(), strict=True))


class Kept(ab.Operator):
    """A value per key."""

    value = ab.state(default=None)

    def process(self, t):
        yield t


class World:
    """One operator's state in a checkpoint, driven as a driver would, beside a dict of what it stands for."""

    def __init__(self, root: str, fine: bool, expires: bool) -> None:
        self.root = root
        self.files = LocalFiles(root)
        stream = ab.from_rows([], "k long, l long")
        by = ("k", "l") if fine else ("k",)
        self.fine = fine
        self.expires = expires
        self.node = stream.process(Kept(), by=by, ttl=TIME_TO_LIVE if expires else None, name="kept")._node
        self.keys = {"kept": KeyRoute(by, (pa.int64(),) * len(by), ("k",))}
        self.owners = KeyOwners().started({"kept": {"kept": ("k",)}}, {"kept": 2})
        self.segments: dict[str, list[SegmentRecord]] = {"kept": []}
        self.epoch = 0
        self.model: dict[Any, tuple[int, int]] = {}  # key → value, and when it expires
        self.waiting: list[SegmentRecord] | None = None  # merges that were made and not committed
        self.busy: frozenset[str] = frozenset()
        self.written: dict[tuple[str, int], dict[Any, str]] = {}
        self.functions: dict[int, bytes] = {}

    def version(self) -> StateVersion:
        return StateVersion(
            self.root,
            True,
            self.epoch,
            self.epoch * 1000,
            self.owners.by_operator(),
            self.keys,
            {"kept": {"value": None}},
            self.segments,
            compacting=self.busy,
            cut_bytes=0,
        )

    def key(self, number: int) -> Any:
        return (number, number % 3) if self.fine else number

    def by_owner(self, numbers: list[int]) -> dict[int, list[int]]:
        function = self.owners.function("kept")
        owners = function.route(np.array([HASHES[number] for number in numbers], dtype=np.uint64))
        found: dict[int, list[int]] = {}
        for number, owner in zip(numbers, owners.tolist(), strict=True):
            found.setdefault(owner, []).append(number)
        return found

    # -- what can happen --------------------------------------------------------------------------------------

    def write(self, numbers: list[int]) -> None:
        """An epoch that adds one to the value of some keys."""
        records: list[SegmentRecord] = []
        version = self.version()
        for channel, mine in self.by_owner(numbers).items():
            state = version(channel)
            live = state.open([self.node])["kept"].load([self.key(number) for number in mine])
            for number in mine:
                expected = self.read_model(number)
                assert live[self.key(number)].value == expected
                live[self.key(number)].value = (expected or 0) + 1
                self.model[self.key(number)] = ((expected or 0) + 1, (self.epoch + TIME_TO_LIVE) * 1000)
            records += state.save([self.node])
        self.commit(records)

    def remove(self, numbers: list[int]) -> None:
        """An epoch that removes keys."""
        version = self.version()
        records = []
        for channel, mine in self.by_owner(numbers).items():
            keys = [self.key(number) for number in mine]
            columns: list[list[Any]] = [[None] * len(keys)]
            names = ["value"]
            if self.expires:
                names, columns = ["value", "#expires"], [*columns, [0] * len(keys)]
            data = write_segment(self.keys["kept"].hashes(keys), keys, names, columns, np.ones(len(keys), dtype=bool))
            records.append(version(channel)._write("kept", data, len(keys), self.epoch))
            for key in keys:
                self.model.pop(key, None)
        self.commit(records)

    def replace(self, function: PartitioningFunction) -> None:
        self.owners = self.owners.replaced("kept", function)

    def merge(self, everything: bool, paying: bool = False) -> None:
        """Begin merges beside the epochs; what they give is committed by a later epoch, perhaps of other owners."""
        if self.waiting is not None:
            return
        by_operator = self.owners.by_operator()
        wanted = large_compactions(self.segments, by_operator, self.keys, 0, everything)
        wanted = [each for each in wanted if not paying or pays_to_adopt(each[2], by_operator["kept"], 3)]
        version = self.version()
        self.busy = frozenset(record.name for _, _, records in wanted for record in records)
        self.waiting = []
        for operator, channel, records in wanted:
            state = version(channel)
            is_all = len(records) == len(state.visible(operator))
            self.waiting.append(state.compact(operator, records, is_all))

    def merge_what_pays(self, _: None) -> None:
        """Where state is in a store, channels go on reading what they took over where it is."""
        self.merge(False, paying=True)

    def damage(self, which: int) -> None:
        """A merge is found to be damaged; what it was made of takes its place."""
        merges = [record.name for record in self.segments["kept"] if record.parts]
        if merges:
            name = merges[which % len(merges)]
            self.files.delete(name)
            self.segments["kept"] = without_damaged(self.segments["kept"], [name])
            self.waiting, self.busy = None, frozenset()  # may be made of it

    def commit(self, records: list[SegmentRecord], land: bool = False) -> None:
        """As the driver does, every second epoch with the merges that are waiting."""
        known = self.segments["kept"]
        landing: list[SegmentRecord] = []
        if self.waiting is not None and (land or self.epoch % 2):
            landing, self.waiting, self.busy = self.waiting, None, frozenset()
        for record in [*records, *landing]:
            known = after_compaction(known, record) if record.parts else [record, *known]
        known = without_old_parts(known, self.epoch - PARTS_KEPT)
        layout = self.owners.by_operator()["kept"]
        segments = {"kept": without_adopted(known, layout, ("k",))}
        owners = self.owners.pruned(segments)
        # What the manifest keeps is all that there is.
        kept = json.loads(json.dumps([record.to_fields() for record in segments["kept"]]))
        self.segments = {"kept": [SegmentRecord.of_fields(fields) for fields in kept]}
        self.owners = KeyOwners.from_facts(json.loads(json.dumps(owners.to_facts())))
        self.remove_what_no_record_names()
        self.epoch += 1

    def remove_what_no_record_names(self) -> None:
        waiting = {record.name for record in self.waiting or ()}
        for name in self.files.names("kept"):
            if f"kept/{name}" not in files_of(self.segments) | waiting:
                self.files.delete(f"kept/{name}")
        store._segments.retain(self.root, [])  # a file that is open could be read although it is gone

    # -- what must hold ---------------------------------------------------------------------------------------

    def read_model(self, number: int) -> int | None:
        value, moment = self.model.get(self.key(number), (None, 0))
        return value if value is not None and (not self.expires or moment > self.epoch * 1000) else None

    def check(self) -> None:
        """All channels together hold what the dict holds, each key at one of them, and only its owners' keys."""
        expected = {self.key(n): self.read_model(n) for n in KEYS if self.read_model(n) is not None}
        version = self.version()
        found: dict[Any, int] = {}
        for channel in range(self.owners.function("kept").channels):
            state: TaskState = version(channel)
            segments = state._segments_of(state.visible("kept"))
            snapshot = Segment(state._compacted("kept", segments, drop_dead=True))
            held = dict(zip(snapshot.values("key"), snapshot.values("field.value"), strict=True))
            assert not held.keys() & found.keys(), "a key with two owners"
            found.update(held)
        assert found == expected
        for channel, mine in self.by_owner(KEYS).items():
            table = version(channel).open([self.node])["kept"]
            asked = [self.key(number) for number in mine]
            assert {k: v for k, (v,) in table._find(asked).items()} == {k: found[k] for k in asked if k in found}
        self.functions.update({g: function.to_bytes() for g, function in self.owners.functions.items()})
        check_records([record.to_fields() for record in self.segments["kept"]], self.functions, self.rows, self.written)

    def rows(self, record: dict[str, Any]) -> list[tuple[int, Any]]:
        rows = rows_of(Path(self.root) / record["name"], record.get("slices", ()))
        return [(HASHES[key[0]], key) for _, key in rows] if self.fine else rows

    def settle(self) -> None:
        """Let every channel adopt, and the memories of merges fade."""
        self.commit([], land=True)
        for _ in range(PARTS_KEPT + 2):
            self.merge(everything=True)
            self.commit([], land=True)
            self.check()


@st.composite
def functions(draw) -> PartitioningFunction:
    channels = draw(st.integers(1, 8))
    weights = draw(st.lists(st.integers(0, 12), min_size=channels, max_size=channels).filter(any))
    hot = draw(st.dictionaries(st.sampled_from(KEYS), st.integers(0, channels - 1), max_size=5))
    function = PartitioningFunction(tuple(weights)).with_hot({HASHES[key]: channel for key, channel in hot.items()})
    bundles = draw(st.sampled_from([0, 0, 3, 2048, 4096]))  # all keys are of the first four key groups
    return function.with_bundles(np.random.default_rng(draw(st.integers(0, 99))).integers(0, channels, bundles))


touched = st.lists(st.sampled_from(KEYS), min_size=1, max_size=8, unique=True)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), touched),
        st.tuples(st.just("write"), touched),
        st.tuples(st.just("remove"), touched),
        st.tuples(st.just("replace"), functions()),
        st.tuples(st.just("merge"), st.booleans()),
        st.tuples(st.just("merge_what_pays"), st.none()),
        st.tuples(st.just("damage"), st.integers(0, 5)),
    ),
    min_size=4,
    max_size=24,
)


@settings(max_examples=80)
@given(fine=st.booleans(), expires=st.booleans(), steps=steps)
def test_reading_state_is_reading_a_dict_whatever_functions_follow_one_another(fine, expires, steps):
    with tempfile.TemporaryDirectory(prefix="anabranch-test-") as root:
        world = World(root, fine, expires)
        for name, argument in steps:
            getattr(world, name)(argument)
            world.check()
        world.settle()
        # What everyone adopted is gone: only current lineages are left, and only the current function.
        generation = world.owners.of_region("kept").generation
        assert {record.generation for record in world.segments["kept"]} <= {generation}
        assert set(world.owners.functions) == {generation}
        assert not any(record.adopted for record in world.segments["kept"])


# -- what chance seldom finds ----------------------------------------------------------------------------


def two_owners(root: str) -> tuple[World, int, int]:
    """A world with two keys written together by one channel, and then owned by channel 0 and channel 1."""
    world = World(root, fine=False, expires=False)
    first, second = KEYS[:2]
    world.replace(PartitioningFunction((1,)))
    world.write([first, second])
    world.write([first, second])
    world.replace(PartitioningFunction((1, 0)).with_hot({HASHES[second]: 1}))
    return world, first, second


def adopt(world: World, channel: int) -> None:
    """One channel merges all it sees, and that is committed."""
    state = world.version()(channel)
    world.commit([state.compact("kept", state.visible("kept"), is_all=True)])


def test_what_one_channel_adopted_counts_before_what_another_still_needs(tmp_path):
    world, first, _ = two_owners(str(tmp_path))
    world.write([first])
    adopt(world, 0)
    world.replace(PartitioningFunction((1,)))
    world.check()
    assert world.version()(0).visible("kept")[0].first == 0  # although the merge begins with the oldest epoch


def test_a_removed_key_does_not_come_back_from_a_segment_that_others_still_need(tmp_path):
    world, first, _ = two_owners(str(tmp_path))
    world.remove([first])
    adopt(world, 0)
    world.replace(PartitioningFunction((1,)))
    world.check()


def test_a_removed_key_does_not_come_back_from_the_parts_of_a_damaged_merge(tmp_path):
    world, first, _ = two_owners(str(tmp_path))
    world.remove([first])
    adopt(world, 0)
    adopt(world, 1)
    assert len(world.segments["kept"]) == 2
    adopt(world, 0)
    merges = sorted(record.channel for record in world.segments["kept"] if record.parts)
    assert merges == [0, 1]
    world.damage([record.channel for record in world.segments["kept"]].index(1))
    world.replace(PartitioningFunction((1,)))
    world.check()


def test_a_segment_goes_when_the_last_channel_that_needs_it_has_adopted_it(tmp_path):
    world, _, _ = two_owners(str(tmp_path))
    world.commit([])
    old = {record.name for record in world.segments["kept"]}
    adopt(world, 0)
    assert old <= {record.name for record in world.segments["kept"]}
    adopt(world, 1)
    assert not old & {record.name for record in world.segments["kept"]}
    assert old <= files_of(world.segments)  # in case a merge is damaged


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=60), st.integers(0, 2000))
def test_taking_over_rewrites_a_few_times_what_was_written_and_never_leaves_many_segments(epochs, begun):
    """One channel whose function is replaced again and again, with much state at first: by their weights alone."""
    owners = KeyOwners().started({"kept": {"kept": ("k",)}}, {"kept": 1})
    owners = owners.replaced("kept", PartitioningFunction((7,)))
    now = owners.by_operator()["kept"]
    written, rewritten = 0, 0
    known = [_weighing(begun, now.generation - 1)] if begun else []
    for rows, replaced in epochs:
        written += rows
        known.append(_weighing(rows, now.generation))
        if replaced:
            known = [dataclasses.replace(each, generation=now.generation - 1) for each in known]
        if any(each.generation != now.generation for each in known) and pays_to_adopt(known, now, 3):
            rewritten += sum(each.rows for each in known)
            known = [_weighing(sum(each.rows for each in known), now.generation)]
        assert len(known) <= 25 + sum(each.generation == now.generation for each in known)
    # With every 24th segment all is rewritten, and with what was written a few times as much.
    assert rewritten <= 5 * written + len(epochs) // 24 * (begun + written) + 3 * len(epochs)


def _weighing(rows: int, generation: int) -> SegmentRecord:
    name = f"kept/{rows}.segment"
    return SegmentRecord(
        name=name, operator="kept", channel=0, generation=generation, route=("k",), first=0, last=0, rows=rows,
        bytes=rows, checksum=0,
    )  # fmt: skip
