"""The files at both ends of a query: rows that came from memory, output that is one query's, Spark's own log."""

import datetime
import unittest.mock
import urllib.parse
import zoneinfo
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import faults
from anabranch.api.session import from_epochs
from anabranch.engine.driver import parquet_files as parquet_files_module
from anabranch.engine.driver.output_directory import MARK, OutputDirectory
from anabranch.engine.driver.output_partitions import OutputPartitions
from anabranch.engine.driver.parquet_files import in_files, parquet_files
from anabranch.engine.driver.sink import Holder
from anabranch.errors import CheckpointError, SinkError
from anabranch.program.schema import Schema
from anabranch.spark import batch_log
from anabranch.spark.batch_log import BatchLog
from anabranch.spark.row_files import INDEX, RowFiles, write_rows
from anabranch.state.files import LocalFiles
from anabranch.state.manifest_facts import ManifestFacts

COLUMNS = "k long, s string, x double"


def row(n: int) -> tuple:
    return n, f"s{n}", float("nan") if n % 3 else -0.0


# -- rows in memory -----------------------------------------------------------------------------------------


def write(files: LocalFiles, epochs: list[list[tuple]], query: str = "q") -> list[list[tuple]]:
    """Bring the files up to a list; what they hold then."""
    node = from_epochs(epochs, COLUMNS, name="rows")._node
    (named,) = RowFiles([node]).rows.values()
    write_rows(files, *named, query, lambda: None)
    names = [name for name in files.names("") if name.endswith(".parquet")]
    return [[repr(tuple(r)) for r in node.schema.rows(pq.read_table(files.path(name)).columns)] for name in names]


def text(epochs: list[list[tuple]]) -> list[list[str]]:
    return [[repr(each) for each in rows] for rows in epochs]


def cut(rows: list[tuple], size: int) -> list[list[tuple]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def test_a_list_that_grows_within_its_last_epoch_loses_nothing(tmp_path):
    files = LocalFiles(str(tmp_path))
    rows = [row(n) for n in range(7)]
    assert write(files, cut(rows[:3], 2)) == text([rows[:2], rows[2:3]])
    grown = write(files, cut(rows, 2))
    assert grown == text([rows[:2], rows[2:3], rows[3:4], rows[4:6], rows[6:]])
    assert write(files, cut(rows, 2)) == grown == write(files, cut(rows[:5], 2))


def test_empty_epochs_are_epochs(tmp_path):
    epochs = [[row(1)], [], [row(2)], []]
    assert write(LocalFiles(str(tmp_path)), epochs[:2]) == text(epochs[:2])
    assert write(LocalFiles(str(tmp_path)), epochs) == text(epochs)


def test_a_list_whose_rows_changed_is_refused_and_nothing_is_written(tmp_path):
    files = LocalFiles(str(tmp_path))
    rows = [row(n) for n in range(6)]
    before = write(files, cut(rows, 2))
    with pytest.raises(CheckpointError, match=r"rows 2 to 3 of its list differ .* may grow at its end"):
        write(files, cut([*rows[:3], row(9), *rows[4:], row(6)], 2))
    assert write(files, cut(rows, 2)) == before


def test_a_list_that_was_replaced_by_a_shorter_one_is_refused(tmp_path):
    """Its rows would be neither those that were read nor ever read."""
    files = LocalFiles(str(tmp_path))
    rows = [row(n) for n in range(6)]
    before = write(files, cut(rows, 4))
    for shorter in ([], rows[:1], rows[:3], rows[:5]):
        assert write(files, cut(shorter, 4)) == before
    for other in ([row(9)], [*rows[:2], row(9)], [*rows[:4], row(9)]):
        with pytest.raises(CheckpointError, match=f"to {len(other) - 1} of its list differ"):
            write(files, cut(other, 4))


def test_files_of_rows_that_are_lost_or_damaged_are_made_again_from_the_list(tmp_path):
    files = LocalFiles(str(tmp_path))
    rows = [row(n) for n in range(6)]
    before = write(files, cut(rows, 2))
    dates = [path.stat().st_mtime for path in sorted(tmp_path.glob("*.parquet"))]
    for damage in (b"", b"x" * 10, (tmp_path / "000000002.parquet").read_bytes(), None):
        files.delete("000000001.parquet") if damage is None else files.write("000000001.parquet", damage)
        assert write(files, cut(rows, 2)) == before
    assert [path.stat().st_mtime for path in sorted(tmp_path.glob("*.parquet"))] == dates
    files.delete("000000001.parquet")
    with pytest.raises(CheckpointError, match=r"000000001.parquet is damaged: its rows are not in the list"):
        write(files, cut(rows[:1], 2))


def test_an_index_that_is_lost_is_made_again_and_a_damaged_or_foreign_one_is_refused(tmp_path):
    files = LocalFiles(str(tmp_path))
    rows = [row(n) for n in range(4)]
    before = write(files, cut(rows, 2))
    index = files.read(INDEX)
    files.delete(INDEX)
    assert write(files, cut(rows, 2)) == before and files.read(INDEX) == index
    for data in (index[:-1], index.replace(b"rows", b"rowz"), b""):
        files.write(INDEX, data)
        with pytest.raises(CheckpointError, match=r"_rows\.json is damaged"):
            write(files, cut(rows, 2))
    files.write(INDEX, index)
    with pytest.raises(CheckpointError, match="belongs to another query"):
        write(files, cut(rows, 2), "another")


def test_files_that_an_older_index_does_not_know_are_not_cut_anew(tmp_path):
    """A driver that was frozen while it wrote its shorter list wakes up: Spark has read what its successor wrote."""
    files = LocalFiles(str(tmp_path))
    rows = [row(n) for n in range(9)]
    write(files, cut(rows[:3], 2))
    older = files.read(INDEX)
    before = write(files, cut(rows[:5], 2))
    files.write(INDEX, older)
    assert write(files, cut(rows, 2)) == [*before, *text([rows[5:6], rows[6:8], rows[8:]])]
    files.write(INDEX, older)
    with pytest.raises(CheckpointError, match=r"_rows.json does not know 000000002.parquet, .* the list was changed"):
        write(files, cut([*rows[:3], row(20)], 2))


def test_a_driver_that_was_fenced_writes_no_rows(tmp_path):
    files = LocalFiles(str(tmp_path))
    node = from_epochs([[row(1)], [row(2)]], COLUMNS, name="rows")._node
    (named,) = RowFiles([node]).rows.values()

    def fenced() -> None:
        raise CheckpointError("another driver has taken over")

    with pytest.raises(CheckpointError, match="taken over"):
        write_rows(files, *named, "q", fenced)
    assert files.names("") == []


# -- output ---------------------------------------------------------------------------------------------------


def test_a_directory_is_one_querys_and_says_so(tmp_path):
    files = LocalFiles(str(tmp_path))
    directory = OutputDirectory(files, "parquet", "x bigint")
    directory.check(Holder("here", None))
    directory.prepare(Holder("here", "q", 1))
    directory.prepare(Holder("here", "q", 2))
    with pytest.raises(SinkError, match="belongs to the query with the checkpoint here; this query has the checkpoint"):
        directory.check(Holder("there", "p"))
    with pytest.raises(SinkError, match=r"belongs to the query q, whose checkpoint was in here; .* a new query"):
        directory.check(Holder("here", None))  # the checkpoint was deleted, the output was not
    with pytest.raises(SinkError, match="holds parquet, not json"):
        OutputDirectory(files, "json", "x bigint").check(Holder("here", "q"))
    with pytest.raises(SinkError, match="holds the columns x bigint; the program now writes x string"):
        OutputDirectory(files, "parquet", "x string").check(Holder("here", "q"))


def test_every_damage_of_the_mark_is_a_clear_error(tmp_path):
    from tests.state.test_checkpoint import damages

    files = LocalFiles(str(tmp_path))
    OutputDirectory(files, "parquet", "x bigint").prepare(Holder("here", "q", 1))
    good = files.read(MARK)
    OutputDirectory(LocalFiles(str(tmp_path / "other")), "parquet", "x bigint").prepare(Holder("here", "another", 1))
    for how, data in damages(good, (tmp_path / "other" / MARK).read_bytes()).items():
        files.write(MARK, data)
        with pytest.raises(SinkError, match=r"_anabranch\.json is damaged|belongs to the query another"):
            OutputDirectory(files, "parquet", "x bigint").check(Holder("here", "q"))
            pytest.fail(how)


def test_an_epoch_that_is_published_again_replaces_what_was_there(tmp_path):
    directory = OutputDirectory(LocalFiles(str(tmp_path)), "json", "x bigint")
    directory.prepare(Holder("here", "q", 1))
    directory.publish(3, {"00000.json": b"a", "00001.json": b"b"})
    directory.publish(4, {"00000.json": b"c"})
    directory.publish(3, {"00000.json": b"ab"})
    parts = {path.name: path.read_bytes() for path in tmp_path.glob("part-*")}
    assert parts == {"part-000000000003-00000.json": b"ab", "part-000000000004-00000.json": b"c"}
    directory.publish(3, {})
    assert [path.name for path in tmp_path.glob("part-*")] == ["part-000000000004-00000.json"]


@pytest.mark.parametrize("day", ["day", "_day", ".day", "part-day"])
def test_what_is_published_again_into_directories_is_there_once(tmp_path, day):
    directory = OutputDirectory(LocalFiles(str(tmp_path), durable=True), "csv", "x bigint", f"{day}, hour")
    directory.prepare(Holder("here", "q", 1))
    directory.publish(3, {f"{day}=1/hour=2/00000.csv": b"a", f"{day}=1/hour=3/00000.csv": b"b"})
    directory.publish(4, {f"{day}=1/hour=2/00000.csv": b"c"})
    (tmp_path / f"{day}=1" / "hour=2" / "_x.1.tmp").write_bytes(b"of a driver that died")
    directory.prepare(Holder("here", "q", 2))
    directory.publish(3, {f"{day}=1/hour=2/00000.csv": b"ab"})
    parts = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    parts.pop(MARK)
    assert parts == {
        f"{day}=1/hour=2/part-000000000003-00000.csv": b"ab",
        f"{day}=1/hour=2/part-000000000004-00000.csv": b"c",
    }
    with pytest.raises(SinkError, match=rf"partitioned by {day}, hour.*writes x bigint,"):
        OutputDirectory(LocalFiles(str(tmp_path)), "csv", "x bigint").check(Holder("here", "q"))


values = st.fixed_dictionaries(
    {
        "s": st.one_of(st.none(), st.sampled_from(["", "a", "a=b/c", "ü:%", "[x]{y}^\x01"])),
        "n": st.one_of(st.none(), st.integers(-3, 3)),
        "on": st.booleans(),
        "at": st.sampled_from([datetime.datetime(2024, 6, 1, 12), datetime.datetime(2024, 6, 1, 12, 0, 0, 5)]),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(values, max_size=20), st.permutations(["s", "n", "on", "at"]), st.integers(1, 4))
def test_output_is_taken_apart_in_order_and_put_together_again(rows, names, count):
    """The oracle reads the directories' names as Hive's convention says."""
    schema = Schema.of("s string, n long, on boolean, at timestamp_ntz, place long")
    numbered = [(*(row[name] for name in ("s", "n", "on", "at")), place) for place, row in enumerate(rows)]
    table = pa.table([pa.array([r[at] for r in numbered], f.type) for at, f in enumerate(schema.arrow)], schema.arrow)
    partitions = OutputPartitions(schema, names[:count])
    found = {}
    for folder, places in partitions.apart(table):
        parts = dict(part.split("=", 1) for part in folder.split("/"))
        assert list(parts) == names[:count]
        told = {
            name: None if text == "__HIVE_DEFAULT_PARTITION__" else urllib.parse.unquote(text)
            for name, text in parts.items()
        }
        kept = partitions.kept(table).take(places).to_pylist()
        assert partitions.parts(table)[folder].to_pylist() == kept
        assert [row["place"] for row in kept] == sorted(row["place"] for row in kept)
        assert all(name not in row for row in kept for name in told)
        found.update({row["place"]: told for row in kept})
    told_of = {"s": lambda v: v or None, "n": str, "on": lambda v: str(v).lower()}
    told_of["at"] = lambda v: str(v).rstrip("0") if v.microsecond else str(v)
    expected = {
        place: {name: None if row[name] is None else told_of[name](row[name]) for name in names[:count]}
        for place, row in enumerate(rows)
    }
    assert found == expected


def test_moments_that_are_written_alike_have_one_directory():
    """The hour that comes twice when clocks are put back; files stand in the order of the stream."""
    start = datetime.datetime(2024, 10, 26, 23, 30, tzinfo=datetime.UTC)
    rows = [(start + datetime.timedelta(minutes=30 * n), n) for n in [0, 2, 4, 1, 3, 5, 2, 4]]
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=["at", "n"])
    table = table.cast(Schema.of("at timestamp, n long").arrow)
    partitions = OutputPartitions(Schema(table.schema), ["at"], "Europe/Paris")
    found = {folder: part["n"].to_pylist() for folder, part in partitions.parts(table).items()}
    expected = {}
    for at, n in rows:
        local = at.astimezone(zoneinfo.ZoneInfo("Europe/Paris"))
        expected.setdefault(f"at={local:%Y-%m-%d %H%%3A%M%%3A%S}", []).append(n)
    assert found == expected and len(found) == 4


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 400_000), st.integers(1, 5), st.sampled_from(["zstd", "snappy"]))
def test_the_files_of_an_epoch_are_its_rows_in_order(rows, cores, compression):
    table = pa.table({"n": np.arange(rows), "x": np.arange(rows) / 3})
    with unittest.mock.patch.object(parquet_files_module, "_cores", lambda: cores):
        files = parquet_files(in_files(table), compression)
    assert list(files) == sorted(files) and 1 <= len(files) <= cores
    read = [pq.read_table(pa.BufferReader(content)) for content in files.values()]
    assert pa.concat_tables(read).equals(table)
    assert len(files) == 1 or min(part.nbytes for part in read) > 1 << 20


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (["nope"], "no such column; columns: s, x, n"),
        (["x"], "double, which is no name"),
        (["s", "s"], "twice"),
        (["s", "n", "x"], "double"),
    ],
)
def test_columns_that_name_no_directory_are_refused(columns, complaint):
    with pytest.raises(SinkError, match=complaint):
        OutputPartitions(Schema.of("s string, x double, n long"), columns)
    with pytest.raises(SinkError, match="none is left"):
        OutputPartitions(Schema.of("s string, n long"), ["s", "n"])


def test_only_staged_files_of_this_driver_are_published_and_those_of_the_dead_are_removed(tmp_path):
    directory = OutputDirectory(LocalFiles(str(tmp_path)), "parquet", "x bigint")
    directory.prepare(Holder("here", "q", 1))
    for name in ("_staged-000000000003-00000-a.parquet", "_staging-000001-x-part-3-/_temporary/0/part-0", "_a.1.tmp"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"of a driver that died")
    directory.prepare(Holder("here", "q", 2))
    assert [path.name for path in tmp_path.iterdir()] == [MARK]
    mine, next_epoch = "_staged-000000000003-00000-mine.parquet", "_staged-000000000004-00000-next.parquet"
    for name in (mine, "_staged-000000000003-00001-repeated.parquet", next_epoch):
        (tmp_path / name).write_bytes(name.encode())
    directory.publish_staged(3, [mine], ".parquet")
    assert {path.name for path in tmp_path.iterdir()} == {MARK, next_epoch, "part-000000000003-00000.parquet"}
    assert (tmp_path / "part-000000000003-00000.parquet").read_bytes() == mine.encode()
    assert directory.staging(3) != directory.staging(3)


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(("mine", "theirs"), [(1, 3), (3, 1), (2, 2)])
def test_a_driver_that_wakes_up_while_it_publishes_leaves_the_rows_of_its_epoch_once(tmp_path, committed, mine, theirs):
    """Frozen between its look and its files, it wakes up when its successor has published, or is about to."""
    rows = b"abcdef"
    files, owner, done = LocalFiles(str(tmp_path)), [1], []

    def directory(token: int) -> OutputDirectory:
        def check() -> None:
            if owner[0] > token:
                raise CheckpointError("another driver has taken over")

        again = {1: False, 2: True}[token]
        found = OutputDirectory(files, "parquet", "x bigint")
        found.prepare(Holder("here", "q", token, check, lambda epoch: again, lambda epoch: bool(done)))
        return found

    def content(count: int) -> dict[str, bytes]:
        return {f"{at:05d}.parquet": rows[at::count] for at in range(count)}

    def successor(point: str, facts: dict) -> None:
        faults.install(None)
        owner[0] = 2
        second.append(directory(2))
        if committed:
            second[0].publish(7, content(theirs))
            done.append(True)

    first, second = directory(1), []
    faults.install(successor)
    first.publish(7, content(mine))
    if not committed:
        second[0].publish(7, content(theirs))
    found = sorted(tmp_path.glob("part-*"))
    assert sorted(b"".join(path.read_bytes() for path in found)) == sorted(rows)


def test_a_driver_that_lost_the_checkpoint_publishes_nothing(tmp_path):
    def lost() -> None:
        raise CheckpointError("another driver has taken over")

    directory = OutputDirectory(LocalFiles(str(tmp_path)), "parquet", "x bigint")
    directory.prepare(Holder("here", "q", 1, lost))
    with pytest.raises(CheckpointError, match="taken over"):
        directory.publish(1, {"00000.parquet": b"x"})
    with pytest.raises(CheckpointError, match="taken over"):
        directory.publish_staged(1, ["_staged-1"], ".parquet")
    assert [path.name for path in tmp_path.iterdir()] == [MARK]


# -- Spark's log ----------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path) -> LocalFiles:
    files = LocalFiles(str(tmp_path))
    for number in range(3):
        files.write(f"offsets/{number}", f'v1\n{{"batchTimestampMs":{number}}}\n{{"logOffset":{number}}}\n7\n'.encode())
        files.write(f"sources/0/{number}", b"v1\n{}")
    return files


def test_a_log_that_fits_is_fine(log):
    facts = ManifestFacts(batch=2, batch_digest=BatchLog(log).digest(2))
    BatchLog(log).check(facts)
    BatchLog(log).check(ManifestFacts())
    log.write("sources/0/2.compact", b"v1")
    log.delete("sources/0/2")
    BatchLog(log).check(facts)


@pytest.mark.parametrize("name", ["offsets/2", "sources/0/2"])
def test_a_log_that_lost_what_the_manifest_was_made_from_is_refused(log, name):
    facts = ManifestFacts(batch=2, batch_digest=BatchLog(log).digest(2))
    log.delete(name)
    with pytest.raises(CheckpointError, match=f"{name} is missing: .* Restore offsets"):
        BatchLog(log).check(facts)


def test_a_log_of_another_run_is_refused(log):
    facts = ManifestFacts(batch=2, batch_digest=BatchLog(log).digest(2))
    log.write("offsets/2", b'v1\n{"batchTimestampMs":99}\n{"logOffset":2}\n')
    with pytest.raises(CheckpointError, match="offsets/2 is another than it was"):
        BatchLog(log).check(facts)


def test_two_outputs_in_one_place_are_refused():
    from anabranch.api.writer import _check_places

    class Somewhere:
        def __init__(self, place: str | None) -> None:
            self.place = place

    _check_places([Somewhere("/a"), Somewhere("/ab"), Somewhere(None), Somewhere(None)])
    for one, other in (("/a", "/a"), ("/a", "/a/b"), ("/a/b", "/a"), ("memory:x", "memory:x")):
        with pytest.raises(SinkError, match="two outputs of this query go to one place"):
            _check_places([Somewhere(one), Somewhere(other)])


def test_a_checkpoint_among_output_is_refused(tmp_path):
    from anabranch.api.writer import _check_checkpoint_is_no_output

    class Out:
        place = str(tmp_path / "out")

    (tmp_path / "link").symlink_to(tmp_path / "out")
    for inside in ("out", "out/checkpoint", "out/_checkpoint/", "x/../out/c", "link/c"):
        with pytest.raises(SinkError, match=r"is in the output path .* a directory of its own"):
            _check_checkpoint_is_no_output([Out()], f"{tmp_path}/{inside}")
    for beside in ("outside", "c", "hdfs://there/out"):
        _check_checkpoint_is_no_output([Out()], f"{tmp_path}/{beside}" if ":" not in beside else beside)
    _check_checkpoint_is_no_output([Out()], None)


def test_rows_that_do_not_fit_are_found_before_anything_is_written():
    node = ab.from_rows([(1, "a", 1.0), (2, "b", "no number")], COLUMNS)._node
    with pytest.raises(ab.AnabranchError):
        RowFiles([node])


@pytest.mark.parametrize("durable", [False, True])
def test_all_that_a_start_reads_of_the_log_is_on_the_disk_before_a_manifest_relies_on_it(
    log, tmp_path, monkeypatch, durable
):
    """Spark's files of checksums, too: it does not believe a file whose own is damaged."""
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        path.with_name(f".{path.name}.crc").write_bytes(b"crc")
    for name in ("metadata", ".metadata.crc"):
        (tmp_path / name).write_bytes(b"x")
    synced: list[str] = []
    monkeypatch.setattr(batch_log, "sync", lambda path: synced.append(str(Path(path).relative_to(tmp_path))))
    held = BatchLog(LocalFiles(str(tmp_path), durable))
    held.digest(1)
    once = {"metadata", ".metadata.crc"}
    of_1 = {"offsets/1", "offsets/.1.crc", "sources/0/1", "sources/0/.1.crc"}
    directories = {"offsets", "sources/0", "sources", "."}
    assert set(synced) == (once | of_1 | directories if durable else set())
    assert not durable or max(map(synced.index, once | of_1)) < min(map(synced.index, directories))
    synced.clear()
    held.digest(2)
    assert set(synced) == ({name.replace("1", "2") for name in of_1} | directories if durable else set())
