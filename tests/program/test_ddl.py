"""DDL strings to Arrow schemas and back."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import SchemaError
from anabranch.program.ddl import PRIMITIVES, parse_ddl, to_ddl, type_name


@pytest.mark.parametrize(("name", "kind"), PRIMITIVES.items())
def test_every_primitive_is_read_in_any_case(name, kind):
    assert parse_ddl(f"x {name.upper()}").field("x").type == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x decimal", pa.decimal128(10, 0)),
        ("x decimal(5)", pa.decimal128(5, 0)),
        ("x numeric ( 12 , 3 )", pa.decimal128(12, 3)),
        ("x array<int>", pa.list_(pa.int32())),
        ("x map<string,array<long>>", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("x struct<a:int,`b c`:string>", pa.struct([("a", pa.int32()), ("b c", pa.string())])),
        ("x: long", pa.int64()),
    ],
)
def test_types_with_parts_are_read(text, kind):
    assert parse_ddl(text).field("x").type == kind


def test_columns_keep_their_order_and_their_names():
    assert parse_ddl("  b long ,`a ``quoted`` name` string,_c9 double\n").names == ["b", "a `quoted` name", "_c9"]


def test_columns_that_may_not_be_null_are_read():
    schema = parse_ddl("a long NOT NULL, b long not null, c long")
    assert [field.nullable for field in schema] == [False, False, True]


types = st.recursive(
    st.one_of(
        st.sampled_from(sorted(set(PRIMITIVES.values()), key=str)),
        st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s))),
    ),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.tuples(inner, inner).map(lambda kinds: pa.map_(*kinds)),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda kinds: pa.struct([(f"f{n}", k) for n, k in enumerate(kinds)])
        ),
    ),
    max_leaves=5,
)
names = st.text(st.sampled_from("aZ_9 .`é-"), min_size=1, max_size=6)


@settings(max_examples=60)
@given(st.dictionaries(names, types, min_size=1, max_size=4))
def test_what_is_written_is_read_back(fields):
    schema = pa.schema(list(fields.items()))
    assert parse_ddl(to_ddl(schema)) == schema


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no columns"),
        ("id", "unknown type 'at its end'"),
        ("id lng", "unknown type 'lng'; known: boolean, tinyint"),
        ("id long name string", "expected ',' before 'name'"),
        ("id long, id string", "has the column 'id' twice"),
        ("xs array", "expected '<', found 'its end'"),
        ("xs array<long", "expected '>', found 'its end'"),
        ("m map<string>", "expected ','"),
        ("s struct<a int>", "expected ':'"),
        ("x decimal(a)", "expected a number, found 'a'"),
        ("x decimal(39,0)", "decimal(39,0) does not exist"),
        ("x decimal(3,4)", "decimal(3,4) does not exist"),
        ("x long NOT", "expected 'NULL'"),
        ("x long; y long", "at '; y long'"),
        ("<x> long", "'<' is no column name"),
    ],
)
def test_what_cannot_be_read_is_told_with_the_text_and_the_place(text, complaint):
    with pytest.raises(SchemaError) as caught:
        parse_ddl(text)
    assert complaint in str(caught.value) and repr(text) in str(caught.value)


def test_an_arrow_type_without_a_counterpart_is_refused():
    with pytest.raises(SchemaError, match="uint8 has no counterpart"):
        type_name(pa.uint8())
