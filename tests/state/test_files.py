"""Files: whole or not at all, created once, on the disk if asked for, and one error for all that can go wrong."""

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from anabranch.errors import CheckpointError, ProgramError, SinkError, StorageError
from anabranch.state import files as module
from anabranch.state.backing import PostgresStore, open_backing_store
from anabranch.state.checkpoint import Checkpoint
from anabranch.state.described_program import DescribedProgram
from anabranch.state.files import LocalFiles, MemoryFiles, is_private, remove_passing, storage_problem
from anabranch.state.ownership import Ownership
from anabranch.state.reader import CheckpointReader
from anabranch.testing import ParallelRun
from tests.programs import COLUMNS, build, exact


@pytest.fixture(params=["local", "memory", "s3"])
def files(request, tmp_path):
    if request.param == "s3":
        return request.getfixturevalue("object_store").files(tmp_path.name)
    return LocalFiles(str(tmp_path)) if request.param == "local" else MemoryFiles()


def test_of_many_that_create_a_file_at_once_one_succeeds_and_its_content_is_whole(files):
    contents = [bytes([n]) * 50_000 for n in range(16)]
    with ThreadPoolExecutor(8) as threads:
        created = list(threads.map(lambda data: files.create("a/b", data), contents))
    assert created.count(True) == 1
    assert files.read("a/b") == contents[created.index(True)] and files.names("a") == ["b"]


def test_what_is_created_is_not_replaced_and_what_is_written_is(files):
    assert files.create("a", b"one") and not files.create("a", b"two")
    files.write("a", b"three")
    assert files.read("a") == b"three" and not files.create("a", b"four")


def test_a_directory_is_cleared_with_all_that_is_in_it(files):
    for name in ("a/b/c", "a/d", "e"):
        files.write(name, b"x")
    files.clear("a")
    files.clear("nothing")
    assert files.names("a") == [] and files.names("") == ["e"]


def test_owners_get_numbers_of_their_own_on_an_object_store():
    files = MemoryFiles()
    with ThreadPoolExecutor(8) as threads:
        tokens = list(threads.map(lambda _: Ownership.take(files, "q").token, range(30)))
    assert len(set(tokens)) == 30


def test_a_query_runs_on_an_object_store_and_is_fenced_there():
    import anabranch as ab

    files = MemoryFiles()
    rows = [[(k, "a", float(n)) for k in range(5)] for n in range(6)]
    from anabranch.api.session import from_epochs

    stream = build(from_epochs(rows, COLUMNS), ["running"])
    written: dict = {}
    first = ParallelRun(stream, "world", files=files, written=written)
    first.run_epochs(last=2)
    second = ParallelRun(stream, "world", files=files, written=written)
    with pytest.raises(CheckpointError, match="has taken over"):
        first.run_epochs(3, 3)
    second.run_epochs()
    assert exact(second.output) == exact(stream.run_sequential())
    assert CheckpointReader(files).stores()[0].keys == 5 and isinstance(stream, ab.Stream)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EIO])
def test_whatever_keeps_a_file_from_being_written_is_the_same_error_and_leaves_nothing(tmp_path, monkeypatch, code):
    files = LocalFiles(str(tmp_path))
    files.write("a", b"before")

    def fails(*_, **__):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module.os, "replace", fails)
    monkeypatch.setattr(module.os, "link", fails)
    for write in (files.write, files.create):
        with pytest.raises(StorageError, match=r"cannot write .*/a: .*Make room") as caught:
            write("a", b"after")
        assert isinstance(caught.value, CheckpointError) and isinstance(caught.value, SinkError)
    monkeypatch.undo()
    assert files.names("") == ["a"] and files.read("a") == b"before"


def test_what_is_no_file_cannot_be_read_and_is_named(tmp_path):
    files = LocalFiles(str(tmp_path))
    files.write("a/b", b"x")
    with pytest.raises(StorageError, match=r"cannot read .*/a: .*directory"):
        files.read("a")
    with pytest.raises(StorageError, match=r"cannot read .*/a/b"):
        files.names("a/b")


def test_storage_is_recognised_in_what_others_say():
    java = "org.apache.spark.SparkException: Job\n  Caused by: java.io.IOException: No space left on device\n at"
    assert storage_problem(RuntimeError(java)) == "Caused by: java.io.IOException: No space left on device"
    assert storage_problem(ValueError("invalid literal")) == ""


@pytest.mark.parametrize("durable", [False, True])
def test_durable_files_and_their_directories_are_on_the_disk_before_a_call_returns(tmp_path, monkeypatch, durable):
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(module.os, "fsync", fsync)
    files = LocalFiles(str(tmp_path), durable)
    files.write("d/a", b"x")
    files.create("d/b", b"x")
    kinds = ["file" if path.endswith(".tmp") else path for path in synced]
    assert kinds == (["file", str(tmp_path / "d")] * 2 if durable else [])


def test_files_of_the_dead_are_removed_and_no_others(files):
    for name in ("_a.1.tmp", "_b", "c.tmp"):
        files.write(name, b"x")
    assert remove_passing(files, "") == 1 and files.names("") == ["_b", "c.tmp"]


def test_a_working_directory_is_ours_alone_or_not_used(tmp_path):
    mine, read, others = tmp_path / "mine", tmp_path / "read", tmp_path / "others"
    assert is_private(str(mine)) and stat.S_IMODE(mine.stat().st_mode) == 0o700
    read.mkdir(mode=0o755)
    assert is_private(str(read)) and stat.S_IMODE(read.stat().st_mode) == 0o700
    others.mkdir()
    others.chmod(0o777)
    (tmp_path / "link").symlink_to(mine)
    assert not is_private(str(others)) and not is_private(str(tmp_path / "link"))


@pytest.mark.parametrize(
    "url",
    [
        "mysql://user:SECRET@host/db",
        "user:SECRET@host",
        "mysql://host/db?password=SECRET",
        "mysql://u:SE@SECRET@host/db",
    ],
)
def test_a_wrong_url_of_a_store_is_refused_without_its_secrets(url):
    with pytest.raises(ProgramError, match="expected a PostgreSQL URL") as caught:
        open_backing_store(url, "q")
    assert "SECRET" not in str(caught.value)


def test_a_store_that_fails_says_so_without_its_secrets(caplog):
    store = PostgresStore("postgresql://user:SECRET@127.0.0.1:1/none", "q")
    assert store.collect("a") is None
    assert "the backing store" in caplog.text and "SECRET" not in caplog.text


def test_a_checkpoint_that_cannot_be_written_says_so_before_anything_runs(tmp_path, monkeypatch):
    def fails(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(module.os, "link", fails)
    with pytest.raises(StorageError, match="Read-only file system"):
        Checkpoint(LocalFiles(str(tmp_path))).bind(DescribedProgram())
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
