"""The copies that a host keeps: bounded, checked, and never needed."""

import errno
import logging
import os
import random
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.engine.driver import committer
from anabranch.engine.driver.balancing import BalancingSettings
from anabranch.engine.query_options import QueryOptions
from anabranch.errors import ProgramError
from anabranch.state import files as files_module
from anabranch.state import host_cache, store
from anabranch.state.files import Files
from anabranch.state.host_cache import CacheSettings, HostCache
from anabranch.state.records import SegmentRecord
from anabranch.state.segment import checksum_of, write_segment
from anabranch.state.store import StateVersion, TaskState
from anabranch.testing import ParallelRun
from tests.faults.hosted_runs import Store
from tests.programs import COLUMNS, build, exact


def segment(n: int) -> bytes:
    hashes = np.arange(n, dtype=np.uint64)
    return write_segment(hashes, list(range(n)), ["x"], [list(range(n))]).to_pybytes()


def cache(tmp_path: Path, bytes_max: int = 1 << 30) -> HostCache:
    return HostCache("s3://b/ck/state", CacheSettings(str(tmp_path / "cache"), bytes_max))


def used(tmp_path: Path) -> int:
    return sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_the_least_recently_used_go_first_and_the_bound_holds(tmp_path):
    """Against a list that is kept by hand."""
    chance, data = random.Random(1), segment(50)
    checksum, room = checksum_of(data), 5
    kept, model, clock = cache(tmp_path, room * len(data) + 1), [], 1_000_000
    for _ in range(200):
        name = f"op/{chance.randrange(12):012d}-0.segment"
        if kept.has(name) and chance.random() < 0.6:
            kept.retain(())  # it is read from the disk
            assert kept.segment(name, checksum) is not None
            model.remove(name)
            model.append(name)
        else:
            assert kept.keep(name, data)
            model = [*[each for each in model if each != name], name]
            model = model[-room:] if len(model) > room else model
        clock += 1
        os.utime(Path(kept.directory) / name, (clock, clock))
        here = {name for name in [f"op/{n:012d}-0.segment" for n in range(12)] if kept.has(name)}
        assert here <= set(model) and model[-1] in here and used(tmp_path) <= room * len(data) + 1


def test_what_is_larger_than_the_cache_is_not_kept(tmp_path):
    kept = cache(tmp_path, 100)
    assert not kept.keep("op/1.segment", segment(1000)) and used(tmp_path) == 0


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied"])
def test_a_copy_that_is_damaged_is_removed_and_counts_as_not_there(tmp_path, damage):
    data, kept = segment(100), cache(tmp_path)
    assert kept.keep("op/1.segment", data)
    path = Path(kept.directory, "op/1.segment")
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    path.write_bytes({"cut": data[:-9], "flipped": bytes(changed), "emptied": b""}[damage])
    assert kept.segment("op/1.segment", checksum_of(data)) is None and not path.exists()
    kept.keep("op/1.segment", data)
    assert len(kept.segment("op/1.segment", checksum_of(data))) == 100


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_costs_time_and_says_so_once(tmp_path, monkeypatch, caplog, code):
    host_cache._say_once.cache_clear()
    kept = cache(tmp_path)

    def fails(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(files_module.os, "replace", fails)
    with caplog.at_level(logging.WARNING, "anabranch"):
        for _ in range(3):
            assert not kept.keep("op/1.segment", segment(3))
    monkeypatch.undo()
    (line,) = [record.getMessage() for record in caplog.records]
    assert os.strerror(code) in line and "read from the store" in line


def test_a_directory_that_others_can_write_to_is_not_used(tmp_path, caplog):
    host_cache._say_once.cache_clear()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    assert not cache(tmp_path).keep("op/1.segment", segment(3)) and "not this user's alone" in caplog.text


class Counting:
    """The state files of a query, which counts what is read of them."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.reads: list[str] = []

    def __getattr__(self, name):
        return getattr(self._files, name)

    def read(self, name):
        self.reads.append(name)
        return self._files.read(name)


def test_a_task_fetches_once_and_again_when_the_copy_is_damaged(tmp_path):
    files = Counting(files_module.LocalFiles(str(tmp_path / "store")))
    data = segment(10)
    files.write("state/op/1.segment", data)
    record = SegmentRecord(
        name="op/1.segment", operator="op", channel=0, generation=0, route=("k",), first=0, last=0, rows=10,
        bytes=len(data), checksum=checksum_of(data),
    )  # fmt: skip
    settings = CacheSettings(str(tmp_path / "cache"))
    version = StateVersion("s3://b/state", False, 1, 0, {}, {}, {}, {"op": [record]}, store=files, cache=settings)

    def fetched() -> int:
        task = TaskState(version, 0)
        assert len(task._segment(record)) == 10
        return task.fetched_bytes

    assert [fetched(), fetched()] == [len(data), 0] and len(files.reads) == 1
    kept = HostCache("s3://b/state", settings)
    kept.retain(())
    Path(kept.directory, "op/1.segment").write_bytes(data[:20])
    assert [fetched(), fetched()] == [len(data), 0] and len(files.reads) == 2


def test_a_query_whose_cache_is_too_small_is_right(object_store, tmp_path):
    epochs = [[(n * k % 13, "ab"[k % 2], float(n + k)) for k in range(30)] for n in range(4)]
    stream = build(from_epochs(epochs, COLUMNS), ["running"])
    tiny = CacheSettings(str(tmp_path / "cache"), 3000)
    run = ParallelRun(stream, "tiny", channels=2, files=object_store.files("tiny"), cache=tiny)
    run.run_epochs()
    assert exact(run.output) == exact(stream.run_sequential()) and used(tmp_path) <= 3000


class LateRun(ParallelRun):
    """Large compactions are made beside two epochs, and known only when those have run."""

    def __init__(self, *arguments, **more):
        self.under_way = []
        super().__init__(*arguments, **more)

    def _compact(self, task, wanted):
        made, told = super()._compact(task, wanted), Future()
        self.under_way.append((made, told, self.runner.epochs_done + 2))
        return told

    def run_all(self):
        for epoch in range(self.epochs):
            self.run_epochs(epoch, epoch)
            for made, told, known_from in self.under_way:
                if epoch >= known_from and not told.done():
                    told.set_result(made.result())


class Counts(ab.Operator):
    """How often each key came."""

    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.k, self.seen)


@pytest.mark.parametrize("persistence", ["checkpointed", "transient"])
def test_what_was_compacted_beside_the_epochs_stays_in_the_cache_until_a_manifest_names_it(
    tmp_path, monkeypatch, persistence
):
    """Of a transient operator it is nowhere else: without it the output is another."""
    monkeypatch.setattr(committer, "INLINE_ROWS", 10)
    monkeypatch.setattr(store, "INLINE_ROWS", 10)
    epochs = [[(k, "a", 0.0) for k in range(n % 12, 120, 12)] for n in range(30)]
    stream = from_epochs(epochs, COLUMNS).process(Counts(), by="k", schema="k long, seen long", persistence=persistence)
    files = Store(str(tmp_path / "anabranch"))
    run = LateRun(
        stream, str(tmp_path), channels=2, shared=False, files=files, cache=CacheSettings(str(tmp_path / "cache"))
    )
    before = Store.read_bytes
    run.run_all()
    assert len(run.under_way) > 1 and any(told.done() for _, told, _ in run.under_way)
    assert exact(run.output) == exact(stream.run_sequential())
    assert Store.read_bytes == before


def test_keys_are_in_bundles_where_segments_are_fetched_unless_the_checkpoint_has_them_on_a_ring(tmp_path):
    """And whichever it is, what is moved is found again."""
    epochs = [[(k, "a", 0.0) for k in range(n % 12, 240, 12)] for n in range(8)]
    stream = from_epochs(epochs, COLUMNS).process(Counts(), by="k", schema="k long, seen long")
    whole = exact(stream.run_sequential())
    for name, before, bundles in (("new", None, 48), ("ring", BalancingSettings(bundles=0), 0)):
        files, written = Store(str(tmp_path / name / "anabranch")), {}
        more = {"files": files, "cache": CacheSettings(str(tmp_path / name / "cache")), "written": written}
        run = ParallelRun(stream, str(tmp_path / name), channels=3, shared=False, balancing=before, **more)
        run.run_epochs(0, 3)
        run = ParallelRun(stream, str(tmp_path / name), channels=4, shared=False, **more)
        run.run_epochs()
        assert [function.bundles for function in run.runner.functions.values()] == [bundles]
        assert exact(run.output) == whole


def test_the_size_of_the_cache_is_said_in_bytes():
    assert QueryOptions.parse({"segmentCacheBytes": "500m"}).cache.bytes_max == 500 << 20
    assert QueryOptions.parse({"segmentCacheBytes": "123"}).cache == CacheSettings(None, 123)
    with pytest.raises(ProgramError, match="segmentCacheBytes='much'"):
        QueryOptions.parse({"segmentCacheBytes": "much"})
