"""On Spark: a program of which a later version goes on, a table that changes, punctuations that operators make."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.engine.sequential import SequentialRun
from anabranch.engine.sequential_versions import go_on_from
from tests.engine.test_users_punctuations import COLUMNS, built
from tests.state.test_versions import Cents, Euros, to_cents

pytestmark = pytest.mark.spark
ROWS = [(n * 7 % 5, n % 11) for n in range(400)]
OUT = "k long, n long, x double"


def prices(path, number):
    path.mkdir(exist_ok=True)
    pq.write_table(pa.table({"k": [0, 1, 2], "price": [0.5 + number, 1.25, 2.0 * number]}), path / "prices.parquet")


def versions(streams, rows, table):
    """The first and the second version of a program, over some rows."""
    stream = streams.from_rows(rows, COLUMNS, rows_per_epoch=100)
    priced = stream.enrich(ab.table(table, refresh=0), by="k", how="inner", name="prices")
    input_ = priced.map(lambda t: (t.k, t.x, t.price * t.x), schema="k long, at long, x double", name="input")
    first = input_.process(Euros(), by="k", schema=OUT, name="euros")
    second = input_.process(Cents(), by="k", schema=OUT, name="cents", version=2, migrate=to_cents)
    return first, second.was("euros")


def written(out):
    files = sorted(out.glob("part-*"))
    return [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]


def test_a_later_version_goes_on_with_the_table_of_then(spark, tmp_path):
    streams = ab.session(spark)
    table, out = tmp_path / "prices", tmp_path / "out"
    expected, before = [], None
    for number, until in enumerate((200, 400)):
        prices(table, number)
        stream = versions(streams, ROWS[:until], table)[number]
        writer = stream.writeStream.format("parquet").options(
            checkpointLocation=str(tmp_path / "c"), channels=2 + number
        )
        writer.trigger(availableNow=True).start(str(out)).awaitTermination()
        run = SequentialRun(stream._node)
        if before is not None:
            go_on_from(before, run)
        for at in range(until - 200, until, 100):
            run.feed(ROWS[at : at + 100])
        expected += [tuple(row) for row in run.output]
        before = run
    assert len(expected) > 200
    assert written(out) == expected


def test_punctuations_that_operators_make_and_remove(spark, tmp_path):
    steps = ["mark", "sum", "other key", "window", "remove", "mark and keep", "beside", "whole"]
    epochs = [ROWS[:150], ROWS[150:]]
    expected = built(epochs, steps)[0].run_sequential()
    assert len(expected) > 10
    streams = ab.session(spark).from_rows(ROWS, COLUMNS, rows_per_epoch=150)
    stream = built(streams, steps)[0]
    writer = stream.writeStream.format("parquet").options(checkpointLocation=str(tmp_path / "c"), channels=3)
    writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    assert written(tmp_path / "out") == [tuple(row) for row in expected]
