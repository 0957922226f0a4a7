"""A checkpoint and an output that only Hadoop can reach: no process may open them as files."""

import shutil
import tempfile
from pathlib import Path

import pytest

import anabranch as ab
from anabranch.api.session import from_epochs
from anabranch.errors import CheckpointError, StorageError
from anabranch.spark.hadoop_files import open_files, qualified
from anabranch.state.checkpoint import Checkpoint, Manifest
from anabranch.state.described_program import DescribedProgram
from anabranch.state.host_cache import HostCache
from anabranch.state.manifest_facts import ManifestFacts
from tests.programs import COLUMNS, build, exact

pytestmark = pytest.mark.spark


@pytest.fixture
def remote(spark, tmp_path):
    """A file system of another scheme: viewfs, mounted on a directory that only it knows."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.test.link./data", f"file://{tmp_path}")
    yield "viewfs://test/data"
    settings.unset("fs.viewfs.mounttable.test.link./data")


def run(stream: ab.Stream, remote: str) -> None:
    query = (
        stream.writeStream.option("checkpointLocation", f"{remote}/ck")
        .trigger(availableNow=True)
        .start(f"{remote}/out")
    )
    query.awaitTermination()


def test_state_and_output_go_through_hadoop_and_come_back_after_the_host_lost_its_copies(spark, remote, tmp_path):
    rows = [[(k, "a", float(n)) for k in range(7)] for n in range(4)]
    streams = ab.session(spark)
    run(build(from_epochs(rows[:2], COLUMNS, session=streams), ["running"]), remote)
    working = Path(HostCache(f"{remote}/ck/anabranch/state").directory)
    assert list(working.rglob("*.segment"))
    shutil.rmtree(working)  # as on a new host
    whole = build(from_epochs(rows, COLUMNS, session=streams), ["running"])
    run(whole, remote)
    delivered = [
        tuple(row)
        for part in sorted((tmp_path / "out").glob("part-*"))
        for row in spark.read.parquet(str(part)).collect()
    ]
    assert delivered == [tuple(row) for row in whole.run_sequential()]
    assert exact(whole.run_sequential())


def test_files_through_hadoop_behave_as_local_ones(spark, remote):
    files = open_files(spark, f"{remote}/files")
    assert files.read("a/b") is None and files.names("a") == []
    files.write("a/b", b"one")
    files.write("a/b", memoryview(b"two"))
    assert files.read("a/b") == b"two" and files.names("a") == ["b"]
    files.delete("a/b")
    files.delete("a/b")
    assert files.names("a") == []


def test_a_path_without_a_scheme_is_on_the_default_file_system_as_for_spark(spark, tmp_path):
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    before = settings.get("fs.defaultFS")
    settings.set("fs.defaultFS", "viewfs://test/")
    try:
        assert qualified(spark, "/data/ck") == "viewfs://test/data/ck"
        assert qualified(spark, f"file://{tmp_path}/ck") == f"file://{tmp_path}/ck"
        open_files(spark, f"file://{tmp_path}/ck").write("a", b"x")
        assert (tmp_path / "ck" / "a").read_bytes() == b"x"
    finally:
        settings.set("fs.defaultFS", before)
    assert qualified(spark, f"{tmp_path}/a/../ck/") == f"{tmp_path}/ck"


def test_the_working_directory_is_below_the_temporary_directory():
    assert HostCache("hdfs://x/y").directory.startswith(tempfile.gettempdir())


def test_what_is_created_through_hadoop_is_created_once_and_cleared_whole(spark, remote):
    files = open_files(spark, f"{remote}/created")
    assert files.create("a/b", b"one") and not files.create("a/b", b"two")
    assert files.read("a/b") == b"one" and files.names("a") == ["b"]
    with pytest.raises(StorageError, match=r"cannot read .*created/a"):
        files.read("a")
    files.clear("a")
    files.clear("a")
    assert files.names("a") == [] and files.names("") == []


def test_a_checkpoint_on_hadoop_has_one_owner(spark, remote):
    first, second = Checkpoint(open_files(spark, f"{remote}/own")), Checkpoint(open_files(spark, f"{remote}/own"))
    first.bind(DescribedProgram())
    first.commit(Manifest(0, {}, ManifestFacts()))
    second.bind(DescribedProgram())
    with pytest.raises(CheckpointError, match="has taken over"):
        first.commit(Manifest(1, {}, ManifestFacts()))
    second.commit(Manifest(1, {}, ManifestFacts()))
    assert second.latest().owner == 2
