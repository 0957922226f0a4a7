"""Random graphs on Spark, against the sequential run; and what only Spark shows of several sources and feedback."""

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import ProgramError
from anabranch.testing import run_sequential
from tests.graphs import build, cases
from tests.programs import COLUMNS, exact

pytestmark = pytest.mark.spark


def run(streams: list[ab.Stream], channels: int, checkpoint=None) -> list[list[ab.Row]]:
    writers = [stream.writeStream.format("memory").queryName(f"out{at}") for at, stream in enumerate(streams)]
    first = writers[0].option("channels", channels).trigger(availableNow=True)
    if checkpoint is not None:
        first = first.option("checkpointLocation", str(checkpoint))
    for other in writers[1:]:
        first.also(other)
    query = first.start()
    query.awaitTermination()
    return [s.schema.rows(sink.table().columns) for s, sink in zip(streams, query.sinks, strict=True)]


def has_time(recipe) -> bool:
    return any(name == "timed" for name, _ in recipe.steps)


@settings(
    max_examples=30, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
@given(case=cases(steps_max=6, epochs_max=1), channels=st.integers(1, 3))
def test_any_graph_on_spark_gives_the_sequential_output(spark, case, channels):
    recipe, inputs = case
    assume(not has_time(recipe))  # on Spark an epoch has the time it runs at, which the sequential run cannot know
    try:
        expected = run_sequential(build(recipe, inputs), epochs_max=4)
        got = run(build(recipe, inputs, ab.session(spark)), channels)
    except ProgramError as problem:
        assume("no source" not in str(problem))
        assume("still fed back" not in str(problem))
        raise
    assert [exact(rows) for rows in got] == [exact(rows) for rows in expected]


def test_several_sources_and_sinks_in_one_query(spark, tmp_path):
    streams = ab.session(spark)
    first = streams.from_rows([(n, "a", n / 2) for n in range(50)], COLUMNS, rows_per_epoch=20, name="first")
    second = streams.from_rows([(n, "b", n / 3) for n in range(80)], COLUMNS, rows_per_epoch=30, name="second")
    both = first.union(second)
    totals = both.aggregate(by="k", window=ab.tumbling(2), x=ab.agg.sum("x"))
    (tmp_path / "ck").mkdir()
    writer = both.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "ck"))
    writer.also(totals.writeStream.format("json").option("path", str(tmp_path / "totals")))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "both"))
    query.awaitTermination()
    expected = run_sequential([both, totals])
    assert exact(
        both.schema.rows(spark.read.parquet(str(tmp_path / "both")).orderBy("k", "s").toArrow().columns)
    ) == exact(sorted(expected[0], key=lambda t: (t.k, t.s)))
    assert spark.read.json(str(tmp_path / "totals")).count() == len(expected[1]) > 0


def test_a_source_ordered_by_columns_beside_one_ordered_by_files(spark, tmp_path):
    streams = ab.session(spark)
    spark.createDataFrame([(n, n % 7) for n in range(300)], "n long, k long").repartition(5).write.parquet(
        str(tmp_path / "in")
    )
    frame = spark.readStream.schema("n long, k long").parquet(str(tmp_path / "in"))
    ordered = streams.read(frame, order_by="n", name="ordered")
    other = streams.from_rows([(1000 + n, n % 5) for n in range(100)], "n long, k long", name="other")

    def program(one, two):
        return one.union(two).aggregate(by="k", window=ab.tumbling(3), all=ab.agg.collect("n"))

    got = run([program(ordered, other)], channels=2)
    rows = [[(n, n % 7) for n in range(300)], [(1000 + n, n % 5) for n in range(100)]]
    plain = [ab.from_rows(each, "n long, k long") for each in rows]
    assert exact(got[0]) == exact(program(*plain).run_sequential())


def test_feedback_goes_on_after_the_source_has_ended(spark, tmp_path):
    streams = ab.session(spark)

    def program(rows):
        numbers = streams.from_rows(rows, "x long, hops long", rows_per_epoch=3)
        again = streams.feedback("x long, hops long")
        both = numbers.union(again)
        again.close(both.filter(lambda t: t.hops < 5).map(lambda t: (t.x, t.hops + 1), schema="x long, hops long"))
        return both

    rows = [(n, n % 3) for n in range(10)]
    got = run([program(rows)], channels=2, checkpoint=tmp_path / "ck")
    assert exact(got[0]) == exact(program(rows).run_sequential())
