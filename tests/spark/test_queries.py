"""Whole queries on Spark, against the sequential run."""

import dataclasses
import json
import os
import random
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, tumbling
from anabranch.api.session import from_epochs
from anabranch.errors import SinkError
from tests.programs import COLUMNS, Plain, build, epochs, exact, programs

pytestmark = pytest.mark.spark


def run(stream: ab.Stream, channels: int = 3, checkpoint: str | None = None) -> list[ab.Row]:
    writer = stream.writeStream.format("memory").queryName("result").option("channels", channels)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return stream.schema.rows(query.sink.table().columns)


def read_parts(path: Path, schema: ab.Schema) -> list[ab.Row]:
    parts = sorted(path.glob("part-*"))
    return [row for part in parts for row in schema.rows(pq.read_table(part, schema=schema.arrow).columns)]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(epochs=epochs, steps=programs, channels=st.integers(1, 8))
def test_parallel_output_on_spark_is_the_sequential_output(spark, epochs, steps, channels):
    stream = build(from_epochs(epochs, COLUMNS, session=ab.session(spark)), steps)
    assert exact(run(stream, channels)) == exact(stream.run_sequential())


class Usage(NamedTuple):
    app: str
    flow: float


def write_files(directory: Path, count: int = 7, rows: int = 900) -> list[Usage]:
    """Files of very different sizes whose names, sizes and dates disagree about their order."""
    chance = random.Random(3)
    everything = []
    directory.mkdir()
    for number in range(count):
        size = chance.choice([0, 1, 17, rows])
        part = [Usage(f"app-{int(chance.paretovariate(1)) % 20}", chance.random()) for _ in range(size)]
        path = directory / f"{'zyxwvut'[number % 7]}-{number}.json"
        path.write_text("".join(json.dumps(row._asdict()) + "\n" for row in part))
        os.utime(path, (1_700_000_000 + number // 2, 1_700_000_000 + number // 2))
        everything.append((number // 2, str(path), part))
    return [row for _, _, part in sorted(everything, key=lambda item: item[:2]) for row in part]


def totals(stream: ab.Stream) -> ab.Stream:
    return stream.aggregate(by="app", window=tumbling(5), flow=agg.sum("flow"), n=agg.count())


@pytest.mark.parametrize("split_bytes", [2_000, 128_000_000])
def test_files_are_ordered_by_time_path_and_row_however_spark_cuts_them(spark, tmp_path, split_bytes):
    rows = write_files(tmp_path / "in")
    spark.conf.set("spark.sql.files.maxPartitionBytes", split_bytes)
    try:
        stream = ab.session(spark).from_files(str(tmp_path / "in"), "json", Usage)
        assert exact(run(totals(stream))) == exact(totals(stream).run_sequential(rows))
        assert exact(run(stream)) == exact(stream.run_sequential(rows))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_named_columns_order_a_dataframe_that_has_no_order_of_its_own(spark, tmp_path):
    rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 500).load()
    frame = rates.selectExpr("value", "cast(value % 7 as string) as k", "cast(value as double) / 3 as x").repartition(4)
    stream = ab.session(spark).read(frame, order_by="value").process(Plain(), by="k", schema="k string, x double")
    query = stream.writeStream.option("checkpointLocation", str(tmp_path / "ck")).start(str(tmp_path / "out"))
    while len(query.recentProgress) < 3 and query.isActive:
        query.awaitTermination(0.2)
    query.stop()
    delivered = read_parts(tmp_path / "out", stream.schema)
    rows = [(n, str(n % 7), n / 3) for n in range(len(delivered))]
    assert len(delivered) >= 1500
    assert exact(delivered) == exact(stream.run_sequential(rows))


def test_a_restart_continues_where_the_checkpoint_ends(spark, tmp_path):
    rows = [(n % 5, "a", float(n)) for n in range(100)]
    streams = ab.session(spark)
    first = build(from_epochs([rows[:50]], COLUMNS, session=streams), ["running"])
    got = run(first, 2, str(tmp_path))
    second = build(from_epochs([rows[:50], rows[50:]], COLUMNS, session=streams), ["running"])
    got += run(second, 2, str(tmp_path))
    assert exact(got) == exact(second.run_sequential())


@pytest.mark.parametrize("format_name", ["parquet", "json", "csv"])
def test_files_written_twice_are_there_once_and_in_order(spark, tmp_path, format_name):
    rows = [(n % 3, "a", n / 4) for n in range(60)]
    stream = build(ab.session(spark).from_rows(rows, COLUMNS, rows_per_epoch=25), ["running"])
    out = tmp_path / "out"
    query = (
        stream.writeStream.format(format_name)
        .option("checkpointLocation", str(tmp_path / "ck"))
        .trigger(availableNow=True)
        .start(str(out))
    )
    query.awaitTermination()
    before = {path.name: path.read_bytes() for path in out.glob("part-*")}
    reader = spark.read.schema("k long, s string, x double").format(format_name)
    delivered = [tuple(row) for part in sorted(before) for row in reader.load(str(out / part)).collect()]
    assert delivered == [tuple(row) for row in stream.run_sequential()]
    # Epoch 1 again, as after a crash between sink and manifest, with what a wider run left behind.
    (out / "part-000000000001-00007.stale").write_bytes(b"")
    table = pa.table(stream.schema.arrays(list(zip(*delivered[25:50], strict=True))), schema=stream.schema.arrow)
    directory = query.sink._directory
    directory._holder = dataclasses.replace(directory._holder, is_again=lambda epoch: epoch == 1)
    query.sink.write(table, 1)
    assert {path.name: path.read_bytes() for path in out.glob("part-*")} == before
    assert not list(out.glob("_staging*"))
    assert spark.read.schema(COLUMNS).format(format_name).load(str(out)).count() == 60


def test_foreach_batch_gets_each_epoch_as_an_ordered_dataframe(spark, tmp_path):
    got = []
    rows = [(n % 3, "a", n / 4) for n in range(60)]
    stream = build(ab.session(spark).from_rows(rows, COLUMNS, rows_per_epoch=25), ["running"])
    query = (
        stream.writeStream.foreachBatch(lambda df, epoch: got.append((epoch, [tuple(r) for r in df.collect()])))
        .option("checkpointLocation", str(tmp_path / "ck"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert [epoch for epoch, _ in got] == [0, 1, 2]
    assert [row for _, part in got for row in part] == [tuple(row) for row in stream.run_sequential()]


@pytest.mark.parametrize("cut", [(0, 2, 2), (2, 0, 2), (0, 0, 3), (1, 0, 0, 1)])
def test_the_memory_view_has_what_comes_after_an_epoch_without_output(spark, cut):
    numbers = iter(range(100))
    epochs = [[(next(numbers), True) for _ in range(size)] or [(-1, False)] for size in cut]
    stream = from_epochs(epochs, "x long, goes boolean", session=ab.session(spark)).filter(lambda t: t.goes)
    expected = stream.run_sequential()
    assert len(expected) == sum(cut) and exact(run(stream)) == exact(expected)
    assert [(row.x, row.goes) for row in spark.table("result").collect()] == [tuple(row) for row in expected]


def test_output_of_another_type_is_refused_before_it_spoils_the_directory(spark, tmp_path):
    def started(kind):
        stream = from_epochs([[(1,)], [(2,)]], "x long", session=ab.session(spark))
        stream = stream.map(lambda t: (t.x,), schema=f"x {kind}", name="typed")
        writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.trigger(availableNow=True).start(str(tmp_path / "out"))

    started("long").awaitTermination()
    with pytest.raises(SinkError, match=r"holds the columns `?x`? bigint; the program now writes `?x`? double"):
        started("double").awaitTermination()
    assert sorted(row.x for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [1, 2]


def test_the_memory_sink_is_a_view_and_the_query_has_sparks_names(spark, capsys):
    stream = ab.session(spark).from_rows([(1, "a", 2.0)], COLUMNS)
    query = stream.writeStream.format("memory").queryName("my_view").trigger(availableNow=True).start()
    assert query.awaitTermination(60) is True
    assert [tuple(row) for row in spark.table("my_view").collect()] == [(1, "a", 2.0)]
    assert query.isActive is False and query.exception() is None and query.name == "my_view"
    assert query.lastProgress["rows_in"] == 1 and query.lastProgress == query.recentProgress[-1]
    assert query.id != query.runId
    query.explain()
    assert "merged in the driver" in capsys.readouterr().out


def test_the_console_sink_prints_rows(spark, capsys):
    stream = ab.session(spark).from_rows([(1, "a", 2.0), (2, None, 0.5)], COLUMNS)
    stream.writeStream.format("console").trigger(availableNow=True).start().awaitTermination()
    shown = capsys.readouterr().out
    assert "|  k|   s|  x|" in shown and "|  2|NULL|0.5|" in shown


def test_timestamps_are_instants_in_utc_whatever_the_session_thinks(spark):
    import datetime

    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        moment = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
        stream = ab.session(spark).from_rows([(moment,)], "at timestamp").filter(lambda t: t.at.hour == 12)
        assert run(stream) == stream.run_sequential() == [(moment,)]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
