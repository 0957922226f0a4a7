"""Files that tasks read themselves: what they read is what Spark reads, and what they cannot read Spark does."""

import datetime
import decimal
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch import agg, tumbling
from anabranch.engine.worker.condition_columns import known_for_all
from anabranch.engine.worker.file_pieces import ListedFile, cut, dealt, examined, read_pieces
from anabranch.engine.worker.needed_columns import everything
from anabranch.program.ddl import to_ddl
from anabranch.program.schema import Schema
from anabranch.spark.spark_job import _split_files
from tests.compiler import condition_rules
from tests.compiler.condition_rules import TESTS, chance_of, columns_of, condition, function_of, told
from tests.engine.test_condition_columns import late_batches
from tests.programs import exact

pytestmark = pytest.mark.spark

UTC = datetime.UTC
instants = st.datetimes(datetime.datetime(1, 1, 2), datetime.datetime(9999, 12, 30))
# Of each type: values, and what a file may call it.
PLAIN = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=6),
    pa.binary(): st.binary(max_size=6),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): instants.map(lambda value: value.replace(tzinfo=UTC)),
    pa.timestamp("us"): instants,
    pa.decimal128(9, 2): st.decimals(
        allow_nan=False, allow_infinity=False, places=2, min_value=-9999999, max_value=9999999
    ),
    pa.decimal128(38, 10): st.decimals(
        allow_nan=False, allow_infinity=False, places=10, min_value=-(10**20), max_value=10**20
    ),
}


def values_of(kind: pa.DataType) -> st.SearchStrategy:
    if pa.types.is_list(kind):
        return st.none() | st.lists(values_of(kind.value_type), max_size=3)
    if pa.types.is_map(kind):
        keys = PLAIN[kind.key_type]
        return st.none() | st.dictionaries(keys, values_of(kind.item_type), max_size=3).map(
            lambda found: list(found.items())
        )
    if pa.types.is_struct(kind):
        return st.none() | st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    return st.none() | PLAIN[kind]


kinds = st.recursive(
    st.sampled_from(list(PLAIN)),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.tuples(st.sampled_from([pa.string(), pa.int64()]), inner).map(lambda pair: pa.map_(*pair)),
        st.lists(inner, min_size=1, max_size=3).map(lambda all: pa.struct([(f"f{at}", k) for at, k in enumerate(all)])),
    ),
    max_leaves=4,
)


@st.composite
def tables(draw):
    columns = {f"c{at}": kind for at, kind in enumerate(draw(st.lists(kinds, min_size=1, max_size=4)))}
    count = draw(st.integers(0, 5))
    arrays = {
        name: pa.array(draw(st.lists(values_of(kind), min_size=count, max_size=count)), kind)
        for name, kind in columns.items()
    }
    return pa.table(arrays)


def by_tasks(path: Path, schema: Schema, size_max: int | None = None) -> pa.Table | str:
    """What tasks read of a file, or why they do not."""
    listed = ListedFile(0, str(path), path.as_uri(), 0)
    found = examined(listed, schema)
    if isinstance(found, str):
        return found
    read = [
        pa.RecordBatch.from_arrays(each.columns, schema=schema.arrow)
        for share in dealt(cut(listed, found, size_max), 3)
        for each in sorted(read_pieces(share, [everything(schema)]), key=lambda rows: rows.coordinate)
    ]
    return pa.Table.from_batches(read, schema.arrow)


def by_spark(spark, path: Path, schema: Schema) -> pa.Table:
    found = spark.read.schema(to_ddl(schema.arrow)).parquet(str(path)).toArrow()
    return pa.table(
        [column.cast(field.type) for column, field in zip(found.columns, schema.arrow, strict=True)], schema.arrow
    )


def values(table: pa.Table, schema: Schema) -> list:
    return exact(schema.rows(table.columns))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(
    table=tables(), group=st.integers(1, 4), dictionary=st.booleans(), version=st.sampled_from(["1.0", "2.4", "2.6"])
)
def test_tasks_read_what_spark_reads(spark, tmp_path_factory, table, group, dictionary, version):
    path = tmp_path_factory.mktemp("types") / "some.parquet"
    pq.write_table(table, path, row_group_size=group, use_dictionary=dictionary, version=version)
    schema = Schema.of(table.schema)
    found = by_tasks(path, schema)
    assert not isinstance(found, str), found
    assert values(found, schema) == values(by_spark(spark, path, schema), schema)
    cut_up = by_tasks(path, schema, size_max=1)
    assert sorted(map(repr, values(cut_up, schema))) == sorted(map(repr, values(found, schema)))


OLD = datetime.datetime(1500, 3, 1, 12)
# What a file has, and the columns that are asked for; whether tasks read it.
FILES = {
    "columns that are missing": (pa.table({"x": [1, 2]}), "x long, y string", True),
    "columns too many, in another order": (pa.table({"z": ["a"], "y": ["b"], "x": [1]}), "x long, y string", True),
    "a dictionary": (pa.table({"x": pa.array(["a", "b", "a"]).dictionary_encode()}), "x string", True),
    "long strings": (pa.table({"x": pa.array(["a", None], pa.large_string())}), "x string", True),
    "milliseconds": (pa.table({"x": pa.array([OLD], pa.timestamp("ms", "UTC"))}), "x timestamp", True),
    "another time zone": (pa.table({"x": pa.array([OLD], pa.timestamp("us", "Europe/Berlin"))}), "x timestamp", True),
    "dates long ago": (pa.table({"x": [OLD.date()]}), "x date", True),
    "no rows": (pa.table({"x": pa.array([], pa.int64())}), "x long", True),
    "a narrower type": (pa.table({"x": pa.array([1], pa.int32())}), "x long", False),
    "a narrower decimal": (pa.table({"x": [decimal.Decimal("1.5")]}), "x decimal(9,2)", False),
    "another case": (pa.table({"X": [1]}), "x long", False),
    "fewer fields in a struct": (pa.table({"x": [{"a": 1}]}), "x struct<a: long, b: long>", False),
    "fields in another order": (pa.table({"x": [{"b": 2, "a": 1}]}), "x struct<a: long, b: long>", False),
    "no sign": (pa.table({"x": pa.array([2**31], pa.uint32())}), "x long", False),
    "none of the columns": (pa.table({"y": [1]}), "x long", False),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_differs_from_the_stream_is_read_alike_or_by_spark(spark, tmp_path, what):
    table, columns, read = FILES[what]
    path = tmp_path / "some.parquet"
    pq.write_table(table, path)
    schema = Schema.of(columns)
    found = by_tasks(path, schema)
    assert isinstance(found, str) is not read, found
    if read:
        assert values(found, schema) == values(by_spark(spark, path, schema), schema)


def test_old_kinds_of_files_are_read_by_spark(spark, tmp_path):
    times = pa.table({"x": pa.array([OLD], pa.timestamp("us", "UTC"))})
    pq.write_table(times, tmp_path / "int96.parquet", use_deprecated_int96_timestamps=True)
    assert isinstance(by_tasks(tmp_path / "int96.parquet", Schema.of("x timestamp")), str)
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        spark.sql("select date'1500-03-01' as x").write.parquet(str(tmp_path / "legacy"))
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    (legacy,) = (tmp_path / "legacy").glob("*.parquet")
    assert "before Spark 3" in by_tasks(legacy, Schema.of("x date"))
    spark.sql("select date'1500-03-01' as x").write.parquet(str(tmp_path / "new"))
    (new,) = (tmp_path / "new").glob("*.parquet")
    assert by_tasks(new, Schema.of("x date")).to_pylist() == [{"x": datetime.date(1500, 3, 1)}]
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and then nothing")
    assert isinstance(by_tasks(tmp_path / "broken.parquet", Schema.of("x date")), str)


COLUMNS = "app string, flow double, at struct<a: long, b: array<long>>"


def write_files(place: Path, count: int = 6) -> list[tuple]:
    """Files in several row groups whose names and dates disagree, some of the same millisecond; the rows, in order."""
    chance = random.Random(7)
    place.mkdir()
    written = []
    for number in range(count):
        rows = [
            (
                f"app {chance.randrange(9)}",
                chance.random(),
                {"a": chance.randrange(5), "b": [1] * chance.randrange(3)},
            )
            for _ in range(chance.choice([0, 1, 300]))
        ]
        path = place / f"{'zy xwv'[number]}-{number}.parquet"
        table = pa.table(
            Schema.of(COLUMNS).arrays(list(zip(*rows, strict=True)) or [[], [], []]), Schema.of(COLUMNS).arrow
        )
        pq.write_table(table, path, row_group_size=50)
        os.utime(path, (1_700_000_000 + number // 2, 1_700_000_000 + number // 2))
        written.append((number // 2, path.as_uri(), rows))
    return [row for _, _, rows in sorted(written, key=lambda each: each[:2]) for row in rows]


def picked(stream: ab.Stream) -> ab.Stream:
    """Reads two columns, and one field of a third."""
    chosen = stream.filter(lambda t: t.at is not None and t.at["a"] > 1)
    return chosen.map(lambda t: (t.flow * 2, t.at["a"], t.app), schema="twice double, a long, app string")


def totals(stream: ab.Stream) -> ab.Stream:
    nested = stream.map(lambda t: (t.app, t.flow + t.at["a"], len(t.at["b"])), schema="app string, flow double, n long")
    return nested.aggregate(by="app", window=tumbling(5), flow=agg.sum("flow"), n=agg.sum("n"))


def run(stream: ab.Stream, **options: object) -> tuple[list[ab.Row], list[dict]]:
    writer = stream.writeStream.format("memory").queryName("result").options(**options)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return stream.schema.rows(query.sink.table().columns), query.recentProgress


@pytest.mark.parametrize("reading", ["auto", "spark"])
def test_whoever_reads_the_output_is_that_of_one_thread(spark, tmp_path, reading):
    rows = write_files(tmp_path / "in")
    dataframe = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 4).parquet(str(tmp_path / "in"))
    for stream in (
        ab.session(spark).read(dataframe),
        ab.session(spark).from_files(str(tmp_path / "in"), "parquet", COLUMNS),
    ):
        found, progress = run(picked(stream), fileReading=reading)
        assert exact(found) == exact(picked(stream).run_sequential(rows))
        found, progress = run(totals(stream), channels=3, fileReading=reading)
        assert exact(found) == exact(totals(stream).run_sequential(rows))
        assert {each["read_by_spark"] for each in progress} == {
            "" if reading == "auto" else "option fileReading='spark'"
        }
        assert sum(each["rows_in"] for each in progress) == len(rows)


def test_several_sources_and_feedback_are_read_by_tasks(spark, tmp_path):
    streams = ab.session(spark)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        for number in range(2):
            path = tmp_path / name / f"{number}.parquet"
            pq.write_table(pa.table({"x": list(range(number * 10, number * 10 + 10))}), path, row_group_size=3)
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))

    def program(one: ab.Stream, two: ab.Stream, again: ab.Stream) -> ab.Stream:
        both = one.union(two, again)
        again.close(both.filter(lambda t: 3 < t.x < 15).map(lambda t: (t.x + 7,), schema="x long"))
        return both

    files = [streams.from_files(str(tmp_path / name), "parquet", "x long", name=name) for name in ("one", "two")]
    found, progress = run(program(*files, streams.feedback("x long")), epochSize="fixed")
    rows = [ab.from_rows([(x,) for x in range(20)], "x long", name=name) for name in ("one", "two")]
    assert exact(found) == exact(program(*rows, ab.feedback("x long")).run_sequential())
    assert {each["read_by_spark"] for each in progress} == {""}


def test_a_file_that_only_spark_can_read_is_read_by_spark(spark, tmp_path):
    (tmp_path / "in").mkdir()
    for number, kind in enumerate([pa.int64(), pa.int32(), pa.int64()]):
        pq.write_table(
            pa.table({"x": pa.array([number * 2, number * 2 + 1], kind)}), tmp_path / "in" / f"{number}.parquet"
        )
        os.utime(tmp_path / "in" / f"{number}.parquet", (1_700_000_000 + number,) * 2)
    dataframe = spark.readStream.schema("x long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    found, progress = run(ab.session(spark).read(dataframe))
    assert [row.x for row in found] == list(range(6))
    assert progress[0]["read_by_spark"] == ""
    assert "its column x is int32, not int64" in progress[1]["read_by_spark"]


def test_what_is_more_than_plain_files_is_read_by_spark(spark, tmp_path):
    (tmp_path / "in" / "day=3").mkdir(parents=True)
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "in" / "day=3" / "a.parquet")
    plain = spark.readStream.schema("x long, day int").parquet(str(tmp_path / "in"))
    for dataframe, reason in [
        (plain, "its directory says something of its rows"),
        (plain.where("x > 1"), "is not plain files"),
    ]:
        found, progress = run(ab.session(spark).read(dataframe))
        assert [tuple(row) for row in found] == [(1, 3), (2, 3)][-len(found) :]
        assert reason in progress[0]["read_by_spark"]


def test_tasks_of_files_read_what_spark_gives_them_to_the_end():
    """Spark ends a Python worker that did not, and the channel's task on that executor then waits for a new one."""
    given = iter([pa.RecordBatch.from_pydict({"id": [0]})])
    nothing = SimpleNamespace(rows_of_files=lambda pieces, number: iter(()))
    assert list(_split_files(nothing, [[]], given, 0)) == []
    assert next(given, None) is None


@pytest.mark.parametrize("seed", range(3))
def test_what_a_file_of_sparks_tells_of_its_rows_is_true_of_them(spark, tmp_path, seed):
    chance = chance_of("spark", seed)
    columns = columns_of(chance, 20, spread=True, nulls=chance.choice([0.0, 0.3]))
    pq.write_table(pa.table(columns, schema=condition_rules.SCHEMA.arrow), tmp_path / "given.parquet")
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    rows = session.read.schema(to_ddl(condition_rules.SCHEMA.arrow)).parquet(str(tmp_path / "given.parquet"))
    rows.coalesce(1).write.parquet(str(tmp_path / "written"))
    (path,) = (tmp_path / "written").glob("*.parquet")
    assert pq.read_metadata(path).created_by.startswith("parquet-mr")
    (batch,) = late_batches(str(path), ("n",))
    known = {text: known_for_all(condition(text), batch) for text in TESTS}  # before anything is read
    found = {text: set(told(function_of(text), batch.rows)) for text in TESTS}
    assert all(known[text] is None or found[text] == {known[text]} for text in TESTS)
    assert any(each is not None for each in known.values())
