"""Output in directories by columns, on Spark: each directory has its tuples in the order of one thread, once."""

import collections
import datetime

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch import faults
from anabranch.errors import SinkError

pytestmark = pytest.mark.spark
START = datetime.datetime(2024, 3, 1, 23, 59, tzinfo=datetime.UTC)


class Count(ab.Operator):
    n: int = ab.state(default=0)

    def process(self, t):
        self.n += 1
        yield t.k, self.n, f"{t.at:%H:%M}", t.at.date()


@pytest.mark.parametrize("format_name", ["parquet", "csv"])
def test_partitioned_files_have_the_stream_in_order_and_once(spark, tmp_path, format_name):
    rows = [(f"k{n % 7}", START + datetime.timedelta(seconds=n)) for n in range(200)]
    stream = ab.session(spark).from_rows(rows, "k string, at timestamp", rows_per_epoch=80)
    counts = stream.process(Count(), by="k", schema="k string, n long, hm string, dt date")

    def run():
        writer = counts.writeStream.format(format_name).partitionBy("dt", "hm")
        writer = writer.options(checkpointLocation=str(tmp_path / "c"), channels=3).trigger(availableNow=True)
        writer.start(str(tmp_path / "out")).awaitTermination()

    def die(point, facts):
        if point == "files checked" and facts["epoch"] == 1:
            raise RuntimeError("died before the second epoch's files are all there")

    faults.install(die)
    try:
        with pytest.raises(Exception, match="died before"):
            run()
    finally:
        faults.install(None)
    run()
    expected = collections.defaultdict(list)
    for k, n, hm, dt in counts.run_sequential():
        expected[f"dt={dt}/hm={hm.replace(':', '%3A')}"].append((k, n))
    found = {}
    for folder in expected:
        parts = sorted((tmp_path / "out" / folder).glob("part-*"))
        if format_name == "csv":
            lines = [line.split(",") for part in parts for line in part.read_text().splitlines()]
            found[folder] = [(k, int(n)) for k, n in lines]
        else:
            read = [pq.ParquetFile(part).read().to_pydict() for part in parts]
            found[folder] = [pair for each in read for pair in zip(each["k"], each["n"], strict=True)]
    assert found == expected and len(found) == 4
    back = spark.read.format(format_name).schema("k string, n long, dt date, hm string").load(str(tmp_path / "out"))
    assert sorted(map(tuple, back.select("k", "n", "hm", "dt").collect())) == sorted(
        map(tuple, counts.run_sequential())
    )


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_task_of_sparks_may_write_several_files(spark, tmp_path, partitioned):
    rows = [(f"k{n % 3}", n) for n in range(50)]
    stream = ab.session(spark).from_rows(rows, "k string, n long", rows_per_epoch=40)
    writer = stream.writeStream.format("csv").option("maxRecordsPerFile", 4)
    writer = writer.partitionBy("k") if partitioned else writer
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    writer.start(str(tmp_path / "out")).awaitTermination()
    for k in ["k0", "k1", "k2"] if partitioned else [""]:
        folder = tmp_path / "out" / (f"k={k}" if k else "")
        parts = [part.read_text().splitlines() for part in sorted(folder.glob("part-*"))]
        assert len(parts) > 2 and max(map(len, parts)) <= 4
        assert [int(line.split(",")[-1]) for part in parts for line in part] == [
            n for at, n in rows if at == k or not k
        ]


def test_a_text_with_a_zero_byte_is_no_directory(spark, tmp_path):
    stream = ab.session(spark).from_rows([("a\0b", 1)], "k string, n long")
    writer = stream.writeStream.partitionBy("k").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(SinkError, match=r"partitionBy: .*x00.* cannot be the name of a directory"):
        writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()


def test_only_files_are_partitioned(spark):
    stream = ab.session(spark).from_rows([("a", 1)], "k string, n long")
    with pytest.raises(SinkError, match="'memory' writes no files"):
        stream.writeStream.format("memory").queryName("x").partitionBy("k").start()
    with pytest.raises(SinkError, match="no such column"):
        stream.writeStream.partitionBy("x").option("checkpointLocation", "c").start("out")
    with pytest.raises(SinkError, match="expected names"):
        stream.writeStream.partitionBy()
