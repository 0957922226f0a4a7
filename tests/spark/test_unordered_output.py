"""Outputs that need no total order, written by the channels themselves."""

import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.spark.sinks import FileSink
from anabranch.testing import run_sequential
from tests.programs import COLUMNS, Running, exact

pytestmark = pytest.mark.spark


def test_channels_write_files_in_the_order_of_their_keys_and_the_driver_sees_no_tuple(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(FileSink, "write", lambda *_: pytest.fail("a table came through the driver"))
    rows = [(n * 7 % 11, "ab"[n % 2], n / 3) for n in range(4000)]
    source = ab.session(spark).from_rows(rows, COLUMNS, rows_per_epoch=1500)
    stream = source.process(Running(), by="k", schema=COLUMNS)
    light = source.filter(lambda t: t.x > 5)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck"))
    writer.option("order", "key").option("channels", 3)
    writer.also(light.writeStream.option("path", str(tmp_path / "light")).option("order", "none"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    expected = run_sequential([stream, light])
    found = {}
    for name in ("out", "light"):
        files = sorted((tmp_path / name).glob("part-*"))
        found[name] = [row for file in files for row in stream.schema.rows(pq.read_table(file).columns)]
        assert not list((tmp_path / name).glob("_staged-*"))
    assert len(list((tmp_path / "out").glob("part-*"))) == 3 * 3  # a file of every channel and epoch
    assert sorted(exact(found["out"])) == sorted(exact(expected[0]))
    assert sorted(exact(found["light"])) == sorted(exact(expected[1]))
    assert exact(found["out"]) != exact(expected[0])
    for key in range(11):
        mine = [[row for row in rows if row.k == key] for rows in (found["out"], expected[0])]
        assert exact(mine[0]) == exact(mine[1])
    assert sum(each["rows_out"] for each in query.recentProgress) == len(expected[0]) + len(expected[1])


def test_a_table_in_memory_comes_through_the_driver_and_keeps_the_order_of_keys(spark, tmp_path):
    rows = [(n * 7 % 11, "ab"[n % 2], n / 3) for n in range(900)]
    stream = ab.session(spark).from_rows(rows, COLUMNS).process(Running(), by="k", schema=COLUMNS)
    writer = stream.writeStream.format("memory").queryName("unordered").option("order", "key").option("channels", 3)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found, expected = stream.schema.rows(query.sink.table().columns), stream.run_sequential()
    for key in range(11):
        assert exact([r for r in found if r.k == key]) == exact([r for r in expected if r.k == key])
    assert len(found) == len(expected)


def test_spark_makes_other_formats_of_what_channels_wrote_and_the_driver_sees_no_tuple(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(FileSink, "write", lambda *_: pytest.fail("a table came through the driver"))
    rows = [(n * 7 % 11, "ab"[n % 2], n / 4) for n in range(900)]
    source = ab.session(spark).from_rows(rows, COLUMNS, rows_per_epoch=500)
    stream = source.process(Running(), by="k", schema=COLUMNS)
    words = stream.map(lambda t: (f"{t.k} {t.x}",), schema="word string")
    writer = stream.writeStream.format("json").option("checkpointLocation", str(tmp_path / "ck"))
    writer.option("order", "key").option("channels", 3)
    formats = {"csv": {"header": "true"}, "orc": {}, "parquet": {"parquet.block.size": "1048576"}}
    for name, options in formats.items():
        other = stream.writeStream.format(name).options(**options)
        writer.also(other.option("path", str(tmp_path / name)).option("order", "key"))
    gzipped = words.writeStream.format("text").option("compression", "gzip").option("order", "none")
    writer.also(gzipped.option("path", str(tmp_path / "text")))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "json"))
    query.awaitTermination()
    expected = stream.run_sequential()
    for name, options in {"json": {}, **formats}.items():
        files = sorted((tmp_path / name).glob("part-*"))
        assert len(files) == 2 * 3, name  # a file of every channel and epoch
        reader = spark.read.schema(COLUMNS).options(**options).format(name)
        found = [tuple(row) for file in files for row in reader.load(str(file)).collect()]
        for key in range(11):
            mine = [tuple(row) for row in expected if row.k == key]
            assert [row for row in found if row[0] == key] == mine, (name, key)
    found = sorted(row.value for row in spark.read.text(str(tmp_path / "text")).collect())
    assert found == sorted(f"{t.k} {t.x}" for t in expected)
    assert list((tmp_path / "text").glob("part-*.txt.gz"))
    for name in ("json", "csv", "orc", "parquet", "text"):
        assert not [file for file in (tmp_path / name).iterdir() if file.name.startswith(("_sta", ".part"))], name


def test_mergers_write_json_in_the_order_of_one_thread(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(FileSink, "write", lambda *_: pytest.fail("a table came through the driver"))
    rows = [(n * 7 % 11, "ab"[n % 2], n / 4) for n in range(600)]
    stream = ab.session(spark).from_rows(rows, COLUMNS).process(Running(), by="k", schema=COLUMNS)
    writer = stream.writeStream.format("json").option("checkpointLocation", str(tmp_path / "ck"))
    writer = writer.option("channels", 3).option("mergers", 2)
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    files = sorted((tmp_path / "out").glob("part-*.json"))
    assert len(files) == 2
    found = [tuple(row) for file in files for row in spark.read.schema(COLUMNS).json(str(file)).collect()]
    assert found == [tuple(row) for row in stream.run_sequential()]
