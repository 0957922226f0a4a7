"""Standby copies: fetched in the background, within a bandwidth, never more than is wanted, never needed."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from anabranch.api.session import from_epochs
from anabranch.control.channel_places import StandbySettings
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.query_options import QueryOptions
from anabranch.engine.worker.follow_task import FollowTask
from anabranch.errors import ProgramError
from anabranch.state.files import LocalFiles
from anabranch.state.following import Copy, Following, Order
from anabranch.state.host_cache import CacheSettings, HostCache
from anabranch.state.records import SegmentRecord
from anabranch.state.segment import checksum_of, write_segment
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, build, exact


def stored(files: LocalFiles, number: int, rows: int = 20) -> SegmentRecord:
    keys = list(range(rows))
    data = write_segment(np.arange(rows, dtype=np.uint64), keys, ["x"], [[number] * rows]).to_pybytes()
    name = f"op/{number:012d}-0.segment"
    files.write(f"state/{name}", data)
    return SegmentRecord(
        name=name, operator="op", channel=0, generation=0, route=("k",), first=0, last=0, rows=rows,
        bytes=len(data), checksum=checksum_of(data),
    )  # fmt: skip


def copies(records: list[SegmentRecord]) -> list[Copy]:
    return [each for record in records for each in Copy.of(record)]


@pytest.fixture
def place(tmp_path):
    cache = HostCache("s3://b/state", CacheSettings(str(tmp_path / "cache")))
    return LocalFiles(str(tmp_path / "store")), cache


def test_everything_is_fetched_and_the_bandwidth_is_kept(place):
    files, cache = place
    records = [stored(files, number) for number in range(5)]
    rests: list[float] = []
    following = Following(rests.append)
    following.order(Order(cache, files, copies(records), 1000))
    following.wait(10)
    assert all(cache.segment(record.name, record.checksum) is not None for record in records)
    assert sum(rests) == pytest.approx(sum(record.bytes for record in records) / 1000)
    following.order(Order(cache, files, copies(records), 1000))
    assert len(rests) == 5, "what is there is not fetched again"


def test_a_later_order_replaces_an_earlier_one(place):
    files, cache = place
    records = [stored(files, number) for number in range(6)]
    following = Following(lambda seconds: following.order(Order(cache, files, copies(records[4:]), 1)))
    following.order(Order(cache, files, copies(records[:4]), 1))
    following.wait(10)
    assert [cache.has(record.name) for record in records] == [True, False, False, False, True, True]


def test_what_is_gone_damaged_or_unreachable_is_left_out_and_the_rest_is_fetched(place, caplog):
    files, cache = place
    gone, damaged, strange, whole = (stored(files, number) for number in range(4))
    files.delete(f"state/{gone.name}")
    files.write(f"state/{damaged.name}", b"half")
    files.delete(f"state/{strange.name}")
    Path(files.root, "state", strange.name).mkdir()
    following = Following(lambda seconds: None)
    following.order(Order(cache, files, copies([gone, damaged, strange, whole]), 1))
    following.wait(10)
    found = [cache.has(record.name) for record in (gone, damaged, strange, whole)]
    assert found == [False, False, False, True] and "is not fetched" in caplog.text


def test_a_cache_that_takes_nothing_is_not_offered_the_same_after_every_epoch(place, monkeypatch):
    files, cache = place
    records, now, reads = [stored(files, number) for number in range(4)], [0.0], []
    read = LocalFiles.read
    monkeypatch.setattr(LocalFiles, "read", lambda self, name: reads.append(name) or read(self, name))
    monkeypatch.setattr(HostCache, "keep", lambda *_: False)
    following = Following(lambda seconds: None, lambda: now[0])
    for _ in range(3):
        following.order(Order(cache, files, copies(records), 1000))
        following.wait(10)
    assert len(reads) == 1
    monkeypatch.undo()
    now[0] = 100.0
    following.order(Order(cache, files, copies(records), 1000))
    following.wait(10)
    assert all(cache.has(record.name) for record in records)


def test_a_host_that_followed_takes_over_and_fetches_nothing(object_store, tmp_path):
    """As a lost executor's channels go to one that has copies: with them nothing is read from the store."""
    epochs = [[(n * k % 13, "ab"[k % 2], float(n + k)) for k in range(30)] for n in range(5)]
    stream = build(from_epochs(epochs, COLUMNS), ["running"])
    files = object_store.files("followed")
    run = ParallelRun(stream, "followed", channels=2, files=files, cache=CacheSettings(str(tmp_path / "old")))
    run.run_epochs(last=3)
    (region,) = run.runner.functions
    version = run.runner._committer.version(4, 0, run.runner._owners)
    other = dataclasses.replace(version, cache=CacheSettings(str(tmp_path / "new")))
    following = Following(lambda seconds: None)
    task, channels = (
        FollowTask(other, {region: list(version.segments)}, 1 << 20),
        [(region, 0, None), (region, 1, None)],
    )
    missing = task(channels, following)
    assert all(missing[each] > 0 for each in [(region, 0), (region, 1)])
    following.wait(30)
    assert task(channels, following) == {(region, 0): 0, (region, 1): 0}
    states = [other(number) for number in range(2)]
    for state in states:
        assert [state._segment(record) for operator in other.segments for record in state.visible(operator)]
    assert [state.fetched_bytes for state in states] == [0, 0]
    again = ParallelRun(
        stream, "followed", channels=2, files=files, cache=CacheSettings(str(tmp_path / "new")), written=run._written
    )
    again.run_epochs()
    assert exact(again.output) == exact(stream.run_sequential())


@pytest.mark.parametrize("bundles", [0, 8])
def test_what_was_wanted_before_the_owners_changed_is_followed_as_far_as_it_is_there(object_store, tmp_path, bundles):
    """There are fewer channels now, and bundles are elsewhere."""
    epochs = [[(n * k % 13, "ab"[k % 2], float(n + k)) for k in range(30)] for n in range(6)]
    stream = build(from_epochs(epochs, COLUMNS), ["running"])
    name = f"fewer-{bundles}"
    more = {"files": object_store.files(name), "cache": CacheSettings(str(tmp_path / "old"))}
    run = ParallelRun(stream, name, channels=3, shared=False, balancing=BalancingSettings(bundles=bundles), **more)
    run.run_epochs(last=2)
    (region,) = run.runner.functions
    before = run.runner.functions[region]
    wanted = [(region, channel, None) for channel in range(3)]
    if bundles:
        wanted = [(region, int(channel), at) for at, channel in enumerate(before.bundle_channels)]
    run = ParallelRun(
        stream,
        name,
        channels=1,
        shared=False,
        written=run._written,
        balancing=BalancingSettings(bundles=bundles),
        **more,
    )
    run.run_epochs(3, 4)
    version = run.runner._committer.version(5, 0, run.runner._owners)
    other = dataclasses.replace(version, cache=CacheSettings(str(tmp_path / "new")))
    task, following = FollowTask(other, {region: list(version.segments)}, 1 << 20), Following(lambda seconds: None)
    missing = task(wanted, following)
    assert sorted(missing) == [(region, at) for at in range(bundles or 1)]
    following.wait(30)
    assert set(task(wanted, following).values()) == {0}
    state = other(0)
    assert [state._read(record, []) for operator in other.segments for record in state.visible(operator)]
    assert state.fetched_bytes == 0


def test_options_of_standbys_go_together():
    assert QueryOptions.parse({}).standbys == StandbySettings()
    chosen = QueryOptions.parse({"standbys": "1", "standbyBandwidth": "1m", "standbyLag": "5k"}).standbys
    assert chosen == StandbySettings(1, 1 << 20, 5 << 10)
    with pytest.raises(ProgramError, match="standbyLag has no effect without standbys"):
        QueryOptions.parse({"standbyLag": "1m"})
    for name, text in (("standbys", "-1"), ("standbyBandwidth", "0"), ("standbyBandwidth", "fast")):
        with pytest.raises(ProgramError, match=f"{name}="):
            QueryOptions.parse({"standbys": "1", name: text})
