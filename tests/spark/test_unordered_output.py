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


def test_other_formats_come_through_the_driver_and_keep_the_order_of_keys(spark, tmp_path):
    rows = [(n * 7 % 11, "ab"[n % 2], n / 3) for n in range(900)]
    stream = ab.session(spark).from_rows(rows, COLUMNS).process(Running(), by="k", schema=COLUMNS)
    writer = stream.writeStream.format("memory").queryName("unordered").option("order", "key").option("channels", 3)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found, expected = stream.schema.rows(query.sink.table().columns), stream.run_sequential()
    for key in range(11):
        assert exact([r for r in found if r.k == key]) == exact([r for r in expected if r.k == key])
    assert len(found) == len(expected)
