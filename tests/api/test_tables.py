"""Tables where rows may be given."""

import datetime

import pandas as pd
import pyarrow as pa
import pytest

import anabranch as ab
from anabranch.errors import SchemaError
from anabranch.testing import run_parallel

AT = datetime.datetime(2024, 5, 1, 12, 30, tzinfo=datetime.UTC)
TABLE = pa.table(
    {
        "k": pa.array([1, None, 3], pa.int32()),
        "s": pa.array(["a", "b", None]).dictionary_encode(),
        "at": pa.array([AT] * 3, pa.timestamp("ns", "Europe/Paris")),
        "deep": pa.array([{"x": ["q"]}, None, {"x": []}], pa.struct({"x": pa.large_list(pa.large_string())})),
    }
)
ROWS = [(1, "a", AT, {"x": ["q"]}), (None, "b", AT, None), (3, None, AT, {"x": []})]


def test_a_table_is_its_rows():
    assert [tuple(row) for row in ab.from_rows(TABLE).run_sequential()] == ROWS
    assert [tuple(row) for row in ab.from_rows(TABLE.to_batches()[0]).run_sequential()] == ROWS
    chosen = ab.from_rows(TABLE, "s string, k long", rows_per_epoch=2)
    assert [tuple(row) for row in chosen.run_sequential()] == [("a", 1), ("b", None), (None, 3)]
    assert run_parallel(chosen, channels=2, seed=0) == chosen.run_sequential()


def test_a_frame_is_its_rows():
    frame = pd.DataFrame({"k": [1, 2], "x": [0.5, None], "s": ["a", None], "at": [AT, AT]})
    assert [tuple(row) for row in ab.from_rows(frame).run_sequential()] == [(1, 0.5, "a", AT), (2, None, None, AT)]


def test_others_that_hand_out_arrow_data_are_taken():
    class Foreign:
        def __arrow_c_stream__(self, requested_schema=None):
            return TABLE.select(["k"]).__arrow_c_stream__(requested_schema)

    assert [tuple(row) for row in ab.from_rows(Foreign()).run_sequential()] == [(1,), (None,), (3,)]


def test_tables_enrich():
    names = pd.DataFrame({"k": [1, 2], "name": ["one", "two"]})
    stream = ab.from_rows([(2,), (5,)], "k long").enrich(names, by="k")
    assert stream.run_sequential() == [(2, "two"), (5, None)]
    assert run_parallel(stream, channels=2, seed=0) == [(2, "two"), (5, None)]


def test_what_does_not_fit_is_told():
    with pytest.raises(SchemaError, match=r"from_rows at .*no columns z; it has k, s"):
        ab.from_rows(TABLE, "z long")
    with pytest.raises(SchemaError, match=r"'s' is .*, not int64"):
        ab.from_rows(TABLE, "s long")
    with pytest.raises(SchemaError, match="'k' has nulls"):
        ab.from_rows(TABLE, "k long not null")
    with pytest.raises(SchemaError, match="give schema="):
        ab.from_rows([(1,)])


@pytest.mark.spark
def test_spark_s_own_frames(spark):
    frame = spark.createDataFrame([(1, "one"), (2, "two")], "k long, name string")
    assert ab.from_rows([(2,)], "k long").enrich(frame, by="k").run_sequential() == [(2, "two")]
