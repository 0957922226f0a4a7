"""Segments cut between bundles: who takes over a bundle fetches that bundle alone, and a damaged slice is known."""

import dataclasses
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import CheckpointError
from anabranch.partitioning.function import PartitioningFunction, bundle_of_groups
from anabranch.partitioning.placing.construct import evened
from anabranch.program.hashing import hash_columns, key_groups
from anabranch.state.files import LocalFiles
from anabranch.state.host_cache import CacheSettings, HostCache
from anabranch.state.key_owners import KeyOwners
from anabranch.state.lineage import KeyRoute
from anabranch.state.records import SegmentRecord
from anabranch.state.segment import Segment, checksum_of, write_segment
from anabranch.state.slices import cut, offsets, opened
from anabranch.state.store import StateVersion

KEYS = 2000
BUNDLES = 16


class Kept(ab.Operator):
    """A number for each key."""

    value = ab.state(default=0)

    def process(self, t):
        yield t


NODE = ab.from_rows([], "k long").process(Kept(), by="k", name="kept")._node


class CountedFiles(LocalFiles):
    """A store that counts what is read of segments."""

    read_bytes = 0

    def read(self, name):
        data = super().read(name)
        self.read_bytes += len(data or b"")
        return data

    def read_range(self, name, start, size):
        data = super().read_range(name, start, size)
        self.read_bytes += len(data or b"")
        return data


def version(root: Path, owners: KeyOwners, epoch: int, segments, host: str, cut_bytes: int = 0) -> StateVersion:
    return StateVersion(
        f"{root}/state", False, epoch, 0, owners.by_operator(), {"kept": KeyRoute(("k",), (pa.int64(),), ("k",))},
        {"kept": {"value": 0}}, {"kept": segments}, store=CountedFiles(str(root)),
        cache=CacheSettings(str(root / host)), cut_bytes=cut_bytes,
    )  # fmt: skip


def written(root: Path, cut_bytes: int = 0) -> tuple[KeyOwners, list[SegmentRecord]]:
    """A checkpoint that two channels wrote on two hosts."""
    owners = KeyOwners().started({"kept": {"kept": ("k",)}}, {"kept": 2}, {"kept": BUNDLES})
    records: list[SegmentRecord] = []
    routed = owners.function("kept").route(hash_columns([pa.array(range(KEYS))]))
    for channel in range(2):
        state = version(root, owners, 0, [], f"host{channel}", cut_bytes)(channel)
        mine = np.flatnonzero(routed == channel).tolist()
        for key, instance in state.open([NODE])["kept"].load(mine).items():
            instance.value = key + 1
        records += state.save([NODE])
    return owners, records


def read_all(state, keys) -> dict[int, int]:
    return {key: value for key, (value,) in state.open([NODE])["kept"]._find(list(keys)).items()}


def keys_of(function: PartitioningFunction, channel: int) -> list[int]:
    return np.flatnonzero(function.route(hash_columns([pa.array(range(KEYS))])) == channel).tolist()


def test_a_new_owner_of_a_bundle_fetches_that_bundle_and_no_neighbour(tmp_path):
    owners, records = written(tmp_path)
    assert all(len(record.slices) == BUNDLES // 2 for record in records)
    function = owners.function("kept")
    table = function.bundle_channels.copy()
    moved = int(np.flatnonzero(table == 0)[0])
    table[moved] = 1
    later = owners.replaced("kept", function.with_bundles(table))
    seen = version(tmp_path, later, 1, records, "host1")
    state = seen(1)
    mine = keys_of(later.function("kept"), 1)
    assert read_all(state, mine) == {key: key + 1 for key in mine}
    whole = next(record for record in records if record.channel == 0)
    assert seen.store.read_bytes == state.fetched_bytes == whole.slices[0].bytes < whole.bytes / 6
    again = version(tmp_path, later, 1, records, "host1")
    read_all(again(1), mine)
    assert again.store.read_bytes == 0, "a host keeps slices"


def test_small_segments_are_in_one_piece(tmp_path):
    _, records = written(tmp_path, cut_bytes=1 << 20)
    assert records and not any(record.slices for record in records)


@pytest.mark.parametrize("where", ["host0", "state"])
def test_a_damaged_slice_is_known(tmp_path, where):
    owners, records = written(tmp_path)
    if where == "host0":
        (path,) = (tmp_path / where).rglob("*.segment.3")
        path.write_bytes(path.read_bytes()[:-20])  # half-written
    else:
        record = next(record for record in records if record.channel == 0)
        path = tmp_path / "state" / record.name
        data = bytearray(path.read_bytes())
        data[offsets(record.slices)[3] + 900] ^= 1
        path.write_bytes(data)
    seen = version(tmp_path, owners, 1, records, "host0" if where == "host0" else "host9")
    mine = keys_of(owners.function("kept"), 0)
    if where == "host0":
        state = seen(0)
        assert read_all(state, mine) == {key: key + 1 for key in mine}
        assert state.fetched_bytes == next(each for each in records if each.channel == 0).slices[3].bytes
    else:
        with pytest.raises(CheckpointError, match="damaged"):
            read_all(seen(0), mine)


def test_slices_are_closed_and_removed_with_their_segment(tmp_path):
    _, (record, *_) = written(tmp_path)
    kept = HostCache(f"{tmp_path}/state", CacheSettings(str(tmp_path / "host0")))
    assert len(list((tmp_path / "host0").rglob("*.segment.*"))) == BUNDLES // 2
    kept.clean({record.name}, ["kept"], epoch=5)
    assert len(list((tmp_path / "host0").rglob("*.segment.*"))) == BUNDLES // 2
    kept.clean(set(), ["kept"], epoch=5)
    assert not list((tmp_path / "host0").rglob("*.segment.*"))


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=60, unique=True), st.integers(1, 4096))
def test_what_is_cut_is_all_there_and_each_slice_holds_its_groups(keys, bundles):
    hashes = hash_columns([pa.array(keys)])
    whole = write_segment(hashes, keys, ["x", "y"], [keys, [[key, "a"] for key in keys]])
    data, slices = cut(whole, bundles)
    parts = opened(data.to_pybytes(), checksum_of(data), slices, "here.segment")
    assert [key for part in parts for key in part.values("key")] == Segment(whole).values("key")
    assert [y for part in parts for y in part.values("field.y")] == Segment(whole).values("field.y")
    of_groups = bundle_of_groups(bundles)
    for part, each in zip(parts, slices, strict=True):
        groups = key_groups(part.hashes)
        assert len(set(of_groups[groups])) == 1 and each.first <= groups.min() <= groups.max() <= each.last
    record = SegmentRecord(
        name="kept/0.segment", operator="kept", channel=0, generation=0, route=("k",), first=0, last=0, rows=len(keys),
        bytes=data.size, checksum=checksum_of(data), slices=slices,
    )  # fmt: skip
    assert SegmentRecord.of_fields(record.to_fields()) == record
    with tempfile.TemporaryDirectory() as root:
        path = Path(root, "one.segment")
        path.write_bytes(data)
        for start, each, part in zip(offsets(slices), slices, parts, strict=True):
            assert Segment(str(path), each.checksum, (start, each.bytes)).values("key") == part.values("key")


def test_a_checkpoint_goes_over_to_bundles_and_back():
    plain = KeyOwners().started({"r": {"o": ("k",)}}, {"r": 3})
    bundled = plain.started({"r": {"o": ("k",)}}, {"r": 3}, {"r": 24})
    assert bundled.function("r") == evened(3, 24) and bundled.regions["r"].generation == 1
    assert KeyOwners.from_facts(bundled.to_facts()) == bundled
    grown = bundled.started({"r": {"o": ("k",)}}, {"r": 5}, {"r": 24})
    assert (grown.function("r").channels, grown.function("r").bundles) == (5, 24)
    back = grown.started({"r": {"o": ("k",)}}, {"r": 5})
    assert back.function("r") == evened(5)
    assert dataclasses.asdict(plain)  # what was there stays as it was
