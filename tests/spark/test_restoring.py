"""Checkpoints that were restored in part, lists that grow, outputs in one place: on Spark, with its own log."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import CheckpointError, SinkError
from tests.programs import exact

pytestmark = pytest.mark.spark


def started(stream: ab.Stream, place: Path, **options) -> None:
    writer = stream.writeStream.option("checkpointLocation", str(place / "ck")).options(**options)
    writer.trigger(availableNow=True).start(str(place / "out")).awaitTermination()


def delivered(stream: ab.Stream, place: Path) -> list[str]:
    files = sorted((place / "out").glob("part-*"))
    return exact([row for file in files for row in stream.schema.rows(pq.read_table(file).columns)])


class Count(ab.Operator):
    seen: int = ab.state(default=0)

    def process(self, t):
        self.seen += 1
        yield (t.k, self.seen)


def test_a_list_that_grows_loses_nothing_and_one_that_changed_is_refused(spark, tmp_path):
    streams = ab.session(spark)

    def program(rows):
        source = streams.from_rows([(each,) for each in rows], "k long", rows_per_epoch=2, name="rows")
        return source.process(Count(), by="k", schema="k long, n long", name="count")

    started(program([1, 2, 3]), tmp_path, durability="power")
    whole = program([1, 2, 3, 4, 5, 3])
    started(whole, tmp_path)
    assert delivered(whole, tmp_path) == exact(whole.run_sequential())
    with pytest.raises(CheckpointError, match="differ from those that this query has"):
        started(program([1, 2, 9, 4, 5, 3]), tmp_path)


def test_a_checkpoint_restored_in_part_stops_the_query_before_it_reads_anything(spark, tmp_path):
    """The log of Spark's is lost, or an older copy of it comes back; new input must not be passed over."""
    streams = ab.session(spark)
    (tmp_path / "in").mkdir()

    def arrives(number: int) -> None:
        pq.write_table(pa.table({"k": [number, 7]}), tmp_path / "in" / f"{number}.parquet")

    program = streams.from_files(str(tmp_path / "in"), "parquet", "k long", name="rows").process(
        Count(), by="k", schema="k long, n long", name="count"
    )
    copies = []
    for number in range(2):
        arrives(number)
        started(program, tmp_path)
        copies.append(shutil.copytree(tmp_path / "ck", tmp_path / f"copy-{number}"))
    before = delivered(program, tmp_path)
    arrives(2)
    for copy in (None, copies[0]):
        for name in ("offsets", "commits", "sources"):
            shutil.rmtree(tmp_path / "ck" / name, ignore_errors=True)
            if copy is not None:
                shutil.copytree(copy / name, tmp_path / "ck" / name)
        with pytest.raises(CheckpointError, match=r"offsets/1 is missing: .* Restore offsets, commits and sources"):
            started(program, tmp_path)
        assert delivered(program, tmp_path) == before
    for name in ("offsets", "commits", "sources"):
        shutil.rmtree(tmp_path / "ck" / name, ignore_errors=True)
        shutil.copytree(copies[1] / name, tmp_path / "ck" / name)
    started(program, tmp_path)
    assert delivered(program, tmp_path) == [*before, "(k=2, n=1)", "(k=7, n=3)"]


def test_two_outputs_of_a_query_in_one_place_are_refused_and_nothing_is_written(spark, tmp_path):
    stream = ab.session(spark).from_rows([(1,)], "k long")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    for other in ("out", "./out/", "out/inner", "link"):
        writer = stream.writeStream.also(stream.writeStream.format("json").option("path", f"{tmp_path}/{other}"))
        with pytest.raises(SinkError, match="two outputs of this query go to one place"):
            writer.option("checkpointLocation", f"{tmp_path}/ck").start(f"{tmp_path}/out")
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
