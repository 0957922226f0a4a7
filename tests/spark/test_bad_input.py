"""Bad input on Spark: an error that names the operator or source and the line, and nothing is written."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch import agg, tumbling
from anabranch.errors import (
    AnabranchError,
    CheckpointError,
    InputError,
    OperatorError,
    OrderError,
    ProgramError,
    SchemaError,
    SinkError,
)

pytestmark = pytest.mark.spark

HERE = Path(__file__).name
COLUMNS = "k string, x long"


def started(stream: ab.Stream, work: Path):
    """The query, run to its end."""
    writer = stream.writeStream.option("checkpointLocation", str(work / "ck")).option("channels", 2)
    query = writer.trigger(availableNow=True).start(str(work / "out"))
    query.awaitTermination()
    return query


def files(*directories: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for each in directories for path in each.rglob("*") if path.is_file()}


def nothing_was_written(work: Path) -> bool:
    return not list(work.glob("out/part-*")) and not list(work.glob("ck/anabranch/epochs/*.json"))


def test_a_wrong_type_fails_the_epoch_with_operator_line_and_tuple(spark, tmp_path):
    stream = ab.session(spark).from_rows([("a", 1), ("a", 3)], COLUMNS)
    totals = stream.aggregate(by="k", window=tumbling(1), x=agg.sum("x"), name="totals")
    bad = totals.map(lambda t: (t.k, "three" if t.x == 3 else t.x), schema=COLUMNS, name="bad")
    with pytest.raises(OperatorError) as caught:
        started(bad, tmp_path)
    message = str(caught.value)
    assert f"operator bad ({__file__}:" in message and "epoch 0: returned the wrong type" in message
    assert "for the tuple (k='a', x=3)" in message
    assert caught.value.operator.startswith("bad (") and caught.value.epoch == 0
    assert nothing_was_written(tmp_path)


def test_of_several_stages_and_channels_that_fail_the_earliest_tuple_is_told(spark, tmp_path):
    def late(t):
        if t.x >= 70:
            raise ValueError("late")
        return t

    def early(t):
        if t.x % 20 == 19:
            raise ValueError("early")
        return t

    stream = ab.session(spark).from_rows([("abcdefgh"[n % 8], n) for n in range(100)], COLUMNS)
    totals = stream.map(late, schema=COLUMNS).aggregate(by="k", window=tumbling(1), x=agg.sum("x"))
    program = totals.map(early, schema=COLUMNS).aggregate(by="x", window=tumbling(1), n=agg.count())
    with pytest.raises(OperatorError) as expected:
        program.run_sequential()
    with pytest.raises(OperatorError) as caught:
        started(program, tmp_path)
    assert str(caught.value).replace(", epoch 0", "") == str(expected.value)
    assert (caught.value.operator, caught.value.row) == (expected.value.operator, "(k='d', x=19)")
    assert nothing_was_written(tmp_path)


def test_a_row_that_cannot_be_read_fails_the_epoch_and_names_the_source(spark, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.json").write_text('{"k": "a", "x": 1}\n{"k": "a", "x": \n')
    stream = ab.session(spark).from_files(str(tmp_path / "in"), "json", COLUMNS, name="tap")
    with pytest.raises(InputError, match=rf"source tap \(.*{HERE}:\d+\), epoch 0: .*cannot read a row"):
        started(stream.aggregate(by="k", window=tumbling(1), n=agg.count()), tmp_path)
    assert nothing_was_written(tmp_path)


def test_a_row_in_memory_that_does_not_fit_stops_the_start_and_nothing_is_written(spark, tmp_path):
    stream = ab.session(spark).from_rows([("a", 1), ("a", "b")], COLUMNS, rows_per_epoch=1, name="tap")
    with pytest.raises(InputError, match=rf"source tap \(.*{HERE}:\d+\): row 1 does not fit"):
        started(stream, tmp_path)
    assert files(tmp_path) == {}


def test_an_output_path_with_other_content_is_refused_and_nothing_is_written(spark, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/precious.csv").write_text("1,2\n")
    before = files(tmp_path)
    stream = ab.session(spark).from_rows([("a", 1)], COLUMNS)
    with pytest.raises(SinkError, match=r"out exists and holds other content \(precious\.csv\).*Choose an empty"):
        started(stream, tmp_path)
    assert files(tmp_path) == before


def test_an_output_path_that_is_a_file_is_refused(spark, tmp_path):
    (tmp_path / "out").write_text("1,2\n")
    with pytest.raises(SinkError, match="out is no directory"):
        started(ab.session(spark).from_rows([("a", 1)], COLUMNS), tmp_path)
    assert files(tmp_path) == {tmp_path / "out": b"1,2\n"}


def test_the_output_and_the_checkpoint_of_another_program_are_refused_and_left_as_they_are(spark, tmp_path):
    streams = ab.session(spark)
    totals = streams.from_rows([("a", 1)], COLUMNS).aggregate(by="k", window=tumbling(1), x=agg.sum("x"), name="totals")
    started(totals, tmp_path)
    before = files(tmp_path)
    assert any("part-" in path.name for path in before)
    other = streams.from_rows([("a", 1)], COLUMNS).aggregate(by="x", window=tumbling(1), n=agg.count(), name="totals")
    with pytest.raises(CheckpointError, match=r"another program:\n(.*\n)*  operator totals: its key was \['k'\]"):
        started(other, tmp_path)
    with pytest.raises(SinkError, match=r"belongs to the query with the checkpoint .*ck; this query has .*elsewhere"):
        totals.writeStream.option("checkpointLocation", str(tmp_path / "elsewhere")).start(str(tmp_path / "out"))
    with pytest.raises(SinkError, match="holds parquet, not json"):
        totals.writeStream.option("checkpointLocation", str(tmp_path / "ck")).start(str(tmp_path / "out"), "json")
    assert files(tmp_path) == before


def test_a_dataframe_that_does_not_stream_is_refused(spark):
    with pytest.raises(ProgramError, match=rf"read at .*{HERE}:\d+: expected a streaming DataFrame .* not streaming"):
        ab.session(spark).read(spark.range(3))
    with pytest.raises(ProgramError, match=rf"read at .*{HERE}:\d+: expected a streaming DataFrame .*found \[1\]"):
        ab.session(spark).read([1])


def test_a_dataframe_without_an_order_is_refused_with_the_way_out(spark):
    rates = spark.readStream.format("rate").load()
    with pytest.raises(OrderError, match=rf"source tap \(.*{HERE}:\d+\): .*no order of its own.*order_by=.*columns: t"):
        ab.session(spark).read(rates, name="tap")
    with pytest.raises(OrderError, match=r"order_by names 'nope', which is no column; columns: timestamp, value"):
        ab.session(spark).read(rates, order_by="nope")


def test_columns_that_cannot_be_read_as_a_stream_name_the_source(spark):
    rates = spark.readStream.format("rate").load()
    with pytest.raises(SchemaError, match=rf"source tap \(.*{HERE}:\d+\): the DataFrame has the column 'value' twice"):
        ab.session(spark).read(rates.select("value", "value"), order_by="value", name="tap")
    with pytest.raises(SchemaError, match=rf"source tap \(.*{HERE}:\d+\): .*unknown type 'interval'"):
        frame = rates.selectExpr("value", "timestamp - timestamp as d")
        ab.session(spark).read(frame, order_by="value", name="tap")


@pytest.mark.parametrize(
    ("configure", "complaint"),
    [
        (lambda w: w.format("parqut"), "unknown format 'parqut'; known: parquet, json"),
        (lambda w: w.start(), "format 'parquet' needs a path"),
        (lambda w: w.start("out/"), r"checkpoint location is needed: \.option\('checkpointLocation'"),
        (lambda w: w.format("memory").start(), r"needs a name for its view: \.queryName"),
        (lambda w: w.outputMode("complete"), "only ever appended to"),
        (lambda w: w.trigger(once=True, availableNow=True), "exactly one of processingTime, once, availableNow"),
        (lambda w: w.format("noop").option("channels", 0).start(), "whole number from 1 to 4096"),
        (
            lambda w: w.option("snapshotInterval", "often").start("out", checkpointLocation="ck"),
            "for example '20 epochs'",
        ),
        (lambda w: w.option("versionsKept", 1).start("out", checkpointLocation="ck"), "whole number, 2 or more"),
        (lambda w: w.foreachBatch(3), "expected a function of a DataFrame and an epoch number"),
    ],
)
def test_a_writer_that_cannot_work_says_so_before_anything_starts(spark, tmp_path, monkeypatch, configure, complaint):
    monkeypatch.chdir(tmp_path)
    stream = ab.session(spark).from_rows([("a", 1)], COLUMNS).aggregate(by="k", window=tumbling(1), n=agg.count())
    with pytest.raises(AnabranchError, match=complaint):
        configure(stream.writeStream)
    assert files(tmp_path) == {}


def test_a_module_that_workers_do_not_have_is_told_in_three_lines(spark, tmp_path, monkeypatch):
    (tmp_path / "only_on_the_driver.py").write_text("def twice(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_on_the_driver

    stream = ab.session(spark).from_rows([("a", n) for n in range(9)], COLUMNS, rows_per_epoch=3)

    @ab.model(state="stateless")
    class Twice:
        def __init__(self):
            self.module = only_on_the_driver

        def __call__(self, t):
            return (t.k, self.module.twice(t.x))

    with pytest.raises(ProgramError, match=r"workers have no module 'only_on_the_driver'") as found:
        started(stream.map(Twice(), schema=COLUMNS), tmp_path)
    lines = str(found.value).splitlines()
    assert len(lines) == 3 and "--py-files only_on_the_driver.py" in lines[1]
    assert nothing_was_written(tmp_path)


def test_the_progress_tells_what_spark_does_between_epochs(spark, tmp_path):
    stream = ab.session(spark).from_rows([("a", n) for n in range(8)], COLUMNS, rows_per_epoch=1)
    query = started(stream.filter(lambda t: True), tmp_path)
    times = [each["duration_ms"] for each in query.recentProgress]
    assert times[0]["between"] == 0 and times[-1]["between"] > 0
    spark_says = [each["durationMs"] for each in query._query.recentProgress]
    rest = [each["triggerExecution"] - each["addBatch"] for each in spark_says if "addBatch" in each]
    assert min(rest) <= times[-1]["between"] <= max(rest)


@pytest.mark.parametrize("reading", ["auto", "spark"])
def test_a_null_in_a_column_that_must_have_values_is_an_error_whoever_reads(spark, tmp_path, reading):
    """As on one thread; also where nobody looks at the column."""
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"a": [1, 2], "b": [3, None], "c": [{"x": 1}, None]}), tmp_path / "in" / "1.parquet")
    cases = (
        ("a long not null, b long", None),
        ("a long, b long not null", "'b' is bigint not null"),
        ("a long, b long, c struct<x:long> not null", "'c' is .* not null"),
    )
    for number, (columns, fails) in enumerate(cases):
        stream = ab.session(spark).from_files(str(tmp_path / "in"), "parquet", columns)
        stream = stream.map(lambda t: (t.a,), schema="a long")
        work = tmp_path / f"{number}"
        writer = stream.writeStream.option("checkpointLocation", str(work / "ck")).option("fileReading", reading)
        query = writer.trigger(availableNow=True).start(str(work / "out"))
        if fails is None:
            query.awaitTermination()
        else:
            with pytest.raises(InputError, match=fails):
                query.awaitTermination()
            assert nothing_was_written(work)
