"""Schemas and rows: what a value means, whichever way it came."""

import dataclasses
import datetime
import decimal
import pickle
from collections.abc import Iterator
from typing import Annotated, NamedTuple, Optional, TypedDict

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InputError, SchemaError
from anabranch.program.misfits import MisfitError, ShapeError
from anabranch.program.schema import Row, Schema, schema_of_return, to_values

D = decimal.Decimal
UTC = datetime.UTC


class Reading(NamedTuple):
    id: int
    value: float | None


@dataclasses.dataclass
class Record:
    id: int
    tags: list[str]
    by_name: dict[str, int]
    inner: Reading
    price: Annotated[D, "decimal(9,2)"]


class Dict(TypedDict):
    at: datetime.datetime
    day: Optional[datetime.date]  # noqa: UP045 - the old spelling must work too
    raw: bytes


# -- where schemas come from -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("id long, value double", "id bigint, value double"),
        (pa.schema([("a", pa.large_string()), ("b", pa.timestamp("ns", "CET"))]), "a string, b timestamp"),
        (Reading, "id bigint, value double"),
        (
            Record,
            "id bigint, tags array<string>, by_name map<string,bigint>, "
            "inner struct<id:bigint,value:double>, price decimal(9,2)",
        ),
        (Dict, "at timestamp, day date, raw binary"),
    ],
    ids=["ddl", "arrow", "named tuple", "dataclass", "typed dict"],
)
def test_a_schema_is_made_of(given, expected):
    schema = Schema.of(given)
    assert str(schema) == expected
    assert Schema.of(schema) is schema and Schema.of(expected) == schema
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_a_schema_is_made_of_sparks_struct_type_without_a_jvm():
    types = pytest.importorskip("pyspark.sql.types")
    struct = types.StructType().add("a b", types.LongType()).add("c", types.ArrayType(types.StringType()))
    assert str(Schema.of(struct)) == "`a b` bigint, c array<string>"


@pytest.mark.parametrize("given", [7, int, object(), None, ["id long"]])
def test_what_is_no_schema_is_refused_with_what_would_be(given):
    with pytest.raises(SchemaError, match=r"give a DDL string such as .* or a class with annotated fields"):
        Schema.of(given)


def test_a_field_that_no_column_holds_is_named():
    class Odd(NamedTuple):
        ok: int
        odd: complex

    with pytest.raises(SchemaError, match="the field 'odd' of Odd has the type <class 'complex'>"):
        Schema.of(Odd)


@pytest.mark.parametrize("arrow", [pa.schema([("a", pa.uint8())]), pa.schema([("a", pa.int8()), ("a", pa.int8())])])
def test_an_arrow_schema_that_spark_cannot_have_is_refused(arrow):
    with pytest.raises(SchemaError):
        Schema.of(arrow)


def test_a_return_annotation_gives_the_schema():
    def one(t) -> Reading: ...
    def many(t) -> Iterator[Reading]: ...
    def perhaps(t) -> Reading | None: ...
    def none(t): ...

    assert schema_of_return(one, many=False) == Schema.of(Reading)
    assert schema_of_return(many, many=True) == Schema.of(Reading)
    assert schema_of_return(perhaps, many=True) == Schema.of(Reading)
    assert schema_of_return(none, many=False) is None


# -- rows --------------------------------------------------------------------------------------------------

ROW = Schema.of("id long, `odd name` string, count double").row_class((1, "a", 2.5))


def test_a_row_has_its_columns_by_name_and_place():
    assert (ROW.id, ROW["odd name"], ROW[2], ROW.count) == (1, "a", 2.5, 2.5)
    assert ROW.asDict() == {"id": 1, "odd name": "a", "count": 2.5}
    assert ROW == (1, "a", 2.5) and repr(ROW) == "(id=1, odd name='a', count=2.5)"


def test_a_row_with_changes_is_another_row():
    assert ROW.but(id=2) == (2, "a", 2.5) and ROW.id == 1 and type(ROW.but(id=2)) is type(ROW)


def test_an_unknown_column_is_named_with_the_known_ones():
    for attempt in (lambda: ROW.nope, lambda: ROW["nope"], lambda: ROW.but(nope=1)):
        with pytest.raises((AttributeError, KeyError), match="no column 'nope'; columns: id, odd name, count"):
            attempt()


def test_rows_survive_pickling_as_rows():
    back = pickle.loads(pickle.dumps(ROW))
    assert type(back) is type(ROW) and back.id == 1


@pytest.mark.parametrize("name", ["_fields", "index", "class", "__slots__", "asDict", "but", "_0"])
def test_a_column_may_have_any_name(name):
    row = Schema.of(pa.schema([(name, pa.int64()), ("x", pa.int64())])).row_class((7, 8))
    assert row[name] == 7 and row["x"] == row.x == 8 and tuple(row) == (7, 8)
    assert repr(row) == f"({name}=7, x=8)"


# -- values ------------------------------------------------------------------------------------------------

FITS = [
    ("double", 1, 1.0),
    ("float", 0.1, float(np.float32(0.1))),
    ("long", np.int64(3), 3),
    ("double", np.float32(0.5), 0.5),
    ("boolean", np.bool_(True), True),
    ("binary", bytearray(b"a"), b"a"),
    ("decimal(5,2)", D("1.5"), D("1.50")),
    ("decimal(5,2)", 7, D("7.00")),
    ("timestamp", datetime.datetime(2024, 1, 1, 12), datetime.datetime(2024, 1, 1, 12, tzinfo=UTC)),
    (
        "timestamp",
        datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        datetime.datetime(2024, 1, 1, 10, tzinfo=UTC),
    ),
    ("timestamp_ntz", datetime.datetime(2024, 1, 1, fold=1), datetime.datetime(2024, 1, 1)),
    ("timestamp_ntz", pandas.Timestamp("2024-01-01 12:00"), datetime.datetime(2024, 1, 1, 12)),
    ("timestamp", pandas.Timestamp("2024-01-01 12:00"), datetime.datetime(2024, 1, 1, 12, tzinfo=UTC)),
    ("array<double>", (1, None), [1.0, None]),
    ("map<string,double>", {"a": 1}, {"a": 1.0}),
    ("struct<a:double,b:string>", {"a": 1}, {"a": 1.0, "b": None}),
    ("struct<id:bigint,value:double>", Reading(1, 2), {"id": 1, "value": 2.0}),
]
DOES_NOT_FIT = [
    ("long", 1.0, "expected an int"),
    ("long", True, "expected an int"),
    ("long", 2**63, ""),
    ("tinyint", 128, ""),
    ("double", "1", "expected a float"),
    ("double", True, "expected a float"),
    ("boolean", 1, "expected a bool"),
    ("string", 1, "expected a str"),
    ("string", b"a", "expected a str"),
    ("binary", "a", "expected bytes"),
    ("date", datetime.datetime(2024, 1, 1), "expected a date"),
    ("timestamp", datetime.date(2024, 1, 1), "expected a datetime"),
    ("timestamp_ntz", datetime.datetime(2024, 1, 1, tzinfo=UTC), "without a time zone"),
    ("decimal(5,2)", 1.5, "expected a Decimal"),
    ("decimal(5,2)", D("1000"), ""),
    ("array<long>", {1}, "expected a list"),
    ("array<long>", [1, "a"], "expected an int"),
    ("map<string,long>", [("a", 1)], "expected a dict"),
    ("struct<a:bigint>", {"b": 1}, "no field 'b'"),
]


def alone_and_in_a_batch(schema: Schema, value):
    """A value goes through `exact_row` in the sequential run and through `exact_columns` in a channel."""
    yield lambda: schema.exact_row([value])[0]
    yield lambda: schema.exact_columns([(None,), (value,)])[0][1]


@pytest.mark.parametrize(("kind", "value", "expected"), FITS)
def test_a_value_that_fits_becomes_the_exact_one_in_both_ways_of_running(kind, value, expected):
    for convert in alone_and_in_a_batch(Schema.of(f"x {kind}"), value):
        assert convert() == expected and type(convert()) is type(expected)


@pytest.mark.parametrize(("kind", "value", "why"), DOES_NOT_FIT)
def test_a_value_that_does_not_fit_is_refused_in_both_ways_of_running(kind, value, why):
    for convert in alone_and_in_a_batch(Schema.of(f"x {kind}"), value):
        with pytest.raises(MisfitError) as caught:
            convert()
        assert "column 'x' is" in str(caught.value) and why in str(caught.value)
        assert type(value).__name__ in str(caught.value)


def test_a_misfit_knows_its_place_in_the_batch():
    with pytest.raises(MisfitError) as caught:
        Schema.of("x long").exact_columns([(1,), (2,), ("a",)])
    assert caught.value.at == 2


moments = st.datetimes().map(lambda at: at.replace(fold=0))
COLUMNS = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.sampled_from("ab\0é🜚"), max_size=4),
    "binary": st.binary(max_size=4),
    "date": st.dates(),
    "timestamp": moments.map(lambda at: at.replace(tzinfo=UTC)),
    "timestamp_ntz": moments,
    "decimal(9,2)": st.integers(-(10**6), 10**6).map(lambda n: D(n).scaleb(-2)),
    "array<bigint>": st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=3),
    "map<string,double>": st.dictionaries(st.sampled_from("ab"), st.floats(-1, 1)),
    "struct<a:bigint,b:timestamp>": moments.map(lambda at: {"a": 1, "b": at.replace(tzinfo=UTC)}),
    "array<map<string,bigint>>": st.lists(st.dictionaries(st.sampled_from("ab"), st.integers(-9, 9)), max_size=2),
    "struct<m:map<bigint,array<double>>>": st.just({"m": {1: [0.5, None], 2: None}}),
}


@settings(max_examples=40)
@given(st.data())
def test_values_come_back_from_arrow_exactly(data):
    kinds = data.draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
    schema = Schema.of(", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds)))
    rows = data.draw(st.lists(st.tuples(*[st.one_of(st.none(), COLUMNS[kind]) for kind in kinds]), max_size=6))
    columns = schema.exact_columns(rows)
    assert [repr(tuple(row)) for row in schema.rows(schema.arrays(columns))] == [repr(row) for row in rows]
    assert [repr(tuple(schema.exact_row(row))) for row in rows] == [repr(row) for row in rows]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2_932_897], pa.int32()).cast(pa.date32()),
        pa.array([0, 253402300800000000], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        pa.array([-(2**62)], pa.int64()).cast(pa.timestamp("us")),
        pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], "i4")), pa.py_buffer(b"\xff")),
    ],
)
def test_what_python_has_no_value_for_is_told_with_its_type(column):
    with pytest.raises(InputError, match=r"of the type (date|timestamp|timestamp_ntz|string) holds what Python"):
        to_values(column)


# -- what user code may return -----------------------------------------------------------------------------

TWO = Schema.of("id long, value double")


@dataclasses.dataclass
class Swapped:
    value: float
    id: int


class SwappedTuple(NamedTuple):
    value: float
    id: int


@pytest.mark.parametrize(
    "value",
    [
        (1, 2.0),
        [1, 2.0],
        {"value": 2.0, "id": 1},
        Reading(1, 2.0),
        Swapped(2.0, 1),
        SwappedTuple(2.0, 1),
        TWO.row_class((1, 2.0)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_tuple_may_come_in_any_of_these_forms(value):
    assert list(TWO.unpack(value)) == [1, 2.0]


@pytest.mark.parametrize("value", [1, (1,), (1, 2, 3), [1], "ab", {"id": 1}, {"id": 1, "value": 2, "x": 3}, Reading])
def test_what_is_no_tuple_of_the_schema_is_refused(value):
    with pytest.raises(ShapeError, match=r"expected .*id bigint, value double"):
        TWO.unpack(value)


def test_missing_and_superfluous_columns_are_named():
    with pytest.raises(ShapeError, match=r"missing value; not in the schema: x, y"):
        TWO.unpack({"id": 1, "x": 1, "y": 2})


def test_one_column_needs_no_tuple():
    assert list(Schema.of("x string").unpack("ab")) == ["ab"]
    assert isinstance(Schema.of("x string").exact_row(["ab"]), Row)
