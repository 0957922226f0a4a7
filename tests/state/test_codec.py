"""State values as bytes and back: exactly, or refused."""

import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import math
import random
import struct
import uuid
import zoneinfo
from typing import NamedTuple

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anabranch as ab
from anabranch.errors import StateError
from anabranch.state.codec import _EXTENSIONS, comparable, decode, encode, encode_flat


def same(one, other) -> bool:
    """Equal with exactly the same types all the way down, and floats bit by bit. Shares no code with the codec."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", other) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, complex):
        return same(one.real, other.real) and same(one.imag, other.imag)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, (datetime.datetime, datetime.time)):
        return repr(one) == repr(other) and one.fold == other.fold
    if isinstance(one, decimal.Decimal):
        return str(one) == str(other)
    if isinstance(one, collections.deque) and one.maxlen != other.maxlen:
        return False
    if isinstance(one, collections.defaultdict) and one.default_factory is not other.default_factory:
        return False
    if isinstance(one, dict):
        return len(one) == len(other) and all(map(same, one, other)) and all(map(same, one.values(), other.values()))
    if isinstance(one, (set, frozenset)):
        return len(one) == len(other) and all(any(same(a, b) for b in other) for a in one)
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


text = st.text(st.sampled_from("ab\0é€🜚"), max_size=6)
zones = st.sampled_from(
    [
        None,
        datetime.UTC,
        datetime.timezone(datetime.timedelta(hours=-3, minutes=-30)),
        datetime.timezone(datetime.timedelta(seconds=17, microseconds=3), "odd"),
        zoneinfo.ZoneInfo("UTC"),
        zoneinfo.ZoneInfo("Europe/Berlin"),
    ]
)
hashable_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    text,
    st.binary(max_size=6),
    st.dates(),
    st.datetimes(timezones=zones, allow_imaginary=True),
    st.times(timezones=zones),
    st.timedeltas(),
    st.decimals(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.fractions(),
    st.uuids(),
)
scalars = st.one_of(
    hashable_scalars,
    st.just(float("nan")),
    st.just(decimal.Decimal("NaN")),
    st.binary(max_size=6).map(bytearray),
    st.floats(width=32).map(np.float32),
    st.integers(-(2**31), 2**31 - 1).map(np.int32),
    st.lists(st.floats(), max_size=4).map(np.array),
    st.lists(st.integers(0, 255), min_size=6, max_size=6).map(lambda v: np.array(v, np.uint8).reshape(2, 3)),
)
keys = st.recursive(hashable_scalars, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
maps = lambda inner: st.dictionaries(keys, inner, max_size=3)  # noqa: E731 - one line among its kind
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        maps(inner),
        maps(inner).map(collections.OrderedDict),
        maps(inner).map(lambda d: collections.defaultdict(list, d)),
        st.sets(keys, max_size=3),
        st.frozensets(keys, max_size=3),
        st.lists(inner, max_size=3).map(lambda v: collections.deque(v, maxlen=5)),
        st.lists(keys, max_size=4).map(collections.Counter),
    ),
    max_leaves=8,
)


@settings(max_examples=60)
@given(values)
def test_any_nested_value_comes_back_with_its_exact_types(value):
    assert same(decode(encode(value)), value)


FLAT = st.lists(st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary())


@given(FLAT)
def test_flat_values_have_the_bytes_that_any_list_has(values):
    assert encode_flat(values) == encode(values)


@given(FLAT, st.integers(1, 300))
def test_a_nan_among_many_numbers_is_found(values, count):
    nan = float("nan")
    for value in ([*values, *(-1.5 + at for at in range(count)), nan, nan], {"a": [[nan, *values]], "b": nan}):
        found = decode(encode(value))
        assert repr(found) == repr(value)
    assert found["a"][0][0] is found["b"]


def test_the_comparison_of_these_tests_can_fail():
    assert not same(1, True) and not same(1, 1.0) and not same(0.0, -0.0) and not same([1], (1,))
    assert not same({1: 2, 3: 4}, {3: 4, 1: 2})
    assert not same(datetime.time(1, fold=1), datetime.time(1))


class Colour(enum.IntEnum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: int


class Text(str):
    pass


EXACT = [
    -0.0,
    float("-inf"),
    bytearray(b"a"),
    [{"deep": bytearray(b"a")}, (bytearray(), b"")],
    2**64,
    2**64 - 1,
    -(2**63) - 1,
    [2**100, {"deep": (2**100, {2**100})}],
    {2**100: 2**100},
    {(1, 2): {"a"}, None: [], True: b""},
    collections.deque([1, 2], maxlen=2),
    collections.defaultdict(None, {"a": 1}),
    collections.defaultdict(int, {"a": 1}),
    collections.Counter({"a": 0, "b": -3}),
    complex(-0.0, float("nan")),
    decimal.Decimal("1.10"),
    decimal.Decimal("-0"),
    fractions.Fraction(2**70, 3),
    uuid.UUID(int=7),
    datetime.datetime(2024, 10, 27, 2, 30, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"), fold=1),
    datetime.datetime(2024, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
    datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1), "CET")),
    datetime.time(2, 30, fold=1),
    np.float64(1.5),
    np.bool_(True),
    np.str_("é"),
    np.datetime64("2024-01-01", "D"),
    np.zeros((0, 3)),
    np.arange(6, dtype=">i4").reshape(2, 3).T,
    np.array(3.5),
    ab.Schema.of("k string, x long").row_class(("a", 1)),
]


@pytest.mark.parametrize("value", EXACT, ids=lambda v: repr(v)[:30])
def test_awkward_values_come_back_exactly(value):
    assert same(decode(encode(value)), value)


def test_a_row_comes_back_with_its_columns():
    row = decode(encode(ab.Schema.of("k string, `odd name` long").row_class(("a", 1))))
    assert row.k == "a" and row["odd name"] == 1


def test_equal_sets_have_equal_bytes_however_they_were_built():
    assert comparable({"b", "a", "c"}) == comparable(set("cba"))


REFUSED = [
    object(),
    Colour.RED,
    Point(1, 2),
    Text("a"),
    len,
    [{"deep": {1: object()}}],
    collections.defaultdict(lambda: 7),
    np.array([object()]),
    memoryview(bytearray(b"a")),
    memoryview(b"ab")[1:],
    [msgpack.ExtType(4, b"a")],
    datetime.datetime(2024, 1, 1, tzinfo=type("Odd", (datetime.tzinfo,), {"utcoffset": lambda *_: None})()),
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda v: type(v).__name__)
def test_what_would_not_come_back_exactly_is_refused(value):
    with pytest.raises(StateError, match="cannot keep"):
        encode(value)


def test_a_refusal_names_the_type_and_what_is_known():
    with pytest.raises(StateError, match=r"Point as state .*Known types: None, bool, .*deque"):
        encode([Point(1, 2)])


def test_a_value_that_contains_itself_is_refused():
    knot: list = []
    knot.append(knot)
    with pytest.raises(StateError, match="cannot keep"):
        encode(knot)


@pytest.mark.parametrize("data", [b"", b"\x00\xc0", b"\x02\xc0", b"\xff"])
def test_another_version_is_refused(data):
    with pytest.raises(StateError, match=r"codec version .* reads 1"):
        decode(data)


def test_an_unknown_extension_number_is_refused():
    with pytest.raises(StateError, match="extension type 99"):
        decode(b"\x01" + msgpack.packb(msgpack.ExtType(99, b"")))


@pytest.mark.parametrize("data", [b"\x01", b"\x01\x93\x01", b"\x01\xc0\xc0", b"\x01\xc1"])
def test_damaged_bytes_are_refused(data):
    with pytest.raises(StateError, match="damaged"):
        decode(data)


def test_the_numbers_of_extensions_never_change():
    names = {number: kind.__name__ for number, (kind, _, _) in _EXTENSIONS.items()}
    first = ["tuple", "set", "frozenset", "int", "datetime", "date", "time", "timedelta", "Decimal", "complex"]
    then = ["deque", "Counter", "defaultdict", "OrderedDict", "UUID", "bytearray", "Fraction", "ndarray", "generic"]
    last = ["Row", "StateMap", "StateMaps", "ObjectGraph", "Reference", "UserObject"]
    assert names == dict(enumerate([*first, *then, *last], start=1)) | {29: "Together"}


GOLDEN = [
    (None, "01c0"),
    ((1, "a"), "01d6019201a161"),
    ({1}, "01d5029101"),
    (2**64, "01c71504b43138343436373434303733373039353531363136"),
    (datetime.date(2024, 1, 1), "01c70506ce000b4646"),
]


@pytest.mark.parametrize(("value", "expected"), GOLDEN, ids=lambda v: repr(v)[:20])
def test_the_bytes_of_a_value_never_change(value, expected):
    assert encode(value).hex() == expected
    assert same(decode(bytes.fromhex(expected)), value)


VALUES = [
    None,
    [1, "a", 2.5, b"x"],
    {"k": (1, 2), 3: {4, 5}},
    2**80,
    datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    datetime.time(1, 2, 3),
    datetime.timedelta(1, 2, 3),
    decimal.Decimal("1.50"),
    collections.deque([1, 2], 5),
    collections.Counter("abca"),
    collections.defaultdict(list, {"a": [1]}),
    fractions.Fraction(1, 3),
    uuid.UUID(int=7),
    np.arange(6.0).reshape(2, 3),
    np.float32(1.5),
    complex(1, 2),
]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whatever_bytes_are_decoded_only_state_errors_come_out(seed):
    chance = random.Random(seed)
    for value in VALUES:
        data = bytearray(encode(value))
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data))
            how = chance.randrange(4)
            if how == 0:
                data[at] ^= 1 << chance.randrange(8)
            elif how == 1:
                data[at] = chance.randrange(256)
            elif how == 2:
                del data[at:]
                data += b"\x01" if not data else b""
            else:
                data[at:at] = bytes(chance.randrange(256) for _ in range(3))
        with contextlib.suppress(StateError):
            decode(bytes(data))
